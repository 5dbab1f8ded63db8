#!/usr/bin/env bash
# Package: rdata 1.1.0
# Expected: a matrix of 2 x 3 texts of R has the shape (2, 3), as one of numbers has, and as pyreadr 0.5.8 reads it
# Seen: it is a vector of 6 texts, column by column, without a warning
# Hits: matrices with one word such as ">5" or "NA " in R, whose cells are then all texts: rows and columns are gone
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install rdata==1.1.0 pyreadr==0.5.8 numpy==2.4.6 pandas==2.3.3 xarray==2026.9.0
# saveRDS(matrix(c("a", "b", "c", "d", "e", "f"), 2), "texts.rds", version = 2)
base64 --decode >texts.rds <<'END'
H4sIAAAAAAACA4vgYmBgYGJgYWZkYGIGMQWABBsDQwMnkGZMhDGSYIxkGCMFxkiFMdIYGFiYQAyoAHNKZi6Q4gVbAMEgG/4BAP8A4QNzAAAA
END
python - <<'END' | expect "rdata (6,) ['a', 'b', 'c', 'd', 'e', 'f'] 0 warnings
pyreadr (2, 3)"
import warnings

import pyreadr
import rdata

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    texts = rdata.read_rds("texts.rds")
own = [warning for warning in caught if "rdata" in warning.filename]
print("rdata", texts.shape, texts.tolist(), len(own), "warnings")
print("pyreadr", pyreadr.read_r("texts.rds")[None].shape)
END

#!/usr/bin/env bash
# Package: pyreadr 0.5.8
# Expected: the ids 7, 1234567890123 and NA of R's class integer64 are read as these numbers, or a warning names the column
# Seen: they are the doubles 3.5e-323, 6.1e-312 and -0.0, whose bits are those of the integers, and no warning is given
# Hits: ids, times and counts of data.table's fread and of databases, saved by saveRDS; numpy's view("int64") brings them back
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install pyreadr==0.5.8 numpy==2.4.6 pandas==2.3.3
# saveRDS(data.frame(id = bit64::as.integer64(c("7", "1234567890123", NA))), "ids.rds", version = 2)
base64 --decode >ids.rds <<'END'
H4sIAAAAAAACA4vgYmBgYGJgYWZkYGIGMpmFgQQjkOYDcRgggB0oJF/4m+V0AwMMsDBB1DVwAmnW5JzE4mIgQwBJkDMzryQ1PbXIzATI+YeuIy8xNxVdB1NmCjEGc6UkliTqpRUBTUBTzlmUX64HM5kXZCLIwf////8LcgIAJTKn3usAAAA=
END
python - <<'END' | expect "[3.5e-323, 6.099575819685e-312, -0.0] float64 0 warnings
[7, 1234567890123, -9223372036854775808]"
import warnings

import pyreadr

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    ids = pyreadr.read_r("ids.rds")[None]["id"]
own = [warning for warning in caught if "pyreadr" in warning.filename]
print(ids.tolist(), ids.dtype, len(own), "warnings")
print(ids.to_numpy().view("int64").tolist())
END

#!/usr/bin/env bash
# Package: pyreadr 0.5.8, rdata 1.1.0
# Expected: an .rda file whose objects cannot all be read is refused, or a warning names the others
# Seen: a list beside a matrix and a data frame is left out without a warning: m, d come back of m, d, l
# Hits: sparse matrices and model objects, which are S4 objects and lists; rdata reads them
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install pyreadr==0.5.8 rdata==1.1.0 numpy==2.4.6 pandas==2.3.3
python -W ignore - <<'END' | expect "['d', 'm'] 0 warnings, ['d', 'l', 'm']"
import warnings

import numpy as np
import pandas as pd
import pyreadr
import rdata

values = {"m": np.ones((2, 2)), "d": pd.DataFrame({"x": [1.0]}), "l": {"a": np.ones(1)}}
rdata.write_rda("three.rda", values)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    seen = pyreadr.read_r("three.rda")
own = [warning for warning in caught if "pyreadr" in warning.filename]
print(sorted(seen), len(own), end=" warnings, ")
print(sorted(rdata.read_rda("three.rda")))
END

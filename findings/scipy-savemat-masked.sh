#!/usr/bin/env bash
# Package: scipy 1.17.1
# Expected: savemat writes a masked cell as NaN, or refuses it
# Seen: it writes 1e20, NumPy's fill value, which loadmat and MATLAB read as a measurement; of whole numbers 999999
# Hits: matrices with holes that go from Python to MATLAB
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install scipy==1.17.1 numpy==2.4.6
python -W ignore - <<'END' | expect "[[1.0, 1e+20], [3.0, 4.0]] [[999999, 2]]"
import numpy as np
from scipy.io import loadmat, savemat

floats = np.ma.array([[1.0, 2.0], [3.0, 4.0]], mask=[[0, 1], [0, 0]])
whole = np.ma.array([[1, 2]], mask=[[1, 0]])
savemat("holes.mat", {"floats": floats, "whole": whole})
seen = loadmat("holes.mat")
print(seen["floats"].tolist(), seen["whole"].tolist())
END

#!/usr/bin/env bash
# Package: mat73 0.65, hdf5storage 0.2.2
# Expected: a column of three, a row of three and an empty matrix of 0 x 4 are told apart
# Seen: column and row both have the shape (3,), and the empty matrix has no shape
# Hits: matrices with one user or one item: rows and columns change places
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install mat73==0.65 hdf5storage==0.2.2 numpy==2.4.6 h5py==3.16.0
python -W ignore - <<'END' | expect "column (3,) row (3,) empty ()"
import hdf5storage
import mat73
import numpy as np

written = {"column": np.ones((3, 1)), "row": np.ones((1, 3)), "empty": np.zeros((0, 4))}
hdf5storage.savemat("shapes.mat", written, format="7.3")
seen = mat73.loadmat("shapes.mat")
print(*(word for name in written for word in (name, np.shape(seen[name]))))
END

#!/usr/bin/env bash
# Package: h5py 3.16.0 (HDF5 2.0.0)
# Expected: numbers that a type cannot hold are refused, or wrap round as NumPy's astype does
# Seen: HDF5 clips: 300 becomes 127, -5 becomes 0, a NaN becomes 0; one number at a time is refused
# Hits: ratings, counts or ids that are written into a smaller type of integers
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install h5py==3.16.0 numpy==2.4.6
python - <<'END' | expect "[127, -128, 3, 0] [0, 255] OverflowError"
import h5py
import numpy as np

with h5py.File("small.h5", "w") as file:
    signed, unsigned = file.create_dataset("signed", (4,), "i1"), file.create_dataset("unsigned", (2,), "u1")
    signed[:], unsigned[:] = np.array([300.0, -300.0, 3.7, np.nan]), np.array([-5, 300])
    seen = signed[:].tolist(), unsigned[:].tolist()
    try:
        signed[0] = 300
    except OverflowError as error:
        print(*seen, type(error).__name__)
END

#!/usr/bin/env bash
# Package: netCDF4 1.7.5.1.post1, xarray 2026.9.0
# Expected: a cell that netCDF4 writes as masked is missing to xarray, too
# Seen: without an attribute _FillValue, it is missing to netCDF4, and the value 9.969209968386869e+36 to xarray
# Hits: matrices with holes: one such cell decides every mean; a variable made with fill_value=nan is read alike by both
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install netCDF4==1.7.5.1.post1 xarray==2026.9.0 numpy==2.4.6 pandas==2.3.3
python -W ignore - <<'END' | expect "[1.0, None, 3.0]
[1.0, 9.969209968386869e+36, 3.0]"
import netCDF4
import numpy as np
import xarray

with netCDF4.Dataset("holes.nc", "w") as file:
    file.createDimension("x", 3)
    file.createVariable("v", "f8", ("x",))[:] = np.ma.array([1, 2, 3], mask=[0, 1, 0])
with netCDF4.Dataset("holes.nc") as file:
    print(file["v"][:].tolist())
print(xarray.open_dataset("holes.nc")["v"].values.tolist())
END

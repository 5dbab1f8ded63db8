#!/usr/bin/env bash
# Package: xarray 2026.9.0, netCDF4 1.7.5.1.post1
# Expected: integers of 64 bits with a _FillValue, none of which is missing, are read as they are, as netCDF4 has them
# Seen: the attribute alone makes them float64: 9007199254740993 becomes 9007199254740992, and two users become one
# Hits: ids of 64 bits, such as hashes, and times in nanoseconds; decode_cf(mask_and_scale=False) keeps them
set -euo pipefail
# shellcheck source=findings/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
install xarray==2026.9.0 netCDF4==1.7.5.1.post1 numpy==2.4.6 pandas==3.1.1
python - <<'END' | expect "[9007199254740992, 9007199254740993] float64 [9007199254740992, 9007199254740992] int64 [9007199254740992, 9007199254740993]"
import netCDF4
import xarray

with netCDF4.Dataset("users.nc", "w") as file:
    file.createDimension("row", 2)
    file.createVariable("user", "i8", ("row",), fill_value=-1)[:] = [2**53, 2**53 + 1]
with netCDF4.Dataset("users.nc") as file:
    seen = [file["user"][:].tolist()]
for mask in (True, False):
    with xarray.open_dataset("users.nc", mask_and_scale=mask) as table:
        seen += [table.user.dtype, [int(user) for user in table.user.values]]
print(*seen)
END

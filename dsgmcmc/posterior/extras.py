"""Optional dependencies of what can be done with a run."""

from __future__ import annotations

from importlib.util import find_spec

from dsgmcmc.errors import InputError

#: Modules of the extra `report`, and the names of their packages.
PACKAGES = {"arviz_base": "arviz-base", "h5netcdf": "h5netcdf", "matplotlib": "matplotlib"}
TO_NETCDF, TO_ARVIZ, REPORT = "`dsgmcmc export --out RUN.nc`", "`to_arviz`", "a report"
#: Which of them each function needs.
NEEDS = {TO_NETCDF: ("arviz_base", "h5netcdf"), TO_ARVIZ: ("arviz_base",), REPORT: ("matplotlib",)}


def require(what: str) -> None:
    """Raise InputError, with the command that installs them, if packages that one of `NEEDS` needs are missing."""
    missing = [PACKAGES[module] for module in NEEDS[what] if find_spec(module) is None]
    if missing:
        are = "are" if missing[1:] else "is"
        raise InputError(
            f"{what} needs {' and '.join(missing)}, which {are} not installed: pip install {' '.join(missing)}, or "
            "dsgmcmc with its extra `report`"
        )

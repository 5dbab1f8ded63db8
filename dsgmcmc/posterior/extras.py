"""Optional dependencies of what can be done with a run."""

from __future__ import annotations

from importlib.util import find_spec

from dsgmcmc.errors import InputError

#: Modules of the extra `report`, and the names of their packages.
PACKAGES = {"arviz_base": "arviz-base", "h5netcdf": "h5netcdf"}
TO_NETCDF, TO_ARVIZ = "`dsgmcmc export --out RUN.nc`", "`to_arviz`"
#: Which of them each function needs.
NEEDS = {TO_NETCDF: ("arviz_base", "h5netcdf"), TO_ARVIZ: ("arviz_base",)}


def lacking(*whats: str) -> str:
    """Say which packages that some of `NEEDS` (default all) need are missing, and how to install them; "" if none are.

    Nothing is imported: it takes a millisecond.
    """
    missing = {what: [module for module in NEEDS[what] if find_spec(module) is None] for what in whats or NEEDS}
    wanting = [what for what, modules in missing.items() if modules]
    packages = [PACKAGES[module] for module in PACKAGES if any(module in modules for modules in missing.values())]
    if not packages:
        return ""
    need, are = "need" if wanting[1:] else "needs", "are" if packages[1:] else "is"
    return (
        f"{' and '.join(wanting)} {need} {' and '.join(packages)}, which {are} not installed: "
        f"pip install {' '.join(packages)}"
    )


def require(what: str) -> None:
    """Raise InputError, with the command that installs them, if packages that one of `NEEDS` needs are missing."""
    if text := lacking(what):
        raise InputError(text)

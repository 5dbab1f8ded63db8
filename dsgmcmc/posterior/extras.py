"""What can be done with a run only where more is installed than dsgmcmc needs: the one place that knows."""

from __future__ import annotations

from importlib.util import find_spec

from dsgmcmc.errors import InputError

#: Modules of the extra `report`, and what pip calls them.
PACKAGES = {"arviz_base": "arviz-base", "h5netcdf": "h5netcdf"}
TO_NETCDF, TO_ARVIZ = "`dsgmcmc export --out RUN.nc`", "`to_arviz`"
#: What needs which of them.
NEEDS = {TO_NETCDF: ("arviz_base", "h5netcdf"), TO_ARVIZ: ("arviz_base",)}


def lacking(*whats: str) -> str:
    """Say what some of `NEEDS` (default all) need that is not installed, and how to get it; empty if nothing.

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
    """Raise unless all that one of `NEEDS` needs is installed.

    Raises InputError with the command that installs the rest.
    """
    if text := lacking(what):
        raise InputError(text)

"""Opens files of the sciences as tables: of AnnData, 10x, MATLAB, R, SPSS, Stata, netCDF and GCT.

A file of two possible readings raises an error that names the choice: which matrix, what cells
mean that a sparse matrix does not store, which dimension has users. No code in a file is run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from dsgmcmc.errors import InputError
from dsgmcmc.input.sources.base import Source
from dsgmcmc.ratings.reading import Reading

_SPSS = (b"$FL2", b"$FL3")
_MATLAB = b"MATLAB 5.0 MAT-file"
_CLASSIC = (b"CDF\x01", b"CDF\x02", b"CDF\x05")  # netCDF before version 4
_SAS = b"\0" * 12 + b"\xc2\xea\x81\x60"


def open_folder(
    path: Path, read_market: Callable[[Path], Any], choice: Reading, limit: int
) -> Source:
    """Return the table in a folder, given a function that reads a MatrixMarket file.

    Raises InputError if it is no folder of 10x, and no zarr store of AnnData.
    """
    from dsgmcmc.input.sources.annotated import is_annotated_store, read_store
    from dsgmcmc.input.sources.expression import is_tenx, read_tenx

    if is_tenx(path):
        return read_tenx(path, read_market, choice, limit)
    if is_annotated_store(path):
        return read_store(path, choice, limit)
    if any((path / name).exists() for name in (".zgroup", ".zarray", "zarr.json")):
        raise InputError(
            f"{path} is a zarr store, and none of AnnData: read it by xarray.open_zarr, and give"
            " the object to BPMF"
        )
    raise InputError(f"{path} is not a file")


def open_scientific(path: Path, head: bytes, choice: Reading, limit: int) -> Source | None:
    """Return the table in a file of the sciences, or None for other files.

    Parameters
    ----------
    head : bytes
        Beginning of the file, unpacked.
    choice : Reading
        What the user chooses.
    limit : int
        Memory that may be used, in bytes.

    Raises
    ------
    InputError
        If the file cannot be read, can be read in several ways, or needs a library that is not
        installed, or of which this program does not know.
    """
    from dsgmcmc.input.sources import anndata, expression, r

    reader = _reader_of(head)
    if reader is not None:
        return reader(path, choice, limit)
    if head.startswith(_SAS):
        raise InputError(f"{path} is a SAS file: read it by pyreadstat.read_sas7bdat")
    if expression.is_gct(head[:6].decode("latin-1").splitlines() or [""]):
        return expression.read_gct(path, choice, limit)
    if anndata.is_hdf5(path):
        found = anndata.read_hdf5(path, choice, limit)
        return found or _netcdf(path, choice, limit, classic=False)
    if r.is_r(path):
        return r.read_r(path, choice, limit)
    return None


def _reader_of(head: bytes) -> Callable[[Path, Reading, int], Source] | None:
    """Return the function that reads a file with a mark at its beginning, or None."""
    from dsgmcmc.input.sources import matlab, survey

    if head.startswith(_MATLAB):
        return matlab.read_matlab
    if head.startswith(_SPSS):
        return partial(survey.read_survey, stata=False)
    if survey.is_stata(head):
        return partial(survey.read_survey, stata=True)
    if head.startswith(_CLASSIC):
        return partial(_netcdf, classic=True)
    return None


def _netcdf(path: Path, choice: Reading, limit: int, *, classic: bool) -> Source:
    from dsgmcmc.input.sources.netcdf import read_netcdf

    return read_netcdf(path, choice, limit, classic=classic)

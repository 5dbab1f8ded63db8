"""Reads matrices of MATLAB's files before version 7.3, by SciPy."""

from __future__ import annotations

import warnings
from pathlib import Path

from dsgmcmc.errors import InputError, refusing
from dsgmcmc.input.sources.anndata import NUMBERS, matlab_table, select_variable
from dsgmcmc.input.sources.base import Source
from dsgmcmc.input.sources.labelled import refuse_cells, refuse_type
from dsgmcmc.ratings.reading import Reading

_CLASSES = (*NUMBERS, "sparse")


def read_matlab(path: Path, choice: Reading, limit: int) -> Source:
    """Return a matrix; cells, structs, texts and objects are not read."""
    from scipy.io import loadmat, whosmat  # slow to import

    # SciPy raises errors of many types for damaged files
    with refusing(f"{path} cannot be read", Exception):
        found = whosmat(path)
    shapes = {name: shape for name, shape, kind in found if kind in _CLASSES and len(shape) == 2}
    name = select_variable(path, shapes, choice)
    kinds = {name: kind for name, _, kind in found}
    if kinds[name] != "sparse":
        refuse_cells(path, shapes[name], limit)
    with refusing(f"{path} cannot be read", Exception), warnings.catch_warnings():
        # SciPy 1.20 will return another class of sparse matrices, which is as good
        warnings.filterwarnings("ignore", message="The default value for `spmatrix`")
        values = loadmat(path, variable_names=[name])[name]
    if 0 in values.shape:
        raise InputError(f"{path}: {name} is empty")
    refuse_type(path, values.dtype)
    return matlab_table(path, values, choice, limit)

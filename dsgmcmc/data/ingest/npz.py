"""SciPy's sparse matrices in .npz files, of which a few bytes may expand to any number of entries."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from dsgmcmc.errors import InputError

#: Bytes that are needed while a matrix is read, for every byte of its arrays.
_COPIES = 4
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_npz(path: Path, memory: int) -> Any:
    """Read a matrix of real numbers, scipy.sparse.coo_matrix or coo_array, that may take so many bytes.

    Raises InputError if it is none, or its arrays are too large; they are not unpacked then.
    """
    import scipy.sparse  # takes its time to import

    try:
        size = _declared(path)
        if _COPIES * size > memory:
            raise InputError(
                f"{path} declares {size / 1e6:,.0f} MB of arrays, and about {_COPIES} times as much memory is needed: "
                "raise --memory, or write its entries as Parquet"
            )
        matrix = scipy.sparse.load_npz(path)
        if matrix.format in ("csr", "csc"):
            matrix.check_format(full_check=True)  # tocoo trusts the index pointer
        elif matrix.format != "coo":
            raise ValueError(f"its format is {matrix.format}, not csr, csc or coo")
        matrix = matrix.tocoo()
        if matrix.data.dtype.kind not in "fiub":
            raise ValueError(f"its values are {matrix.data.dtype}")
    except InputError:
        raise
    except Exception as error:  # zipfile, numpy and scipy raise whatever they meet
        raise InputError(f"{path} is not a SciPy sparse matrix: {error}") from error
    return matrix


def _declared(path: Path) -> int:
    """Bytes that a file says its arrays have; raises ValueError if an array has more than its member can hold."""
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            with archive.open(info) as member:  # reads no more than the size that the directory declares
                shape, _, dtype = _HEADERS[np.lib.format.read_magic(member)](member)
            if math.prod(shape) * dtype.itemsize > info.file_size:
                raise ValueError(f"{info.filename} is said to have the shape {shape}, in {info.file_size} bytes")
        return sum(info.file_size for info in archive.infolist())

"""Files of MATLAB, before version 7.3 and of it."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io
import scipy.sparse
from science_cases import read, refused
from support import typed

DENSE = np.array([[1.0, 0.5, 3.0, 4.0, 2.0], [np.nan, 5.0, 6.0, 1.0, 3.0]])
CELLS = {(1, j + 1): value for j, value in enumerate(DENSE[0])}
CELLS |= {(2, j + 1): value for j, value in enumerate(DENSE[1]) if j}
#: Entries in rows 1 and 2 of a matrix of 4 x 3.
SPARSE = scipy.sparse.csc_matrix(([5.0, 7.0], ([0, 1], [0, 2])), (4, 3))


def write_old(path: Path, **variables: object) -> None:
    scipy.io.savemat(path, variables, do_compression=True)


def write_new(path: Path, **variables: object) -> None:
    """Variables as MATLAB writes them in version 7.3."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, value in variables.items():
            if scipy.sparse.issparse(value):
                _write_sparse(file.create_group(name), value.tocsc())
                continue
            array = np.asarray(value)
            if not array.size:
                file[name] = np.array(array.shape, np.uint64)
                file[name].attrs["MATLAB_empty"] = 1
            elif array.dtype.kind == "U":
                file[name] = np.frombuffer(str(value).encode("utf-16-le"), np.uint16)[:, None]
            else:
                file[name] = np.atleast_2d(array).T
            kind = {"f": "double", "b": "logical", "U": "char"}[array.dtype.kind]
            file[name].attrs["MATLAB_class"] = np.bytes_(kind)
    head = b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM"
    with path.open("r+b") as raw:
        raw.write(head.ljust(512, b"\0"))


def _write_sparse(node: h5py.Group, matrix: scipy.sparse.csc_matrix) -> None:
    node.attrs.update({"MATLAB_class": np.bytes_("double"), "MATLAB_sparse": matrix.shape[0]})
    node["jc"] = matrix.indptr.astype(np.uint64)
    if matrix.nnz:
        node["ir"] = matrix.indices.astype(np.uint64)
        node["data"] = matrix.data


both = pytest.mark.parametrize("write", [write_old, write_new], ids=["5", "7.3"])


@both
def test_a_matrix_is_read_as_text_without_a_header(tmp_path: Path, write: object) -> None:
    path = tmp_path / "x.mat"
    write(path, R=DENSE, name="study", n=2.0)
    assert "each row is a user, and each column an item: --matrix" in refused(path)
    assert read(path, matrix=True) == CELLS


@both
def test_three_columns_are_user_item_and_rating(tmp_path: Path, write: object) -> None:
    path = tmp_path / "x.mat"
    write(path, R=np.array([[7.0, 1, 4.5], [7, 2, 3], [9, 1, 2]]))
    typed("prepare", path, tmp_path / "out.h5", "--test-fraction", "0").expect(0)
    assert read(path) == {(7, 1): 4.5, (7, 2): 3, (9, 1): 2}


@both
def test_trailing_empty_rows_of_a_sparse_matrix_are_known(tmp_path: Path, write: object) -> None:
    path = tmp_path / "x.mat"
    write(path, R=SPARSE)
    assert "does not store 10 of them" in refused(path)
    assert read(path, unstored="missing") == {(1, 1): 5, (2, 3): 7}
    zeros = {(i, j): 0 for i in range(1, 5) for j in range(1, 4)}
    assert read(path, unstored="zero") == {**zeros, (1, 1): 5, (2, 3): 7}


@both
def test_a_sparse_matrix_without_entries_has_no_ratings(tmp_path: Path, write: object) -> None:
    path = tmp_path / "x.mat"
    write(path, R=scipy.sparse.csc_matrix((4, 3)))
    assert "has no ratings" in refused(path, "--unstored", "missing")


@both
def test_one_of_several_matrices_is_chosen(tmp_path: Path, write: object) -> None:
    path = tmp_path / "x.mat"
    write(path, A=DENSE, B=SPARSE, s="text", row=np.array([[1.0, 2.0, 3.0]]))
    assert "'A' and 'B': which of them" in refused(path)
    assert read(path, variable="A", matrix=True) == CELLS
    assert read(path, variable="B", unstored="missing") == {(1, 1): 5, (2, 3): 7}
    assert "has no 's'" in refused(path, "--variable", "s")
    assert "leave out --unstored" in refused(path, "--variable", "A", "--unstored", "zero")


@both
def test_truth_is_0_and_1(tmp_path: Path, write: object) -> None:
    path = tmp_path / "x.mat"
    write(path, R=np.array([[True, False], [True, True]]))
    assert read(path, matrix=True) == {(1, 1): 1, (1, 2): 0, (2, 1): 1, (2, 2): 1}


@both
@pytest.mark.parametrize("value", ["text", np.zeros((0, 4))], ids=["text", "empty"])
def test_what_is_no_matrix_of_numbers_is_refused(
    tmp_path: Path, write: object, value: object
) -> None:
    path = tmp_path / "x.mat"
    write(path, R=value)
    assert "no matrix or table that can be read" in refused(path)


def test_cells_structs_and_objects_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.mat"
    cells = np.array([[1.0, "a"], [2.0, "b"]], object)
    write_old(path, c=cells, s={"a": 1.0})
    assert "no matrix or table" in refused(path)
    assert "no matrix or table" not in refused(path, "--variable", "c")


def test_stored_zeros_are_kept_and_a_stored_nan_is_named(tmp_path: Path) -> None:
    """MATLAB stores NaN: it is no rating, and not said to be missing."""
    path = tmp_path / "x.mat"
    write_old(path, R=scipy.sparse.csc_matrix(([np.nan, 0.0, 1.0], ([0, 0, 1], [0, 1, 2]))))
    message = refused(path, "--unstored", "missing")
    assert "the rating is missing or not a number (user 1, item 1" in message
    assert "by --missing WORD" in message
    assert read(path, unstored="missing", missing="") == {(1, 2): 0, (2, 3): 1}
    assert len(read(path, unstored="zero")) == 5


def test_cells_that_python_masked_are_no_ratings(tmp_path: Path) -> None:
    """SciPy writes 1e20 for them, and 999999 among whole numbers."""
    path = tmp_path / "x.mat"
    values = np.ma.array(np.arange(60).reshape(12, 5) % 7)
    values[3, 2] = np.ma.masked
    write_old(path, R=values.astype(float))
    assert "1e+20, but single precision" in refused(path, "--matrix")
    write_old(path, R=values)
    shown = typed("prepare", path, tmp_path / "out.h5", "--matrix").expect(0)
    assert "999999" in shown.err


def test_integers_and_single_precision_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "x.mat"
    for kind in (np.float32, np.int16, np.uint8):
        write_old(path, R=np.array([[1, 2], [3, 4]], kind))
        assert read(path, matrix=True) == {(1, 1): 1, (1, 2): 2, (2, 1): 3, (2, 2): 4}


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.mat"
    write_old(path, R=DENSE)
    path.write_bytes(path.read_bytes()[:-30])
    assert "cannot be read" in refused(path)


def test_a_matrix_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.mat"
    write_old(path, R=np.zeros((4000, 3000)))
    assert "4,000 x 3,000 cells, which take 0.6 GB" in refused(path, "--memory", "500MB")

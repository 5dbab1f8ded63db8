"""What users choose in files and objects, in Python and in files of older formats; libraries that
are not installed.
"""

import re
import sys
from pathlib import Path

import pytest
import scipy.sparse
from science_cases import read, refused
from science_files import R, r_frame, write_rds

from dsgmcmc import BPMF
from dsgmcmc.errors import InputError
from dsgmcmc.input.arrays import read_ratings
from dsgmcmc.prepare.prepare import prepare_ratings
from dsgmcmc.ratings.reading import Reading

MARKET = "%%MatrixMarket matrix coordinate integer general\n2 2 2\n1 1 5\n2 2 7\n"


def test_cells_that_older_formats_do_not_store_may_be_zeros(tmp_path: Path) -> None:
    path = tmp_path / "x.mtx"
    path.write_text(MARKET)
    assert read(path) == read(path, unstored="missing") == {(1, 1): 5, (2, 2): 7}
    assert read(path, unstored="zero") == {(1, 1): 5, (1, 2): 0, (2, 1): 0, (2, 2): 7}
    sparse = tmp_path / "x.npz"
    scipy.sparse.save_npz(sparse, scipy.sparse.csr_matrix([[5, 0], [0, 7]]))
    assert read(sparse, unstored="zero") == {(0, 0): 5, (0, 1): 0, (1, 0): 0, (1, 1): 7}


def test_a_sparse_matrix_in_memory_may_store_no_zeros() -> None:
    matrix = scipy.sparse.csr_matrix([[5, 0], [0, 7]])
    found = read_ratings(matrix, None, Reading(unstored="zero"))
    assert found["rating"].tolist() == [5, 0, 0, 7]
    assert read_ratings(matrix)["rating"].tolist() == [5, 7]


def test_zeros_of_a_huge_sparse_matrix_are_refused(tmp_path: Path) -> None:
    """In memory and in a file; the message has the shape, the memory and what to do."""
    million = 10**6
    matrix = scipy.sparse.coo_matrix(([5.0, 7.0], ([0, 9], [3, 0])), shape=(million, million))
    found = "has 1,000,000 x 1,000,000 cells, which take 48,000.0 GB to read, and .* may be used"
    python = "raise --memory of dsgmcmc prepare, .* give unstored missing"
    with pytest.raises(InputError, match=f"the sparse matrix {found}: {python}"):
        BPMF(unstored="zero").fit(matrix)
    assert read_ratings(matrix)["rating"].tolist() == [5, 7]
    path = tmp_path / "x.npz"
    scipy.sparse.save_npz(path, matrix)
    message = refused(path, "--unstored", "zero")
    assert re.search(f"x.npz {found}: raise --memory, .* give --unstored missing", message)


@pytest.mark.parametrize("options", [("--variable", "x"), ("--unstored", "zero")])
def test_a_choice_without_an_object_is_refused(tmp_path: Path, options: tuple[str, str]) -> None:
    path = tmp_path / "r.csv"
    path.write_text("user,item,rating\n1,1,5\n2,2,3\n")
    assert f"leave out {options[0]}" in refused(path, *options)


def test_a_library_that_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("rdata")
    monkeypatch.setitem(sys.modules, "rdata", None)
    path = write_rds(tmp_path / "d.rds", r_frame({"user": R([1]), "item": R([1])}))
    assert 'is read by rdata, which is not installed: pip install "dsgmcmc[science]"' in refused(
        path
    )


def test_formats_that_are_not_read_name_who_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "x.sas7bdat"
    path.write_bytes(b"\0" * 12 + b"\xc2\xea\x81\x60" + b"\0" * 300)
    assert "pyreadstat.read_sas7bdat" in refused(path)


def test_a_ratings_file_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("user,item,rating\n1,1,5\n2,2,3\n")
    prepare_ratings([tmp_path / "r.csv"], tmp_path / "r.h5", test_fraction=0)
    assert "is a ratings file already" in refused(tmp_path / "r.h5")

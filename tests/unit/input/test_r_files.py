"""Files of R: data frames and matrices as `write.csv` has them, and sparse matrices."""

import bz2
import gzip
import lzma
import struct
from pathlib import Path

import pytest
from ingest_cases import everything
from science_cases import read, refused
from science_files import NA_INT, NA_REAL, R, r_frame, r_matrix, r_sparse, write_rda, write_rds
from support import typed

pytest.importorskip("rdata", reason="rdata reads files of R")

LONG = r_frame(
    {
        "user": R(["a", "a", "b"]),
        "item": R([10, 20, 10]),
        "rating": R([4.0, 3.5, 1.0]),
    }
)
RATINGS = {("a", 10): 4.0, ("a", 20): 3.5, ("b", 10): 1.0}


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_a_data_frame_is_a_table(tmp_path: Path, pack: object) -> None:
    path = write_rds(tmp_path / "d.rds", LONG)
    path.write_bytes(pack(path.read_bytes()))
    typed("prepare", path, tmp_path / "out.h5").expect(0)
    assert everything(tmp_path / "out.h5") == RATINGS


def test_an_object_is_chosen_among_those_that_can_be_read(tmp_path: Path) -> None:
    """Pyreadr leaves out sparse matrices beside data frames."""
    sparse = r_sparse(
        "dgCMatrix", i=R([0, 1]), p=R([0, 1, 2]), x=R([5.0, 6.0]), Dim=R([2, 2]), factors=R([])
    )
    path = write_rda(tmp_path / "two.rda", {"d": LONG, "l": R([R([1.0])]), "s": sparse})
    assert "'d' and 's': which of them" in refused(path)
    assert "has no 'x'" in refused(path, "--variable", "x")
    assert read(path, variable="d") == RATINGS
    assert read(path, variable="s", unstored="missing") == {(1, 1): 5, (2, 2): 6}


def test_a_matrix_is_read_as_its_csv_file_would_be(tmp_path: Path) -> None:
    rows = R(["ann", "bob"])
    wide = r_matrix([[1.0, 2.0], [NA_REAL, 4.0]], [rows, R(["i1", "i2"])])
    path = write_rds(tmp_path / "m.rds", wide)
    assert read(path, matrix=True) == {("ann", "i1"): 1, ("bob", "i1"): 2, ("bob", "i2"): 4}
    long = r_matrix([[1, 2], [7, 8], [5, 4]], [None, R(["user", "item", "rating"])])
    assert read(write_rds(path, long)) == {(1, 7): 5, (2, 8): 4}
    assert read(write_rds(path, r_matrix([[1, 2], [7, 8], [5, 4]]))) == {(1, 7): 5, (2, 8): 4}


def test_row_names_that_are_numbers_are_kept(tmp_path: Path) -> None:
    """Pyreadr loses those of d[c(4, 2), ]."""
    frame = r_frame({"i1": R([1.0, 2.0]), "i2": R([3.0, 4.0])}, R([4, 2]))
    found = read(write_rds(tmp_path / "d.rds", frame), matrix=True)
    assert found == {(4, "i1"): 1, (4, "i2"): 3, (2, "i1"): 2, (2, "i2"): 4}


def test_integers_of_64_bits_are_no_doubles(tmp_path: Path) -> None:
    """7, 1234567890123 and NA are 3.5e-323, 6.0996e-312 and -0.0 to pyreadr."""
    bits = [struct.pack(">q", number) for number in (7, 1234567890123, -(2**63))]
    users = R(bits, {"class": R(["integer64"])})
    frame = r_frame({"user": users, "item": R([1, 2, 3]), "rating": R([1.0, 2.0, 3.0])})
    path = write_rds(tmp_path / "d.rds", frame)
    assert "the user is missing" in refused(path)
    assert read(path, missing="") == {(7, 1): 1, (1234567890123, 2): 2}


def test_missing_integers_and_truth_are_missing(tmp_path: Path) -> None:
    frame = r_frame(
        {"user": R([1, 2, 3]), "a": R([5, NA_INT, 3]), "b": R([True, False, True])},
    )
    found = read(write_rds(tmp_path / "d.rds", frame), matrix=True)
    assert found == {(1, "a"): 5, (1, "b"): 1, (2, "b"): 0, (3, "a"): 3, (3, "b"): 1}


def test_factors_are_their_levels(tmp_path: Path) -> None:
    users = R([2, 1, NA_INT], {"levels": R(["lo", "hi"]), "class": R(["factor"])})
    frame = r_frame({"user": users, "item": R(["x", "y", "x"]), "rating": R([1.0, 2.0, 3.0])})
    path = write_rds(tmp_path / "d.rds", frame)
    assert read(path, missing="") == {("hi", "x"): 1, ("lo", "y"): 2}


def test_values_that_haven_declares_missing_are_missing(tmp_path: Path) -> None:
    """Both readers give the codes; R's is.na() is TRUE for them."""
    classes = R(["haven_labelled_spss", "haven_labelled", "vctrs_vctr", "double"])
    codes = R([1.0, 2.0, -9.0, 99.0], {"na_values": R([-9.0, 99.0]), "class": classes})
    ranged = R([1.0, 2.0, 98.0, 99.0], {"na_range": R([98.0, 1e9]), "class": classes})
    frame = r_frame({"user": R([1, 2, 3, 4]), "a": codes, "b": ranged})
    found = read(write_rds(tmp_path / "d.rds", frame), matrix=True)
    assert found == {(1, "a"): 1, (1, "b"): 1, (2, "a"): 2, (2, "b"): 2}


def test_dates_are_times(tmp_path: Path) -> None:
    """The latest rating of a pair counts."""
    frame = r_frame(
        {
            "user": R([1, 1, 2]),
            "item": R([1, 1, 2]),
            "rating": R([5.0, 3.0, 2.0]),
            "date": R([19000.0, 18000.0, 18500.0], {"class": R(["Date"])}),
        }
    )
    assert read(write_rds(tmp_path / "d.rds", frame)) == {(1, 1): 5, (2, 2): 2}


SYMMETRIC = {"uplo": R(["U"]), "factors": R([])}
#: Objects of Matrix, and what R's as.matrix shows of them; stored cells alone.
SPARSE = {
    "dgTMatrix": (
        {"i": R([0, 0, 1]), "j": R([0, 0, 2]), "x": R([4.0, 5.0, 1.0]), "Dim": R([2, 3])},
        {(1, 1): 9, (2, 3): 1},
    ),
    "dgRMatrix": (
        {"j": R([2, 0]), "p": R([0, 1, 2]), "x": R([4.0, 5.0]), "Dim": R([2, 3])},
        {(1, 3): 4, (2, 1): 5},
    ),
    "ngCMatrix": (
        {"i": R([1, 0]), "p": R([0, 1, 2]), "Dim": R([2, 2])},
        {(2, 1): 1, (1, 2): 1},
    ),
    "lgCMatrix": (
        {"i": R([1, 0]), "p": R([0, 1, 2]), "x": R([True, False]), "Dim": R([2, 2])},
        {(2, 1): 1, (1, 2): 0},
    ),
    "dsCMatrix": (
        {"i": R([0, 0]), "p": R([0, 1, 2]), "x": R([4.0, 5.0]), "Dim": R([2, 2]), **SYMMETRIC},
        {(1, 1): 4, (1, 2): 5, (2, 1): 5},
    ),
    "dtCMatrix": (
        {
            "i": R([0]),
            "p": R([0, 0, 1]),
            "x": R([5.0]),
            "Dim": R([2, 2]),
            "diag": R(["U"]),
            "uplo": R(["U"]),
        },
        {(1, 1): 1, (1, 2): 5, (2, 2): 1},
    ),
    "ddiMatrix": (
        {"diag": R(["U"]), "x": R([0.5]), "Dim": R([2, 2])},
        {(1, 1): 1, (2, 2): 1},
    ),
}


@pytest.mark.parametrize("kind", SPARSE)
def test_the_class_of_a_sparse_matrix_decides(tmp_path: Path, kind: str) -> None:
    slots, expected = SPARSE[kind]
    path = write_rds(tmp_path / "s.rds", r_sparse(kind, **slots))
    assert read(path, unstored="missing") == expected


def test_what_a_sparse_matrix_does_not_store_must_be_said(tmp_path: Path) -> None:
    slots, _ = SPARSE["dgRMatrix"]
    path = write_rds(tmp_path / "s.rds", r_sparse("dgRMatrix", **slots))
    message = refused(path)
    assert "does not store 4 of them" in message
    assert "--unstored zero" in message
    found = read(path, unstored="zero")
    assert len(found) == 6
    assert found[1, 1] == 0
    assert found[1, 3] == 4


def test_names_of_a_sparse_matrix_are_names(tmp_path: Path) -> None:
    matrix = r_matrix([[1.0, 1.0], [1.0, 1.0]], [R(["u", "v"]), R(["i", "j"])])
    slots = {"i": R([0, 1]), "p": R([0, 1, 2]), "x": R([2.0, 3.0]), "Dim": R([2, 2])}
    path = write_rds(
        tmp_path / "s.rds",
        r_sparse("dgCMatrix", Dimnames=matrix.attributes["dimnames"], **slots),
    )
    assert read(path, unstored="missing") == {("u", "i"): 2, ("v", "j"): 3}


@pytest.mark.parametrize(
    "value",
    [r_matrix([["a", "b"], ["c", "d"]]), R([1.0, 2.0]), R([R([1.0])])],
    ids=["texts", "vector", "list"],
)
def test_other_objects_are_refused(tmp_path: Path, value: R) -> None:
    assert "not a data frame or a matrix of numbers" in refused(
        write_rds(tmp_path / "x.rds", value)
    )


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = write_rds(tmp_path / "d.rds", LONG)
    path.write_bytes(path.read_bytes()[:-40])
    assert "cannot be read" in refused(path)


def test_a_long_sequence_in_a_short_file_is_refused(tmp_path: Path) -> None:
    """1:1e15 takes a hundred bytes in a file of version 3."""
    head = b"X\n" + struct.pack(">iii", 3, 0x00040301, 0x00030500)
    head += struct.pack(">i", 5) + b"UTF-8"
    state = R([1e15, 1.0, 1.0]).bytes()
    symbol = struct.pack(">iii", 1, 9 | 64 << 12, 14) + b"compact_intseq"
    base = struct.pack(">iii", 1, 9 | 64 << 12, 4) + b"base"
    nil = struct.pack(">i", 254)
    info = b"".join(struct.pack(">i", 2) + value for value in (symbol, base, R([13]).bytes()))
    (tmp_path / "x.rds").write_bytes(head + struct.pack(">i", 238) + info + nil + state + nil)
    assert "too long for the memory" in refused(tmp_path / "x.rds")


def test_features_are_read_from_a_data_frame(tmp_path: Path) -> None:
    ratings = tmp_path / "r.csv"
    ratings.write_text("user,item,rating\na,1,4\nb,2,3\n")
    path = write_rds(tmp_path / "f.rds", r_frame({"user": R(["a", "b"]), "age": R([30.0, 40.0])}))
    shown = typed("prepare", ratings, tmp_path / "out.h5", "--user-features", path).expect(0)
    assert "age" in shown.out

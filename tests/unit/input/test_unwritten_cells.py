"""Cells of HDF5 data sets that nobody wrote are no ratings of 0 unless users say so."""

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from science_cases import read, refused
from science_files import write_h5ad
from support import typed

VALUES = np.random.default_rng(0).integers(0, 6, (40, 30)).astype(float)
WRITTEN = (slice(0, 30), slice(0, 20))  # three chunks of four, by two of three
CHUNKS = (10, 10)
USERS = [f"o{k}" for k in range(40)]
ITEMS = [f"v{k}" for k in range(30)]


def written_in_part(file: h5py.File, name: str, fill: float | None, *, swapped: bool) -> None:
    """Write a part of a matrix whose axes may be swapped; its other chunks are not in the file."""
    values = VALUES.T if swapped else VALUES
    part = WRITTEN[::-1] if swapped else WRITTEN
    node = file.create_dataset(name, values.shape, "f8", chunks=CHUNKS, fillvalue=fill)
    node[part] = values[part]


def annotated(path: Path, fill: float | None) -> list[str]:
    """Write a file of AnnData."""
    with write_h5ad(path, USERS, ITEMS) as file:
        written_in_part(file, "X", fill, swapped=False)
    return []


def matlab(path: Path, fill: float | None) -> list[str]:
    """Write a file of MATLAB 7.3."""
    with h5py.File(path, "w", userblock_size=512) as file:
        written_in_part(file, "X", fill, swapped=True)
        file["X"].attrs["MATLAB_class"] = np.bytes_("double")
    with path.open("r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")
    return ["--matrix"]


def netcdf(path: Path, fill: float | None) -> list[str]:
    """Write a file of netCDF-4, whose variable has items in rows."""
    with h5py.File(path, "w") as file:
        for name, n in (("item", 30), ("user", 40)):
            file[name] = np.arange(n)
            file[name].make_scale(name)
        written_in_part(file, "r", fill, swapped=True)
        for k, name in enumerate(("item", "user")):
            file["r"].dims[k].attach_scale(file[name])
    return []


MADE = {"x.h5ad": annotated, "x.mat": matlab, "x.nc": netcdf}
Make = Callable[[Path, float | None], list[str]]


@pytest.mark.parametrize(("name", "make"), MADE.items())
@pytest.mark.parametrize("fill", [None, -1.0])
def test_asks_what_cells_mean_that_nobody_wrote(
    tmp_path: Path, name: str, make: Make, fill: float | None
) -> None:
    """Without a choice they are refused; with one they are left out, or are 0."""
    if name == "x.nc":
        pytest.importorskip("xarray")
    path = tmp_path / name
    options = make(path, fill)
    message = refused(path, *options)
    assert f"nobody wrote 600 of the 1,200 cells, which HDF5 reads as {fill or 0:g}:" in message
    assert "--unstored missing or --unstored zero" in message
    found = read(path, matrix=bool(options), unstored="missing")
    assert sorted(found.values()) == sorted(VALUES[WRITTEN].ravel())
    filled = np.zeros(VALUES.shape)
    filled[WRITTEN] = VALUES[WRITTEN]
    found = read(path, matrix=bool(options), unstored="zero")
    assert sorted(found.values()) == sorted(filled.ravel())


def test_the_summary_says_what_they_are(tmp_path: Path) -> None:
    """It also counts ratings of the fill value beside them, which may be unwritten, too."""
    annotated(tmp_path / "x.h5ad", None)
    result = typed(
        *("prepare", tmp_path / "x.h5ad", tmp_path / "x.h5", "--unstored", "missing", "--json")
    )
    n_zeros = np.count_nonzero(VALUES[WRITTEN] == 0)
    expected = f"600 cells that nobody wrote are not rated, {n_zeros} cells of 0 beside them"
    assert expected in result.out


@pytest.mark.parametrize(("name", "make"), MADE.items())
def test_a_fill_value_of_nan_is_a_missing_cell(tmp_path: Path, name: str, make: Make) -> None:
    """Then nothing is in doubt, and nothing need be chosen."""
    if name == "x.nc":
        pytest.importorskip("xarray")
    path = tmp_path / name
    options = make(path, np.nan)
    assert len(read(path, matrix=bool(options))) == 600


def test_a_matrix_that_nobody_wrote_is_refused(tmp_path: Path) -> None:
    """A data set without chunks may have no cells in the file at all."""
    path = tmp_path / "x.h5ad"
    with write_h5ad(path, USERS, ITEMS) as file:
        file.create_dataset("X", (40, 30), "f4")
    assert "nobody wrote 1,200 of the 1,200 cells" in refused(path)


def test_annotations_that_nobody_wrote_are_refused(tmp_path: Path) -> None:
    """Features are not taken for 0."""
    path = tmp_path / "x.h5ad"
    with write_h5ad(path, USERS, ITEMS) as file:
        file["X"] = VALUES
        file["obs"].create_dataset("age", (40,), "f8", chunks=(10,))[:10] = 1
    message = refused(path, "--user-features", str(path))
    assert "nobody wrote 30 of the 40 values of /obs/age" in message


def test_unstored_is_about_the_files_that_have_such_cells(tmp_path: Path) -> None:
    """A full matrix beside a sparse one needs no call of its own; two full ones are refused."""
    for name in ("full.h5ad", "other.h5ad"):
        with write_h5ad(tmp_path / name, USERS, ITEMS) as file:
            file["X"] = VALUES
    annotated(tmp_path / "part.h5ad", None)
    files = [tmp_path / "full.h5ad", tmp_path / "part.h5ad"]
    for given in (files, files[::-1]):
        result = typed(
            *("prepare", *given, tmp_path / "x.h5", "--unstored", "missing", "--force"),
            *("--duplicates", "first"),
        )
        assert result.code == 0, result.err
        assert "600 cells that nobody wrote are not rated" in result.out
    result = typed("prepare", files[0], tmp_path / "y.h5", "--unstored", "missing")
    assert result.code == 2
    assert "full.h5ad has no sparse matrix: leave out --unstored" in result.err
    test = ("--test", tmp_path / "other.h5ad")
    assert typed("prepare", files[0], tmp_path / "y.h5", *test, "--unstored", "zero").code == 2

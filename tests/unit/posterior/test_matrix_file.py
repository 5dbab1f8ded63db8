"""``dsgmcmc predict --matrix``: the file has the completed matrix, in every format."""

from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
from runs import Made, make_run
from support import typed

from dsgmcmc import BPMF, open_run
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.matrix import complete


@pytest.fixture(scope="module", params=[False, True], ids=["numbers", "text and transposed"])
def made(request, tmp_path_factory) -> Made:
    """A run; its names are numbers or text with quotes."""
    users, items = (18, 40) if request.param else (40, 18)
    return make_run(tmp_path_factory.mktemp("run"), users=users, items=items, strings=request.param)


@pytest.fixture(scope="module")
def expected(made) -> pd.DataFrame:
    """What Python returns: users and items in the order of their names."""
    return open_run(made.path, data=made.data).complete().to_pandas()


def read(path: Path) -> pd.DataFrame:
    return pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)


def write(made: Made, out: Path, *options: str) -> None:
    """Type the command, and expect that it succeeds."""
    done = typed("predict", made.path, "--matrix", "--out", out, "--data", made.data, *options)
    assert done.code == 0, done.err


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_tables_have_the_matrix(made, expected, suffix, tmp_path, monkeypatch):
    """In blocks of few rows, with known cells as they were written.

    Products of other blocks round otherwise in single precision, as their largest terms do.
    """
    monkeypatch.setattr(complete, "CELLS_OF_PRODUCTS", 200)
    write(made, tmp_path / f"filled{suffix}")
    found = read(tmp_path / f"filled{suffix}")
    assert list(found) == list(expected)
    assert found["user"].tolist() == expected["user"].tolist()
    cells = expected.drop(columns="user").to_numpy()
    rounding = 8 * np.finfo(np.float32).eps * np.abs(cells).max()
    np.testing.assert_allclose(
        found.drop(columns="user").to_numpy(), cells, rtol=1e-5, atol=rounding
    )


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_imputations_are_those_of_python(made, suffix, tmp_path):
    """They follow one another, numbered from 1."""
    write(made, tmp_path / f"drawn{suffix}", "--draws", "3")
    found = read(tmp_path / f"drawn{suffix}")
    drawn = open_run(made.path, data=made.data).complete(draws=3)
    n = len(made.run.users)
    assert found["draw"].tolist() == np.repeat([1, 2, 3], n).tolist()
    for k, matrix in enumerate(drawn):
        part = found.iloc[k * n : (k + 1) * n, 2:].to_numpy()
        np.testing.assert_allclose(part, matrix.to_pandas().iloc[:, 1:].to_numpy(), rtol=1e-5)


def test_arrays_of_numpy(made, expected, tmp_path):
    """Without names; imputations are the first dimension."""
    write(made, tmp_path / "filled.npy")
    write(made, tmp_path / "drawn.npy", "--draws", "2")
    filled = np.load(tmp_path / "filled.npy")
    np.testing.assert_allclose(filled, expected.iloc[:, 1:].to_numpy(), rtol=1e-5)
    drawn = np.load(tmp_path / "drawn.npy")
    assert drawn.shape == (2, *filled.shape)
    assert (drawn[0] != drawn[1]).any()
    # known cells have no noise
    assert ((drawn[0] == filled) & (drawn[1] == filled)).sum() == len(made.ratings)


def test_netcdf_has_names(made, expected, tmp_path):
    """As coordinates."""
    xarray = pytest.importorskip("xarray")
    write(made, tmp_path / "filled.nc")
    write(made, tmp_path / "drawn.nc", "--draws", "2")
    with xarray.open_dataset(tmp_path / "filled.nc", engine="h5netcdf") as data:
        assert data["rating"].dims == ("user", "item")
        assert data["user"].values.tolist() == expected["user"].tolist()
        assert [str(name) for name in data["item"].values] == list(expected)[1:]
        np.testing.assert_allclose(data["rating"], expected.iloc[:, 1:].to_numpy(), rtol=1e-5)
    with h5py.File(tmp_path / "drawn.nc") as file:
        assert file["rating"].shape == (2, len(made.run.users), len(made.run.items))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--matrix"], "--matrix needs --out"),
        (["--matrix", "-o", "filled.xlsx"], "the suffix of a matrix must be one of .csv"),
        (["--matrix", "-o", "filled.csv", "--of-mean"], "leave out --of-mean"),
        (["pairs.csv", "--matrix", "-o", "filled.csv"], "leave out PAIRS"),
        ([], "give PAIRS, a file with users and items, or --matrix"),
        (["pairs.csv", "--draws", "2"], "--draws and --data need --matrix"),
    ],
)
def test_options_that_contradict_are_refused(made, options, words, tmp_path, monkeypatch):
    """Before anything is written."""
    monkeypatch.chdir(tmp_path)
    done = typed("predict", made.path, *options)
    assert done.code == 2
    assert words in done.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("items", "out", "words"),
    [
        (("a", "A"), "filled.parquet", "columns 'A' and 'a' of the table have one name"),
        (("user", "b"), "filled.csv", "columns 'user' and 'user' of the table have one name"),
        (("draw", "b"), "filled.csv", "columns 'draw' and 'draw' of the table have one name"),
    ],
)
def test_two_columns_of_one_name_are_refused(items, out, words, tmp_path, monkeypatch):
    """Parquet as DuckDB writes it ignores the case of names."""
    ratings = pd.DataFrame(
        [(user, item, len(user)) for user in ("u", "vv", "www") for item in items],
        columns=["user", "item", "rating"],
    )
    BPMF(rank=0, iterations=4, burn_in=2, out=tmp_path / "run").fit(ratings)
    monkeypatch.chdir(tmp_path)
    done = typed("predict", "run", "--matrix", "--draws", "2", "-o", out)
    assert done.code == 2
    assert words in done.err
    assert not (tmp_path / out).exists()


def test_an_item_that_is_named_as_the_column_of_users_is_refused(tmp_path):
    """Its ratings would replace the names of the users."""
    ratings = pd.DataFrame(
        [(user, item, len(user)) for user in ("v", "ww") for item in ("user", "b")],
        columns=["user", "item", "rating"],
    )
    model = BPMF(rank=0, iterations=4, burn_in=2, out=tmp_path / "run").fit(ratings)
    with pytest.raises(InputError, match="an item is named 'user'"):
        model.complete()


def test_names_of_several_parts_are_text(tmp_path):
    """As options take them; netCDF has no tuples."""
    ratings = pd.DataFrame(
        [(user, item, day, len(user)) for user in ("v", "ww") for item in "ab" for day in (1, 2)],
        columns=["user", "item", "day", "rating"],
    )
    options = {"rank": 0, "iterations": 4, "burn_in": 2, "columns": "item=item+day"}
    BPMF(**options, out=tmp_path / "run").fit(ratings)
    for suffix in (".csv", ".nc"):
        out = tmp_path / f"filled{suffix}"
        done = typed("predict", tmp_path / "run", "--matrix", "-o", out)
        assert done.code == 0, done.err
    expected = [f"item={item},day={day}" for item in "ab" for day in (1, 2)]
    assert list(read(tmp_path / "filled.csv")) == ["user", *expected]
    with h5py.File(tmp_path / "filled.nc") as file:
        assert file["item"].asstr()[:].tolist() == expected

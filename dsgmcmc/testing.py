"""Checks of samplers, likelihoods and parts of the model, also of those that are not in this
package.

    check_sampler(MySampler, step_size=0.02)

A check raises `AssertionError` with a sentence that says what is wrong, and by how much. It stops a
run on ratings, resumes it, and compares all that it stores with a run in one go. With
``comm=MPI.COMM_WORLD``, in a script that ``mpirun`` starts, the stopped run is on all processes and
the other on one; the check is then collective. The classes need not be in their registries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.config.run import RunConfig, build, feature_sizes
from dsgmcmc.data.arrays import ratings_source, read_features
from dsgmcmc.data.prepare import prepare_ratings
from dsgmcmc.data.ratings import Ratings
from dsgmcmc.densities.density import Density, DoubleWell, Gaussian
from dsgmcmc.densities.sample import DensityConfig, sample, vector_target
from dsgmcmc.model.likelihoods import LIKELIHOODS, Likelihood
from dsgmcmc.model.parts import PARTS, Part
from dsgmcmc.model.predictive.base import Moments, Predictive
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.parallel.alone import Alone, Comm
from dsgmcmc.parallel.comm import on_root
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.runs.job import Job
from dsgmcmc.runs.source import RatingsSource, targets_of
from dsgmcmc.samplers import SAMPLERS
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.storage.rundir import RunDirectory, verify_run
from dsgmcmc.targets.state import arrays_of
from dsgmcmc.types import Array, Factor, Float64

ALONE = Alone()
#: Chains, iterations and burn-in of the check of a sampler's distribution.
CHAINS, ITERATIONS, BURN_IN = 200, 2500, 1000
#: Number of random ratings in the check of a likelihood's moments.
RATINGS = 40_000

NORMAL = Gaussian(np.array([1.0, -1.0]), np.array([[2.0, 0.6], [0.6, 0.5]]))
#: Densities whose means and standard deviations are known.
KNOWN: dict[str, tuple[Density, Float64, Float64]] = {
    "normal distribution": (NORMAL, NORMAL.mean, np.sqrt(np.diag(NORMAL.covariance))),
    "double well": (DoubleWell(), np.zeros(1), np.sqrt([DoubleWell.square])),
}


# ---------------------------------------------------------------------- samplers


def check_sampler(
    kind: type[Sampler[Any, Any]], *, comm: Comm = ALONE, tolerance: float = 0.05, **settings: Any
) -> None:
    """Check a sampler: its distribution, what an iteration does on ratings, and that runs are
    reproducible.

    Parameters
    ----------
    kind : type of Sampler
    comm : MPI.Comm, optional
        The processes on which a run is stopped and resumed; by default this process.
    tolerance : float
        Largest relative error of a standard deviation. It includes the bias due to the step; the
        random error is about 0.02 if draws are nearly independent after ten iterations.
    **settings
        Settings of the sampler, such as ``step_size``.

    Raises
    ------
    AssertionError
        If anything is wrong.
    """
    if not kind.draws_conditionals:
        check_distribution(kind, tolerance, **settings)
    if kind.densities is None:
        with _registered(SAMPLERS, kind) as name, _workplace(comm) as place:
            check_iterations(kind, place.ratings, **settings)
            check_same_draws({"sampler": {"name": name, **settings}}, place)


def check_distribution(
    kind: type[Sampler[Any, Any]], tolerance: float = 0.05, **settings: Any
) -> None:
    """Compare the mean and the spread of a sampler's draws with those of two known densities; as
    `check_sampler`.
    """
    for title, (density, mean, sd) in KNOWN.items():
        with _registered(SAMPLERS, kind) as name:
            given = {"sampler": {"name": name, **settings}, "grid": 1}
            section = DensityConfig.build(given).resolved().sampler
        sampler = kind(section.config, BURN_IN)
        target = vector_target(density, sampler, rows=CHAINS, seed=1)
        with np.errstate(all="ignore"):
            states = np.array(
                [theta.copy() for theta in sample(target, sampler, ITERATIONS)][BURN_IN::10]
            )
        what = f"{kind.__name__} on a {title}: the {{}} of the draws"
        _close(what.format("standard deviation"), states.std(axis=(0, 1)), sd, tolerance * sd)
        _close(what.format("mean"), states.mean(axis=(0, 1)), mean, tolerance * sd)


def check_iterations(kind: type[Sampler[Any, Any]], ratings: Path, **settings: Any) -> None:
    """Check that every row moves, also without ratings, and that hyperparameters are drawn once a
    sweep.
    """
    with _registered(SAMPLERS, kind) as name:
        section = {"name": name, **settings}
        given = build({"sampler": section, "rank": 2, "hyper_start": 1, "features": "no"})
        target, sampler = _start(given, ratings, 0.1)
    drawn, draw, title = [], target.draw_shared, kind.__name__

    def noted(context: Any) -> None:
        drawn.append(context.stream.iteration)
        draw(context)

    vars(target)["draw_shared"] = noted
    before = {
        b: {position: b[position].copy() for position in sampler.positions} for b in target.blocks()
    }
    iterations = 8 * len(sampler.positions)
    sampler.advance(target, 0, iterations)
    due = list(range(target.sweep_length - 1, iterations, target.sweep_length))
    _require(
        drawn == due,
        f"{title} has hyperparameters drawn in iterations {drawn}, not at the ends of sweeps,"
        f" {due}",
    )
    for block, earlier in before.items():
        for position, old in earlier.items():
            still = (block[position] == old).all(axis=1)
            _require(
                not still.any(),
                f"{title} did not move {still.sum()} of {len(still)} rows of {block.factor.name}",
            )
        for name in target.layout.names:
            _require(
                bool(np.isfinite(block[name]).all()),
                f"{title} left values in {name} that are not finite",
            )


# ---------------------------------------------------------------------- likelihoods


def check_likelihood(
    kind: type[Likelihood], *, comm: Comm = ALONE, ratings: Path | None = None, **settings: Any
) -> None:
    """Check a likelihood: gradient and density, moments and quantiles agree, and runs are
    reproducible.

    Parameters
    ----------
    kind : type of Likelihood
        It needs `mean`, `variance`, `log_density` and `cdf`.
    comm : MPI.Comm, optional
        The processes on which a run is stopped and resumed; by default this process.
    ratings : path, optional
        Ratings file that the likelihood admits; by default one with whole ratings from 1 to 5 is
        made.
    **settings
        Settings of the run.

    Raises
    ------
    AssertionError
        If anything is wrong.
    """
    names = kind(3, True, tuple(Factor)).fields
    wrong = {"theta", "g", "g2", "v", "r", "n", "h"} & {*names} | {
        name for name in names if not name.isidentifier()
    }
    _require(
        not wrong,
        f"{kind.__name__} has fields whose names cannot be used: {', '.join(sorted(wrong))}",
    )
    _check_moments(kind)
    with _registered(LIKELIHOODS, kind) as name, _workplace(comm, ratings) as place:
        given = {"likelihood": name, "features": "no", **settings}
        for rank in (
            (3, 130) if kind.is_sum_over_ratings else ()
        ):  # unrolled, and by blocks of columns
            model = {
                **given,
                "rank": rank,
                "grid": 3,
                "sampler": {"name": "sgld", "gradient": "full"},
            }
            _check_gradient(build({**model, "standardise": False}), place.ratings)
        check_same_draws(given, place)


def _moments(
    kind: type[Likelihood], eta: Float64, tau: float, shape: Sequence[float]
) -> tuple[Float64, Float64]:
    """Return the mean and the variance of ratings with these predictors and this noise precision."""
    mean, variance = kind.mean(eta, *shape), kind.variance(eta, 1 / tau, *shape)
    return np.asarray(mean, np.float64), np.full(eta.shape, variance, np.float64)


def predicted(
    kind: type[Likelihood], eta: Float64, tau: float
) -> tuple[Float64, Float64, Predictive]:
    """Return means, variances and predictive distributions of ratings at predictors that are known."""
    shape = list(kind.starts.values())
    mean, variance = _moments(kind, eta, tau, shape)
    moments = Moments(mean, variance, noise=variance, shape=np.tile(shape, (len(eta), 1)))
    return mean, variance, kind.predictive_of_moments(moments)


def _check_moments(kind: type[Likelihood]) -> None:
    """Random quantiles have the mean and the variance, within five standard errors; the density is
    that of `cdf`.
    """
    rng = np.random.default_rng(1)
    for tau, eta in ((1.0, -1.0), (4.0, 1.2)):
        means, variances, predictive = predicted(kind, np.full(RATINGS, eta), tau)
        mean, variance = float(means[0]), float(variances[0])
        offset = predictive.quantile(rng.random(RATINGS)) - mean
        what = (
            f"{kind.__name__} at eta = {eta} and tau = {tau}: the {{}} of {RATINGS:,} random"
            " quantiles"
        )
        _close(what.format("mean"), offset.mean() + mean, mean, 5 * np.sqrt(variance / RATINGS))
        spread = 5 * (offset**2).std() / np.sqrt(RATINGS)
        _close(what.format("variance"), (offset**2).mean(), variance, spread)
    *_, predictive = predicted(kind, np.repeat(np.linspace(-1.5, 1.5, 7), 5), 2.0)
    x = predictive.quantile(rng.random(35))
    reached, below = predictive.cdf(x), predictive.below(x)
    _require(
        bool((reached >= below).all()), f"{kind.__name__}: cdf is smaller at a rating than below it"
    )
    slope = reached - below
    if not predictive.whole:
        slope = (predictive.cdf(x + 1e-5) - predictive.cdf(x - 1e-5)) / 2e-5
    _close(
        f"{kind.__name__}: the density",
        np.exp(predictive.log_density(x)),
        slope,
        1e-5 * slope + 1e-9,
    )


def _check_gradient(config: RunConfig, path: Path) -> None:
    """The gradient over all ratings, and the sum of squared scores, are those of differences of the
    log density.
    """
    kind = config.law
    assert issubclass(kind, Likelihood)
    target, _ = _start(config, path, 0.7 / float(config.rank) ** 0.25)
    target.full_gradient("theta", "g")
    with Ratings(path) as ratings:
        indptr, j, values = ratings.slab("train", 0, ratings.n_rows)
    i = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    x = target.likelihood.codes(values.astype(np.float64), None) - target.ratings.centre
    theta = {factor: _rows(target, factor, "theta") for factor in Factor}
    w, h, k = theta[Factor.W][i], theta[Factor.H][j], config.rank
    eta = (w[:, :k] * h[:, :k]).sum(axis=1) + w[:, k:].sum(axis=1) + h[:, k:].sum(axis=1)
    shape = target.likelihood.shape
    up, down = (
        kind.log_density(x, *_moments(kind, eta + step, 1.0, shape), *shape)
        for step in (1e-5, -1e-5)
    )
    e = (up - down) / 2e-5
    w[:, k:] = h[:, k:] = 1.0
    for factor, index, covariates in ((Factor.W, i, h), (Factor.H, j, w)):
        expected = np.zeros_like(theta[factor])
        np.add.at(expected, index, -e[:, None] * covariates)
        what = (
            f"{kind.__name__}: an element of the energy's gradient, from differences of"
            " log_density,"
        )
        _close(what, _rows(target, factor, "g"), expected, 1e-4 * np.abs(expected) + 1e-4)
    if not target.likelihood.has_parameters():  # these draw from sums of their own
        _close(
            f"{kind.__name__}: the sum of squared scores",
            target.noise.squared_error.sum(),
            e @ e,
            1e-5 * (e @ e),
        )


# ---------------------------------------------------------------------- parts


def check_part(
    kind: type[Part], *, comm: Comm = ALONE, fixed: Collection[str] = (), **settings: Any
) -> None:
    """Check a part of the model: a chain keeps and draws the quantities that it declares, and runs
    are reproducible.

    Its distribution is not checked: simulate ratings from the model, and compare the draws with
    what was simulated.

    Parameters
    ----------
    kind : type of Part
    comm : MPI.Comm, optional
        The processes on which a run is stopped and resumed; by default this process.
    fixed : collection of str
        Names of quantities that are saved with draws, but never change, such as data.
    **settings
        Settings with which a run has the part.

    Raises
    ------
    AssertionError
        If anything is wrong.
    """
    with _registered(PARTS, kind), _workplace(comm) as place:
        for sampler in ("baoab", "gibbs"):
            model = {"rank": 2, "grid": 2, "sampler": sampler, "features": "no", "hyper_start": 1}
            _check_quantities(kind, build(model | settings), place.ratings, fixed)
        check_same_draws(settings, place)


def _check_quantities(
    kind: type[Part], config: RunConfig, path: Path, fixed: Collection[str]
) -> None:
    """A chain keeps the quantities of a part, and draws all that belong to a draw within 12
    iterations.
    """
    target, sampler = _start(config, path, 0.3)
    present: Any = next((part for part in target.parts if type(part) is kind), None)
    _require(
        present is not None, f"a run with these settings does not have the part {kind.__name__}"
    )
    with Ratings(path) as ratings:
        declared = kind.quantities_of(config.resolved(), ratings.transposed, feature_sizes(ratings))
    _require(
        present.quantities == declared,
        f"{kind.__name__}: quantities_of and the attribute quantities differ",
    )
    states = []
    for iteration in range(12):  # noise of two factors is drawn in turns
        fields = {
            f"{b.factor.name}.{b.index}.{name}": b[name]
            for b in target.blocks()
            for name in target.layout.names
        }
        states.append(
            {name: value.copy() for name, value in (fields | arrays_of(present.replicated)).items()}
        )
        target.begin(iteration)
        sampler.step(target, iteration)
    for quantity in declared:
        names = [name for name in states[0] if name.endswith(quantity.name)]
        _require(
            bool(names) or not (quantity.kept and quantity.drawn),
            f"{quantity.name} is declared, but not kept",
        )
        moved = any((states[0][name] != states[-1][name]).any() for name in names)
        still = quantity.drawn and not moved and quantity.name not in fixed
        _require(not still, f"{quantity.name} was not drawn in 12 iterations")


# ---------------------------------------------------------------------- runs


class Workplace(NamedTuple):
    """Processes, a temporary folder that all of them see, and a ratings file."""

    comm: Comm
    folder: Path
    ratings: Path


def check_same_draws(settings: dict[str, Any], place: Workplace) -> None:
    """Compare a run in one go on one process with one on all processes that is stopped and resumed.

    Collective.
    """
    usual = {
        "rank": 2,
        "grid": 5,
        "burn_in": 4,
        "thin": 3,
        "evaluate_every": 4,
        "save_draws": 2,
        "features": "no",
    }

    def go(comm: Comm, name: str, iterations: int) -> int:
        given = {**usual, **settings, "iterations": iterations}
        return Job(
            comm, RatingsSource(place.ratings), place.folder / name, given, resume=True, quiet=True
        ).run()

    alone = on_root(place.comm, partial(go, ALONE, "one", 17))
    statuses = alone, go(place.comm, "many", 7), go(place.comm, "many", 17)
    _require(
        not any(statuses), f"a run ended with the status {max(statuses)}; settings: {settings}"
    )
    one, many = on_root(
        place.comm,
        lambda: [verify_run(RunDirectory(place.folder / name)) for name in ("one", "many")],
    )
    _require(
        one == many,
        f"a run on {place.comm.size} process(es), stopped after 7 iterations and resumed, has other"
        f" bits than a run in one go on one process; settings: {settings}",
    )


def _start(config: RunConfig, path: Path, sd: float) -> tuple[FactorTarget, Sampler[Any, Any]]:
    """Return the target of a chain on this process, and its sampler, which has drawn the initial
    state.
    """
    resolved = config.resolved()
    sampler = resolved.make_sampler()
    with Ratings(path) as ratings:
        target = targets_of(resolved, ratings, Ring(Alone(), resolved.grid))(0, sampler)
    target.reset()
    sampler.start(target, sd)
    return target, sampler


def _rows(target: FactorTarget, factor: Factor, field: str) -> Float64:
    """Return a field of all rows of a factor, in their order."""
    blocks = sorted(
        (block.start, block[field]) for block in target.blocks() if block.factor == factor
    )
    return np.concatenate([array for _, array in blocks]).astype(np.float64)


@contextmanager
def _registered(registry: MutableMapping[str, Any], kind: type) -> Iterator[str]:
    """Context in which a class has a name in its registry, which is its value."""
    for name, other in registry.items():
        if other is kind:
            yield name
            return
    registry["checked"] = kind
    try:
        yield "checked"
    finally:
        del registry["checked"]


@contextmanager
def _workplace(comm: Comm, ratings: Path | None = None) -> Iterator[Workplace]:
    """Context with a place for runs; without `ratings`, a small file is made. Collective."""
    with TemporaryDirectory() as own:
        folder = Path(comm.bcast(own))
        if ratings is None:
            on_root(comm, partial(_write_ratings, folder / "ratings.h5"))
        yield Workplace(comm, folder, ratings or folder / "ratings.h5")
        comm.Barrier()


def _write_ratings(path: Path) -> None:
    """Write 300 whole ratings from 1 to 5; the last user and the last item have none."""
    rng = np.random.default_rng(0)
    lengths = {"user": 31, "item": 21}
    users, items = np.divmod(rng.choice(30 * 20, 300, replace=False), 20)
    w, h = rng.normal(size=(30, 2)), rng.normal(size=(20, 2))
    x = np.clip(np.round(3.5 + (w[users] * h[items]).sum(axis=1) + rng.normal(0, 0.5, 300)), 1, 5)
    table = np.column_stack([users, items, x, rng.integers(0, 10, 300)])
    features = {
        side: read_features(np.column_stack([np.arange(n), rng.normal(size=(n, 3))]), side)
        for side, n in lengths.items()
    }
    source = ratings_source(table, timed=True)
    prepare_ratings([source], path, test_fraction=0.2, timestamps=True, described=features)


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)


def _close(
    what: str, found: Array | float, expected: Array | float, tolerance: Array | float
) -> None:
    """Raise AssertionError if any value is farther from the expected one than the tolerance."""
    values, right, allowed = map(np.ravel, np.broadcast_arrays(found, expected, tolerance))
    excess = np.nan_to_num(np.abs(values - right) - allowed, nan=np.inf)
    worst = int(excess.argmax())
    _require(
        bool(excess[worst] <= 0),
        f"{what} is {values[worst]:.6g}, but should be {right[worst]:.6g} (tolerance"
        f" {allowed[worst]:.2g})",
    )

"""Checks of samplers, likelihoods and parts of the model, also of your own.

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
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.config.run import RunConfig, build, feature_sizes
from dsgmcmc.densities.base import DensitySampler
from dsgmcmc.densities.density import Density, DoubleWell, Gaussian
from dsgmcmc.densities.registry import SAMPLERS as SAMPLERS_OF_DENSITIES
from dsgmcmc.densities.sample import DensityConfig, sample, vector_target
from dsgmcmc.features.arrays import read_features
from dsgmcmc.input.arrays import ratings_source
from dsgmcmc.model.likelihoods import LIKELIHOODS, Likelihood
from dsgmcmc.model.parts import PARTS, Part
from dsgmcmc.model.parts.base import FileFacts
from dsgmcmc.model.predictive.base import Moments, Predictive
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.parallel.alone import Alone, Comm
from dsgmcmc.parallel.comm import on_root
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.prepare.prepare import prepare_ratings
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.runs.job import Job
from dsgmcmc.runs.source import RatingsSource, targets_of
from dsgmcmc.samplers import SAMPLERS
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.storage.verify import verify_run
from dsgmcmc.targets.state import arrays_of
from dsgmcmc.types import Array, Factor, Float64

ALONE = Alone()
#: Chains, iterations and burn-in of the check of a sampler's distribution.
CHAINS = 200
ITERATIONS = 2500
BURN_IN = 1000
#: Iterations between the draws that are compared.
THIN = 10
#: Number of random ratings in the check of a likelihood's moments.
RATINGS = 40_000
#: Spacings of differences of a likelihood's functions.
SPACING = 1e-5
#: A precision of the noise other than 1.
NOT_ONE = 3.0
#: Iterations within which a part draws all its quantities: noise of two factors is drawn in turns.
PART_ITERATIONS = 12
#: Names of a state's fields that a likelihood cannot use.
TAKEN_FIELDS = {"theta", "g", "g2", "v", "r", "n", "h"}


class KnownDensity(NamedTuple):
    """A density with its mean and standard deviation, (D,)."""

    title: str
    density: Density
    mean: Float64
    sd: Float64


NORMAL = Gaussian(np.array([1.0, -1.0]), np.array([[2.0, 0.6], [0.6, 0.5]]))
NORMAL_SD = np.sqrt(np.diag(NORMAL.covariance))
WELL_SD = np.sqrt([DoubleWell.square])
KNOWN = (
    KnownDensity("normal distribution", NORMAL, NORMAL.mean, NORMAL_SD),
    KnownDensity("double well", DoubleWell(), np.zeros(1), WELL_SD),
)


# ---------------------------------------------------------------------- samplers


def check_sampler(
    sampler_type: type[Sampler[Any, Any]],
    *,
    comm: Comm = ALONE,
    tolerance: float = 0.05,
    **settings: object,
) -> None:
    """Check a sampler: its distribution, its iterations on ratings, and that runs are reproducible.

    Parameters
    ----------
    sampler_type : type of Sampler
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
    if not sampler_type.draws_conditionals:
        check_distribution(sampler_type, tolerance, **settings)
    if not issubclass(sampler_type, DensitySampler):
        with _registered(SAMPLERS, sampler_type) as name, _workplace(comm) as workplace:
            check_iterations(sampler_type, workplace.ratings, **settings)
            check_same_draws({"sampler": {"name": name, **settings}}, workplace)


def check_distribution(
    sampler_type: type[Sampler[Any, Any]], tolerance: float = 0.05, **settings: object
) -> None:
    """Compare the mean and the spread of a sampler's draws with those of two known densities.

    Parameters and errors are as for `check_sampler`.
    """
    for known in KNOWN:
        with _registered(SAMPLERS_OF_DENSITIES, sampler_type) as name:
            section = {"sampler": {"name": name, **settings}, "grid": 1}
            config = DensityConfig.build(section).resolved().sampler.config
        sampler = sampler_type(config, BURN_IN)
        target = vector_target(known.density, sampler, rows=CHAINS, seed=1)
        with np.errstate(all="ignore"):
            states = [theta.copy() for theta in sample(target, sampler, ITERATIONS)]
        draws = np.array(states[BURN_IN::THIN])
        title = f"{sampler_type.__name__} on a {known.title}"
        allowed = tolerance * known.sd
        _close(
            f"{title}: the standard deviation of the draws",
            draws.std(axis=(0, 1)),
            known.sd,
            allowed,
        )
        _close(f"{title}: the mean of the draws", draws.mean(axis=(0, 1)), known.mean, allowed)


def check_iterations(
    sampler_type: type[Sampler[Any, Any]], ratings: Path, **settings: object
) -> None:
    """Check that every row moves, also without ratings, and when hyperparameters are drawn.

    They are drawn once a sweep, at its end.
    """
    with _registered(SAMPLERS, sampler_type) as name:
        section = {"name": name, **settings}
        config = build({"sampler": section, "rank": 2, "hyper_start": 1, "features": "no"})
        target, sampler = _start(config, ratings, 0.1)
    title = sampler_type.__name__
    drawn = []
    draw_shared = target.draw_shared

    def noted(context: Any) -> None:
        drawn.append(context.stream.iteration)
        draw_shared(context)

    vars(target)["draw_shared"] = noted
    before = {
        block: {position: block[position].copy() for position in sampler.positions}
        for block in target.blocks()
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
    likelihood_type: type[Likelihood],
    *,
    comm: Comm = ALONE,
    ratings: str | PathLike[str] | None = None,
    **settings: object,
) -> None:
    """Check a likelihood: that its functions agree with each other, and runs are reproducible.

    Compared are gradient and density, moments and quantiles, and the draw of tau and density.

    Parameters
    ----------
    likelihood_type : type of Likelihood
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
    names = likelihood_type(3, True, tuple(Factor)).fields
    wrong = {name for name in names if name in TAKEN_FIELDS or not name.isidentifier()}
    _require(
        not wrong,
        f"{likelihood_type.__name__} has fields whose names cannot be used:"
        f" {', '.join(sorted(wrong))}",
    )
    _check_moments(likelihood_type)
    if likelihood_type.has_noise and not likelihood_type.draws_precision:
        _check_precision(likelihood_type)
    with _registered(LIKELIHOODS, likelihood_type) as name, _workplace(comm, ratings) as workplace:
        model = {"likelihood": name, "features": "no", **settings}
        if likelihood_type.is_sum_over_ratings:
            for rank in (3, 130):  # unrolled, and by blocks of columns
                chain = {"rank": rank, "grid": 3, "sampler": {"name": "sgld", "gradient": "full"}}
                config = build({**model, **chain, "standardise": False})
                _check_gradient(config, workplace.ratings)
        check_same_draws(model, workplace)


def _moments(
    likelihood_type: type[Likelihood], eta: Float64, tau: float, shape: Sequence[float]
) -> tuple[Float64, Float64]:
    """Return mean and variance of ratings with these predictors and this noise precision, (n,)."""
    mean = np.asarray(likelihood_type.mean(eta, *shape), np.float64)
    variance = np.full(eta.shape, likelihood_type.variance(eta, 1 / tau, *shape), np.float64)
    return mean, variance


def predicted(
    likelihood_type: type[Likelihood], eta: Float64, tau: float
) -> tuple[Float64, Float64, Predictive]:
    """Return means, variances and predictive distributions of ratings at known predictors."""
    shape = list(likelihood_type.starts.values())
    mean, variance = _moments(likelihood_type, eta, tau, shape)
    moments = Moments(mean, variance, noise=variance, shape=np.tile(shape, (len(eta), 1)))
    return mean, variance, likelihood_type.predictive_of_moments(moments)


def _check_moments(likelihood_type: type[Likelihood]) -> None:
    """Check that random quantiles have the mean and the variance, and the density of `cdf`.

    Means may differ by five standard errors.
    """
    rng = np.random.default_rng(1)
    for tau, eta in ((1.0, -1.0), (4.0, 1.2)):
        means, variances, predictive = predicted(likelihood_type, np.full(RATINGS, eta), tau)
        mean = float(means[0])
        variance = float(variances[0])
        offset = predictive.quantile(rng.random(RATINGS)) - mean
        where = f"{likelihood_type.__name__} at eta = {eta} and tau = {tau}"
        sample_name = f"of {RATINGS:,} random quantiles"
        allowed = 5 * np.sqrt(variance / RATINGS)
        _close(f"{where}: the mean {sample_name}", offset.mean() + mean, mean, allowed)
        allowed = 5 * (offset**2).std() / np.sqrt(RATINGS)
        _close(f"{where}: the variance {sample_name}", (offset**2).mean(), variance, allowed)
    *_, predictive = predicted(likelihood_type, np.repeat(np.linspace(-1.5, 1.5, 7), 5), 2.0)
    x = predictive.quantile(rng.random(35))
    reached = predictive.cdf(x)
    below = predictive.below(x)
    _require(
        bool((reached >= below).all()),
        f"{likelihood_type.__name__}: cdf is smaller at a rating than below it",
    )
    slope = reached - below
    if not predictive.has_counts:
        slope = (predictive.cdf(x + SPACING) - predictive.cdf(x - SPACING)) / (2 * SPACING)
    _close(
        f"{likelihood_type.__name__}: the density",
        np.exp(predictive.log_density(x)),
        slope,
        1e-5 * slope + 1e-9,
    )


def _check_precision(likelihood_type: type[Likelihood]) -> None:
    """Check that the precision tau of the noise multiplies the score, and is drawn as it must be.

    The noise draws tau from the sum of squared scores e at tau = 1. So the log density must be
    log(tau) / 2 - tau e^2 / 2, up to terms without tau.
    """
    rng = np.random.default_rng(2)
    eta = rng.uniform(-1, 1, 35)
    x = predicted(likelihood_type, eta, 1.0)[2].quantile(rng.random(35))
    shape = list(likelihood_type.starts.values())

    def log_density(at: Float64, tau: float) -> Float64:
        mean, variance = _moments(likelihood_type, at, tau, shape)
        return np.asarray(likelihood_type.log_density(x, mean, variance, *shape), np.float64)

    def score(tau: float) -> Float64:
        rise = log_density(eta + SPACING, tau) - log_density(eta - SPACING, tau)
        return rise / (2 * SPACING)

    e = score(1.0)
    where = f"{likelihood_type.__name__} at tau = {NOT_ONE:g}"
    advice = (
        "; if tau is another parameter of the density, set draws_precision and draw it in"
        " draw_shared, or set has_noise = False"
    )
    expected = log_density(eta, 1.0) + np.log(NOT_ONE) / 2 - (NOT_ONE - 1) * e**2 / 2
    allowed = 1e-4 * np.abs(expected) + 1e-4
    what = f"{where}: the log density, if tau is drawn from the squared scores at tau = 1,"
    _close(what, log_density(eta, NOT_ONE), expected, allowed, advice=advice)
    allowed = 1e-4 * np.abs(NOT_ONE * e) + 1e-4
    _close(f"{where}: the score", score(NOT_ONE), NOT_ONE * e, allowed, advice=advice)


def _check_gradient(config: RunConfig, path: Path) -> None:
    """Check the gradient over all ratings, and the sum of squared scores.

    They must be those of differences of the log density.
    """
    likelihood_type = config.law
    assert issubclass(likelihood_type, Likelihood)
    target, _ = _start(config, path, 0.7 / float(config.rank) ** 0.25)
    target.full_gradient("theta", "g")
    with Ratings(path) as ratings:
        train = ratings.slab("train", 0, ratings.n_rows)
    i = train.rows
    j = train.indices
    x = target.likelihood.codes(train.values.astype(np.float64), None) - target.ratings.centre
    theta = {factor: _rows(target, factor, "theta") for factor in Factor}
    w = theta[Factor.W][i]
    h = theta[Factor.H][j]
    k = config.rank
    eta = (w[:, :k] * h[:, :k]).sum(axis=1) + w[:, k:].sum(axis=1) + h[:, k:].sum(axis=1)
    shape = target.likelihood.shape
    up = likelihood_type.log_density(
        x, *_moments(likelihood_type, eta + SPACING, 1.0, shape), *shape
    )
    down = likelihood_type.log_density(
        x, *_moments(likelihood_type, eta - SPACING, 1.0, shape), *shape
    )
    e = (up - down) / (2 * SPACING)
    w[:, k:] = 1.0  # the covariates of biases
    h[:, k:] = 1.0
    for factor, index, covariates in ((Factor.W, i, h), (Factor.H, j, w)):
        expected = np.zeros_like(theta[factor])
        np.add.at(expected, index, -e[:, None] * covariates)
        what = (
            f"{likelihood_type.__name__}: an element of the energy's gradient, from differences of"
            " log_density,"
        )
        _close(what, _rows(target, factor, "g"), expected, 1e-4 * np.abs(expected) + 1e-4)
    if not target.likelihood.has_parameters():  # these draw from sums of their own
        _close(
            f"{likelihood_type.__name__}: the sum of squared scores",
            target.noise.squared_error.sum(),
            e @ e,
            1e-5 * (e @ e),
        )


# ---------------------------------------------------------------------- parts


def check_part(
    part_type: type[Part[Any]],
    *,
    comm: Comm = ALONE,
    ratings: Path | None = None,
    fixed: Collection[str] = (),
    **settings: object,
) -> None:
    """Check a part of the model: it draws what it declares, and runs are reproducible.

    Its distribution is not checked: simulate ratings from the model, and compare the draws with
    what was simulated.

    Parameters
    ----------
    part_type : type of Part
    comm : MPI.Comm, optional
        The processes on which a run is stopped and resumed; by default this process.
    ratings : path, optional
        Ratings file of a run that has the part; by default one of stars is made.
    fixed : collection of str
        Names of quantities that are saved with draws, but never change, such as data.
    **settings
        Settings with which a run has the part.

    Raises
    ------
    AssertionError
        If anything is wrong.
    """
    with _registered(PARTS, part_type), _workplace(comm, ratings) as workplace:
        for sampler in ("baoab", "gibbs"):
            model = {"rank": 2, "grid": 2, "sampler": sampler, "features": "no", "hyper_start": 1}
            _check_quantities(part_type, build(model | settings), workplace.ratings, fixed)
        check_same_draws(settings, workplace)


def _check_quantities(
    part_type: type[Part[Any]], config: RunConfig, path: Path, fixed: Collection[str]
) -> None:
    """Check that a chain keeps the quantities of a part, and draws all that belong to a draw."""
    target, sampler = _start(config, path, 0.3)
    present: Any = next((part for part in target.parts if type(part) is part_type), None)
    _require(
        present is not None,
        f"a run with these settings does not have the part {part_type.__name__}",
    )
    with Ratings(path) as ratings:
        resolved = config.resolved()
        file = FileFacts(ratings.orientation, feature_sizes(ratings))
        declared = part_type.quantities_of(resolved, resolved.facts, file)
    _require(
        present.quantities == declared,
        f"{part_type.__name__}: quantities_of and the attribute quantities differ",
    )
    first = _state(target, present)
    last = first
    for iteration in range(PART_ITERATIONS):
        last = _state(target, present)
        target.begin(iteration)
        sampler.step(target, iteration)
    for quantity in declared:
        names = [name for name in first if name.endswith(quantity.name)]
        _require(
            bool(names) or not (quantity.kept and quantity.drawn),
            f"{quantity.name} is declared, but not kept",
        )
        moved = any((first[name] != last[name]).any() for name in names)
        still = quantity.drawn and not moved and quantity.name not in fixed
        _require(not still, f"{quantity.name} was not drawn in {PART_ITERATIONS} iterations")


def _state(target: FactorTarget, part: Part[Any]) -> dict[str, Array]:
    """Return copies of the fields of all blocks, and of the small state of a part, by name."""
    fields = {
        f"{block.factor.name}.{block.index}.{name}": block[name]
        for block in target.blocks()
        for name in target.layout.names
    }
    return {name: value.copy() for name, value in (fields | arrays_of(part.replicated)).items()}


# ---------------------------------------------------------------------- runs


#: Settings of runs that are compared, unless a check sets others.
SMALL_RUN: dict[str, Any] = {
    "rank": 2,
    "grid": 5,
    "burn_in": 4,
    "thin": 3,
    "evaluate_every": 4,
    "save_draws": 2,
    "features": "no",
}
#: Iterations after which a run is stopped, and of the whole run.
STOP = 7
END = 17


class Workplace(NamedTuple):
    """Processes, a temporary folder that all of them see, and a ratings file."""

    comm: Comm
    folder: Path
    ratings: Path


def check_same_draws(settings: dict[str, Any], workplace: Workplace) -> None:
    """Compare a run in one go on one process with one on all processes that is stopped and resumed.

    Collective.
    """
    comm = workplace.comm
    source = RatingsSource(workplace.ratings)

    def run(comm: Comm, name: str, iterations: int) -> int:
        """Return the status of a job up to an iteration; it resumes a job of the same name."""
        chosen = {**SMALL_RUN, **settings, "iterations": iterations}
        folder = workplace.folder / name
        return Job(comm, source, folder, chosen, resume=True, quiet=True).run()

    def digest(name: str) -> object:
        return verify_run(RunDirectory(workplace.folder / name))

    statuses = [
        on_root(comm, partial(run, ALONE, "one", END)),
        run(comm, "many", STOP),
        run(comm, "many", END),
    ]
    _require(
        not any(statuses), f"a run ended with the status {max(statuses)}; settings: {settings}"
    )
    one = on_root(comm, partial(digest, "one"))
    many = on_root(comm, partial(digest, "many"))
    _require(
        one == many,
        f"a run on {comm.size} process(es), stopped after {STOP} iterations and resumed, has other"
        f" bits than a run in one go on one process; settings: {settings}",
    )


def _start(config: RunConfig, path: Path, sd: float) -> tuple[FactorTarget, Sampler[Any, Any]]:
    """Return the target of a chain on this process, at its initial state, and its sampler."""
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
def _registered(registry: MutableMapping[str, Any], checked_type: type) -> Iterator[str]:
    """Context in which a class has a name in its registry, which is its value."""
    for name, other in registry.items():
        if other is checked_type:
            yield name
            return
    registry["checked"] = checked_type
    try:
        yield "checked"
    finally:
        del registry["checked"]


@contextmanager
def _workplace(comm: Comm, ratings: str | PathLike[str] | None = None) -> Iterator[Workplace]:
    """Context with a folder for runs; without `ratings`, a small file is made. Collective."""
    with TemporaryDirectory() as own:
        folder = Path(comm.bcast(own))
        if ratings is None:
            ratings = folder / "ratings.h5"
            on_root(comm, partial(_write_ratings, ratings))
        yield Workplace(comm, folder, Path(ratings))
        comm.Barrier()


def _write_ratings(path: Path) -> None:
    """Write 300 whole ratings from 1 to 5; the last user and the last item have none."""
    rng = np.random.default_rng(0)
    lengths = {"user": 31, "item": 21}
    users, items = np.divmod(rng.choice(30 * 20, 300, replace=False), 20)
    w = rng.normal(size=(30, 2))
    h = rng.normal(size=(20, 2))
    mean = 3.5 + (w[users] * h[items]).sum(axis=1)
    x = np.clip(np.round(mean + rng.normal(0, 0.5, 300)), 1, 5)
    table = np.column_stack([users, items, x, rng.integers(0, 10, 300)])
    features = {
        side: read_features(np.column_stack([np.arange(n), rng.normal(size=(n, 3))]), side)
        for side, n in lengths.items()
    }
    source = ratings_source(table, timed=True)
    prepare_ratings(
        [source],
        path,
        test_fraction=0.2,
        timestamps=True,
        user_features=features["user"],
        item_features=features["item"],
    )


def _require(holds: bool, otherwise: str) -> None:
    """Raise `AssertionError` with the sentence `otherwise` unless a condition holds."""
    if not holds:
        raise AssertionError(otherwise)


def _close(
    what: str,
    found: Array | float,
    expected: Array | float,
    tolerance: Array | float,
    *,
    advice: str = "",
) -> None:
    """Raise `AssertionError` if any value is farther from the expected one than the tolerance."""
    values, right, allowed = map(np.ravel, np.broadcast_arrays(found, expected, tolerance))
    excess = np.nan_to_num(np.abs(values - right) - allowed, nan=np.inf)
    worst = int(excess.argmax())
    _require(
        bool(excess[worst] <= 0),
        f"{what} is {values[worst]:.6g}, but should be {right[worst]:.6g} (tolerance"
        f" {allowed[worst]:.2g}){advice}",
    )

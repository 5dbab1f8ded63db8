"""Gibbs sampling: a sweep of it beside one of the reference that has the same noise; who can use
it.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import gibbs
import numpy as np
import pytest
from mpi4py import MPI
from support import MODEL, cells_of, factor_target, normals_of, rows_of, write_planted

from dsgmcmc.config.run import build
from dsgmcmc.errors import InputError
from dsgmcmc.kernels.philox import gammas
from dsgmcmc.model.likelihoods import LIKELIHOODS, Likelihood
from dsgmcmc.model.likelihoods.gaussian import GaussianRatings
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.runs.source import RatingsSource
from dsgmcmc.samplers.gibbs import Gibbs, GibbsConfig
from dsgmcmc.types import Factor, Purpose

GRID = 3
SEED = 5
ITERATION = 11
NOISES = {"shared": (), "by-user": (Factor.W,), "by-item": (Factor.H,), "both": tuple(Factor)}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_planted(tmp_path_factory.mktemp("data") / "r.h5", 60, 40)


def made(data: Path, sd: float = 0.7, **model: Any) -> FactorTarget:
    """Target at a random state, noise scales included, before iteration `TURN`."""
    sampler = Gibbs(GibbsConfig(), 0)
    target = factor_target(
        MPI.COMM_SELF, data, GRID, model=replace(MODEL, **model), sampler=sampler, seed=SEED
    )
    sampler.start(target, sd)
    rng = np.random.default_rng(1)
    for block in target.blocks():
        if block.factor in target.noise.factors:
            block.row("weight")[:] = rng.gamma(4, 0.25, len(block.counts))
    target.begin(ITERATION)
    return target


def step(target: FactorTarget) -> None:
    Gibbs(GibbsConfig(), 0).step(target, ITERATION)


def all_rows(target: FactorTarget, field: str = "theta") -> list[np.ndarray]:
    """A field of all rows, then of all columns, in float64."""
    return [rows_of(target, factor, field) for factor in Factor]


def scales(target: FactorTarget) -> list[np.ndarray]:
    """The noise scales of all rows, then of all columns; 1 without."""
    if not target.noise.factors:
        return [np.ones(60), np.ones(40)]
    return [g[:, 0] for g in all_rows(target, "weight")]


def reference_of(
    data: Path, target: FactorTarget, noise: str = "shared", coupled: bool = False
) -> tuple[gibbs.State, np.ndarray, list[gibbs.View], gibbs.Model]:
    """The state of a target as the reference has it, residuals, views and model."""
    rows, columns, values = cells_of(data)
    with Ratings(data) as ratings:
        residuals = values.astype(np.float64) - ratings.mean
    model = gibbs.Model(
        target.row_priors.rank, biases=target.row_priors.biases, noise=noise, coupled=coupled
    )
    state = gibbs.start(model, (60, 40), np.random.default_rng(0))
    state.theta = all_rows(target)
    state.g = scales(target)
    return state, residuals, gibbs.views(rows, columns.astype(np.int64), (60, 40)), model


def take_parameters(state: gibbs.State, target: FactorTarget) -> None:
    """Tau, nu and priors as they were drawn."""
    drawn = target.row_priors.parameters
    noise = target.noise.parameters
    state.tau = float(noise.tau)
    state.nu = [float(noise.nu[f]) if f in noise.nu else 1.0 for f in Factor]
    precisions = [drawn.precision[f] for f in Factor]
    dense = [p if p.ndim == 2 else np.diag(p) for p in precisions]
    state.prior = [(drawn.mean[f], p) for f, p in zip(Factor, dense, strict=True)]


def squared_errors(
    state: gibbs.State,
    residuals: np.ndarray,
    sides: list[gibbs.View],
    model: gibbs.Model,
    side: int,
):
    """Of every row of a side, times the other side's noise scales."""
    e = residuals - gibbs.predictor(state.theta, model.rank, sides[0].entity, sides[0].partner)
    view = sides[side]
    return np.bincount(
        view.entity, e[view.order] ** 2 * state.g[1 - side][view.partner], len(state.g[side])
    )


@pytest.mark.parametrize(
    ("rank", "biases", "prior", "noise", "coupled"),
    [
        (1, True, "normal-gamma", "shared", False),
        (2, False, "normal-wishart", "both", False),
        (3, True, "fixed", "both", False),
        (15, True, "normal-wishart", "by-user", False),
        (33, False, "normal-gamma", "by-item", False),
        (3, True, "normal-gamma", "both", True),
        (2, False, "normal-wishart", "by-item", True),
    ],
)
def test_a_sweep_is_that_of_the_reference(
    data: Path, rank: int, biases: bool, prior: Any, noise: str, coupled: bool
) -> None:
    """Given the same noise: every row and noise scale, in the order of the docstring, to 1e-5 of
    the largest.
    """
    target = made(
        data,
        0.7 / rank**0.25,
        rank=rank,
        biases=biases,
        prior=prior,
        heteroscedastic=NOISES[noise],
        coupled=coupled,
    )
    state, residuals, sides, model = reference_of(data, target, noise, coupled)
    step(target)
    take_parameters(state, target)
    for side, factor in enumerate(Factor):
        n, d = state.theta[side].shape
        if factor in NOISES[noise]:
            terms = state.tau * squared_errors(state, residuals, sides, model, side)
            counts = np.diff(sides[side].indptr)
            if coupled:
                terms += gibbs.deviations(state, side)
                counts = counts + d
            shape = (state.nu[side] + counts) / 2
            gamma = gammas(shape, target.stream.key(Purpose.NOISE_SCALE, factor, 0))
            state.g[side] = gamma / ((state.nu[side] + terms) / 2)
        z = normals_of(n * d, seed=SEED, purpose=Purpose.STEP, iteration=ITERATION, factor=factor)
        gibbs.draw_side(
            state, side, residuals, sides[side], model, z.reshape(n, d).astype(np.float64)
        )
    for found, expected in zip(
        (*all_rows(target), *scales(target)), (*state.theta, *state.g), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("noise", ["shared", "both"])
def test_tau_is_drawn_from_the_errors_of_the_state_as_it_is(
    data: Path, monkeypatch: pytest.MonkeyPatch, noise: str
) -> None:
    """Times both noise scales, with W and H as they are before the sweep: what makes it an exact
    conditional.
    """
    target = made(data, heteroscedastic=NOISES[noise])
    state, residuals, sides, model = reference_of(data, target)
    expected = float(state.g[0] @ squared_errors(state, residuals, sides, model, 0))
    found: list[float] = []
    noted = target.noise.squared_error
    monkeypatch.setattr(
        FactorTarget, "draw_shared", lambda model, context: found.append(noted.sum())
    )
    step(target)
    assert found == [pytest.approx(expected, rel=1e-5)]


def test_hyperparameters_wait_for_their_turn(data: Path) -> None:
    """Tau, priors and noise scales stay in the sweeps before the first; the rows move in all."""
    target = made(data, heteroscedastic=NOISES["both"], first=ITERATION + 2)
    before = target.small(), scales(target), all_rows(target)
    step(target)
    assert all(
        value.tobytes() == before[0][name].tobytes() for name, value in target.small().items()
    )
    assert all((g == old).all() for g, old in zip(scales(target), before[1], strict=True))
    assert all(
        (theta != old).any(axis=1).all()
        for theta, old in zip(all_rows(target), before[2], strict=True)
    )


def test_a_likelihood_without_normal_conditionals_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before anything is sampled, with what to choose instead."""

    class Other(GaussianRatings):
        statistics = staticmethod(Likelihood.statistics)

    monkeypatch.setitem(LIKELIHOODS, "other", Other)
    with pytest.raises(
        InputError,
        match=r"^--sampler gibbs needs .* which the other likelihood does not give: use .* baoab$",
    ):
        build({"sampler": "gibbs", "likelihood": "other"}).resolved()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"noise": "both"}, "cannot draw the scales of users and items"),
        ({}, "has [2-9] levels, and --sampler gibbs can draw rows of ordinal-logit only with two"),
    ],
)
def test_levels_that_weights_cannot_draw_are_refused(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    """Noise scales, and more than two levels, with what to use instead."""
    data = write_planted(tmp_path / "r.h5", stars=True)
    source = RatingsSource(data)
    asked = {"sampler": "gibbs", "likelihood": "ordinal-logit", **settings}
    with pytest.raises(InputError, match=rf"{message}.*--sampler baoab"):
        source.resolve(1, {}, asked)

"""Priors and noise: units, several states, and draws that have the bits of SciPy's."""

from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from scipy import stats
from support import Model, factor_target

from dsgmcmc.model.conjugate import (
    Scales,
    draw_from,
    draw_half_cauchy,
    draw_normal_gamma,
    draw_wishart,
)
from dsgmcmc.model.parts.base import NO_TERMS
from dsgmcmc.model.parts.noise import NU_START
from dsgmcmc.samplers.hamcmc import HAMCMC, HAMCMCConfig
from dsgmcmc.types import Factor


def test_what_is_given_in_the_ratings_unit_comes_back_in_it() -> None:
    """--noise-precision and --prior-precision have the ratings' unit, whatever ratings are divided
    by inside.

    The predictor is W . H plus the biases, so that a factor's column takes the root of the scale
    and a bias all of it.
    """
    model = Model(2, True, "fixed", 2.0, 5.0, scale=9.0, standardised=True)
    parts = (model.rows(), model.noise())
    inside = {
        q: value
        for part in parts
        for parameters in part.replicated
        for q, value in parameters.drawn()
    }
    named = {quantity.name: value.tolist() for quantity, value in inside.items()}
    assert named["tau"] == 5.0 * 81
    assert named["W.precision"] == [18.0, 18.0, 162.0]
    outside = {
        q.name: q.in_rating_unit(value, model.rows().unit, model.scale).tolist()
        for q, value in inside.items()
    }
    assert outside["tau"] == 5.0
    assert outside["W.precision"] == [2.0, 2.0, 2.0]


def test_every_state_has_parameters_of_its_own(data: Path) -> None:
    """They are drawn given its factors and the errors of all, and used in its iterations."""
    model = Model(
        rank=2, biases=False, prior="normal-gamma", prior_precision=1.0, noise_precision=None
    )
    target = factor_target(
        MPI.COMM_SELF, data, model=model, sampler=HAMCMC(HAMCMCConfig(memory=2), 0)
    )
    for block in target.blocks():
        block["theta0"][:] = 0.1
        block["theta1"][:] = 10.0
    target.draw_shared(target.context()._replace(hyper_sweep=1))
    saved = target.small()
    assert saved["tau"].shape == (2,)
    assert saved["tau"][0] != saved["tau"][1]
    for iteration, (centre, allowed) in enumerate([(0.1, 1), (10, 2), (0.1, 1)]):
        target.begin(iteration)
        assert target.noise_precision == saved["tau"][iteration % 2]
        for name in ("W.mean", "H.mean"):
            mean = target.parameters()[name]
            assert mean.tolist() == saved[name][iteration % 2].tolist()
            assert (np.abs(mean - centre) < allowed).all()


def test_states_share_the_noise_of_rows(data: Path) -> None:
    """The degrees of freedom are drawn with the rows' scales, of which there is one set, given the
    first state's precision; also if another state moves.
    """
    saved = []
    for moving in (0, 1):
        target = factor_target(
            MPI.COMM_SELF,
            data,
            model=Model(heteroscedastic=(Factor.H,)),
            sampler=HAMCMC(HAMCMCConfig(memory=2), 0),
        )
        target.states.take({"tau": np.array([1.5, 40.0])})
        target.begin(moving)
        target.stream.iteration = 0
        for block in target.blocks():
            block.row("row_error")[:] = 3.0
        target.draw_shared = lambda context: None
        target.draw_parts(target.context()._replace(hyper_sweep=1))
        assert target.noise_precision == (1.5, 40.0)[moving]
        saved.append(target.small())
    for arrays in saved:
        assert arrays["H.nu"][0] == arrays["H.nu"][1]
        assert arrays["tau"].tolist() == [1.5, 40.0]
    assert saved[0]["H.nu"].tolist() == saved[1]["H.nu"].tolist()
    assert saved[0]["H.nu"][0] != NU_START


@pytest.mark.parametrize("sd", [0.01, 0.4, 20.0])
def test_the_half_cauchy_prior_of_a_column_has_the_posterior_of_quadrature(sd: float) -> None:
    """Quantiles of the chain of precisions given 8 rows are those of an integral over the column's
    sd, where rows are small, of its scale, or far in its tail.

    20,000 draws, autocorrelated by the auxiliary variable, have an error below 0.012 of a share.
    """
    n, scale, average = 8, 0.4, 0.6 * sd
    squares = n * average**2 + 7 * sd**2
    grid = np.exp(np.linspace(np.log(sd) - 8, np.log(sd) + 8, 4001))  # of the column's sd
    rest = squares - n**2 * average**2 / (n + 1)  # m is integrated out
    density = -n * np.log(grid) - rest / (2 * grid**2) - np.log1p((grid / scale) ** 2)
    share = np.cumsum(np.exp(density - density.max()) * grid)
    share /= share[-1]
    rng = np.random.default_rng(3)
    precision = np.full(2_000, sd**-2)  # as many columns, each with a chain
    columns = np.ones(2_000)
    draws = []
    for _ in range(20):
        prior = draw_half_cauchy(precision, scale, rng)
        _, precision = draw_normal_gamma(
            average * columns,
            squares * columns,
            n,
            weight=float(n),
            rng=rng,
            prior=prior,
            more=NO_TERMS,
        )
        draws.append(precision**-0.5)
    found = np.concatenate(draws[10:])
    for level in (0.05, 0.25, 0.5, 0.75, 0.95):
        quantile = np.interp(level, share, grid)
        assert np.mean(found < quantile) == pytest.approx(level, abs=0.012)


def test_the_common_scale_of_columns_has_the_posterior_of_their_densities() -> None:
    """Shares of draws are the products of half-Cauchy densities, to four standard errors."""
    sds = np.array([0.02, 0.05, 0.9])
    scales = np.array([0.01, 0.05, 0.2, 1.0])
    density = stats.halfcauchy.pdf(sds, scale=scales[:, None]).prod(axis=1)
    rng = np.random.default_rng(1)
    draws = [Scales.of(scales).draw(sds**-2, rng) for _ in range(10_000)]
    found = np.mean(np.equal.outer(draws, scales), axis=0)
    assert found == pytest.approx(density / density.sum(), abs=0.02)


def test_spare_columns_vanish_and_needed_ones_stay(data: Path) -> None:
    """Given rows that are almost 0 in a column, its precision grows from draw to draw; where rows
    have a spread of 1, the precision is that of the rows.
    """
    target = factor_target(
        MPI.COMM_SELF, data, model=Model(rank=2, prior="half-cauchy", standardised=True)
    )
    rng = np.random.default_rng(0)
    for block in target.blocks():
        block["theta"][:] = rng.normal(0, [1.0, 1e-4, 1.0], block["theta"].shape)
    for number in range(20):
        target.draw_shared(target.context()._replace(hyper_sweep=number + 1))
    for factor in Factor:
        needed, spare, _ = target.row_priors.parameters.precision[factor]
        assert 0.2 < needed < 5
        assert spare > 1e5


@pytest.mark.parametrize("k", [1, 2, 7, 32])
def test_wishart_draws_are_those_of_scipy(k: int) -> None:
    """Draws have the same bits, and take as many random numbers."""
    rows = np.random.default_rng(k).normal(size=(k + 5, k))
    scale = np.linalg.inv(rows.T @ rows)
    scale = (scale + scale.T) / 2
    ours, theirs = (np.random.Generator(np.random.Philox(key=[k, 1])) for _ in range(2))
    for _ in range(5):
        expected = np.atleast_2d(stats.wishart.rvs(k + 40, scale, random_state=theirs))
        assert draw_wishart(k + 40, scale, ours).tobytes() == expected.tobytes()
    assert ours.random() == theirs.random()


def test_a_draw_from_a_grid_is_that_of_numpy():
    values = np.array([0.5, 1.0, 4.0])
    log_density = np.array([-3.0, 800.0, 799.0])
    shares = np.exp(log_density - 800.0)
    ours = np.random.default_rng(7)
    theirs = np.random.default_rng(7)
    for _ in range(50):
        drawn = draw_from(values, log_density, ours)
        assert drawn == theirs.choice(values, p=shares / shares.sum())


def test_a_grid_without_finite_probabilities_is_refused():
    with pytest.raises(ValueError, match="not a number"):
        draw_from(np.ones(2), np.array([np.nan, 0.0]), np.random.default_rng(1))

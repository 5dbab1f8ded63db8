"""Noise of at least the variance of rounding: draws from truncated distributions, and runs."""

from pathlib import Path

import numpy as np
import pytest
from measurements import write_measured
from mpi4py import MPI
from scipy import integrate, stats
from support import sample, write_cells

from dsgmcmc.kernels.philox import NoiseKey, gammas
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.parts.noise import NU_GRID, ScaledSquares, nu_log_density
from dsgmcmc.model.rounding import truncated_gamma
from dsgmcmc.parallel.alone import Alone
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.posterior.draws import ENTITIES
from dsgmcmc.posterior.run import Run
from dsgmcmc.ratings.file import Ratings

#: Shapes with bounds, in standard deviations from the mode: far below, below and above it.
BOUNDS = [
    (2.0, 0.1),
    (2.0, 0.9),
    (3.5, 1.2),
    (3.5, 30.0),
    (40.0, 5.0),
    (40.0, 36.0),
    (5000.0, 2000.0),
    (5000.0, 4930.0),
    (5000.0, 5100.0),
]


def truncated(shape: float, most: float) -> stats.rv_continuous:
    """Distribution function of a gamma variable of at most `most`, by quadrature in logarithms."""
    grid = np.linspace(max(0.0, most - 60 * max(1.0, most / shape**0.5)), most, 200_001)[1:]
    logs = (shape - 1) * np.log(grid) - grid
    total = integrate.cumulative_trapezoid(np.exp(logs - logs.max()), grid, initial=0.0)
    return lambda x: np.interp(x, grid, total / total[-1])


@pytest.mark.parametrize(("shape", "most"), BOUNDS)
def test_truncated_draws_have_the_truncated_distribution(shape: float, most: float) -> None:
    """4,000 draws: a Kolmogorov-Smirnov test at a level of 1e-4, of both generators."""
    rng = np.random.default_rng(5)
    shared = [truncated_gamma(shape, 3.0, most / 3.0, rng) * 3.0 for _ in range(4000)]
    of_rows = gammas(np.full(4000, shape), NoiseKey(0, 9, 0, 0, 0, 0), np.full(4000, most))
    for drawn in (np.array(shared), of_rows):
        assert drawn.max() <= most * (1 + 1e-12)
        assert stats.kstest(drawn, truncated(shape, most)).pvalue > 1e-4


def test_a_bound_that_is_far_away_changes_no_draw() -> None:
    """Chains whose noise is far above that of rounding keep their draws."""
    key = NoiseKey(0, 9, 0, 0, 0, 0)
    shape = np.linspace(2, 500, 1000)
    plain = gammas(shape, key)
    np.testing.assert_array_equal(gammas(shape, key, 20 * shape), plain)
    bounded = truncated_gamma(50.0, 2.0, 1e3, np.random.default_rng(1))
    assert bounded == np.random.default_rng(1).gamma(50.0) / 2.0


#: Numbers of ratings and squared errors of three rows.
COUNTS = np.array([1, 4, 30])
ERRORS = np.array([0.01, 0.5, 3.0])


@pytest.mark.parametrize("most", [0.01, 0.8, 2.0, 50.0])
def test_nu_is_drawn_with_bounded_scales_integrated_out(most: float) -> None:
    """Against quadrature over the noise scales of three rows, up to a constant."""
    tau = 2.0
    found = nu_log_density(ScaledSquares(COUNTS, tau * ERRORS), most)
    for k in (0, 20, 40):
        expected = 0.0
        base = 0.0
        for n, error in zip(COUNTS, ERRORS, strict=True):

            def density(g: float, nu: float, n: float = n, error: float = error) -> float:
                prior = stats.gamma.logpdf(g, nu / 2, scale=2 / nu)
                return float(np.exp(prior + n / 2 * np.log(g) - tau * error * g / 2))

            expected += np.log(integrate.quad(density, 0, most, args=(NU_GRID[k],), limit=200)[0])
            base += np.log(integrate.quad(density, 0, most, args=(NU_GRID[10],), limit=200)[0])
        assert found[k] - found[10] == pytest.approx(expected - base, abs=0.02)


@pytest.fixture(scope="module")
def rounded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Values to one decimal, of which the users' and the items' parts are nearly exact."""
    rng = np.random.default_rng(4)
    i, j = np.divmod(np.arange(200 * 100), 100)
    x = np.round(rng.normal(0, 1.4, 200)[i] + rng.normal(0, 1.4, 100)[j], 1)
    path = tmp_path_factory.mktemp("rounded") / "r.h5"
    return write_cells(path, (200, 100), i, j, x, rng.random(len(i)) < 0.1)


def test_large_weights_lower_the_bound_of_others(tmp_path: Path) -> None:
    """The most precise rating has at least the variance of rounding, too."""
    plain, weighted = (
        RatingBlocks(
            Ratings(write_measured(tmp_path / f"{name}.h5", weighted=name == "weighted")),
            Ring(Alone(), 3),
            0.0,
            resolution=0.5,
        )
        for name in ("plain", "weighted")
    )
    assert plain.largest_precision == pytest.approx(12 / 0.5**2)
    largest = max(cell.weights.max() for cell in weighted.train.values() if len(cell.weights))
    assert weighted.largest_precision == pytest.approx(12 / 0.5**2 / largest)


@pytest.mark.parametrize("noise", ["shared", "by-item", "both"])
@pytest.mark.parametrize(
    ("likelihood", "sampler"),
    [("gaussian", "baoab"), ("gaussian", "gibbs"), ("student-t", "baoab")],
)
def test_noise_is_never_below_that_of_rounding(
    rounded: Path, tmp_path: Path, likelihood: str, noise: str, sampler: str
) -> None:
    """In every draw and for every pair, though the ratings are as exact as their rounding."""
    out = tmp_path / "run"
    sample(
        MPI.COMM_SELF,
        rounded,
        out,
        likelihood=likelihood,
        noise=noise,
        sampler={"name": sampler},
        rank=2,
        iterations="120sweeps",
        burn_in="60sweeps",
        save_draws=20,
    )
    run = Run(out)
    least = 0.1**2 / 12
    for position in range(len(run.draws)):
        draw = run.draw(position)
        scales = [draw.noise_scale[entity].max() for entity in ENTITIES]
        variance = 1 / (draw.tau * np.prod(scales))
        assert variance >= least * (1 - 1e-5)
        assert variance < 20 * least

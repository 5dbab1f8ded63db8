"""Levels, counts, clicks and heavy tails: the laws of tiny problems, by other samplers or by
quadrature.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chain_states import make_sampler, states
from mpi4py import MPI
from scipy import stats
from scipy.special import expit
from support import sample, write_cells

from dsgmcmc.densities.density import ALL, Data
from dsgmcmc.model.likelihoods import Levels
from dsgmcmc.model.likelihoods.dispersion import NODES, PRIOR_SD, START_DISPERSION, draw_dispersion
from dsgmcmc.model.likelihoods.ordinal.thresholds import GAP_SD, MIDDLE_SD, values_of
from dsgmcmc.model.likelihoods.student_t import MAX_LOG_TAU, PRIOR_RATE, TAU_SD, draw_tails
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.run import Run

pytestmark = pytest.mark.statistical
SHAPE = ROWS, COLUMNS = 10, 8


def sample_run(folder: Path, **settings: Any) -> Run:
    """A run of BAOAB, unless another sampler is given, on the ratings of a folder, priors fixed."""
    usual = {"grid": 2, "prior": "fixed", "burn_in": 500, "save_draws": 0, "evaluate_every": 10_000}
    usual |= {"rank": 1, "sampler": {"name": "baoab", "step_size": 0.1}}
    assert sample(MPI.COMM_SELF, folder / "r.h5", folder / "run", **(usual | settings)) == 0
    return Run(folder / "run")


class FactorisedLevels:
    """Levels with two thresholds, by one latent dimension and biases: a density for the samplers of
    densities.

    theta has (w, a) of every row, then (h, b) of every column, then the coordinates of the
    thresholds.
    """

    n_data = 1
    dimension = 2 * (ROWS + COLUMNS) + 2
    curvature = np.ones(dimension)
    prior_mean = np.zeros(dimension)
    prior_precision = np.append(np.ones(dimension - 2), [GAP_SD**-2, MIDDLE_SD**-2])

    def __init__(self, i: np.ndarray, j: np.ndarray, level: np.ndarray) -> None:
        self.i = i
        self.j = j
        self.level = level

    def parts(self, theta: np.ndarray) -> tuple[np.ndarray, ...]:
        """Rows and columns of the ratings (n, ratings, 2), gaps (n,), and the probabilities up to
        either threshold.
        """
        w, h = np.split(theta[:, :-2].reshape(len(theta), -1, 2), [ROWS], axis=1)
        w = w[:, self.i]
        h = h[:, self.j]
        cuts = values_of(theta[:, -2:])
        eta = w[..., 0] * h[..., 0] + w[..., 1] + h[..., 1]
        gap = cuts[:, 1] - cuts[:, 0]
        cuts = np.pad(cuts, ((0, 0), (1, 1)), constant_values=((0, 0), (-1e9, 1e9)))
        return w, h, gap, expit(cuts[:, self.level + 1] - eta), expit(cuts[:, self.level] - eta)

    def energy(self, theta: np.ndarray, data: Data = ALL) -> np.ndarray:
        """Minus the log probability of all levels."""
        *_, up, down = self.parts(theta)
        return -np.log(up - down).sum(axis=1)

    def gradient(self, theta: np.ndarray, data: Data = ALL) -> np.ndarray:
        """Gradient of `energy`."""
        w, h, gap, up, down = self.parts(theta)
        d_up = up * (1 - up) / (up - down)
        d_down = -down * (1 - down) / (up - down)
        slope = (d_up + d_down)[..., None]
        w[..., 1] = h[..., 1] = 1.0  # the partner of a bias
        of_rows = np.eye(ROWS)[:, self.i] @ (slope * h)
        of_columns = np.eye(COLUMNS)[:, self.j] @ (slope * w)
        first, second = (
            (d_up * (self.level == r) + d_down * (self.level == r + 1)).sum(axis=1)
            for r in range(2)
        )
        factors = np.concatenate([of_rows, of_columns], axis=1).reshape(len(theta), -1)
        return np.column_stack([factors, gap * first, -(first + second)])


@pytest.mark.long
def test_thresholds_of_levels(tmp_path: Path) -> None:
    """By HMC: means within 0.15 posterior sds, sds within 12 %: about three times what the draws of
    both err by.
    """
    rng = np.random.default_rng(5)
    cuts = np.array([-1.0, 1.2])
    # sorted by row
    i, j = np.divmod(np.sort(rng.choice(ROWS * COLUMNS, 60, replace=False)), COLUMNS)
    w = rng.normal(size=ROWS)
    h = rng.normal(size=COLUMNS)
    eta = w[i] * h[j] + rng.normal(0, 0.7, ROWS)[i] + rng.normal(0, 0.7, COLUMNS)[j]
    level = (rng.logistic(size=60) + eta > cuts[:, None]).sum(axis=0)
    write_cells(tmp_path / "r.h5", SHAPE, i, j, 1.0 + level)
    theta = states(FactorisedLevels(i, j, level), make_sampler("hmc", 300), 400, sd=0.3, rows=20)[
        300:
    ]
    exact = values_of(np.concatenate(theta)[:, -2:])
    run = sample_run(
        tmp_path, likelihood="ordinal-logit", prior_precision=1.0, thin=4, iterations=8000
    )
    draws = run.traces[0]["thresholds"]
    sd = exact.std(axis=0)
    np.testing.assert_allclose(draws.mean(axis=0) / sd, exact.mean(axis=0) / sd, atol=0.15)
    np.testing.assert_allclose(draws.std(axis=0) / sd, 1.0, atol=0.12)


class TwoLevels:
    """Two levels by one latent dimension and biases: a density for the samplers of densities.

    theta has (w, a) of every row, then (h, b) of every column, then the threshold.
    """

    n_data = 1
    dimension = 2 * (ROWS + COLUMNS) + 1
    curvature = np.ones(dimension)
    prior_mean = np.zeros(dimension)
    prior_precision = np.append(np.ones(dimension - 1), MIDDLE_SD**-2)

    def __init__(self, i: np.ndarray, j: np.ndarray, level: np.ndarray) -> None:
        self.i = i
        self.j = j
        self.level = level

    def z(self, theta: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        """Predictors of pairs, less the threshold, (n, pairs)."""
        rows, columns = np.split(theta[:, :-1].reshape(len(theta), -1, 2), [ROWS], axis=1)
        products = rows[:, i, 0] * columns[:, j, 0]
        return products + rows[:, i, 1] + columns[:, j, 1] - theta[:, -1:]

    def energy(self, theta: np.ndarray, data: Data = ALL) -> np.ndarray:
        """Minus the log probability of all levels."""
        sign = 2 * self.level - 1
        return np.logaddexp(0, -sign * self.z(theta, self.i, self.j)).sum(axis=1)

    def gradient(self, theta: np.ndarray, data: Data = ALL) -> np.ndarray:
        """Gradient of `energy`."""
        slope = expit(self.z(theta, self.i, self.j)) - self.level
        rows, columns = np.split(theta[:, :-1].reshape(len(theta), -1, 2), [ROWS], axis=1)
        of_rows = np.stack([slope * columns[:, self.j, 0], slope], axis=-1)
        of_columns = np.stack([slope * rows[:, self.i, 0], slope], axis=-1)
        factors = [np.eye(ROWS)[:, self.i] @ of_rows, np.eye(COLUMNS)[:, self.j] @ of_columns]
        by_row = np.concatenate(factors, axis=1).reshape(len(theta), -1)
        return np.column_stack([by_row, -slope.sum(axis=1)])


def test_two_levels_by_gibbs(tmp_path: Path) -> None:
    """By HMC: the threshold and probabilities of pairs that are not rated, some of them certain.

    The mean of the threshold is within 0.2 posterior sds and its sd within 15 %, probabilities and
    their sds are within 0.025: about three times what the draws of both err by.
    """
    rng = np.random.default_rng(6)
    i, j = np.indices(SHAPE).reshape(2, -1)
    group = np.where(np.arange(ROWS) < ROWS // 2, 1.0, -1.0)
    eta = 4.0 * group[i] * rng.normal(size=COLUMNS)[j] + rng.normal(0, 0.7, ROWS)[i]
    level = (rng.logistic(size=len(i)) + eta > 0.5).astype(float)
    test = rng.random(len(i)) < 0.25
    write_cells(tmp_path / "r.h5", SHAPE, i, j, level, test)
    density = TwoLevels(i[~test], j[~test], level[~test])
    hmc = states(density, make_sampler("hmc", 300), 800, sd=0.3, rows=40)[300:]
    theta = np.concatenate(hmc)
    probability = expit(density.z(theta, i[test], j[test]))

    settings: dict[str, Any] = {"sampler": {"name": "gibbs"}, "thin": 1, "iterations": 6500}
    settings |= {"likelihood": "ordinal-logit", "prior_precision": 1.0}
    run = sample_run(tmp_path, **settings)
    threshold = run.traces[0]["thresholds"][:, 0]
    sd = theta[:, -1].std()
    assert abs(threshold.mean() - theta[:, -1].mean()) < 0.2 * sd
    assert threshold.std() == pytest.approx(sd, rel=0.15)
    found = predict_test(run)
    np.testing.assert_allclose(found.mean, probability.mean(axis=0), atol=0.025)
    np.testing.assert_allclose(np.sqrt(found.variance), probability.std(axis=0), atol=0.025)


@pytest.mark.parametrize("name", ["gibbs", pytest.param("baoab", marks=pytest.mark.long)])
def test_scores_of_clicks(tmp_path: Path, name: str) -> None:
    """Their pseudo-posterior by Gibbs in NumPy: rows are normal given the columns, and these given
    the rows.

    Means of the scores of all zeros within 0.15 sds, sds within 12 %: some three times what 3,000
    draws err by.
    """
    rows = 9
    columns = 7
    rank = 2
    tau = 6.0
    a0 = 0.3
    prior = 2.0
    clicked = (np.random.default_rng(3).random((rows, columns)) < 0.35).astype(float)
    rng = np.random.default_rng(0)
    exact = []
    w = rng.normal(size=(rows, rank))
    h = rng.normal(size=(columns, rank))
    for _ in range(4200):
        for moving, other, clicks in ((w, h, clicked), (h, w, clicked.T)):
            precision = tau * (other.T * (clicks[:, None] + a0)) @ other + prior * np.eye(rank)
            mean = np.linalg.solve(precision, tau * (clicks @ other)[..., None])
            root = np.linalg.cholesky(precision)
            moving[:] = (
                mean + np.linalg.solve(root.swapaxes(1, 2), rng.standard_normal((*moving.shape, 1)))
            )[..., 0]
        exact.append((w @ h.T)[clicked == 0])
    i, j = np.indices(clicked.shape).reshape(2, -1)
    # values do not matter
    write_cells(tmp_path / "r.h5", (rows, columns), i, j, 1 + (i + j) % 5, clicked.ravel() == 0)
    settings: dict[str, Any] = {
        "rank": rank,
        "noise_precision": tau,
        "prior_precision": prior,
        "zero_weight": a0,
    }
    settings |= {"sampler": {"name": "gibbs"}, "thin": 1, "iterations": 3500}
    if name == "baoab":
        settings |= {
            "sampler": {"name": name, "metric": "kronecker", "step_size": 0.1},
            "thin": 3,
            "iterations": 9500,
        }
    test = predict_test(sample_run(tmp_path, likelihood="all-cells", **settings))
    mean = np.mean(exact[200:], axis=0)
    sd = np.std(exact[200:], axis=0)
    np.testing.assert_allclose(test.mean / sd, mean / sd, atol=0.15)
    np.testing.assert_allclose(np.sqrt(test.variance) / sd, 1.0, atol=0.12)


# -------------------------------------------------------------- parameters of noise, given all else


def moments(log_p: np.ndarray, *grids: np.ndarray) -> list[tuple[float, float]]:
    """Mean and sd of each coordinate by quadrature."""
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    means = [float((p * grid).sum()) for grid in grids]
    return [
        (mean, float(np.sqrt((p * (grid - mean) ** 2).sum())))
        for mean, grid in zip(means, grids, strict=True)
    ]


def check_moments(draws: np.ndarray, expected: tuple[float, float]) -> None:
    """The mean of 8,000 draws, worth 1,500 or more, is within 0.1 sds, and their sd within 10 %."""
    mean, sd = expected
    assert abs(draws[200:].mean() - mean) < 0.1 * sd
    assert draws[200:].std() == pytest.approx(sd, rel=0.1)


@pytest.mark.parametrize("truncated", [False, True])
def test_the_dispersion_of_counts_given_their_rates(truncated: bool) -> None:
    """Draws agree with quadrature for all counts, and for counts that are above zero."""
    rng = np.random.default_rng(3)
    rate = rng.gamma(2.0, 1.5, 700)
    x = rng.negative_binomial(1.5, 1.5 / (1.5 + rate))
    if truncated:
        rate = rate[x > 0]
        x = x[x > 0]
    grid = np.linspace(-2.0, 5.0, 401)
    log_p = -(((grid - np.log(START_DISPERSION)) / PRIOR_SD) ** 2) / 2
    for k, r in enumerate(np.exp(grid)):
        law = stats.nbinom(r, r / (r + rate))
        log_p[k] += (law.logpmf(x) - (law.logsf(0) if truncated else 0.0)).sum()
    table = Levels(*np.unique(x.astype(float), return_counts=True))
    r = 10.0
    draws = []
    for _ in range(8000):
        nodes = r * np.exp(NODES)[:, None]
        rise = np.log1p(rate / nodes)
        sums = (-(x + nodes) * rise - (np.log(-np.expm1(-nodes * rise)) if truncated else 0.0)).sum(
            axis=1
        )
        r = draw_dispersion(r, sums, table, rng)
        draws.append(np.log(r))
    check_moments(np.array(draws), moments(log_p, grid)[0])


def test_nu_and_tau_of_heavy_tails_given_the_residuals() -> None:
    """Draws from the sums that the gradient adds up agree with quadrature."""
    rng = np.random.default_rng(0)
    error = rng.standard_t(4.0, 400) / 2
    u = np.linspace(-2, 6, 161)[:, None]
    v = np.linspace(0, 3, 121)
    nu = 2 + np.exp(u)
    log_p = 2 * u - PRIOR_RATE * np.exp(u) - (v / TAU_SD) ** 2 / 2
    for e in error:
        log_p = log_p + stats.t.logpdf(e, nu, 0, np.exp(-v / 2))
    draws = []
    state = (8.0, 1.0)
    for _ in range(8000):
        away = state[1] / state[0] * error**2
        far = away / (1 + away)
        both = far * (1 - far)
        terms = np.log1p(away), far, both, both * (1 - 2 * far), both * (1 - 6 * both)
        state = draw_tails(
            *state,
            np.array([term.sum() for term in terms]),
            n=len(error),
            max_log_tau=MAX_LOG_TAU,
            rng=rng,
        )
        draws.append((np.log(state[0] - 2), np.log(state[1])))
    for drawn, expected in zip(np.transpose(draws), moments(log_p, u, v), strict=True):
        check_moments(drawn, expected)

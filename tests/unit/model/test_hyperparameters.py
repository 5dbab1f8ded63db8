"""The draws of priors and noise against the laws that they are conditionals of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from scipy import stats
from support import MODEL, Model, draw_shared, factor_target, write_planted

from dsgmcmc.model.conjugate import draw_normal_gamma, draw_normal_wishart, draw_wishart
from dsgmcmc.model.likelihoods.gaussian import Gaussian
from dsgmcmc.model.model import FactorModel
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.samplers.sgmcmc.hamcmc import HAMCMC, HAMCMCConfig
from dsgmcmc.types import Factor, PriorName

ROWS, COLUMNS = 29, 17
DRAWS = 4000
# Of about 30 tests of exact laws at fixed seeds: a right law fails one in 10^5 times.
P_VALUE = 1e-7


def target_of(tmp_path: Path, model: Model, seed: int = 0) -> FactorTarget:
    """Target with a random state at a fixed squared error of 80, spread over its blocks."""
    path = write_planted(tmp_path / "r.h5", ROWS, COLUMNS)
    target = factor_target(MPI.COMM_SELF, path, model=model, seed=seed)
    rng = np.random.default_rng(1)
    for block in target.blocks():
        block["theta"][:] = rng.normal(0.3, 0.7, block["theta"].shape)
    target.model.noise.squared_error[:, 0] = [5.0, 15.0, 20.0, 40.0]
    return target


def draws_of(target: FactorTarget) -> dict[str, np.ndarray]:
    """Parameters drawn again and again from one state, (draws, ...) each."""
    drawn: dict[str, list[np.ndarray]] = {name: [] for name in target.parameters()}
    for iteration in range(DRAWS):
        target.stream.iteration = iteration
        draw_shared(target)
        for name, value in target.parameters().items():
            drawn[name].append(value)
    return {name: np.array(values) for name, values in drawn.items()}


def rows_of(target: FactorTarget, factor: Factor) -> np.ndarray:
    """All rows of a factor, in float64."""
    return np.concatenate([block["theta"] for block in target.blocks() if block.factor == factor]).astype(np.float64)


# ---------------------------------------------------------------------- what is drawn in a run


def test_what_is_given_in_the_ratings_unit_comes_back_in_it() -> None:
    """--noise-precision and --prior-precision have the ratings' unit, whatever ratings are divided by inside.

    The predictor is W . H plus the biases, so that a factor's column takes the root of the scale and a bias all of it.
    """
    model = Model(2, True, "fixed", 2.0, 5.0, scale=9.0, standardised=True)
    parts = (model.rows(), model.noise())
    inside = {q: value for part in parts for each in part.replicated for q, value in each.drawn()}
    named = {quantity.name: value.tolist() for quantity, value in inside.items()}
    assert named["tau"] == 5.0 * 81
    assert named["W.precision"] == [18.0, 18.0, 162.0]
    outside = {q.name: q.in_rating_unit(value, model.rows().unit, model.scale).tolist() for q, value in inside.items()}
    assert outside["tau"] == 5.0
    assert outside["W.precision"] == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("prior", ["normal-gamma", "normal-wishart", "fixed"])
def test_noise_and_bias_precision_have_their_gamma_laws(tmp_path: Path, prior: PriorName) -> None:
    """Tau ~ Gamma(1 + N/2, 1 + SSE/2); the bias' precision ~ Gamma(1 + n/2, 5 + sum a^2 / 2), its mean stays 0."""
    model = Model(rank=2, biases=True, prior=prior, prior_precision=2.0, noise_precision=None)
    target = target_of(tmp_path, model)
    drawn = draws_of(target)
    tau = stats.gamma(1 + target.n_data / 2, scale=1 / (1 + 80 / 2))
    assert stats.kstest(drawn["tau"], tau.cdf).pvalue > P_VALUE
    for factor, n in ((Factor.W, ROWS), (Factor.H, COLUMNS)):
        assert not drawn[f"{factor.name}.mean"][:, 2].any()
        precision = drawn[f"{factor.name}.precision"]
        if prior == "fixed":
            assert (precision == 2.0).all()
            continue
        bias = precision[:, 2, 2] if prior == "normal-wishart" else precision[:, 2]
        law = stats.gamma(1 + n / 2, scale=1 / (5 + (rows_of(target, factor)[:, 2] ** 2).sum() / 2))
        assert stats.kstest(bias, law.cdf).pvalue > P_VALUE
        if prior == "normal-wishart":
            assert not precision[:, 2, :2].any()
            assert not precision[:, :2, 2].any()


@pytest.mark.parametrize(("standardised", "shape", "rate"), [(False, 1, 5), (True, 4, 3 / 4 / np.sqrt(2))])
def test_normal_gamma_has_its_conditional_law(tmp_path: Path, standardised: bool, shape: float, rate: float) -> None:
    """Precision and mean of every column, from all rows of the factor: the marginals are Gamma and Student's t."""
    model = Model(2, False, "normal-gamma", 1.0, 3.0, standardised=standardised)
    target = target_of(tmp_path, model)
    drawn = draws_of(target)
    assert (drawn["tau"] == 3.0).all()
    for factor, n in ((Factor.W, ROWS), (Factor.H, COLUMNS)):
        theta = rows_of(target, factor)
        for k in range(2):
            x = theta[:, k]
            total = rate + ((x - x.mean()) ** 2).sum() / 2 + n * x.mean() ** 2 / (2 * (n + 1))
            precision = stats.gamma(shape + n / 2, scale=1 / total)
            assert stats.kstest(drawn[f"{factor.name}.precision"][:, k], precision.cdf).pvalue > P_VALUE
            spread = np.sqrt(total / ((shape + n / 2) * (n + 1)))
            mean = stats.t(2 * shape + n, loc=n * x.mean() / (n + 1), scale=spread)
            assert stats.kstest(drawn[f"{factor.name}.mean"][:, k], mean.cdf).pvalue > P_VALUE


def test_normal_wishart_has_its_conditional_moments(tmp_path: Path) -> None:
    """E[Lambda] = (K + n) W*, E[m] = n xbar / (2 + n) and Cov[m] for W0 = I, nu0 = K, beta0 = 2."""
    model = Model(rank=2, biases=False, prior="normal-wishart", prior_precision=1.0, noise_precision=3.0)
    target = target_of(tmp_path, model)
    drawn = draws_of(target)
    for factor, n in ((Factor.W, ROWS), (Factor.H, COLUMNS)):
        x = rows_of(target, factor)
        average, centred = x.mean(axis=0), x - x.mean(axis=0)
        inverse = np.eye(2) + centred.T @ centred + 2 * n / (2 + n) * np.outer(average, average)
        check_mean(drawn[f"{factor.name}.precision"], (2 + n) * np.linalg.inv(inverse))
        check_mean(drawn[f"{factor.name}.mean"], n * average / (2 + n))
        offset = drawn[f"{factor.name}.mean"] - n * average / (2 + n)
        # E[Lambda^-1] = W*^-1 / (nu* - K - 1)
        check_mean(offset[:, :, None] * offset[:, None, :], inverse / (n - 1) / (2 + n))


def check_mean(draws: np.ndarray, expected: np.ndarray) -> None:
    """Independent draws have this mean, within 5 standard errors."""
    z = (draws.mean(axis=0) - expected) / (draws.std(axis=0) / np.sqrt(len(draws)))
    assert np.abs(z).max() < 5, z


def test_draws_are_a_function_of_seed_and_iteration(tmp_path: Path) -> None:
    """The same iteration draws the same parameters; another iteration or seed others."""
    model = Model(rank=2, biases=True, prior="normal-gamma", prior_precision=1.0, noise_precision=None)
    found = []
    for seed, iteration in ((0, 3), (0, 3), (0, 4), (1, 3)):
        target = target_of(tmp_path / f"{len(found)}", model, seed)
        target.stream.iteration = iteration
        draw_shared(target)
        found.append(target.noise_precision)
    assert found[0] == found[1]
    assert len(set(found)) == 3


def test_every_subchain_has_a_set_of_its_own(tmp_path: Path) -> None:
    """Interleaved sub-chains are conditioned each on its own state, with one tau's worth of errors each."""
    model = Model(rank=2, biases=False, prior="normal-gamma", prior_precision=1.0, noise_precision=None)
    path = write_planted(tmp_path / "r.h5", ROWS, COLUMNS)
    target = factor_target(MPI.COMM_SELF, path, model=model, sampler=HAMCMC(HAMCMCConfig(memory=2), 0))
    for block in target.blocks():
        block["theta0"][:], block["theta1"][:] = 0.1, 10.0
    draw_shared(target)
    assert target.model.noise.parameters.tau.shape == (2,)
    for mean in target.model.rows.parameters.mean.values():
        assert (np.abs(mean[0] - 0.1) < 1).all()
        assert (np.abs(mean[1] - 10) < 2).all()
    found = []
    for subchain in (0, 1):
        target.subchain = subchain
        found.append((target.noise_precision, target.parameters()["W.mean"].tolist()))
    assert found[0] != found[1], "what is seen is that of the current sub-chain"


@pytest.mark.parametrize("first", [0, 1, 3])
def test_turns_begin_with_the_sweep_that_is_asked_for(first: int) -> None:
    """From it on there is one in every sweep."""
    law = Gaussian(2, True)
    model = FactorModel(law, MODEL.noise(), MODEL.rows(), first=first)
    assert [n for n in range(1, 20) if model.turn(n)] == list(range(max(first, 1), 20))


def test_nothing_is_drawn_where_all_is_given(tmp_path: Path) -> None:
    """A fixed prior and a known tau stay as they are given."""
    model = Model(rank=2, biases=True, prior="fixed", prior_precision=2.0, noise_precision=3.0)
    target = target_of(tmp_path, model)
    before = {name: value.copy() for name, value in target.small().items()}
    draw_shared(target)
    assert {name: value.tolist() for name, value in target.small().items()} == {
        name: value.tolist() for name, value in before.items()
    }


# ---------------------------------------------------------------------- the laws themselves


def prior_and_data(kind: str, rng: np.random.Generator, n: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(m, Lambda, rows) from the joint law, written from its definition: 2 dimensions, n rows."""
    if kind == "normal-gamma":
        scales = rng.gamma(1.0, 1 / 5, 2)
        mean, precision = rng.normal(0, 1 / np.sqrt(scales)), np.diag(scales)
    else:
        a = rng.standard_normal((2, 2))
        precision = a.T @ a
        mean = np.linalg.solve(np.linalg.cholesky(2 * precision).T, rng.standard_normal(2))
    noise = np.linalg.solve(np.linalg.cholesky(precision).T, rng.standard_normal((2, n))).T
    return mean, precision, mean + noise


def functionals(mean: np.ndarray, precision: np.ndarray, rows: np.ndarray) -> list[float]:
    average = rows.mean(axis=0)
    return [
        precision[0, 0],
        precision[1, 1],
        precision[0, 1] * np.sign(np.cov(rows.T)[0, 1]),
        np.linalg.det(precision),
        mean[0] * np.sign(average[0]),
        abs(mean[0] - average[0]),
        abs(mean[1]),
        mean[0] * mean[1],
        precision[0, 0] * (mean[0] - average[0]) ** 2,
    ]


@pytest.mark.parametrize("k", [1, 2, 7, 32])
def test_wishart_draws_are_those_of_scipy(k: int) -> None:
    """To the bit, and with as many random numbers."""
    rows = np.random.default_rng(k).normal(size=(k + 5, k))
    scale = np.linalg.inv(rows.T @ rows)
    scale = (scale + scale.T) / 2
    ours, theirs = (np.random.Generator(np.random.Philox(key=[k, 1])) for _ in range(2))
    for _ in range(5):
        expected = np.atleast_2d(stats.wishart.rvs(k + 40, scale, random_state=theirs))
        assert draw_wishart(k + 40, scale, ours).tobytes() == expected.tobytes()
    assert ours.random() == theirs.random()


@pytest.mark.parametrize("kind", ["normal-gamma", "normal-wishart"])
def test_draws_are_exchangeable_with_the_prior_that_made_the_data(kind: str) -> None:
    """Given the data, a draw and the truth have one law: no function of them is more often larger for either."""
    rng = np.random.default_rng(3)
    larger, compared = 0.0, 0.0
    for _ in range(8000):
        mean, precision, rows = prior_and_data(kind, rng)
        n, average = len(rows), rows.mean(axis=0)
        if kind == "normal-gamma":
            drawn_mean, scales = draw_normal_gamma(average, (rows**2).sum(axis=0), n, rng)
            drawn = np.diag(scales)
        else:
            drawn_mean, drawn = draw_normal_wishart(average, rows.T @ rows, n, rng)
        ours = np.array(functionals(drawn_mean, drawn, rows))
        truth = np.array(functionals(mean, precision, rows))
        larger = larger + (ours > truth)
        compared = compared + (ours != truth)
    z = (larger - compared / 2) / np.sqrt(np.maximum(compared, 1) / 4)
    assert np.abs(z).max() < 4.5, z

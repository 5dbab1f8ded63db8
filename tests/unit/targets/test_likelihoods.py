"""Every entry of the registry keeps what a likelihood promises, and so does one that an outsider writes."""

from __future__ import annotations

import inspect
import pkgutil
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from support import MODEL, factor_target, write_planted

from dsgmcmc.data.ratings import open_ratings
from dsgmcmc.kernels.formula import Formula
from dsgmcmc.model import likelihoods
from dsgmcmc.model.likelihoods import LIKELIHOODS, Law, Likelihood
from dsgmcmc.model.likelihoods.gaussian import Gaussian
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.samplers.sgmcmc.sgld import SGLD, SGLDConfig
from dsgmcmc.storage.manifest import Key, _check_key
from dsgmcmc.targets.base import Draw
from dsgmcmc.types import Factor

ROWS, COLUMNS = 29, 17
ETAS = np.linspace(-1.5, 1.5, 7)
DRAWS = 200_000
PAGE = Path(__file__).resolve().parents[3] / "docs" / "own-likelihood.md"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_planted(tmp_path_factory.mktemp("data") / "r.h5", ROWS, COLUMNS)


def target_of(data: Path, name: str, rank: int = 2, biases: bool = True) -> FactorTarget:
    """Factorisation with this law of a rating, at a random state."""
    sampler = SGLD(SGLDConfig(gradient="full"), 0)
    model = replace(MODEL, rank=rank, biases=biases)
    target = factor_target(MPI.COMM_SELF, data, 3, model=model, sampler=sampler, likelihood=LIKELIHOODS[name])
    sampler.start(target, 0.7 / rank**0.25)
    return target


def whole(target: FactorTarget, field: str) -> dict[Factor, np.ndarray]:
    """A field of all rows of both factors, in float64; the columns are at home."""
    blocks = {f: [block[field] for block in target.blocks() if block.factor == f] for f in Factor}
    return {f: np.concatenate(arrays).astype(np.float64) for f, arrays in blocks.items()}


def law_at(target: FactorTarget, eta: np.ndarray, tau: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of a rating at predictors, for the first row and column of a cell."""
    cell, zeros = next(target.visit()).cell, np.zeros(len(eta), np.int32)
    variance = np.asarray(target.likelihood.variance(eta, cell, zeros, zeros, tau), np.float64)
    return np.asarray(target.likelihood.mean(eta), np.float64), np.broadcast_to(variance, eta.shape).copy()


def score_of(likelihood: Likelihood, x: np.ndarray, eta: np.ndarray) -> np.ndarray:
    """Its score, as formulas read it, in float64."""
    arrays = {name: np.array(value, np.float64)[:, None] for name, value in (("x", x), ("eta", eta), ("e", eta))}
    Formula(f"e = {likelihood.score}").apply(arrays)
    return arrays["e"][:, 0]


class Conformance:
    """Run for every likelihood; `name` is its name in the registry."""

    def test_its_fields_have_names_that_can_be_saved(self, name: str) -> None:
        """What belongs to a draw is among them; neither is taken for what a sampler keeps."""
        for heteroscedastic in (False, True):
            likelihood = LIKELIHOODS[name](3, True, heteroscedastic)
            names = likelihood.fields
            assert len(set(names)) == len(names)
            assert set(likelihood.drawn) <= set(names)
            assert not {"theta", "g", "g2", "v", "r", "n", "h"} & set(names)
            assert all(_check_key(Key("state", "W", 0, field)) for field in names)

    def test_the_score_is_the_derivative_of_the_log_density(self, name: str, data: Path) -> None:
        """In the predictor, at noise precision 1, through the mean: what is sampled is what is reported."""
        target = target_of(data, name)
        likelihood, step = target.likelihood, 1e-5
        eta = np.repeat(ETAS, 5)
        x = likelihood.draw(eta, np.sqrt(law_at(target, eta)[1]), np.random.default_rng(0))
        up, down = (likelihood.log_density(x, *law_at(target, eta + sign * step)) for sign in (1, -1))
        np.testing.assert_allclose(score_of(likelihood, x, eta), (up - down) / (2 * step), rtol=1e-6, atol=1e-6)

    @pytest.mark.parametrize(("rank", "biases"), [(3, True), (3, False), (130, True)])
    def test_the_kernel_has_that_score(self, name: str, data: Path, rank: int, biases: bool) -> None:
        """Unrolled and by blocks of columns: the gradient over all ratings, and the sum of squared scores, in NumPy."""
        target = target_of(data, name, rank, biases)
        target.full_gradient("theta", "g")
        theta, found = whole(target, "theta"), whole(target, "g")
        with open_ratings(data) as ratings:
            indptr, j, x = ratings.slab("train", 0, ROWS)
        x = np.ones(len(x)) if target.likelihood.all_cells else x.astype(np.float64) - target.ratings.centre
        i = np.repeat(np.arange(ROWS), np.diff(indptr))
        w, h = theta[Factor.W][i], theta[Factor.H][j]
        eta = (w[:, :rank] * h[:, :rank]).sum(axis=1) + w[:, rank:].sum(axis=1) + h[:, rank:].sum(axis=1)
        e = score_of(target.likelihood, x, eta)
        w[:, rank:] = h[:, rank:] = 1.0
        for factor, index, feature in ((Factor.W, i, h), (Factor.H, j, w)):
            expected = np.zeros_like(found[factor])
            np.add.at(expected, index, -e[:, None] * feature)
            np.testing.assert_allclose(found[factor], expected, rtol=1e-4, atol=1e-4)
        assert target.squared_error.sum() == pytest.approx(e @ e, rel=1e-5)

    def test_draws_have_the_mean_and_the_variance_that_were_said(self, name: str, data: Path) -> None:
        """Within 5 standard errors of 200,000 draws, for several predictors and precisions of the noise."""
        target = target_of(data, name)
        rng = np.random.default_rng(1)
        for tau in (1.0, 4.0):
            for eta in (-1.0, 0.0, 1.2):
                mean, variance = law_at(target, np.array([eta]), tau)
                x = target.likelihood.draw(np.full(DRAWS, eta), np.sqrt(variance[0]), rng)
                assert x.shape == (DRAWS,)
                offset = x - mean[0]
                assert abs(offset.mean()) < 5 * np.sqrt(variance[0] / DRAWS)
                assert abs((offset**2).mean() - variance[0]) < 5 * (offset**2).std() / np.sqrt(DRAWS)

    def test_the_probability_of_a_rating_is_how_often_it_is_drawn(self, name: str, data: Path) -> None:
        """Within 5 standard errors, below, about and above the mean."""
        target = target_of(data, name)
        rng = np.random.default_rng(2)
        for eta in (-0.5, 1.0):
            mean, variance = law_at(target, np.array([eta]), 2.0)
            draws = target.likelihood.draw(np.full(DRAWS, eta), np.sqrt(variance[0]), rng)
            for x in mean[0] + np.sqrt(variance[0]) * np.array([-1.0, -0.2, 0.7, 2.0]):
                p = float(target.likelihood.cdf(np.array([x]), mean, variance)[0])
                error = np.sqrt(max(p * (1 - p), 1 / DRAWS) / DRAWS)
                assert abs((draws <= x).mean() - p) < 5 * error

    def test_quantiles_are_where_the_probability_is_reached(self, name: str, data: Path) -> None:
        """The inverse of the distribution function; of counts, the smallest that reaches it."""
        target = target_of(data, name)
        mean, variance = law_at(target, ETAS, 2.0)
        cdf = target.likelihood.cdf
        for p in (0.025, 0.1, 0.5, 0.9, 0.975):
            x = target.likelihood.quantile(p, mean, variance)
            assert x.shape == mean.shape
            assert (cdf(x, mean, variance) >= p - 1e-9).all()
            assert (cdf(x - 1e-6, mean, variance) < p).all()

    def test_the_log_likelihood_is_the_sum_of_log_densities(self, name: str, data: Path) -> None:
        """With a variance for every rating, and with one for all where one serves all."""
        target = target_of(data, name)
        likelihood, eta = target.likelihood, np.repeat(ETAS, 9).astype(np.float32)
        mean, variance = (value.astype(np.float32) for value in law_at(target, eta, 3.0))
        x = likelihood.draw(eta, np.sqrt(variance), np.random.default_rng(3)).astype(np.float32)
        expected = sum(float(value) for value in likelihood.log_density(x, mean, variance))
        assert likelihood.log_likelihood(x, mean, variance) == pytest.approx(expected, rel=1e-5)
        if not likelihood.noise_varies:
            assert (variance == variance[0]).all()
            assert likelihood.log_likelihood(x, mean, variance[:1]) == pytest.approx(expected, rel=1e-5)

    def test_held_out_ratings_are_predicted_and_scored_by_it(self, name: str, data: Path) -> None:
        """Their predictions are expected ratings, and a draw's log likelihood is the sum of their log densities."""
        target = target_of(data, name)
        (held_out,) = target.recorders()
        held_out.record("theta", Draw(1, 1.0, 1.0))
        found = {key: block() if callable(block) else block for key, block in held_out.posterior(1.0)}
        theta = whole(target, "theta")
        with open_ratings(data) as ratings:
            indptr, j, x = ratings.slab("test", 0, ROWS)
        centre = np.float32(target.ratings.centre)
        w, h = theta[Factor.W][np.repeat(np.arange(ROWS), np.diff(indptr))], theta[Factor.H][j]
        eta = (w[:, :-1] * h[:, :-1]).sum(axis=1) + w[:, -1] + h[:, -1]
        mean, variance = law_at(target, eta, target.noise_precision)
        assert len(eta) > 20
        predicted = np.concatenate([found[Key("test", "W", b, "mean")] for b in target.ring.blocks])
        np.testing.assert_allclose(predicted - centre, mean, rtol=1e-5, atol=1e-5)
        expected = target.likelihood.log_density(x - centre, mean.astype(np.float32), variance.astype(np.float32)).sum()
        scored = sum(found[Key("trace", "W", b, "log_likelihood")][0] for b in target.ring.blocks)
        assert scored == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize("name", [name for name, law in LIKELIHOODS.items() if issubclass(law, Likelihood)])
class TestRegistered(Conformance):
    """Those of the package that mean and variance tell; for those of levels see `test_ordinal`."""


class TestOutsider(Conformance):
    """The one that the documentation writes, with the base class alone: readers can do as it does."""

    @pytest.fixture
    def name(self, monkeypatch: pytest.MonkeyPatch) -> str:
        monkeypatch.setitem(LIKELIHOODS, "exponential", Likelihood)  # taken back at the end; the page has its own
        _, code = PAGE.read_text(encoding="utf-8").split("```python\n", 1)
        exec(code.partition("```")[0], {})
        assert LIKELIHOODS["exponential"] is not Likelihood
        return "exponential"


def test_every_likelihood_of_the_package_is_registered() -> None:
    """A file that nobody can select is dead."""
    found = set()
    for module in pkgutil.walk_packages(likelihoods.__path__, f"{likelihoods.__name__}."):
        content = vars(import_module(module.name)).values()
        found |= {c for c in content if inspect.isclass(c) and issubclass(c, Law) and not inspect.isabstract(c)}
    registered = set(LIKELIHOODS.values())
    assert {law for law in found if not law.__subclasses__()} <= registered <= found


def test_noise_of_its_own_is_in_the_variance(data: Path) -> None:
    """Of every user and item: 1 / (tau g_i g'_j), and with shared noise one number for all."""
    model = replace(MODEL, heteroscedastic=tuple(Factor))
    target = factor_target(MPI.COMM_SELF, data, 3, model=model)
    cell = next(target.visit()).cell
    rng = np.random.default_rng(0)
    for block in (cell.row, cell.column):
        block.row("weight")[:] = rng.gamma(2.0, 0.5, len(block.counts))
    i, j = np.array([0, 2, 2], np.int32), np.array([1, 0, 1], np.int32)
    expected = 1 / (2.5 * cell.row.row("weight")[i] * cell.column.row("weight")[j])
    found = target.likelihood.variance(np.zeros(3, np.float32), cell, i, j, 2.5)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert target.likelihood.noise_varies
    shared = Gaussian(2, True)
    assert shared.variance(np.zeros(3, np.float32), cell, i, j, 2.5) == 0.4
    assert not shared.noise_varies

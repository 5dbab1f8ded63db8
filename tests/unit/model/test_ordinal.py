"""Ratings of levels: thresholds, their gradient over all ratings, and what is recorded of held-out ratings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from scipy.special import expit, ndtr
from support import MODEL, factor_target, write_planted

from dsgmcmc.data.ratings import open_ratings
from dsgmcmc.model.likelihoods import LIKELIHOODS
from dsgmcmc.model.likelihoods.thresholds import (
    GAP_SD,
    MIDDLE_SD,
    ThresholdModel,
    coordinates_of,
    re_anchored,
    values_of,
)
from dsgmcmc.model.predictive.base import nearest_level
from dsgmcmc.model.predictive.levels import LevelDistribution
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.samplers.sgmcmc.sgld import SGLD, SGLDConfig
from dsgmcmc.storage.manifest import Key
from dsgmcmc.targets.base import DrawInfo
from dsgmcmc.types import Factor

CDF = {"ordinal-logit": expit, "ordinal-probit": ndtr}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_planted(tmp_path_factory.mktemp("data") / "r.h5", stars=True)


def target_of(data: Path, name: str, scaled: bool = False) -> FactorTarget:
    sampler = SGLD(SGLDConfig(gradient="full"), 0)
    model = replace(MODEL, noise_precision=1.0, heteroscedastic=tuple(Factor) if scaled else ())
    target = factor_target(MPI.COMM_SELF, data, 3, model=model, sampler=sampler, likelihood=LIKELIHOODS[name])
    sampler.start(target, 0.6)
    return target


def predictors(data: Path, target: FactorTarget, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Predictors and ratings of training or test, in the order of the file."""
    theta = {
        factor: np.concatenate([block["theta"] for block in target.blocks() if block.factor == factor]).astype(float)
        for factor in Factor
    }
    with open_ratings(data) as ratings:
        indptr, j, x = ratings.slab(part, 0, ratings.n_rows)
    w, h = theta[Factor.W][np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))], theta[Factor.H][j]
    return (w[:, :-1] * h[:, :-1]).sum(axis=1) + w[:, -1] + h[:, -1], x


def probabilities(name: str, eta: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Of all levels, (q, R)."""
    up_to = CDF[name](thresholds - eta[:, None])
    return np.diff(np.column_stack([np.zeros(len(eta)), up_to, np.ones(len(eta))]), axis=1)


@pytest.mark.parametrize("size", [1, 2, 4, 5])
def test_coordinates_keep_thresholds_in_order(size: int) -> None:
    """There and back, whatever the middle; any coordinates make an ascending sequence."""
    thresholds = np.sort(np.random.default_rng(size).normal(size=size))
    np.testing.assert_allclose(values_of(coordinates_of(thresholds)), thresholds)
    assert (np.diff(values_of(np.random.default_rng(1).normal(0, 3, size))) > 0).all()


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_thresholds_start_where_the_levels_have_their_shares(link: str) -> None:
    """Without factors the start is the maximum likelihood."""
    counts = np.array([3, 1, 40, 6])
    start = ThresholdModel(link, counts).start().values
    found = probabilities(f"ordinal-{link}", np.zeros(1), start)[0]
    np.testing.assert_allclose(found, counts / counts.sum(), rtol=1e-6)


@pytest.mark.parametrize("name", CDF)
def test_the_gradient_in_the_coordinates_is_that_of_the_energy(name: str, data: Path) -> None:
    """Over all ratings, priors included, by finite differences."""
    target = target_of(data, name)
    law = target.likelihood
    position = law.thresholds.position + np.array([0.3, -0.2, 0.1, 0.4])
    law.thresholds.position = position
    target.full_gradient("theta", "g")
    sums = np.sum([law.sums_of(b) for b in target.ring.blocks], axis=0)
    eta, x = predictors(data, target, "train")
    level = np.searchsorted(law.values, x)
    sds = np.array([GAP_SD, GAP_SD, MIDDLE_SD, GAP_SD])

    def energy(at: np.ndarray) -> float:
        p = probabilities(name, eta, values_of(at))[np.arange(len(eta)), level]
        return float(-np.log(p).sum() + (at**2 / sds**2).sum() / 2)

    expected = [(energy(position + e) - energy(position - e)) / 2e-5 for e in 1e-5 * np.eye(4)]
    np.testing.assert_allclose(
        law.model.gradient(position, law.model.slopes(position, sums)), expected, rtol=1e-4, atol=1e-3
    )


@pytest.mark.parametrize(("counts", "anchor"), [([90, 4, 3, 2, 1], 0), ([2, 9, 9, 9, 2], 1), ([1, 2, 3, 4, 90], 3)])
def test_coordinates_with_another_threshold(counts: list[int], anchor: int) -> None:
    """That nearest the median rating: there and back, and the gradient of the same energy, by finite differences."""
    model, rng = ThresholdModel("logit", np.array(counts)), np.random.default_rng(0)
    assert model.anchor == anchor
    position, weights = model.position + rng.normal(0, 0.3, 4), rng.normal(size=4)
    moved = re_anchored(position, 2, anchor)
    np.testing.assert_allclose(values_of(moved, anchor), values_of(position))
    np.testing.assert_allclose(re_anchored(moved, anchor, 2), position)

    def energy(at: np.ndarray) -> float:
        return float(weights @ re_anchored(at, anchor, 2) ** 2)

    expected = [(energy(moved + e) - energy(moved - e)) / 2e-6 for e in 1e-6 * np.eye(4)]
    np.testing.assert_allclose(model._anchored(position, 2 * weights * position), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("name", CDF)
def test_both_rows_noise_scales_make_what_a_rating_counts(name: str, scaled: bool, data: Path) -> None:
    """The bound on the curvature by row compares sums of the one with sums of the other."""
    target = target_of(data, name, scaled)
    rng, blocks = np.random.default_rng(0), list(target.blocks())
    for block in blocks if scaled else ():
        block.row("weight")[:] = rng.gamma(4.0, 0.25, len(block.counts))
    n, squares = target.likelihood.counts(target.circulation)
    scale = {block: target.likelihood.noise_scale(block).astype(float) for block in blocks}
    total = {power: {block: np.zeros(len(block.counts)) for block in blocks} for power in (1, 2)}
    for cell in target.circulation.tour(()):
        i = np.repeat(np.arange(len(cell.row.counts)), np.diff(cell.ratings.indptr))
        product = scale[cell.row][i] * scale[cell.column][cell.ratings.indices]
        for power, sums in total.items():
            np.add.at(sums[cell.row], i, product**power)
            np.add.at(sums[cell.column], cell.ratings.indices, product**power)
    for block in blocks:
        np.testing.assert_allclose(n[block], total[1][block], rtol=1e-5)
        np.testing.assert_allclose(squares[block], total[2][block], rtol=1e-5)


@pytest.mark.parametrize("name", CDF)
def test_held_out_levels_have_their_probabilities(name: str, data: Path) -> None:
    """Mean and variance are those of the levels, and a draw's log likelihood is the sum of log probabilities."""
    target = target_of(data, name)
    (held_out,) = target.recorders()
    held_out.record("theta", DrawInfo(1, 1.0, 1.0))
    found = {key: block() if callable(block) else block for key, block in held_out.posterior(1.0)}
    recorded = {
        field: np.concatenate([found[Key("test", "W", b, field)] for b in target.ring.blocks])
        for field in ("probability", "mean", "noise_variance", "rating")
    }
    eta, x = predictors(data, target, "test")
    p = probabilities(name, eta, target.likelihood.thresholds.values)
    values = target.likelihood.values
    np.testing.assert_allclose(recorded["probability"], p, atol=1e-5)
    np.testing.assert_allclose(recorded["mean"], p @ values, rtol=1e-5)
    np.testing.assert_allclose(recorded["noise_variance"], p @ values**2 - (p @ values) ** 2, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(recorded["rating"], x)
    scored = sum(found[Key("trace", "W", b, "log_likelihood")][0] for b in target.ring.blocks)
    assert scored == pytest.approx(np.log(p[np.arange(len(x)), nearest_level(x, values)]).sum(), rel=1e-4)


def test_ratings_between_and_beyond_levels_are_of_the_nearest() -> None:
    """Test ratings need not occur in training."""
    values = np.array([1.0, 2.0, 4.0])
    assert nearest_level(np.array([0.5, 1.4, 1.6, 2.9, 3.1, 9.0]), values).tolist() == [0, 0, 1, 1, 2, 2]


def test_quantiles_of_levels() -> None:
    """The smallest level that reaches the probability."""
    found = LevelDistribution(np.array([[0.2, 0.3, 0.5]]), np.array([1.0, 2.0, 4.0]))
    assert [found.quantile(level)[0] for level in (0.1, 0.2, 0.21, 0.5, 0.51, 0.99)] == [1, 1, 2, 2, 4, 4]

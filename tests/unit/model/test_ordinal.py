"""Ratings of levels: thresholds of all and of every user, and their gradients over all ratings."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from scipy.special import expit
from support import MODEL, cells_of, factor_target, predictors, rows_of, write_planted

from dsgmcmc.model.likelihoods.ordinal.ordinal import Ordinal
from dsgmcmc.model.likelihoods.ordinal.row_thresholds import CUTS, GAPS, MAX_DEVIATION, slopes_of
from dsgmcmc.model.likelihoods.ordinal.thresholds import ThresholdModel, re_anchored, values_of
from dsgmcmc.model.predictive.base import PredictorDraws
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.samplers.sgld import SGLD, SGLDConfig
from dsgmcmc.types import Factor


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_planted(tmp_path_factory.mktemp("data") / "r.h5", stars=True)


def target_of(data: Path, scaled: bool = False, owner: Factor | None = None) -> FactorTarget:
    """A target away from its start: random factors, scales, thresholds and gaps."""
    sampler = SGLD(SGLDConfig(gradient="full"), 0)
    model = replace(
        MODEL, rank=3, noise_precision=1.0, heteroscedastic=tuple(Factor) if scaled else ()
    )
    target = factor_target(
        MPI.COMM_SELF, data, 3, model=model, sampler=sampler, likelihood=Ordinal, cut_by=owner
    )
    sampler.start(target, 0.6)
    rng = np.random.default_rng(2)
    law = target.likelihood
    law.thresholds.position = law.thresholds.position + np.array([0.3, -0.2, 0.1, 0.4])
    for block in target.blocks():
        if scaled:
            block.row("weight")[:] = np.exp(rng.normal(0, 0.3, len(block.counts)))
        if block.factor == owner:
            block[GAPS][:] = rng.normal(0, 0.3, block[GAPS].shape)
        law.refresh_derived_fields(block)
    return target


def probabilities(eta: np.ndarray, cuts: np.ndarray, scale: float | np.ndarray = 1.0) -> np.ndarray:
    """Probabilities of all levels, (q, R)."""
    up_to = expit(np.reshape(scale, (-1, 1)) * (cuts - eta[:, None]))
    return np.diff(np.column_stack([np.zeros(len(eta)), up_to, np.ones(len(eta))]), axis=1)


def test_coordinates_start_at_the_levels_shares() -> None:
    """Without factors the start is the maximum likelihood."""
    counts = np.array([3, 1, 40, 6])
    shares = probabilities(np.zeros(1), ThresholdModel(counts).start().values)[0]
    np.testing.assert_allclose(shares, counts / counts.sum(), rtol=1e-6)


@pytest.mark.parametrize(("counts", "anchor"), [([90, 4, 3, 2, 1], 0), ([1, 2, 3, 4, 90], 3)])
def test_coordinates_with_another_threshold(counts: list[int], anchor: int) -> None:
    """That nearest the median rating: there and back, and the gradient of the same energy, by
    finite differences.
    """
    model = ThresholdModel(np.array(counts))
    rng = np.random.default_rng(0)
    assert model.anchor == anchor
    position = model.position + rng.normal(0, 0.3, 4)
    weights = rng.normal(size=4)
    moved = re_anchored(position, 2, anchor)
    np.testing.assert_allclose(values_of(moved, anchor), values_of(position))
    np.testing.assert_allclose(re_anchored(moved, anchor, 2), position)

    def energy(at: np.ndarray) -> float:
        return float(weights @ re_anchored(at, anchor, 2) ** 2)

    expected = [(energy(moved + e) - energy(moved - e)) / 2e-6 for e in 1e-6 * np.eye(4)]
    np.testing.assert_allclose(
        model.with_anchor(position, 2 * weights * position), expected, rtol=1e-6, atol=1e-8
    )


@pytest.mark.parametrize(
    ("owner", "scaled"), [(Factor.W, False), (Factor.W, True), (Factor.H, True)]
)
def test_slopes_of_rows_are_those_of_the_log_likelihood(
    owner: Factor, scaled: bool, data: Path
) -> None:
    """In the log gaps of single rows, and in the coordinates that all have in common, by finite
    differences.
    """
    target = target_of(data, scaled, owner)
    target.full_gradient("theta", "g")
    position = target.likelihood.thresholds.position
    gaps = MAX_DEVIATION * np.tanh(rows_of(target, owner, GAPS) / MAX_DEVIATION)
    i, j, x = cells_of(data)
    eta = predictors(target, i, j)
    s = np.ones(len(i))
    if scaled:
        row_scale = rows_of(target, Factor.W, "weight")[i, 0]
        column_scale = rows_of(target, Factor.H, "weight")[j, 0]
        s = row_scale * column_scale
    level = np.searchsorted(target.likelihood.values, x)
    cut_row = (i, j)[owner]

    def log_likelihoods(phi: np.ndarray, d: np.ndarray) -> np.ndarray:
        cuts = values_of(phi + np.insert(d, 2, 0.0, axis=1))
        p = probabilities(eta, cuts[cut_row], s)
        return np.log(p[np.arange(len(p)), level])

    slopes = np.concatenate(
        [slopes_of(block).own for block in target.blocks() if block.factor == owner]
    )
    for gap, coordinate in enumerate((0, 1, 3)):
        e = 1e-5 * np.eye(3)[gap]
        change = (log_likelihoods(position, gaps + e) - log_likelihoods(position, gaps - e)) / 2e-5
        expected = np.bincount(cut_row, change, len(gaps))
        np.testing.assert_allclose(slopes[:, coordinate], expected, rtol=1e-3, atol=1e-3)
    for coordinate, e in enumerate(1e-5 * np.eye(4)):
        change = (log_likelihoods(position + e, gaps) - log_likelihoods(position - e, gaps)) / 2e-5
        assert slopes[:, coordinate].sum() == pytest.approx(change.sum(), rel=1e-3, abs=1e-2)
    assert not rows_of(target, Factor(1 - owner), CUTS).any()


def test_both_rows_noise_scales_make_what_a_rating_counts(data: Path) -> None:
    """The bound on the curvature by row compares sums of the one with sums of the other."""
    target = target_of(data, scaled=True)
    blocks = list(target.blocks())
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


def test_steps_are_the_predictive_distribution() -> None:
    """Sums of logistic steps at the thresholds are the expected level, and the probability of at
    least a level; bounds outside the levels have no steps.
    """
    levels = np.array([1.0, 2.0, 4.0])
    cuts = np.array([-0.5, 1.2])
    eta = np.linspace(-3, 3, 7)
    draws = PredictorDraws(
        eta=eta[:, None].astype(np.float32),
        noise=np.full((7, 1), 0.5, np.float32),
        spread=np.zeros((7, 1), np.float32),
        weights=np.ones(1),
        parameters=cuts[np.newaxis, np.newaxis],
    )
    predictive = Ordinal.predictive(draws, levels=levels)
    for steps, expected in (
        (Ordinal.expected_steps(levels), predictive.mean),
        (Ordinal.steps_at_least(2.0, levels), predictive.at_least(2.0)),
        (Ordinal.steps_at_least(3.0, levels), predictive.at_least(3.0)),
    ):
        assert steps is not None
        away = 2 * (eta[:, None] - steps.positions(cuts))
        np.testing.assert_allclose(steps.start + expit(away) @ steps.heights, expected, atol=1e-6)
    for bound in (1.0, 5.0):
        steps = Ordinal.steps_at_least(bound, levels)
        assert steps is not None
        assert not len(steps.heights)


def test_other_predictions_have_no_steps() -> None:
    """A class with an expectation, or predictions, of its own is not taken to have the steps of
    this one.
    """

    class Other(Ordinal):
        @classmethod
        def predictive(cls, draws, centre=0.0, levels=None):
            return super().predictive(draws, centre, levels)

    levels = np.array([1.0, 2.0])
    assert Other.steps_at_least(2.0, levels) is None
    assert Other.expected_steps(levels) is not None

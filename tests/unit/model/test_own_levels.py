"""Items that lack levels: their probabilities, the gradients, and the initial thresholds."""

from pathlib import Path

import numpy as np
import pytest
from measurements import write_answers
from mpi4py import MPI
from scipy.special import expit
from support import cells_of, predictors, rows_of

from dsgmcmc.model.likelihoods.ordinal.ordinal import Ordinal
from dsgmcmc.model.likelihoods.ordinal.own_levels import OwnLevels
from dsgmcmc.model.likelihoods.ordinal.row_thresholds import CUTS, GAPS, MAX_DEVIATION, slopes_of
from dsgmcmc.model.likelihoods.ordinal.thresholds import ThresholdModel, values_of
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.item_levels import levels_of_items, observed_levels
from dsgmcmc.runs.source import RatingsSource, targets_of
from dsgmcmc.types import Factor

SETTINGS = {"rank": 3, "grid": 3, "likelihood": "ordinal-logit", "thresholds": "item"}


def probabilities(eta: np.ndarray, cuts: np.ndarray, has: np.ndarray) -> np.ndarray:
    """Probabilities of all levels of ratings, (q, R): those of levels that the item lacks go to the
    next one that it has, or to its highest one.
    """
    end = np.ones((len(eta), 1))
    of_all = np.diff(np.hstack([0 * end, expit(cuts - eta[:, None]), end]), axis=1)
    result = np.zeros_like(of_all)
    for r, levels in enumerate(map(np.flatnonzero, has)):
        for level, probability in enumerate(of_all[r]):
            above = levels[levels >= level]
            result[r, above[0] if len(above) else levels[-1]] += probability
    return result


@pytest.mark.parametrize("transposed", [False, True])
def test_slopes_are_those_of_the_log_likelihood(tmp_path: Path, transposed: bool) -> None:
    """In the log gaps of single items, and in the coordinates that all have in common, by finite
    differences, with probabilities that are written down level by level.
    """
    data = write_answers(tmp_path / "r.h5", transposed)
    items = Factor.W if transposed else Factor.H
    rng = np.random.default_rng(2)
    with Ratings(data) as ratings:
        config = RatingsSource(data).resolve(1, {}, SETTINGS)
        sampler = config.make_sampler()
        target = targets_of(config, ratings, Ring(MPI.COMM_SELF, config.grid))(0, sampler)
    sampler.start(target, 0.6)
    law = target.likelihood
    assert isinstance(law, Ordinal)
    law.thresholds.position = law.thresholds.position + np.array([0.3, -0.2, 0.1])
    for block in target.blocks():
        if block.factor == items:
            block[GAPS][:] = rng.normal(0, 0.3, block[GAPS].shape)
        law.refresh_derived_fields(block)
    target.full_gradient("theta", "g")
    i, j, x = cells_of(data)
    eta = predictors(target, i, j)
    item = i if transposed else j
    level = x.astype(int)
    has = np.ones((48, 4), bool)
    has[::2, 2:] = False  # as they were made
    position = law.thresholds.position
    gaps = MAX_DEVIATION * np.tanh(rows_of(target, items, GAPS) / MAX_DEVIATION)

    def log_likelihoods(phi: np.ndarray, d: np.ndarray) -> np.ndarray:
        cuts = values_of(phi + np.insert(d, 1, 0.0, axis=1))
        cuts[::2] += (values_of(phi) - cuts[::2])[:, :1]  # they lack the middle threshold
        p = probabilities(eta, cuts[item], has[item])
        return np.log(p[np.arange(len(p)), level])

    of_blocks = [
        slopes_of(block, position, law._own_levels)
        for block in sorted(target.blocks(), key=lambda block: block.start)
        if block.factor == items
    ]
    for gap, coordinate in enumerate((0, 2)):
        e = 1e-5 * np.eye(2)[gap]
        change = (log_likelihoods(position, gaps + e) - log_likelihoods(position, gaps - e)) / 2e-5
        found = np.concatenate([block.own[:, coordinate] for block in of_blocks])
        np.testing.assert_allclose(found, np.bincount(item, change, 48), rtol=1e-3, atol=2e-3)
    for coordinate, e in enumerate(1e-5 * np.eye(3)):
        change = (log_likelihoods(position + e, gaps) - log_likelihoods(position - e, gaps)) / 2e-5
        found = sum(block.shared[:, coordinate].sum() for block in of_blocks)
        assert found == pytest.approx(change.sum(), rel=1e-3, abs=1e-2)
    cuts = rows_of(target, items, CUTS)
    assert (cuts[::2, 1:] > 1e29).all()
    assert (np.diff(cuts[1::2], axis=1) > 0).all()
    assert (cuts[1::2] < 100).all()


def test_levels_that_items_lack() -> None:
    """Ends of the scale, and levels between two, if many ratings were expected there; fewer
    suffice where several items lack the same levels. Rare levels are no matter of chance.
    """
    counts = np.array(
        [
            [40, 50, 30, 20],
            [30, 60, 50, 10],
            [60, 80, 0, 0],
            [50, 70, 0, 0],
            [12, 7, 0, 0],  # four expected at level 2, and two items have the same levels
            [95, 5, 0, 0],
            [0, 0, 70, 60],
            [60, 0, 50, 40],
            [60, 30, 5, 0],
            [1, 0, 1, 0],
            [0, 9, 0, 0],
        ]
    )
    lacking = {2: [2, 3], 3: [2, 3], 4: [2, 3], 6: [0, 1], 7: [1]}
    for item, has in enumerate(levels_of_items(counts)):
        assert np.flatnonzero(~has).tolist() == lacking.get(item, []), item


def test_an_item_has_the_levels_that_were_observed() -> None:
    """The last level of the first one is so rare that those above it may be missing by chance, as
    they do not. Few answers, or answers of one level, do not tell.
    """
    counts = np.zeros((5, 7), int)
    counts[0, :4] = [818, 158, 380, 33]
    counts[1, 1:] = [40, 30, 20, 10, 3, 1]
    counts[2, [0, 2]] = [30, 1]
    counts[3, 2] = 40
    counts[4, [1, 3]] = [5, 6]
    has = observed_levels(counts)
    np.testing.assert_array_equal(has[:3], counts[:3] > 0)
    np.testing.assert_array_equal(has[3:], levels_of_items(counts)[3:])
    assert levels_of_items(counts)[0].all()


def test_initial_thresholds_fit_levels_of_several() -> None:
    """Shares of levels of which 30,000 ratings tell only sums, within 0.02 of those they were drawn
    with; with all levels they are the shares of the ratings, and so is the metric.
    """
    rng = np.random.default_rng(0)
    shares = np.array([0.2, 0.4, 0.3, 0.1])
    has = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 1, 1]], bool)
    counts = rng.multinomial(10_000, shares, 3)
    counts[1] = [counts[1, 0], counts[1, 1:].sum(), 0, 0]
    counts[2] = [counts[2, 0], 0, counts[2, 1:3].sum(), counts[2, 3]]
    model = ThresholdModel(counts.sum(axis=0), OwnLevels(has).spans(counts))
    found = np.diff(expit(values_of(model.position)), prepend=0.0, append=1.0)
    np.testing.assert_allclose(found, shares, atol=0.02)

    whole = OwnLevels(np.ones((3, 4), bool)).spans(counts)
    one = ThresholdModel(counts.sum(axis=0))
    other = ThresholdModel(counts.sum(axis=0), whole)
    np.testing.assert_allclose(other.position, one.position)
    np.testing.assert_allclose(other._root, one._root)
    assert other.information == pytest.approx(one.information)

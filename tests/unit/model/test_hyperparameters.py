"""Priors and noise: units, interleaved sub-chains, and draws that have the bits of SciPy's."""

from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from scipy import stats
from support import Model, factor_target

from dsgmcmc.model.conjugate import draw_wishart
from dsgmcmc.samplers.hamcmc import HAMCMC, HAMCMCConfig


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


def test_every_subchain_has_a_set_of_its_own(data: Path) -> None:
    """Interleaved sub-chains are conditioned each on its own state, with one tau's worth of errors
    each.
    """
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
    assert target.noise.parameters.tau.shape == (2,)
    for mean in target.row_priors.parameters.mean.values():
        assert (np.abs(mean[0] - 0.1) < 1).all()
        assert (np.abs(mean[1] - 10) < 2).all()
    sets = []
    for subchain in (0, 1):
        target.subchain = subchain
        sets.append((target.noise_precision, target.parameters()["W.mean"].tolist()))
    assert sets[0] != sets[1], "what is seen is that of the current sub-chain"


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

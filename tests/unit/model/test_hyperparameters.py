"""Priors and noise: units, several states, and draws that have the bits of SciPy's."""

from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from scipy import stats
from support import Model, factor_target

from dsgmcmc.model.conjugate import draw_wishart
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

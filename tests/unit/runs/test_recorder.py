"""Which draws a chain keeps; its moments, traces and predictions of held-out ratings, against all
of its draws.
"""

from typing import Any

import numpy as np
import pytest
from runs import make_run
from support import metrics

from dsgmcmc.diagnostics.scores import rmse
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.settings import PredictOptions
from dsgmcmc.posterior.traces import predictions
from dsgmcmc.runs.recorder import DrawNumbers

# ---------------------------------------------------------------------- thinning of saved draws


@pytest.mark.parametrize("keep", [1, 2, 5])
def test_between_keep_and_twice_keep_draws_stand_for_the_chain(keep: int) -> None:
    """The kept draws are evenly spaced from the first on, and all of them up to `keep` draws."""
    numbers = DrawNumbers(keep)
    for number in range(1, 400):
        saved = numbers.offer(number)
        assert saved == (numbers.kept[-1:] == [number])
        if number <= keep:
            assert numbers.kept == list(range(1, number + 1))
        assert min(number, keep) <= len(numbers.kept) <= 2 * keep - 1
        assert numbers.kept == list(range(1, number + 1, numbers.spacing))[: len(numbers.kept)]
        assert number - numbers.kept[-1] < 2 * numbers.spacing, (
            "the end of the chain is covered too"
        )


# ---------------------------------------------------------------------- moments

CASES: dict[str, dict[str, Any]] = {
    "chains": {"noise": "both", "chains": 2},
    "weights": {
        "sampler": {"name": "psgld", "decay_power": 0.33},
        "schedule": "random",
        "prior": "normal-wishart",
    },
    "no biases": {"biases": False, "sampler": {"name": "psgld"}},
    "levels": {"likelihood": "ordinal-logit", "thresholds": "user", "noise": "both"},
    "counts": {"likelihood": "negative-binomial"},
    "tails": {"likelihood": "student-t", "noise": "by-user"},
}


@pytest.fixture(scope="module", params=CASES)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that has saved all of its draws; their weights differ where the step decays."""
    run = make_run(tmp_path_factory.mktemp("run"), stars=True, **CASES[request.param]).open()
    assert len(run.draws) == 40 * len(run.chains)
    assert (np.ptp(run.draw_weights) > 0) == (request.param == "weights")
    return run


def weighted(values: list[np.ndarray], weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean and variance."""
    mean = np.average(values, axis=0, weights=weights)
    return mean, np.average((np.array(values) - mean) ** 2, axis=0, weights=weights)


def test_moments_and_traces_are_those_of_the_draws(run: Run) -> None:
    """All quantities of rows have the weighted mean and variance of a chain's draws, and traces
    have its parameters.
    """
    for chain, state in enumerate(run.states):
        numbers = [number for number, (drawn, _) in enumerate(run.draws) if drawn == chain]
        draws = [run.draw(number) for number in numbers]
        weights = run.draw_weights[numbers]
        for entity, factor in run.index.factors.items():
            for name in draws[0].rows[entity]:
                prefix = "" if name == "theta" else f"{name}_"
                mean, variance = weighted([draw.rows[entity][name] for draw in draws], weights)
                found = (
                    state.read_field("moments", factor, f"{prefix}{moment}")
                    for moment in ("mean", "variance")
                )
                np.testing.assert_allclose(next(found), mean, rtol=1e-5, atol=2e-6)
                np.testing.assert_allclose(next(found), variance, rtol=1e-4, atol=5e-6)
        for name in run.traces[chain].keys() - {"iteration", "weight"}:
            drawn = np.array([np.atleast_1d(draw.shared[name]) for draw in draws])
            diagonals = np.diagonal(drawn, axis1=1, axis2=2) if drawn.ndim == 3 else drawn
            np.testing.assert_array_equal(run.traces[chain][name], diagonals)


def test_held_out_ratings_have_the_predictions_and_scores_of_the_draws(run: Run) -> None:
    """The mean and variance of predictors, the noise, probabilities of levels, log likelihoods and
    errors.
    """
    pairs = run.test_pairs()
    test = predict_test(run)
    weights = run.draw_weights
    predictor = Predictor(run, PredictOptions())
    draws = [next(predictor.distributions(*pairs, [number]))[1] for number in range(len(run.draws))]
    mean, variance = weighted([draw.mean for draw in draws], weights)
    np.testing.assert_allclose(test.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(test.variance, variance, rtol=1e-4, atol=5e-6)
    noise, _ = weighted([draw.sd**2 for draw in draws], weights)
    np.testing.assert_allclose(test.noise_variance, noise, rtol=1e-5)
    if test.probability is not None:
        probability, _ = weighted([draw.probabilities() for draw in draws], weights)
        np.testing.assert_allclose(test.probability, probability, atol=1e-5)
    monitored, values = predictions(run)
    np.testing.assert_allclose(
        np.concatenate(values), [draw.mean[monitored] for draw in draws], atol=2e-5
    )
    scores = [draw.log_density(test.rating).sum() for draw in draws]
    np.testing.assert_allclose(np.concatenate(run.monitored()[2]), scores, rtol=1e-4)
    last = metrics(run.path)[-1]
    of_last = run.limits.clip(draws[-1].mean)
    assert last["rmse"] == pytest.approx(rmse(test.rating, of_last), rel=1e-5)
    if len(run.chains) == 1:
        of_mean = run.limits.clip(test.mean)
        assert last["rmse_mean"] == pytest.approx(rmse(test.rating, of_mean), rel=1e-5)

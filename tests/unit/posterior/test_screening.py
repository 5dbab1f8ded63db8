"""Recommended items under every likelihood, against scores of all items in plain NumPy, float64."""

from typing import Any

import numpy as np
import pytest
from runs import law_of_counts, make_run
from scipy.special import expit
from scipy.stats import norm
from scipy.stats import t as student

from dsgmcmc.posterior.draws import Draw
from dsgmcmc.posterior.lists import screen
from dsgmcmc.posterior.lists.exposure_of_run import exposure_of
from dsgmcmc.posterior.lists.ranking import Ranking, Scorer, recommend
from dsgmcmc.posterior.rated import read_rated
from dsgmcmc.posterior.run import Run

CASES: dict[str, dict[str, Any]] = {
    "gaussian": {},
    "gaussian, noise of rows": {"noise": "both"},
    "student-t": {"likelihood": "student-t"},
    "student-t, noise of rows": {"likelihood": "student-t", "noise": "both"},
    "ordinal": {"likelihood": "ordinal-logit"},
    "ordinal, auto": {"likelihood": "ordinal-logit", "noise": "by-item", "thresholds": "user"},
    "counts": {"likelihood": "negative-binomial"},
    "clicks": {"likelihood": "all-cells"},
    "log": {"scale": "log"},
    "log1p": {"scale": "log1p"},
    "biases only": {"rank": 0},
    "no biases": {"biases": False, "sampler": {"name": "psgld"}},
}
RULES = {
    "mean": Ranking(top=5, by="mean"),
    "ucb": Ranking(top=5, by="ucb", z=1.5),
    "lcb": Ranking(top=5, by="lcb", z=1.0),
    "at least 4": Ranking(top=5, by="mean", at_least=4.0),
    "likely": Ranking(top=5),
    "likely, at least 5": Ranking(top=5, at_least=5.0),
}
#: Two items with the same rows, whose scores are equal.
TWINS = (4, 9)


@pytest.fixture(scope="module", params=CASES)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on stars, in which two items have the same rows at all draws."""
    folder = tmp_path_factory.mktemp("run")
    run = make_run(folder, users=30, items=24, stars=True, **CASES[request.param]).open()
    first, second = TWINS
    for position in range(len(run.draws)):
        for array in run.draw(position).rows["item"].values():
            array[second] = array[first]
    for batch in run.batches(range(len(run.draws))):
        scales = batch.inverse_scale["item"]
        scales[:, second] = scales[:, first]
    exposure_of(run).shares[second] = exposure_of(run).shares[first]
    weights = exposure_of(run).weights
    weights[:, second] = weights[:, first]
    return run


def predictors(run: Run, draw: Draw) -> Any:
    """Predictors of all pairs at a draw, less the training mean, (users, items)."""
    k = run.config.rank
    user = draw.theta["user"].astype(float)
    item = draw.theta["item"].astype(float)
    eta = user[:, :k] @ item[:, :k].T
    if run.config.biases:
        eta += user[:, k:] + item[:, k]
    return eta


def probability(run: Run, draw: Draw, bound: float) -> Any:
    """Probability of a rating of at least `bound` at a draw, (users, items)."""
    eta = predictors(run, draw)
    scale = np.outer(draw.noise_scale["user"], draw.noise_scale["item"]).astype(float)
    lowest = bound - 0.5  # of the values that are rounded to the bound
    if run.config.scale == "log":
        lowest = np.log(lowest)
    if run.config.scale == "log1p":
        lowest = np.log(lowest + 1)
    away = (eta + run.mean - lowest) * np.sqrt(draw.tau * scale)
    if run.config.likelihood == "negative-binomial":
        law = law_of_counts(draw, eta)
        return law.sf(bound - 1) / law.sf(0)
    if run.config.likelihood == "student-t":
        return student.cdf(away, draw.shared["nu"][0])
    if "thresholds" in draw.shared:
        cuts = np.tile(draw.shared["thresholds"], (len(eta), 1))
        if "cuts" in draw.rows["user"]:
            cuts = draw.rows["user"]["cuts"].astype(float)
        return expit(scale * (eta - cuts[:, int(bound) - 2, None]))
    return norm.cdf(away)


def expected_rating(run: Run, draw: Draw) -> Any:
    """Expected rating at a draw, (users, items); on a log scale, its predictor."""
    if run.config.likelihood == "negative-binomial":
        law = law_of_counts(draw, predictors(run, draw))
        return law.mean() / law.sf(0)
    if "thresholds" in draw.shared:
        return 1 + sum(probability(run, draw, level) for level in (2.0, 3.0, 4.0, 5.0))
    return predictors(run, draw) + run.mean


def plain_scores(run: Run, scorer: Scorer) -> Any:
    """Scores of all pairs without the exposure, (users, items) float64."""
    draws = [run.draw(position) for position in range(len(run.draws))]
    weights = run.draw_weights
    if scorer.at_least is not None:
        chances = np.array([probability(run, draw, scorer.at_least) for draw in draws])
        return np.log(np.tensordot(weights, chances, 1))
    values = np.array([expected_rating(run, draw) for draw in draws])
    mean = np.tensordot(weights, values, 1)
    variance = np.tensordot(weights, (values - mean) ** 2, 1)
    if run.config.scale != "identity":
        shift = 1.0 if run.config.scale == "log1p" else 0.0
        mean = np.exp(mean + variance / 2)
        variance = np.expm1(variance) * mean**2
        mean = np.maximum(mean - shift, 0.0)
    if scorer.ranking.by == "likely":
        return np.log(np.maximum(mean, 1e-3))
    return mean + scorer.sds * np.sqrt(variance)


def has_rule(run: Run, ranking: Ranking) -> bool:
    return run.config.law.can_be_evaluated or ranking.at_least is None


@pytest.mark.parametrize("rule", RULES)
def test_bounds_contain_the_scores(run: Run, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds of all pairs are close to their scores, also of a user alone; tiles do not show."""
    if not has_rule(run, RULES[rule]):
        pytest.skip("clicks have no probabilities")
    monkeypatch.setattr(screen, "USERS", 7)
    monkeypatch.setattr(screen, "ITEMS", 11)
    scorer = Scorer(run, RULES[rule], None)
    if scorer.screen is None:
        assert run.config.likelihood == "student-t"
        assert run.config.noise == "both"
        pytest.skip("all items are scored")
    expected = plain_scores(run, scorer)
    everyone = np.arange(len(run.users), dtype=np.int32)
    for users in (everyone, everyone[3:4]):
        low, high = scorer.bounds(users)
        assert (low <= expected[users] + 1e-7).all()
        assert (high >= expected[users] - 1e-7).all()
        likely = expected[users] > np.log(1e-3)
        assert (high - low)[likely].max() < 5e-3


#: Rules, and the share of the items up to which the exposure alone bounds the scores.
BOUNDED = [(rule, 1.0) for rule in RULES] + [(rule, 0.0) for rule in RULES if "likely" in rule]


@pytest.mark.parametrize(("rule", "share"), BOUNDED)
def test_lists_are_those_of_plain_scores(
    run: Run, rule: str, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The items of every user are the best by plain scores, also alone; equal ones in row order."""
    ranking = RULES[rule]
    if not has_rule(run, ranking):
        pytest.skip("clicks have no probabilities")
    monkeypatch.setattr("dsgmcmc.posterior.lists.ranking._SHARE", share)
    scorer = Scorer(run, ranking, None)
    expected = plain_scores(run, scorer)
    rated = read_rated(run)
    everyone = np.arange(len(run.users), dtype=np.int32)
    if ranking.by == "likely":
        exposure = exposure_of(run)
        histories = [rated.items_of(user, exposure.liked) for user in everyone.tolist()]
        expected += np.log(exposure.scores(histories))
    ((users, items, scores),) = recommend(run, everyone, ranking, rated)
    for user in everyone.tolist():
        of_user = expected[user].copy()
        of_user[rated.items_of(user)] = -np.inf
        listed = items[users == user]
        printed = scores[users == user]
        best = np.argsort(-of_user, kind="stable")[: ranking.top]
        want = of_user[best]
        if ranking.by == "likely" or ranking.at_least is not None:
            want = np.exp(want)
        np.testing.assert_allclose(printed, want, rtol=2e-5, atol=2e-5)
        clear = np.abs(np.subtract.outer(of_user[best], of_user)) > 1e-4
        clear = np.count_nonzero(~clear, axis=1) == 1
        assert listed[clear].tolist() == best[clear].tolist()
        ((_, alone, same),) = recommend(run, np.array([user], np.int32), ranking, rated)
        assert alone.tolist() == listed.tolist()
        np.testing.assert_array_equal(same, printed)


def test_equal_scores_are_in_order_of_rows(run: Run) -> None:
    """Items with the same rows stand side by side in every list."""
    everyone = np.arange(len(run.users), dtype=np.int32)
    found = 0
    for users in (everyone, *np.split(everyone, len(everyone))):
        ((owners, items, _),) = recommend(
            run, users, Ranking(top=len(run.items), by="mean", include_rated=True)
        )
        for user in users.tolist():
            listed = items[owners == user].tolist()
            if TWINS[0] in listed[:-1]:
                found += 1
                assert listed[listed.index(TWINS[0]) + 1] == TWINS[1]
    assert found


def test_few_items_are_scored_one_by_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds leave only a few items beyond the list of a user."""
    if run.config.likelihood == "student-t":
        return
    scored = []
    of_pairs = Scorer.scores_of_pairs

    def counted(self: Scorer, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        scored.append(len(users))
        return of_pairs(self, users, items)

    monkeypatch.setattr(Scorer, "scores_of_pairs", counted)
    everyone = np.arange(len(run.users), dtype=np.int32)
    next(recommend(run, everyone, Ranking(top=5, by="mean", include_rated=True)))
    assert sum(scored) <= 6.5 * len(everyone)

"""Drawn rows: chosen proposals against slices, and the expansion behind the proposals."""

from typing import Any

import numpy as np
import pytest
from runs import make_run

from dsgmcmc.posterior.index import Vocabulary
from dsgmcmc.posterior.rows import drawn_rows
from dsgmcmc.posterior.rows.added import FoldIn, RatingsOfRows
from dsgmcmc.posterior.rows.drawn_rows import RatedRows, draw_rows, laplace

REPEATS = 3000
CASES: dict[str, dict[str, Any]] = {
    "levels with thresholds of users": {"likelihood": "ordinal-logit", "thresholds": "user"},
    "levels with noise of users": {"likelihood": "ordinal-logit", "noise": "both"},
    "counts": {"likelihood": "negative-binomial"},
    "tails with scales": {"likelihood": "student-t", "noise": "both"},
}


@pytest.fixture(scope="module", params=CASES, ids=str)
def rated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RatedRows:
    """A new user with 16 ratings at one draw, many times."""
    run = make_run(
        tmp_path_factory.mktemp("run"), stars=True, iterations=400, **CASES[request.param]
    ).open()
    rng = np.random.default_rng(3)
    ratings = RatingsOfRows(
        rows=np.zeros(16, np.int64),
        others=rng.permutation(len(run.items))[:16].astype(np.int32),
        values=rng.integers(1, 6, 16).astype(np.float64),
        weights=np.ones(16),
    )
    folded = FoldIn(run, Vocabulary("user", np.array([-1])), ratings)
    row = folded._rated_row(0, 0)
    prior = run.config.law.own_prior(run.draw(0), "user")
    return RatedRows(run.config.law, [row] * REPEATS, [prior] * REPEATS)


def drawn(rated: RatedRows) -> np.ndarray:
    """Predictors of the ratings, log scales and parameters of the drawn rows, (rows, columns)."""
    theta, own = draw_rows(rated, np.random.default_rng(1))
    columns = [rated.predictors(theta), np.log(own.scale)[:, np.newaxis]]
    if own.parameters is not None:
        columns.append(own.parameters)
    return np.column_stack(columns)


def test_chosen_proposals_have_the_law_of_slices(
    rated: RatedRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Means and sds of 3,000 rows agree to 4.5 standard errors of both: .12 and .08 of an sd."""
    proposed = drawn(rated)
    monkeypatch.setattr(drawn_rows, "LEAST_EFFECTIVE", np.inf)
    sliced = drawn(rated)
    sd = np.maximum(sliced.std(axis=0), 1e-9)
    assert (np.abs(proposed.mean(axis=0) - sliced.mean(axis=0)) < 0.12 * sd).all()
    varies = sliced.std(axis=0) > 1e-6
    ratio = proposed.std(axis=0)[varies] / sliced.std(axis=0)[varies]
    assert (np.abs(ratio - 1) < 0.08).all()


def test_the_same_seed_draws_the_same_rows(rated: RatedRows) -> None:
    """Two calls are equal to the bit."""
    np.testing.assert_array_equal(drawn(rated), drawn(rated))


def test_a_likelihoods_own_expansion_is_that_by_differences(rated: RatedRows) -> None:
    """All are equal but curvatures in coordinates, which lack those of thresholds and scales."""
    rng = np.random.default_rng(0)
    z = rng.normal(0, 0.3, (REPEATS, rated.width))
    eta = rng.normal(0, 1, (REPEATS, len(rated.x)))
    found = rated._expansion(eta, z)._asdict()
    expected = rated._differences(eta, z)._asdict()
    del found["own_curvature"]
    if (rated.own(z).scale != 1).any():
        del found["crossed"]
    for name, value in found.items():
        np.testing.assert_allclose(value, expected[name], atol=1e-5, err_msg=name)


def test_the_mode_is_found_from_some_of_many_ratings(
    rated: RatedRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Begun with every eighth rating, it has the same energy, to twice the last gain."""
    whole, _ = laplace(rated)
    monkeypatch.setattr(drawn_rows, "MANY_RATINGS", 10)
    begun, _ = laplace(rated)
    gain = rated.energy(begun) - rated.energy(whole)
    assert np.abs(gain).max() < 2 * drawn_rows.LEAST_GAIN

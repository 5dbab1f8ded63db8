"""Values of ratings within bounds: their law, and what refuses them."""

from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from measurements import write_measured

from dsgmcmc.config.run import build
from dsgmcmc.errors import InputError
from dsgmcmc.kernels.by_pair import uniforms
from dsgmcmc.kernels.philox import NoiseKey
from dsgmcmc.model.likelihoods import LIKELIHOODS
from dsgmcmc.model.likelihoods.gaussian import GaussianRatings
from dsgmcmc.model.likelihoods.student_t import StudentT
from dsgmcmc.ratings.file import Ratings

KEY = NoiseKey(first=0, seed=3, chain=1, purpose=15, iteration=7, factor=0)
INF = np.inf
BOUNDS = [(-INF, 0.3), (0.3, INF), (-1.0, 0.5), (4.0, 5.0), (-INF, -8.0), (30.0, INF), (-40, -39)]


@pytest.mark.parametrize(("low", "high"), BOUNDS)
def test_quantiles_of_a_truncated_normal_law(low: float, high: float) -> None:
    """Those of SciPy, also far in either tail."""
    p = np.linspace(0.01, 0.99, 25)
    n = np.ones_like(p)
    bounds = (low * n, high * n)
    found = GaussianRatings.quantile_between(p, 0.2 * n, 4.0 * n, bounds)
    law = scipy.stats.truncnorm((low - 0.2) / 2, (high - 0.2) / 2, loc=0.2, scale=2)
    np.testing.assert_allclose(found, law.ppf(p), rtol=1e-6)


@pytest.mark.parametrize(("low", "high"), BOUNDS)
def test_quantiles_of_a_truncated_t_law(low: float, high: float) -> None:
    """Its distribution function, between the bounds, is p."""
    p = np.linspace(0.01, 0.99, 25)
    n = np.ones_like(p)
    bounds = (low * n, high * n)
    found = StudentT.quantile_between(p, 0.2 * n, 4.0 * n, bounds, 1.25)
    law = scipy.stats.t(10, loc=0.2, scale=np.sqrt(4 / 1.25))
    if low > 0:
        share = (law.sf(low) - law.sf(found)) / (law.sf(low) - law.sf(high))
    else:
        share = (law.cdf(found) - law.cdf(low)) / (law.cdf(high) - law.cdf(low))
    np.testing.assert_allclose(share, p, rtol=1e-6)


def test_numbers_depend_on_row_column_and_measurement_alone() -> None:
    """They are uniform (Kolmogorov-Smirnov, p above 0.001), and any slice has the same."""
    rows, columns, repeats = (a.ravel() for a in np.indices((60, 50, 3)))
    numbers = uniforms(rows, columns, repeats, KEY)
    assert scipy.stats.kstest(numbers, "uniform").pvalue > 1e-3
    assert len(np.unique(numbers)) == len(numbers)
    some = np.random.default_rng(0).permutation(len(rows))[:100]
    again = uniforms(rows[some], columns[some], repeats[some], KEY)
    assert again.tolist() == numbers[some].tolist()


@pytest.mark.parametrize("likelihood", ["negative-binomial", "ordinal-logit", "all-cells"])
def test_other_likelihoods_refuse_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, likelihood: str
) -> None:
    """The message names those that take them, also one that a script registers."""
    monkeypatch.setitem(LIKELIHOODS, "own", StudentT)
    path = write_measured(tmp_path / "r.h5", bounded=True)
    config = build({"likelihood": likelihood}).resolved()
    with Ratings(path) as ratings, pytest.raises(InputError) as raised:
        config.check_ratings(ratings)
    assert f"likelihood {likelihood} does not take" in str(raised.value)
    assert str(raised.value).endswith("use gaussian or student-t or own")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sampler": "hamcmc"}, "keeps gradients"),
        ({"sampler": "sgld"}, "drift away"),
        ({"time_levels": "user"}, "time_levels|time-levels"),
    ],
)
def test_what_draws_of_values_would_change_is_refused(
    tmp_path: Path, settings: dict, message: str
) -> None:
    """Samplers that keep gradients, SGLD, whose RMSE is 41 after 2,000 sweeps of the matrix of
    `statistical/test_bounds_law.py`, and effects of time.
    """
    path = write_measured(tmp_path / "r.h5", bounded=True)
    config = build(settings).resolved()
    with Ratings(path) as ratings, pytest.raises(InputError, match=message):
        config.check_ratings(ratings)

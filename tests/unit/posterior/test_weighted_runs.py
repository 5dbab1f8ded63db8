"""What a run says of held-out ratings, and of new ratings, that have weights."""

from pathlib import Path

import numpy as np
import pytest
from measurements import write_measured

from dsgmcmc.parallel.alone import Alone
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.rows.added import fold_in
from dsgmcmc.posterior.rows.new_ratings import NewRatings
from dsgmcmc.posterior.run import Run
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.runs.job import Job
from dsgmcmc.runs.source import RatingsSource

SETTINGS = {"rank": 2, "iterations": 30, "burn_in": 10, "save_draws": 10, "noise_precision": 4.0}


@pytest.fixture(scope="module", params=["gaussian", "student-t"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on weighted measurements."""
    folder = tmp_path_factory.mktemp("weights")
    path = write_measured(folder / "r.h5", weighted=True)
    settings = {**SETTINGS, "likelihood": request.param}
    Job(Alone(), RatingsSource(path), folder / "run", settings, quiet=True).run()
    return Run(folder / "run")


def test_the_noise_of_a_held_out_rating_is_that_of_its_weight(run: Run) -> None:
    """Its variance times the weight is the same for all ratings, with one noise level."""
    test = predict_test(run)
    with Ratings(Path(run.facts["data"])) as ratings:
        weights = ratings.slab("test", 0, ratings.n_rows).weights
    common = test.noise_variance * weights
    assert common == pytest.approx(np.full(len(common), common[0]), rel=1e-5)
    assert test.noise_variance.std() > 0


@pytest.mark.parametrize("run", ["gaussian"], indirect=True)
def test_a_new_rating_counts_by_its_weight(run: Run) -> None:
    """A weight of 3 adds the precision of three ratings of weight 1."""
    covariances = []
    for weight in (1.0, 3.0):
        new = NewRatings(
            entity="user",
            names=np.array([1000]),
            others=np.array([3]),
            values=np.array([4.0]),
            weights=np.array([weight]),
            described={},
        )
        folded, _ = fold_in(run, new)
        covariances.append(np.linalg.inv(folded.rows(0, np.array([0])).covariance[0]))
    prior = np.linalg.inv(run.draw(0).unseen["user"].covariance)
    once, thrice = (precision - prior for precision in covariances)
    np.testing.assert_allclose(thrice, 3 * once, rtol=1e-4, atol=1e-4)

"""Rows at a draw: of users and items that were sampled, added, or have only their prior."""

import numpy as np
from runs import make_run

from dsgmcmc.posterior.index import Vocabulary
from dsgmcmc.posterior.rows.added import FoldIn, RatingsOfRows
from dsgmcmc.posterior.rows.rows import Rows


def test_every_kind_of_row_has_its_distribution(tmp_path):
    """In any order, and several times: sampled rows as saved, an added one given its ratings, and
    the prior for -1; rows added to users are no items.
    """
    run = make_run(tmp_path, noise="both").open()
    values = np.array([4.0, 2.0])
    ratings = RatingsOfRows(np.zeros(2, int), np.int32([1, 5]), values, np.ones(2))
    added = FoldIn(run, Vocabulary("user", np.array([-1])), ratings)
    n = len(run.users)
    index = np.int32([n, 3, -1, n, 3])
    draw = run.draw(1)
    found = Rows(run, "user", added).at(1, index)
    expected = added.rows(1, np.array([0]))
    prior = draw.unseen["user"]
    theta = draw.theta["user"][3]
    scale = draw.inverse_scale["user"][3]
    new = expected.mean[0]
    np.testing.assert_array_equal(found.mean, [new, theta, prior.mean, new, theta])
    noise = expected.noise[0]
    nu = draw.shared["user.nu"].item()
    np.testing.assert_array_equal(found.noise, [noise, scale, nu / (nu - 2), noise, scale])
    np.testing.assert_array_equal(found.uncertain, [0, 2, 3])
    covariance = found.covariance[found.spread_of[found.uncertain]]
    of_new = expected.covariance[0]
    np.testing.assert_array_equal(covariance, [of_new, prior.covariance, of_new])
    items = Rows(run, "item", added)
    assert items.are_sampled(np.int32([0, len(run.items) - 1, -1])).tolist() == [True, True, False]
    assert not len(items.at(1, np.int32([0, 4])).uncertain)


def test_drawn_rows_have_their_distribution(tmp_path):
    """The others stay as they were sampled; means and covariances err by five standard errors."""
    run = make_run(tmp_path).open()
    number = 4000
    rows = Rows(run, "item").at(0, np.repeat(np.int32([2, -1]), [1, number]))
    rng = np.random.default_rng(0)
    drawn = rows.drawn([rng] * number)
    np.testing.assert_array_equal(drawn[0], run.draw(0).theta["item"][2])
    prior = run.draw(0).unseen["item"]
    sds = np.sqrt(np.diag(prior.covariance))
    errors = (drawn[1:].mean(axis=0) - prior.mean) / sds
    assert np.abs(errors).max() <= 5 / np.sqrt(number)
    covariance = np.cov(drawn[1:].T) / np.outer(sds, sds)
    expected = prior.covariance / np.outer(sds, sds)
    assert np.abs(covariance - expected).max() <= 5 * np.sqrt(2 / number)

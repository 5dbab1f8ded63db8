"""The names of a run's users and items, and where each stands."""

import numpy as np
import pytest

from dsgmcmc.errors import InputError
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.index import Vocabulary


@pytest.mark.parametrize("ids", [[3, 1, 2], [-5, 10**18, 7], [0]])
def test_integers_are_found(ids):
    """Rows are in the order of the names, and -1 stands for an unknown name."""
    names = Vocabulary("user", np.array(ids, np.int64))
    assert names.index_of(np.array(ids)).tolist() == list(range(len(ids)))
    others = [k for k in (min(ids) - 1, max(ids) + 1, -(2**63), 2**63 - 1, 4) if k not in ids]
    assert names.index_of(np.array(others, np.int64)).tolist() == [-1] * len(others)
    assert names.index_of([str(ids[0])]).tolist() == [0]


def test_text_is_found_as_it_is():
    """Names are compared as the ratings file has them, without trimming or folding of case."""
    names = Vocabulary("item", np.array(["a", "A", " a", "ä", "7"], dtype=object))
    assert names.index_of(["A", "ä", "b", 7, ""]).tolist() == [1, 3, -1, 4, -1]


TOO_LARGE = np.array([2**63 + 1], np.uint64)


@pytest.mark.parametrize("wrong", ["x", None, 1.5, 2**70, np.nan, "1_0", "01", "+1", TOO_LARGE])
def test_names_that_cannot_be_are_refused(wrong):
    """The message tells a name of a wrong type from an unknown name."""
    names = Vocabulary("user", np.array([1, 2], np.int64))
    with pytest.raises(InputError, match="the run's users have integer names"):
        names.index_of(np.ravel(wrong))


def test_unknown_names_are_refused_or_marked():
    """A message has the first five unknown names, in the order given and without repetitions."""
    names = Vocabulary("user", np.array([1, 2], np.int64))
    wanted = [9, 1, 9, 8, 7, 6, 5, 4]
    assert names.index_of(wanted).tolist() == [-1, 0, -1, -1, -1, -1, -1, -1]
    with pytest.raises(
        InputError, match=r"^6 users are unknown to the run: 9, 8, 7, 6, 5, \.\.\.$"
    ):
        names.index_of(np.array(wanted), refuse=True)
    with pytest.raises(InputError, match=r"^one item is unknown to the run: b$"):
        Vocabulary("item", np.array(["a"], dtype=object)).index_of(["a", "b"], refuse=True)


def test_a_run_knows_its_users_items_and_test_pairs(finished):
    """A run has the names, counts and test ratings of its data, transposed or not."""
    run = finished.run
    rated = {(u, i): x for u, i, x in finished.ratings.tolist()}
    assert sorted(run.users.ids.tolist()) == sorted({u for u, _ in rated})
    assert sorted(run.items.ids.tolist()) == sorted({i for _, i in rated})
    test_users, test_items = run.test_pairs()
    test = list(
        zip(run.users.ids[test_users].tolist(), run.items.ids[test_items].tolist(), strict=True)
    )
    np.testing.assert_allclose([rated[pair] for pair in test], predict_test(run).rating, rtol=1e-6)
    for entity, ids, side in (("user", run.users.ids, 0), ("item", run.items.ids, 1)):
        training = [pair[side] for pair in rated if pair not in set(test)]
        assert run.counts(entity).tolist() == [training.count(name) for name in ids.tolist()]

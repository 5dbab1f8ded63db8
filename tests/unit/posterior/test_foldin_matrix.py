"""Features of new rows in a sparse matrix: its rows have names, or are new by their numbers."""

import numpy as np
import pytest
import scipy.sparse

from dsgmcmc import BPMF
from dsgmcmc.errors import InputError

USERS = 60
ITEMS = 8
EFFECTS = np.array([2.0, -2.0, 0.0])


def bits(rows, seed):
    """Rows of three bits."""
    return (np.random.default_rng(seed).random((rows, 3)) < 0.5).astype(float)


def ratings_of(described, seed):
    """Pairs and ratings of users whose bits move their ratings."""
    rng = np.random.default_rng(seed)
    pairs = np.array([(user, item) for user in range(len(described)) for item in range(ITEMS)])
    return pairs, described[pairs[:, 0]] @ EFFECTS + rng.normal(0, 0.3, len(pairs))


@pytest.fixture(scope="module")
def model():
    """A model of users with bits."""
    described = bits(USERS, 0)
    fitted = BPMF(1, user_features=scipy.sparse.csr_matrix(described), iterations=300, burn_in=100)
    return fitted.fit(*ratings_of(described, 1))


def test_a_matrix_without_names_does_not_overwrite_known_users(model):
    """Its rows begin at 0, as those of the model do, but they are other users."""
    new = scipy.sparse.csr_matrix(1.0 - bits(USERS, 0))
    before = model.predict([[0, 0]])
    message = r"5[0-9] of them are users that the model knows, .* features=\(names, matrix\)"
    for fold in (model.fold_in, model.update):
        with pytest.raises(InputError, match=message):
            fold(features=new)
    assert model.predict([[0, 0]]) == before


@pytest.mark.parametrize("names", [[700, 701, 702, 703], np.array([700.0, 701, 702, 703])])
def test_names_stand_beside_a_matrix(model, names):
    """New rows get their own predictions, also one without entries, and known ones keep theirs."""
    described = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 0], [1, 1, 1]])
    folded = model.fold_in(features=(names, scipy.sparse.csr_matrix(described)))
    first, second, *_ = folded.predict([[700, 3], [701, 3], [702, 3], [703, 3]])
    assert first == pytest.approx(2, abs=0.6)
    assert second == pytest.approx(-2, abs=0.6)
    np.testing.assert_array_equal(folded.predict([[0, 0]]), model.predict([[0, 0]]))


def test_known_users_get_new_features_by_name(model):
    """Whoever names a known user means that user."""
    described = scipy.sparse.csr_matrix(1.0 - bits(1, 0))
    folded = model.fold_in(features=([0], described))
    assert folded.predict([[0, 0]]) != model.predict([[0, 0]])


def test_rows_of_a_matrix_that_are_all_new_need_no_names(model):
    """Rows of known users are empty, and the others are new by their numbers."""
    rows = [USERS, USERS + 1]
    new = scipy.sparse.coo_matrix(([1.0, 1.0], (rows, [0, 1])), shape=(USERS + 2, 3))
    first, second = model.fold_in(features=new).predict([[USERS, 3], [USERS + 1, 3]])
    assert first == pytest.approx(2, abs=0.6)
    assert second == pytest.approx(-2, abs=0.6)


def test_a_file_with_a_matrix_has_no_names_either(model, tmp_path):
    """Whether in memory or in a file, its rows are not users of the model."""
    scipy.sparse.save_npz(tmp_path / "new.npz", scipy.sparse.csr_matrix(bits(4, 2)))
    with pytest.raises(InputError, match="users that the model knows"):
        model.fold_in(features=tmp_path / "new.npz")


def test_a_model_is_fitted_to_names_beside_a_matrix():
    """Users are then named by text, and may have no entries."""
    described = bits(USERS, 0)
    described[5] = 0
    pairs, ratings = ratings_of(described, 1)
    names = np.array([f"user {k}" for k in range(USERS)], object)
    named = np.column_stack([names[pairs[:, 0]], pairs[:, 1].astype(object)])
    matrix = scipy.sparse.csr_matrix(described)
    model = BPMF(1, user_features=(names, matrix), iterations=200, burn_in=100)
    model.fit(named, ratings)
    assert model.predict([["user 5", 0]]) == pytest.approx(0, abs=0.6)
    with pytest.raises(InputError, match="59 names for a matrix of 60 rows"):
        BPMF(1, user_features=(names[1:], matrix)).fit(named, ratings)
    with pytest.raises(InputError, match=r"user_features=\(names, matrix\)"):
        BPMF(1, user_features=matrix).fit(named, ratings)


def test_an_array_beside_names_is_like_an_array_with_names(model):
    """In a fit as in a fold-in; a model of a sparse matrix takes its numbers as they are."""
    described = bits(USERS, 0) * 20 + 30
    pairs, ratings = ratings_of(bits(USERS, 0), 1)
    names = np.arange(USERS)
    settings = {"iterations": 60, "burn_in": 20}
    beside = BPMF(1, user_features=(names, described), **settings).fit(pairs, ratings)
    within = BPMF(1, user_features=np.c_[names, described], **settings).fit(pairs, ratings)
    assert beside.run_.facts["data_hash"] == within.run_.facts["data_hash"]
    new = ([700], described[:1])
    folded = beside.fold_in(features=new).predict([[700, 3]])
    assert folded == within.fold_in(features=np.c_[[700], described[:1]]).predict([[700, 3]])
    dense = model.fold_in(features=([700], bits(1, 0)))
    sparse = model.fold_in(features=([700], scipy.sparse.csr_matrix(bits(1, 0))))
    assert dense.predict([[700, 3]]) == sparse.predict([[700, 3]])
    with pytest.raises(InputError, match=r"expected n names and a matrix .n, F., but found 3 and"):
        BPMF(1, user_features=([1, 2, 3], described)).fit(pairs, ratings)

"""Exposure, against regressions that are solved one by one; and the file that a run keeps of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from runs import Made, make_run

from dsgmcmc.posterior import exposure
from dsgmcmc.posterior.exposure import FLOOR, PENALTY, POWER, Exposure, best_penalty, left_out

SHAPES = pytest.mark.parametrize(("users", "items"), [(60, 25), (25, 60)], ids=["primal", "dual"])


def two_tastes(users: int, items: int, seed: int = 0) -> np.ndarray:
    """A pattern: users of each taste rate half of what belongs to it, and seldom the rest."""
    rng = np.random.default_rng(seed)
    taste = np.arange(users)[:, None] % 2 == np.arange(items) % 2
    return (rng.random((users, items)) < np.where(taste, 0.5, 0.05)).astype(float)


def rows_of(pattern: np.ndarray) -> list[np.ndarray]:
    return [np.flatnonzero(row).astype(np.int32) for row in pattern]


def regressed(pattern: np.ndarray, rows: np.ndarray, penalty: float) -> np.ndarray:
    """Scores of rows by the ridge regression of every column of a pattern on all others."""
    scores = np.zeros_like(rows)
    for j in range(pattern.shape[1]):
        others = np.delete(np.arange(pattern.shape[1]), j)
        x = pattern[:, others]
        weights = np.linalg.solve(x.T @ x + penalty * np.eye(len(others)), x.T @ pattern[:, j])
        scores[:, j] = rows[:, others] @ weights
    return scores


def penalty_of(pattern: np.ndarray) -> float:
    """The penalty that is chosen for a pattern."""
    sparse = scipy.sparse.csr_matrix(pattern.astype(np.float32))
    return best_penalty(*exposure._spectrum(sparse)[:2], sparse)


@SHAPES
def test_every_item_is_regressed_on_all_others(users, items):
    """In closed form from the singular vectors, by whichever side is shorter; what nobody rated has no score."""
    pattern = two_tastes(users, items)
    pattern[:, 3] = 0
    found = Exposure.of_pattern(scipy.sparse.csr_matrix(pattern))
    expected = regressed(pattern, pattern, penalty_of(pattern))
    np.testing.assert_allclose(found.scores(rows_of(pattern)), expected, atol=1e-5)
    shares = FLOOR * pattern.mean(axis=0)
    np.testing.assert_allclose(found.of(rows_of(pattern)), np.maximum(expected, shares) ** POWER, atol=1e-5)
    nobody = found.of([np.zeros(0, np.int32)])[0]
    np.testing.assert_allclose(nobody, shares**POWER, rtol=1e-5)


@SHAPES
def test_users_are_left_out_of_the_regressions_exactly(users, items):
    """Else the penalty would be judged by ratings that the regressions have seen."""
    pattern = two_tastes(users, items)
    vectors, squares, _ = exposure._spectrum(scipy.sparse.csr_matrix(pattern.astype(np.float32)))
    known = pattern * (np.random.default_rng(1).random(pattern.shape) < 0.8)
    rows, own = exposure._regressions(vectors, squares, PENALTY)
    scores = left_out(rows, own, PENALTY, pattern.astype(np.float32), known.astype(np.float32))
    for user in (0, 7):
        expected = regressed(np.delete(pattern, user, axis=0), known[[user]], PENALTY)[0]
        unknown = known[user] == 0
        np.testing.assert_allclose(scores[user, unknown], expected[unknown], atol=1e-4)


def test_the_penalty_follows_from_the_ratings():
    """Where users have tastes it is small; where they rate at random what is popular it is large."""
    rng = np.random.default_rng(0)
    popular = (rng.random((300, 80)) < np.linspace(0.02, 0.4, 80)).astype(float)
    assert penalty_of(two_tastes(300, 80)) < penalty_of(popular)
    assert penalty_of(np.zeros((5, 4))) == PENALTY, "nothing was rated"


def test_leading_singular_vectors_of_large_patterns(monkeypatch):
    """Those of NumPy's decomposition, and the penalty that is not chosen."""
    pattern = two_tastes(200, 90)
    monkeypatch.setattr(exposure, "EXACT", 50)
    monkeypatch.setattr(exposure, "WIDTH", 2)
    found = Exposure.of_pattern(scipy.sparse.csr_matrix(pattern))
    v = np.linalg.svd(pattern)[2][:2]
    squares = np.linalg.svd(pattern)[1][:2] ** 2
    ridge = v.T @ np.diag(squares / (squares + PENALTY)) @ v
    own = np.diag(ridge)
    expected = (pattern @ ridge - own * pattern) / (1 - own)
    np.testing.assert_allclose(found.scores(rows_of(pattern)), expected, atol=1e-5)


@pytest.fixture
def made(tmp_path) -> Made:
    return make_run(tmp_path, users=30, items=20, iterations=60)


def test_the_run_keeps_it(made):
    """Worked out once: later the ratings file is not needed, and no matrix is read whole."""
    first = made.open().exposure
    made.data.rename(made.data.with_suffix(".away"))
    again = made.open().exposure
    rated = [np.int32([3, 1]), np.int32([]), np.int32([3, 17])]
    np.testing.assert_array_equal(again.of(rated), first.of(rated))
    with pytest.raises(ValueError, match="read-only"):
        again.rows[0, 0] = 1  # mapped, not read


@pytest.mark.parametrize("damaged", [b"", b"abc", "half", "shorter", "float64"])
def test_a_file_that_does_not_fit_is_replaced(made, damaged):
    """It is worked out again, and written again."""
    run = made.open()
    first, path = run.exposure, run.exposure_file
    numbers = np.load(path)
    if damaged == "shorter":
        np.save(path, numbers[:-1])
    elif damaged == "float64":
        np.save(path, numbers.astype(np.float64))
    else:
        path.write_bytes(path.read_bytes()[:100] if damaged == "half" else damaged)
    np.testing.assert_array_equal(made.open().exposure.rows, first.rows)
    np.testing.assert_array_equal(np.load(path), numbers)


def test_the_file_of_other_ratings_is_not_used(made, tmp_path):
    """It would rank by what others rated, and look right: its name has the hash of the ratings."""
    other = make_run(tmp_path / "other", users=29, items=20, iterations=60).open()
    foreign, right = other.exposure, made.open().exposure
    path = made.open().exposure_file
    path.unlink()
    other.exposure_file.rename(path.with_name(other.exposure_file.name))
    assert not np.array_equal(foreign.rows, right.rows)
    np.testing.assert_array_equal(made.open().exposure.rows, right.rows)


def test_a_run_that_cannot_be_written_is_used_all_the_same(made):
    """As where it was published read-only; no file is left then."""
    made.open().exposure.write(Path("/proc/exposure-0.npy"))
    assert not Path("/proc/exposure-0.npy").exists()

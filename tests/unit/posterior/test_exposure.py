"""Exposure, against regressions that are solved one by one; and the file that a run keeps of it."""

from __future__ import annotations

import numpy as np
import pytest
from runs import Made, make_run
from scipy.sparse import csr_matrix

from dsgmcmc.posterior import exposure
from dsgmcmc.posterior.exposure import FLOOR, PENALTY, POWER, Exposure, Rated


class Pattern(Rated):
    """A pattern that is in no file."""

    def __init__(self, pattern: np.ndarray) -> None:
        self.pattern, self._first = csr_matrix(pattern), 0


def estimated(pattern: np.ndarray) -> np.ndarray:
    """Exposure of every user, and in the last row of one without ratings."""
    found = Exposure.of_ratings(Pattern(pattern), pattern.mean(axis=0))
    return found.of([*(np.flatnonzero(row).astype(np.int32) for row in pattern), np.zeros(0, np.int32)])


def expected(pattern: np.ndarray, some: np.ndarray) -> np.ndarray:
    """The same by the ridge regression of each of `some` columns on the others of them."""
    scores = np.zeros((len(pattern) + 1, pattern.shape[1]))
    for j in some:
        others = np.setdiff1d(some, j)
        x = pattern[:, others]
        scores[:-1, j] = x @ np.linalg.solve(x.T @ x + PENALTY * np.eye(len(others)), x.T @ pattern[:, j])
    return np.maximum(scores, FLOOR * pattern.mean(axis=0)) ** POWER


@pytest.mark.parametrize("most", [4096, 9])
def test_every_item_is_regressed_on_all_others(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """In closed form; where there are too many items, only those with the most ratings have more than their share."""
    rng = np.random.default_rng(0)
    taste = np.arange(300)[:, None] % 2 == np.arange(25) % 2
    pattern = (rng.random((300, 25)) < np.where(taste, 0.5, 0.05) * np.linspace(0, 1, 25)).astype(float)
    monkeypatch.setattr(exposure, "MAX_ITEMS", most)
    some = np.sort(np.argsort(-pattern.mean(axis=0), kind="stable")[:most])
    np.testing.assert_allclose(estimated(pattern), expected(pattern, some), rtol=1e-4, atol=1e-7)


@pytest.fixture
def made(tmp_path) -> Made:
    return make_run(tmp_path, users=30, items=20, iterations=60)


@pytest.mark.parametrize("damaged", [b"", b"abc", "half", "narrower", "float64"])
def test_the_run_keeps_it_and_replaces_a_file_that_does_not_fit(made, damaged):
    """Worked out once: later the ratings file is not needed. A damaged file is worked out, and written, again."""
    first, path = made.open().exposure, made.open().exposure_file
    numbers = np.load(path)
    away = made.data.rename(made.data.with_suffix(".away"))
    rated = [np.int32([3, 1]), np.int32([]), np.int32([3, 17])]
    np.testing.assert_array_equal(made.open().exposure.of(rated), first.of(rated))
    away.rename(made.data)
    if damaged in ("narrower", "float64"):
        np.save(path, numbers[:-1] if damaged == "narrower" else numbers.astype(np.float64))
    else:
        path.write_bytes(path.read_bytes()[:100] if damaged == "half" else damaged)
    np.testing.assert_array_equal(made.open().exposure.weights, first.weights)
    np.testing.assert_array_equal(np.load(path), numbers)


def test_the_file_of_other_ratings_is_not_used(made, tmp_path):
    """It would rank by what others rated, and look right: its name has the hash of the ratings."""
    other = make_run(tmp_path / "other", users=29, items=20, iterations=60).open()
    foreign, right = other.exposure, made.open().exposure
    path = made.open().exposure_file
    path.unlink()
    other.exposure_file.rename(path.with_name(other.exposure_file.name))
    assert not np.array_equal(foreign.weights, right.weights)
    np.testing.assert_array_equal(made.open().exposure.weights, right.weights)

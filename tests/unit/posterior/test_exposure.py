"""Exposure, against regressions that are solved one by one; and the file that a run keeps of it."""

import numpy as np
import pytest
from runs import Made, make_run
from scipy.sparse import csr_matrix

from dsgmcmc.posterior.lists.exposure import (
    FLOOR,
    PENALTY,
    POWER,
    Exposure,
    exposure_file,
    exposure_of,
    exposures,
)
from dsgmcmc.posterior.rated import Rated


class Pattern(Rated):
    """A pattern of ratings that is in no file."""

    def __init__(self, pattern: np.ndarray) -> None:
        self.pattern = csr_matrix(pattern)
        self._first = 0


@pytest.mark.parametrize("most", [4096, 9])
def test_every_item_is_regressed_on_all_others(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Exposure is that of ridge regressions, one of every item, and of the items with the most
    ratings if too many.

    The last user has no ratings.
    """
    rng = np.random.default_rng(0)
    taste = np.arange(300)[:, None] % 2 == np.arange(25) % 2
    pattern = (rng.random((300, 25)) < np.where(taste, 0.5, 0.05) * np.linspace(0, 1, 25)).astype(
        float
    )
    monkeypatch.setattr("dsgmcmc.posterior.lists.exposure.MAX_ITEMS", most)
    some = np.sort(np.argsort(-pattern.mean(axis=0), kind="stable")[:most])
    scores = np.zeros((301, 25))
    for j in some:
        x = pattern[:, np.setdiff1d(some, j)]
        scores[:-1, j] = x @ np.linalg.solve(
            x.T @ x + PENALTY * np.eye(x.shape[1]), x.T @ pattern[:, j]
        )
    expected = np.maximum(scores, FLOOR * pattern.mean(axis=0)) ** POWER
    users = [np.flatnonzero(row).astype(np.int32) for row in pattern]
    exposure = Exposure.of_ratings(Pattern(pattern), pattern.mean(axis=0)).scores(
        [*users, np.zeros(0, np.int32)]
    )
    np.testing.assert_allclose(exposure, expected, rtol=1e-4, atol=1e-7)


@pytest.fixture
def finished(tmp_path) -> Made:
    return make_run(tmp_path, users=30, items=20, iterations=60)


@pytest.mark.parametrize("damaged", [b"", b"abc", "half", "a bit", "narrower", "float64"])
def test_the_run_keeps_it_and_replaces_a_file_that_does_not_fit(finished, damaged):
    """The file of exposure serves without the ratings file, and a damaged one is replaced."""
    first = exposure_of(finished.open())
    path = exposure_file(finished.open())
    numbers = np.load(path)
    away = finished.data.rename(finished.data.with_suffix(".away"))
    rated = [np.int32([3, 1]), np.int32([]), np.int32([3, 17])]
    np.testing.assert_array_equal(exposure_of(finished.open()).scores(rated), first.scores(rated))
    away.rename(finished.data)
    if damaged in ("narrower", "float64"):
        np.save(path, numbers[:-1] if damaged == "narrower" else numbers.astype(np.float64))
    else:
        content = bytearray(path.read_bytes())
        content[200] ^= 1
        path.write_bytes({"half": content[:100], "a bit": content}.get(damaged, damaged))
    everything = [np.arange(len(first.shares), dtype=np.int32)]
    run = finished.open()
    np.testing.assert_array_equal(exposures(run, everything), first.scores(everything))
    np.testing.assert_array_equal(exposure_of(run).weights, first.weights)
    np.testing.assert_array_equal(np.load(path), numbers)

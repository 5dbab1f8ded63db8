"""Exposure, against regressions that are solved one by one; and the file that a run keeps of it."""

from pathlib import Path

import numpy as np
import pytest
from ingest_cases import prepare
from runs import Made, make_run
from scipy.sparse import csr_matrix
from support import write_cells

from dsgmcmc.posterior.lists.exposure import (
    FLOOR,
    PENALTY,
    POWER,
    PRIOR_RATINGS,
    RECENT,
    Exposure,
    recent_changes,
)
from dsgmcmc.posterior.lists.exposure_choice import prefers_liked
from dsgmcmc.posterior.lists.exposure_of_run import (
    chosen_kind,
    exposure_file,
    exposure_of,
    exposures,
)
from dsgmcmc.posterior.rated import Rated
from dsgmcmc.ratings.file import Ratings


class Pattern(Rated):
    """A pattern of ratings that is in no file."""

    def __init__(self, pattern: np.ndarray) -> None:
        self._pattern = csr_matrix(pattern)

    def reaching(self, bound: float | None) -> csr_matrix:
        return self._pattern


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


@pytest.mark.parametrize("kind", ["rated", "liked"])
@pytest.mark.parametrize("damaged", [b"", b"abc", "half", "a bit", "narrower", "float64"])
def test_the_run_keeps_it_and_replaces_a_file_that_does_not_fit(finished, damaged, kind):
    """The file of exposure serves without the ratings file, and a damaged one is replaced."""
    first = exposure_of(finished.open(), kind)
    path = exposure_file(finished.open(), kind)
    numbers = np.load(path)
    away = finished.data.rename(finished.data.with_suffix(".away"))
    rated = [np.int32([3, 1]), np.int32([]), np.int32([3, 17])]
    kept = exposure_of(finished.open(), kind)
    np.testing.assert_array_equal(kept.scores(rated), first.scores(rated))
    away.rename(finished.data)
    if damaged in ("narrower", "float64"):
        np.save(path, numbers[:-3] if damaged == "narrower" else numbers.astype(np.float64))
    else:
        content = bytearray(path.read_bytes())
        content[200] ^= 1
        path.write_bytes({"half": content[:100], "a bit": content}.get(damaged, damaged))
    everything = [np.arange(len(first.shares), dtype=np.int32)]
    run = finished.open()
    np.testing.assert_array_equal(exposures(run, kind, everything), first.scores(everything))
    np.testing.assert_array_equal(exposure_of(run, kind).weights, first.weights)
    np.testing.assert_array_equal(np.load(path), numbers)


def test_the_choice_is_kept_and_a_directory_that_cannot_be_written_answers(finished):
    """A run whose choice is in its directory does not choose again."""
    chosen = chosen_kind(finished.open())
    file = exposure_file(finished.open(), "auto")
    assert file.read_text() == chosen
    file.write_text("liked" if chosen == "rated" else "rated")
    assert chosen_kind(finished.open()) != chosen
    file.unlink()
    file.mkdir()  # no file can be written in its place, whoever runs the test
    assert chosen_kind(finished.open()) == chosen


@pytest.mark.parametrize("by_taste", [True, False])
def test_held_out_lists_choose_the_exposure(tmp_path: Path, by_taste: bool) -> None:
    """Likes alone say more where users rate any items and like those of a taste; ratings do where
    users rate the items of a taste, and the likes among them are chance.
    """
    rng = np.random.default_rng(1)
    user, item = (index.ravel() for index in np.indices((300, 40)))
    is_of_taste = (item + user) % 2 == 0
    chance = np.full(len(user), 0.4)
    if not by_taste:
        chance = np.where(is_of_taste, 0.6, 0.05)
    liked = is_of_taste if by_taste else rng.random(len(user)) < 0.2
    rated = rng.random(len(user)) < chance
    stars = np.where(liked, 5, 2).astype(np.float32)
    cells = user[rated], item[rated], stars[rated]
    with Ratings(write_cells(tmp_path / "r.h5", (300, 40), *cells)) as ratings:
        assert prefers_liked(ratings, 4.0) == by_taste


def test_exposure_follows_what_is_popular_now(tmp_path: Path) -> None:
    """By the latest tenth of the training ratings, if the split is by time."""
    assert RECENT == 10
    lines = [f"{n % 200},{n // 200},{n % 5},{n}" for n in range(1000)]  # the last 100 are tested
    prepare(tmp_path, "user,item,rating,timestamp\n" + "\n".join(lines), split="temporal")
    with Ratings(tmp_path / "out.h5") as ratings:
        changes = recent_changes(ratings)
        assert changes is not None
        of_item = dict(zip(ratings.ids("cols").tolist(), changes.tolist(), strict=True))
    prior = PRIOR_RATINGS
    assert of_item[0] == pytest.approx((0 + 0.1 * prior) / (0.1 * (200 + prior)))
    assert of_item[4] == pytest.approx((90 + 0.1 * prior) / (0.1 * (100 + prior)))
    pattern = Pattern(np.ones((4, 5)))
    shares = np.ones(5)
    history = [np.int32([0, 1])]
    for liked in (None, 4.0):
        plain = Exposure.of_ratings(pattern, shares, liked)
        changed = Exposure.of_ratings(pattern, shares, liked, changes=changes)
        expected = plain.scores(history) * changes
        np.testing.assert_allclose(changed.scores(history), expected, rtol=1e-5)

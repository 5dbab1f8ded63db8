"""Replicates: with --duplicates keep, every measurement of a pair is an observation of its own."""

import random
from collections import Counter

import numpy as np
import pytest
from ingest_cases import prepare

from dsgmcmc.errors import InputError
from dsgmcmc.ratings.description import describe_ratings
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.format import SPLITS
from dsgmcmc.ratings.held_out import InnerSplit


def measured(n: int = 600) -> list[tuple]:
    """Measurements of at most 12 x 8 pairs, each at a time."""
    rng = np.random.default_rng(0)
    users = rng.integers(0, 12, n)
    items = rng.integers(0, 8, n)
    values = np.round(rng.normal(size=n), 2)
    times = rng.integers(0, 50, n)
    return list(zip(users, items, values, times, strict=True))


def text_of(rows: list[tuple]) -> str:
    """CSV with a header."""
    lines = [",".join(map(str, row)) for row in rows]
    return "\n".join(["user,item,rating,timestamp", *lines, ""])


def measurements(ratings: Ratings, part: str) -> Counter:
    """Number of each (user, item, value) of a part."""
    slab = ratings.slab(part, 0, ratings.n_rows)
    names = [ratings.ids("rows")[slab.rows], ratings.ids("cols")[slab.indices]]
    if ratings.orientation.transposed:
        names.reverse()
    users, items = names
    values = slab.values.astype(np.float64).round(2)
    return Counter(zip(users.tolist(), items.tolist(), values.tolist(), strict=True))


def pairs_of(found: Counter) -> set[tuple]:
    """The measured pairs."""
    return {(user, item) for user, item, _ in found}


@pytest.mark.parametrize("split", ["random", "temporal"])
def test_all_measurements_are_kept_and_no_split_divides_a_pair(tmp_path, split):
    """Neither the split of the file, nor that of its training ratings for comparisons, has a pair
    on both sides; the numbers say how many measurements are replicates.
    """
    rows = measured()
    summary = prepare(tmp_path, text_of(rows), duplicates="keep", split=split, timestamps=True)
    with Ratings(tmp_path / "out.h5") as ratings:
        ratings.verify()
        parts = {part: measurements(ratings, part) for part in SPLITS}
        inner = InnerSplit(ratings, 0.2, seed=1)
        halves = {part: measurements(inner, part) for part in SPLITS}
        described = describe_ratings(ratings)["ratings"]
    assert parts["train"] + parts["test"] == Counter(row[:3] for row in rows)
    assert halves["train"] + halves["test"] == parts["train"]
    for both in (parts, halves):
        assert both["test"]
        assert not pairs_of(both["train"]) & pairs_of(both["test"])
    n_pairs = len({row[:2] for row in rows})
    assert (summary.ratings, summary.duplicates, summary.replicates) == (600, 0, 600 - n_pairs)
    assert f"{n_pairs} pairs, {600 - n_pairs} replicates" in described
    largest = max(Counter(row[:2] for row in rows).values())
    assert 60 <= summary.test < 60 + largest


def test_a_temporal_split_holds_out_the_pairs_that_were_measured_last(tmp_path):
    """A pair that was measured early and late is held out with both measurements."""
    rows = [(1, 1, 1, 1), (1, 1, 2, 90), (1, 2, 3, 20), (2, 1, 4, 30), (2, 2, 5, 40)]
    prepare(tmp_path, text_of(rows), duplicates="keep", split="temporal", test_fraction=0.2)
    with Ratings(tmp_path / "out.h5") as ratings:
        assert measurements(ratings, "test") == Counter([(1, 1, 1.0), (1, 1, 2.0)])


@pytest.mark.parametrize("options", [{}, {"split": "temporal", "timestamps": True}])
def test_the_order_of_lines_does_not_matter(tmp_path, options):
    """Shuffled lines give the same content."""
    rows = measured()
    digests = set()
    for k in range(3):
        random.Random(k).shuffle(rows)
        summary = prepare(tmp_path, text_of(rows), duplicates="keep", **options)
        digests.add(summary.content_sha256)
    assert len(digests) == 1


def test_equal_measurements_are_in_one_order(tmp_path):
    """Measurements that differ in nothing have places in the rows and columns of the file, which
    no line and no thread changes.
    """
    rows = [(user, item, 1.0 + user % 2, 7) for user in range(40) for item in range(30)] * 20
    digests = set()
    for k in range(3):
        random.Random(k).shuffle(rows)
        summary = prepare(tmp_path, text_of(rows), duplicates="keep", timestamps=True)
        digests.add(summary.content_sha256)
    assert len(digests) == 1


def test_files_without_replicates_are_what_they_were(tmp_path):
    """Without repeated pairs, the choice changes no rating; the file remembers the choice."""
    rows = list({row[:2]: row for row in measured()}.values())
    digests = set()
    for choice in ("keep", "last"):
        summary = prepare(tmp_path, text_of(rows), duplicates=choice)
        assert summary.replicates == 0
        with Ratings(tmp_path / "out.h5") as ratings:
            ratings.verify()
            assert ratings.reading.duplicates == choice
            digests.add(ratings.digest)
    assert len(digests) == 1


def test_the_mean_is_doubted(tmp_path):
    """The mean of three measurements counts like one: a warning names what keeps them."""
    summary = prepare(tmp_path, text_of(measured()), duplicates="mean")
    (doubt,) = [doubt for doubt in summary.doubts if "mean" in doubt]
    assert "--duplicates keep" in doubt
    assert not [doubt for doubt in prepare(tmp_path, text_of(measured())).doubts if "mean" in doubt]


def test_a_pair_in_both_files_is_refused(tmp_path):
    """A pair that is to be predicted must not be trained on."""
    (tmp_path / "test.csv").write_text("user,item,rating,timestamp\n1,1,4,5\n")
    with pytest.raises(InputError, match="in both the training and the test files"):
        prepare(tmp_path, text_of(measured()), duplicates="keep", test=str(tmp_path / "test.csv"))


def test_one_pair_cannot_be_split(tmp_path):
    """All measurements of the last pair would be held out: there would be none to train on."""
    rows = [(1, 1, k, 0) for k in range(5)] + [(2, 2, k, 0) for k in range(5)]
    with pytest.raises(InputError, match="leaves no training ratings"):
        prepare(tmp_path, text_of(rows), duplicates="keep", test_fraction=0.7)


def untimed(values: list[float]) -> str:
    """CSV of measurements of 10 x 12 pairs, twice each, without times."""
    rows = [(k % 10, k // 10 % 12, value) for k, value in enumerate(values)]
    lines = [",".join(map(str, row)) for row in rows]
    return "\n".join(["user,item,rating", *lines, ""])


def test_measurements_that_differ_are_kept_by_default(tmp_path):
    """Plots of one variety in one environment are replicates, and none is dropped."""
    values = np.round(np.random.default_rng(0).normal(size=240), 2).tolist()
    summary = prepare(tmp_path, untimed(values))
    assert (summary.ratings, summary.replicates, summary.duplicates) == (240, 120, 0)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([1 + k % 10 / 2 for k in range(240)], id="half stars"),
        pytest.param([7 * k % 239 for k in range(240)], id="counts"),
        pytest.param([k % 120 / 7 for k in range(240)], id="equal lines"),
    ],
)
def test_other_repeated_ratings_become_one(tmp_path, values):
    """Levels are revised, counts may be totals, and equal lines were written twice."""
    summary = prepare(tmp_path, untimed(values))
    assert (summary.ratings, summary.replicates, summary.duplicates) == (120, 0, 120)


def test_measurements_with_times_are_revised(tmp_path):
    """Of two measurements with times, the later one counts."""
    summary = prepare(tmp_path, text_of(measured()))
    assert summary.replicates == 0
    assert summary.duplicates > 0

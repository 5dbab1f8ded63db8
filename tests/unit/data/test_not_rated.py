"""Zeros that probably mean "not rated": they are said, and can be left out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support import typed

from dsgmcmc.data.prepare import Summary, prepare_ratings
from dsgmcmc.data.ratings import open_ratings
from dsgmcmc.errors import InputError

#: Number of ratings of each level from 0 on, in units of 5: what is said of it.
LEVELS = {
    "two thirds not rated": ([60, 1, 1, 2, 2, 4, 6, 8, 9, 6, 5], True),
    "a bad film": ([2, 1, 3, 5, 4, 2], False),
    "a scale whose worst level is frequent": ([12, 9, 8, 10, 14, 12], False),
    "counts with many zeros": ([60, 9, 4, 2, 1], False),
    "likes": ([60, 6], False),
    "from 1 on": ([0, 60, 1, 2, 6, 9], False),
}


def write(path: Path, counts: list[int], below: int = 0) -> Path:
    """Ratings with so many of every level, users and items by turns."""
    values = np.repeat(np.arange(len(counts)) - below, 5 * np.array(counts))
    lines = [f"{k % 20},{k // 20},{value}" for k, value in enumerate(values)]
    path.write_text("\n".join(["user,item,rating", *lines]) + "\n")
    return path


def prepare(tmp_path: Path, counts: list[int], **options: object) -> Summary:
    """Prepare such ratings."""
    below = int(options.pop("below", 0))
    return prepare_ratings([str(write(tmp_path / "r.csv", counts, below))], tmp_path / "r.h5", **options)


@pytest.mark.parametrize("name", LEVELS)
def test_zeros_that_stand_apart(tmp_path, name):
    """Where the scale rises again above them, and not where counts fall all the way, or 0 is one level of many."""
    counts, apart = LEVELS[name]
    assert prepare(tmp_path, counts).not_rated == (pytest.approx(counts[0] / sum(counts)) if apart else 0)


def test_zeros_within_the_scale_are_ratings(tmp_path):
    """Of -5 to 5 they are its middle."""
    assert prepare(tmp_path, [1, 1, 1, 2, 2, 60, 1, 2, 8, 9, 5], below=5).not_rated == 0


def test_zeros_are_left_out(tmp_path):
    """Of training and test ratings, with the users and items that have nothing else."""
    counts = LEVELS["two thirds not rated"][0]
    summary = prepare(tmp_path, counts, drop_zeros=True)
    assert (summary.ratings, summary.minimum, summary.not_rated) == (5 * sum(counts[1:]), 1, 0)
    with open_ratings(tmp_path / "r.h5") as ratings:
        assert max(ratings.n_rows, ratings.n_cols) == 20
    with pytest.raises(InputError, match="--drop-zeros leaves no ratings"):
        prepare(tmp_path, [3], drop_zeros=True, force=True)


def test_the_hint_names_the_option(tmp_path):
    """A newcomer reads it where the scale is shown."""
    data = write(tmp_path / "r.csv", LEVELS["two thirds not rated"][0])
    said = typed("prepare", str(data), str(tmp_path / "r.h5")).expect(0).err
    assert "58% of the ratings are 0, far more than of any level near it" in said
    assert "--drop-zeros leaves these out" in said
    assert "--drop-zeros" not in typed("prepare", data, tmp_path / "s.h5", "--drop-zeros").expect(0).err

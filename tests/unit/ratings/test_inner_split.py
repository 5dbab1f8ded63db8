"""The split of a file's training ratings that chooses a model, with times and features."""

from functools import partial

import numpy as np
import pytest
from support import write_planted, write_ratings

from dsgmcmc.parallel.comm import Alone
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.run import Run
from dsgmcmc.prepare.prepare import prepare_ratings
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.held_out import InnerSplit
from dsgmcmc.runs.job import Job
from dsgmcmc.runs.source import RatingsSource


def cells(ratings, part):
    """Return {(row, column): rating} of a part."""
    slab = ratings.slab(part, 0, ratings.n_rows)
    pairs = zip(slab.rows.tolist(), slab.indices.tolist(), strict=True)
    return dict(zip(pairs, slab.values.tolist(), strict=True))


@pytest.fixture
def path(tmp_path):
    """A file of a few ratings with times and features."""
    return write_planted(tmp_path / "r.h5", 60, 40, 0.6, timed=True, features=(3, 4))


def test_training_ratings_are_divided_and_test_ratings_stay_away(path):
    """Both parts together are the training ratings, and their sizes, mean and range are right."""
    file = Ratings(path)
    inner = InnerSplit(Ratings(path), 0.25, 3)
    train = cells(inner, "train")
    test = cells(inner, "test")
    assert {**train, **test} == cells(file, "train")
    assert not train.keys() & test.keys()
    assert (inner.nnz, inner.nnz_test) == (len(train), len(test))
    assert abs(len(test) / file.nnz - 0.25) < 3 * np.sqrt(0.25 * 0.75 / file.nnz)
    values = np.array(list(train.values()))
    assert (inner.mean, inner.minimum, inner.maximum) == pytest.approx(
        (values.mean(), values.min(), values.max())
    )
    columns = [column for _, column in train]
    assert inner.column_counts.tolist() == np.bincount(columns, minlength=40).tolist()


def test_rows_are_left_out_with_all_their_ratings(path):
    """About half of the rows keep both parts of their ratings, and the others have none."""
    all_rows = InnerSplit(Ratings(path), 0.25, 3)
    half = InnerSplit(Ratings(path), 0.25, 3, rows=0.5)
    assert half.digest != all_rows.digest
    kept = np.diff(half.row_indptr) + np.diff(half.test_indptr) > 0
    assert 0.2 < kept.mean() < 0.8
    for ends, before in (
        (half.row_indptr, all_rows.row_indptr),
        (half.test_indptr, all_rows.test_indptr),
    ):
        np.testing.assert_array_equal(np.diff(ends), kept * np.diff(before))
    assert len(half.slab("train", 0, half.n_rows).indices) == half.nnz == half.column_counts.sum()


def test_the_seed_determines_the_held_out_ratings(path):
    """Equal seeds hold out the same ratings, however the rows are read; other seeds hold out
    others.
    """
    first, again, other = (InnerSplit(Ratings(path), 0.25, seed) for seed in (3, 3, 4))
    assert (first.digest, cells(first, "test")) == (again.digest, cells(again, "test"))
    assert first.digest != other.digest
    assert cells(first, "test").keys() != cells(other, "test").keys()
    pieces = [first.slab("test", start, start + 15).indices for start in range(0, 60, 15)]
    columns = first.slab("test", 0, 60).indices.tolist()
    assert np.concatenate(pieces).tolist() == first.columns("test", 0, 60).tolist() == columns


def test_times_go_with_their_ratings(path):
    """A rating keeps its positions in time in either part."""
    file = Ratings(path)
    inner = InnerSplit(Ratings(path), 0.25, 3)

    def times(ratings, part):
        sides = [ratings.times_slab(part, side, 0, 60) for side in ("rows", "cols")]
        return dict(zip(cells(ratings, part), zip(*sides[0], *sides[1], strict=True), strict=True))

    assert times(inner, "train") | times(inner, "test") == times(file, "train")


@pytest.mark.parametrize("tall", [False, True])
def test_a_temporal_split_holds_out_the_latest(tmp_path, tall):
    """Whichever side the rows are: held-out ratings are later than training ratings, and earlier
    than test ratings.
    """
    rng = np.random.default_rng(0)
    pairs = np.unique(rng.integers(0, (20, 30) if tall else (30, 20), (400, 2)), axis=0)
    times = rng.permutation(len(pairs))
    lines = [
        f"{user},{item},{1 + time % 5},{time}"
        for (user, item), time in zip(pairs, times, strict=True)
    ]
    (tmp_path / "r.csv").write_text("\n".join(["user,item,rating,timestamp", *lines]))
    prepare_ratings([str(tmp_path / "r.csv")], tmp_path / "r.h5", split="temporal")
    file = Ratings(tmp_path / "r.h5")
    file.verify()
    inner = InnerSplit(file, 0.1, 0)
    time_of = {tuple(pair): time for pair, time in zip(pairs.tolist(), times.tolist(), strict=True)}
    rows = file.ids("rows")
    columns = file.ids("cols")

    def when(ratings, part):
        named = [(int(rows[i]), int(columns[j])) for i, j in cells(ratings, part)]
        return [time_of[pair[::-1] if file.orientation.transposed else pair] for pair in named]

    assert file.orientation.transposed == tall
    assert max(when(inner, "train")) < min(when(inner, "test"))
    assert max(when(inner, "test")) < min(when(file, "test"))
    # ten of a hundred parts, each rounded up
    assert 0.1 * file.nnz <= inner.nnz_test <= 0.1 * file.nnz + 10


def test_a_view_is_sampled_like_a_file_of_both_parts(tmp_path):
    """Predictions agree to the bit; ratings are whole numbers, so that sums are exact."""
    path = write_planted(tmp_path / "whole.h5", 60, 40, 0.6, stars=True)
    view = partial(InnerSplit, share=0.25, seed=3)
    inner = view(Ratings(path))
    parts = (inner.slab(part, 0, 60)[:3] for part in ("train", "test"))
    write_ratings(tmp_path / "written.h5", *parts, np.arange(60), np.arange(40))
    ends = []
    for source in (RatingsSource(path, view=view), RatingsSource(tmp_path / "written.h5")):
        out = tmp_path / f"run-{len(ends)}"
        Job(
            Alone(), source, out, {"rank": 2, "grid": 2, "iterations": 20, "burn_in": 4}, quiet=True
        ).run()
        test = predict_test(Run(out))
        ends.append([test.rating.tolist(), test.mean.tolist(), test.variance.tolist()])
    assert ends[0] == ends[1]

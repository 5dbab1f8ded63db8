"""The split, the order and the duplicates: functions of the ratings and the seed, and of nothing
else.
"""

import hashlib
import random
import re

import numpy as np
import pytest
from ingest_cases import RATINGS, everything, lines, prepare, read_back
from support import typed

from dsgmcmc.errors import InputError
from dsgmcmc.prepare.prepare import prepare_ratings
from dsgmcmc.ratings.file import Ratings


def many(n_users: int = 60, n_items: int = 40, density: float = 0.3) -> list[tuple]:
    """Return ratings with distinct times."""
    rng = np.random.default_rng(1)
    cells = np.argwhere(rng.random((n_users, n_items)) < density)
    times = rng.permutation(len(cells))
    return [
        (int(u) * 7, int(i) * 3, float(rng.integers(1, 11)) / 2, int(t))
        for (u, i), t in zip(cells, times, strict=True)
    ]


@pytest.mark.parametrize("fraction", [0.0, 0.003, 0.25, 0.9])
@pytest.mark.parametrize("split", ["random", "temporal"])
def test_exact_fraction(tmp_path, fraction, split):
    """The test part has the rounded share of the ratings exactly, and the parts are all the
    ratings.
    """
    ratings = many()
    summary = prepare(tmp_path, lines(ratings=ratings), test_fraction=fraction, split=split)
    parts = read_back(tmp_path / "out.h5")
    assert summary.test == len(parts["test"]) == int(fraction * len(ratings) + 0.5)
    assert parts["train"] | parts["test"] == {(u, i): r for u, i, r, _ in ratings}
    assert not parts["train"].keys() & parts["test"].keys()
    assert summary.mean == pytest.approx(np.mean(list(parts["train"].values())), rel=1e-12)


@pytest.mark.parametrize(
    "options", [{"split": "random"}, {"split": "temporal"}, {"duplicates": "mean"}]
)
def test_line_order_does_not_matter(tmp_path, options):
    """Shuffled lines, cut into files in any way, give the same content; the mean of duplicates is
    exact to the bit.
    """
    ratings = many()
    if "duplicates" in options:
        ratings = [
            (k % 3, k % 2, x, 0) for k, x in enumerate(np.random.default_rng(0).normal(size=600))
        ]
    digests = set()
    for k in range(4):
        random.Random(k).shuffle(ratings)
        half = len(ratings) // (k + 1)
        (tmp_path / "a.csv").write_text(lines(ratings=ratings[:half], header=True))
        (tmp_path / "b.csv").write_text(lines(ratings=ratings[half:]))
        files = [str(tmp_path / name) for name in ("a.csv", "b.csv")][
            : 1 if half == len(ratings) else 2
        ]
        digests.add(
            prepare_ratings(files, tmp_path / "out.h5", force=True, **options).content_sha256
        )
    assert len(digests) == 1


def test_split_and_order_stay_what_they_are(tmp_path):
    """What version 0.1 made of a seed, every later version must make: runs are compared on one
    split.
    """

    def key(*fields):
        return hashlib.md5("\x1f".join(map(str, fields)).encode()).hexdigest()[:16]

    prepare(tmp_path, lines(), test_fraction=0.3, seed=7)
    pairs = [(user, item) for user, item, _, _ in RATINGS]
    smallest = sorted(pairs, key=lambda pair: key(7, "pair", *pair))[:3]
    assert set(read_back(tmp_path / "out.h5")["test"]) == set(smallest)
    users, items = ({pair[side] for pair in pairs} for side in (0, 1))
    with Ratings(tmp_path / "out.h5") as ratings:
        assert ratings.ids("rows").tolist() == sorted(users, key=lambda name: key(7, "user", name))
        assert ratings.ids("cols").tolist() == sorted(items, key=lambda name: key(7, "item", name))


def test_temporal_takes_the_latest(tmp_path):
    """No training rating is later than any test rating; of equal times a hash decides, not the
    line.
    """
    ratings = many()
    when = {(u, i): t // 100 for u, i, _, t in ratings}  # ties
    tied = [(u, i, r, when[u, i]) for u, i, r, _ in ratings]
    prepare(tmp_path, lines(ratings=tied), split="temporal", test_fraction=0.37)
    parts = read_back(tmp_path / "out.h5")
    assert min(when[pair] for pair in parts["test"]) >= max(when[pair] for pair in parts["train"])
    first = set(parts["test"])
    prepare(tmp_path, lines(ratings=tied[::-1]), split="temporal", test_fraction=0.37)
    assert set(read_back(tmp_path / "out.h5")["test"]) == first
    prepare(tmp_path, lines(ratings=tied), split="temporal", test_fraction=0.37, seed=1)
    assert set(read_back(tmp_path / "out.h5")["test"]) != first


@pytest.mark.parametrize(
    "form",
    ["1e9", "2024-01-{0:02d}", "2024-01-01T10:{0:02d}:00Z", "2024-01-01T1{1}:{0:02d}:00+0{1}:00"],
)
def test_forms_of_time(tmp_path, form):
    """Seconds and ISO dates both order ratings."""
    times = [1e9 + k if form == "1e9" else form.format(k + 1, k % 2) for k in range(10)]
    text = "user,item,rating,timestamp\n" + "".join(
        f"{k},{k % 2},{k % 5},{times[k]}\n" for k in range(10)
    )
    prepare(tmp_path, text, split="temporal", test_fraction=0.3)
    assert {user for user, _ in read_back(tmp_path / "out.h5")["test"]} == {7, 8, 9}


def test_test_file(tmp_path):
    """With a test file the parts are as given, and entities of the test file alone are kept,
    without ratings.
    """
    (tmp_path / "test.csv").write_text("user,item,rating\n3,31,1\n777,7,2\n41,888,3\n666,555,4\n")
    summary = prepare(tmp_path, lines(), test=str(tmp_path / "test.csv"))
    parts = read_back(tmp_path / "out.h5")
    assert parts["test"] == {(3, 31): 1, (777, 7): 2, (41, 888): 3, (666, 555): 4}
    assert parts["train"] == {(u, i): r for u, i, r, _ in RATINGS}
    assert (summary.users, summary.items, summary.train, summary.test) == (7, 6, 10, 4)
    with Ratings(tmp_path / "out.h5") as ratings:
        counts = dict(
            zip(ratings.ids("rows").tolist(), np.diff(ratings.row_indptr).tolist(), strict=True)
        )
        columns = dict(
            zip(ratings.ids("cols").tolist(), ratings.column_counts.tolist(), strict=True)
        )
    assert counts[777] == counts[666] == columns[888] == columns[555] == 0


@pytest.mark.parametrize("duplicates", ["error", "first", "mean"])
def test_pair_in_both_files_is_refused(tmp_path, duplicates):
    """A rating that is to be predicted must not be trained on; no --duplicates changes that."""
    (tmp_path / "test.csv").write_text("3,31,1\n58,12,2\n")
    with pytest.raises(
        InputError, match=r"1 pair\(s\) .* in both.*\n  user 58, item 12: rated 1, 2"
    ):
        prepare(tmp_path, lines(), test=str(tmp_path / "test.csv"), duplicates=duplicates)


@pytest.mark.parametrize(
    ("choice", "timed", "expected"),
    [
        ("first", True, 1.0),
        ("last", True, 4.0),
        ("first", False, 4.0),
        ("last", False, 1.0),
        ("mean", True, 2.5),
    ],
)
@pytest.mark.parametrize("split", ["random", "temporal"])
def test_duplicates(tmp_path, choice, timed, expected, split):
    """Several ratings of a pair become one: the first or the last in time, else by line, or the
    mean.
    """
    rows = [
        (1, 1, 4, 10),
        (1, 2, 3, 20),
        (2, 1, 2, 30),
        (1, 1, 2.5, 5),
        (2, 2, 5, 25),
        (1, 1, 1, 1),
    ]
    if not timed and split == "temporal":
        rows = [
            (user, item, rating, max(time, 10)) for user, item, rating, time in rows
        ]  # of equal times the line
    text = "".join(
        ",".join(map(str, row if timed or split == "temporal" else row[:3])) + "\n" for row in rows
    )
    summary = prepare(tmp_path, text, duplicates=choice, test_fraction=0.25, split=split)
    assert (summary.train, summary.test, summary.duplicates) == (3, 1, 2)
    assert everything(tmp_path / "out.h5") == {(1, 1): expected, (1, 2): 3, (2, 1): 2, (2, 2): 5}
    if split == "temporal":
        assert set(read_back(tmp_path / "out.h5")["test"]) == {(2, 1)}


@pytest.mark.parametrize(
    ("choice", "merged"),
    [("first", lambda values: values[0]), ("last", lambda values: values[-1]), ("mean", np.mean)],
)
def test_many_repeated_ratings_are_merged(tmp_path, choice, merged):
    """Ratings of a pair that lie far apart in a file become one, in a table of many vectors."""
    rng = np.random.default_rng(0)
    users = rng.integers(0, 300, 20_000)
    items = rng.integers(0, 40, 20_000)
    values = rng.integers(1, 11, 20_000) / 2
    rows = list(zip(users.tolist(), items.tolist(), values.tolist(), strict=True))
    expected = {}
    for user, item, value in rows:
        expected.setdefault((user, item), []).append(value)
    summary = prepare(tmp_path, lines(ratings=rows), duplicates=choice)
    assert summary.duplicates == len(rows) - len(expected)
    assert summary.test == round(0.1 * len(expected))
    assert everything(tmp_path / "out.h5") == {
        pair: np.float32(merged(values)) for pair, values in expected.items()
    }


def test_zeros_are_left_out(tmp_path):
    """A hint names the option, which leaves out zeros, and the users and items that have no other
    ratings.
    """
    values = np.repeat(np.arange(11), 5 * np.array([60, 1, 1, 2, 2, 4, 6, 8, 9, 6, 5]))
    text = lines(ratings=[(k % 20, k // 20, value, 0) for k, value in enumerate(values)])
    assert prepare(tmp_path, text, "r.csv").not_rated == pytest.approx(60 / 104)
    hint = typed("prepare", tmp_path / "r.csv", tmp_path / "r.h5").expect(0).err
    assert "300 ratings (58%) are 0, apart from all others" in hint
    assert "--missing=0 leaves them out" in hint
    left_out = typed("prepare", tmp_path / "r.csv", tmp_path / "s.h5", "--missing", "0").expect(0)
    assert re.search("left out +300 ratings that are 0", left_out.out)
    assert "--missing" not in left_out.err
    summary = prepare(tmp_path, lines() + "5,7,0,1\n3,8,0,1\n", missing=[0, 7])
    assert (summary.users, summary.items, summary.ratings, summary.minimum) == (5, 4, 10, 0.5)


def test_the_scale_is_said_of_the_training_ratings(tmp_path):
    """Test ratings outside of it are not in it: it stands beside the number of training ratings."""
    (tmp_path / "train.csv").write_text("user,item,rating\n1,1,2\n1,2,4\n2,1,3\n")
    (tmp_path / "test.csv").write_text("user,item,rating\n2,2,5\n")
    command = (
        "prepare",
        tmp_path / "train.csv",
        tmp_path / "o.h5",
        "--test",
        tmp_path / "test.csv",
    )
    said = " ".join(typed(*command).expect(0).out.split())
    assert "training 3, from 2 to 4, mean 3, in steps of 1 test 1 (25.0%)" in said
    assert "training 3, from 2 to 4, mean 3" in " ".join(
        typed("info", tmp_path / "o.h5").out.split()
    )

"""Files of one call that differ: in having ratings or times, in columns, in ratings that are
equal.
"""

import json

import pytest
from ingest_cases import lines, prepare
from support import typed

from dsgmcmc.errors import InputError
from dsgmcmc.prepare.prepare import prepare_ratings

RATED = "user,item,rating\n" + "".join(
    f"{u},{i},{1 + (3 * u + 2 * i) % 5}\n" for u in range(8) for i in range(6)
)
PAIRS = "user,item\n" + "".join(f"{u},{i}\n" for u in range(8) for i in range(6, 9))
MATRIX = "%%MatrixMarket matrix coordinate {} general\n3 3 3\n1 1{}\n2 2{}\n3 1{}\n"


@pytest.fixture
def files(tmp_path):
    """A function that writes a file and returns its path."""

    def write(name, text):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return write


def test_a_test_file_without_ratings_is_refused(tmp_path, files):
    """Its pairs would become test ratings of 1; the message names the command that predicts
    them.
    """
    train = files("train.csv", RATED)
    test = files("test.csv", PAIRS)
    done = typed("prepare", train, tmp_path / "o.h5", "--test", test).expect(2)
    assert "test.csv has no column of ratings, unlike" in done.err
    assert "give it to `predict`" in done.err
    assert not (tmp_path / "o.h5").exists()


def test_pairs_beside_ratings_are_refused(tmp_path, files):
    """Pairs in a further file would become ratings of 1, and so would ratings in a first file of
    pairs; without ratings in any file, all are clicks.
    """
    paths = [files("a.csv", RATED), files("b.csv", PAIRS)]
    for order in (paths, paths[::-1]):
        with pytest.raises(InputError, match=r"b.csv has no column of ratings.*rating=none"):
            prepare_ratings(order, tmp_path / "o.h5")
    clicks = prepare_ratings(paths, tmp_path / "o.h5", columns="rating=none")
    assert (clicks.ratings, clicks.minimum, clicks.maximum) == (72, 1, 1)


def test_patterns_beside_matrices_with_values_are_refused(tmp_path, files):
    """The entries of a pattern would become ratings of 1."""
    real = files("real.mtx", MATRIX.format("real", " 3", " 2", " 5"))
    pattern = files("pattern.mtx", MATRIX.format("pattern", "", "", ""))
    with pytest.raises(InputError, match=r"pattern.mtx has no column of ratings, unlike"):
        prepare_ratings([real], tmp_path / "o.h5", test=pattern)


def test_other_columns_of_further_files_are_said(tmp_path, files):
    """The summary has the columns of every file whose columns differ from those of the first."""
    first = files("a.csv", RATED)
    same = files("b.csv", "user,item,rating\n1,20,3\n")
    other = files("t.csv", "movie,reviewer,stars\n1,30,3\n")
    options = ["--test", other, "--force"]
    done = typed("prepare", first, same, tmp_path / "o.h5", *options).expect(0)
    said = " ".join(done.out.split())
    assert "columns user user, item item, rating rating" in said
    assert "t.csv: user reviewer, item movie, rating stars" in said
    assert "b.csv" not in said
    as_json = typed("prepare", first, same, tmp_path / "o.h5", *options, "--json").expect(0)
    columns = {str(other): "user reviewer, item movie, rating stars"}
    assert json.loads(as_json.out)["other_columns"] == columns


def test_equal_ratings_of_a_test_file_are_doubted(tmp_path, files):
    """Competitions fill the ratings that are to be predicted with one value."""
    pairs = PAIRS.partition("\n")[2]
    test = files("test.csv", "user,item,rating\n" + pairs.replace("\n", ",0\n"))
    doubts = prepare_ratings([files("a.csv", RATED)], tmp_path / "o.h5", test=test).doubts
    assert any("all 24 ratings of" in doubt and "test.csv are 0" in doubt for doubt in doubts)


def test_files_without_times_beside_others_are_said(tmp_path, files):
    """Of repeated ratings the last one is used: those of a file without times are the oldest."""
    timed = lines(header=True)
    untimed = files("b.csv", "user,item,rating\n3,7,1\n")
    (tmp_path / "a.csv").write_text(timed)
    doubts = prepare_ratings([tmp_path / "a.csv", untimed], tmp_path / "o.h5").doubts
    assert any("b.csv has no times, unlike the other files" in doubt for doubt in doubts)
    assert prepare(tmp_path, timed).doubts == []

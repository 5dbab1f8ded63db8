"""``dsgmcmc prepare`` as users run it: a process, its output, its exit code, its files."""

import json
import signal
import time

import pytest
from support import Running, dsgmcmc, typed, write_synthetic

from dsgmcmc.ratings.file import Ratings


def test_movielens_1m(datasets, tmp_path):
    """MovieLens 1M comes out with its published sizes, half of the users' ratings in any half of
    the rows.
    """
    out = tmp_path / "ml-1m.h5"
    done = typed("prepare", datasets / "ml-1m" / "ratings.dat", out).expect(0)
    assert done.err == ""
    for text in ("6,040", "3,706", "1,000,209", "900,188", "100,021", "3.58", str(out)):
        assert text in done.out
    with Ratings(out) as ratings:
        ratings.verify()
        assert (ratings.n_rows, ratings.n_cols, ratings.nnz, ratings.nnz_test) == (
            6040,
            3706,
            900188,
            100021,
        )
        assert (ratings.minimum, ratings.maximum, ratings.orientation.transposed) == (1, 5, False)
        assert sorted(ratings.ids("rows")) == list(range(1, 6041))
        assert abs(ratings.row_indptr[3020] - ratings.nnz / 2) < 0.05 * ratings.nnz
        assert ratings.source == "ratings.dat"


def test_every_option(tmp_path):
    """All options at once reach their place."""
    (tmp_path / "r.unknown").write_text(
        "who;what;stars;when\n1;1;2;5\n1;2;3;6\n2;1;4;7\n1;1;4;8\n2;2;0;9\n"
    )
    (tmp_path / "users.csv").write_text("user;tags;age\n1;a/b;3\n2;b;4\n")
    done = typed(
        *(
            "prepare",
            tmp_path / "r.unknown",
            tmp_path / "out.h5",
            "--timestamps",
            "--missing=0",
            "--force",
            "--json",
        ),
        *(
            "--columns",
            "user=who,item=what,rating=stars,timestamp=when",
            "--split",
            "temporal",
            "--seed",
            "3",
        ),
        *(
            "--user-features",
            tmp_path / "users.csv",
            "--feature-kinds",
            "age=category",
            "--separator",
            "/",
        ),
        *("--duplicates", "mean", "--memory", "500MB", "--test-fraction", "0.34"),
    )
    facts = json.loads(done.expect(0).out)
    assert (facts["ratings"], facts["test"], facts["mean"], facts["duplicates"]) == (3, 1, 3.5, 1)
    assert facts["features"]["user"]["groups"] == {"tags": 2, "age": 2}
    with Ratings(tmp_path / "out.h5") as ratings:
        assert ratings.seed == 3
        assert ratings.times is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.h5", "r.unknown", "users.csv"]


def test_what_there_is_to_say(tmp_path):
    """Which columns were taken, repeated ratings, few ratings, and that none are held out."""
    (tmp_path / "r.csv").write_text("userId,movie,stars\n1,1,2\n1,2,3\n2,1,4\n2,1,3\n")
    done = typed("prepare", tmp_path / "r.csv", tmp_path / "out.h5").expect(0)
    assert "user userId, item movie, rating stars" in done.out
    for text in (
        "1 ratings repeat the user and item",
        "3 ratings are few",
        "no ratings are held out",
    ):
        assert text in done.err


@pytest.mark.parametrize(("number", "delay"), [(signal.SIGINT, 0.7), (signal.SIGTERM, 0.0)])
def test_interrupted(tmp_path, number, delay):
    """Ctrl-C and SIGTERM in the middle end the run soon, with its own exit status and nothing
    left.
    """
    write_synthetic(tmp_path / "r.csv", 40_000, 20_000, 4_000_000)
    with Running(dsgmcmc("prepare", tmp_path / "r.csv", tmp_path / "out.h5")) as running:
        running.until(lambda: list(tmp_path.glob(".dsgmcmc-prepare*")), "under way")
        time.sleep(delay)
        running.signal(number)
        done = running.wait().expect(130)
    assert "interrupted" in done.err
    assert "Traceback" not in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["r.csv"]

"""New users and items by their features alone, by the commands that a user types."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from support import typed


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Prepared and sampled: ratings by 40 users, that their job moves by 1.5 up or down."""
    folder = tmp_path_factory.mktemp("cold")
    rng = np.random.default_rng(0)
    users = [f"u{k},{['cook', 'nurse'][k % 2]},{30 + k % 20}\n" for k in range(40)]
    (folder / "users.csv").write_text("user,job,age\n" + "".join(users))
    (folder / "items.csv").write_text("item,genres\n" + "".join(f"i{k},{'x' if k % 2 else 'x|y'}\n" for k in range(12)))
    rows = [f"u{u},i{i},{3 + 1.5 * (2 * (u % 2) - 1) + rng.normal(0, 0.3):.2f}\n" for u in range(40) for i in range(12)]
    (folder / "r.csv").write_text("user,item,rating\n" + "".join(rows))
    features = ("--user-features", folder / "users.csv", "--item-features", folder / "items.csv")
    typed("prepare", folder / "r.csv", folder / "r.h5", *features).expect(0)
    settings = ("--rank=2", "--grid=2", "--iterations=200", "--burn-in=80", "--sampler=baoab")
    typed("sample", folder / "r.h5", "--out", folder / "run", *settings).expect(0)
    (folder / "r.h5").unlink()  # a run is enough
    (folder / "new.csv").write_text("age,job,user\n33,nurse,n1\n,cook,n2\n41,poet,n3\n")
    return folder


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_who_has_features_alone_is_predicted_from_them(folder, tmp_path):
    """A nurse high, a cook low, a poet, of whom there was none, between; what is strange is said on standard error."""
    (tmp_path / "pairs.csv").write_text("user,item\nn1,i3\nn2,i3\nn3,i3\n")
    out = tmp_path / "out.csv"
    given = ("--user-features", folder / "new.csv", "--pairs", tmp_path / "pairs.csv", "-o", out)
    done = typed("foldin", folder / "run", *given).expect(0)
    assert done.err == "warning: new.csv: job has values that the run does not know, which are ignored: 'poet'\n"
    nurse, cook, poet = (float(row["mean"]) for row in table(out))
    assert nurse == pytest.approx(4.5, abs=0.5)
    assert cook == pytest.approx(1.5, abs=0.5)
    assert cook < poet < nurse
    (tmp_path / "ratings.csv").write_text("user,item,rating\nn1,i0,1.5\nn1,i1,1.4\nn4,i1,2\n")
    done = typed("foldin", folder / "run", tmp_path / "ratings.csv", *given).expect(0)
    assert "1 new user(s) without features are taken to have average features: n4" in done.err
    assert float(table(out)[0]["mean"]) < nurse - 0.5
    assert [float(row["mean"]) for row in table(out)[1:]] == [cook, poet]


def test_who_has_features_alone_gets_recommendations(folder):
    """Everybody who is described, by every rule that needs no ratings file."""
    for by in ("mean", "ucb", "thompson"):
        given = ("--user-features", folder / "new.csv", "--top", "2", "--by", by, "--json")
        done = typed("foldin", folder / "run", *given).expect(0)
        assert [line["user_id"] for line in json.loads(done.out)] == ["n1", "n1", "n2", "n2", "n3", "n3"]


def test_new_items(folder, tmp_path):
    """The same of items, with --new items."""
    (tmp_path / "items.csv").write_text("item,genres\nnew,x|y\n")
    (tmp_path / "pairs.csv").write_text("user,item\nu0,new\nu1,new\n")
    given = ("--new", "items", "--item-features", tmp_path / "items.csv", "--pairs", tmp_path / "pairs.csv")
    typed("foldin", folder / "run", *given, "-o", tmp_path / "out.csv").expect(0)
    low, high = (float(row["mean"]) for row in table(tmp_path / "out.csv"))
    assert high > low + 1.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give NEW_RATINGS, --user-features, or both"),
        (["--columns", "user=1,item=2,rating=3", "--user-features", "NEW"], "--columns needs NEW_RATINGS"),
        (["--item-features", "NEW"], "--item-features needs --new items: users are being folded in"),
        (["--user-id", "age"], "--user-id age has no meaning without --user-features"),
        (["--user-features", "NEW", "--user-id", "name"], "has columns age, job, user, and no 'name' that --user-id"),
        (["--user-features", "nowhere.csv"], "nowhere.csv does not exist"),
        (
            ["--user-features", "NEW", "--user-id", "job"],
            "has a strange column 'user': the features of the run's users",
        ),
    ],
)
def test_bad_arguments(folder, arguments, message):
    """One line, and status 2."""
    given = [str(folder / "new.csv") if each == "NEW" else each for each in arguments]
    done = typed("foldin", folder / "run", *given).expect(2)
    assert message in done.err
    assert done.err.count("\n") == 1

"""What commands say where users wondered: each message once, as it is read."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from runs import Made, make_run
from support import typed

from dsgmcmc import BPMF, open_run
from dsgmcmc.errors import InputError
from dsgmcmc.terminal import say_json


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A small run of stars."""
    return make_run(tmp_path_factory.mktemp("made"), stars=True)


@pytest.mark.parametrize(
    ("options", "heading"),
    [
        ((), ("likely", "sd of mean", "mean, 90 %")),
        (("--by", "mean"), ("mean", "sd", "90 % interval")),
        (("--by", "lcb", "--z", "2"), ("mean - 2 sd", "sd of mean", "mean, 90 %")),
        (("--by", "mean", "--at-least", "4"), ("P(rating >= 4)", "sd of mean", "mean, 90 %")),
        (("--by", "thompson"), ("one draw", "sd of mean", "mean, 90 %")),
    ],
)
def test_a_score_is_called_what_it_is(
    made: Made, options: tuple[str, ...], heading: tuple[str, ...]
) -> None:
    """One column was of ratings, of their bounds or of probabilities, and always called score."""
    shown = (
        typed("recommend", made.path, "--user", str(made.users[0]), "--include-rated", *options)
        .expect()
        .out
    )
    (line,) = [line for line in shown.splitlines() if "rank" in line]
    assert tuple(re.split(r"\s{2,}", line.strip())[1:4]) == heading


def test_json_has_no_numbers_that_json_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    """Standard errors of a single user are infinite, and strict readers refuse Infinity."""
    say_json({"se": [float("inf"), float("nan"), 0.1]})
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {
        "se": [None, None, 0.1]
    }


def test_predictions_stay_on_the_scale(made: Made, tmp_path: Path) -> None:
    """By `predict` as by `recommend` and in Python; 6.22 of 5 stars only if it is asked for."""
    (pairs := tmp_path / "p.csv").write_text(
        "user,item\n" + "".join(f"{u},{i}\n" for u in made.users[:9] for i in made.items[:9]),
        encoding="utf-8",
    )

    def highest(*options: str) -> float:
        lines = typed("predict", made.path, pairs, *options).expect().out.splitlines()
        return max(float(line.split(",")[-1]) for line in lines[1:])

    assert highest() <= 5 < highest("--no-clip")


UUIDS = [f"{k:08d}-9f3a-4bd2-8a36-5c1d2e3f4a5b" for k in range(12)]


@pytest.fixture(scope="module")
def long_names(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run on ratings whose users and items have names of 36 characters."""
    folder = tmp_path_factory.mktemp("uuids")
    lines = [
        f"{user},{item},{1 + (i * j) % 5}"
        for i, user in enumerate(UUIDS)
        for j, item in enumerate(UUIDS)
        if (i + j) % 3
    ]
    (folder / "r.csv").write_text("\n".join(["user,item,rating", *lines, ""]))
    typed("prepare", folder / "r.csv", folder / "r.h5").expect()
    options = ("--rank", "1", "--iterations", "30", "--burn-in", "10", "--grid", "2")
    typed("sample", folder / "r.h5", "--out", folder / "run", *options).expect()
    return folder / "run"


def test_what_is_redirected_is_not_cut(
    long_names: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Names in a file are whole, however narrow the terminal is."""
    monkeypatch.setenv("COLUMNS", "60")
    names = tmp_path / "titles.csv"
    names.write_text("item,title\n" + "".join(f"{name},{'a title ' * 9}\n" for name in UUIDS))
    shown = typed("recommend", long_names, "--user", UUIDS[3], "--items", names).expect().out
    rows = [line for line in shown.splitlines() if UUIDS[3][8:] in line][1:]
    assert rows, shown
    for row in rows:
        assert row.count("a title") == 9
        assert any(name in row for name in UUIDS)


def test_an_unknown_user_learns_of_fold_in_and_of_the_prior(long_names: Path) -> None:
    """In commands and in Python, by the names that each has."""
    shown = typed("recommend", long_names, "--user", "somebody").expect(2).err
    assert "one user is unknown to the run: somebody" in shown
    assert "fold_in takes ratings of new users" in shown
    assert "--unknown prior" in shown
    (long_names.parent / "pairs.csv").write_text(f"user,item\nsomebody,{UUIDS[0]}\n")
    shown = typed("predict", long_names, long_names.parent / "pairs.csv").expect(2).err
    assert "--unknown prior" in shown
    assert "fold_in" in shown
    model = open_run(long_names)
    with pytest.raises(InputError, match=r"fold_in takes .* need unknown prior"):
        model.recommend(["somebody"])
    model.unknown = "refuse"
    with pytest.raises(InputError, match=r"fold_in takes .* need unknown prior"):
        model.predict([["somebody", UUIDS[0]]])


def test_a_run_without_a_directory_is_the_run() -> None:
    """Messages of a fit, and of its methods, name no temporary folder."""
    pairs = np.argwhere(np.arange(80).reshape(10, 8) % 3)
    ratings = pairs.sum(axis=1) % 5
    with pytest.raises(InputError, match=r"^the run has no posterior yet"):
        BPMF(rank=1, iterations=4, burn_in=2, options={"prior": "fixed"}).fit(pairs, ratings)
    unsaved = BPMF(rank=1, iterations=20, burn_in=4, options={"save_draws": 0}).fit(pairs, ratings)
    with pytest.raises(InputError, match=r"^the run has no saved draws to predict from"):
        unsaved.predict(pairs)

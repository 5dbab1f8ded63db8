"""What commands say where users wondered: each message once, as it is read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from runs import Made, make_run
from support import typed


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A small run of stars."""
    return make_run(tmp_path_factory.mktemp("made"), stars=True)


def test_few_ratings_and_none_held_out(tmp_path: Path) -> None:
    """Three ratings were prepared without a word; who wants no test ratings is not told that there are none."""
    (ratings := tmp_path / "r.csv").write_text("user,item,rating\n1,1,3\n1,2,4\n2,1,5\n", encoding="utf-8")
    said = typed("prepare", ratings, tmp_path / "r.h5").expect().err
    assert "3 ratings are few" in said
    assert "no ratings are held out for testing" in said
    said = typed("prepare", ratings, tmp_path / "r.h5", "--force", "--test-fraction", "0").expect().err
    assert "held out" not in said


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
def test_a_score_is_called_what_it_is(made: Made, options: tuple[str, ...], heading: tuple[str, ...]) -> None:
    """One column was of ratings, of their bounds or of probabilities, and always called score."""
    shown = typed("recommend", made.path, "--user", str(made.users[0]), "--include-rated", *options).expect().out
    (line,) = [line for line in shown.splitlines() if "rank" in line]
    assert tuple(re.split(r"\s{2,}", line.strip())[1:4]) == heading


def test_predictions_stay_on_the_scale(made: Made, tmp_path: Path) -> None:
    """By `predict` as by `recommend` and in Python; 6.22 of 5 stars only if it is asked for."""
    (pairs := tmp_path / "p.csv").write_text(
        "user,item\n" + "".join(f"{u},{i}\n" for u in made.users[:9] for i in made.items[:9]), encoding="utf-8"
    )

    def highest(*options: str) -> float:
        lines = typed("predict", made.path, pairs, *options).expect().out.splitlines()
        return max(float(line.split(",")[-1]) for line in lines[1:])

    assert highest() <= 5 < highest("--no-clip")


def test_what_is_said_while_sampling(made: Made, tmp_path: Path) -> None:
    """The first words are of the run, and not of what is not installed, nor of kernels that were compiled before."""
    line = ("sample", made.data, "--iterations", "20", "--rank", "2", "--burn-in", "4", "--out")
    told = typed(*line, tmp_path / "run").expect().err
    assert "install" not in told
    assert "compiling" not in told

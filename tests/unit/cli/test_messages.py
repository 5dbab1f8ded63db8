"""What commands say where users wondered: each message once, as it is read."""

import json
import re
from pathlib import Path

import pytest
from runs import Made, make_run
from support import typed

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

"""``dsgmcmc plan`` as it is typed: what it says of sizes and of a file, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import write_planted

from dsgmcmc.cli.app import app
from dsgmcmc.errors import InputError

SIZES = ["--users", "480,189", "--items", "17770", "--ratings", "1e8"]


def plan(*arguments: str) -> None:
    app(["plan", *arguments], standalone_mode=False)


def test_what_is_chosen_and_where_it_stops(capsys: pytest.CaptureFixture[str]) -> None:
    """For people and for scripts the same; what was asked for is kept."""
    plan(*SIZES, "--nodes", "4", "--processes", "16", "--grid", "128", "--json")
    found = json.loads(capsys.readouterr().out)
    assert (found["processes"], found["processes_per_node"], found["grid"]) == (64, 16, 128)
    assert found["data"] == {"rows": 480_189, "columns": 17_770, "ratings": 100_000_000, "test_ratings": 0}
    assert found["machine"]["file"] == "built-in"
    assert [line["processes"] for line in found["curve"]] == [1 << bit for bit in range(11)]
    plan(*SIZES, "--nodes", "4", "--processes", "16", "--grid", "128")
    told = capsys.readouterr().out
    assert "--grid 128" in told
    assert f"beyond {found['scales_to']:,} is not worth it" in told


def test_a_ratings_file_says_its_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The longer side are the rows; few columns limit the processes, and that is said."""
    path = write_planted(tmp_path / "r.h5", rows=60, columns=12)
    plan(str(path), "--cores", "4", "--json")
    found = json.loads(capsys.readouterr().out)
    assert (found["data"]["rows"], found["data"]["columns"]) == (60, 12)
    assert max(line["grid"] for line in found["curve"]) <= 12


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--users and --items and --ratings"),
        (["--users", "10", "--items", "10"], "--ratings"),
        (["--users", "10", "--items", "10", "--ratings", "101"], "expected 10 to 100"),
        (["--users", "-3", "--items", "10", "--ratings", "20"], "--users -3: expected a number from 1"),
        (["--users", "1.5", "--items", "10", "--ratings", "20"], "--users 1.5"),
        (["--users", "nan", "--items", "10", "--ratings", "20"], "--users nan"),
        ([*SIZES, "--bandwidth", "0GB"], "--bandwidth 0GB"),
        ([*SIZES, "--memory", "much"], "'much' is not a size"),
        ([*SIZES, "--latency", "-1"], "--latency -1"),
        ([*SIZES, "--mtbf", "never"], "--mtbf never"),
        ([*SIZES, "--rank", "1000"], "rank"),
        ([*SIZES, "--sampler", "sgdl"], "sgdl"),
        ([*SIZES, "--memory", "200MB"], "does not fit"),
        ([*SIZES, "--nodes", "1000", "--processes", "100"], "100,000 processes are not possible"),
        ([*SIZES, "--machine", "none.toml"], "none.toml"),
    ],
)
def test_absurd_wishes_are_refused_with_one_line(arguments: list[str], message: str) -> None:
    """Saying what was found, and what is expected."""
    with pytest.raises(InputError) as caught:
        plan(*arguments)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)

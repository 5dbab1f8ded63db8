"""What a run writes and says, and how it refuses bad input."""

from __future__ import annotations

import json
import shlex
import tomllib
from pathlib import Path

import pytest
from support import digest, dsgmcmc, metrics, run, typed, write_planted
from tiny import GRID, alone, command

# ---------------------------------------------------------------------- what is written


def test_metrics_have_their_keys(finished: Path) -> None:
    """One object a line, in order; times rise; null until there is a posterior mean."""
    lines = metrics(finished)
    assert [line["iteration"] for line in lines] == [1, *range(4, 41, 4)]
    for line in lines:
        assert {"chain", "iteration", "sweep", "time_s", "rmse", "rmse_mean", "tau"} <= set(line)
        assert line["sweep"] == line["iteration"] / GRID
        assert (line["rmse_mean"] is None) == (line["iteration"] < 9)
    times = [line["time_s"] for line in lines]
    assert times == sorted(times)
    assert len({line["tau"] for line in lines}) > 1


def test_the_summary_has_its_keys(finished: Path) -> None:
    """What scripts and the benchmark read."""
    summary = json.loads((finished / "summary.json").read_text(encoding="utf-8"))
    expected = {"iterations": 40, "processes": 2, "grid": GRID, "rank": 3, "sampler": "psgld"}
    assert {name: summary[name] for name in expected} == expected
    assert 0 < summary["mae_mean"] < summary["rmse_mean"]
    assert summary["rmse_mean"] == pytest.approx(metrics(finished)[-1]["rmse_mean"], rel=0.1)
    assert summary["ratings_per_second"] > 0
    assert set(summary["phases"]) == {"gradient", "update", "exchange", "reduce", "evaluate", "checkpoint"}
    for times in summary["phases"].values():
        assert 0 < times["mean"] <= times["max"]
    total = sum(times["mean"] for times in summary["phases"].values())
    assert 0.3 * summary["seconds_sampling"] < total <= summary["seconds_sampling"] * 1.01
    assert all(10 << 20 < size < 4 << 30 for size in summary["peak_rss_bytes"])
    assert {"dsgmcmc", "numpy", "numba", "mpi"} <= set(summary["versions"])


def test_what_was_warned_of_is_still_said_afterwards(tmp_path: Path) -> None:
    """By `info` and the report: standard error of a batch job is read by nobody."""
    data = write_planted(tmp_path / "r.h5")
    words = "the data hardly tell noise from factors"
    for rank in (2, 16):
        out = tmp_path / str(rank)
        sampled = typed("sample", data, "--out", out, f"--rank={rank}", "--iterations=70", "--seed=1")
        shown = (sampled.expect(0).err, typed("info", out).expect(0).out)
        assert [words in text.replace("\n", " ") for text in shown] == 2 * [rank == 16]
    typed("report", out).expect(0)
    assert words in (out / "report.html").read_text(encoding="utf-8").replace("\n", " ")


def test_without_test_ratings_there_is_no_rmse(tmp_path: Path) -> None:
    """Null everywhere, and a run that ends well all the same."""
    data = write_planted(tmp_path / "r.h5", test=0.0)
    result = typed(*command(data, tmp_path / "run", iterations=20)[3:]).expect(0)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))
    assert summary["rmse_mean"] is None
    assert summary["mae_mean"] is None
    assert summary["tau"] > 0
    assert all(line["rmse"] is None and line["rmse_mean"] is None for line in metrics(tmp_path / "run"))
    assert "no RMSE" in result.out
    assert digest(tmp_path / "run") == alone(data, tmp_path / "one", iterations=20)


def test_dry_run_prints_the_configuration_and_touches_nothing(data: Path, tmp_path: Path) -> None:
    """Valid TOML that --config takes back, with the costs beside it."""
    file = tmp_path / "c.toml"
    file.write_text('rank = 7\nburn-in = "2sweeps"\n[sampler]\nname = "psgld"\nalpha = 0.9\n')
    options = ("--config", file, "--seed", "3", "--set", "sampler.lambda-n=5")
    result = run(*dsgmcmc("sample", data, "--out", tmp_path / "run", *options, "--dry-run", processes=2)).expect(0)
    found = tomllib.loads(result.out)
    assert (found["rank"], found["seed"], found["burn_in"], found["grid"]) == (7, 3, 8, 4)
    assert found["sampler"] | {"name": "psgld", "alpha": 0.9, "lambda_n": 5} == found["sampler"]
    assert all(found["costs"][name] > 0 for name in ("memory_per_process", "sent_per_sweep", "disk_most"))
    assert not (tmp_path / "run").exists()
    del found["costs"]
    again = tmp_path / "again.toml"
    again.write_text(result.out[: result.out.index("[costs]")])
    repeated = typed("sample", data, "--out", tmp_path / "run", "--config", again, "--dry-run").expect(0)
    assert tomllib.loads(repeated.out) | found == tomllib.loads(repeated.out)


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("options", "processes", "words"),
    [
        (["--set", "schedule=spiral"], 2, ["schedule", "spiral"]),
        (["--grid", "18"], None, ["--grid 18", "17 columns"]),
        (["--grid", "1"], 2, ["2 processes", "grid of 1"]),
    ],
)
def test_bad_settings_end_in_one_clear_line(
    data: Path, tmp_path: Path, options: list[str], processes: int | None, words: list[str]
) -> None:
    """Status 2, said once and not once a process, no traceback, no output."""
    line = ("sample", data, "--out", tmp_path / "run", *options)
    result = (typed(*line) if processes is None else run(*dsgmcmc(*line, processes=processes))).expect(2)
    lines = [line for line in result.err.splitlines() if "dsgmcmc:" in line]
    assert len(lines) == 1, result.err
    assert all(word in lines[0] for word in words), lines
    assert "Traceback" not in result.err
    assert result.out == ""
    assert not (tmp_path / "run").exists()


def test_bad_files_end_in_one_clear_line(data: Path, tmp_path: Path) -> None:
    """Ratings that are none, and a directory that holds something else."""
    (tmp_path / "text.h5").write_text("user,item,rating\n")
    full = tmp_path / "full"
    full.mkdir()
    (full / "thesis.tex").touch()
    for source, out, processes, words in (
        (tmp_path / "absent.h5", tmp_path / "run", None, "absent.h5 does not exist"),
        (tmp_path / "text.h5", tmp_path / "run", 2, "text.h5 is not a usable ratings file"),
        (data, full, None, "full is not empty"),
        (data, full / "thesis.tex", None, "thesis.tex"),
    ):
        line = ("sample", source, "--out", out)
        result = (typed(*line) if processes is None else run(*dsgmcmc(*line, processes=processes))).expect(2)
        assert words in result.err
        assert "Traceback" not in result.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "text.h5"]
    assert [path.name for path in full.iterdir()] == ["thesis.tex"]


# ---------------------------------------------------------------------- what it was started with


def test_a_run_keeps_the_commands_that_made_it(tmp_path: Path) -> None:
    """The first and those that went on, by `info`, in the report and for scripts; the digest knows nothing of them."""
    data, out = write_planted(tmp_path / "r.h5"), tmp_path / "run"
    first = command(data, out, 2, iterations=20)
    run(*first).expect(0)
    typed(*command(data, out, None, "--resume", iterations=40)[3:]).expect(0)
    facts = json.loads(typed("info", out, "--json").expect(0).out)
    line = shlex.join(map(str, first[first.index("sample") :]))
    assert [job["processes"] for job in facts["jobs"]] == [2, 1]
    assert facts["jobs"][0]["command"] == f"dsgmcmc {line}"
    assert facts["jobs"][1]["command"].endswith("--resume")
    shown = "".join(typed("info", out).expect(0).out.split())  # which folds it
    assert "".join(f"started with dsgmcmc {line} (on 2 processes) job 2 dsgmcmc sample".split()) in shown
    typed("report", out, "-o", tmp_path / "r.html").expect(0)
    assert f"<code>dsgmcmc {line}  (on 2 processes)</code>" in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert digest(out) == alone(data, tmp_path / "again", iterations=40)

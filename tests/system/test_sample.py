"""Whole runs as users start them: the same on any processes, resumed, what they write and say, bad
input.
"""

import json
import re
import shlex
import signal
import time
import tomllib
from pathlib import Path

import pandas as pd
import pytest
from support import Running, digest, dsgmcmc, metrics, run, typed, write_planted
from tiny import BURN_IN, GRID, alone, command, content

from dsgmcmc.storage.store import steps

# ---------------------------------------------------------------------- resuming


def test_a_finished_run_is_left_as_it_is(data: Path, finished: Path) -> None:
    """Status 0 at once, on any number of processes: one batch script serves every submission."""
    before = content(finished)
    for processes in (None, 3):
        run(*dsgmcmc("sample", data, "--out", finished, "--resume", processes=processes)).expect(0)
        assert content(finished) == before


def test_more_iterations_continue_a_finished_run(data: Path, tmp_path: Path) -> None:
    """--iterations is the total, and the longer run is the one that would have been made at
    once.
    """
    out = tmp_path / "run"
    short = alone(data, out, iterations=13)
    typed("sample", data, "--out", out, "--resume", "--iterations", "33").expect(0)
    assert digest(out) == alone(data, tmp_path / "long", iterations=33) != short
    assert tomllib.loads((out / "run.toml").read_text())["iterations"] == 33
    assert json.loads((out / "summary.json").read_text())["iterations"] == 33
    assert metrics(out)[-1]["iteration"] == 32


# ---------------------------------------------------------------------- chains


def test_a_job_goes_on_when_only_some_chains_are_finished(data: Path, tmp_path: Path) -> None:
    """One process made chain 0 and was stopped in chain 1; two processes finish: one of them has
    nothing to do.
    """
    settings = {"iterations": 1000, "chains": 2, "evaluate_every": 20, "checkpoint_every": 1000}
    out = tmp_path / "run"
    with Running(command(data, out, **settings)) as running:
        running.wait_for(out / "metrics-chain-1.jsonl", 2)
        running.signal(signal.SIGUSR1)
        running.wait().expect(75)
    assert steps(out / "checkpoints" / "chain-0") == [BURN_IN, 1000]
    assert steps(out / "checkpoints" / "chain-1")[-1] < 1000
    run(*dsgmcmc("sample", data, "--out", out, "--resume", processes=2)).expect(0)
    assert digest(out) == alone(data, tmp_path / "one", **settings)
    lines = [(line["chain"], line["iteration"]) for line in metrics(out)]
    assert lines == [(chain, n) for chain in range(2) for n in (1, *range(20, 1001, 20))]


def test_a_chain_that_cannot_be_resumed_ends_the_job_with_its_message(
    data: Path, tmp_path: Path
) -> None:
    """On all processes, once, without a traceback, whatever the other chains do; nothing is
    overwritten.
    """
    out = tmp_path / "run"
    alone(data, out, iterations=20, chains=2)
    for shard in (out / "checkpoints" / "chain-1").glob("*/shard-*"):
        shard.write_bytes(b"")
    resume = ("--resume", "--iterations", "30")
    result = run(*dsgmcmc("sample", data, "--out", out, *resume, processes=3), timeout=60).expect(2)
    assert result.err.count("no checkpoint in") == 1
    assert "Traceback" not in result.err
    assert steps(out / "checkpoints" / "chain-1") == [BURN_IN, 20]


# ---------------------------------------------------------------------- what is written


def test_metrics_have_their_keys(finished: Path) -> None:
    """One object a line, in order; times rise; null until there is a posterior mean."""
    lines = pd.DataFrame(metrics(finished))
    assert {"chain", "iteration", "sweep", "time_s", "rmse", "rmse_mean", "tau"} <= set(lines)
    assert lines["iteration"].tolist() == [1, *range(4, 41, 4)]
    assert (lines["sweep"] == lines["iteration"] / GRID).all()
    assert (lines["rmse_mean"].isna() == (lines["iteration"] < 9)).all()
    assert lines["time_s"].is_monotonic_increasing
    assert lines["tau"].nunique() > 1


def test_the_summary_has_its_keys(finished: Path) -> None:
    """Scripts and the benchmark read them."""
    summary = json.loads((finished / "summary.json").read_text(encoding="utf-8"))
    expected = {"iterations": 40, "processes": 2, "grid": GRID, "rank": 3, "sampler": "psgld"}
    assert {name: summary[name] for name in expected} == expected
    assert 0 < summary["mae_mean"] < summary["rmse_mean"]
    assert summary["rmse_mean"] == pytest.approx(metrics(finished)[-1]["rmse_mean"], rel=0.1)
    assert summary["ratings_per_second"] > 0
    expected_phases = {"gradient", "update", "draw", "exchange", "reduce", "evaluate", "checkpoint"}
    assert set(summary["phases"]) == expected_phases
    for times in summary["phases"].values():
        assert 0 < times["mean"] <= times["max"]
    total = sum(times["mean"] for times in summary["phases"].values())
    assert 0.3 * summary["seconds_sampling"] < total <= summary["seconds_sampling"] * 1.01
    assert all(10 << 20 < size < 4 << 30 for size in summary["peak_rss_bytes"])
    assert {"dsgmcmc", "numpy", "numba", "mpi"} <= set(summary["versions"])


def test_what_was_warned_of_is_still_said_afterwards(tmp_path: Path) -> None:
    """`info` and the report say it, because nobody reads the standard error of a batch job."""
    data = write_planted(tmp_path / "r.h5")
    words = "the data hardly tell noise from factors"
    for rank in (2, 16):
        out = tmp_path / str(rank)
        sampled = typed(
            "sample", data, "--out", out, f"--rank={rank}", "--iterations=70", "--seed=1"
        )
        shown = (sampled.expect(0).err, typed("info", out).expect(0).out)
        assert [words in text.replace("\n", " ") for text in shown] == 2 * [rank == 16]
    typed("report", out).expect(0)
    assert words in (out / "report.html").read_text(encoding="utf-8").replace("\n", " ")


def test_without_test_ratings_there_is_no_rmse(tmp_path: Path) -> None:
    """Null everywhere, and a run that ends well all the same, whatever it is called; its report
    lies in it.
    """
    data = write_planted(tmp_path / "r.h5", test=0.0)
    out = tmp_path / "<run> & $c$o"
    assert "no RMSE" in typed(*command(data, out, iterations=20)[3:]).expect(0).out
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert summary["rmse_mean"] is None
    assert summary["mae_mean"] is None
    assert summary["tau"] > 0
    assert all(line["rmse"] is None and line["rmse_mean"] is None for line in metrics(out))
    page = Path(typed("report", out).expect(0).out.strip())
    assert page == out / "report.html"
    text = page.read_text(encoding="utf-8")
    assert "no ratings were held out" in text
    assert "<h1>&lt;run&gt; &amp; $c$o</h1>" in text


def test_dry_run_prints_the_configuration_and_touches_nothing(data: Path, tmp_path: Path) -> None:
    """Valid TOML that --config takes back, with the costs beside it."""
    file = tmp_path / "c.toml"
    file.write_text('rank = 7\nburn-in = "2sweeps"\n[sampler]\nname = "psgld"\nalpha = 0.9\n')
    options = ("--config", file, "--seed", "3", "--set", "sampler.lambda-n=5")
    result = run(
        *dsgmcmc("sample", data, "--out", tmp_path / "run", *options, "--dry-run", processes=2)
    ).expect(0)
    table = tomllib.loads(result.out)
    assert (table["rank"], table["seed"], table["burn_in"], table["grid"]) == (7, 3, 8, 4)
    assert table["sampler"] | {"name": "psgld", "alpha": 0.9, "lambda_n": 5} == table["sampler"]
    assert all(
        table["costs"][name] > 0 for name in ("memory_per_process", "sent_per_sweep", "disk_most")
    )
    assert not (tmp_path / "run").exists()
    del table["costs"]
    again = tmp_path / "again.toml"
    again.write_text(result.out[: result.out.index("[costs]")])
    repeated = typed(
        "sample", data, "--out", tmp_path / "run", "--config", again, "--dry-run"
    ).expect(0)
    assert tomllib.loads(repeated.out) | table == tomllib.loads(repeated.out)


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("source", "out", "options", "processes", "message"),
    [
        ("DATA", "run", ["--set", "schedule=spiral"], 2, "schedule.*spiral"),
        ("DATA", "run", ["--grid", "18"], None, "--grid 18.*17 columns"),
        ("DATA", "run", ["--grid", "1"], 2, "2 processes.*grid of 1"),
        ("absent.h5", "run", [], None, "absent.h5 does not exist"),
        ("text.h5", "run", [], 2, "text.h5 is not a usable ratings file"),
        ("DATA", "full", [], None, "full is not empty"),
        ("DATA", "full/thesis.tex", [], None, "thesis.tex"),
    ],
)
def test_bad_input_ends_in_one_clear_line(
    data: Path,
    tmp_path: Path,
    source: str,
    out: str,
    options: list[str],
    processes: int | None,
    message: str,
) -> None:
    """Status 2, said once and not once a process, no traceback, no output."""
    (tmp_path / "text.h5").write_text("user,item,rating\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    line = (
        "sample",
        data if source == "DATA" else tmp_path / source,
        "--out",
        tmp_path / out,
        *options,
    )
    result = (
        typed(*line) if processes is None else run(*dsgmcmc(*line, processes=processes))
    ).expect(2)
    (said,) = [line for line in result.err.splitlines() if "dsgmcmc:" in line]
    assert re.search(message, said)
    assert "Traceback" not in result.err
    assert result.out == ""
    assert {path.name for path in tmp_path.rglob("*")} == {"text.h5", "full", "thesis.tex"}


# ---------------------------------------------------------------------- while it is being sampled


def test_info_watches_a_run_until_its_job_ends(data: Path, tmp_path: Path) -> None:
    """Its last words are those of the stopped run; settings are said to whoever asks for them."""
    out = tmp_path / "run"
    settings = {"iterations": 1_000_000, "evaluate_every": 20, "checkpoint_every": 1000}
    with Running(command(data, out, **settings)) as running:
        running.wait_for(out / "metrics.jsonl", 2)
        with Running(dsgmcmc("info", out, "--watch", "--settings")) as watching:
            time.sleep(3)  # it looks once at least
            running.signal(signal.SIGUSR1)
            running.wait().expect(75)
            said = watching.wait().expect(0).out
    assert "being sampled: at iteration" in said
    assert "stopped at iteration" in said.rpartition(f"{out}: run")[2]
    assert "config_hash" in said
    assert "config_hash" not in typed("info", out).expect(0).out
    for options in (["--watch", "--json"], ["--watch", "--diagnostics"]):
        assert "--watch prints for people" in typed("info", out, *options).expect(2).err
    for option in ("--watch", "--settings", "--diagnostics"):
        assert "is a ratings file" in typed("info", data, option).expect(2).err


# ---------------------------------------------------------------------- what it was started with


def test_a_run_keeps_the_commands_that_made_it(tmp_path: Path) -> None:
    """The first and those that went on, by `info`, in the report and for scripts; the digest knows
    nothing of them.
    """
    data = write_planted(tmp_path / "r.h5")
    out = tmp_path / "run"
    first = command(data, out, 2, iterations=20)
    run(*first).expect(0)
    typed(*command(data, out, None, "--resume", iterations=40)[3:]).expect(0)
    facts = json.loads(typed("info", out, "--json").expect(0).out)
    line = shlex.join(map(str, first[first.index("sample") :]))
    assert [job["processes"] for job in facts["jobs"]] == [2, 1]
    assert facts["jobs"][0]["command"] == f"dsgmcmc {line}"
    assert facts["jobs"][1]["command"].endswith("--resume")
    shown = "".join(typed("info", out).expect(0).out.split())  # which folds it
    assert (
        "".join(f"started with dsgmcmc {line} (on 2 processes) job 2 dsgmcmc sample".split())
        in shown
    )
    typed("report", out, "-o", tmp_path / "r.html").expect(0)
    assert f"<code>dsgmcmc {line}  (on 2 processes)</code>" in (tmp_path / "r.html").read_text(
        encoding="utf-8"
    )
    assert digest(out) == alone(data, tmp_path / "again", iterations=40)

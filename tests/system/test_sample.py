"""Whole runs as users start them: ``mpirun``, signals, resuming, chains."""

from __future__ import annotations

import json
import signal
import tomllib
from pathlib import Path

from support import Running, digest, dsgmcmc, metrics, run, typed
from tiny import BURN_IN, alone, command, content

from dsgmcmc.storage.lock import is_held
from dsgmcmc.storage.store import steps

# ---------------------------------------------------------------------- the invariant


def test_a_run_stopped_by_usr1_and_resumed_elsewhere_is_the_same(data: Path, tmp_path: Path) -> None:
    """Status 75 and a checkpoint at whatever iteration it was; any other number of processes goes on from there."""
    settings = {"iterations": 400, "sampler": "sgld", "grid": 7}
    out = tmp_path / "run"
    with Running(command(data, out, 3, **settings)) as running:
        running.wait_for(out / "metrics.jsonl", 3)
        running.signal(signal.SIGUSR1)
        running.wait().expect(75)
    burnt_in, stopped = steps(out / "checkpoints" / "chain-0")
    assert burnt_in == BURN_IN
    assert 8 <= stopped < 400
    assert not is_held(out / "lock")
    run(*dsgmcmc("sample", data, "--out", out, "--resume", processes=2)).expect(0)
    assert digest(out) == alone(data, tmp_path / "one", **settings)


# ---------------------------------------------------------------------- resuming


def test_a_finished_run_is_left_as_it_is(data: Path, finished: Path) -> None:
    """Status 0 at once, on any number of processes: one batch script serves every submission."""
    before = content(finished)
    for processes in (None, 3):
        run(*dsgmcmc("sample", data, "--out", finished, "--resume", processes=processes)).expect(0)
        assert content(finished) == before


def test_more_iterations_continue_a_finished_run(data: Path, tmp_path: Path) -> None:
    """--iterations is the total, and the longer run is the one that would have been made at once."""
    out = tmp_path / "run"
    short = alone(data, out, iterations=13)
    typed("sample", data, "--out", out, "--resume", "--iterations", "33").expect(0)
    assert digest(out) == alone(data, tmp_path / "long", iterations=33) != short
    assert tomllib.loads((out / "run.toml").read_text())["iterations"] == 33
    assert json.loads((out / "summary.json").read_text())["iterations"] == 33
    assert metrics(out)[-1]["iteration"] == 32


def test_a_step_size_given_as_an_option_survives(data: Path, tmp_path: Path) -> None:
    """What is not given on resuming comes from the run; giving the same again is no change."""
    step = ("--step-size", "0.01")
    typed(*command(data, tmp_path / "run", None, *step, iterations=11)[3:]).expect(0)
    resume = ("sample", data, "--out", tmp_path / "run", "--resume", "--iterations")
    typed(*resume, "12", *step).expect(0)
    typed(*resume, "13").expect(0)


# ---------------------------------------------------------------------- chains


def test_a_job_goes_on_when_only_some_chains_are_finished(data: Path, tmp_path: Path) -> None:
    """One process made chain 0 and was stopped in chain 1; two processes finish: one of them has nothing to do."""
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


def test_a_chain_that_cannot_be_resumed_ends_the_job_with_its_message(data: Path, tmp_path: Path) -> None:
    """On all processes, once, without a traceback, whatever the other chains do; nothing is overwritten."""
    out = tmp_path / "run"
    alone(data, out, iterations=20, chains=2)
    for shard in (out / "checkpoints" / "chain-1").glob("*/shard-*"):
        shard.write_bytes(b"")
    resume = ("--resume", "--iterations", "30")
    result = run(*dsgmcmc("sample", data, "--out", out, *resume, processes=3), timeout=60).expect(2)
    assert result.err.count("no checkpoint in") == 1
    assert "Traceback" not in result.err
    assert steps(out / "checkpoints" / "chain-1") == [BURN_IN, 20]

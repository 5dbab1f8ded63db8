"""Processes that fail or are killed: the job ends with one clear message, and the run goes on as if nothing were."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from support import Running, copied, digest, dsgmcmc, injected, options_of, rank_pid, run, sample

from dsgmcmc.parallel.comm import Alone
from dsgmcmc.storage.series import step_name, steps
from dsgmcmc.storage.snapshot import Snapshot

SETTINGS: dict[str, Any] = {
    "rank": 3,
    "grid": 5,
    "burn_in": 20,
    "thin": 10,
    "evaluate_every": 20,
    "save_draws": 3,
    "checkpoint_every": 15,
}
FOREVER = 10_000_000
STEP = 0.02  # so few ratings bear no larger one for long
SAMPLER = {"name": "psgld", "step_size": STEP}


def command(data: Path, out: Path, processes: int | None, *more: str, iterations: int = FOREVER) -> tuple[str, ...]:
    options = options_of(SETTINGS)
    options += ["--sampler=psgld", f"--step-size={STEP}", f"--iterations={iterations}", "--resume"]
    return dsgmcmc("sample", data, "--out", out, *options, *more, processes=processes)


def series(out: Path, kind: str = "checkpoints") -> Path:
    return out / kind / "chain-0"


def expect_whole(out: Path) -> int:
    """All snapshots with a final name are whole; the iteration of the newest checkpoint, 0 if there is none."""
    for kind in ("checkpoints", "draws"):
        for iteration in steps(series(out, kind)):
            Snapshot(series(out, kind) / step_name(iteration)).verify()
    return max(steps(series(out)), default=0)


def expect_same(data: Path, out: Path, tmp_path: Path) -> None:
    """Finish the run a little after where it is, and compare it with one that was never interrupted."""
    iterations = expect_whole(out) + 50
    assert sample(Alone(), data, out, resume=True, iterations=iterations, sampler=SAMPLER, **SETTINGS) == 0
    leftovers = [path for path in out.rglob("*") if ".tmp-" in path.name or ".trash-" in path.name]
    assert leftovers == []
    settings = {**SETTINGS, "checkpoint_every": FOREVER}
    assert sample(Alone(), data, tmp_path / "alone", iterations=iterations, sampler=SAMPLER, **settings) == 0
    assert digest(out) == digest(tmp_path / "alone")


# ---------------------------------------------------------------------- exceptions


POINTS = ("load", "exchange", "reduce", "shard")


@pytest.mark.parametrize(
    ("point", "rank"),
    [  # quick: each place on one of the processes
        pytest.param(point, rank, marks=[pytest.mark.long] * (rank != n % 2))
        for n, point in enumerate(POINTS)
        for rank in (0, 1)
    ],
)
def test_an_exception_on_one_process_ends_all_with_one_message(
    data: Path, tmp_path: Path, point: str, rank: int
) -> None:
    """The others would wait for it in MPI for ever."""
    faults = injected(f"{point}=raise,rank={rank},at=2")
    result = run(*command(data, tmp_path / "run", 2), env=faults, timeout=100)
    assert result.code not in (0, 75)
    said = [line for line in result.err.splitlines() if "failed, ending the job" in line]
    assert len(said) == 1, result.err
    assert f"process {rank} of 2" in said[0]
    assert f"RuntimeError: fault injected at {point}" in said[0]


# ---------------------------------------------------------------------- kills


@pytest.mark.parametrize("kills", [6, pytest.param(30, marks=pytest.mark.long)])
def test_kills_at_random_moments_lose_nothing(data: Path, tmp_path: Path, kills: int) -> None:
    """Any process, any moment from the first import on, any number of processes after that."""
    choice = random.Random(6)
    out = tmp_path / "run"
    reached = []
    for number in range(kills):
        processes = (1, 2, 1, 3, 1, 4)[number % 6]
        before = expect_whole(out)
        with Running(command(data, out, processes)) as running:
            victim = rank_pid(running, choice.randrange(processes))
            if number % 5:  # every fifth dies while it starts
                wait_for_more(running, out, before)
            time.sleep(choice.uniform(0, 0.25))
            os.kill(victim, signal.SIGKILL)
            assert running.wait().code not in (0, 75)
        reached.append(expect_whole(out))
    assert reached == sorted(reached)
    assert len(set(reached)) > kills // 3, reached
    expect_same(data, out, tmp_path)


def wait_for_more(running: Running, out: Path, iteration: int) -> None:
    """Wait for a checkpoint after `iteration`."""
    end = time.monotonic() + 100
    while max(steps(series(out)), default=0) <= iteration:
        assert running.process.poll() is None, running.wait()
        assert time.monotonic() < end
        time.sleep(0.01)


PROTOCOL = ("mkdir", "shard", "write", "sync", "rename", "remove")


def test_a_kill_at_any_step_of_the_commit_protocol_loses_nothing(data: Path, tmp_path: Path) -> None:
    """Before and after each write, sync, rename and removal: a snapshot is there whole, or not at all."""
    out = tmp_path / "run"
    expect_killed(data, out, "iteration=kill,at=40", None)
    for at in (5, 8):
        for point in PROTOCOL:
            expect_killed(data, out, f"{point}=kill,at={at}", None)
            expect_killed(data, out, f"{point}.done=kill,at={at + 1}", None)
    for point in ("shard", "shard.done", "write", "sync"):  # what others than process 0 do
        expect_killed(data, out, f"{point}=kill,rank=1,at=4", 2)
    expect_same(data, out, tmp_path)


def expect_killed(data: Path, out: Path, fault: str, processes: int | None) -> None:
    """Run until a fault kills it: checkpoints are whole, and none that was there before is lost."""
    before = expect_whole(out)
    if processes is None:
        code = copied(fault, lambda: sample(Alone(), data, out, True, iterations=FOREVER, sampler=SAMPLER, **SETTINGS))
        assert code == -signal.SIGKILL, fault
    else:
        assert run(*command(data, out, processes), env=injected(fault)).code not in (0, 1, 2, 70, 75), fault
    assert expect_whole(out) >= before, fault

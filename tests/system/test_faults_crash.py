"""Processes that fail or are killed: the job ends with one clear message, and the run goes on as if nothing were."""

from __future__ import annotations

import os
import random
import signal
import time
from functools import partial
from pathlib import Path

import pytest
from support import Running, copied, injected, newest, rank_pid, run, wait_until
from tiny import FOREVER, expect_same, go_on, resuming

from dsgmcmc.storage.store import steps

OFTEN = {"checkpoint_every": 15}

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
    result = run(*resuming(data, tmp_path / "run", 2, **OFTEN), env=faults, timeout=100)
    assert result.code not in (0, 75)
    said = [line for line in result.err.splitlines() if "failed, ending the job" in line]
    assert len(said) == 1, result.err
    assert f"process {rank} of 2" in said[0]
    assert f"RuntimeError: fault injected at {point}" in said[0]


# ---------------------------------------------------------------------- kills


@pytest.mark.parametrize("kills", [5, pytest.param(30, marks=pytest.mark.long)])
def test_kills_at_random_moments_lose_nothing(data: Path, tmp_path: Path, kills: int) -> None:
    """Any process, any moment from the first import on, any number of processes after that."""
    choice = random.Random(6)
    out = tmp_path / "run"
    reached = []
    for number in range(kills):
        processes = (1, 2, 1, 3, 1, 4)[number % 6]
        before = newest(out)
        with Running(resuming(data, out, processes, **OFTEN)) as running:
            victim = rank_pid(running, choice.randrange(processes))
            if number % 5:  # every fifth dies while it starts
                wait_until(partial(has_newer, out, before), lambda: "no new checkpoint")
            time.sleep(choice.uniform(0, 0.25))
            os.kill(victim, signal.SIGKILL)
            assert running.wait().code not in (0, 75)
        reached.append(newest(out))
    assert reached == sorted(reached)
    assert len(set(reached)) > kills // 3, reached
    expect_same(data, out, tmp_path, **OFTEN)


def has_newer(out: Path, iteration: int) -> bool:
    """Whether a run has a checkpoint after `iteration`."""
    return max(steps(out / "checkpoints" / "chain-0"), default=0) > iteration


PROTOCOL = ("mkdir", "shard", "write", "sync", "rename", "remove")


def test_a_kill_at_any_step_of_the_commit_protocol_loses_nothing(data: Path, tmp_path: Path) -> None:
    """Before and after each write, sync, rename and removal: a snapshot is there whole, or not at all."""
    out = tmp_path / "run"
    expect_killed(data, out, "iteration=kill,at=40", None)
    for point in PROTOCOL:
        expect_killed(data, out, f"{point}=kill,at=5", None)
        expect_killed(data, out, f"{point}.done=kill,at=6", None)
    for point in ("shard.done", "write"):  # what others than process 0 do
        expect_killed(data, out, f"{point}=kill,rank=1,at=4", 2)
    expect_same(data, out, tmp_path, **OFTEN)


def expect_killed(data: Path, out: Path, fault: str, processes: int | None) -> None:
    """Run until a fault kills it: checkpoints are whole, and none that was there before is lost."""
    before = newest(out)
    if processes is None:
        code = copied(fault, lambda: go_on(data, out, FOREVER, **OFTEN))
        assert code == -signal.SIGKILL, fault
    else:
        assert run(*resuming(data, out, processes, **OFTEN), env=injected(fault)).code not in (0, 1, 2, 70, 75), fault
    assert newest(out) >= before, fault

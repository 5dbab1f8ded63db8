"""Processes that fail or are killed: the job ends with one clear message, and the run goes on as if nothing were."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest
from support import Running, copied, injected, newest, rank_pid, run
from tiny import FOREVER, expect_same, go_on, resuming, wait_until_past

OFTEN = {"checkpoint_every": 15}

# ---------------------------------------------------------------------- exceptions


@pytest.mark.parametrize(
    ("point", "rank"),
    [  # quick: each place on one of the processes
        pytest.param(point, rank, marks=[pytest.mark.long] * (rank != n % 2))
        for n, point in enumerate(("load", "exchange", "reduce", "shard"))
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
                wait_until_past(running, out, before + 30)
            time.sleep(choice.uniform(0, 0.25))
            os.kill(victim, signal.SIGKILL)
            assert running.wait().code not in (0, 75)
        reached.append(newest(out))
    assert reached == sorted(reached)
    assert len(set(reached)) > kills // 3, reached
    expect_same(data, out, tmp_path, **OFTEN)


def test_a_kill_at_any_step_of_the_commit_protocol_loses_nothing(data: Path, tmp_path: Path) -> None:
    """Before and after each write, sync, rename and removal: a snapshot is there whole, or not at all."""
    out, reached = tmp_path / "run", [0]
    faults = ["iteration=kill,at=40"]
    for point in ("mkdir", "shard", "write", "sync", "rename", "remove"):
        faults += [f"{point}=kill,at=5", f"{point}.done=kill,at=6"]
    for fault in faults:
        assert copied(fault, lambda: go_on(data, out, FOREVER, **OFTEN)) == -signal.SIGKILL, fault
        reached.append(newest(out))
    for fault in ("shard.done=kill,rank=1,at=4", "write=kill,rank=1,at=4"):  # steps of other processes than 0
        assert run(*resuming(data, out, 2, **OFTEN), env=injected(fault)).code not in (0, 1, 2, 70, 75), fault
        reached.append(newest(out))
    assert reached == sorted(reached), reached
    expect_same(data, out, tmp_path, **OFTEN)

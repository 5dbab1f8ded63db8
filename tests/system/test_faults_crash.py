"""Processes that fail or are killed: the job ends with one clear message, and the run goes on as if
nothing were.
"""

import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from mpi4py import MPI
from support import (
    ROOT,
    Running,
    copied,
    digest,
    diverging,
    dsgmcmc,
    injected,
    newest,
    rank_pid,
    run,
)
from tiny import FOREVER, expect_same, go_on, resuming, wait_until_past

OFTEN = {"checkpoint_every": 15}

# ---------------------------------------------------------------------- exceptions


@pytest.mark.parametrize(
    ("point", "rank"),
    [  # quick: each place on one of the processes
        pytest.param(point, rank, marks=[pytest.mark.long] if rank != n % 2 else [])
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


def test_a_kill_at_any_step_of_the_commit_protocol_loses_nothing(
    data: Path, tmp_path: Path
) -> None:
    """Before and after each write, sync, rename and removal: a snapshot is there whole, or not at
    all.
    """
    out = tmp_path / "run"
    reached = [0]
    faults = ["iteration=kill,at=40"]
    for point in ("mkdir", "shard", "write", "sync", "rename", "remove"):
        faults += [f"{point}=kill,at=5", f"{point}.done=kill,at=6"]
    for fault in faults:
        assert copied(fault, lambda: go_on(data, out, FOREVER, **OFTEN)) == -signal.SIGKILL, fault
        reached.append(newest(out))
    # steps of other processes than 0
    for fault in (
        "shard.done=kill,rank=1,at=4",
        "write=kill,rank=1,at=4",
    ):
        assert run(*resuming(data, out, 2, **OFTEN), env=injected(fault)).code not in (
            0,
            1,
            2,
            70,
            75,
        ), fault
        reached.append(newest(out))
    assert reached == sorted(reached), reached
    expect_same(data, out, tmp_path, **OFTEN)


# ------------------------------------------------------------------- kills while a chain falls back

#: Settings with which a chain diverges after burn-in, and in burn-in. Both end with Gibbs sampling.
FALLING: list[dict[str, Any]] = [
    {"checkpoint_every": 15},
    {"checkpoint_every": 15, "metric": "kronecker"},
]

#: Kills where a chain has diverged or goes back, and at the checkpoints where it begins again and
#: after that.
KILLS = [
    f"{point}=kill,at={at}"
    for at in (1, 2)
    for point in ("fall back", "load model", "load model.done", "fall back.done")
]
KILLS += [
    f"{point}=kill,path=step-{step:012d}.tmp-,at={at}"
    for step, at in ((0, 1), (0, 2), (0, 3), (15, 2), (15, 3), (20, 2))
    for point in ("rename", "rename.done")
]

PROGRAM = """
import json, pathlib, sys
from mpi4py import MPI
from support import diverging
for out, settings in json.loads(sys.argv[2]).items():
    assert diverging(MPI.COMM_WORLD, pathlib.Path(sys.argv[1]), pathlib.Path(out), **settings) == 0
"""


def fall(processes: int, data: Path, runs: dict[Path, dict[str, Any]], fault: str = "") -> int:
    """Exit code of processes that make runs whose chains diverge, one after the other."""

    def work() -> int:
        return max(
            diverging(MPI.COMM_SELF, data, out, **settings) for out, settings in runs.items()
        )

    if processes == 1:
        return copied(fault, work) if fault else work()
    settings_of = json.dumps({str(out): settings for out, settings in runs.items()})
    command = (*dsgmcmc(processes=processes)[:-2], "-c", PROGRAM, data, settings_of)
    return run(*command, env=injected(fault), cwd=ROOT / "tests").code


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Digests of the runs that nothing interrupts."""
    folder = tmp_path_factory.mktemp("whole")
    assert fall(1, data, {folder / str(n): settings for n, settings in enumerate(FALLING)}) == 0
    return [digest(folder / str(n)) for n in range(len(FALLING))]


@pytest.mark.parametrize(
    ("processes", "kills"),
    [
        (1, KILLS[::4]),
        (3, KILLS[13:14]),
        *(
            pytest.param(n, KILLS[k : k + 4], marks=pytest.mark.long)
            for n in (1, 2, 3)
            for k in range(0, 20, 4)
        ),
    ],
)
def test_kills_while_a_chain_falls_back_lose_nothing(
    data: Path, tmp_path: Path, whole: list[str], processes: int, kills: list[str]
) -> None:
    """Killed on its way back, while it begins again or at a checkpoint after that, a run ends with
    the same draws.
    """
    runs = {tmp_path / f"run-{number}": FALLING[number % 2] for number in range(len(kills))}
    for kill, (out, settings) in zip(kills, runs.items(), strict=True):
        fault = f"{kill},rank={0 if 'path=' in kill else processes - 1}"
        assert fall(processes, data, {out: settings}, fault) not in (0, 1, 2, 70, 75), fault
    assert fall(processes, data, runs) == 0
    for number, out in enumerate(runs):
        assert digest(out) == whole[number % 2], kills[number]

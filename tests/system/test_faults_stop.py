"""Requests to stop, the end of the wall time, and processes that hang: checkpoint, status 75, and
nothing lost.
"""

import os
import re
import signal
import time
from pathlib import Path

import pytest
from support import Running, digest, injected, newest, rank_pid, run
from tiny import expect_same, go_on, resuming, wait_until_past

from dsgmcmc.parallel.signals import ONE_PRESS
from dsgmcmc.storage.lock import Lock
from dsgmcmc.storage.store import steps

# ---------------------------------------------------------------------- signals


def test_every_way_of_asking_to_stop_loses_nothing(data: Path, tmp_path: Path) -> None:
    """USR1 to mpirun, TERM to one process, both, and twice: status 75; Ctrl-C to a process: 130."""
    out = tmp_path / "run"
    for rank, numbers, code in (
        (None, [signal.SIGUSR1], 75),
        (1, [signal.SIGTERM], 75),
        (1, [signal.SIGUSR1, signal.SIGUSR1, signal.SIGTERM], 75),
        (1, [signal.SIGINT], 130),
    ):
        before = newest(out)
        with Running(resuming(data, out, 2, "--checkpoint-every=1h")) as running:
            wait_until_past(running, out, before + 40)
            pid = running.process.pid if rank is None else rank_pid(running, rank)
            for number in numbers:
                os.kill(pid, number)
            running.wait().expect(code)
        assert newest(out) > before
        assert not (out / "listening").exists()
    expect_same(data, out, tmp_path)


def test_chains_that_end_together_stop_together(data: Path, tmp_path: Path) -> None:
    """A process of one chain is told to stop: the other chain stops at the next look, wherever the
    first one is.
    """
    out = tmp_path / "run"
    chains = "--chains=2"
    with Running(
        resuming(data, out, 2, chains, "--until=rhat=1.00001", "--checkpoint-every=1h")
    ) as running:
        wait_until_past(running, out, 40)
        os.kill(rank_pid(running, 1), signal.SIGUSR1)
        running.wait().expect(75)
    iterations = 50 + max(steps(out / "checkpoints" / f"chain-{chain}")[-1] for chain in (0, 1))
    run(*resuming(data, out, None, chains, "--until=none", iterations=iterations)).expect(0)
    assert go_on(data, tmp_path / "alone", iterations, chains=2) == 0
    assert digest(out) == digest(tmp_path / "alone")


def test_a_job_says_when_it_can_be_asked_to_stop(data: Path, tmp_path: Path) -> None:
    """`RUN/listening` is what job scripts wait for: one that a killed job left is removed first,
    and none is left.
    """
    out = tmp_path / "run"
    assert run(*resuming(data, out, 2), env=injected("iteration=kill,at=30")).code not in (0, 75)
    listening = out / "listening"
    left = listening.stat().st_mtime_ns
    with Running(resuming(data, out, 2)) as running:
        running.until(
            lambda: listening.exists() and listening.stat().st_mtime_ns != left, "listening"
        )
        os.kill(rank_pid(running, 1), signal.SIGUSR1)
        running.wait().expect(75)
    assert not listening.exists()


def test_signals_during_start_up_are_not_lost(data: Path, tmp_path: Path) -> None:
    """As soon as the program has begun, before the heavy imports: a checkpoint at the first
    iteration, and 75.
    """
    out = tmp_path / "run"
    with Running(resuming(data, out, 2)) as running:
        for rank in range(2):
            pid = rank_pid(running, rank)
            while not handles_usr1(pid):
                time.sleep(0.001)
            assert "numba" not in Path(f"/proc/{pid}/maps").read_text()
            os.kill(pid, signal.SIGUSR1)
        running.wait().expect(75)
    assert 1 <= newest(out) <= 3
    expect_same(data, out, tmp_path)


def handles_usr1(pid: int) -> bool:
    """Whether a process has a handler for SIGUSR1."""
    caught = re.search(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)[
        1
    ]
    return bool(int(caught, 16) >> (signal.SIGUSR1 - 1) & 1)


def test_a_signal_during_a_checkpoint_waits_for_it(data: Path, tmp_path: Path) -> None:
    """One that is being written is completed, then one of the iteration at which all stop is."""
    out = tmp_path / "run"
    faults = injected("shard=sleep:2,rank=1", "shard=usr1,rank=0,at=2")  # the first is the index
    run(*resuming(data, out, 2, "--checkpoint-every=30"), env=faults).expect(75)
    saved = steps(out / "checkpoints" / "chain-0")
    assert len(saved) == 2
    assert saved[0] == 30
    expect_same(data, out, tmp_path)


def test_a_second_ctrl_c_ends_at_once(data: Path, tmp_path: Path) -> None:
    """Whoever cannot wait for a slow checkpoint loses that one only."""
    out = tmp_path / "run"
    run(*resuming(data, out, None, iterations=40)).expect(0)
    # the first comes of itself, and what is then written takes a minute
    faults = injected("iteration=int,at=30", "shard=sleep:60")
    with Running(resuming(data, out, None, "--checkpoint-every=1h"), faults) as running:
        running.until(lambda: list((out / "checkpoints" / "chain-0").glob("*.tmp-*")), "writing")
        time.sleep(2 * ONE_PRESS)
        running.signal(signal.SIGINT)
        assert running.wait(50).code == -signal.SIGINT
    assert newest(out) == 40
    expect_same(data, out, tmp_path)


def test_a_run_that_waits_for_the_lock_can_be_stopped(data: Path, tmp_path: Path) -> None:
    """Whichever process gets the signal, the lock of a lost host is no longer waited for."""
    path = tmp_path / "run" / "lock"
    path.parent.mkdir()
    assert Lock(path).attempt()
    path.write_text("process 1 on elsewhere")
    for processes, number, code in (
        (None, signal.SIGTERM, 75),
        (2, signal.SIGUSR1, 75),
        (2, signal.SIGINT, 130),
    ):
        with Running(resuming(data, tmp_path / "run", processes)) as running:
            pid = running.process.pid if processes is None else rank_pid(running, 1)
            running.until(lambda pid=pid: handles_usr1(pid), "it handles signals")
            os.kill(pid, number)
            result = running.wait(60).expect(code)
        assert "stopped while another job uses it" in result.out
    assert list(path.parent.iterdir()) == [path]


def test_a_process_that_waits_for_another_hears_ctrl_c(data: Path, tmp_path: Path) -> None:
    """A second Ctrl-C ends a process although another one reads for a minute."""
    with Running(resuming(data, tmp_path / "run", 2), injected("load=sleep:60,rank=0")) as running:
        running.until((tmp_path / "run" / "listening").exists, "listening")
        time.sleep(1)  # until all wait
        for _ in range(2):
            os.kill(rank_pid(running, 1), signal.SIGINT)
            time.sleep(2 * ONE_PRESS)
        assert running.wait(30).code not in (0, 75)


# ---------------------------------------------------------------------- the wall time


def test_the_wall_time_ends_a_run_in_time(data: Path, tmp_path: Path) -> None:
    """Status 75 and a checkpoint, given as a time or taken from Slurm; a slow disk is known before
    the end.
    """
    out = tmp_path / "run"
    for processes, time_limit, faults in (
        (None, "00:00:06", {}),
        (2, "auto", injected("shard=sleep:1,rank=1,at=*")),
    ):
        before = newest(out)
        environment = {**faults, "SLURM_JOB_END_TIME": str(int(time.time()) + 10)}
        options = (f"--max-walltime={time_limit}", "--checkpoint-every=1h")
        run(*resuming(data, out, processes, *options), env=environment).expect(75)
        assert newest(out) > before
    expect_same(data, out, tmp_path)


# ---------------------------------------------------------------------- hangs


def test_a_stopped_process_ends_the_job_with_the_stacks_of_the_others(
    data: Path, tmp_path: Path
) -> None:
    """MPI would wait for it for ever."""
    out = tmp_path / "run"
    with Running(resuming(data, out, 2, "--watchdog=3", "--checkpoint-every=20")) as running:
        wait_until_past(running, out, 40)
        os.kill(rank_pid(running, 1), signal.SIGSTOP)
        result = running.wait(100)
    assert result.code not in (0, 75)
    assert "process 0 of 2" in result.err
    assert "has made no progress for 3 s" in result.err
    assert "most recent call first" in result.err
    assert "dsgmcmc/runs/chain.py" in result.err
    expect_same(data, out, tmp_path)


@pytest.mark.long
def test_a_slow_checkpoint_is_no_hang(data: Path, tmp_path: Path) -> None:
    """Neither on this process nor on another, neither behind the chain's back nor at the end."""
    faults = injected(
        "shard=sleep:5,rank=1",  # of the first checkpoint
        "shard=sleep:5,rank=1,at=4",  # of the posterior, after a draw and the second checkpoint
        "manifest=sleep:5,rank=0,at=2",  # of the first checkpoint; before came the index
    )
    command_line = resuming(
        data, tmp_path / "run", 2, "--watchdog=3", "--checkpoint-every=20", iterations=30
    )
    run(*command_line, env=faults).expect(0)
    assert newest(tmp_path / "run") == 30

"""When a chain on one process saves its draws and checkpoints, and when it gives up."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from support import metrics, sample

from dsgmcmc.errors import DivergenceError
from dsgmcmc.storage.store import Snapshot, step_name, steps


def go(data: Path, out: Path, **settings: Any) -> Path:
    """Sample and return the run directory."""
    defaults: dict[str, Any] = {"sampler": "psgld", "rank": 3, "iterations": 40}
    defaults |= {"burn_in": 8, "thin": 4, "evaluate_every": 4, "save_draws": 3}
    assert sample(MPI.COMM_SELF, data, out, **(defaults | settings)) == 0
    return out


def checkpoint(out: Path, iteration: int) -> Path:
    return out / "checkpoints" / "chain-0" / step_name(iteration)


def saved(out: Path, series: str = "checkpoints") -> list[int]:
    return steps(out / series / "chain-0")


# ---------------------------------------------------------------------- divergence


def test_a_diverged_state_is_never_saved(data: Path, tmp_path: Path) -> None:
    """Checkpoints stay intact where a state is looked at rarely, and a run with a diverged state
    does not end well.
    """
    settings: dict[str, Any] = {"evaluate_every": 1000, "checkpoint_every": 1, "burn_in": 100}
    with pytest.raises(
        DivergenceError, match=r"chain 0 diverged by iteration .*smaller --step-size$"
    ):
        go(
            data,
            tmp_path / "run",
            sampler={"name": "sgld", "step_size": 60.0},
            iterations=400,
            **settings,
        )
    assert not (tmp_path / "run" / "summary.json").exists()
    kept = saved(tmp_path / "run")
    assert kept
    for iteration in kept:
        snapshot = Snapshot(checkpoint(tmp_path / "run", iteration))
        for key in snapshot.block_keys():
            if key.object == "state":
                assert np.isfinite(snapshot.read(key)).all()


# ---------------------------------------------------------------------- checkpoints and draws


def test_the_newest_checkpoints_are_kept(data: Path, tmp_path: Path) -> None:
    """The newest two checkpoints stay, and that of the end of burn-in where a chain may begin
    again.
    """
    assert saved(go(data, tmp_path / "run", checkpoint_every=7)) == [8, 35, 40]
    section = {"name": "psgld", "step_size": 0.01}  # named, so that no chain begins again
    named = go(data, tmp_path / "named", checkpoint_every=7, sampler=section)
    assert saved(named) == [35, 40]


def test_metrics_are_cut_back_to_the_checkpoint(data: Path, tmp_path: Path) -> None:
    """A resumed run replaces the lines that a killed run wrote after its checkpoint, the last
    perhaps by half.
    """
    out = go(data, tmp_path / "run", checkpoint_every=20)
    before = metrics(out)
    shutil.rmtree(checkpoint(out, 40))
    with (out / "metrics.jsonl").open("a") as file:
        file.write('{"chain": 0, "iterat')
    assert sample(MPI.COMM_SELF, data, out, resume=True) == 0
    after = metrics(out)
    assert [line["iteration"] for line in after] == [1, *range(4, 41, 4)]
    for old, new in zip(before, after, strict=True):
        assert {**old, "time_s": 0} == {**new, "time_s": 0}
    times = [line["time_s"] for line in after]
    assert times == sorted(times)

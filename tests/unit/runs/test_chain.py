"""When a chain on one process draws, saves, falls back and gives up."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from support import digest, metrics, sample, spoil

from dsgmcmc.errors import DivergenceError, InputError
from dsgmcmc.posterior.run import Run
from dsgmcmc.storage.store import Snapshot, step_name, steps


def go(data: Path, out: Path, **settings: Any) -> Path:
    """Sample and return the run directory."""
    usual: dict[str, Any] = {"sampler": "psgld", "rank": 3, "iterations": 40}
    usual |= {"burn_in": 8, "thin": 4, "evaluate_every": 4, "save_draws": 3}
    assert sample(MPI.COMM_SELF, data, out, **(usual | settings)) == 0
    return out


def checkpoint(out: Path, iteration: int) -> Path:
    return out / "checkpoints" / "chain-0" / step_name(iteration)


def saved(out: Path, kind: str = "checkpoints") -> list[int]:
    return steps(out / kind / "chain-0")


# ---------------------------------------------------------------------- when parameters are drawn


def test_tau_is_drawn_from_one_sweep_however_late(data: Path, tmp_path: Path) -> None:
    """The errors of one sweep determine tau; the sum over several would divide it by their number."""
    taus = {}
    for start in (0, 6):
        settings = {"hyper_start": start, "sampler": {"name": "baoab", "step_size": 0.02}}
        out = go(data, tmp_path / f"{start}", iterations="6sweeps", burn_in=0, evaluate_every=1, **settings)
        taus[start] = metrics(out)[-1]["tau"]
        assert metrics(out)[-1]["sweep"] == 6
    # the chain has not moved far in six sweeps, and a draw of tau scatters by 12 %
    assert taus[6] == pytest.approx(taus[0], rel=0.6)


# ---------------------------------------------------------------------- divergence


def test_a_diverged_state_is_never_saved(data: Path, tmp_path: Path) -> None:
    """Checkpoints stay intact where a state is looked at rarely, and a run with a diverged state does not end well."""
    settings: dict[str, Any] = {"evaluate_every": 1000, "checkpoint_every": 1, "burn_in": 100}
    with pytest.raises(DivergenceError, match=r"chain 0 diverged by iteration .*smaller --step-size$"):
        go(data, tmp_path / "run", sampler={"name": "sgld", "step_size": 60.0}, iterations=400, **settings)
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
    """The newest two checkpoints stay, and that of the end of burn-in where a chain may begin again."""
    assert saved(go(data, tmp_path / "run", checkpoint_every=7)) == [8, 35, 40]
    section = {"name": "psgld", "step_size": 0.01}  # named, so that no chain begins again
    named = go(data, tmp_path / "named", checkpoint_every=7, sampler=section)
    assert saved(named) == [35, 40]


def test_draws_follow_from_the_number_of_iterations(data: Path, tmp_path: Path) -> None:
    """Which draws are saved depends neither on checkpoints nor on the end of the run."""
    whole = go(data, tmp_path / "whole")
    assert [iteration for _, iteration in Run(whole).draws] == [12, 20, 28, 36]
    assert saved(whole, "draws") == [40]
    often = go(data, tmp_path / "often", checkpoint_every=3)
    assert saved(often, "draws") == [12, 21, 30, 36]
    assert Run(often).draws == Run(whole).draws
    assert digest(often) == digest(whole)


def test_a_damaged_checkpoint_is_skipped_and_written_again(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A damaged checkpoint is made again from the one before, whose draws still exist though thinned out since."""
    settings = {"checkpoint_every": 5, "save_draws": 2, "burn_in": 0, "thin": 1, "iterations": 22}
    out = go(data, tmp_path / "run", **settings)
    expected = digest(out)
    spoil(checkpoint(out, 22) / "shard-00000.h5")
    assert sample(MPI.COMM_SELF, data, out, resume=True) == 0
    assert "trying the checkpoint before that one" in capsys.readouterr().err
    assert digest(out) == expected
    assert [line["iteration"] for line in metrics(out)] == [1, 4, 8, 12, 16, 20]


def test_a_missing_draw_is_found(data: Path, tmp_path: Path) -> None:
    """`verify` misses a draw that the newest checkpoint counts."""
    out = go(data, tmp_path / "run", checkpoint_every=10)
    shutil.rmtree(out / "draws" / "chain-0" / step_name(20))
    with pytest.raises(InputError, match="no draw of iteration 12"):
        digest(out)


def test_metrics_are_cut_back_to_the_checkpoint(data: Path, tmp_path: Path) -> None:
    """A resumed run replaces the lines that a killed run wrote after its checkpoint, the last perhaps by half."""
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

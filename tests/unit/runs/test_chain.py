"""A chain's own promises, on one process: when it draws, saves, falls back and gives up."""

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
from dsgmcmc.storage.store import Key, Snapshot, step_name, steps

SELF = MPI.COMM_SELF


def go(data: Path, out: Path, **settings: Any) -> Path:
    """Sample and return the run directory."""
    base: dict[str, Any] = {"sampler": {"name": "psgld"}, "rank": 3, "iterations": 40}
    base |= {"burn_in": 8, "thin": 4, "evaluate_every": 4, "save_draws": 3}
    assert sample(SELF, data, out, **{**base, **settings}) == 0
    return out


def checkpoint(out: Path, iteration: int) -> Path:
    return out / "checkpoints" / "chain-0" / step_name(iteration)


def saved(out: Path, kind: str = "checkpoints") -> list[int]:
    return steps(out / kind / "chain-0")


# ---------------------------------------------------------------------- when parameters are drawn


def test_tau_is_drawn_from_one_sweep_however_late(data: Path, tmp_path: Path) -> None:
    """Errors of several sweeps added up would divide tau by their number."""
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
    """The message promises that the last checkpoint is intact, also where it is looked at rarely."""
    settings: dict[str, Any] = {"evaluate_every": 1000, "checkpoint_every": 1, "burn_in": 100}
    with pytest.raises(DivergenceError, match="chain 0 diverged by iteration"):
        go(data, tmp_path / "run", sampler={"name": "sgld", "step_size": 60.0}, iterations=400, **settings)
    kept = saved(tmp_path / "run")
    assert kept
    for iteration in kept:
        snapshot = Snapshot(checkpoint(tmp_path / "run", iteration))
        for key in snapshot.names():
            if key.object == "state":
                assert np.isfinite(snapshot.read(key)).all()


def test_a_run_does_not_end_well_with_a_diverged_state(data: Path, tmp_path: Path) -> None:
    """Although no line of metrics was due since."""
    sampler = {"name": "sgld", "step_size": 1e6}
    with pytest.raises(DivergenceError, match=r"smaller --step-size$"):
        go(data, tmp_path / "run", sampler=sampler, iterations=40, evaluate_every=1000)
    assert not (tmp_path / "run" / "summary.json").exists()


# ---------------------------------------------------------------------- checkpoints and draws


def test_the_newest_checkpoints_are_kept(data: Path, tmp_path: Path) -> None:
    """Every so many iterations and at the end; the newest two stay, and that of the end of burn-in."""
    assert saved(go(data, tmp_path / "run", checkpoint_every=7)) == [8, 35, 40]
    section = {"name": "psgld", "step_size": 0.01}  # named, so that no chain begins again
    named = go(data, tmp_path / "named", checkpoint_every=7, sampler=section)
    assert saved(named) == [35, 40]


def test_draws_follow_from_the_number_of_iterations(data: Path, tmp_path: Path) -> None:
    """Burn-in, thinning and what is kept do not know of checkpoints, nor of the end of the run."""
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
    """The draws that the previous checkpoint needs still exist, although they have been thinned out since."""
    settings = {"checkpoint_every": 5, "save_draws": 2, "burn_in": 0, "thin": 1, "iterations": 22}
    out = go(data, tmp_path / "run", **settings)
    expected = digest(out)
    spoil(checkpoint(out, 22) / "shard-00000.h5")
    assert sample(SELF, data, out, resume=True) == 0
    assert "falling back to the checkpoint before it" in capsys.readouterr().err
    assert digest(out) == expected
    assert [line["iteration"] for line in metrics(out)] == [1, 4, 8, 12, 16, 20]


def test_a_missing_draw_is_found(data: Path, tmp_path: Path) -> None:
    """`verify` knows from the newest checkpoint which draws there must be."""
    out = go(data, tmp_path / "run", checkpoint_every=10)
    shutil.rmtree(out / "draws" / "chain-0" / step_name(20))
    with pytest.raises(InputError, match="no draw of iteration 12"):
        digest(out)


def test_metrics_are_cut_back_to_the_checkpoint(data: Path, tmp_path: Path) -> None:
    """A run that was killed had written lines, and perhaps half of one, that are made again."""
    out = go(data, tmp_path / "run", checkpoint_every=20)
    before = metrics(out)
    shutil.rmtree(checkpoint(out, 40))
    with (out / "metrics.jsonl").open("a") as file:
        file.write('{"chain": 0, "iterat')
    assert sample(SELF, data, out, resume=True) == 0
    after = metrics(out)
    assert [line["iteration"] for line in after] == [1, *range(4, 41, 4)]
    for old, new in zip(before, after, strict=True):
        assert {**old, "time_s": 0} == {**new, "time_s": 0}
    times = [line["time_s"] for line in after]
    assert times == sorted(times)


def test_the_posterior_is_of_the_draws(data: Path, tmp_path: Path) -> None:
    """Mean of the saved draws, where all are saved and of equal weight, is the posterior mean."""
    sampler = {"name": "psgld", "burn_in_step_size": 0.04}
    out = go(data, tmp_path / "run", save_draws=20, sampler=sampler)
    posterior = Snapshot(out / "posterior" / "chain-0" / step_name(40))
    saved_draws = Snapshot(out / "draws" / "chain-0" / step_name(40))
    assert saved_draws.manifest.saved_draws == list(range(12, 41, 4))
    for factor in "WH":
        draws = saved_draws.read(Key("draw", factor, 2, "theta"))
        mean = posterior.read(Key("moments", factor, 2, "mean"))
        variance = posterior.read(Key("moments", factor, 2, "variance"))
        np.testing.assert_allclose(mean, np.mean(draws, axis=0), atol=1e-6)
        np.testing.assert_allclose(variance, np.var(draws, axis=0), atol=1e-6)

"""Damaged, swapped and unwritable files, divergence, two runs in one directory: found, named, never
a wrong answer.
"""

import json
import math
import os
import re
import shutil
import signal
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from mpi4py import MPI
from support import Running, digest, run, sample, spoil, typed
from tiny import LONG, go_on, resuming

from dsgmcmc import BPMF
from dsgmcmc.config.job import Policy
from dsgmcmc.diagnostics.overview import audit
from dsgmcmc.diagnostics.summary import read_summary, save_summary
from dsgmcmc.errors import DivergenceError, InputError
from dsgmcmc.posterior.run import Run
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.storage.store import MANIFEST, read_manifest, seal, step_name

EVERY = {"checkpoint_every": 20}
command = partial(resuming, iterations=80, **EVERY)
go = partial(sample, MPI.COMM_SELF, resume=True)


@pytest.fixture(scope="module")
def runs(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a run stopped after 60 iterations, with checkpoints of 40 and 60, and one of 80
    in one go.
    """
    folder = tmp_path_factory.mktemp("runs")
    assert go_on(data, folder / "stopped", 60, **EVERY) == 0
    assert go_on(data, folder / "ended", 80, **EVERY) == 0
    return folder


@pytest.fixture(scope="module")
def expected(runs: Path) -> str:
    """Digest of the run that nothing interrupted."""
    return digest(runs / "ended")


@pytest.fixture
def out(runs: Path, tmp_path: Path) -> Path:
    """Copy of the stopped run, for a test to spoil."""
    return Path(shutil.copytree(runs / "stopped", tmp_path / "run"))


def checkpoint(out: Path, iteration: int = 60) -> Path:
    return out / "checkpoints" / "chain-0" / step_name(iteration)


# ---------------------------------------------------------------------- damage


def edit(snapshot: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest as somebody would who also knows how to seal it."""
    path = snapshot / MANIFEST
    content = json.loads(path.read_text(encoding="utf-8"))
    del content["sha256"]
    change(content)
    path.write_text(seal(json.dumps(content, indent=1)), encoding="utf-8")


SHARD = "shard-00000.h5"
DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "one bit": (lambda at: spoil(at / SHARD), SHARD),
    "a deleted shard": (lambda at: (at / SHARD).unlink(), SHARD),
    "a truncated manifest": (lambda at: os.truncate(at / MANIFEST, 3000), "incomplete or damaged"),
    "a later version": (lambda at: edit(at, lambda content: content.update(version=3)), "version"),
    "another checkpoint under its name": (
        lambda at: (shutil.rmtree(at), shutil.copytree(checkpoint(at.parents[2], 40), at)),
        "has another identity",
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_named_and_the_checkpoint_before_is_used(
    data: Path, out: Path, expected: str, capfd: pytest.CaptureFixture[str], what: str
) -> None:
    """With a warning and a record, and then the chain is the same; notes that lie about are left
    alone.
    """
    damage, words = DAMAGE[what]
    damage(checkpoint(out))
    mine = checkpoint(out).parent / "notes"
    mine.mkdir()
    assert go(data, out, iterations=80) == 0
    said = [
        line
        for line in capfd.readouterr().err.splitlines()
        if "trying the previous checkpoint" in line
    ]
    assert len(said) == 1
    assert words in said[0]
    assert step_name(60) in said[0]
    assert [e["iteration"] for e in RunDirectory(out).events() if e["event"] == "fell back"] == [60]
    assert mine.is_dir()
    assert digest(out) == expected


def test_damage_on_one_process_is_everyone_s(data: Path, out: Path, expected: str) -> None:
    """Only process 1 reads the damaged block; all go back to the same checkpoint."""
    run(*command(data, out, 2, iterations=70)).expect(0)
    spoil(checkpoint(out, 70) / "shard-00001.h5")
    result = run(*command(data, out, 2)).expect(0)
    assert result.err.count("trying the previous checkpoint") == 1
    assert digest(out) == expected


def lose(folder: Path) -> None:
    """As a disk does that lost a write: the file is there, and its blocks hold something else."""
    largest = max(read_manifest(folder).blocks, key=lambda entry: math.prod(entry.shape))
    spoil(folder / SHARD, largest.key.path)


REPAIRED: dict[str, Callable[[Path], object]] = {
    "the index": lambda out: lose(out / "index"),
    "the newest draw": lambda out: lose(sorted((out / "draws" / "chain-0").iterdir())[-1]),
    "a deleted draw": lambda out: shutil.rmtree(sorted((out / "draws" / "chain-0").iterdir())[-1]),
    "the posterior": lambda out: lose(out / "posterior" / "chain-0" / step_name(80)),
    "the summary": lambda out: os.truncate(out / "summary.json", 40),
}


@pytest.mark.parametrize("what", REPAIRED)
def test_resuming_repairs_a_finished_run(
    data: Path, runs: Path, tmp_path: Path, expected: str, what: str
) -> None:
    """Files that follow from a checkpoint or the ratings are made again."""
    out = Path(shutil.copytree(runs / "ended", tmp_path / "run"))
    REPAIRED[what](out)
    with pytest.raises(InputError):
        audit(RunDirectory(out))
    assert go(data, out) == 0
    assert audit(RunDirectory(out)) == expected
    assert Run(out).draw(0).tau > 0


def test_a_summary_of_an_earlier_state_is_replaced(data: Path, runs: Path, tmp_path: Path) -> None:
    """The last job may have failed to write it; until it is written, nobody sees the old scores as
    the result.
    """
    out = Path(shutil.copytree(runs / "ended", tmp_path / "run"))
    written = read_summary(out / "summary.json")
    save_summary(out / "summary.json", written | {"reached": [40], "rmse_mean": 7.0})
    assert "no result yet" in typed("info", out).expect().out
    assert go(data, out) == 0
    assert read_summary(out / "summary.json")["rmse_mean"] == written["rmse_mean"]


def test_an_index_of_other_settings_is_replaced(data: Path, runs: Path, tmp_path: Path) -> None:
    """A job may end between the index and `run.toml`; the next one may have other settings."""
    new = Path(shutil.copytree(runs / "ended" / "index", tmp_path / "new" / "index")).parent
    typed(
        "sample", data, "--out", new, "--resume", "--rank", 1, "--iterations", 20, "--burn-in", 5
    ).expect()
    assert Run(new).config.rank == 1


def test_a_draw_that_every_checkpoint_counts_on_cannot_be_made_again(data: Path, out: Path) -> None:
    """It is named, with what helps, and nothing is deleted."""
    first = min((out / "draws" / "chain-0").iterdir())
    lose(first)
    before = sorted(out.rglob("*"))
    with pytest.raises(
        InputError, match=rf"{first.name}/{SHARD} is missing or damaged.*start again"
    ):
        go(data, out, iterations=80)
    assert [path for path in before if not path.exists()] == []


def test_something_else_than_before_is_warned_of_and_recorded(
    data: Path, out: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Another processor or library goes on, but the bits may differ."""
    other = {"cpu": "Abacus 1", "numpy": "0.1"}
    edit(checkpoint(out), lambda content: content["about"]["versions"].update(other))
    settings = tomllib.loads((out / "run.toml").read_text())
    settings["run"]["versions"].update(other)
    (out / "run.toml").write_text(tomli_w.dumps(settings))
    for iterations in (80, 90):  # the run began so, however often it goes on
        assert go(data, out, iterations=iterations) == 0
        said = capfd.readouterr().err
        assert said.count("this run began with other versions (") == 1
        assert f"numpy 0.1 -> {np.__version__}" in said
        assert "cpu Abacus 1 -> " in said
    shown = json.loads(typed("info", out, "--json").expect().out)
    assert shown["run"]["versions"]["numpy"] == "0.1"
    assert [changes["numpy"] for changes in shown["version_changes"].values()] == [
        ["0.1", np.__version__]
    ]
    assert re.search(
        rf"from iteration \d+ +numpy {np.__version__}, cpu ", typed("info", out).expect().out
    )
    events = RunDirectory(out).events()
    assert [event["changes"]["numpy"][0] for event in events if "changes" in event] == ["0.1"]
    assert json.loads((out / "summary.json").read_text())["events"] == events


def test_what_the_user_named_is_not_replaced(data: Path, tmp_path: Path) -> None:
    """A sampler with its step diverges with an error that says where; so does any where it is asked
    to stop.
    """
    words = r"by iteration \d+: block \d of [WH] has .* at step size .*Use a smaller --step-size"
    settings = {"rank": 3, "grid": 5, "burn_in": 20, "iterations": 200, "checkpoint_every": 4}
    for policy, sampler in (
        (Policy(), {"name": "sgld", "step_size": 40.0}),
        (Policy(on_divergence="stop"), {"burn_in_step_size": 300.0}),
    ):
        out = tmp_path / policy.on_divergence
        with pytest.raises(DivergenceError, match=words):
            go(data, out, policy=policy, sampler=sampler, **settings)
        assert not (out / "posterior").exists()


# ---------------------------------------------------------------------- two runs, and readers


def test_two_runs_in_one_directory(data: Path, out: Path, expected: str) -> None:
    """The second refuses and says who the first is; when that is dead nobody waits for it."""
    with Running(command(data, out, 2, iterations=10_000_000)) as running:
        running.wait_for(out / "events.jsonl", 1)
        result = run(*command(data, out, 2)).expect(2)
        owner = (out / "lock").read_text(encoding="utf-8")
        assert result.err.count(f"is in use: {owner}") == 1
        os.kill(int(owner.split()[1]), signal.SIGKILL)
        running.wait()
    # by the settings, after the lock was taken
    refused = run(*command(data, out, 2, iterations=10)).expect(2)
    assert "cannot end at iteration 10" in refused.err


def test_readers_while_the_run_writes(data: Path, tmp_path: Path) -> None:
    """All commands, with checkpoints every few milliseconds; neither they nor the run are
    disturbed.
    """
    out = tmp_path / "run"
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("user,item\n1,2\n3,4\n")
    readers: tuple[tuple[str | Path, ...], ...] = (
        ("verify", out),
        ("info", out),
        ("info", out, "--diagnostics"),
        ("predict", out, pairs, "--out", tmp_path / "predicted.csv"),
        ("recommend", out, "--user", "1"),
        ("export", out, "--out", tmp_path / "run.nc", "--force"),
        ("export", out, "--out", tmp_path / "run.parquet", "--draws", "--force"),
        ("report", out, "--out", tmp_path / "run.html"),
    )
    with Running(command(data, out, 2, iterations=10_000_000)) as running:
        running.wait_for(out / "metrics.jsonl", 40)
        for reader in readers:
            typed(*reader).expect(0)
        model = BPMF.load(out).fold_in([[100, 2, 4.0]])
        assert model.predict([[1, 2], [100, 3]]).shape == (2,)
        facts = json.loads(typed("info", out, "--json").expect(0).out)
        assert facts["progress"]["running"]
        assert facts["progress"]["draws"] >= LONG["save_draws"]
        refused = typed("export", out, "--out", tmp_path / "moments.parquet").expect(2)
        assert "no moments yet" in refused.err
        running.signal(signal.SIGUSR1)
        running.wait().expect(75)
    digest(out)

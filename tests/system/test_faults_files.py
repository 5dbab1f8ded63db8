"""Damaged, swapped and unwritable files, divergence, two runs in one directory: found, named, never a wrong answer."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from mpi4py import MPI
from support import Running, copied, digest, dsgmcmc, injected, metrics, options_of, run, sample, spoil, typed
from typer.testing import CliRunner

from dsgmcmc import BPMF
from dsgmcmc.cli.app import app
from dsgmcmc.config.job import Policy
from dsgmcmc.diagnostics.audit import audit
from dsgmcmc.diagnostics.summary import read_summary
from dsgmcmc.errors import DivergenceError, InputError
from dsgmcmc.posterior.predict import PredictOptions, Predictor
from dsgmcmc.posterior.run import Run
from dsgmcmc.runs.job import Job
from dsgmcmc.runs.source import RatingsSource
from dsgmcmc.storage.manifest import MANIFEST, read_manifest, seal
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.storage.series import step_name, steps

SETTINGS: dict[str, Any] = {
    "rank": 3,
    "grid": 5,
    "burn_in": 20,
    "thin": 10,
    "evaluate_every": 20,
    "save_draws": 3,
    "checkpoint_every": 20,
}
STEP = 0.02  # so few ratings bear no larger one for long
SAMPLER = {"name": "psgld", "step_size": STEP}


@pytest.fixture(scope="module")
def stopped(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run of 60 iterations with three checkpoints."""
    out = tmp_path_factory.mktemp("run") / "run"
    assert sample(MPI.COMM_SELF, data, out, iterations=60, sampler=SAMPLER, **SETTINGS) == 0
    return out


@pytest.fixture(scope="module")
def expected(data: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Digest of the same run after 80 iterations, made in one go."""
    out = tmp_path_factory.mktemp("run") / "run"
    assert sample(MPI.COMM_SELF, data, out, iterations=80, sampler=SAMPLER, **SETTINGS) == 0
    return digest(out)


@pytest.fixture
def out(stopped: Path, tmp_path: Path) -> Path:
    """Copy of the stopped run, for a test to spoil."""
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def command(data: Path, out: Path, processes: int | None, *more: str, iterations: int = 80) -> tuple[str, ...]:
    options = options_of(SETTINGS)
    options += ["--sampler=psgld", f"--step-size={STEP}", f"--iterations={iterations}", "--resume"]
    return dsgmcmc("sample", data, "--out", out, *options, *more, processes=processes)


def go(data: Path, out: Path, policy: Policy | None = None, **settings: Any) -> int:
    """Resume in this process; the exit status."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)}
    try:
        return Job(MPI.COMM_SELF, RatingsSource(data), out, settings, True, policy).run()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def checkpoint(out: Path, iteration: int = 60) -> Path:
    return out / "checkpoints" / "chain-0" / step_name(iteration)


def events(out: Path, name: str) -> list[dict[str, Any]]:
    return [event for event in RunDirectory(out).events() if event["event"] == name]


# ---------------------------------------------------------------------- damage


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def edit(snapshot: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest as somebody would who also knows how to seal it."""
    path = snapshot / MANIFEST
    content = json.loads(path.read_text(encoding="utf-8"))
    del content["sha256"]
    change(content)
    path.write_text(seal(json.dumps(content, indent=1)), encoding="utf-8")


SHARD = "shard-00000.h5"
DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a truncated shard": (lambda at: os.truncate(at / SHARD, 5000), SHARD),
    "one bit": (lambda at: spoil(at / SHARD), SHARD),
    "a deleted shard": (lambda at: (at / SHARD).unlink(), SHARD),
    "a shard of another checkpoint": (lambda at: shutil.copy(checkpoint(at.parents[2], 40) / SHARD, at), SHARD),
    "no manifest": (lambda at: (at / MANIFEST).unlink(), "not a complete snapshot"),
    "a truncated manifest": (lambda at: os.truncate(at / MANIFEST, 3000), "incomplete or damaged"),
    "a changed manifest": (lambda at: flip(at / MANIFEST, 400), "incomplete or damaged"),
    "a later version": (lambda at: edit(at, lambda content: content.update(version=3)), "version"),
    "another checkpoint under its name": (
        lambda at: (shutil.rmtree(at), shutil.copytree(checkpoint(at.parents[2], 40), at)),
        "holds something else",
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_named_and_the_checkpoint_before_is_used(
    data: Path, out: Path, expected: str, capfd: pytest.CaptureFixture[str], what: str
) -> None:
    """With a warning and a record, and then the chain is the same; notes that lie about are left alone."""
    damage, words = DAMAGE[what]
    damage(checkpoint(out))
    mine = checkpoint(out).parent / "notes"
    mine.mkdir()
    assert go(data, out, iterations=80) == 0
    said = [line for line in capfd.readouterr().err.splitlines() if "falling back" in line]
    assert len(said) == 1
    assert words in said[0]
    assert step_name(60) in said[0]
    assert [event["iteration"] for event in events(out, "fell back")] == [60]
    assert mine.is_dir()
    assert digest(out) == expected


def test_damage_on_one_process_is_everyone_s(data: Path, out: Path, expected: str) -> None:
    """Only process 1 reads the damaged block; all go back to the same checkpoint."""
    run(*command(data, out, 2, iterations=70)).expect(0)
    spoil(checkpoint(out, 70) / "shard-00001.h5")
    result = run(*command(data, out, 2)).expect(0)
    assert result.err.count("falling back") == 1
    assert digest(out) == expected


def test_without_a_readable_checkpoint_a_run_is_refused(data: Path, out: Path) -> None:
    """It would start from the beginning under the eyes of a user who thinks that it goes on."""
    for path in checkpoint(out).parent.iterdir():
        spoil(path / SHARD)
    before = sorted(out.rglob("*"))
    with pytest.raises(InputError, match=r"no checkpoint in .* can be read"):
        go(data, out, iterations=80)
    assert [path for path in before if not path.exists()] == []


@pytest.fixture(scope="module")
def ended(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run of 80 iterations that is finished."""
    out = tmp_path_factory.mktemp("run") / "run"
    assert sample(MPI.COMM_SELF, data, out, iterations=80, sampler=SAMPLER, **SETTINGS) == 0
    return out


def lose(folder: Path) -> None:
    """As a disk does that lost a write: the file is there, and its blocks hold something else."""
    manifest = read_manifest(folder)
    largest = max(manifest.blocks, key=lambda entry: math.prod(entry.shape))
    with h5py.File(folder / SHARD, "r") as file:
        at = file[largest.key.path].id.get_offset()
    flip(folder / SHARD, at)


REPAIRED: dict[str, Callable[[Path], object]] = {
    "the index": lambda out: lose(out / "index"),
    "the index's manifest": lambda out: flip(out / "index" / MANIFEST, 300),
    "the newest draw": lambda out: lose(sorted((out / "draws" / "chain-0").iterdir())[-1]),
    "a deleted draw": lambda out: shutil.rmtree(sorted((out / "draws" / "chain-0").iterdir())[-1]),
    "the posterior": lambda out: lose(out / "posterior" / "chain-0" / step_name(80)),
    "an older checkpoint": lambda out: lose(checkpoint(out, 40)),
    "an older checkpoint's manifest": lambda out: flip(checkpoint(out, 40) / MANIFEST, 400),
    "the summary": lambda out: flip(out / "summary.json", 40),
    "an event": lambda out: (RunDirectory(out).note("anything"), flip(out / "events.jsonl", 0)),
}


@pytest.mark.parametrize("what", REPAIRED)
def test_resuming_repairs_a_finished_run(data: Path, ended: Path, tmp_path: Path, expected: str, what: str) -> None:
    """What follows from a checkpoint or the ratings is made again; what nobody needs any more goes."""
    out = Path(shutil.copytree(ended, tmp_path / "run"))
    REPAIRED[what](out)
    with pytest.raises(InputError):
        audit(RunDirectory(out))
    assert go(data, out) == 0
    assert audit(RunDirectory(out)).digest == expected
    assert Run(out).draw(0).tau > 0


def test_a_draw_that_every_checkpoint_counts_on_cannot_be_made_again(data: Path, out: Path) -> None:
    """It is named, with what helps, and nothing is deleted."""
    shutil.rmtree(checkpoint(out, 20))  # it has no draws yet
    first = min((out / "draws" / "chain-0").iterdir())
    lose(first)
    before = sorted(out.rglob("*"))
    with pytest.raises(InputError, match=rf"{first.name}/{SHARD} is damaged.*start again in a new directory"):
        go(data, out, iterations=80)
    assert [path for path in before if not path.exists()] == []


def test_something_else_than_before_is_warned_of_and_recorded(
    data: Path, out: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Another processor or library goes on, but the bits may differ."""

    def other(content: dict[str, Any]) -> None:
        content["about"]["versions"].update(cpu="Abacus 1", numpy="0.1")

    edit(checkpoint(out), other)
    assert go(data, out, iterations=80) == 0
    said = capfd.readouterr().err
    assert said.count("its bits are no longer those") == 1
    assert "cpu Abacus 1 -> " in said
    (event,) = events(out, "resumed")
    assert event["changes"]["numpy"][0] == "0.1"
    assert json.loads((out / "summary.json").read_text())["events"] == RunDirectory(out).events()


def test_processes_on_different_processors_are_warned_of(data: Path, tmp_path: Path) -> None:
    """The run is whole, but only the same processors give the same bits again."""
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("mount namespaces need root")
    fake = tmp_path / "cpuinfo"
    fake.write_text("model name\t: Abacus 2\n")
    line = command(data, tmp_path / "run", 2)
    at = line.index("2") + 1
    script = (
        'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then exec unshare --mount sh -c '
        f'\'mount --bind {fake} /proc/cpuinfo && exec "$@"\' sh "$@"; fi; exec "$@"'
    )
    result = run(*line[:at], "sh", "-c", script, "sh", *line[at:]).expect(0)
    said = [line for line in result.err.splitlines() if "run on different processors" in line]
    assert len(said) == 1
    assert "Abacus 2" in said[0]


# ---------------------------------------------------------------------- disks


def fill(disk: Path) -> Path:
    """Leave 20 kB free."""
    filler = disk / "filler"
    with filler.open("wb") as file:
        free = shutil.disk_usage(disk).free
        file.write(bytes(max(0, free - 20_000)))
    return filler


def test_a_full_disk_stops_the_run_and_leaves_the_last_checkpoint(
    data: Path, stopped: Path, small_disk: Path, expected: str
) -> None:
    """Status 1, one message; with room again the run goes on as if nothing had been."""
    out = Path(shutil.copytree(stopped, small_disk / "run"))
    filler = fill(small_disk)
    for processes in (None, 2):
        result = run(*command(data, out, processes), timeout=100).expect(1)
        said = [line for line in result.err.splitlines() if line.startswith("dsgmcmc:")]
        assert len(said) == 1, result.err
        assert "No space left on device" in said[0]
        assert "Traceback" not in result.err
        assert steps(out / "checkpoints" / "chain-0")[-1] == 60
    filler.unlink()
    run(*command(data, out, 2)).expect(0)
    assert digest(out) == expected


def test_a_directory_that_one_process_cannot_write_to(data: Path, out: Path, expected: str) -> None:
    """Read-only for process 1 alone, as a mount that went away: all end, with the process and the reason."""
    parent = checkpoint(out).parent
    line = command(data, out, 2)
    at = line.index("2") + 1
    script = (
        'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then exec unshare --mount sh -c '
        f'\'mount --bind {parent} {parent} && mount -o remount,bind,ro {parent} && exec "$@"\' sh "$@"; fi; exec "$@"'
    )
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("mount namespaces need root")
    result = run(*line[:at], "sh", "-c", script, "sh", *line[at:], timeout=100).expect(1)
    assert "process 1 of 2" in result.err
    assert "Read-only file system" in result.err
    assert steps(parent)[-1] == 60
    run(*line).expect(0)
    assert digest(out) == expected


def test_permission_denied_is_said(data: Path, out: Path, expected: str) -> None:
    """Once."""
    result = run(*command(data, out, 2), env=injected("snapshot=EACCES,rank=0")).expect(1)
    assert result.err.count("Permission denied") == 1
    assert go(data, out, iterations=80) == 0
    assert digest(out) == expected


# ---------------------------------------------------------------------- divergence


#: Steps of the default sampler that no fallback with a step survives; its size is not named.
UNSTABLE: dict[str, Any] = {
    **SETTINGS,
    "iterations": 100,
    "evaluate_every": 10,
    "checkpoint_every": 4,
    "sampler": {"burn_in_step_size": 300.0},
}
WILD: dict[str, Any] = {"sampler": {"name": "sgld", "step_size": 40.0}, "iterations": 200}


@pytest.mark.parametrize("prior", ["fixed", "normal-gamma", "normal-wishart"])
def test_divergence_names_iteration_block_and_step(data: Path, tmp_path: Path, prior: str) -> None:
    """Also where nothing is looked at for a long time and numbers have become NaN."""
    settings = {**SETTINGS, **WILD, "prior": prior, "evaluate_every": 150, "checkpoint_every": 190, "burn_in": 180}
    with pytest.raises(DivergenceError, match=r"by iteration 150: block \d of [WH] has .* at step size"):
        go(data, tmp_path / "run", **settings)
    assert not (tmp_path / "run" / "checkpoints").exists()
    assert not (tmp_path / "run" / "posterior").exists()


@pytest.fixture(scope="module")
def recovered(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that diverged at every step of its burn-in, and ended with another sampler."""
    out = tmp_path_factory.mktemp("recovered") / "run"
    assert go(data, out, **UNSTABLE) == 0
    return out


def test_a_chain_that_diverges_begins_again_with_safer_samplers(recovered: Path) -> None:
    """One after another, until one holds: every one of them is said, and only the draws of the last are there."""
    fell_back = events(recovered, "diverged")
    names = ["half the step", "a quarter of the step", "the Kronecker metric", "the sampler gibbs"]
    assert [event["next"] for event in fell_back] == names
    said = read_summary(recovered / "summary.json")["fell_back"]
    assert [(each["chain"], each["next"]) for each in said] == [(0, name) for name in names]
    lines = metrics(recovered)
    assert [line["iteration"] for line in lines] == sorted({line["iteration"] for line in lines})
    assert max(line["rmse"] for line in lines) < 10
    shown = CliRunner().invoke(app, ["info", str(recovered)]).output
    last = f"chain 0 diverged at iteration {said[-1]['iteration']}, and began again with the sampler gibbs"
    assert last in " ".join(shown.split())


@pytest.mark.parametrize("processes", [2, pytest.param(3, marks=pytest.mark.long)])
def test_recovered_draws_do_not_know_the_machine(data: Path, recovered: Path, tmp_path: Path, processes: int) -> None:
    """The same on any number of processes, and where the job is stopped after it has fallen back, and resumed."""
    options = options_of({name: value for name, value in UNSTABLE.items() if name != "sampler"})
    line = dsgmcmc("sample", data, "--out", tmp_path / "run", *options, "--resume", processes=processes)
    line += ("--set", f"sampler.burn_in_step_size={UNSTABLE['sampler']['burn_in_step_size']}")
    run(*line, env=injected("iteration=term,at=75")).expect(75)
    run(*line).expect(0)
    assert digest(tmp_path / "run") == digest(recovered)


@pytest.mark.parametrize(
    "fault",
    [
        *(f"iteration=kill,at={number}" for number in (3, 21, 24, 45, 70)),
        "rename=kill,path=.trash-",
        "remove=kill",
        "rename=kill,at=2,path=.trash-",
        "manifest=kill,at=4",
    ],
)
def test_a_job_may_be_killed_while_a_chain_falls_back(data: Path, recovered: Path, tmp_path: Path, fault: str) -> None:
    """Before, while and after snapshots of the sampler that diverged are removed: the same draws in the end."""
    out = tmp_path / "run"
    assert copied(fault, partial(go, data, out, **UNSTABLE)) == -signal.SIGKILL
    assert go(data, out, **UNSTABLE) == 0
    assert digest(out) == digest(recovered)


def test_what_the_user_named_is_not_replaced(data: Path, tmp_path: Path) -> None:
    """A sampler with its step diverges with an error that says so; so does any where it is asked to stop."""
    for policy, settings in ((Policy(), WILD), (Policy(on_divergence="stop"), UNSTABLE)):
        with pytest.raises(DivergenceError, match="Use a smaller --step-size"):
            go(data, tmp_path / f"{policy.on_divergence}", policy, **{**SETTINGS, **settings})


# ---------------------------------------------------------------------- two runs, and readers


def test_two_runs_in_one_directory(data: Path, out: Path, expected: str) -> None:
    """The second refuses and says who the first is; when that is dead nobody waits for it."""
    with Running(command(data, out, 2, iterations=10_000_000)) as running:
        running.wait_for(out / "events.jsonl", 1)
        pid = json.loads((out / "lock").read_text())["pid"]
        result = run(*command(data, out, 2)).expect(2)
        assert result.err.count(f"is in use: process {pid} on ") == 1
        os.kill(pid, signal.SIGKILL)
        running.wait()
    run(*command(data, out, 2, iterations=10)).expect(0)
    assert not (out / "lock").exists()


def test_readers_while_the_run_writes(data: Path, tmp_path: Path) -> None:
    """All commands, time and again, with checkpoints every few milliseconds; neither they nor the run are disturbed."""
    out, pairs = tmp_path / "run", tmp_path / "pairs.csv"
    pairs.write_text("user,item\n1,2\n3,4\n")
    readers: tuple[tuple[str | Path, ...], ...] = (
        ("verify", out),
        ("info", out),
        ("info", out, "--diagnostics"),
        ("predict", out, pairs, "--out", tmp_path / "predicted.csv"),
        ("recommend", out, "--user", "1"),
        ("evaluate", out, "--liked", "1"),
        ("export", out, "--out", tmp_path / "run.nc", "--force"),
        ("export", out, "--out", tmp_path / "run.parquet", "--draws", "--force"),
        ("report", out, "--out", tmp_path / "run.html"),
    )
    with Running(command(data, out, 2, iterations=10_000_000)) as running:
        running.wait_for(out / "metrics.jsonl", 40)
        for _ in range(2):
            for reader in readers:
                result = CliRunner().invoke(app, [str(part) for part in reader])
                assert result.exception is None, (reader, result.exception)
            model = BPMF.load(out).fold_in([[100, 2, 4.0]])
            assert model.predict([[1, 2], [100, 3]]).shape == (2,)
            assert len(model.similar(2)["rank"])
        facts = json.loads(typed("info", out, "--json").expect(0).out)
        assert facts["progress"]["running"]
        assert facts["progress"]["draws"] >= SETTINGS["save_draws"]
        refused = typed("export", out, "--out", tmp_path / "moments.parquet").expect(2)
        assert "no moments yet" in refused.err
        running.signal(signal.SIGUSR1)
        running.wait().expect(75)
    pairs_of = Run(out).test_pairs()
    ended = Predictor(Run(out), PredictOptions())(*pairs_of)
    shutil.rmtree(out / "posterior")  # the same draws without it
    assert Run(out).unfinished
    assert np.array_equal(ended.mean, Predictor(Run(out), PredictOptions())(*pairs_of).mean)
    digest(out)

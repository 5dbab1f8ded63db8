"""Changed settings and facts, and foreign or incomplete posteriors, are refused."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from runs import Made, make_run
from support import sample, typed

from dsgmcmc import BPMF
from dsgmcmc.diagnostics.overview import audit
from dsgmcmc.diagnostics.summary import read_summary, save_summary
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.run import Run
from dsgmcmc.storage.rundir import INDEX, RunDirectory
from dsgmcmc.storage.store import Key, SmallArray, Snapshot, write_snapshot
from dsgmcmc.types import Array

SHORT = {"grid": 2, "iterations": 60, "burn_in": 20, "evaluate_every": 20, "save_draws": 2}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A finished run of ratings 1 .. 5."""
    return make_run(tmp_path_factory.mktemp("made"), users=30, items=14, stars=True, **SHORT)


@pytest.fixture
def path(finished: Made, tmp_path: Path) -> Path:
    """A copy of the run, to be changed."""
    return Path(shutil.copytree(finished.path, tmp_path / "run"))


def verify(path: Path) -> None:
    audit(RunDirectory(path))


def edit(path: Path, old: str, new: str) -> None:
    """Change ``run.toml`` by hand."""
    file = path / "run.toml"
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")


FACTS = {
    "mean": ("\nmean = ", "\nmean = 1"),
    "transposed": ("transposed = false", "transposed = true"),
    "levels": ("    2.0,\n", "    2.5,\n"),
    "baselines": ("biases_only = ", "biases_only = 1"),
}


@pytest.mark.parametrize("name", FACTS)
def test_a_changed_fact_is_named(finished: Made, path: Path, name: str) -> None:
    """Every reader and a job refuse a run whose facts were changed, and name the fact."""
    edit(path, *FACTS[name])
    for read in (
        Run,
        BPMF.load,
        verify,
        lambda path: sample(MPI.COMM_SELF, finished.data, path, resume=True),
    ):
        with pytest.raises(InputError, match=rf"run\.toml has been changed since .*: {name}$"):
            read(path)
    assert typed("verify", path).err.count("\n") == 1


@pytest.mark.parametrize(
    "change",
    [("center = true", "center = false"), ("rank = 3", "rank = 4"), ("seed = 0", "seed = 1")],
)
def test_a_changed_setting_is_refused(finished: Made, path: Path, change: tuple[str, str]) -> None:
    """A changed setting is refused, also if the snapshots could be read with it."""
    edit(path, *change)
    for read in (Run, verify, lambda path: sample(MPI.COMM_SELF, finished.data, path, resume=True)):
        with pytest.raises(InputError, match="its settings do not match its config_hash"):
            read(path)


def test_a_changed_summary_is_refused(path: Path) -> None:
    """The checksum of a summary tells a changed number."""
    file = path / "summary.json"
    file.write_text(
        file.read_text(encoding="utf-8").replace('"rmse_mean": ', '"rmse_mean": 1'),
        encoding="utf-8",
    )
    for read, snapshot_path in ((read_summary, file), (verify, path)):
        with pytest.raises(InputError, match="does not match its own checksum"):
            read(snapshot_path)


FORGED = {
    "rmse_mean": "low",
    "coverage": {},
    "fell_back": [{}],
    "baselines": 3,
    "seconds_sampling": None,
}
FORGED |= {"until": {"reached": True}}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_summary_is_refused(path: Path, tmp_path: Path, name: str) -> None:
    """A summary that is sealed but of other content is named by `info` or the report, without a
    traceback.
    """
    summary = read_summary(path / "summary.json")
    save_summary(path / "summary.json", summary | {name: FORGED[name]})
    codes = []
    for command in (("info", path), ("report", path, "--out", tmp_path / "page.html")):
        done = typed(*command)
        codes.append(done.code)
        assert done.code == 0 or "summary.json is not the summary of a run" in done.err
    assert 2 in codes


# ---------------------------------------------------------------------- what a posterior lacks

Change = Callable[[dict[Key, Array]], Any]


def rewrite(snapshot_path: Path, change: Change, state: dict[str, Any] | None = None) -> None:
    """Write a snapshot again, whole and sealed, with other blocks and small arrays."""
    snapshot = Snapshot(snapshot_path)
    blocks = {key: snapshot.read(key) for key in snapshot.block_keys()}
    change(blocks)
    header = snapshot.manifest.model_dump(exclude={"blocks", "format", "version"})
    header["state"] |= {name: SmallArray.from_array(value) for name, value in (state or {}).items()}
    shutil.rmtree(snapshot_path)
    write_snapshot(snapshot_path.parent, snapshot_path.name, blocks, header)


def cut(key: Key) -> Change:
    """Take the last column, or element."""
    return lambda blocks: blocks.update({key: np.ascontiguousarray(blocks[key][..., :-1])})


def gone(key: Key) -> Change:
    return lambda blocks: blocks.pop(key)


WRONG = {
    "trace/run/tau": gone(Key("trace", "run", 0, "tau")),
    "moments/W/mean": cut(Key("moments", "W", 1, "mean")),
    "trace/run/H.precision": cut(Key("trace", "run", 0, "H.precision")),
    "test/W/noise_variance": gone(Key("test", "W", 0, "noise_variance")),
    "trace/W/prediction": cut(Key("trace", "W", 0, "prediction")),
}


@pytest.mark.parametrize("words", WRONG)
def test_an_incomplete_posterior_is_refused_when_it_is_opened(path: Path, words: str) -> None:
    """A posterior that lacks a part, or has one of another shape, is refused when the run is
    opened.
    """
    rewrite(newest(path, "posterior"), WRONG[words])
    with pytest.raises(InputError, match=f"inconsistent: its blocks of {words} "):
        Run(path)


def test_an_index_of_other_lengths_is_refused(path: Path) -> None:
    """An index whose arrays have other lengths than its run is refused."""
    index = path / INDEX
    kept = Path(shutil.copytree(index, path.parent / "kept"))
    names = Key("ids", "W", 0, "integers")
    counts = Key("ratings", "W", 0, "count")
    for keys in ([names], [Key("test", "W", 0, "rows")], [names, counts]):
        rewrite(index, lambda blocks, keys=keys: [cut(key)(blocks) for key in keys])
        with pytest.raises(InputError, match="inconsistent"):
            Run(path)
        shutil.rmtree(index)
        shutil.copytree(kept, index)


def test_a_directory_without_settings_or_index_is_refused(path: Path) -> None:
    """A directory that is no run and a run without its index are refused."""
    with pytest.raises(InputError, match="not a run directory"):
        Run(path.parent)
    shutil.rmtree(path / INDEX)
    with pytest.raises(InputError, match="index is gone"):
        Run(path)


def test_an_incomplete_draw_is_refused(path: Path) -> None:
    """A draw that lacks a part is refused when it is read."""
    run = Run(path)
    rewrite(newest(path, "draws"), gone(Key("draw", "H", 0, "theta")))
    with pytest.raises(InputError, match="draw/H/theta"):
        run.draw(0)


def test_a_snapshot_in_another_s_place_is_refused(path: Path) -> None:
    """A snapshot under the name of another is refused, though it is whole."""
    draws = newest(path, "draws")
    draws.rename(draws.with_name("step-000000000061"))
    with pytest.raises(InputError, match="has another identity"):
        Run(path).draw(0)


def newest(path: Path, series: str) -> Path:
    """The last snapshot of a kind."""
    return sorted((path / series / "chain-0").iterdir())[-1]


def test_a_checkpoint_that_does_not_fit_is_refused(
    finished: Made, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job refuses a checkpoint with arrays of other shapes or types, or with wrong counts."""
    snapshot_path = newest(path, "checkpoints")
    kept = Path(shutil.copytree(snapshot_path, path.parent / "kept"))
    for earlier in set(snapshot_path.parent.iterdir()) - {
        snapshot_path
    }:  # that of the end of burn-in, which would be resumed from
        shutil.rmtree(earlier)
    key = Key("moments", "W", 0, "mean")
    changes: dict[str, tuple[Change, dict[str, Any]]] = {
        r"W\.mean is missing, or not of shape \(1, 4\)": (
            lambda blocks: None,
            {"W.mean": np.zeros(9)},
        ),
        r"float64 \(.*, not": (
            lambda blocks: blocks.update({key: blocks[key].astype(np.float64)}),
            {},
        ),
        r"float32 \(0, 4\), not": (lambda blocks: blocks.update({key: blocks[key][:0]}), {}),
        r"\(weight, number, spacing\) 0, 0, 0": (
            lambda blocks: None,
            {"observer.numbers": np.zeros(3)},
        ),
    }
    for words, (change, state) in changes.items():
        rewrite(snapshot_path, change, state)
        with pytest.raises(InputError, match=r"no checkpoint in .* can be used"):
            sample(MPI.COMM_SELF, finished.data, path, resume=True, iterations=80)
        assert re.search(words, capsys.readouterr().err)
        shutil.rmtree(snapshot_path)
        shutil.copytree(kept, snapshot_path)

"""A run says of itself only what it was made with: changed settings and facts, foreign or incomplete posteriors."""

from __future__ import annotations

import json
import os
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
from dsgmcmc.diagnostics.audit import audit
from dsgmcmc.diagnostics.summary import read_summary, save_summary
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.run import Run
from dsgmcmc.storage.files import write_whole
from dsgmcmc.storage.manifest import Key, SmallArray
from dsgmcmc.storage.rundir import INDEX, RunDirectory
from dsgmcmc.storage.snapshot import Snapshot
from dsgmcmc.storage.writer import write_snapshot
from dsgmcmc.types import Array

SHORT = {"grid": 2, "iterations": 60, "burn_in": 20, "evaluate_every": 20, "save_draws": 2}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A finished run of ratings 1 .. 5."""
    return make_run(tmp_path_factory.mktemp("made"), users=30, items=14, stars=True, **SHORT)


@pytest.fixture
def path(made: Made, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    return Path(shutil.copytree(made.path, tmp_path / "run"))


def edit(path: Path, old: str, new: str) -> None:
    """Change ``run.toml`` by hand."""
    file = path / "run.toml"
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")


FACTS = {
    "mean": ("\nmean = ", "\nmean = 1"),
    "transposed": ("transposed = false", "transposed = true"),
    "minimum": ("minimum = 1.0", "minimum = 2.0"),
    "maximum": ("maximum = 5.0", "maximum = 4.0"),
    "levels": ("    2.0,\n", "    2.5,\n"),
    "test_ratings": ("test_ratings = ", "test_ratings = 1"),
    "baselines": ("biases_only = ", "biases_only = 1"),
}


@pytest.mark.parametrize("name", FACTS)
def test_a_changed_fact_is_named(made: Made, path: Path, name: str) -> None:
    """A flipped digit of the mean would shift all predictions; every reader refuses, and so does a job."""
    edit(path, *FACTS[name])
    for read in (Run, BPMF.load, lambda path: audit(RunDirectory(path))):
        with pytest.raises(InputError, match=rf"run\.toml has been changed since .*: {name}$"):
            read(path)
    with pytest.raises(InputError, match=rf"run\.toml has been changed since .*: {name}$"):
        sample(MPI.COMM_SELF, made.data, path, resume=True)


@pytest.mark.parametrize(
    "change", [("center = true", "center = false"), ("rank = 3", "rank = 4"), ("seed = 0", "seed = 1")]
)
def test_a_changed_setting_is_refused(made: Made, path: Path, change: tuple[str, str]) -> None:
    """Also where the snapshots could be read with it."""
    edit(path, *change)
    for read in (Run, lambda path: audit(RunDirectory(path))):
        with pytest.raises(InputError, match="its settings do not match its config_hash"):
            read(path)
    with pytest.raises(InputError, match="its settings do not match its config_hash"):
        sample(MPI.COMM_SELF, made.data, path, resume=True)


@pytest.mark.parametrize("name", ["data_hash", "config_hash"])
def test_snapshots_belong_to_the_run_s_own_hashes(path: Path, name: str) -> None:
    """A changed hash says as much as a changed setting."""
    edit(path, f'{name} = "', f'{name} = "0f')
    text = (path / "run.toml").read_text(encoding="utf-8")
    start = text.index(f'{name} = "') + len(f'{name} = "') + 64
    (path / "run.toml").write_text(text[:start] + text[start + 2 :], encoding="utf-8")
    with pytest.raises(InputError, match=r"run\.toml has been changed"):
        Run(path)


def test_what_may_change_from_job_to_job_is_free_and_named(path: Path) -> None:
    """The ratings may be moved, and the length is only what the last job was asked for."""
    edit(path, "iterations = 60", "iterations = 90")
    edit(path, "ratings.h5", "moved.h5")
    assert Run(path).config.iterations == 90
    found = audit(RunDirectory(path)).unchecked
    assert found == ["run.toml (chains, checkpoint_every, data, given_of_sampler, iterations, versions)"]


def test_files_of_others_are_named(path: Path) -> None:
    """Nothing vouches for them."""
    (path / "notes.txt").write_text("mine", encoding="utf-8")
    assert audit(RunDirectory(path)).unchecked[1:] == ["notes.txt"]


def test_a_summary_that_has_lost_its_checksum_is_refused(path: Path) -> None:
    """It may have been changed as well."""
    summary = json.loads((path / "summary.json").read_text(encoding="utf-8"))
    del summary["sha256"]
    (path / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    with pytest.raises(InputError, match="does not match its own checksum"):
        audit(RunDirectory(path))


def test_a_changed_summary_is_refused(path: Path) -> None:
    """`info` and the report show its numbers."""
    file = path / "summary.json"
    file.write_text(file.read_text(encoding="utf-8").replace('"rmse_mean": ', '"rmse_mean": 1'), encoding="utf-8")
    for read in (read_summary, lambda file: audit(RunDirectory(path))):
        with pytest.raises(InputError, match="does not match its own checksum"):
            read(file)


@pytest.mark.parametrize(
    "forged",
    [
        {"rmse_mean": "low"},
        {"coverage": {}},
        {"fell_back": [{}]},
        {"baselines": 3},
        {"until": {"reached": True}},
        {"seconds_sampling": None},
    ],
)
def test_a_forged_summary_is_refused(path: Path, tmp_path: Path, forged: dict[str, Any]) -> None:
    """Whoever can seal it may have written anything: `info` or the report names the file, without a traceback."""
    summary = read_summary(path / "summary.json")
    save_summary(path / "summary.json", summary | forged)
    codes = []
    for command in (("info", path), ("report", path, "--out", tmp_path / "page.html")):
        done = typed(*command)
        codes.append(done.code)
        assert done.code == 0 or "summary.json is not the summary of a run" in done.err
    assert 2 in codes


# ---------------------------------------------------------------------- what a posterior lacks

Change = Callable[[dict[Key, Array]], Any]


def rewrite(place: Path, change: Change, state: dict[str, Any] | None = None) -> None:
    """Write a snapshot again, whole and sealed, with other blocks, and small arrays, or all their values."""
    snapshot = Snapshot(place)
    blocks = {key: snapshot.read(key) for key in snapshot.names()}
    change(blocks)
    header = snapshot.manifest.model_dump(exclude={"blocks", "format", "version"})
    for name, value in (state or {}).items():
        header["state"][name] = SmallArray.of(
            value if np.ndim(value) else np.full(header["state"][name]["shape"], value)
        )
    shutil.rmtree(place)
    write_snapshot(place.parent, place.name, blocks, lambda: header, MPI.COMM_SELF)


def cut(key: Key) -> Change:
    """Take the last column, or element."""
    return lambda blocks: blocks.update({key: np.ascontiguousarray(blocks[key][..., :-1])})


def gone(key: Key) -> Change:
    return lambda blocks: blocks.pop(key)


TAU, MEAN = Key("trace", "run", 0, "tau"), Key("moments", "W", 1, "mean")
WRONG = {
    "trace/run/000000/tau": gone(TAU),
    "moments/W/000001/mean": gone(MEAN),
    "is of shape": cut(MEAN),
    "trace/run/000000/H.precision is of shape": cut(Key("trace", "run", 0, "H.precision")),
    "test/W/000000/noise_variance": gone(Key("test", "W", 0, "noise_variance")),
    r"test/W/\*/variance is of shape": cut(Key("test", "W", 1, "variance")),
    "trace/W/000000/prediction is of shape": cut(Key("trace", "W", 0, "prediction")),
    "followed is of type <f8": lambda blocks: blocks.update({Key("trace", "W", 1, "followed"): np.zeros(3)}),
    r"moments/H/\*/mean is of shape": lambda blocks: [
        blocks.update({Key("moments", "H", 0, name): np.zeros((3, 4), np.float32)}) for name in ("mean", "variance")
    ],
}


@pytest.mark.parametrize("words", WRONG)
def test_an_incomplete_posterior_is_refused_when_it_is_opened(path: Path, words: str) -> None:
    """Not with a KeyError when the missing part is asked for."""
    (place,) = (path / "posterior" / "chain-0").iterdir()
    rewrite(place, WRONG[words])
    with pytest.raises(InputError, match=words):
        Run(path)


def test_parameters_of_the_likelihood_are_as_many_as_it_has(tmp_path: Path) -> None:
    """Student-t noise has one, the inflation of the variance; predictions of test ratings read it."""
    made = make_run(tmp_path, users=30, items=14, likelihood="student-t", **SHORT)
    (place,) = (made.path / "posterior" / "chain-0").iterdir()
    rewrite(place, lambda blocks: blocks.update({Key("test", "W", b, "shape"): np.zeros((0, 1)) for b in range(2)}))
    with pytest.raises(InputError, match=r"test/W/\*/shape is of shape"):
        Run(made.path)


def test_an_index_of_other_lengths_is_refused(path: Path) -> None:
    """Every row has one name, every test rating a row and a column, and the posterior the same number of rows."""
    index = path / INDEX
    kept = Path(shutil.copytree(index, path.parent / "kept"))
    for changes in ([Key("ids", "W", 0, "integers")], [Key("test", "W", 0, "rows")], [Key("ratings", "H", 0, "count")]):
        rewrite(index, cut(changes[0]))
        with pytest.raises(InputError, match="inconsistent"):
            Run(path)
        shutil.rmtree(index)
        shutil.copytree(kept, index)
    rewrite(
        index,
        lambda blocks: [cut(key)(blocks) for key in (Key("ids", "W", 0, "integers"), Key("ratings", "W", 0, "count"))],
    )
    with pytest.raises(InputError, match=r"by run\.toml and the index"):
        Run(path)


def test_an_incomplete_draw_is_refused(path: Path) -> None:
    """When it is read: there may be many of large manifests."""
    run = Run(path)
    rewrite(newest(path, "draws"), gone(Key("draw", "H", 0, "theta")))
    with pytest.raises(InputError, match="draw/H/000000/theta"):
        run.draw(0)


def test_a_snapshot_in_another_s_place_is_refused(path: Path) -> None:
    """Each is whole by itself."""
    draws = newest(path, "draws")
    draws.rename(draws.with_name("step-000000000061"))
    with pytest.raises(InputError, match="holds something else"):
        Run(path).draw(0)


# ---------------------------------------------------------------------- what lies in a place that is whole and sealed


def newest(path: Path, kind: str) -> Path:
    """The last snapshot of a kind."""
    return sorted((path / kind / "chain-0").iterdir())[-1]


def read_draws(path: Path) -> None:
    """Read all saved draws."""
    run = Run(path)
    for number in range(len(run.draws)):
        run.draw(number)


def one(key: Key, value: float) -> Change:
    """Replace one number."""
    return lambda blocks: blocks[key].reshape(-1).__setitem__(0, value)


@pytest.mark.parametrize(("name", "value"), [("tau", 0.0), ("tau", -1.0), ("tau", np.nan), ("W.precision", -1.0)])
def test_a_draw_with_numbers_that_make_no_sense_is_refused(path: Path, name: str, value: float) -> None:
    """Predictions divide by them."""
    rewrite(newest(path, "draws"), one(Key("draw", "run", 0, name), value))
    with pytest.raises(InputError, match=rf"inconsistent: .*{name} "):
        read_draws(path)


@pytest.mark.parametrize(
    ("kind", "key"), [("posterior", MEAN), ("draws", Key("draw", "W", 0, "theta")), ("posterior", TAU)]
)
def test_what_is_not_finite_is_refused(path: Path, kind: str, key: Key) -> None:
    """A prediction that is no number would be an empty field of a table."""
    rewrite(newest(path, kind), one(key, np.nan))
    with pytest.raises(InputError, match=f"{key.path} has values that are not finite"):
        [read_draws(path), Run(path).moments, Run(path).traces]


def test_a_checkpoint_that_does_not_fit_is_refused(made: Made, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The job went on with arrays of other shapes, and ended with the kernels' errors at the next draw."""
    place = newest(path, "checkpoints")
    kept = Path(shutil.copytree(place, path.parent / "kept"))
    for earlier in set(place.parent.iterdir()) - {place}:  # that of the end of burn-in, which would be resumed from
        shutil.rmtree(earlier)
    key = Key("moments", "W", 0, "mean")
    changes: dict[str, tuple[Change, dict[str, Any]]] = {
        r"W\.mean is missing, or not of shape \(1, 4\)": (lambda blocks: None, {"W.mean": np.zeros(9)}),
        r"float64 \(.*, not": (lambda blocks: blocks.update({key: blocks[key].astype(np.float64)}), {}),
        r"float32 \(0, 4\), not": (lambda blocks: blocks.update({key: blocks[key][:0]}), {}),
        r"\(weight, number, spacing\) 0, 0, 0": (lambda blocks: None, {"observer.numbers": 0.0}),
        "tau has values that are not finite": (lambda blocks: None, {"tau": np.nan}),
    }
    for words, (change, state) in changes.items():
        rewrite(place, change, state)
        with pytest.raises(InputError, match=r"no checkpoint in .* can be read"):
            sample(MPI.COMM_SELF, made.data, path, resume=True, iterations=80)
        assert re.search(words, capsys.readouterr().err)
        shutil.rmtree(place)
        shutil.copytree(kept, place)


def test_a_pipe_in_the_place_of_a_shard_is_refused(path: Path) -> None:
    """Opening one would wait for ever."""
    (shard,) = newest(path, "posterior").glob("shard-*")
    shard.unlink()
    os.mkfifo(shard)
    with pytest.raises(InputError, match="a directory, a pipe or a device"):
        _ = Run(path).moments


@pytest.mark.parametrize("name", ["draws", "draws/chain-0", "checkpoints/chain-0", "posterior", "index"])
def test_a_job_does_not_write_through_links(made: Made, path: Path, name: str) -> None:
    """They are read; but a job would remove what lies where they lead, such as the draws of another run."""
    elsewhere = path.parent / "elsewhere"
    (path / name).rename(elsewhere)
    (path / name).symlink_to(elsewhere)
    before = sorted(elsewhere.rglob("*"))
    Run(path).draw(0)
    with pytest.raises(InputError, match=f"{name} is a link"):
        sample(MPI.COMM_SELF, made.data, path, resume=True, iterations=80)
    assert sorted(elsewhere.rglob("*")) == before


def test_a_link_in_the_place_of_a_file_that_is_about_to_be_written(tmp_path: Path) -> None:
    """Its name can be foreseen."""
    (precious := tmp_path / "precious").write_text("mine", encoding="utf-8")
    (tmp_path / f"summary.json.tmp-{os.getpid()}").symlink_to(precious)
    write_whole(tmp_path / "summary.json", "theirs")
    assert [path.read_text(encoding="utf-8") for path in (precious, tmp_path / "summary.json")] == ["mine", "theirs"]

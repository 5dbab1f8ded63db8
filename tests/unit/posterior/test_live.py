"""Runs that have not ended, being sampled or killed: what they have serves, and what they have not is said."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from runs import Made, make_run
from support import sample

import dsgmcmc
from dsgmcmc.diagnostics.report import write_report
from dsgmcmc.errors import GoneError, InputError
from dsgmcmc.posterior.export import export
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.live import LiveProgress, progress
from dsgmcmc.posterior.predict import PredictOptions, Predictor
from dsgmcmc.posterior.run import Run
from dsgmcmc.storage.lock import Lock
from dsgmcmc.storage.manifest import MANIFEST, seal
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.storage.series import step_name, steps
from dsgmcmc.storage.verify import verify_run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Run of two chains that ended, all of whose draws are saved."""
    return make_run(tmp_path_factory.mktemp("run"), chains=2)


def killed(path: Path, to: Path) -> Path:
    """Make a copy of a run as a kill leaves it after its last checkpoint."""
    shutil.copytree(path, to)
    shutil.rmtree(to / "posterior", ignore_errors=True)
    (to / "summary.json").unlink()
    return to


@pytest.fixture
def under_way(made: Made, tmp_path: Path) -> Path:
    return killed(made.path, tmp_path / "run")


@contextmanager
def sampled(path: Path) -> Iterator[None]:
    """Hold the lock of a run, as the job does that samples it."""
    lock = Lock(path / "lock")
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


def draws_of(path: Path, chain: int = 0) -> list[Path]:
    series = RunDirectory(path).series("draws", chain)
    return [series / step_name(iteration) for iteration in steps(series)]


@pytest.mark.parametrize("settings", [{}, {"likelihood": "ordinal-logit"}])
def test_the_draws_of_a_killed_run_serve_as_those_of_one_that_ended(tmp_path: Path, settings: dict[str, Any]) -> None:
    """The same predictions to the bit; those of test ratings, which a posterior has, are worked out from them."""
    one = make_run(tmp_path, stars=bool(settings), **settings)
    ended, found = one.open(), Run(killed(one.path, tmp_path / "killed"))
    assert (found.unfinished, found.draws) == (True, ended.draws)
    pairs = ended.test_pairs()
    for values, expected in zip(*(Predictor(run, PredictOptions())(*pairs) for run in (found, ended)), strict=True):
        assert np.array_equal(values, expected)
    from_draws, stored = predict_test(found), predict_test(ended)
    np.testing.assert_allclose(from_draws.rating, stored.rating, rtol=1e-6)
    np.testing.assert_allclose(from_draws.mean, stored.mean, rtol=1e-4)
    for name in ("variance", "noise_variance"):
        np.testing.assert_allclose(getattr(from_draws, name), getattr(stored, name), rtol=0.01, atol=1e-3)
    if settings:
        np.testing.assert_allclose(from_draws.probability, stored.probability, atol=1e-4)


def test_what_only_a_posterior_has_is_refused_in_words(under_way: Path, tmp_path: Path) -> None:
    """Moments; everything that draws have is exported, and reported."""
    run = Run(under_way)
    with pytest.raises(InputError, match=r"no moments yet: it has them once a job has resumed it.*draws"):
        _ = run.moments
    with sampled(under_way), pytest.raises(InputError, match=r"no moments yet: it has them when its job ends.*draws"):
        _ = run.moments
    with pytest.raises(InputError, match="no moments yet"):
        export(run, tmp_path / "run.parquet")
    export(run, tmp_path / "run.parquet", draws=True)
    write_report(under_way, tmp_path / "run.html")
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert "not finished: its last job ended at iteration 120 of 120" in page
    assert f"{len(run.draws)} draws so far can be used" in page


def test_a_chain_without_draws_is_left_out(under_way: Path) -> None:
    """Chains need not be abreast: one may be burning in still."""
    for kind in ("checkpoints", "draws"):
        shutil.rmtree(under_way / kind / "chain-1")
    assert Run(under_way).chains == [0]


def test_a_posterior_stands_until_a_checkpoint_has_later_draws(under_way: Path, made: Made) -> None:
    """A job that goes on with a run leaves the posterior of the one before, and adds checkpoints."""
    shutil.copytree(made.path / "posterior", under_way / "posterior")
    assert not Run(under_way).unfinished
    series = RunDirectory(under_way).series("posterior", 1)
    (series / step_name(120)).rename(series / step_name(110))
    edit(series / step_name(110), lambda content: content.update(iteration=110))
    assert Run(under_way).unfinished


def test_a_reader_begins_anew_where_draws_were_removed(tmp_path: Path) -> None:
    """Whoever has opened the run has the newest draws then; whoever reads one by itself is told."""
    begun = make_run(tmp_path / "run", iterations=60, save_draws=2, checkpoint_every=5)
    shutil.rmtree(begun.path / "posterior")
    model, run = dsgmcmc.open_run(begun.path), Run(begun.path)
    assert sample(MPI.COMM_SELF, begun.data, begun.path, resume=True, iterations=500) == 0
    shutil.rmtree(begun.path / "posterior")
    with pytest.raises(GoneError, match=r"the run has removed it since. Open the run again"):
        run.draw(1)
    pair = [[model.users_[0], model.items_[0]]]
    newest = dsgmcmc.open_run(begun.path)
    assert model.predict(pair) == newest.predict(pair)
    assert model.fold_in(pair, [4.0]).predict(pair) == newest.fold_in(pair, [4.0]).predict(pair)


def test_what_the_newest_checkpoint_counts_on_must_be_there(under_way: Path) -> None:
    """Draws are removed after the last checkpoint that counts on them: before that it is damage, also while sampled."""
    shutil.rmtree(draws_of(under_way)[0])
    with (
        sampled(under_way),
        pytest.raises(InputError, match="draw of iteration 42: the newest checkpoint needs it"),
    ):
        verify_run(RunDirectory(under_way))


@pytest.mark.parametrize(
    ("iterations", "settings", "words"),
    [
        (90, {}, "at iteration 60 of 90, .* its draws can be used from its next checkpoint on"),
        (90, {"save_draws": 0}, "saves no draws .* when its job ends, or is stopped with SIGUSR1"),
        (
            90,
            {"burn_in": 80},
            "the first draw is at iteration 82, in about 11 s; it can be used from the next",
        ),
        (60, {"burn_in": 80}, "it ends before its first draw, at iteration 82"),
    ],
)
def test_a_run_that_is_sampled_says_what_there_will_be(
    tmp_path: Path, iterations: int, settings: dict[str, Any], words: str
) -> None:
    """Not that it was ended: since when, how far, and when there is something to use."""
    path = killed(make_run(tmp_path, iterations=60, **settings).path, tmp_path / "killed")
    shutil.rmtree(path / "checkpoints")  # its first one is on its way
    directory = RunDirectory(path)
    directory.note_job("dsgmcmc sample", 1)
    content, facts = directory.read_settings()
    directory.write_settings({**content, "iterations": iterations}, facts)
    slow_down(path)
    with sampled(path), pytest.raises(InputError, match=rf"no posterior yet: it is being sampled since 20.*{words}"):
        Run(path)
    with pytest.raises(InputError, match=r"no posterior yet: it is not finished: its last job ended .*--resume"):
        Run(path)


def slow_down(path: Path) -> None:
    """Make a run's metrics those of one that makes two iterations a second."""
    for file in path.glob("metrics*.jsonl"):
        lines = [json.loads(text) for text in file.read_text(encoding="utf-8").splitlines()]
        slow = [json.dumps({**line, "time_s": line["iteration"] / 2}) + "\n" for line in lines]
        file.write_text("".join(slow), encoding="utf-8")


def test_the_time_to_go_is_told_by_metrics(under_way: Path) -> None:
    """By the lines of the chain that is furthest behind, and only while it is sampled."""
    slow_down(under_way)
    directory, config = RunDirectory(under_way), Run(under_way).config.model_copy(update={"iterations": 1120})
    with sampled(under_way):
        progress = LiveProgress.of(directory, config)
        assert str(progress) == "being sampled: at iteration 120 of 1,120, done in about 8 min"
    assert (progress.running, progress.iteration, progress.seconds_to(1120)) == (True, 120, 500)
    assert LiveProgress.of(directory, config).seconds_to(1120) is None


def test_a_run_that_goes_on_has_the_draws_of_before(made: Made, tmp_path: Path) -> None:
    """Its posterior serves until the first checkpoint of the new job; of one that has ended there is nothing to say."""
    path = Path(shutil.copytree(made.path, tmp_path / "run"))
    run = Run(path)
    assert progress(run.directory, run.config, run.facts) is None
    with sampled(path):
        found = progress(run.directory, run.config, run.facts)
    assert found is not None
    assert found.usable() == f"{len(run.draws)} draws so far can be used"


def edit(snapshot: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a manifest as somebody would who can seal it."""
    content = json.loads((snapshot / MANIFEST).read_text(encoding="utf-8"))
    del content["sha256"]
    change(content)
    (snapshot / MANIFEST).write_text(seal(json.dumps(content, indent=1)), encoding="utf-8")


def set_kept(numbers: list[float]) -> Callable[[dict[str, Any]], object]:
    kept = {"shape": [len(numbers)], "values": numbers}
    return lambda content: content["state"].update({"observer.kept": kept})


def drop_tau(content: dict[str, Any]) -> None:
    content["blocks"] = [block for block in content["blocks"] if block["key"][-1] != "tau"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (set_kept([float("nan")]), "observer.kept has numbers"),
        (set_kept([-1.0]), "observer.kept has numbers"),
        (drop_tau, "is incomplete: it has no trace/run/000000/tau"),
        (lambda content: content.update(chain=1), "holds something else"),
    ],
)
def test_a_hostile_checkpoint_is_refused(
    under_way: Path, change: Callable[[dict[str, Any]], object], words: str
) -> None:
    """What stands in the place of a posterior is checked as that is."""
    edit(RunDirectory(under_way).series("checkpoints", 0) / step_name(120), change)
    with pytest.raises(InputError, match=words):
        Run(under_way)

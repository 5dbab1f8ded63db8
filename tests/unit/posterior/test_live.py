"""Runs that are being sampled or were killed: their draws serve, and messages say what is not there
yet.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from runs import Made, make_run
from support import sample

import dsgmcmc
from dsgmcmc.diagnostics.overview import overview
from dsgmcmc.errors import GoneError, InputError
from dsgmcmc.plots.report import write_report
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.progress import progress
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.settings import PredictOptions
from dsgmcmc.storage.lock import Lock
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.storage.store import step_name


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A finished run of two chains, all of whose draws are saved."""
    return make_run(tmp_path_factory.mktemp("run"), chains=2)


def killed(path: Path, to: Path) -> Path:
    """Make a copy of a run as a kill leaves it after its last checkpoint."""
    shutil.copytree(path, to)
    shutil.rmtree(to / "posterior", ignore_errors=True)
    (to / "summary.json").unlink()
    return to


@pytest.fixture
def under_way(finished: Made, tmp_path: Path) -> Path:
    return killed(finished.path, tmp_path / "run")


@contextmanager
def sampled(path: Path) -> Iterator[None]:
    """Hold the lock of a run, as the job does that samples it."""
    lock = Lock(path / "lock")
    assert lock.attempt()
    try:
        yield
    finally:
        lock.release()


def test_the_draws_of_a_killed_run_serve_as_those_of_one_that_ended(tmp_path: Path) -> None:
    """A killed run predicts as the finished run does, to the bit; thresholds are among what it
    has.
    """
    one = make_run(tmp_path, stars=True, likelihood="ordinal-logit")
    ended = one.open()
    left = Run(killed(one.path, tmp_path / "killed"))
    assert (left.unfinished, left.draws) == (True, ended.draws)
    pairs = ended.test_pairs()
    for values, expected in zip(
        *(Predictor(run, PredictOptions())(*pairs) for run in (left, ended)), strict=True
    ):
        assert np.array_equal(values, expected)


def test_scores_of_an_unfinished_run_are_refused(under_way: Path, tmp_path: Path) -> None:
    """An unfinished run has no scores, but its draws are reported."""
    run = Run(under_way)
    with pytest.raises(InputError, match="has not ended: its test ratings are predicted when"):
        predict_test(run)
    write_report(under_way, tmp_path / "run.html")
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert "not finished: its last job ended at iteration 120 of 120" in page
    assert "are lost" not in page
    assert f"{len(run.draws)} draws so far can be used" in page


def test_a_chain_without_draws_is_left_out(under_way: Path) -> None:
    """A chain that is still burning in does not keep the others from serving."""
    for folder in ("checkpoints", "draws"):
        shutil.rmtree(under_way / folder / "chain-1")
    assert Run(under_way).chains == [0]


def test_a_posterior_stands_until_a_checkpoint_has_later_draws(
    under_way: Path, finished: Made
) -> None:
    """The posterior of a run that goes on serves until a checkpoint has later draws."""
    shutil.copytree(finished.path / "posterior", under_way / "posterior")
    assert not Run(under_way).unfinished
    series = RunDirectory(under_way).series("posterior", 1)
    shutil.rmtree(series / step_name(120))
    assert Run(under_way).unfinished


def test_a_reader_begins_anew_where_draws_were_removed(tmp_path: Path) -> None:
    """A model that finds draws removed opens the run again, and a reader of one draw is told to."""
    begun = make_run(tmp_path / "run", iterations=60, save_draws=2, checkpoint_every=5)
    shutil.rmtree(begun.path / "posterior")
    model = dsgmcmc.open_run(begun.path)
    run = Run(begun.path)
    assert sample(MPI.COMM_SELF, begun.data, begun.path, resume=True, iterations=200) == 0
    shutil.rmtree(begun.path / "posterior")
    with pytest.raises(GoneError, match=r"the run has since removed it. Open the run again"):
        run.draw(1)
    pair = [[model.users_[0], model.items_[0]]]
    newest = dsgmcmc.open_run(begun.path)
    assert model.predict(pair) == newest.predict(pair)
    assert model.fold_in(pair, [4.0]).predict(pair) == newest.fold_in(pair, [4.0]).predict(pair)


def test_a_run_that_is_sampled_says_what_there_will_be(tmp_path: Path) -> None:
    """A run without draws says how far it is and when there will be some, or how to continue it."""
    path = killed(make_run(tmp_path, iterations=60).path, tmp_path / "killed")
    shutil.rmtree(path / "checkpoints")  # its first one is on its way
    words = "at iteration 60 of 60"
    with (
        sampled(path),
        pytest.raises(
            InputError,
            match=rf"no posterior yet: it is being sampled: {words}; the first draw is made at",
        ),
    ):
        Run(path)
    with pytest.raises(
        InputError,
        match=rf"no posterior yet: it is not finished: its last job ended {words}.*--resume, from"
        " the start: there is no checkpoint, and 60 iterations are lost",
    ):
        Run(path)


def test_a_run_that_is_sampled_says_how_fast_and_since_when(tmp_path: Path) -> None:
    """Speed of the last metrics, the rest of the time, the job, and what a kill would repeat."""
    path = killed(make_run(tmp_path, iterations=60).path, tmp_path / "killed")
    run = RunDirectory(path)
    last = run.metrics()[-1]
    for iteration, seconds in ((80, 100.0), (100, 110.0)):
        run.add_metrics(0, {**last, "iteration": iteration, "time_s": seconds})
    run.note_job("dsgmcmc sample", 3)
    with sampled(path):
        lines = overview(run).text.lines()
        under_way = overview(run).facts["progress"]
    assert lines[0] == "being sampled: at iteration 100 of 60"
    assert lines[2].startswith(f"since {run.jobs()[-1]['time']} by 3 process(es): process ")
    assert lines[3] == (
        "last checkpoint at iteration 60: a job that is killed now has to repeat 40 iterations"
    )
    first = run.metrics()[-10:][0]
    speed = (100 - first["iteration"]) / (110.0 - first["time_s"])
    assert under_way["speed"] == pytest.approx(speed)
    assert lines[1].startswith(f"{speed:.3g} iterations a second: the rest takes about 1 s")


def test_what_a_killed_run_has_lost_is_said(tmp_path: Path) -> None:
    """A killed job was further than its checkpoint, from which the run goes on."""
    path = killed(make_run(tmp_path, iterations=60).path, tmp_path / "killed")
    run = RunDirectory(path)
    run.add_metrics(0, {**run.metrics()[-1], "iteration": 190})
    write_report(path, tmp_path / "run.html")
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert "its last job ended at iteration 190 of 60" in page
    assert "from its checkpoint at 60: 130 iterations are lost" in page


def test_a_run_that_goes_on_has_the_draws_of_before(finished: Made, tmp_path: Path) -> None:
    """The old draws of a run that goes on serve meanwhile, and only such a run reports progress."""
    path = Path(shutil.copytree(finished.path, tmp_path / "run"))
    run = Run(path)
    assert progress(run.directory, run.config, run.states) is None
    with sampled(path):
        state = progress(run.directory, run.config, run.states)
    assert state is not None
    assert state.usable() == f"{len(run.draws)} draws so far can be used"

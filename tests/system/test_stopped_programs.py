"""Signals to programs that call `fit`: after the checkpoint they do what they do without `fit`."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from support import Result, Running, planted, processes, run, wait_until

from dsgmcmc.densities.density import Gaussian
from dsgmcmc.densities.sample import sample_density
from dsgmcmc.storage.store import steps

BEGIN = """
import os, signal, sys, warnings
import numpy as np
from dsgmcmc import BPMF
X = np.load("x.npy")
def model(out=None, **more):
    return BPMF(rank=2, iterations=10**7, burn_in=20, options={"grid": 4}, out=out, **more)
"""
PLAIN = 'model("run").fit(X)'
TEMPORARY = "model().fit(X)"
BY_MPIRUN = 'model("run", n_jobs=2).fit(X)'
LOOP = """
for _ in range(5):
    try:
        model().fit(X)
    except Exception as error:
        print("went on after", error)
"""
GRID = """
from sklearn.model_selection import GridSearchCV
search = GridSearchCV(model(), {"rank": [1, 2]}, cv=2, scoring=lambda model, X, y=None: 0.0)
search.fit(X[:, :2], X[:, 2])
print(search.best_params_)
"""
JOBLIB = """
from joblib import Parallel, delayed
def guarded(number):
    try:
        model(f"run-{number}").fit(X)
    except Exception as error:
        return str(error)
print(Parallel(n_jobs=%d)(delayed(guarded)(number) for number in range(2)))
"""
RETURNING = (
    """
signal.signal(signal.SIGTERM, lambda *_: print("heard", flush=True))
"""
    + LOOP
)
DENSITY = """
from dsgmcmc.densities.density import Gaussian
from dsgmcmc import sample_density
density = Gaussian(np.zeros(2), np.eye(2))
draws = sample_density(density, sampler="hmc", chains=1, iterations=%d, out="run", resume=True)
np.save("theta.npy", draws.theta)
"""
EXITING = """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
try:
    model("run").fit(X)
finally:
    print("cleaned up")
"""


@contextmanager
def sampling(tmp_path: Path, code: str) -> Iterator[Running]:
    """Context in which a program has begun to sample; its temporary files are in ``scratch``."""
    np.save(tmp_path / "x.npy", np.column_stack(planted()))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    variables = {"TMPDIR": str(scratch), "JOBLIB_TEMP_FOLDER": str(tmp_path)}
    with Running([sys.executable, "-c", BEGIN + code], variables, tmp_path) as running:

        def samples() -> bool:
            files = [*tmp_path.glob("run*/metrics*"), *scratch.glob("dsgmcmc-*/run/metrics*")]
            return any(file.stat().st_size > 1000 for file in files)

        running.until(samples, "sampling")
        yield running


def left(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "scratch").glob("dsgmcmc-*"))


def after_signal(tmp_path: Path, code: str, number: signal.Signals = signal.SIGTERM) -> Result:
    """Send a signal to a program that samples, and wait for its end."""
    with sampling(tmp_path, code) as running:
        running.signal(number)
        return running.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("code", [PLAIN, pytest.param(BY_MPIRUN, marks=pytest.mark.long)])
def test_a_program_without_a_handler_ends_by_the_signal(
    tmp_path: Path, code: str, number: signal.Signals
) -> None:
    """The status in a shell is 143 for SIGTERM, and the checkpoint is there; also of processes that
    `fit` has started.
    """
    assert after_signal(tmp_path, code, number).code == -number
    assert steps(tmp_path / "run/checkpoints/chain-0")
    assert not left(tmp_path)


@pytest.mark.parametrize("code", [TEMPORARY, LOOP, GRID], ids=["temporary", "loop", "grid"])
def test_a_signal_is_not_taken_for_a_failed_fit(tmp_path: Path, code: str) -> None:
    """A loop that goes on after errors, or a grid search, would finish with status 0 and choose
    among fewer candidates; temporary runs are removed.
    """
    done = after_signal(tmp_path, code)
    assert (done.code, done.out) == (-signal.SIGTERM, "")
    assert not left(tmp_path)


def workers(tmp_path: Path, running: Running) -> list[int]:
    """Processes of joblib that sample, by the environment that they inherit."""
    place = f"TMPDIR={tmp_path / 'scratch'}".encode()

    def names_worker(pid: int) -> bool:
        return b"loky" in Path(f"/proc/{pid}/cmdline").read_bytes()

    return [
        pid
        for pid, _, variables in processes()
        if place in variables and pid != running.process.pid and names_worker(pid)
    ]


def test_joblib_in_one_process(tmp_path: Path) -> None:
    """Without workers, joblib calls `fit` in the program itself."""
    done = after_signal(tmp_path, JOBLIB % 1)
    assert (done.code, done.out) == (-signal.SIGTERM, "")


def test_a_worker_of_joblib_that_is_stopped_fails_the_whole(tmp_path: Path) -> None:
    """The worker ends by the signal after its checkpoint; joblib says that it has gone."""
    with sampling(tmp_path, JOBLIB % 2) as running:
        wait_until(lambda: len(list(tmp_path.glob("run-*/metrics*"))) == 2, lambda: "one samples")
        for pid in workers(tmp_path, running):
            os.kill(pid, signal.SIGTERM)
        done = running.wait()
    assert done.code == 1
    assert "TerminatedWorkerError" in done.err
    assert any(steps(path) for path in tmp_path.glob("run-*/checkpoints/chain-0"))


@pytest.mark.filterwarnings("ignore::dsgmcmc.errors.SamplingWarning")
def test_chains_of_a_density_end_by_the_signal_and_go_on(tmp_path: Path) -> None:
    """The checkpoint that is written then has the draws; resumed, they are as without a stop."""
    np.save(tmp_path / "x.npy", np.zeros(1))
    with Running([sys.executable, "-c", BEGIN + DENSITY % 10**7], cwd=tmp_path) as running:
        running.until((tmp_path / "run/run.toml").exists, "sampling")
        time.sleep(1)
        running.signal(signal.SIGTERM)
        assert running.wait().code == -signal.SIGTERM
    reached = steps(tmp_path / "run/checkpoints/chain-0")[-1]
    assert reached
    run(sys.executable, "-c", BEGIN + DENSITY % (reached + 500), cwd=tmp_path).expect(0)
    theta = np.load(tmp_path / "theta.npy")
    density = Gaussian(np.zeros(2), np.eye(2))
    whole = sample_density(density, sampler="hmc", chains=1, iterations=reached + 500)
    np.testing.assert_array_equal(theta, whole.theta)


def test_a_handler_that_returns_ends_no_fit_silently(tmp_path: Path) -> None:
    """The program's handler is called after the checkpoint; then `StoppedError` comes out of loops
    that go on after an `Exception`.
    """
    done = after_signal(tmp_path, RETURNING)
    assert (done.code, done.out) == (1, "heard\n")
    assert "StoppedError: sampling was stopped before its end" in done.err
    assert "warm_start" not in done.err


def test_a_handler_that_exits_decides_about_the_status(tmp_path: Path) -> None:
    """As programs under a batch system have it."""
    done = after_signal(tmp_path, EXITING)
    assert (done.code, done.out) == (3, "cleaned up\n")
    assert steps(tmp_path / "run/checkpoints/chain-0")


@pytest.mark.parametrize("code", [PLAIN, LOOP, GRID], ids=["plain", "loop", "grid"])
def test_ctrl_c_stays_what_it_is_in_python(tmp_path: Path, code: str) -> None:
    """`KeyboardInterrupt`, which Python shows before it ends by SIGINT."""
    done = after_signal(tmp_path, code, signal.SIGINT)
    assert (done.code, done.out) == (-signal.SIGINT, "")
    assert "KeyboardInterrupt" in done.err
    assert ("warm_start=True continues" in done.err) == (code == PLAIN)

"""One process samples by itself: without MPI, and in a program that gets everything back as it
was.
"""

import gc
import logging
import os
import signal
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from densities import Logistic
from faulty.faults import injected_here
from mpi4py import MPI
from support import digest, planted, run, wait_until
from threadpoolctl import threadpool_info
from tiny import alone

from dsgmcmc import BPMF, sample_density
from dsgmcmc.errors import DivergenceError, InputError, StoppedError
from dsgmcmc.storage.lock import is_held
from dsgmcmc.storage.store import steps

X = np.column_stack(planted(30, 20, 0.6))
BURN_IN = 30  # the state at its end is kept: a chain that diverges goes back to it
SHORT = {
    "rank": 2,
    "iterations": 80,
    "burn_in": BURN_IN,
    "options": {"grid": 2, "evaluate_every": 20},
}
DENSITY = {"sampler": "hmc", "chains": 2, "iterations": 2000, "seed": 1}

WITHOUT_MPI = """
import sys
sys.modules["mpi4py.MPI"] = None
import numpy as np
from dsgmcmc import BPMF, sample_density
from densities import Logistic
BPMF(**{short}, out="fit").fit(np.load("x.npy"))
np.save("theta.npy", sample_density(Logistic(), **{density}).theta)
assert not [name for name in sys.modules if name.startswith("mpi4py.")  and name != "mpi4py.MPI"]
assert sys.modules["mpi4py.MPI"] is None
"""


def fit(out: Path | None = None, **more) -> BPMF:
    return BPMF(**{**SHORT, **more}, out=out).fit(X)


@pytest.fixture(autouse=True)
def usual_handler() -> None:
    """Ctrl-C does what it does in Python, whatever tests before have left."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A fit that was not stopped."""
    out = tmp_path_factory.mktemp("whole") / "run"
    fit(out)
    return out


def state() -> dict[str, object]:
    """The things of a program that a fit could change."""
    logger = logging.getLogger("dsgmcmc")
    numbers = (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)
    return {
        "handlers": [signal.getsignal(number) for number in numbers],
        "environment": dict(os.environ),
        "logger": (logger.level, logger.propagate, list(logger.handlers)),
        "BLAS": [library["num_threads"] for library in threadpool_info()],
        "errors": np.geterr(),
        "folder": Path.cwd(),
    }


def files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def expect_ended(threads: int) -> None:
    """Soon there are no more threads than these."""
    wait_until(lambda: threading.active_count() <= threads, threading.enumerate, 20)


def test_no_mpi_library_is_loaded_and_the_bits_are_those_of_two_processes(
    tmp_path, whole, data, finished
) -> None:
    """A fit and a density where importing MPI fails; MPI with one process, and with two."""
    np.save(tmp_path / "x.npy", X)
    code = WITHOUT_MPI.format(short=SHORT, density=DENSITY)
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    run(sys.executable, "-c", code, env={"PYTHONPATH": path}, cwd=tmp_path).expect(0)
    assert digest(tmp_path / "fit") == digest(whole)
    assert digest(finished) == alone(
        data, tmp_path / "one", iterations=40, noise_precision="sampled"
    )
    theta = sample_density(Logistic(), comm=MPI.COMM_SELF, **DENSITY).theta
    np.testing.assert_array_equal(np.load(tmp_path / "theta.npy"), theta)


def test_a_fit_leaves_the_program_as_it_was(tmp_path, whole) -> None:
    """Handlers, environment, logs, threads and files; twice, and after errors: with the same
    bits.
    """
    signal.signal(signal.SIGUSR1, before := lambda *_: None)
    logging.getLogger("dsgmcmc").addHandler(handler := logging.NullHandler())
    try:
        at_first = state()
        threads = threading.active_count()
        opened = files()
        for number in range(2):
            fit(tmp_path / str(number))
            assert digest(tmp_path / str(number)) == digest(whole)
            assert state() == at_first
        with pytest.raises(InputError, match=r"^grid 4000 is more"):
            fit(options={"grid": 4000})
        with pytest.raises(DivergenceError, match=r"Use a smaller sampler\.step_size"):
            fit(sampler="sgld", options={"sampler.step_size": 1e5})
        assert state() == at_first
        expect_ended(threads)
        gc.collect()  # of exceptions
        assert files() <= opened
        assert signal.getsignal(signal.SIGUSR1) is before
    finally:
        logging.getLogger("dsgmcmc").removeHandler(handler)
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)


def test_ctrl_c_leaves_a_checkpoint(tmp_path, whole) -> None:
    """`fit` raises what Python raises, after the chain is saved; with warm_start=True it comes to
    the same digest.
    """
    before = state()
    threads = threading.active_count()
    with injected_here("iteration=int,at=40"), pytest.raises(KeyboardInterrupt) as stopped:
        fit(tmp_path / "run")
    assert "warm_start=True continues" in "".join(stopped.value.__notes__)
    assert state() == before
    expect_ended(threads)
    assert steps(tmp_path / "run/checkpoints/chain-0") == [BURN_IN, 40]
    fit(tmp_path / "run", warm_start=True)
    assert digest(tmp_path / "run") == digest(whole)


def test_a_handler_of_the_program_gets_its_signal_when_the_chain_is_saved(tmp_path) -> None:
    """As a server's SIGTERM: the fit does not pass for one that came to its end."""
    seen: list[int] = []
    signal.signal(
        signal.SIGTERM, lambda *_: seen.extend(steps(tmp_path / "run/checkpoints/chain-0"))
    )
    try:
        with injected_here("iteration=term,at=40"), pytest.raises(StoppedError) as stopped:
            fit(tmp_path / "run")
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert seen == [BURN_IN, 40]
    assert "warm_start=True continues" in "".join(stopped.value.__notes__)


def test_a_temporary_run_is_not_said_to_go_on() -> None:
    """Without `out` the run is gone with the model, which a program that ends does not keep."""
    signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with injected_here("iteration=term,at=40"), pytest.raises(StoppedError) as stopped:
            fit()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert not hasattr(stopped.value, "__notes__")
    assert "warm_start" not in str(stopped.value)


def test_a_second_ctrl_c_does_not_wait(tmp_path) -> None:
    """Nothing but an exception comes of it: no process ends, and the run is free for the next
    one.
    """
    first = (  # the checkpoint of the first one; before, names and the end of burn-in
        "snapshot={},at=3"
    )
    faults = "iteration=int,at=40", first.format("sleep:0.2"), first.format("int")
    with injected_here(*faults), pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "run")
    assert not is_held(tmp_path / "run" / "lock")
    assert steps(tmp_path / "run/checkpoints/chain-0") == [BURN_IN]
    fit(tmp_path / "run", warm_start=True)


def test_fits_in_threads(tmp_path, whole) -> None:
    """Two fits at once, where no signal can be taken over, are as they are alone; BLAS keeps its
    threads.
    """
    before = state()
    threads = [threading.Thread(target=fit, args=(tmp_path / name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert digest(tmp_path / "a") == digest(tmp_path / "b") == digest(whole)
    assert state() == before

"""Draws in memory: those of a run on disk, without files; errors that a program can catch; curvature that is found."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from densities import D, Logistic

from dsgmcmc import DensityRun, sample_density
from dsgmcmc.densities.source import DensitySource, check_room
from dsgmcmc.densities.targets.density import ALL, Data
from dsgmcmc.densities.targets.potentials import Gaussian
from dsgmcmc.densities.targets.probe import with_curvature
from dsgmcmc.diagnostics.mixing import rhat
from dsgmcmc.errors import DivergenceError, InputError, StoppedError

SETTINGS: dict[str, Any] = {"chains": 2, "iterations": 150, "burn_in": 50, "thin": 5, "grid": 4, "seed": 3}


class Unmeasured(Logistic):
    """A regression that does not say how curved it is."""

    def __init__(self) -> None:
        super().__init__()
        del self.curvature


@pytest.mark.parametrize("name", ["sgld", "hmc", "matrix_sgnht", "hamcmc"])
def test_draws_in_memory_are_those_of_a_run(name: str, tmp_path: Path) -> None:
    """Bit for bit, with their weights, iterations and energies; whatever is looked at in between."""
    settings = {**SETTINGS, "sampler": name, "energy_every": 3, "follow": "all"}
    inside = sample_density(Logistic(), **settings)
    on_disk = sample_density(Logistic(), tmp_path / "run", evaluate_every=7, **settings)
    assert isinstance(on_disk, DensityRun)
    for field in ("theta", "energy", "weight", "iteration", "elements"):
        np.testing.assert_array_equal(getattr(inside, field), getattr(on_disk, field), err_msg=field)
    assert inside.theta.shape == (2, 20, D)
    assert np.isfinite(inside.energy[0]).nonzero()[0].tolist() == list(range(0, 20, 3))
    assert inside.iteration[0].tolist() == list(range(55, 151, 5))


def test_energies_are_off_where_data_are_subsampled() -> None:
    """They take all data, which minibatches are there to avoid; on where every iteration takes all of them anyway."""
    asked: list[int] = []

    class Counting(Logistic):
        """Counts the energies of all data."""

        def energy(self, theta: np.ndarray, data: Data = ALL) -> np.ndarray:
            asked.append(len(self.labels[data]))
            return super().energy(theta, data)

    parts = sample_density(Counting(), **SETTINGS, sampler="sgld")
    assert len(asked) < 5, "some to see that it is one"
    assert np.isnan(parts.energy).all()
    whole = sample_density(Counting(), **SETTINGS, sampler="baoab")
    assert np.isfinite(whole.energy).all()


def test_all_elements_of_a_long_vector_are_kept(tmp_path: Path) -> None:
    """In memory always; of a run 256, or as many as `follow` says."""
    law = Gaussian(np.zeros(300), np.eye(300))
    settings = {"sampler": "baoab", "iterations": 20, "burn_in": 0, "thin": 1}
    assert sample_density(law, **settings).theta.shape == (1, 20, 300)
    for follow, kept in ((None, 256), (10, 10), ("all", 300)):
        more = {} if follow is None else {"follow": follow}
        sample_density(law, tmp_path / f"{follow}", **settings, **more)
        assert DensityRun(tmp_path / f"{follow}").theta.shape == (1, 20, kept)


def test_draws_that_do_not_fit_into_memory_are_refused(tmp_path: Path) -> None:
    """Before the first iteration, with what is needed and what is there; few elements, or few draws, are not."""
    law = Gaussian(np.zeros(300), np.eye(300))
    long: dict[str, Any] = {"sampler": "sgld", "iterations": 10**9, "burn_in": 0, "thin": 1}
    for out, more in (((), {}), ((tmp_path / "run",), {"follow": "all"})):
        with pytest.raises(InputError, match=r"1,000,000,000 draws would hold 4515.1 GiB, of which .* larger thin"):
            sample_density(law, *out, **long, **more)
    assert not (tmp_path / "run").exists()
    source = DensitySource(law)
    check_room(law, source.build({**long, "follow": 1, "thin": 10**5}).resolved())


def test_how_well_it_mixed_is_said() -> None:
    """R-hat and ESS of every element, the worst of them in its repr; ArviZ has the draws."""
    draws = sample_density(Logistic(), sampler="hmc", chains=3, iterations=400, burn_in=200)
    np.testing.assert_array_equal(draws.mixing.rhat, rhat(draws.theta))
    assert draws.mixing.ess.min() > 200
    text = repr(draws)
    assert text.startswith("3 chain(s) of 200 draws of 3 elements of theta by hmc: R-hat at most 1.0")
    assert f"ESS at least {draws.mixing.ess.min():,.0f}" in text
    assert 0.5 < draws.statistics[0]["acceptance"] <= 1
    pytest.importorskip("arviz_base")
    tree = draws.to_arviz()
    np.testing.assert_array_equal(tree["posterior"]["theta"], draws.theta)
    np.testing.assert_array_equal(tree["sample_stats"]["lp"], -draws.energy)


def test_chains_end_at_an_accuracy(tmp_path: Path) -> None:
    """At the iteration at which a run does."""
    settings = {"sampler": "hmc", "chains": 2, "burn_in": 50, "until": "ess=150", "seed": 2}
    draws, run = sample_density(Logistic(), **settings), sample_density(Logistic(), tmp_path / "run", **settings)
    assert draws.look.reached
    assert draws.look.found["ess"] >= 150
    np.testing.assert_array_equal(draws.theta, run.theta)


# ---------------------------------------------------------------------- errors


class Broken(Logistic):
    """Fails after some gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 30

    def gradient(self, theta: np.ndarray, data: Data = ALL) -> np.ndarray:
        """Of some of the data."""
        self.left -= 1
        return super().gradient(theta, data) * (1 // max(self.left, 0))


@pytest.mark.parametrize("out", [None, "run"])
def test_errors_are_exceptions(out: str | None, tmp_path: Path) -> None:
    """A notebook survives them: not SystemExit, in memory as on disk; and names are those of Python."""
    where = () if out is None else (tmp_path / out,)
    with pytest.raises(InputError, match="nuts' is not known"):
        sample_density(Logistic(), *where, sampler="nuts")
    with pytest.raises(DivergenceError, match=r"chain 0 diverged .* Use a smaller step_size of the sampler"):
        sample_density(Logistic(), *where, sampler={"name": "sgld", "step_size": 1e4}, iterations=500, burn_in=0)
    elsewhere = () if out is None else (tmp_path / "two",)
    with pytest.raises(ZeroDivisionError):
        sample_density(Broken(), *elsewhere, sampler="baoab", iterations=500)


@pytest.mark.parametrize(
    ("number", "handler", "error"),
    [
        (signal.SIGINT, signal.default_int_handler, KeyboardInterrupt),
        (signal.SIGINT, signal.SIG_DFL, KeyboardInterrupt),
        (signal.SIGUSR1, signal.SIG_DFL, StoppedError),
    ],
    ids=["ctrl-c", "ctrl-c without a handler", "usr1"],
)
def test_a_run_that_is_stopped_says_so_and_goes_on(
    number: int, handler: Any, error: type[BaseException], tmp_path: Path
) -> None:
    """With the draws of one that was not; and signals do afterwards what they did before, whoever handled them."""

    class Slow(Logistic):
        """So that there is time to stop it."""

        def gradient(self, theta: np.ndarray, data: Data = ALL) -> np.ndarray:
            time.sleep(0.002)
            return super().gradient(theta, data)

    settings = {"sampler": "baoab", "iterations": 600, "burn_in": 10, "thin": 5, "seed": 1}
    given = signal.signal(number, handler)
    timer = threading.Timer(0.8, signal.raise_signal, [number])
    timer.start()
    with pytest.raises(error):
        sample_density(Slow(), tmp_path / "run", **settings)
    timer.join()
    assert signal.getsignal(number) is handler
    signal.signal(number, given)
    run = sample_density(Slow(), tmp_path / "run", **settings)
    np.testing.assert_array_equal(run.theta, sample_density(Slow(), **settings).theta)


def test_what_is_of_runs_alone_is_refused_in_memory() -> None:
    """It would be silently ignored."""
    with pytest.raises(InputError, match="of runs on disk"):
        sample_density(Logistic(), resume=False)  # type: ignore[call-overload]
    with pytest.raises(InputError, match="before the first draw"):
        sample_density(Logistic(), sampler="mala", iterations=100, burn_in=100)


# ---------------------------------------------------------------------- curvature that is found


def test_the_curvature_is_found() -> None:
    """That of a correlated normal law: its diagonal, times the largest eigenvalue in that metric; to .1 %."""
    covariance = np.array([[4.0, 0.9], [0.9, 0.25]])
    law = Gaussian(np.array([3.0, -1.0]), covariance)
    del law.curvature
    found = with_curvature(law).curvature
    diagonal = np.diag(law.precision)
    largest = np.linalg.eigvalsh(law.precision / np.sqrt(np.outer(diagonal, diagonal))).max()
    np.testing.assert_allclose(found, largest * diagonal, rtol=1e-3)
    given = Logistic()
    assert with_curvature(given) is given


@pytest.fixture(scope="module")
def exact() -> np.ndarray:
    """Draws of the regression by an exact kernel that is told its curvature, (4, 1500, 3)."""
    return sample_density(Logistic(), sampler="hmc", chains=4, iterations=1800, burn_in=300, seed=2).theta


@pytest.mark.parametrize("name", ["hmc", "mala", "baoab", "sghmc", "matrix_sgnht"])
def test_no_curvature_is_needed(name: str, exact: np.ndarray) -> None:
    """Posterior means are right to four of their standard errors, .01 to .03, and .01 that the others are known to."""
    settings = {"sampler": name, "chains": 2, "iterations": 2000, "burn_in": 300, "thin": 5, "seed": 1}
    draws = sample_density(Unmeasured(), **settings)
    error = exact.std(axis=(0, 1)) / np.sqrt(draws.mixing.ess)
    assert (abs(draws.theta.mean(axis=(0, 1)) - exact.mean(axis=(0, 1))) < 4 * error + 0.01).all()


def test_a_run_without_curvature_goes_on(tmp_path: Path) -> None:
    """It is of the same density before and after, though what was found is none of its attributes."""
    settings = {"sampler": "baoab", "burn_in": 10, "thin": 5, "seed": 1}
    for iterations in (37, 90):
        stopped = sample_density(Unmeasured(), tmp_path / "run", iterations=iterations, **settings)
    np.testing.assert_array_equal(stopped.theta, sample_density(Unmeasured(), iterations=90, **settings).theta)

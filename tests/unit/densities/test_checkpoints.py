"""Chains of a density that are stopped and resumed have the bits of chains that were not."""

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from densities import Logistic
from faulty.faults import injected_here
from mpi4py import MPI
from support import write_planted

from dsgmcmc import BPMF
from dsgmcmc.densities.density import Gaussian
from dsgmcmc.densities.models.regression import Regression
from dsgmcmc.densities.registry import SAMPLERS
from dsgmcmc.densities.sample import Draws, sample_density
from dsgmcmc.densities.subsampling import DATUM_GRADIENTS
from dsgmcmc.errors import InputError, StoppedError
from dsgmcmc.posterior.fitted import open_run
from dsgmcmc.storage.store import steps

# most chains here are short
pytestmark = pytest.mark.filterwarnings("ignore::dsgmcmc.errors.SamplingWarning")

#: Checkpoints of both chains come at multiples of 23 iterations, in and after burn-in.
SHORT = {"chains": 2, "iterations": 120, "burn_in": 60, "thin": 6, "seed": 1}
OFTEN = {"checkpoint_every": 23}


class Curved(Gaussian):
    """A density with a metric."""

    def __init__(self) -> None:
        super().__init__(np.zeros(2), np.eye(2))

    def metric(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        root = np.sqrt(1 + theta**2)
        return root, theta / root


def regression() -> Regression:
    return Regression(Logistic().features, Logistic().labels)


def sampled(sampler: str | dict[str, Any], **more: Any) -> Draws:
    """Sample the density that suits a sampler."""
    name = sampler if isinstance(sampler, str) else sampler["name"]
    density = Curved() if name.startswith("gsg") else regression()
    if name == "psgld":
        sampler = {"name": name, "step_size": 0.01}
    if name in ("sgnht", "gsgrhmc", "gsgrld"):
        more["grid"] = 1
    if name == "hamcmc":
        more["thin"] = 7
    with np.errstate(all="ignore"):
        return sample_density(density, **{**SHORT, "sampler": sampler, **more})


def expect_same(found: Draws, expected: Draws) -> None:
    for name in ("theta", "energy", "weight", "iteration"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)
    assert found.statistics == expected.statistics
    assert found.warnings == expected.warnings


@pytest.fixture(autouse=True)
def returning_handler() -> None:
    """SIGTERM ends `sample_density` by `StoppedError`, and not this process."""
    signal.signal(signal.SIGTERM, lambda *_: None)


@pytest.mark.parametrize(
    "sampler",
    [
        *(name for name, sampler in SAMPLERS.items() if not sampler.draws_conditionals),
        *({"name": "sgld", "gradient": name} for name in (*DATUM_GRADIENTS, "control-variate")),
    ],
    ids=str,
)
def test_every_sampler_goes_on_from_its_checkpoint(tmp_path: Path, sampler: Any) -> None:
    """A stop in burn-in, and one after it in the second chain: what a sampler or an estimator keeps
    beside the fields of the state would be forgotten.
    """
    whole = sampled(sampler)
    options = {"out": tmp_path / "run", **OFTEN}
    with injected_here("snapshot=term,at=1"), pytest.raises(StoppedError) as stopped:
        sampled(sampler, **options)
    assert "resume=True continues" in "".join(stopped.value.__notes__)
    assert 0 < steps(tmp_path / "run/checkpoints/chain-0")[-1] < SHORT["burn_in"]
    with injected_here("snapshot=term,at=12"), pytest.raises(StoppedError):
        sampled(sampler, **options, resume=True)
    assert steps(tmp_path / "run/checkpoints/chain-0")[-1] == SHORT["iterations"]
    expect_same(sampled(sampler, **options, resume=True), whole)
    expect_same(sampled(sampler, **options, resume=True), whole)


def test_a_damaged_checkpoint_is_left_out(tmp_path: Path, caplog: Any) -> None:
    """The chain goes on from the one before, and makes the lost draws again."""
    options = {"out": tmp_path / "run", **OFTEN}
    whole = sampled("hmc", **options)
    newest = sorted((tmp_path / "run/checkpoints/chain-1").iterdir())[-1]
    (newest / "shard-00000.h5").write_bytes(b"")
    expect_same(sampled("hmc", **options, resume=True), whole)
    assert "trying the previous checkpoint" in caplog.text
    for folder in (tmp_path / "run/checkpoints/chain-1").iterdir():
        (folder / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match=r"no checkpoint of chain 1 in .* can be used"):
        sampled("hmc", **options, resume=True)


def test_a_run_goes_on_with_more_iterations_and_chains(tmp_path: Path) -> None:
    """The draws are those of a run that was that long from the start; what is left out stays."""
    density = regression()
    sampled("hmc", out=tmp_path / "run")
    longer = {"iterations": 180, "chains": 3}
    found = sample_density(density, out=tmp_path / "run", resume=True, **longer)
    expect_same(found, sampled("hmc", **longer))
    again = sample_density(density, out=tmp_path / "run", resume=True)
    expect_same(again, found)


def test_a_length_that_is_left_open_grows_as_without_a_stop(tmp_path: Path) -> None:
    """Whether chains have mixed is judged at the same lengths."""
    settings = {"sampler": {"name": "baoab", "step_size": 0.01}, "chains": 2, "seed": 3}
    whole = sample_density(regression(), **settings)
    assert whole.settings["iterations"] > 700
    options = {"out": tmp_path / "run", "checkpoint_every": 500}
    with injected_here("snapshot=term,at=9"), pytest.raises(StoppedError):
        sample_density(regression(), **settings, **options)
    assert steps(tmp_path / "run/checkpoints/chain-0")[-1] > 700
    expect_same(sample_density(regression(), **settings, **options, resume=True), whole)


def test_another_density_or_other_settings_are_refused(tmp_path: Path) -> None:
    """Draws of two densities would be mixed, with status 0."""
    run = tmp_path / "run"
    sampled("hmc", out=run)
    again = {**SHORT, "out": run, "resume": True}
    with pytest.raises(InputError, match="is not empty: give resume"):
        sample_density(regression(), **SHORT, out=run)
    with pytest.raises(InputError, match="has draws from another density: its energies near"):
        sample_density(Regression(Logistic().features, 1 - Logistic().labels), **again)
    with pytest.raises(InputError, match="another prior, dimension or number of data"):
        sample_density(Curved(), **again)
    with pytest.raises(InputError, match=r"seed: 1 in the run, 2 requested"):
        sample_density(regression(), **{**again, "seed": 2})
    with pytest.raises(InputError, match="has made 120 iterations, and cannot end at iteration 90"):
        sample_density(regression(), **{**again, "iterations": 90})
    for wrong in ({"resume": True}, OFTEN):
        with pytest.raises(InputError, match="needs out, the run directory"):
            sample_density(regression(), **SHORT, **wrong)
    settings = {**SHORT, "comm": MPI.COMM_SELF}
    assert sample_density(regression(), **settings, out=run, resume=True).theta.shape[0] == 2


def test_runs_on_ratings_and_runs_of_densities_are_told_apart(tmp_path: Path) -> None:
    """Either is opened by its own reader, and named by the other one."""
    sampled("hmc", out=tmp_path / "density")
    with pytest.raises(InputError, match="has chains of the density Regression, and no ratings"):
        open_run(tmp_path / "density")
    data = write_planted(tmp_path / "r.h5")
    BPMF(2, iterations=20, burn_in=5, out=tmp_path / "ratings").fit(data)
    with pytest.raises(InputError, match="is a run on ratings"):
        sampled("hmc", out=tmp_path / "ratings", resume=True)

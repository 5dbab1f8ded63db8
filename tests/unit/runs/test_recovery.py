"""Which samplers a chain falls back to where it diverges, and from which state."""

import signal
from pathlib import Path
from typing import Any

import pytest
from mpi4py import MPI
from support import copied, diverging, metrics, sample, write_dominant

from dsgmcmc.config.chain import section_of
from dsgmcmc.config.job import Policy
from dsgmcmc.config.run import build
from dsgmcmc.diagnostics.summary import read_summary
from dsgmcmc.errors import Exit
from dsgmcmc.kernels.philox import noise_words
from dsgmcmc.runs.chain import fallbacks
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.storage.store import Key, Snapshot, step_name
from dsgmcmc.targets.state import RandomStream, restarted_chain
from dsgmcmc.types import Factor, Purpose

ALL = ["half the step", "a quarter of the step", "the sampler gibbs"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ALL),
        ({"likelihood": "ordinal-logit"}, ALL[:2]),
        ({"sampler": "baoab"}, ALL[:2]),
        ({"sampler": {"step_size": 0.3}}, []),
        ({"sampler": {"metric": "kronecker"}}, ALL[:2]),
        ({"likelihood": "all-cells"}, ALL),
        ({"sampler": {"name": "sgld", "step_size": 0.1}}, []),
        ({"prior": "fixed"}, ALL[:2]),
    ],
)
def test_nothing_that_was_named_is_replaced(settings: dict[str, Any], expected: list[str]) -> None:
    """A sampler, metric or step that was named stays, and Gibbs sampling needs a likelihood that
    admits it.
    """
    requested = section_of(settings.get("sampler", {}))
    assert [
        fallback.name for fallback in fallbacks(build(settings).resolved(), requested)
    ] == expected


def test_steps_are_those_of_the_settings_made_smaller() -> None:
    """Steps are halved and quartered, and settings that were named are kept."""
    requested = {"friction": 0.8, "burn_in_step_size": 0.1}
    config = build({"sampler": requested}).resolved()
    half, quarter, _ = fallbacks(config, requested)
    size = config.sampler.config.step_size
    assert half.sampler.config.step_size == size / 2
    assert quarter.sampler.config.step_size == size / 4
    for smaller in (half, quarter):
        assert smaller.sampler.config.burn_in_step_size == 0.1
        assert smaller.sampler.config.friction == 0.8


# ---------------------------------------------------------------------- steps that burn-in halves


@pytest.mark.parametrize("is_chosen", [False, True])
def test_burn_in_halves_a_step_that_is_too_large(tmp_path: Path, is_chosen: bool) -> None:
    """A full matrix with one dominant direction: with the default step, temperatures are above 1.3
    long after burn-in, so that the chain diverges at its first check. A step that was chosen stays.
    """
    data = write_dominant(tmp_path / "r.h5", 300, 200)
    settings = {"rank": 8, "grid": 2, "iterations": 240, "sampler": {"name": "baoab"}}
    if is_chosen:
        settings["sampler"]["step_size"] = 0.35
    policy = Policy(on_divergence="stop")
    status = sample(MPI.COMM_SELF, data, tmp_path / "run", policy=policy, **settings)
    events = RunDirectory(tmp_path / "run").events()
    halved = [event["step_size"] for event in events if event["event"] == "halved step"]
    assert status == Exit.DONE
    if is_chosen:
        assert halved == []
    else:
        assert halved == [0.175]


# ---------------------------------------------------------------------- where chains begin again


def test_a_chain_that_begins_again_takes_other_numbers() -> None:
    """Normals and draws on the root differ from those before, and from those of other chains."""
    keys = set()
    drawn = set()
    for chain in (0, 1, 65535):
        for times in range(3):
            stream = RandomStream(5, restarted_chain(chain, times), iteration=9)
            keys.add(noise_words(stream.key(Purpose.STEP, Factor.W, 0)))
            drawn.add(stream.generator(Purpose.HYPERPARAMETERS).random())
    assert len(keys) == len(drawn) == 9


BURN_IN = 20


@pytest.fixture(scope="module")
def recovered(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that diverged three times after its burn-in."""
    out = tmp_path_factory.mktemp("recovered") / "run"
    assert diverging(MPI.COMM_SELF, data, out) == 0
    return out


def test_each_time_is_said_and_the_draws_are_of_the_last(recovered: Path) -> None:
    """All fallbacks are recorded; metrics, draws and posterior are those of the last chain."""
    noted = [event for event in RunDirectory(recovered).events() if event["event"] == "diverged"]
    assert [event["from"] for event in noted] == [BURN_IN] * 3
    steps = read_summary(recovered / "summary.json")["fell_back"]
    assert [step["next"] for step in steps] == ALL
    assert [step["iteration"] for step in steps] == [event["iteration"] for event in noted]
    assert all(step["iteration"] > BURN_IN for step in steps)
    assert [line["iteration"] for line in metrics(recovered)] == [1, *range(10, 61, 10)]
    posterior = Snapshot(recovered / "posterior" / "chain-0" / step_name(60))
    assert posterior.read(Key("trace", "run", 0, "iteration")).ravel().tolist() == [
        *range(BURN_IN + 5, 61, 5)
    ]


def test_a_chain_begins_from_the_state_at_the_end_of_its_burn_in(
    data: Path, tmp_path: Path
) -> None:
    """A chain begins again with the parameters of the end of its burn-in, new momenta, and no
    draws.

    The job is killed where it removes the first checkpoint that the new one replaces, so that both
    exist.
    """
    run = tmp_path / "run"
    assert (
        copied("rename=kill,path=.trash-", lambda: diverging(MPI.COMM_SELF, data, run))
        == -signal.SIGKILL
    )
    begun, before = (Snapshot(run / "checkpoints" / "chain-0" / step_name(n)) for n in (0, BURN_IN))
    for factor in "WH":
        theta, r = (Key("state", factor, 2, name) for name in ("theta", "r"))
        assert begun.read(theta).tobytes() == before.read(theta).tobytes()
        assert begun.read(r).tobytes() != before.read(r).tobytes()
    assert begun.manifest.state["tau"] == before.manifest.state["tau"]
    assert len(begun.manifest.diverged) == 1
    assert not before.manifest.diverged
    assert not begun.manifest.saved_draws

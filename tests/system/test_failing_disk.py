"""A disk that fails at any call, once or from then on: one message, nothing half-written that
counts, nothing lost.

`tests/benchmarks/attack.py` lets many more calls of more commands fail.
"""

import errno

import pytest
from failing import READERS, SAMPLE, WRITERS, Scene, expect_told
from support import digest, run

from dsgmcmc.storage.store import steps


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Ratings, pairs, and a run that nothing interrupts."""
    return Scene(tmp_path_factory.mktemp("scene"))


@pytest.mark.parametrize(
    ("words", "failure"),
    [
        (SAMPLE, "EIO"),
        *((words, "full") for words in (SAMPLE, WRITERS[0], WRITERS[4], WRITERS[5])),
        *(
            (words, failure)
            for words in (WRITERS[0], WRITERS[4], READERS[2])
            for failure in ("EIO of read", "EIO of close")
        ),
    ],
)
def test_a_command_survives_any_call_that_fails(scene: Scene, words: str, failure: str) -> None:
    """It is done, or says why not and leaves what was there; a resumed run is the undisturbed
    one.
    """
    for script in scene.failing(words, failure, 4):
        scene.attempt(words, script)


@pytest.mark.parametrize("log", ["metrics.jsonl", "events.jsonl"])
def test_a_log_that_cannot_be_written_stops_the_run_after_a_checkpoint(
    scene: Scene, log: str
) -> None:
    """It is said once, and no draw is lost."""
    place = scene.copied()
    out = place / "out/run"
    told = {"UNDER": out / log, "CALLS": "write", "AT": 1, "ALSO": 10**9, "ERRNO": errno.ENOSPC}
    env = {"LD_PRELOAD": str(scene.library)} | {
        f"FAIL_{name}": str(value) for name, value in told.items()
    }
    result = run(*scene.command(SAMPLE, place), env=env).expect(1)
    expect_told(result, log)
    assert f"{out / log}: No space left on device; stopped after a checkpoint" in result.err
    assert steps(out / "checkpoints" / "chain-0")
    run(*scene.command(f"{SAMPLE} --resume", place)).expect(0)
    assert digest(out) == digest(scene.source / "run")

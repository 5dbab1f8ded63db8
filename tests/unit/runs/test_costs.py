"""What ``--dry-run`` says a run needs, against what it takes, and messages that MPI cannot count.

Bytes that are sent: ``tests/mpi/test_target.py``.
"""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from support import sample, write_planted

from dsgmcmc.config.run import ResolvedConfig, build
from dsgmcmc.errors import InputError
from dsgmcmc.orientation import Orientation
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.runs.costs import INTERPRETER_BYTES, Costs
from dsgmcmc.runs.recorder import DrawRecorder
from dsgmcmc.runs.source import check_limits, targets_of

SETTINGS: dict[str, Any] = {"rank": 8, "grid": 5, "save_draws": 3}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Large enough for arrays to outweigh Python's objects."""
    return write_planted(
        tmp_path_factory.mktemp("data") / "r.h5", rows=3000, columns=1000, share=0.05
    )


def held(data: Path, config: ResolvedConfig) -> int:
    """Bytes of the ratings, the state and the accumulators of a chain on one process, after an
    iteration.
    """
    ring = Ring(MPI.COMM_SELF, config.grid)
    sampler = config.make_sampler()
    before = tracemalloc.get_traced_memory()[0]
    with Ratings(data) as ratings:
        target = targets_of(config, ratings, ring)(0, sampler)
    recorders = [DrawRecorder(target, True, config.save_draws), *target.recorders()]
    sampler.start(target, 0.1)
    target.begin(0)
    tracemalloc.reset_peak()
    sampler.step(target, 0)
    assert recorders
    return tracemalloc.get_traced_memory()[1] - before


@pytest.mark.parametrize("name", ["psgld", "sgld", "gibbs"])
def test_memory_is_at_least_what_a_chain_takes(data: Path, name: str) -> None:
    """A process needs the memory of a chain, of a copy of its state, and of the interpreter."""
    config = build({**SETTINGS, "sampler": name, "noise": "both", "save_draws": 0}).resolved()
    with Ratings(data) as ratings:
        said = Costs.estimate(config, ratings, 1)
        two = Costs.estimate(config, ratings, 2)
    held(data, config)  # compiles the kernels
    tracemalloc.start()
    try:
        taken = held(data, config)
    finally:
        tracemalloc.stop()
    assert said.memory_per_process - INTERPRETER_BYTES == pytest.approx(
        taken + said.checkpoint, rel=0.2
    )
    share = (two.memory_per_process - INTERPRETER_BYTES) / (
        said.memory_per_process - INTERPRETER_BYTES
    )
    # five row blocks: the larger process has three
    assert 0.6 <= share < (0.7 if name != "gibbs" else 1.2)


@pytest.mark.parametrize("name", ["psgld", "hamcmc"])
def test_disk_is_what_was_said(data: Path, tmp_path: Path, name: str) -> None:
    """A checkpoint has the size that was forecast, and the run lies between the bounds."""
    settings = {
        **SETTINGS,
        "sampler": {"name": name},
        "noise": "both",
        "iterations": 7,
        "burn_in": 0,
        "thin": 1,
    }
    assert sample(MPI.COMM_SELF, data, tmp_path / "run", **settings) == 0
    with Ratings(data) as ratings:
        said = Costs.estimate(build(settings).resolved(), ratings, 1)
    (checkpoint,) = (tmp_path / "run" / "checkpoints" / "chain-0").iterdir()
    assert size(checkpoint) == pytest.approx(said.checkpoint, rel=0.1)
    assert 0.9 * said.disk_least < size(tmp_path / "run") < 1.1 * said.disk_most


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("shard-*"))


# ---------------------------------------------------------------------- messages


class Numbers(Ratings):
    """The numbers of ratings by row and column of a file that does not exist."""

    def __init__(self, column_counts: np.ndarray, train: np.ndarray, test: np.ndarray) -> None:
        self.column_counts = column_counts
        self._indptr = {
            "train": np.append(0, np.cumsum(train)),
            "test": np.append(0, np.cumsum(test)),
        }
        self.row_indptr = self._indptr["train"]
        self.test_indptr = self._indptr["test"]
        self.features = {}
        self.orientation = Orientation(transposed=False)


def test_positions_of_test_ratings_have_32_bits() -> None:
    """Test ratings of a block of rows are counted by 32 bits, so that more of them need a larger
    grid.
    """
    counts = np.full(4, 2**40)
    half = 2**30
    config = build({"rank": 2, "grid": 2}).resolved()
    check_limits(config, Numbers(counts, counts, np.array([half, half - 1, half, half - 1])))
    past = Numbers(counts, counts, np.array([half, half, 1, 1]))
    with pytest.raises(InputError, match=r"2,147,483,648 test ratings.* larger --grid"):
        check_limits(config, past)
    check_limits(config.model_copy(update={"grid": 4}), past)

"""What ``--dry-run`` says a run needs, against what it takes, and messages that MPI cannot count.

Bytes that are sent: ``tests/mpi/test_target.py``.
"""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from support import sample, write_planted

from dsgmcmc.config.layers import build
from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.data.ratings import Ratings, open_ratings
from dsgmcmc.errors import InputError
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.runs.checks import MAX_COUNT, check_limits
from dsgmcmc.runs.costs import Costs
from dsgmcmc.runs.recorder import DrawRecorder
from dsgmcmc.runs.source import targets_of
from dsgmcmc.samplers import SAMPLERS
from dsgmcmc.targets.state import MAX_ITERATIONS

SETTINGS: dict[str, Any] = {"rank": 8, "grid": 5, "save_draws": 3}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Large enough for arrays to outweigh Python's objects."""
    return write_planted(tmp_path_factory.mktemp("data") / "r.h5", rows=3000, columns=1000, share=0.05)


def grown() -> int:
    """Bytes allocated since the last call."""
    now = tracemalloc.get_traced_memory()[0]
    tracemalloc.clear_traces()
    return now


def allocate(data: Path, config: ResolvedConfig) -> list[int]:
    """Bytes of the ratings, of the state and of the accumulators of a chain on one process."""
    ring = Ring(MPI.COMM_SELF, config.grid)
    sampler = config.make_sampler()
    grown()
    with open_ratings(data) as ratings:
        make = targets_of(config, ratings, ring)
        taken = [grown()]
        target = make(0, sampler)
        taken.append(grown())
        recorders = [DrawRecorder(target, True, config.save_draws), *target.recorders()]
        taken.append(grown())
        assert recorders
    return taken


@pytest.mark.parametrize("noise", ["shared", "both"])
@pytest.mark.parametrize("name", SAMPLERS)
def test_memory_is_what_was_said(data: Path, name: str, noise: str) -> None:
    """Of the ratings, the state and the accumulators, on one process, to 15 %."""
    config = build({**SETTINGS, "sampler": name, "noise": noise}).resolved()
    with open_ratings(data) as ratings:
        said = Costs.of(config, ratings, 1)
    allocate(data, config)  # compiles the kernels
    tracemalloc.start()
    try:
        taken = np.min([allocate(data, config) for _ in range(2)], axis=0)  # threads of the test runner allocate, too
    finally:
        tracemalloc.stop()
    expected = [said.ratings_per_process, said.state_per_process, said.accumulators_per_process]
    assert taken == pytest.approx(expected, rel=0.15)


def test_memory_of_a_sweep_is_what_was_said(data: Path) -> None:
    """Sums of outer products, and the ratings by column: at its highest, on one process, to 15 %."""
    config = build({**SETTINGS, "sampler": "gibbs"}).resolved()
    ring, sampler = Ring(MPI.COMM_SELF, config.grid), config.make_sampler()
    for _ in range(2):  # the first one compiles the kernels
        with open_ratings(data) as ratings:
            said = Costs.of(config, ratings, 1).sweeping_per_process
            target = targets_of(config, ratings, ring)(0, sampler)
        sampler.start(target, 0.1)
        tracemalloc.start()
        try:
            for iteration in range(2):  # the first sorts the ratings by column
                target.begin(iteration)
                sampler.step(target, iteration)
            taken = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert taken == pytest.approx(said, rel=0.15)


@pytest.mark.parametrize("noise", ["shared", "both"])
@pytest.mark.parametrize("name", ["psgld", "hamcmc"])
def test_disk_is_what_was_said(data: Path, tmp_path: Path, name: str, noise: str) -> None:
    """Of a checkpoint; of the saved draws at most, and half of it at least."""
    settings = {**SETTINGS, "sampler": {"name": name}, "noise": noise, "iterations": 7, "burn_in": 0, "thin": 1}
    assert sample(MPI.COMM_SELF, data, tmp_path / "run", **settings) == 0
    with open_ratings(data) as ratings:
        said = Costs.of(build(settings).resolved(), ratings, 1)
    assert size(next((tmp_path / "run" / "checkpoints" / "chain-0").iterdir())) == pytest.approx(
        said.checkpoint, rel=0.1
    )
    draws = sum(size(path) for path in (tmp_path / "run" / "draws" / "chain-0").iterdir())
    assert 0.5 * said.saved_draws < draws < 1.1 * said.saved_draws
    whole = sum(path.stat().st_size for path in (tmp_path / "run").rglob("shard-*"))
    assert 0.9 * said.disk_least < whole < 1.1 * said.disk_most


def size(snapshot: Path) -> int:
    return sum(path.stat().st_size for path in snapshot.glob("shard-*"))


def test_shares_are_of_the_largest_process(data: Path) -> None:
    """Five row blocks on two processes: one has three of them. Chains share the processes, and multiply the disk."""
    with open_ratings(data) as ratings:
        one, two, five = (Costs.of(build(SETTINGS).resolved(), ratings, processes) for processes in (1, 2, 5))
        chains = Costs.of(build({**SETTINGS, "chains": 5}).resolved(), ratings, 5)
    assert two.state_per_process == pytest.approx(0.6 * one.state_per_process, rel=1e-6)
    assert five.accumulators_per_process == pytest.approx(0.2 * one.accumulators_per_process, rel=1e-6)
    assert chains.state_per_process == one.state_per_process
    assert chains.saved_draws == 5 * one.saved_draws
    assert one.checkpoint == five.checkpoint


# ---------------------------------------------------------------------- messages


class Numbers(Ratings):
    """Of a ratings file only how many ratings there are of what: no file, and nothing that takes memory."""

    def __init__(self, column_counts: np.ndarray, train: np.ndarray, test: np.ndarray) -> None:
        self.column_counts = column_counts
        self._indptr = {"train": np.append(0, np.cumsum(train)), "test": np.append(0, np.cumsum(test))}
        self.row_indptr, self.test_indptr = self._indptr["train"], self._indptr["test"]
        self.features, self.transposed = {}, False


def equal(columns: int) -> Numbers:
    """Columns that all have as many ratings, by rows that are as long."""
    rows = np.broadcast_to(np.int64(1), 40_000)
    return Numbers(np.ones(columns, np.int64), rows, rows)


@pytest.mark.parametrize("sampler", ["psgld", "sgld"])
def test_the_largest_block_that_can_be_sent(sampler: str) -> None:
    """One column more in a block, and the run is refused with a grid that helps."""
    config = build({"rank": 512, "biases": False, "grid": 2, "sampler": {"name": sampler}}).resolved()
    rows = MAX_COUNT // (2 * 512)
    check_limits(config, equal(2 * rows))
    with pytest.raises(InputError, match=r"--grid of at least 3") as caught:
        check_limits(config, equal(2 * rows + 2))
    assert f"{(rows + 1) * 1024:,}" in str(caught.value)
    check_limits(config.model_copy(update={"grid": 3}), equal(2 * rows + 2))


def test_uneven_columns_count_as_they_are_cut() -> None:
    """One popular column is a block of its own, and the rest shares the others."""
    config = build({"rank": 512, "biases": False, "grid": 2}).resolved()
    ratings = equal(3_000_000)
    ratings.column_counts[0] = 10_000_000
    with pytest.raises(InputError, match="block of columns"):
        check_limits(config, ratings)


def test_positions_of_test_ratings_have_32_bits() -> None:
    """In a block of rows; another grid cuts it. The ratings themselves are numbered by 64 bits."""
    train = np.full(4, 2**40)
    half = 2**30
    config = build({"rank": 2, "grid": 2}).resolved()
    columns = np.full(4, 2**40)
    check_limits(config, Numbers(columns, train, np.array([half, half - 1, half, half - 1])))
    past = Numbers(columns, train, np.array([half, half, 1, 1]))
    with pytest.raises(InputError, match=r"2,147,483,648 test ratings.* larger --grid"):
        check_limits(config, past)
    check_limits(config.model_copy(update={"grid": 4}), past)


def test_iterations_have_44_bits() -> None:
    """Of the counter of random numbers: one more would give those of a chain that begins again."""
    common = {"rank": 2, "grid": 2, "until": "none"}
    assert build({**common, "iterations": MAX_ITERATIONS}).resolved().iterations == MAX_ITERATIONS
    with pytest.raises(InputError, match="iterations: must be at most"):
        build({**common, "iterations": MAX_ITERATIONS + 1}).resolved()

"""What a target keeps: blocks that stand alone, and small arrays under the names that they have on disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from support import Model

from dsgmcmc.kernels.formula import Formula, Gradient, RowPrior
from dsgmcmc.kernels.philox import NoiseKey, noise_words, normals
from dsgmcmc.parallel.ring import Phases
from dsgmcmc.samplers.hamcmc import PairProducts
from dsgmcmc.samplers.metrics import Fisher
from dsgmcmc.targets.state import (
    BlockLayout,
    ParameterBlock,
    RandomStream,
    Replicated,
    Rows,
    StateField,
    restarted_chain,
)
from dsgmcmc.types import Factor, Purpose

D = 3


# ---------------------------------------------------------------------- replicated arrays


@dataclass
class Example(Replicated):
    """One array of every kind."""

    saved_as: ClassVar[dict[str, str]] = {"number": "our.number", "things": "{}.thing", "perhaps": "our.perhaps"}

    number: np.ndarray
    things: dict[Factor, np.ndarray]
    perhaps: np.ndarray | None


def example() -> Example:
    return Example(np.array([1.0]), {Factor.W: np.ones((2, 2)), Factor.H: np.zeros(3)}, None)


def test_what_was_saved_is_taken_by_its_name_on_disk() -> None:
    """The very arrays, into an object that had others or none; other names are left alone."""
    saved = example()
    assert set(saved.arrays()) == {"our.number", "W.thing", "H.thing"}
    saved.perhaps = np.array([7.0])
    for fresh in (example(), Example(np.zeros(0), {}, None)):
        fresh.take(saved.arrays() | {"tau": np.zeros(1), "W.mean": np.zeros(1), "number": np.zeros(1)})
        assert fresh.arrays().keys() == saved.arrays().keys()
        assert all(array is saved.arrays()[name] for name, array in fresh.arrays().items())
    saved.take({"W.thing": np.full(2, 5.0)})
    assert saved.number.tolist() == [1.0]
    assert saved.things[Factor.W].tolist() == [5.0, 5.0]
    assert saved.things[Factor.H].tolist() == [0.0, 0.0, 0.0]


MODEL = Model(heteroscedastic=(Factor.H,))
METRIC = Fisher({f: np.ones(D) for f in Factor}, {f: np.ones(D) for f in Factor}, np.ones(1))
ONE = np.zeros((1, 1))


@pytest.mark.parametrize(
    ("replicated", "names"),
    [
        (MODEL.rows(2).parameters, {"W.mean", "H.mean", "W.precision", "H.precision"}),
        (MODEL.noise(subchains=2).parameters, {"tau", "H.nu"}),
        (METRIC, {"metric.W.c", "metric.H.c", "metric.W.lambda", "metric.H.lambda", "metric.tau"}),
        (PairProducts(ONE, ONE, ONE, np.zeros(1)), {"pairs.sy", "pairs.yhy", "pairs.sbs", "skipped_pairs"}),
    ],
)
def test_names_on_disk_stay(replicated: Replicated, names: set[str]) -> None:
    """Runs that were begun before can go on."""
    assert set(replicated.arrays()) == names
    assert all(array.dtype == np.float64 for array in replicated.arrays().values())


# ---------------------------------------------------------------------- blocks


def block_of(start: int, rows: int, stream: RandomStream, factor: Factor = Factor.H) -> ParameterBlock:
    """A block that is nobody's, with the prior N(1, 1 / 2)."""
    layout = BlockLayout([StateField("theta"), StateField("g"), StateField("n", 1)], D)
    buffer = np.zeros(rows * layout.width)
    return ParameterBlock(
        stream=stream,
        timers=Phases(),
        prior=lambda block: RowPrior(np.ones(D), np.full(D, 2.0)),
        factor=factor,
        index=1,
        start=start,
        dimension=D,
        counts=np.zeros(rows, np.int64),
        arrays=layout.views(buffer, rows),
        buffer=buffer,
    )


def test_a_chain_that_begins_again_takes_other_numbers() -> None:
    """Normals and draws on the root differ from those before, and from those of all other chains."""
    keys, drawn = set(), set()
    for chain in (0, 1, 65535):
        for times in range(3):
            stream = RandomStream(5, restarted_chain(chain, times), iteration=9)
            keys.add(noise_words(stream.key(Purpose.STEP, Factor.W, 0)))
            drawn.add(stream.generator(Purpose.HYPERPARAMETERS).random())
    assert len(keys) == len(drawn) == 9


def test_noise_belongs_to_the_row_and_not_to_the_block() -> None:
    """However the rows are cut into blocks, a row has the normals of its own place, purpose, iteration and factor."""
    stream = RandomStream(5, 2, iteration=9)
    noise = Formula("theta = z")
    whole = np.empty(11 * D, np.float32)
    normals(whole, NoiseKey(0, 5, 2, Purpose.MOMENTUM, 9, Factor.H))
    for start, rows in ((0, 11), (3, 4), (10, 1)):
        block = block_of(start, rows, stream)
        block.update(noise, Purpose.MOMENTUM)
        assert (block["theta"] == whole.reshape(11, D)[start : start + rows]).all()
    seen = set()
    for factor in Factor:
        for purpose in (Purpose.STEP, Purpose.START):
            for stream.iteration in (0, 1):
                block = block_of(0, 2, stream, factor)
                block.update(noise, purpose)
                seen.add(block["theta"].tobytes())
    assert len(seen) == 8


def test_blocks_are_updated_together_as_each_alone() -> None:
    """With their own noise and gradients; totals come by block, vectors of all rows are cut where blocks end."""
    formula = Formula("theta = theta + n * z - grad\nsquare = theta * theta", rows=("n",), sums=("square",))
    stream, places = RandomStream(5, 2, iteration=9), ((4, 3), (7, 5))
    copies = [[block_of(start, rows, stream) for start, rows in places] for _ in range(2)]
    for block in (*copies[0], *copies[1]):
        block["g"][:], block["n"][:, 0] = block.start, np.arange(len(block.counts))
        block.gradient = Gradient("g + grad_prior", "g")
    alone = [block.update(formula, n="n")["square"] for block in copies[0]]
    together = Rows(copies[1])
    assert together.update(formula, n="n")["square"].tolist() == alone
    assert all((a["theta"] == b["theta"]).all() for a, b in zip(*copies, strict=True))
    parts = dict(together.by_block(np.arange(8.0)))
    assert [parts[block].tolist() for block in copies[1]] == [[0, 1, 2], [3, 4, 5, 6, 7]]
    together.gradient = Gradient("g")
    assert [block.gradient for block in copies[1]] == [together.gradient] * 2 == [Gradient("g")] * 2

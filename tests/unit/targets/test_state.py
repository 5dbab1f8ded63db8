"""What a target keeps: blocks that stand alone, and small arrays under the names that they have on disk."""

from __future__ import annotations

import numpy as np
import pytest
from support import Model

from dsgmcmc.kernels.formula import Formula, RowPrior
from dsgmcmc.kernels.philox import NoiseKey, noise_words, normals
from dsgmcmc.parallel.ring import Phases
from dsgmcmc.samplers.hamcmc import PairProducts
from dsgmcmc.samplers.metrics import Fisher
from dsgmcmc.targets.state import BlockLayout, ParameterBlock, RandomStream, Replicated, StateField, restarted_chain
from dsgmcmc.types import Factor, Purpose

D = 3


# ---------------------------------------------------------------------- replicated arrays

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
    """A block that is nobody's."""
    layout = BlockLayout([StateField("theta")], D)
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
    noise, n = Formula("theta = z"), 2011  # rows, so that the loop over their elements has several chunks
    whole = np.empty(n * D, np.float32)
    normals(whole, NoiseKey(0, 5, 2, Purpose.MOMENTUM, 9, Factor.H))
    for start, rows in ((0, n), (3, 4), (700, 1000), (n - 1, 1)):
        block = block_of(start, rows, stream)
        block.update(noise, Purpose.MOMENTUM)
        assert (block["theta"] == whole.reshape(n, D)[start : start + rows]).all()
    seen = set()
    for factor in Factor:
        for purpose in (Purpose.STEP, Purpose.START):
            for stream.iteration in (0, 1):
                block = block_of(0, 2, stream, factor)
                block.update(noise, purpose)
                seen.add(block["theta"].tobytes())
    assert len(seen) == 8

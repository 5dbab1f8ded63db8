"""Small arrays under the names that they have on disk, and the random numbers of a chain that begins again."""

from __future__ import annotations

import numpy as np
import pytest
from support import Model

from dsgmcmc.kernels.philox import noise_words
from dsgmcmc.samplers.hamcmc import PairProducts
from dsgmcmc.samplers.metrics import Fisher
from dsgmcmc.targets.state import RandomStream, Replicated, restarted_chain
from dsgmcmc.types import Factor, Purpose

D = 3


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


def test_a_chain_that_begins_again_takes_other_numbers() -> None:
    """Normals and draws on the root differ from those before, and from those of all other chains."""
    keys, drawn = set(), set()
    for chain in (0, 1, 65535):
        for times in range(3):
            stream = RandomStream(5, restarted_chain(chain, times), iteration=9)
            keys.add(noise_words(stream.key(Purpose.STEP, Factor.W, 0)))
            drawn.add(stream.generator(Purpose.HYPERPARAMETERS).random())
    assert len(keys) == len(drawn) == 9

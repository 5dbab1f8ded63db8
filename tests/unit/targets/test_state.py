"""What a target keeps: blocks that stand alone, and small arrays under the names that they have on disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from support import Model

from dsgmcmc.kernels.formula import Formula, Gradient, RowPrior
from dsgmcmc.kernels.philox import NoiseKey, noise_words, normals
from dsgmcmc.model.parts.noise import NoiseParameters
from dsgmcmc.parallel.timers import Phases
from dsgmcmc.samplers.metrics import Fisher
from dsgmcmc.samplers.sgmcmc.hamcmc import PairProducts
from dsgmcmc.targets.state import BlockLayout, ParameterBlock, RandomStream, Replicated, Rows, StateField, again
from dsgmcmc.types import Factor, Purpose

D = 3


# ---------------------------------------------------------------------- replicated arrays


@dataclass
class Example(Replicated):
    """One array of every kind."""

    saved_as: ClassVar[dict[str, str]] = {
        "number": "our.number",
        "things": "{}.thing",
        "perhaps": "our.perhaps",
    }

    number: np.ndarray
    things: dict[Factor, np.ndarray]
    perhaps: np.ndarray | None


def example() -> Example:
    return Example(np.array([1.0]), {Factor.W: np.ones((2, 2)), Factor.H: np.zeros(3)}, None)


def test_arrays_have_the_names_that_they_have_on_disk() -> None:
    """One for every factor, and none for what there is not yet."""
    assert set(example().arrays()) == {"our.number", "W.thing", "H.thing"}
    more = example()
    more.perhaps = np.zeros(0)
    del more.things[Factor.H]
    assert set(more.arrays()) == {"our.number", "W.thing", "our.perhaps"}


def test_what_was_saved_is_taken() -> None:
    """The very arrays, into an object that had others or none."""
    saved = example()
    saved.perhaps = np.array([7.0])
    for fresh in (example(), Example(np.zeros(0), {}, None)):
        fresh.take(saved.arrays())
        assert fresh.arrays().keys() == saved.arrays().keys()
        assert all(array is saved.arrays()[name] for name, array in fresh.arrays().items())


def test_names_of_others_are_left_alone() -> None:
    """A checkpoint holds the state of the target, of the sampler and of the recorders under one roof."""
    found = example()
    found.take({"tau": np.zeros(1), "W.mean": np.zeros(1), "thing": np.zeros(1), "number": np.zeros(1)})
    assert "tau" not in found.arrays()
    assert found.number.tolist() == [1.0]
    assert found.perhaps is None


def test_what_is_not_there_stays_as_it_is() -> None:
    """Arrays by factor like all others: what another one saved must not empty them."""
    found = example()
    found.take({"W.thing": np.full(2, 5.0)})
    assert found.number.tolist() == [1.0]
    assert found.things[Factor.W].tolist() == [5.0, 5.0]
    assert found.things[Factor.H].tolist() == [0.0, 0.0, 0.0]


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
def test_names_on_disk_are_those_of_format_1(replicated: Replicated, names: set[str]) -> None:
    """Runs from before resume: these names are promised."""
    assert set(replicated.arrays()) == names
    assert all(array.dtype == np.float64 for array in replicated.arrays().values())


def test_hyperparameters_of_one_subchain() -> None:
    """What is drawn, of the sub-chain that is asked for; the turn of the noise is nobody's parameter."""
    found = MODEL.noise(subchains=3).parameters
    found.tau[:] = [1.0, 2.0, 3.0]
    found.turn = np.zeros(1)
    assert "noise.turn" in found.arrays()
    drawn = {quantity.name: value for quantity, value in found.drawn(1)}
    assert {name: value.shape for name, value in drawn.items()} == {"tau": (), "H.nu": ()}
    assert drawn["tau"] == 2.0
    fresh = NoiseParameters(np.zeros(0), {})
    fresh.take(found.arrays())
    assert all(value.tobytes() == fresh.arrays()[name].tobytes() for name, value in found.arrays().items())


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
            stream = RandomStream(5, again(chain, times), iteration=9)
            keys.add(noise_words(stream.key(Purpose.STEP, Factor.W, 0)))
            drawn.add(stream.generator(Purpose.HYPERPARAMETERS).random())
    assert len(keys) == len(drawn) == 9


def test_fields_are_views_of_what_travels() -> None:
    """One message holds them all, each whole and in C order."""
    block = block_of(0, 4, RandomStream(0, 0))
    block["theta"][:], block["g"][:], block.row("n")[:] = 1.0, 2.0, 3.0
    assert block.buffer.tolist() == [1.0] * 12 + [2.0] * 12 + [3.0] * 4
    assert block["n"].shape == (4, 1)
    assert all(array.flags.c_contiguous for array in block.arrays.values())


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
    each = [[block_of(start, rows, stream) for start, rows in places] for _ in range(2)]
    for block in (*each[0], *each[1]):
        block["g"][:], block["n"][:, 0] = block.start, np.arange(len(block.counts))
        block.gradient = Gradient("g + grad_prior", "g")
    alone = [block.update(formula, n="n")["square"] for block in each[0]]
    together = Rows(each[1])
    assert together.update(formula, n="n")["square"].tolist() == alone
    assert all((a["theta"] == b["theta"]).all() for a, b in zip(*each, strict=True))
    parts = dict(together.by_block(np.arange(8.0)))
    assert [parts[block].tolist() for block in each[1]] == [[0, 1, 2], [3, 4, 5, 6, 7]]
    together.gradient = Gradient("g")
    assert [block.gradient for block in each[1]] == [together.gradient] * 2 == [Gradient("g")] * 2


def test_generators_are_those_of_their_iteration_and_purpose() -> None:
    """Whatever was drawn before: a generator that is set again gives what a new one gives."""
    stream = RandomStream(2**63 + 5, 3)
    for stream.iteration in (0, 1, 2**40):
        for part in (0, 3):
            fresh = np.random.Philox(
                key=[stream.seed, Purpose.HYPERPARAMETERS], counter=[0, part, stream.iteration, stream.chain]
            )
            expected, found = np.random.Generator(fresh), stream.generator(Purpose.HYPERPARAMETERS, part)
            other = stream.generator(Purpose.NU).random()
            assert found.standard_normal(3).tolist() == expected.standard_normal(3).tolist()
            assert found.integers(0, 7, 3, np.uint32).tolist() == expected.integers(0, 7, 3, np.uint32).tolist()
            assert found.standard_gamma(2.5) == expected.standard_gamma(2.5) != other


def test_an_update_has_the_prior_and_the_gradient_of_its_block() -> None:
    """The prior is asked for the block, and the gradient means what was said last."""
    block = block_of(0, 2, RandomStream(0, 0))
    block["theta"][:], block["g"][:] = 3.0, 10.0
    block.gradient = Gradient("scale * g + grad_prior", "scale * g", {"scale": 0.5})
    total = block.update(Formula("theta = theta - eps * grad\nsum = grad", sums=("sum",)), eps=0.1)["sum"]
    assert (block["theta"] == 3.0 - 0.1 * (5.0 + 2.0 * 2.0)).all()
    assert total == 6 * 9.0
    assert block.timers.seconds["update"] > 0


@pytest.mark.parametrize("prior", [True, False])
def test_a_gradient_begins_with_the_prior_or_with_nothing(prior: bool) -> None:
    """Whoever takes it adds the likelihood's part; what it means in a formula is the same either way."""
    block = block_of(0, 2, RandomStream(0, 0))
    block["theta"][:], block["g"][:] = 3.0, np.nan
    block.begin_gradient("theta", "g", prior)
    assert (block["g"] == (4.0 if prior else 0.0)).all()
    block["g"][:] += 10.0
    block.update(Formula("theta = grad"))
    assert (block["theta"] == 14.0).all()

"""``dsgmcmc plan``: constants, what follows from them, and what is refused. Counts of real rings: ``tests/mpi``."""

from __future__ import annotations

from dataclasses import replace
from math import exp
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from dsgmcmc.cluster.constants import builtin, read_machine, write_machine
from dsgmcmc.config.layers import build
from dsgmcmc.errors import InputError
from dsgmcmc.parallel.partition import block_bounds
from dsgmcmc.runs.advice import Node, checkpoint_interval, choose, curve, forecasts
from dsgmcmc.runs.calibrate import MadeUp, Shape
from dsgmcmc.runs.forecast import Counts, Forecast, Nodes, Sizes, Sum

NETFLIX = Sizes(480_189, 17_770, 100_000_000)
ASKED = build({"sampler": "baoab", "rank": 32, "iterations": "700sweeps"})
NODE = Node(cores=32, memory=128e9, bandwidth=12.5e9, latency=2e-6)


def on(processes: int, grid: int, **link: float) -> Forecast:
    """Netflix' numbers on nodes of one process, so that every message goes over the network."""
    nodes = Nodes(processes, 1, **{"bandwidth": 12.5e9, "latency": 2e-6, **link})
    return Forecast.of(ASKED.model_copy(update={"grid": grid}).resolved(), NETFLIX, builtin(), nodes)


def test_a_machine_file_comes_back_and_damage_is_refused(tmp_path: Path) -> None:
    """What was measured is what plans are made from; a file that says nonsense makes none."""
    machine, path = builtin(), tmp_path / "node.toml"
    write_machine(path, machine)
    assert read_machine(path) == machine
    text = path.read_text(encoding="utf-8")
    for wrong in (text.replace("version = 3", "version = 2"), text.replace("[disk]", "[disc]"), "", "= 3"):
        path.write_text(wrong, encoding="utf-8")
        with pytest.raises(InputError, match=r"node\.toml"):
            read_machine(path)
    known = machine.work_of("baoab", "shared", 32)
    for sums in ([1.0], [1.0, 1.0, 1.0]):  # fewer than widths; not those of the other ranks
        other = machine.model_copy(update={"work": [*machine.work, known.model_copy(update={"sums": sums})]})
        write_machine(path, other)
        with pytest.raises(InputError, match="sums"):
            read_machine(path)


def test_costs_between_measured_ranks() -> None:
    """At a rank that was measured they are what was measured, halfway between two the mean of both."""
    machine = builtin()
    low, high = machine.work_of("baoab", "shared", 32), machine.work_of("baoab", "shared", 64)
    assert low in machine.work
    middle = machine.work_of("baoab", "shared", 48)
    assert middle.update == pytest.approx((low.update + high.update) / 2)
    assert middle.sums == low.sums
    assert middle.summed == pytest.approx(np.mean([low.summed, high.summed], axis=0).tolist())
    with pytest.raises(InputError, match="bench machine FILE --sampler sgrld --noise both"):
        machine.work_of("sgrld", "both", 32)


@pytest.mark.parametrize("per_row", [4, 40])
def test_visits_are_rows_with_ratings_in_a_cell(per_row: int) -> None:
    """Counted in made-up ratings: to 2 %. With few ratings a row most of a row's cells have none."""
    grid, ratings = 16, MadeUp(Shape(2000, 8000, per_row))
    blocks = block_bounds(np.concatenate([[0], np.cumsum(ratings.column_counts)]), grid)
    _, columns, _ = ratings.slab("train", 0, ratings.n_rows)
    of = np.searchsorted(blocks, columns, side="right").reshape(-1, per_row)
    counted = Counts.of(ASKED.model_copy(update={"grid": grid}).resolved(), ratings, 1)
    assert sum(len(set(row)) for row in of) == pytest.approx(counted.visits, rel=0.02)
    assert counted.members == (2000 + 8000) * grid


def test_exchange_is_waited_for_once_it_takes_longer_than_the_other_cells() -> None:
    """By hand: B steps a tour, of each of which a process can hide what its other n - 1 cells take."""
    work, exchange = builtin().work_of("baoab", "shared", 32), builtin().exchange
    free, steps = on(8, 32), 32 * work.tours
    cells = 32 * 32 / 8 * (work.cell + exchange.cell)
    step = (free.ratings + free.visits + cells) / steps + exchange.step
    just = 1.001 * free.message / (step * 3 / 4)  # bytes a second that three of four cells can hide
    hidden, exposed = on(8, 32, bandwidth=just, latency=0), on(8, 32, bandwidth=just / 2, latency=0)
    assert hidden.exchange == 0
    assert exposed.exchange == pytest.approx(steps * step * 3 / 4, rel=0.01)
    assert on(8, 8, bandwidth=just).exchange > hidden.exchange  # with one cell there is nothing to hide behind
    assert on(8, 32, bandwidth=just, overlap=0).exchange > 0


@pytest.mark.parametrize(("cost", "mtbf"), [(1.0, 86400.0), (60.0, 3600.0), (600.0, 3600.0)])
def test_the_checkpoint_interval_loses_the_least(cost: float, mtbf: float) -> None:
    """Against the minimum of the expected time itself [Daly 2006, eq. 20]: to 2 % of the interval."""
    wasted = minimize_scalar(lambda t: (exp((t + cost) / mtbf) - 1) / t, bounds=(cost / 10, 5 * mtbf), method="bounded")
    assert checkpoint_interval(cost, mtbf) == pytest.approx(wasted.x, rel=0.02)
    assert checkpoint_interval(3 * mtbf, mtbf) == mtbf


def test_choices_fit_and_are_not_beaten() -> None:
    """The memory of the node is kept, and neither other blocks nor more processes are much quicker."""
    each, chosen = choose(ASKED, NETFLIX, builtin(), NODE, 2)
    assert each * chosen.memory_per_process <= NODE.memory
    for processes in (1, 8, 32):
        for other in forecasts(ASKED, NETFLIX, builtin(), NODE.nodes(2, processes)):
            assert other.seconds >= 0.94 * chosen.seconds
    small = replace(NODE, memory=2.5e9)
    fewer, tight = choose(ASKED.model_copy(update={"save_draws": 0}), NETFLIX, builtin(), small, 2)
    assert fewer * tight.memory_per_process <= small.memory
    with pytest.raises(InputError, match="does not fit"):
        choose(ASKED, NETFLIX, builtin(), replace(NODE, memory=1e8), 2)
    with pytest.raises(InputError, match="B is at least"):
        choose(ASKED, Sizes(1000, 20, 5000), builtin(), NODE, 2, 32)


def test_a_wide_sum_costs_process_0_little_more_on_many_processes() -> None:
    """By hand: 26 slices of 2,244 numbers at 1,024 processes, instead of all numbers of all blocks."""
    few, many = Sum.of(2244, 2, 2), Sum.of(2244, 1024, 1024)
    assert few == (1, 2 * 2244, 1, 1)
    assert many == (26 * 1023 + 25, 1024 * 86 + 2244, 1023 + 2 * 25, 2)
    assert Sum.of(133, 1, 1).messages == 0


def test_small_data_stop_scaling_before_large_data() -> None:
    """And a slow link before a fast one, with exchange as the reason."""
    last = {}
    for name, sizes in (("1M", Sizes(6040, 3706, 1_000_000)), ("netflix", NETFLIX)):
        last[name] = curve(ASKED, sizes, builtin(), NODE, 32, 4096).last
    assert last["1M"] < last["netflix"]
    slow = curve(ASKED, NETFLIX, builtin(), replace(NODE, bandwidth=1e6), 1, 4096)
    assert slow.last < last["netflix"]
    assert "exchange" in slow.reason
    assert np.isclose(slow.efficiency(slow.forecasts[0]), 1)


def test_one_block_is_never_sent() -> None:
    """Also by a sampler of parts, whose only part then stays where it is: no wait, and no division by nothing."""
    asked = build({"sampler": "psgld", "rank": 32, "grid": 1, "iterations": "700sweeps"})
    alone = Forecast.of(asked.resolved(), NETFLIX, builtin(), Nodes(1, 1, 12.5e9, 2e-6))
    assert alone.seconds > 0
    assert alone.exchange == alone.messages_per_sweep == 0

"""The step to which ratings were recorded: what it is, and where it is stored and shown."""

from pathlib import Path

import h5py
import numpy as np
import pytest
from measured_sets import SETS
from support import typed, write_cells

from dsgmcmc import BPMF
from dsgmcmc.errors import InputError
from dsgmcmc.ratings.description import describe_ratings
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.held_out import InnerSplit
from dsgmcmc.ratings.resolution import find_resolution

RNG = np.random.default_rng(7)
NORMAL = RNG.normal(12, 2, 5000)
MIXED = np.where(RNG.random(5000) < 0.85, np.round(NORMAL, 1), NORMAL)
RARELY = np.where(RNG.random(5000) < 0.7, np.round(NORMAL, 1), NORMAL)
CASES = {
    "whole numbers": (np.round(50 * NORMAL), 1.0),
    "whole numbers that do not recur": (np.arange(4000.0) ** 2, 1.0),
    "halves": (np.round(2 * NORMAL) / 2, 0.5),
    "quarters": (np.floor(NORMAL) + 0.25, 0.25),
    "one decimal": (np.round(NORMAL, 1), 0.1),
    "twentieths": (np.round(NORMAL * 20) / 20, 0.05),
    "four decimals of small values": (np.round(NORMAL / 1000, 4), 1e-4),
    "negative": (-np.round(NORMAL, 1), 0.1),
    "15 % with more decimals": (MIXED, 0.1),
    "30 % with more decimals": (RARELY, None),
    "no step": (NORMAL, None),
    "a step, but values hardly recur": (np.round(1e4 * NORMAL, 1), None),
    "zeros, and no step": (np.where(RNG.random(5000) < 0.9, 0, NORMAL), None),
    "few values without a step": (RNG.choice(NORMAL[:40], 5000), None),
    "zeros": (np.zeros(10), None),
    "values that float32 can hardly tell apart": (np.round(1e6 + NORMAL, 2), None),
}


def write(path: Path, values: np.ndarray) -> Path:
    """Write a ratings file with these values, a tenth of them for the test."""
    i, j = np.divmod(np.arange(len(values)), 50)
    return write_cells(
        path, (len(values) // 50, 50), i, j, values, np.arange(len(values)) % 10 == 0
    )


@pytest.mark.parametrize("case", CASES)
def test_the_step_is_the_largest_of_which_most_values_are_multiples(case: str) -> None:
    """Values are compared in float32, zeros do not count, and many values must recur."""
    values, expected = CASES[case]
    assert find_resolution(values.astype(np.float32)) == expected


@pytest.mark.parametrize(("name", "step"), [("sensors", 1), ("stations", 1), ("rounded", 0.1)])
def test_measurements_of_many_kinds_have_a_step(name: str, step: float) -> None:
    """Whole numbers, counts, and affinities of which a tenth has more decimals."""
    assert find_resolution(SETS[name](0).value.astype(np.float32)) == step


def test_the_step_is_stored_and_said(tmp_path: Path) -> None:
    """`prepare` says and stores it, `info` shows it; ratings without one have no attribute."""
    lines = [f"{k // 50},{k % 50},{value:.6g}\n" for k, value in enumerate(np.round(NORMAL, 1))]
    table = tmp_path / "r.csv"
    table.write_text("user,item,rating\n" + "".join(lines))
    said = typed("prepare", table, tmp_path / "r.h5").expect().out
    assert "in steps of 0.1" in said
    assert '"resolution": 0.1' in typed("info", tmp_path / "r.h5", "--json").expect().out
    with h5py.File(tmp_path / "r.h5") as file:
        assert file.attrs["resolution"] == 0.1
    with h5py.File(write(tmp_path / "none.h5", NORMAL)) as file:
        assert "resolution" not in file.attrs
    with Ratings(tmp_path / "none.h5") as ratings:
        assert ratings.resolution is None
        assert "steps" not in describe_ratings(ratings)["training"]


def test_bounds_do_not_hide_the_step_of_exact_values(tmp_path: Path) -> None:
    """Half of the ratings lie between limits of many digits, whose middles stand for them."""
    value = np.round(NORMAL, 1)
    lines = []
    for k, exact in enumerate(value):
        text = f"{exact:.6g}"
        if k % 2:
            text = f"[{NORMAL[k]:.6g}, {NORMAL[k] + 0.37:.6g}]"
        lines.append(f'{k // 50},{k % 50},"{text}"\n')
    table = tmp_path / "r.csv"
    table.write_text("user,item,rating\n" + "".join(lines))
    assert "in steps of 0.1" in typed("prepare", table, tmp_path / "r.h5").expect().out


def test_files_of_earlier_versions_have_the_same_step(tmp_path: Path) -> None:
    """They do not store it; a view of some ratings has the step of its file."""
    path = write(tmp_path / "r.h5", np.round(NORMAL, 1))
    with h5py.File(path, "a") as file:
        del file.attrs["resolution"]
    with Ratings(path) as ratings:
        assert InnerSplit(ratings, 0.1, 0).resolution == 0.1
        assert ratings.resolution == 0.1


def test_rejects_a_file_with_an_impossible_step(tmp_path: Path) -> None:
    """A file may come from anywhere."""
    path = write(tmp_path / "r.h5", np.round(NORMAL, 1))
    with h5py.File(path, "a") as file:
        file.attrs["resolution"] = -1.0
    with pytest.raises(InputError, match="its resolution is -1"):
        Ratings(path)


def test_new_ratings_are_scored_by_the_recorded_value() -> None:
    """`evaluate` has the log probability of the recorded value, as `info` has for held-out ones.

    Within a step of a fifth of the sd the density is nearly constant (0.02 of its logarithm).
    """
    level = np.add.outer(np.linspace(-3, 3, 20), np.linspace(0, 2, 20))
    values = np.round(level + np.random.default_rng(0).normal(0, 0.5, level.shape), 1)
    model = BPMF(rank=0, iterations=60, burn_in=20).fit(values)
    scores = model.evaluate(np.column_stack([*map(np.ravel, np.indices((20, 20))), values.ravel()]))
    expected = scores["log_predictive_density"] + np.log(0.1)
    assert scores["log_probability"] == pytest.approx(expected, abs=0.02)

"""Lengths, times and accuracies as people write them, and the accuracies that no chain could reach."""

from __future__ import annotations

from typing import Any

import pytest

from dsgmcmc.config.run import build
from dsgmcmc.config.units import format_accuracy, parse_accuracy, parse_length, parse_time
from dsgmcmc.errors import InputError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("1.5min", 90), ("1 h", 3600), ("2d", 172800), ("100:00:00", 360000), ("1-02:00:00", 93600)],
)
def test_times(text: str, seconds: float) -> None:
    """As people and as Slurm write them."""
    assert parse_time(text) == seconds


@pytest.mark.parametrize("text", ["", "1", "1:30", "01:60:00", "-1h", "1 hour", "1e3s"])
def test_what_is_no_time(text: str) -> None:
    """Above all a plain number, of which nobody knows whether it is minutes."""
    assert parse_time(text) is None


@pytest.mark.parametrize(("text", "iterations"), [(7, 7), ("7", 7), ("7sweeps", 35), ("1 sweep", 5), ("0sweeps", 0)])
def test_lengths(text: int | str, iterations: int) -> None:
    """In iterations, or in sweeps of five of them."""
    assert parse_length(text, sweep=5) == iterations


@pytest.mark.parametrize("text", [-1, "-1", "", "ten", "1.5sweeps", "\u00b2"])
def test_what_is_no_length(text: int | str) -> None:
    """The reason is meant for people."""
    with pytest.raises(ValueError, match=r"must (be a number of iterations, or like '500sweeps'|not be negative)"):
        parse_length(text, sweep=5)


def test_accuracies_are_read() -> None:
    """In any order, and written so that they are read alike; nonsense is refused with an example."""
    for text, wanted in (("ess=400", {"ess": 400.0}), (" ess = 4e2, rhat=1.1", {"ess": 400.0, "rhat": 1.1})):
        assert parse_accuracy(text) == wanted == parse_accuracy(format_accuracy(wanted))
    for text in ("", "ess", "400", "rhat=1", "ess=nan", "mess=4", "ess=4,ess=5", "ess=4,"):
        with pytest.raises(InputError, match="until: must be like 'ess=400'"):
            build({"until": text})


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"until": "ess=400", "iterations": 500}, "500 iterations give at most 225 draws per chain"),
        ({"until": "rhat=1.1", "sampler": {"name": "sgld", "decay_power": 0.33}}, "unequal weights"),
        ({"until": "rhat=1.1", "burn_in": 10}, "the step changes after burn-in"),
    ],
)
def test_what_cannot_be_reached_or_told_is_refused(settings: dict[str, Any], why: str) -> None:
    """Before hours of sampling, not after them."""
    with pytest.raises(InputError, match=why):
        build(settings).resolved()


@pytest.mark.parametrize(
    ("settings", "end"),
    [
        ({"chains": 4}, ("ess=400", 5000)),
        ({"sampler": "sgld"}, ("ess=100", 20_000)),
        ({"iterations": 800}, (None, 800)),
        ({"until": "none"}, (None, 700)),
        ({"until": "ess=50", "iterations": 900}, ("ess=50", 900)),
        ({"thin": "100sweeps"}, (None, 700)),
        ({"sampler": {"name": "sgld", "decay_power": 0.33}}, (None, 2800)),
    ],
)
def test_how_long_a_run_is(settings: dict[str, Any], end: tuple[str | None, int]) -> None:
    """By accuracy if nothing is said, and where that can be told; as long as was said otherwise."""
    config = build(settings).resolved()
    assert (config.until, config.iterations) == end
    again = build(config.table()).resolved()
    assert (again.until, again.iterations) == end, "resumed without a word"

"""Accuracies as people write them, and the ones that no chain could reach."""

from __future__ import annotations

from typing import Any

import pytest

from dsgmcmc.config.accuracy import format_accuracy, parse_accuracy
from dsgmcmc.config.layers import build
from dsgmcmc.errors import InputError


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("ess=400", {"ess": 400.0}), ("rhat=1.01", {"rhat": 1.01}), (" ess = 4e2, rhat=1.1", {"ess": 400.0, "rhat": 1.1})],
)
def test_accuracies_are_read(text: str, wanted: dict[str, float]) -> None:
    """In any order, and written so that they are read alike."""
    assert parse_accuracy(text) == wanted == parse_accuracy(format_accuracy(wanted))


@pytest.mark.parametrize("text", ["", "ess", "400", "rhat=1", "ess=0", "ess=nan", "mess=4", "ess=4,ess=5", "ess=4,"])
def test_nonsense_is_refused(text: str) -> None:
    """In one line that shows how to write it."""
    with pytest.raises(InputError, match="until: must be like 'ess=400'"):
        build({"until": text})


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (
            {"until": "ess=400", "iterations": 500},
            "500 iterations make at most 225 draws per chain: too few for an ESS of 400",
        ),
        ({"until": "rhat=1.1", "iterations": 60}, "at most 5 draws per chain, and at least 8 are needed"),
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
        ({}, ("ess=100", 5000)),
        ({"chains": 4}, ("ess=400", 5000)),
        ({"sampler": "sgld"}, ("ess=100", 20_000)),
        ({"iterations": 800}, (None, 800)),
        ({"until": "none"}, (None, 700)),
        ({"until": "rhat=1.010"}, ("rhat=1.01", 5000)),
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

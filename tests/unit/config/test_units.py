"""Accuracies as people write them, and how long a run is that has one, or none."""

from __future__ import annotations

from typing import Any

import pytest

from dsgmcmc.config.run import build
from dsgmcmc.config.units import format_accuracy, parse_accuracy
from dsgmcmc.errors import InputError


def test_accuracies_are_read() -> None:
    """In any order, and written so that they are read alike; nonsense is refused with an example."""
    for text, wanted in (("ess=400", {"ess": 400.0}), (" ess = 4e2, rhat=1.1", {"ess": 400.0, "rhat": 1.1})):
        assert parse_accuracy(text) == wanted == parse_accuracy(format_accuracy(wanted))
    for text in ("", "ess", "400", "rhat=1", "ess=nan", "mess=4", "ess=4,ess=5", "ess=4,"):
        with pytest.raises(InputError, match="until: must be like 'ess=400'"):
            build({"until": text})


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

"""Lengths and times as people write them."""

from __future__ import annotations

import pytest

from dsgmcmc.config.units import parse_length, parse_time


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

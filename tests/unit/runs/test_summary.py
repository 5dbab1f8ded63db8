"""What the summary says of the processes."""

from __future__ import annotations

import pytest

from dsgmcmc.runs.summary import straggler


def test_the_straggler() -> None:
    """One for whom the others wait, and by enough to matter."""
    hosts = ["a", "b", "c"]
    assert straggler([1.0, 5.0, 1.2], hosts, 5.5) == {
        "process": 1,
        "host": "b",
        "busy_seconds": 5.0,
        "others_seconds": pytest.approx(1.1),
    }
    assert straggler([5.0, 5.2, 5.1], hosts, 5.5) is None
    assert straggler([0.1, 0.2, 0.1], hosts, 100.0) is None
    assert straggler([3.0], ["a"], 3.0) is None

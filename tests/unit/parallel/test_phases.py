"""Times of the phases of an iteration."""

from time import perf_counter, sleep

import pytest

from dsgmcmc.parallel.ring import Phases


def test_a_nested_phase_does_not_count_for_the_one_around_it() -> None:
    """Also in a phase inside itself, and where an error ends a block: all phases together take no
    more than the time that has passed.
    """
    phases = Phases()
    begin = perf_counter()
    with phases("draw"):
        with phases("draw"), phases("gradient"):
            sleep(0.02)
        with pytest.raises(ValueError, match="stop"), phases("update"):
            raise ValueError("stop")
    with phases("exchange"):
        sleep(0.02)
    assert sum(phases.seconds.values()) <= perf_counter() - begin
    assert min(phases.seconds["gradient"], phases.seconds["exchange"]) >= 0.02
    assert min(phases.seconds["draw"], phases.seconds["update"]) > 0

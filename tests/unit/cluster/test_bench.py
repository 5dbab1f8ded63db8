"""What ``dsgmcmc bench`` measures here, and not how fast it is."""

from __future__ import annotations

from dsgmcmc.cluster.bench import kernels


def test_every_kernel_has_its_figures() -> None:
    """Of the rank that was asked for, none of them nothing."""
    (line,) = kernels([2], repeats=1)
    assert line.pop("rank") == 2
    assert len(line.pop("quartiles")) == 2
    names = {"m_ratings_per_s", "m_ratings_per_s_weighted", "outer_m_ratings_per_s", "outer_gflop_per_s"}
    assert line.keys() == {*names, "peak_gflop_per_s"}
    assert all(figure > 0 for figure in line.values())

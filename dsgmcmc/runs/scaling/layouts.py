"""On which processes of an allocation sweeps are measured, and of how many ratings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from dsgmcmc.runs.advice import counts

Series = Literal["strong", "weak", "spread"]
#: What a series varies.
ABOUT: dict[Series, str] = {
    "strong": "the same ratings on more and more processes; nodes are filled one after the other",
    "weak": "as many ratings for each process",
    "spread": "the same ratings on all nodes, with more and more processes on each",
}
SERIES: tuple[Series, ...] = get_args(Series)


@dataclass(frozen=True)
class Layout:
    """Processes that share the ratings.

    Attributes
    ----------
    nodes, each : int
        Nodes, and processes on each of them.
    ratings : int
        About how many ratings they share.
    """

    nodes: int
    each: int
    ratings: int

    @property
    def processes(self) -> int:
        """Processes on all nodes."""
        return self.nodes * self.each


def layouts(nodes: int, each: int, ratings: int, share: int) -> dict[Layout, list[Series]]:
    """What is measured on `nodes` nodes with `each` processes, in this order, and the series that it belongs to.

    Parameters
    ----------
    nodes, each : int
        Nodes, and processes on each of them.
    ratings : int
        Ratings of the series strong and spread.
    share : int
        Ratings a process of the series weak.
    """
    growing = [(1, here) for here in counts(each)] + [(number, each) for number in counts(nodes)[1:]]
    wanted: dict[Layout, list[Series]] = {}
    for number, here in growing:
        wanted.setdefault(Layout(number, here, ratings), []).append("strong")
    for number, here in growing:
        wanted.setdefault(Layout(number, here, share * number * here), []).append("weak")
    for here in counts(each) if nodes > 1 else []:
        wanted.setdefault(Layout(nodes, here, ratings), []).append("spread")
    return wanted


def places(hosts: list[str], layout: Layout) -> list[int]:
    """Ranks that make up a layout: the first of each of the first hosts.

    Parameters
    ----------
    hosts : list of str
        Host of every process, by rank.
    layout : Layout
    """
    by_host: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        by_host.setdefault(host, []).append(rank)
    return [rank for ranks in list(by_host.values())[: layout.nodes] for rank in ranks[: layout.each]]

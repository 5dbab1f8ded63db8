"""Tables that commands print instead of writing a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dsgmcmc.terminal import say, say_json, show_table

if TYPE_CHECKING:
    from dsgmcmc.posterior.rank import Ranking


def lines_of(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """Convert columns to one dict per line."""
    return [dict(zip(columns, line, strict=True)) for line in zip(*(c.tolist() for c in columns.values()), strict=True)]


def show_recommendations(blocks: Iterator[dict[str, Any]], ranking: Ranking, as_json: bool) -> None:
    """Print recommendations, as of `dsgmcmc.posterior.rank.recommendations`, as tables or as JSON."""
    lines = [line for block in blocks for line in lines_of(block)]
    if as_json:
        say_json(lines)
        return
    for name in dict.fromkeys(line["user_id"] for line in lines):
        of_user = [line for line in lines if line["user_id"] == name]
        of_mean = ("sd", "90 % interval") if ranking.of_score == "mean" else ("sd of mean", "mean, 90 %")
        headings = ["rank", ranking.of_score, *of_mean, "ratings", "item"]
        headings += ["name"] if "item_name" in of_user[0] else []
        rows = []
        for line in of_user:
            named = [line["item_name"]] if "item_name" in line else []
            interval = f"{line['q05']:.2f} to {line['q95']:.2f}"
            facts = (f"{line['score']:.3f}", f"{line['sd']:.2f}", interval, f"{line['ratings']:,}")
            rows.append([str(line["rank"]), *facts, str(line["item_id"]), *named])
        show_table(headings, rows, f"user {name}", left=("name",))
    if not lines:
        say("nothing to recommend: every item was rated", file=sys.stderr)

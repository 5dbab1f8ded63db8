"""What commands print on a terminal in place of writing a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any


def show_recommendations(blocks: Iterator[dict[str, Any]], as_json: bool) -> None:
    """Print recommendations, as of `dsgmcmc.posterior.recommend.recommendations`, as tables or as JSON."""
    lines = [
        dict(zip(block, values, strict=True))
        for block in blocks
        for values in zip(*(column.tolist() for column in block.values()), strict=True)
    ]
    if as_json:
        print(json.dumps(lines, indent=1))
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(markup=False, emoji=False)
    for name in dict.fromkeys(line["user_id"] for line in lines):
        own = [line for line in lines if line["user_id"] == name]
        table = Table(title=f"user {name}", title_justify="left")
        headings = ("rank", "score", "sd", "90 % interval", "ratings", "item")
        for heading in (*headings, *(("name",) if "item_name" in own[0] else ())):
            table.add_column(heading, justify="left" if heading == "name" else "right")
        for line in own:
            named = [line["item_name"]] if "item_name" in line else []
            interval = f"{line['q05']:.2f} to {line['q95']:.2f}"
            facts = (f"{line['score']:.3f}", f"{line['sd']:.2f}", interval, f"{line['ratings']:,}")
            table.add_row(str(line["rank"]), *facts, str(line["item_id"]), *named)
        console.print(table)
    if not lines:
        print("nothing is left to recommend: everything was rated", file=sys.stderr)

"""``dsgmcmc similar``: the items that are most like one."""

from __future__ import annotations

from typing import Annotated

import typer

from dsgmcmc.cli.options import ItemsOption, JsonOption, RunArgument
from dsgmcmc.cli.posterior.show import lines_of
from dsgmcmc.errors import InputError, anew
from dsgmcmc.terminal import say_json, show_table


@anew
def similar(
    run: RunArgument,
    item: Annotated[str | None, typer.Option("--item", metavar="ID", help="The item to compare with.")] = None,
    user: Annotated[str | None, typer.Option("--user", metavar="ID", help="A user in place of an item.")] = None,
    top: Annotated[int, typer.Option("--top", "-n", min=1, help="How many.")] = 10,
    items: ItemsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the items (or users) that are most like one, with the uncertainty of the likeness.

    Two items are alike if what the factors predict for them goes together over the users: the correlation, whatever
    the general popularity of either. Beside its posterior mean stand its sd and 90 % interval, which are wide for
    items with few ratings. Needs saved draws.

    \b
    Examples:
      dsgmcmc similar run --item 1193 --items ml-1m/movies.dat
      dsgmcmc similar run --user 42 --top 20 --json
    """
    from dsgmcmc.posterior.names import item_titles
    from dsgmcmc.posterior.run import Run
    from dsgmcmc.posterior.similar import similar as find

    if (item is None) == (user is None):
        raise InputError("say what to compare with: --item ID, or --user ID")
    opened = Run(run)
    kind, name = ("item", item) if item is not None else ("user", user)
    found = find(opened, kind, name, top, titles=item_titles(opened.items, items) if items else None)
    lines = lines_of(found)
    if as_json:
        say_json(lines)
        return
    headings = ("rank", "similarity", "sd", "90 % interval", "ratings", kind, *(("name",) if items else ()))
    rows = []
    for line in lines:
        interval = f"{line['q05']:.2f} to {line['q95']:.2f}"
        numbers = f"{line['similarity']:.3f}", f"{line['sd']:.2f}", interval, f"{line['ratings']:,}"
        rows.append(
            [
                str(line["rank"]),
                *numbers,
                str(line[f"{kind}_id"]),
                *([line["item_name"]] if "item_name" in line else []),
            ]
        )
    show_table(headings, rows, f"like {kind} {name}", left=("name",))

"""``dsgmcmc similar``: the items that are most similar to one."""

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
    user: Annotated[
        str | None, typer.Option("--user", metavar="ID", help="The user to compare with, instead of an item.")
    ] = None,
    top: Annotated[int, typer.Option("--top", "-n", min=1, help="Number of items or users.")] = 10,
    items: ItemsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the items (or users) that are most similar to one, with the uncertainty of the similarity.

    The similarity of two items is the correlation, over the users, of the ratings that the factors predict for them;
    their general popularity does not count. Next to its posterior mean are its sd and 90 % interval, which is wide for
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
        raise InputError("missing --item ID or --user ID")
    opened = Run(run)
    kind, name = ("item", item) if item is not None else ("user", user)
    columns = find(opened, kind, name, top, titles=item_titles(opened.items, items) if items else None)
    lines = lines_of(columns)
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

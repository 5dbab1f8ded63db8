"""``dsgmcmc evaluate``: how good a run's rankings are."""

from __future__ import annotations

from typing import Annotated

import typer

from dsgmcmc.cli.options import DataOption, JsonOption, RunArgument
from dsgmcmc.errors import anew
from dsgmcmc.terminal import say_json, show_table


@anew
def evaluate(
    run: RunArgument,
    at: Annotated[int, typer.Option("--at", min=1, help="Length of the lists.")] = 10,
    liked: Annotated[
        float | None,
        typer.Option(help="Least test rating that counts as liked.", show_default="three quarters up the scale"),
    ] = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare ways to rank items on the test ratings: by the rules of recommend, and without the model.

    Of every user with a liked test rating: do the recommended items, of all that the user has not rated in training,
    hold those that the user then liked? After NDCG stands half the 95 % interval of the average over users; --json has
    all of them. Without the model: by popularity, and by exposure alone, which knows who rated what, but no rating.
    A random split flatters what knows who rated what: prepare --split temporal is the harder and truer test.

    \b
    Examples:
      dsgmcmc evaluate run
      dsgmcmc evaluate run --at 20 --liked 4 --json
    """
    from dsgmcmc.diagnostics.ranking import MEASURES
    from dsgmcmc.diagnostics.ranking import evaluate as compare
    from dsgmcmc.posterior.rated import Rated
    from dsgmcmc.posterior.run import Run

    opened = Run(run)
    with opened.open_ratings(data) as ratings:
        found = compare(opened, Rated(ratings), at, liked)
    if as_json:
        say_json(found)
        return
    title = f"{found['users']:,} user{'s' * (found['users'] > 1)}, {at} items each, liked: {found['liked']:g} or more"
    headings = ("rank by", "NDCG", "precision", "recall", "MRR", "coverage", "novelty")  # in the order of MEASURES
    rows = []
    for rule in found["rules"]:
        shown = [f"{rule[name]['mean']:.3f}" for name in MEASURES]
        shown[0] += f" ± {rule['ndcg']['high'] - rule['ndcg']['mean']:.3f}"
        rows.append([rule["rule"], *shown, f"{rule['coverage']:.1%}", f"{rule['novelty']:.1f}"])
    show_table(headings, rows, title, left=headings[:1], framed=False)

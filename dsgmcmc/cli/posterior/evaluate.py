"""``dsgmcmc evaluate``: the quality of a run's rankings."""

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
        typer.Option(help="Lowest test rating that counts as liked.", show_default="three quarters up the scale"),
    ] = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare rankings of items on the test ratings: by the rules of recommend, and without the model.

    For every user with a liked test rating, all items that the user did not rate in training are ranked, and the top of
    the list is compared with the items that the user liked. The number after NDCG is half the 95 % interval of the
    average over users; --json has all intervals. The rankings without the model are by popularity and by exposure
    alone, which uses who rated what but no rating values. A random split favours exposure: prepare --split temporal
    gives a harder and more realistic test.

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
        scores = compare(opened, Rated(ratings), at, liked)
    if as_json:
        say_json(scores)
        return
    title = (
        f"{scores['users']:,} user{'s' * (scores['users'] > 1)}, {at} items each, liked: {scores['liked']:g} or more"
    )
    headings = ("rank by", "NDCG", "precision", "recall", "MRR", "coverage", "novelty")  # in the order of MEASURES
    rows = []
    for rule in scores["rules"]:
        shown = [f"{rule[name]['mean']:.3f}" for name in MEASURES]
        shown[0] += f" ± {rule['ndcg']['high'] - rule['ndcg']['mean']:.3f}"
        rows.append([rule["rule"], *shown, f"{rule['coverage']:.1%}", f"{rule['novelty']:.1f}"])
    show_table(headings, rows, title, left=headings[:1], framed=False)

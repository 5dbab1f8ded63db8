"""``dsgmcmc evaluate``: the quality of a run's rankings."""

from __future__ import annotations

from typing import Annotated

import typer

from dsgmcmc.cli.options import DataOption, JsonOption, RunArgument
from dsgmcmc.errors import retry_if_gone
from dsgmcmc.terminal import say_json, show_table


@retry_if_gone
def evaluate(
    run: RunArgument,
    at: Annotated[int, typer.Option(min=1, help="Length of the lists.")] = 10,
    liked: Annotated[
        float | None,
        typer.Option(help="Lowest test rating that counts as liked.", show_default="three quarters up the scale"),
    ] = None,
    everyone: Annotated[bool, typer.Option("--all", help="All users, and not 1,000 of them.")] = False,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare rankings of items on the test ratings: by the rules of recommend, and by popularity.

    For every user with a liked test rating, all items that the user did not rate in training are ranked, and the top of
    the list is compared with the items that the user liked. Exposure is EASE^R, which uses who rated what but no rating
    values. The last column has the mean difference of NDCG by user from recommend's default rule, and its standard
    error. --json has all figures, with their intervals. A random split favours exposure: prepare --split temporal gives
    a harder and more realistic test.

    \b
    Examples:
      dsgmcmc evaluate run
      dsgmcmc evaluate run --at 50 --all
      dsgmcmc evaluate run --liked 4 --json
    """
    from dsgmcmc.diagnostics.ranking import MEASURES, USERS
    from dsgmcmc.diagnostics.ranking import evaluate as compare
    from dsgmcmc.posterior.exposure import Rated
    from dsgmcmc.posterior.run import Run

    opened = Run(run)
    with opened.open_ratings(data) as ratings:
        rated = Rated(ratings)
    scores = compare(opened, rated, at, liked, None if everyone else USERS)
    if as_json:
        say_json(scores)
        return
    of_all = f" of {scores['of_users']:,}" if scores["of_users"] > scores["users"] else ""
    title = f"{scores['users']:,} users{of_all}, lists of {at}, liked: {scores['liked']:g} or more"
    rows: list[list[str]] = []
    for row in scores["rules"]:
        change = f"{row['difference']['mean']:+.3f} ± {row['difference']['se']:.3f}"
        rows.append([row["rule"], *(f"{row[name]['mean']:.3f}" for name in MEASURES), change if rows else ""])
    headings = ["rank by", "NDCG", "precision", "recall", "reciprocal rank", "NDCG, difference"]
    show_table(headings, rows, title, left=["rank by"])

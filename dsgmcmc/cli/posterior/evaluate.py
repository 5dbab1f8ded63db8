"""``dsgmcmc evaluate``: the quality of a run's rankings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from dsgmcmc.cli.options import DataOption, JsonOption, RunArgument
from dsgmcmc.errors import anew
from dsgmcmc.terminal import console, say, say_json, show_table


@anew
def evaluate(
    run: RunArgument,
    at: Annotated[list[int] | None, typer.Option("--at", min=1, help="Length of the lists; repeat for more.")] = None,
    liked: Annotated[
        float | None,
        typer.Option(help="Lowest test rating that counts as liked.", show_default="three quarters up the scale"),
    ] = None,
    users: Annotated[int, typer.Option(min=1, help="Largest number of users, evenly spaced among all.")] = 1000,
    everyone: Annotated[bool, typer.Option("--all", help="All users.")] = False,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare rankings of items on the test ratings: by the rules of recommend, and without the model.

    For every user with a liked test rating, all items that the user did not rate in training are ranked, and the top of
    the list is compared with the items that the user liked. Rankings without the model are by exposure, which is EASE^R
    and uses who rated what but no rating values, by item neighbours and by popularity. The second table has the mean
    difference by user from recommend's default rule, with its standard error. --json has all figures, with their
    intervals. A random split favours exposure: prepare --split temporal gives a harder and more realistic test.

    \b
    Examples:
      dsgmcmc evaluate run
      dsgmcmc evaluate run --at 10 --at 50 --all
      dsgmcmc evaluate run --liked 4 --json
    """
    from dsgmcmc.diagnostics.ranking import AT
    from dsgmcmc.diagnostics.ranking import evaluate as compare
    from dsgmcmc.posterior.rated import Rated
    from dsgmcmc.posterior.run import Run

    opened = Run(run)
    with opened.open_ratings(data) as ratings:
        rated = Rated(ratings)
    with _progress() as report:
        scores = compare(opened, rated, at or AT, liked, None if everyone else users, report)
    if as_json:
        say_json(scores)
    else:
        _show(scores)


@contextmanager
def _progress() -> Iterator[Callable[[float], None]]:
    """Show a bar on standard error, if that is a terminal, or else a line."""
    from rich.progress import Progress

    shown = console(stderr=True)
    with Progress(console=shown, transient=True, disable=not shown.is_terminal) as bar:
        task = bar.add_task("who rated what", total=1.0)
        yield lambda fraction: bar.update(task, description="ranking", completed=fraction)


def _show(scores: dict[str, Any]) -> None:
    """Print one table of measures at all lengths, one of differences from the default rule, and the advice."""
    of_all = f" of {scores['of_users']:,}" if scores["of_users"] > scores["users"] else ""
    title = f"{scores['users']:,} user{'s' * (scores['users'] > 1)}{of_all}, liked: {scores['liked']:g} or more"
    lengths, k = scores["at"], scores["compared_by"].split("@")[1]
    columns = [f"{name}@{length}" for name in ("ndcg", "recall") for length in lengths] + [f"precision@{k}"]
    first = f"ndcg@{lengths[0]}", f"recall@{lengths[0]}", columns[-1]
    headings = [name.replace("ndcg", "NDCG") if name in first else f"@{name.split('@')[1]}" for name in columns]
    rows = [[row["rule"], *(f"{row[name]['mean']:.3f}" for name in columns)] for row in scores["rules"]]
    show_table(["rank by", *headings], rows, title, left=["rank by"], framed=False)
    ease = scores["exposure"]
    say(f"exposure is EASE^R, {ease['width']:,} singular vectors, penalty {ease['penalty']:g}")
    beside = [
        [
            row["rule"],
            f"{row['difference']['mean']:+.3f} ± {row['difference']['se']:.3f}"
            if row is not scores["rules"][0]
            else "",
            f"{row[f'reciprocal_rank@{k}']['mean']:.3f}",
            f"{row['coverage']:.1%}",
            f"{row['novelty']:.1f}",
        ]
        for row in scores["rules"]
    ]
    title = f"NDCG@{k}: mean difference by user from {scores['rules'][0]['rule']}, and its standard error"
    show_table(["rank by", "difference", "MRR", "coverage", "novelty"], beside, title, left=["rank by"], framed=False)
    say(scores["advice"])

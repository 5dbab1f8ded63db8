"""``dsgmcmc info``: describes a file or run, and the quality of a run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsgmcmc.cli.options import JsonOption, PathArgument, kind_of
from dsgmcmc.errors import retry_if_gone
from dsgmcmc.terminal import say, say_json, show_facts, show_table

if TYPE_CHECKING:
    from dsgmcmc.diagnostics.overview import Table


@retry_if_gone
def info(
    path: PathArgument,
    diagnostics: Annotated[
        bool, typer.Option("--diagnostics", help="For a run: R-hat, effective sample sizes, calibration.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Describe a ratings file or a run; for a run, also how well it sampled and predicts.

    \b
    Examples:
      dsgmcmc info ml-1m.h5
      dsgmcmc info run --json
      dsgmcmc info run --diagnostics
    """
    if diagnostics:
        _diagnose(path, as_json)
        return
    kind = kind_of(path)
    facts, lines, shown, tables = (_describe_run if kind == "run" else _describe_ratings)(path)
    if as_json:
        say_json({"kind": kind, **facts})
        return
    say(f"{path}: {kind}", *lines, "")
    show_facts({name: _text(value) for name, value in shown.items()})
    _show(tables)


def _show(tables: Iterable[Table]) -> None:
    for title, headings, rows in tables:
        say("")
        show_table(headings, rows, title, left=headings[:1])


def _diagnose(path: Path, as_json: bool) -> None:
    """Print the diagnostics and the calibration of a run."""
    from dsgmcmc.diagnostics.convergence import diagnose
    from dsgmcmc.diagnostics.overview import of_convergence, of_scores
    from dsgmcmc.diagnostics.scores import calibration
    from dsgmcmc.posterior.run import Run

    run = Run(path)
    convergence, scores = diagnose(run), calibration(run)
    if as_json:
        say_json({"convergence": convergence, "calibration": scores})
        return
    say(f"{path}: run")
    _show([of_convergence(convergence), *of_scores(scores)])
    say("", *(f"warning: {warning}" for warning in convergence["warnings"]), convergence["note"])


#: Facts for scripts; and for people, lines, facts by label, and tables.
Description = tuple[dict[str, Any], list[str], dict[str, Any], "list[Table]"]


def _describe_ratings(path: Path) -> Description:
    """Describe a ratings file, with the labels of `dsgmcmc prepare`."""
    from dsgmcmc.data.ratings import open_ratings

    with open_ratings(path) as ratings:
        sizes = ("n_rows", "n_cols", "nnz", "nnz_test")
        about = ("mean", "minimum", "maximum", "transposed", "seed", "source", "digest")
        facts = {name: getattr(ratings, name) for name in (*sizes, *about)}
        features = {}
        for side, stored in ratings.features.items():
            kind = "user" if (side == "rows") != ratings.transposed else "item"
            features[f"{kind}_features"] = {group: stored.groups.count(group) for group in dict.fromkeys(stored.groups)}
    sides = ("n_cols", "n_rows") if facts["transposed"] else ("n_rows", "n_cols")
    users, items = (facts[side] for side in sides)
    both = facts["nnz"] + facts["nnz_test"]
    shown = {
        "users": users,
        "items": items,
        "ratings": f"{both:,}, density {both / (users * items):.3%}",
        "scale": f"{facts['minimum']:g} to {facts['maximum']:g}, mean {facts['mean']:.5g}",
        "training": facts["nnz"],
        "test": f"{facts['nnz_test']:,} ({facts['nnz_test'] / both:.1%})",
        **{name.replace("_", " "): groups for name, groups in features.items()},
        "made from": facts["source"],
        "seed": facts["seed"],
        "digest": facts["digest"],
    }
    return facts | features, [], shown, []


def _describe_run(path: Path) -> Description:
    from dsgmcmc.diagnostics.overview import overview
    from dsgmcmc.storage.rundir import RunDirectory

    facts, verdict, settings, tables = overview(RunDirectory(path))
    return facts, verdict.lines(), settings, tables


def _text(value: Any) -> str | list[str]:
    """Format a fact: one line, or for a dict one line per entry."""
    if isinstance(value, dict):
        return [f"{name}: {item}" for name, item in value.items()]
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)

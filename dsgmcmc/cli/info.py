"""``dsgmcmc info``: what a file or run is, and how good a run is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from dsgmcmc.cli.options import JsonOption, PathArgument, kind_of


def info(
    path: PathArgument,
    diagnostics: Annotated[
        bool, typer.Option("--diagnostics", help="Of a run: R-hat, effective sample sizes, calibration.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Say what a file or directory is; of a run, also how well it sampled and predicts.

    \b
    Examples:
      dsgmcmc info ml-1m.h5
      dsgmcmc info run --json
      dsgmcmc info run --diagnostics
    """
    if diagnostics:
        _diagnose(path, as_json)
        return
    facts = _describe(path)
    if as_json:
        print(json.dumps(facts, indent=1))
        return
    table = Table(title=f"{path}: {facts.pop('kind')}", show_header=False, title_justify="left")
    table.add_column()
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), _text(value))
    Console().print(table)


def _diagnose(path: Path, as_json: bool) -> None:
    """Print the diagnostics and the calibration of a run."""
    from dsgmcmc.diagnostics.calibration import calibration
    from dsgmcmc.diagnostics.convergence import diagnose
    from dsgmcmc.posterior.run import open_run

    run = open_run(path)
    found = diagnose(run)
    scores = calibration(run) if len(run.test_pairs()[0]) else None
    if as_json:
        print(json.dumps({"convergence": found, "calibration": scores}, indent=1))
        return
    console = Console()
    table = Table(title=f"{path}: {found['chains']} chain(s) of {found['draws']} draws", title_justify="left")
    for heading in ("quantity", "mean", "sd", "R-hat", "ESS bulk", "ESS tail"):
        table.add_column(heading, justify="left" if heading == "quantity" else "right")
    several = found["predictions"]
    for line in found["quantities"]:
        table.add_row(
            line["name"].replace("_", " "), f"{line['mean']:.4g}", f"{line['sd']:.3g}", *_measures(line, max, min)
        )
    if several["pairs"]:
        label = f"worst of {several['pairs']} predictions"
        table.add_row(label, "", "", *_measures({k: several[k] for k in ("rhat", "ess_bulk", "ess_tail")}, max, min))
    console.print(table)
    if scores:
        console.print(_calibration_table(scores))
    for warning in found["warnings"]:
        console.print(f"warning: {warning}", soft_wrap=True, highlight=False)
    console.print(found["note"], soft_wrap=True, highlight=False)


def _measures(line: dict[str, Any], *worst: Callable[[Any], float]) -> list[str]:
    """R-hat and both ESS as text; of several, the worst."""
    texts = []
    for name, digits, reduce in (("rhat", 3, worst[0]), ("ess_bulk", 0, worst[1]), ("ess_tail", 0, worst[1])):
        value = reduce(line[name]) if isinstance(line[name], list) else line[name]
        texts.append("-" if value is None else f"{value:,.{digits}f}")
    return texts


def _calibration_table(scores: dict[str, Any]) -> Table:
    table = Table(title=f"{scores['ratings']:,} test ratings", show_header=False, title_justify="left")
    for name in ("rmse", "mae", "crps", "log_predictive_density", "predictive_sd"):
        table.add_row(
            name.replace("_", " ").replace("rmse", "RMSE").replace("mae", "MAE").replace("crps", "CRPS"),
            f"{scores[name]:.4f}",
        )
    inside = ", ".join(f"{level:.0%}: {share:.1%}" for level, share in scores["coverage"].items())
    table.add_row("inside their intervals", inside)
    for name, what in (
        ("by_activity", "users with {} to {} ratings"),
        ("by_popularity", "items with {} to {} ratings"),
    ):
        for group in scores[name]:
            text = f"RMSE {group['rmse']:.4f}, inside their 90 % intervals {group['coverage_90']:.1%}"
            table.add_row(what.format(group["from"], group["to"]), text)
    return table


def _describe(path: Path) -> dict[str, Any]:
    kind = kind_of(path)
    if kind == "ratings file":
        from dsgmcmc.data.ratings import open_ratings

        with open_ratings(path) as ratings:
            sizes = ("n_rows", "n_cols", "nnz", "nnz_test")
            about = ("mean", "minimum", "maximum", "transposed", "seed", "source", "digest")
            facts = {name: getattr(ratings, name) for name in (*sizes, *about)}
    elif kind == "run":
        from dsgmcmc.storage.rundir import RunDirectory

        facts = _describe_run(RunDirectory(path))
    else:
        from dsgmcmc.storage.manifest import read_manifest

        manifest = read_manifest(path)
        facts = manifest.model_dump(include={"chain", "iteration", "grid", "about", "config_hash", "data_hash"})
        facts |= {"of": manifest.kind, "blocks": len(manifest.blocks), "shards": len(manifest.shards)}
    return {"kind": kind, **facts}


def _describe_run(run: Any) -> dict[str, Any]:
    from dsgmcmc.storage.series import steps

    settings, facts = run.read_settings()
    checkpoints = {chain: steps(run.series("checkpoints", chain)) for chain in run.chains()}
    chains = {
        f"chain_{chain}": {"checkpoints": found, "saved_draws": len(steps(run.series("draws", chain)))}
        for chain, found in checkpoints.items()
    }
    saved = sum(max(found, default=0) for found in checkpoints.values())
    complete = saved >= settings["chains"] * settings["iterations"]
    summary = json.loads(run.summary_file.read_text(encoding="utf-8")) if run.summary_file.exists() else None
    progress = {"checkpointed_iterations": saved, "complete": complete}
    return {"settings": settings, "run": facts, **chains, **progress, "summary": summary}


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "\n".join(f"{name}: {_text(item)}" for name, item in value.items())
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)

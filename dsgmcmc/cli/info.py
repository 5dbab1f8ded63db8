"""``dsgmcmc info``: a description of a file or run, and the quality of a run."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from dsgmcmc.cli.options import JsonOption, PathArgument, kind_of
from dsgmcmc.errors import anew
from dsgmcmc.terminal import say, say_json, say_styled, show_facts, show_table


@anew
def info(
    path: PathArgument,
    diagnostics: Annotated[
        bool, typer.Option("--diagnostics", help="For a run: R-hat, effective sample sizes, calibration.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Describe a file or directory; for a run, also how well it sampled and predicts.

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
        say_json(facts)
        return
    say_styled(f"{path}: {facts['kind']}", "bold")
    if facts["kind"] == "run":
        say(*_at_a_glance(facts), "")
    show_facts({name: _lines(value) for name, value in _SHOWN[facts["kind"]](facts).items()})
    for kind, features in facts.get("features", {}).items():
        _show_features(kind, features)
    if "effects" in facts:
        from dsgmcmc.posterior.importance import HEADINGS, TITLE, EffectImportance, table_of_effects

        rows = table_of_effects([EffectImportance(**each) for each in facts["effects"]])
        show_table(HEADINGS, rows, TITLE, left=HEADINGS[:1])


def _at_a_glance(facts: dict[str, Any]) -> list[str]:
    """Summary of a run: its result, warnings and how it ended, or its progress."""
    from dsgmcmc.diagnostics import verdict
    from dsgmcmc.posterior.live import LiveProgress

    if facts["progress"]:
        progress = LiveProgress(**facts["progress"])
        rmse = (
            [] if progress.rmse_mean is None else [f"RMSE of the posterior mean {verdict.written(progress.rmse_mean)}"]
        )
        return [str(progress), "; ".join([progress.usable(), *rmse])]
    look = (facts["summary"] or {}).get("until")
    if look and look["iteration"] < max(facts["reached"]):  # it went on since, and has not ended
        look = None
    now = {"reached": facts["reached"], "iterations": facts["settings"]["iterations"], "until": look}
    lines = []
    if facts["summary"] is None:
        lines = ["no result yet"]
    elif "rmse_mean" in facts["summary"]:
        summary = facts["summary"] | now
        doubts = [*facts["run"].get("cautions", []), *verdict.doubts(summary)]
        lines = verdict.result(summary) + [f"warning: {doubt}" for doubt in doubts]
    return [*lines, verdict.ending(now)]


def _show_features(kind: str, features: dict[str, list[dict[str, Any]]]) -> None:
    """Print which features of the users or the items matter."""
    for title, estimates in (
        (f"Variance between {kind}s that features explain, relative to the remaining variance", features["groups"]),
        (f"Strongest effects of features on the mean rating of {kind}s", features["effects"][:10]),
    ):
        rows = [[each["name"], *(f"{each[bound]:.3f}" for bound in ("mean", "low", "high"))] for each in estimates]
        if rows:
            show_table(("feature", "mean", "5 %", "95 %"), rows, title, left=("feature",))


def _diagnose(path: Path, as_json: bool) -> None:
    """Print the diagnostics and the calibration of a run."""
    from dsgmcmc.diagnostics.convergence import diagnose, measures_as_text
    from dsgmcmc.diagnostics.scores import calibration
    from dsgmcmc.posterior.run import Run

    run = Run(path)
    convergence = diagnose(run)
    scores = calibration(run) if len(run.test_pairs()[0]) and run.config.law.can_be_evaluated else None
    if as_json:
        say_json({"convergence": convergence, "calibration": scores})
        return
    headings, several = ("quantity", "mean", "sd", "R-hat", "ESS bulk", "ESS tail"), convergence["predictions"]
    rows = [
        [line["label"], f"{line['mean']:.4g}", f"{line['sd']:.3g}", *measures_as_text(line)]
        for line in convergence["quantities"]
    ]
    if several["pairs"]:
        label = f"worst of {several['pairs']} predictions"
        rows.append([label, "", "", *measures_as_text(several)])
    title = f"{path}: {convergence['chains']} chain(s) of {convergence['draws']} draws"
    show_table(headings, rows, title, left=headings[:1])
    if scores:
        show_facts(_calibration(scores), f"{scores['ratings']:,} test ratings")
    say(*(f"warning: {warning}" for warning in convergence["warnings"]), convergence["note"])


def _calibration(scores: dict[str, Any]) -> dict[str, str]:
    """Scores of the predictions, and the coverage of their intervals."""
    from dsgmcmc.diagnostics.verdict import written

    table = {}
    for name in ("rmse", "mae", "crps", "log_predictive_density", "log_probability", "predictive_sd"):
        if scores[name] is None:
            continue
        label = {"log_probability": "log probability of the level"}.get(name, name.replace("_", " "))
        table[label.upper() if name in ("rmse", "mae", "crps") else label] = written(scores[name])
    inside = (f"{level:.0%}: {share:.1%}" for level, share in scores["coverage"].items())
    table["inside their intervals"] = ", ".join(inside)
    for name, what in (
        ("by_activity", "users with {} to {} ratings"),
        ("by_popularity", "items with {} to {} ratings"),
    ):
        for group in scores[name]:
            text = f"RMSE {written(group['rmse'])}, inside their 90 % intervals {group['coverage_90']:.1%}"
            table[what.format(group["from"], group["to"])] = text
    return table


def _describe(path: Path) -> dict[str, Any]:
    kind = kind_of(path)
    if kind == "ratings file":
        from dsgmcmc.data.ratings import open_ratings

        with open_ratings(path) as ratings:
            sizes = ("n_rows", "n_cols", "nnz", "nnz_test")
            about = ("mean", "minimum", "maximum", "transposed", "seed", "source", "digest")
            facts = {name: getattr(ratings, name) for name in (*sizes, *about)}
            for side, stored in ratings.features.items():
                kind_of_row = "user" if (side == "rows") != ratings.transposed else "item"
                facts[f"{kind_of_row}_features"] = {g: stored.groups.count(g) for g in dict.fromkeys(stored.groups)}
    elif kind == "run":
        from dsgmcmc.storage.rundir import RunDirectory

        facts = _describe_run(RunDirectory(path)) | _describe_parts(path)
    else:
        from dsgmcmc.storage.manifest import read_manifest

        manifest = read_manifest(path)
        facts = manifest.model_dump(include={"chain", "iteration", "grid", "about", "config_hash", "data_hash"})
        facts |= {"of": manifest.kind, "blocks": len(manifest.blocks), "shards": len(manifest.shards)}
    return {"kind": kind, **facts}


def _describe_run(run: Any) -> dict[str, Any]:
    from dsgmcmc.config.run import ResolvedConfig
    from dsgmcmc.diagnostics.accuracy import ending
    from dsgmcmc.diagnostics.comparison import Comparison
    from dsgmcmc.diagnostics.summary import read_summary
    from dsgmcmc.posterior.live import newest_states
    from dsgmcmc.posterior.live import progress as progress_of
    from dsgmcmc.storage.series import steps

    config, facts = ResolvedConfig.of_run(run)
    settings = config.table()
    saved = {state.manifest.chain: len(state.manifest.saved_draws) for state in newest_states(run, facts)}
    chains = {
        f"chain_{chain}": {
            "checkpoints": steps(run.series("checkpoints", chain)),
            "saved_draws": saved.get(chain, 0),
        }
        for chain in run.chains()
    }
    reached = run.reached(settings["chains"])
    summary = read_summary(run.summary_file) if run.summary_file.exists() else None
    look = (summary or {}).get("until") or {}
    accurate = bool(look.get("reached")) and look["until"] == settings.get("until")
    progress = {
        "reached": reached,
        "checkpointed_iterations": sum(reached),
        "complete": min(reached) >= (look["iteration"] if accurate else settings["iterations"]),
    }
    if look:
        progress["why"] = ending(look)
    under_way = progress_of(run, config, facts)
    progress["progress"] = asdict(under_way) if under_way else None
    if run.comparison_file.exists():
        progress["comparison"] = Comparison.read(run.comparison_file).table()
    return {"settings": settings, "run": facts, "jobs": run.jobs(), **chains, **progress, "summary": summary}


def _describe_parts(path: Path) -> dict[str, Any]:
    """Importance of features and of effects in a run, once it has draws."""
    from dsgmcmc.posterior.importance import importance, importance_of_effects
    from dsgmcmc.posterior.live import newest_states
    from dsgmcmc.posterior.run import Run
    from dsgmcmc.storage.rundir import RunDirectory

    run = RunDirectory(path)
    _, about = run.read_settings()
    if not newest_states(run, about):
        return {}
    opened = Run(path)
    features = {kind: asdict(each) for kind, each in importance(opened).items()}
    effects = [asdict(each) for each in importance_of_effects(opened)]
    return ({"features": features} if features else {}) | ({"effects": effects} if effects else {})


def _shown_of_ratings(facts: dict[str, Any]) -> dict[str, Any]:
    """Facts about a ratings file, with the labels of `dsgmcmc prepare`."""
    sides = ("n_cols", "n_rows") if facts["transposed"] else ("n_rows", "n_cols")
    users, items = (facts[side] for side in sides)
    both = facts["nnz"] + facts["nnz_test"]
    return {
        "users": users,
        "items": items,
        "ratings": f"{both:,}, density {both / (users * items):.3%}",
        "scale": f"{facts['minimum']:g} to {facts['maximum']:g}, mean {facts['mean']:.5g}",
        "training": facts["nnz"],
        "test": f"{facts['nnz_test']:,} ({facts['nnz_test'] / both:.1%})",
        **{f"{kind} features": facts[f"{kind}_features"] for kind in ("user", "item") if f"{kind}_features" in facts},
        "made from": facts["source"],
        "seed": facts["seed"],
        "digest": facts["digest"],
    }


def _shown_of_run(facts: dict[str, Any]) -> dict[str, Any]:
    """Settings and contents of the directory; hashes, versions and times are in --json and ``run.toml``."""
    from dsgmcmc.diagnostics.verdict import started

    shown: dict[str, Any] = {}
    for name, value in facts["settings"].items():
        shown |= {f"{name}.{key}": v for key, v in value.items()} if isinstance(value, dict) else {name: value}
    run = facts["run"]
    shown |= started(facts["jobs"])
    shown["sampled from"] = run.get("data", "")
    shown["config_hash"] = run.get("config_hash", "")
    if "comparison" in facts:
        models = facts["comparison"]["models"]
        shown["model"] = f"{facts['comparison']['recommended']}: recommended of {len(models)} that were compared"
    for name, value in facts.items():
        if name.startswith("chain_"):
            shown[name.replace("_", " ")] = (
                f"checkpoints {_text(value['checkpoints']) or 'none'}; {value['saved_draws']} saved draws"
            )
    return shown


def _shown_of_snapshot(facts: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", " "): value for name, value in facts.items() if name != "kind"}


_SHOWN = {"ratings file": _shown_of_ratings, "run": _shown_of_run, "snapshot": _shown_of_snapshot}


def _lines(value: Any) -> list[str]:
    return [f"{name}: {_text(item)}" for name, item in value.items()] if isinstance(value, dict) else [_text(value)]


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(_lines(value))
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)

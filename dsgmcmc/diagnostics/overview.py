"""Facts about a run, as lines and tables for ``dsgmcmc info`` and the report, and the check of all
its files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.diagnostics.accuracy import describe_ending
from dsgmcmc.diagnostics.comparison import Comparison
from dsgmcmc.diagnostics.summary import (
    RunText,
    as_written,
    describe_run,
    ending,
    read_summary,
    written,
)
from dsgmcmc.posterior.run import LiveProgress, Run, newest_states, progress
from dsgmcmc.posterior.traces import importance
from dsgmcmc.settings import named
from dsgmcmc.storage.rundir import RunDirectory, verify_run
from dsgmcmc.storage.store import steps
from dsgmcmc.terminal import plain


class TextTable(NamedTuple):
    """A table. Its cells are text, and most of them contain numbers."""

    title: str
    headings: tuple[str, ...]
    rows: list[list[str]]


def overview(run: RunDirectory) -> tuple[dict[str, Any], RunText, dict[str, Any], list[TextTable]]:
    """Collect the facts about a run, which need not have ended.

    Returns
    -------
    facts : dict
        All facts, for scripts.
    verdict : RunText
        The result of the run, or its progress.
    settings : dict of str to object
        Settings, commands and contents, by label.
    tables : list of TextTable
        Importance of features, and of effects of groups of ratings.
    """
    config, facts = ResolvedConfig.of_run(run)
    settings, states = config.table(), newest_states(run, facts)
    reached = run.reached(config.chains)
    draws = {state.manifest.chain: len(state.manifest.saved_draws) for state in states}
    chains = [
        {"checkpoints": steps(run.series("checkpoints", chain)), "saved_draws": draws.get(chain, 0)}
        for chain in run.chains()
    ]
    summary = read_summary(run.summary_file) if run.summary_file.exists() else None
    with as_written(run.summary_file):
        look = (summary or {}).get("until") or {}
        accurate = bool(look.get("reached")) and look["until"] == settings.get("until")
        complete = min(reached) >= (look["iteration"] if accurate else config.iterations)
        why = describe_ending(look) if look else None
    under_way = progress(run, config, states)
    known: dict[str, Any] = {
        "settings": settings,
        "run": facts,
        "jobs": run.jobs(),
        "version_changes": {
            str(event["iteration"]): event["changes"]
            for event in run.events()
            if event["event"] == "resumed" and "changes" in event
        },
        "chains": chains,
        "reached": reached,
        "checkpointed_iterations": sum(reached),
        "complete": complete,
        "why": why,
        "progress": under_way._asdict() if under_way else None,
        "summary": summary,
    }
    if run.comparison_file.exists():
        known["comparison"] = Comparison.read(run.comparison_file).table()
    with as_written(run.summary_file):
        text = _progress(under_way, facts) if under_way else _verdict(known)
        labelled = _settings(known)
    known["importance"], tables = {}, []
    for title, estimates in (importance(Run(run.path)) if states else {}).items():
        known["importance"][title] = [estimate._asdict() for estimate in estimates]
        rows = [[name, *(f"{value:.3f}" for value in values)] for name, *values in estimates[:10]]
        tables.append(TextTable(title, ("name", "mean", "5 %", "95 %"), rows))
    return known, text, labelled, tables


def _progress(under_way: LiveProgress, facts: Mapping[str, Any]) -> RunText:
    """Say how far an unfinished run has come."""
    usable = under_way.usable()
    if under_way.rmse_mean is not None:
        usable += f"; RMSE of their prediction {written(under_way.rmse_mean)}"
    return RunText([str(under_way), usable], facts.get("cautions", []), [])


def _verdict(known: Mapping[str, Any]) -> RunText:
    """Judge a run that has ended."""
    summary, cautions = known["summary"], known["run"].get("cautions", [])
    current = {"reached": known["reached"], "iterations": known["settings"]["iterations"]}
    if (
        summary is None or summary["reached"] != known["reached"]
    ):  # the last job ended before it wrote the summary
        return RunText([f"no result yet: {named('resume')} writes it"], cautions, [ending(current)])
    look = summary["until"]
    if look and look["iteration"] < max(current["reached"]):  # the run continued after this check
        look = None
    return describe_run({**summary, **current, "until": look}, cautions)


def _settings(known: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings, commands and contents by label; hashes and times are in ``run.toml``."""
    facts, jobs = known["run"], known["jobs"]
    labelled: dict[str, Any] = {}
    for name, value in known["settings"].items():
        labelled |= (
            {f"{name}.{key}": v for key, v in value.items()}
            if isinstance(value, dict)
            else {name: value}
        )
    if jobs:
        labelled["started with"] = _command(jobs[0])
    if len(jobs) > 1:
        labelled[f"job {len(jobs)}"] = _command(jobs[-1])
    labelled |= {"sampled from": facts.get("data", ""), "config_hash": facts.get("config_hash", "")}
    labelled["versions"] = ", ".join(
        f"{name} {version}" for name, version in facts.get("versions", {}).items()
    )
    for iteration, changes in known["version_changes"].items():
        labelled[f"from iteration {iteration}"] = ", ".join(
            f"{name} {new}" for name, (_, new) in changes.items()
        )
    if known["summary"]:
        labelled["last result"] = known["summary"]["time"]
    if comparison := known.get("comparison"):
        models = len(comparison["models"])
        labelled["model"] = (
            f"{comparison['recommended']}: recommended of {models} that were compared"
        )
    for number, chain in enumerate(known["chains"]):
        checkpoints = ", ".join(f"{iteration:,}" for iteration in chain["checkpoints"])
        labelled[f"chain {number}"] = (
            f"checkpoints {checkpoints or 'none'}; {chain['saved_draws']} saved draws"
        )
    return labelled


def _command(job: Mapping[str, Any]) -> str:
    """Write the command of a job, with the number of processes if there were several."""
    processes = job.get("processes", 1)
    return plain(job["command"]) + (f"  (on {processes} processes)" if processes > 1 else "")


def convergence_table(diagnosis: Mapping[str, Any]) -> TextTable:
    """Make a table of R-hat and ESS of shared parameters, and their worst values for predictions,
    from `diagnose`.
    """
    rows = [
        [x["label"], f"{x['mean']:.5g}", f"{x['sd']:.3g}", *_measures(x)]
        for x in diagnosis["quantities"]
    ]
    predictions = diagnosis["predictions"]
    if predictions["pairs"]:
        rows.append(
            [f"worst of {predictions['pairs']} predictions", "", "", *_measures(predictions)]
        )
    title = f"{diagnosis['chains']} chain(s) of {diagnosis['draws']} draws"
    return TextTable(title, ("quantity", "mean", "sd", "R-hat", "ESS bulk", "ESS tail"), rows)


def _measures(line: Mapping[str, Any]) -> list[str]:
    """Return R-hat, bulk ESS and tail ESS of a line as text; of a list, the worst value."""
    texts = []
    for name, digits, worst in (("rhat", 3, max), ("ess_bulk", 0, min), ("ess_tail", 0, min)):
        value = worst(line[name]) if isinstance(line[name], list) else line[name]
        texts.append("-" if value is None else f"{value:,.{digits}f}")
    return texts


def score_tables(scored: Mapping[str, Any] | None) -> list[TextTable]:
    """Make tables of the scores of test ratings, in total and by number of training ratings, from
    `calibration`.
    """
    if scored is None:
        return []
    of_point = " of the median" if scored.get("point") == "median" else ""
    labels = {
        "auc": "AUC",
        "brier": "Brier score",
        "log_loss": "log loss",
        "rmse": f"RMSE{of_point}",
        "mae": f"MAE{of_point}",
        "rmse_log": "RMSE of logarithms",
        "predictive_sd": "predictive sd",
        "log_predictive_density": "log predictive density",
        "log_probability": "log probability of the level",
    }
    rows = [
        [label, written(scored[name])]
        for name, label in labels.items()
        if scored.get(name) is not None
    ]
    rows += [
        [f"inside {level:.0%} intervals", f"{share:.1%}"]
        for level, share in scored["coverage"].items()
    ]
    groups = [
        [
            f"{kind}s with {group['from']:,} to {group['to']:,}",
            written(group["rmse"]),
            f"{group['coverage_90']:.1%}",
        ]
        for kind, name in (("user", "by_activity"), ("item", "by_popularity"))
        for group in scored[name]
    ]
    return [
        TextTable(f"{scored['ratings']:,} test ratings", ("score", "value"), rows),
        TextTable(
            "By number of training ratings",
            ("test ratings of", "RMSE", "inside 90% intervals"),
            groups,
        ),
    ]


def audit(run: RunDirectory) -> str:
    """Check every file of a run, and return the digest of its content (`dsgmcmc.storage.rundir`).

    Raises InputError, which names the first damaged file.
    """
    ResolvedConfig.of_run(run)
    digest = verify_run(run)
    if run.summary_file.exists():
        read_summary(run.summary_file)
    if run.comparison_file.exists():
        Comparison.read(run.comparison_file)
    return digest

"""Facts about a run, as lines and tables for ``dsgmcmc info`` and the report.

Also the check of all files of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from pathlib import PurePath
from typing import Any, NamedTuple

from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.diagnostics.accuracy import describe_ending
from dsgmcmc.diagnostics.comparison import Comparison
from dsgmcmc.diagnostics.summary import (
    RunText,
    as_written,
    covered,
    describe_run,
    ending,
    read_summary,
    within_groups,
    written,
)
from dsgmcmc.posterior.loadings import SHARE, variance_shares
from dsgmcmc.posterior.progress import LiveProgress, newest_states, progress
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.traces import importance
from dsgmcmc.ratings.reading import Reading
from dsgmcmc.settings import named
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.storage.store import Snapshot, steps
from dsgmcmc.storage.verify import verify_run
from dsgmcmc.terminal import plain

#: Number of features, or of levels of time, whose importance is shown.
SHOWN = 10
#: Labels of the scores of `dsgmcmc.diagnostics.scores.calibration`.
SCORES = {
    "auc": "AUC",
    "brier": "Brier score",
    "log_loss": "log loss",
    "rmse": "RMSE",
    "mae": "MAE",
    "rmse_log": "RMSE of logarithms",
    "predictive_sd": "predictive sd",
    "log_predictive_density": "log predictive density",
    "log_probability": "log probability of the recorded rating",
}


class TextTable(NamedTuple):
    """A table. Its cells are text, and most of them contain numbers."""

    title: str
    headings: tuple[str, ...]
    rows: list[list[str]]


class Overview(NamedTuple):
    """The facts about a run.

    Attributes
    ----------
    facts : dict
        All facts, for scripts.
    text : RunText
        The result of the run, or its progress.
    about : dict of str to object
        Commands, input and contents, by label.
    settings : dict of str to object
        Settings and versions, by label.
    tables : list of TextTable
        Importance of features and of effects of groups of ratings, and variance by factor.
    """

    facts: dict[str, Any]
    text: RunText
    about: dict[str, Any]
    settings: dict[str, Any]
    tables: list[TextTable]


def overview(run: RunDirectory) -> Overview:
    """Collect the facts about a run, which need not have ended."""
    config, facts = ResolvedConfig.of_run(run)
    states = newest_states(run, facts)
    under_way = progress(run, config, states)
    summary = None
    if run.summary_file.exists():
        summary = read_summary(run.summary_file)
    known: dict[str, Any] = {
        "settings": config.table(),
        "run": facts,
        "jobs": run.jobs(),
        "version_changes": _version_changes(run),
        "chains": _chains(run, states),
    }
    with as_written(run.summary_file):
        known |= _ending(run.reached(config.chains), summary, config)
    known["progress"] = under_way._asdict() if under_way else None
    known["summary"] = summary
    if run.comparison_file.exists():
        known["comparison"] = Comparison.read(run.comparison_file).table()
    with as_written(run.summary_file):
        if under_way:
            text = _describe_progress(under_way, facts)
        else:
            text = _describe_end(known)
        about = _about(known)
        settings = _settings(known)
    known["importance"] = {}
    known["variance_shares"] = []
    if states:
        opened = Run(run.path)
        known["importance"] = {
            title: [estimate._asdict() for estimate in estimates]
            for title, estimates in importance(opened).items()
        }
        known["variance_shares"] = variance_shares(opened).tolist()
    tables = _importance_tables(known["importance"])
    tables += _factor_tables(known["variance_shares"])
    return Overview(known, text, about, settings, tables)


def run_warnings(run: RunDirectory) -> list[str]:
    """Return the warnings of a run that has ended."""
    config, facts = ResolvedConfig.of_run(run)
    with as_written(run.summary_file):
        summary = read_summary(run.summary_file)
        known = {"settings": config.table(), "run": facts, "summary": summary}
        known |= _ending(run.reached(config.chains), summary, config)
        return _describe_end(known).all_warnings()


def _version_changes(run: RunDirectory) -> dict[str, Any]:
    """Return the changes of versions with which a run was resumed, by iteration."""
    return {
        str(event["iteration"]): event["changes"]
        for event in run.events()
        if event["event"] == "resumed" and "changes" in event
    }


def _chains(run: RunDirectory, states: list[Snapshot]) -> list[dict[str, Any]]:
    """Return the checkpoints of every chain, and its number of saved draws."""
    draws = {state.manifest.chain: len(state.manifest.saved_draws) for state in states}
    return [
        {"checkpoints": steps(run.series("checkpoints", chain)), "saved_draws": draws.get(chain, 0)}
        for chain in run.chains()
    ]


def _ending(
    reached: list[int], summary: Mapping[str, Any] | None, config: ResolvedConfig
) -> dict[str, Any]:
    """Say which iterations the chains reached, whether that is their end, and why."""
    until = (summary or {}).get("until") or {}
    end = config.iterations
    why = None
    if until:
        why = describe_ending(until)
        if until["reached"] and until["until"] == config.until:
            end = until["iteration"]
    return {
        "reached": reached,
        "checkpointed_iterations": sum(reached),
        "complete": min(reached) >= end,
        "why": why,
    }


def _importance_tables(by_title: Mapping[str, list[dict[str, Any]]]) -> list[TextTable]:
    """Make tables of the most important features, or levels of time."""
    tables = []
    for title, estimates in by_title.items():
        rows = []
        for estimate in estimates[:SHOWN]:
            values = [estimate["mean"], estimate["low"], estimate["high"]]
            rows.append([estimate["name"], *(f"{value:.3f}" for value in values)])
        tables.append(TextTable(title, ("name", "mean", "5 %", "95 %"), rows))
    return tables


def _factor_tables(shares: list[float]) -> list[TextTable]:
    """Make a table of the factors that hold most of the variance; none without factors."""
    if not shares:
        return []
    rows = []
    total = 0.0
    for number, share in enumerate(shares, start=1):
        total += share
        rows.append([str(number), f"{share:.1%}", f"{total:.1%}"])
        if total >= SHARE:
            break
    title = (
        f"Variance by factor, biases left out: {len(rows)} of {len(shares)} factors hold"
        f" {SHARE:.0%} of it"
    )
    return [TextTable(title, ("factor", "share", "sum"), rows[:SHOWN])]


def _describe_progress(under_way: LiveProgress, facts: Mapping[str, Any]) -> RunText:
    """Say how far an unfinished run has come."""
    lines = under_way.lines()
    if under_way.rmse_mean is not None:
        lines[-1] += f"; RMSE of their prediction {written(under_way.rmse_mean)}"
    return RunText(lines, facts.get("cautions", []), [])


def _describe_end(known: Mapping[str, Any]) -> RunText:
    """Describe a run that has ended."""
    summary = known["summary"]
    cautions = known["run"].get("cautions", [])
    current = {"reached": known["reached"], "iterations": known["settings"]["iterations"]}
    # a job may end before it has written its summary
    if summary is None or summary["reached"] != known["reached"]:
        missing = f"no result yet: {named('resume')} writes it"
        return RunText([missing], cautions, [ending(current)])
    until = summary["until"]
    if until and until["iteration"] < max(current["reached"]):  # the run continued after the check
        until = None
    return describe_run({**summary, **current, "until": until}, cautions)


def _settings(known: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings and versions by label."""
    labelled: dict[str, Any] = {}
    for name, value in known["settings"].items():
        if isinstance(value, dict):
            labelled |= {f"{name}.{key}": setting for key, setting in value.items()}
        else:
            labelled[name] = value
    labelled["config_hash"] = known["run"].get("config_hash", "")
    labelled["versions"] = _joined(known["run"].get("versions", {}))
    return labelled


def _about(known: Mapping[str, Any]) -> dict[str, Any]:
    """Return commands, input and contents by label; hashes and times are in ``run.toml``."""
    facts = known["run"]
    jobs = known["jobs"]
    labelled: dict[str, Any] = {}
    if jobs:
        labelled["started with"] = _command(jobs[0])
    if len(jobs) > 1:
        labelled[f"job {len(jobs)}"] = _command(jobs[-1])
    labelled["sampled from"] = PurePath(facts.get("data", "")).name
    if "reading" in facts:
        labelled["ratings read with"] = ", ".join(Reading.parse(facts["reading"]).described())
    for iteration, changes in known["version_changes"].items():
        labelled[f"from iteration {iteration}"] = _joined(
            {name: new for name, (_, new) in changes.items()}
        )
    if known["summary"]:
        labelled["last result"] = known["summary"]["time"]
    if "comparison" in known:
        comparison = known["comparison"]
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


def _joined(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _command(job: Mapping[str, Any]) -> str:
    """Write the command of a job, with the number of processes if there were several."""
    command = plain(job["command"])
    processes = job.get("processes", 1)
    if processes > 1:
        command += f"  (on {processes} processes)"
    return command


def convergence_table(diagnosis: Mapping[str, Any]) -> TextTable:
    """Make a table of R-hat and ESS of shared parameters, from `diagnose`.

    The last row has the worst values for predictions.
    """
    rows = [
        [
            quantity["label"],
            f"{quantity['mean']:.5g}",
            f"{quantity['sd']:.3g}",
            *_measures(quantity),
        ]
        for quantity in diagnosis["quantities"]
    ]
    predictions = diagnosis["predictions"]
    if predictions["pairs"]:
        label = f"worst of {predictions['pairs']} predictions"
        rows.append([label, "", "", *_measures(predictions)])
    title = f"{diagnosis['chains']} chain(s) of {diagnosis['draws']} draws"
    return TextTable(title, ("quantity", "mean", "sd", "R-hat", "ESS bulk", "ESS tail"), rows)


def _measures(line: Mapping[str, Any]) -> list[str]:
    """Return R-hat, bulk ESS and tail ESS of a line as text; of a list, the worst value but NaN."""
    texts = []
    for name, digits, worst in (("rhat", 3, max), ("ess_bulk", 0, min), ("ess_tail", 0, min)):
        value = line[name]
        if isinstance(value, list):
            value = worst((number for number in value if not isnan(number)), default=None)
        texts.append("-" if value is None else f"{value:,.{digits}f}")
    return texts


def score_tables(scored: Mapping[str, Any] | None, columns: Mapping[str, str]) -> list[TextTable]:
    """Make tables of the scores of `calibration`: of all test ratings, and by group.

    Users and items are called as their columns, by role.
    """
    if scored is None:
        return []
    tables = [total_scores(scored, "test ratings")]
    if scored["by_activity"]:
        tables.append(_group_scores(scored, columns))
    return tables


def total_scores(scored: Mapping[str, Any], which: str) -> TextTable:
    """Make a table of the scores of all ratings; the title says which they are."""
    labels = dict(SCORES)
    if scored.get("point") == "median":
        labels["rmse"] += " of the median"
        labels["mae"] += " of the median"
    rows = []
    by_group = scored.get("by_group")
    if by_group and by_group["correlation"] is not None:
        rows.append(within_groups(by_group))
    for name, label in labels.items():
        if scored.get(name) is not None:
            rows.append([label, written(scored[name])])
    for level, share in scored["coverage"].items():
        inside = covered(share, str(level), by_group)
        rows.append([f"inside {level:.0%} intervals", inside])
    title = f"{scored['ratings']:,} {which}"
    if scored.get("bounded"):
        title += f", {scored['bounded']:,} of which count in log scores alone: they are bounds"
    return TextTable(title, ("score", "value"), rows)


def _group_scores(scored: Mapping[str, Any], columns: Mapping[str, str]) -> TextTable:
    """Make a table of scores by the number of training ratings of users, and of items."""
    rows = []
    for entity, name in (("user", "by_activity"), ("item", "by_popularity")):
        for group in scored[name]:
            label = f"{columns.get(entity, entity)} with {group['from']:,}"
            if group["to"] > group["from"]:
                label += f" to {group['to']:,}"
            label += " ratings"
            rows.append([label, written(group["rmse"]), f"{group['coverage_90']:.1%}"])
    headings = ("test ratings of", "RMSE", "inside 90% intervals")
    return TextTable("By number of training ratings", headings, rows)


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

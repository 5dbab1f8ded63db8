"""The HTML page of a report and its sections."""

from __future__ import annotations

import html
from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter
from pathlib import Path

import numpy as np

from dsgmcmc.diagnostics.advantage import LOG_SCORES
from dsgmcmc.diagnostics.convergence import measures_as_text
from dsgmcmc.diagnostics.report.charts import PALETTE, Series, line_chart
from dsgmcmc.diagnostics.report.content import Content, gather, names_of
from dsgmcmc.diagnostics.report.document import document, section, tiles
from dsgmcmc.diagnostics.report.heldout import (
    calibration_section,
    differences_section,
    groups_section,
    residuals_section,
)
from dsgmcmc.diagnostics.report.tables import configuration_section, phases_section, table, whole, words_section
from dsgmcmc.diagnostics.verdict import in_units, started, written
from dsgmcmc.errors import InputError, writing
from dsgmcmc.posterior.draws import KINDS
from dsgmcmc.posterior.effects import HEADINGS, TITLE, table_of_effects
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.traces import labels
from dsgmcmc.storage.files import write_whole

#: Facts of a run that its head shows.
SIZES = {"ratings": "training ratings", "test_ratings": "test ratings"}
NOTE_ON_ERRORS = "Strong lines: posterior mean. Faint lines: current draw."
NOTE_ON_EFFECTS = (
    "Standard deviation of the effects that groups of ratings share, and their part of the ratings' variance."
)
NOTE_ON_FEATURES = (
    "Groups: the variance that each explains, relative to the remaining variance. Features: the strongest effects on "
    "the mean rating. Posterior mean and 90 % interval."
)

NOTE_ON_DIFFERENCES = (
    "On the same test ratings. The number after ± is half the 95 % interval over test ratings; the Monte Carlo error "
    "of short chains comes on top."
)


def write_report(paths: Sequence[Path], out: Path) -> None:
    """Write the report of some runs to one HTML file.

    Parameters
    ----------
    paths : sequence of Path
        Run directories; several are shown side by side.
    out : Path
        HTML file, written atomically.

    Raises
    ------
    InputError
        If a run cannot be read, or the page cannot be written.
    """
    if out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{out}: a report is an HTML page; name it FILE.html")
    if out.is_dir():
        raise InputError(f"{out} is a folder; name the page, {out / 'report.html'}")
    runs = [gather(Run(path), name) for path, name in zip(paths, names_of(list(paths)), strict=True)]
    page = render(runs)
    with writing(out):
        write_whole(out, page)


def render(runs: list[Content]) -> str:
    """Return the HTML of a report."""
    title = " and ".join(run.name for run in runs)
    clicks = all(run.of_clicks for run in runs)
    sections = [
        *(_head(run) for run in runs),
        *(
            [section("Differences", differences_section(runs), NOTE_ON_DIFFERENCES, charts=False)]
            if len(runs) > 1 and not clicks
            else []
        ),
        *([] if clicks else [section("Error while sampling", _errors(runs), NOTE_ON_ERRORS)]),
        section("Traces", _traces(runs)),
        section("Convergence", "".join(_convergence(run, len(runs) > 1) for run in runs), charts=False),
        *([] if clicks else _of_errors(runs)),
        *(section("Features", _features(run), NOTE_ON_FEATURES, charts=False) for run in runs if run.features),
        *(
            section(TITLE, table(HEADINGS, table_of_effects(run.effects)), NOTE_ON_EFFECTS, charts=False)
            for run in runs
            if run.effects
        ),
        section("Time and communication", phases_section(runs)),
        section("Configuration", configuration_section(runs), charts=False),
        section("Words", words_section(), charts=False),
    ]
    return document(title, sections)


def _of_errors(runs: list[Content]) -> list[str]:
    """Sections of the test ratings' errors."""
    return [
        section("Calibration", calibration_section(runs)),
        section("Residuals", residuals_section(runs)),
        section("Where the error is", groups_section(runs)),
    ]


def _head(content: Content) -> str:
    run, summary = content.run, content.summary
    config, processes = run.config, summary.get("processes", 1)
    shown = []
    if content.calibration:
        scores = content.calibration
        errors = sorted((summary.get("baselines") or {}).items(), key=itemgetter(1))  # the better first
        shown += [
            (written(scores["rmse"]), "RMSE of the posterior mean"),
            *((written(rmse), f"RMSE, {name.replace('_', ' ')}") for name, rmse in errors),
            (f"{scores['coverage'][0.9]:.1%}", "of test ratings in 90\N{NO-BREAK SPACE}% intervals"),
            (written(scores["crps"]), "CRPS"),
        ]
        simple = summary.get("over_biases")
        measure = simple["measure"] if simple else "log_probability"
        if scores[measure] is not None:
            shown.append((f"{scores[measure]:.4f}", LOG_SCORES[measure]))
        if simple:
            shown.append((f"{simple['biases_only']:.4f}", "the same, biases only"))
    for name, ranking in (summary.get("rankings") or {}).items():
        if name != "users":
            shown.append((f"{ranking['mean']:.4f}", f"{name} of held-out clicks"))
            shown.append((f"{ranking['popular']:.4f}", f"{name} by popularity"))
    tau = next((line for line in content.convergence["quantities"] if line["name"] == "tau"), None)
    if tau:
        shown.append((f"{tau['mean']:.3f}", f"tau (sd {tau['sd']:.2g})"))
    shown += [
        (f"{content.convergence['chains']} x {content.convergence['draws']}", "chains x draws"),
        (f"{summary.get('seconds_sampling', 0.0):.1f} s", f"sampling on {processes} process{'es' * (processes != 1)}"),
    ]
    if "ratings_per_second" in summary:
        shown.append((in_units(summary["ratings_per_second"]), "ratings per second"))
    advice = "".join(f'<p class="advice">{whole(text)}</p>' for text in content.advice)
    sizes = [f"{len(run.users):,} users", f"{len(run.items):,} items"]
    sizes += [f"{run.facts[name]:,} {what}" for name, what in SIZES.items() if name in run.facts]
    commands = started(run.directory.jobs()[:1]).values()  # of the first job
    started_with = "".join(f'<p class="sub"><code>{html.escape(command)}</code></p>' for command in commands)
    time = summary.get("time", "")  # in UTC; of a run that has not ended it is not known
    when = f" {datetime.fromisoformat(time):%-d %B %Y, %H:%M} UTC." if time else ""
    facts = f"{content.ending}. {config.sampler.name}, rank {config.rank}; {', '.join(sizes)}.{when}"
    return (
        f'<header><h1>{html.escape(content.name)}</h1><p class="sub">{html.escape(facts)}</p>{started_with}'
        f"{tiles(shown)}{advice}</header>"
    )


def _colors(runs: list[Content]) -> list[list[str]]:
    """Colour of every chain of every run: by chain if there is one run, else by run."""
    if len(runs) == 1:
        return [[PALETTE[c % len(PALETTE)] for c in range(max(len(runs[0].run.chains), len(runs[0].metrics)))]]
    return [[PALETTE[r % len(PALETTE)]] * max(len(run.run.chains), len(run.metrics)) for r, run in enumerate(runs)]


def _label(runs: list[Content], run: Content, chain: int) -> str:
    return run.name if len(runs) > 1 else f"chain {chain}"


def _errors(runs: list[Content]) -> str:
    series: dict[str, list[Series]] = {"iteration": [], "time_s": []}
    seen = []
    for run, colors in zip(runs, _colors(runs), strict=True):
        for (chain, columns), color in zip(run.metrics.items(), colors, strict=False):
            for axis, lines in series.items():
                lines.append(Series("", columns[axis], columns["rmse"], color, "faint"))
                lines.append(Series(_label(runs, run, chain), columns[axis], columns["rmse_mean"], color))
            late = columns["iteration"] > 0.05 * columns["iteration"][-1]
            seen.append(np.concatenate([columns["rmse"][late], columns["rmse_mean"]]))
    values = np.concatenate(seen) if seen else np.zeros(0)
    values = values[np.isfinite(values)]
    limits = None
    if len(values):
        low, high = float(values.min()), float(np.quantile(values, 0.98))
        room = 0.08 * max(high - low, 1e-3)
        limits = (low - room, high + room)
    return "".join(
        line_chart(f"RMSE by {by}", series[axis], label, "RMSE on test ratings", limits)
        for axis, label, by in (("iteration", "iteration", "iteration"), ("time_s", "seconds", "time"))
    )


def _traces(runs: list[Content]) -> str:
    charts, label_of = [], {name: label for run in runs for name, label in labels(run.run).items()}
    for name in dict.fromkeys(name for run in runs for name in run.traces):
        series = []
        for run, colors in zip(runs, _colors(runs), strict=True):
            for chain, (values, color) in enumerate(zip(run.traces.get(name, []), colors, strict=False)):
                number = run.run.chains[chain]
                series.append(Series(_label(runs, run, number), np.arange(len(values)), values, color))
        charts.append(line_chart(label_of[name], series, "draw", ""))
    return "".join(charts)


def _convergence(content: Content, several: bool) -> str:
    convergence = content.convergence
    rows = [
        (line["label"], f"{line['mean']:.5g}", f"{line['sd']:.3g}", *measures_as_text(line))
        for line in convergence["quantities"]
    ]
    many = convergence["predictions"]
    for label, high, low in (("median", np.median, np.median), ("worst", np.max, np.min)):
        if many["pairs"]:
            worst = {
                key: None if many[key] is None else float(reduce(many[key]))
                for key, reduce in (("rhat", high), ("ess_bulk", low), ("ess_tail", low))
            }
            rows.append((f"{label} of {many['pairs']} predictions", "", "", *measures_as_text(worst)))
    title = f"<p><b>{html.escape(content.name)}</b></p>" if several else ""
    heading = ("quantity", "mean", "sd", "R-hat", "ESS bulk", "ESS tail")
    priors = _priors(content)
    return f'{title}{table(heading, rows)}<p class="sub">{html.escape(convergence["note"])}</p>{priors}'


def _priors(content: Content) -> str:
    """Prior sds of the dimensions, which show how many of them are in use; sorted, because their order is arbitrary."""
    run, charts = content.run, []
    k = run.config.rank
    for kind in KINDS if k else ():
        series = []
        for chain, trace, color in zip(run.chains, run.traces, PALETTE * 8, strict=False):
            sd = np.sort(1 / np.sqrt(trace[f"{kind}.precision"][:, :k].mean(axis=0)))[::-1]
            series.append(Series(f"chain {chain}", np.arange(1, k + 1), sd, color))
        title = f"Prior sd of the {kind} factors, sorted"
        charts.append(
            line_chart(title, series, "dimension", "sd", (0.0, max(float(np.asarray(s.y).max()) for s in series) * 1.1))
        )
    return f'<div class="charts">{"".join(charts)}</div>'


def _features(content: Content) -> str:
    """Variance that groups of features explain, and the strongest features."""
    tables = []
    for kind, features in content.features.items():
        for heading, estimates in (
            (f"{kind}s, by group", features.groups),
            (f"{kind}s, by feature", features.effects[:10]),
        ):
            rows = [(each.name, *(f"{x:.3f}" for x in (each.mean, each.low, each.high))) for each in estimates]
            tables.append(table((heading, "mean", "5 %", "95 %"), rows))
    return "".join(tables)

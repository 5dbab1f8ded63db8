"""The report of a run: one HTML page with tables and figures, which needs no network and has no script.

The page is ``report.html`` beside this file: its style, its words and the places of what is filled in here.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from importlib import resources
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from dsgmcmc._version import __version__
from dsgmcmc.diagnostics import figures
from dsgmcmc.diagnostics.convergence import diagnose, measures_as_text
from dsgmcmc.diagnostics.scores import calibration
from dsgmcmc.diagnostics.summary import read_summary
from dsgmcmc.diagnostics.verdict import LOG_SCORES, doubts, ending, in_units, started, written
from dsgmcmc.errors import InputError, writing
from dsgmcmc.posterior.importance import HEADINGS, TITLE, importance, importance_of_effects, table_of_effects
from dsgmcmc.posterior.live import LiveProgress
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.traces import labels, scalar_traces
from dsgmcmc.storage.files import write_whole
from dsgmcmc.types import Float64

#: Metrics of a run that are drawn.
METRICS = ("iteration", "time_s", "rmse", "rmse_mean")
MAX_TRACES = 10
#: Share of the time that processes wait for others, from which on fewer processes would be as fast.
MUCH_WAITING = 0.3


def write_report(path: Path, out: Path) -> None:
    """Write the report of a run to one HTML file.

    Parameters
    ----------
    path : Path
        Run directory.
    out : Path
        HTML file, written atomically.

    Raises
    ------
    InputError
        If the run cannot be read, the page cannot be written, or Matplotlib is not installed.
    """
    if out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{out}: a report is an HTML page; name it FILE.html")
    if out.is_dir():
        raise InputError(f"{out} is a folder; name the page, {out / 'report.html'}")
    page = _page(Run(path), path.resolve().name)
    with writing(out):
        write_whole(out, page)


def _page(run: Run, name: str) -> str:
    """HTML of the report of a run."""
    progress = LiveProgress.of(run.directory, run.config, len(run.draws)) if run.unfinished else None
    summary = _unfinished(run) if progress else _summary(run)
    summary |= {"reached": run.directory.reached(run.config.chains), "iterations": run.config.iterations}
    state = f"{progress}; {progress.usable()}" if progress else ending(summary)
    convergence = diagnose(run)
    of_clicks = not run.config.law.can_be_evaluated
    scored = calibration(run) if len(run.test_pairs()[0]) and not of_clicks else None
    advice = [*run.facts.get("cautions", []), *doubts(summary), *convergence["warnings"]]
    if scored is None and not of_clicks:
        advice.append("no test ratings: accuracy and calibration are unknown (prepare --test-fraction)")
    if (waiting := _waiting(summary)) > MUCH_WAITING:
        advice.append(f"{waiting:.0%} of the time was exchange and reduction: fewer processes would be as fast")
    sections = [
        *(f'<p class="advice">{_unbroken(text)}</p>' for text in advice),
        _section("Convergence", _convergence(convergence), convergence["note"]),
        _section("Traces", _traces(run)),
        *(_of_test_ratings(run, scored) if scored else ()),
        *_of_parts(run),
        _section("Time and communication", _times(summary)),
        _section("Configuration", _table(("setting", "value"), _settings(run, summary), text=True)),
    ]
    tiles = [*(_scores(summary, scored) if scored else ()), *_rankings(summary)]
    tiles.append((f"{summary['seconds_sampling']:.1f} s", f"sampling on {summary['processes']} process(es)"))
    commands = started(run.directory.jobs()[:1]).values()
    page = Template(resources.files("dsgmcmc.diagnostics").joinpath("report.html").read_text(encoding="utf-8"))
    return page.substitute(
        name=html.escape(name),
        version=__version__,
        facts=html.escape(_facts(run, state, summary)),
        command="".join(f'<p class="sub"><code>{html.escape(command)}</code></p>' for command in commands),
        tiles="".join(f'<div class="tile"><b>{score}</b><span>{html.escape(of)}</span></div>' for score, of in tiles),
        sections="\n".join(sections),
    )


def _summary(run: Run) -> dict[str, Any]:
    path = run.directory.summary_file
    try:
        return read_summary(path)
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing: the run ended before it could write it") from error


def _unfinished(run: Run) -> dict[str, Any]:
    """Entries of the summary that are known before the run has ended."""
    seconds = [line["time_s"] for line in run.directory.metrics()]
    processes = [job.get("processes", 1) for job in run.directory.jobs()]
    return {
        "draws": sum(len(trace["weight"]) for trace in run.traces),
        "baselines": run.facts.get("baselines"),
        "seconds_sampling": max(seconds, default=0.0),
        "processes": processes[-1] if processes else 1,
    }


def _waiting(summary: Mapping[str, Any]) -> float:
    """Share of the time in which processes exchange blocks and reduce sums."""
    seconds = {name: entry["mean"] for name, entry in summary.get("phases", {}).items()}
    total = sum(seconds.values())
    return (seconds.get("exchange", 0.0) + seconds.get("reduce", 0.0)) / total if total else 0.0


# ---------------------------------------------------------------------- sections


def _facts(run: Run, state: str, summary: Mapping[str, Any]) -> str:
    """Line below the title: state, sampler, sizes and time."""
    sizes = [f"{len(run.users):,} users", f"{len(run.items):,} items"]
    named = {"ratings": "training ratings", "test_ratings": "test ratings"}
    sizes += [f"{run.facts[key]:,} {what}" for key, what in named.items() if key in run.facts]
    time = summary.get("time", "")  # UTC; unknown until the run has ended
    when = f" {datetime.fromisoformat(time):%-d %B %Y, %H:%M} UTC." if time else ""
    return f"{state}. {run.config.sampler.name}, rank {run.config.rank}; {', '.join(sizes)}.{when}"


def _scores(summary: Mapping[str, Any], scored: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Scores of the test ratings next to those of the baselines, with their labels."""
    yield written(scored["rmse"]), "RMSE of the posterior mean"
    for name, rmse in sorted((summary.get("baselines") or {}).items(), key=itemgetter(1)):
        yield written(rmse), f"RMSE, {name.replace('_', ' ')}"
    yield f"{scored['coverage'][0.9]:.1%}", "of test ratings in 90 % intervals"
    yield written(scored["crps"]), "CRPS"
    simple = summary.get("over_biases")
    measure = simple["measure"] if simple else "log_probability"
    if scored[measure] is not None:
        yield f"{scored[measure]:.4f}", LOG_SCORES[measure]
    if simple:
        yield f"{simple['biases_only']:.4f}", "the same, biases only"


def _rankings(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Rankings of held-out clicks next to those by popularity, with their labels."""
    for name, ranking in (summary.get("rankings") or {}).items():
        if name != "users":
            yield f"{ranking['mean']:.4f}", f"{name} of held-out clicks"
            yield f"{ranking['popular']:.4f}", f"{name} by popularity"


def _convergence(convergence: Mapping[str, Any]) -> str:
    """R-hat and ESS of shared parameters and of predictions."""
    rows = [
        (line["label"], f"{line['mean']:.5g}", f"{line['sd']:.3g}", *measures_as_text(line))
        for line in convergence["quantities"]
    ]
    many = convergence["predictions"]
    for label, high, low in (("median", np.median, np.median), ("worst", np.max, np.min)):
        if many["pairs"]:
            reduce = {"rhat": high, "ess_bulk": low, "ess_tail": low}
            measures = {key: None if many[key] is None else float(reduce[key](many[key])) for key in reduce}
            rows.append((f"{label} of {many['pairs']} predictions", "", "", *measures_as_text(measures)))
    size = f"<p>{convergence['chains']} chains of {convergence['draws']} draws</p>"
    return size + _table(("quantity", "mean", "sd", "R-hat", "ESS bulk", "ESS tail"), rows)


def _traces(run: Run) -> str:
    label_of = labels(run)
    traced = {label_of[name]: values for name, values in list(scalar_traces(run).items())[:MAX_TRACES]}
    return _figure(len(traced), partial(figures.traces, chains=run.chains, shown=traced)) if traced else ""


def _of_test_ratings(run: Run, scored: Mapping[str, Any]) -> Iterator[str]:
    """Sections about the test ratings."""
    test = run.test
    predictive = test.predictive(run.config.law, run.levels)
    note = "Strong lines: posterior mean. Faint lines: current draw."
    yield _section("Error while sampling", _figure(2, partial(figures.errors, metrics=_metrics(run))), note)
    logs = ("log_predictive_density", "log_probability")
    row = [
        *(written(scored[name]) for name in ("rmse", "mae", "crps")),
        *("-" if scored[name] is None else f"{scored[name]:.4f}" for name in logs),
        written(scored["predictive_sd"]),
        *(f"{scored['coverage'][level]:.1%}" for level in (0.5, 0.8, 0.9, 0.95)),
    ]
    heading = ("RMSE", "MAE", "CRPS", "log density", "log p of level", "predictive sd", "50 %", "80 %", "90 %", "95 %")
    of_ratings = partial(figures.calibration, predictive=predictive, ratings=test.rating, counts=scored["pit"])
    note = "Of an interval, the share of test ratings inside it."
    yield _section("Calibration", _figure(2, of_ratings) + _table(heading, [row]), note)
    left = partial(figures.residuals, predictive=predictive, ratings=test.rating, mean=test.mean)
    yield _section("Residuals", _figure(2, left))
    yield _section("Where the error is", _figure(2, partial(figures.groups, measured=scored)))


def _of_parts(run: Run) -> Iterator[str]:
    """Sections about features and about effects of groups of ratings."""
    tables = []
    for kind, features in importance(run).items():
        for group, estimates in (("group", features.groups), ("feature", features.effects[:10])):
            rows = [(each.name, *(f"{x:.3f}" for x in (each.mean, each.low, each.high))) for each in estimates]
            tables.append(_table((f"{kind}s, by {group}", "mean", "5 %", "95 %"), rows))
    if tables:
        note = (
            "Groups: the variance that each explains, relative to the remaining variance. Features: the strongest "
            "effects on the mean rating. Posterior mean and 90 % interval."
        )
        yield _section("Features", "".join(tables), note)
    if effects := importance_of_effects(run):
        note = (
            "Standard deviation of the effects that groups of ratings share, and their part of the ratings' variance."
        )
        yield _section(TITLE, _table(HEADINGS, table_of_effects(effects)), note)


def _times(summary: Mapping[str, Any]) -> str:
    """Seconds of the processes by phase, speed and memory."""
    phases = summary.get("phases", {})
    rows = [(name, f"{entry['mean']:.2f}", f"{entry['max']:.2f}") for name, entry in phases.items()]
    rows.append(("all", f"{summary['seconds_sampling']:.2f}", ""))
    memory = max(summary.get("peak_rss_bytes") or [0])
    speed = f"{in_units(summary.get('ratings_per_second', 0.0))} ratings per second on {summary['processes']} "
    text = f"{speed}process(es), {_waiting(summary):.1%} exchange and reduction, at most {memory / 1e6:,.0f} MB each"
    return f"<p>{text}</p>" + _table(("phase", "mean seconds", "most seconds"), rows)


def _settings(run: Run, summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Every setting, version and command of the run that is not empty."""
    flat: dict[str, Any] = {}
    for name, value in run.config.model_dump().items():
        flat |= {f"{name}.{key}": v for key, v in value.items()} if isinstance(value, dict) else {name: value}
    flat |= {f"version of {name}": version for name, version in summary.get("versions", {}).items()}
    flat |= {"data": run.facts.get("data", ""), **started(run.directory.jobs())}
    return [(name, str(value)) for name, value in flat.items() if value not in (None, "")]


def _metrics(run: Run) -> dict[int, dict[str, Float64]]:
    """By chain, the columns of ``metrics.jsonl`` that are drawn; null is NaN."""
    metrics = {}
    for chain, lines in groupby(run.directory.metrics(), itemgetter("chain")):
        rows = (tuple(np.nan if line.get(name) is None else line[name] for name in METRICS) for line in lines)
        columns = np.fromiter(rows, dtype=(np.float64, len(METRICS))).T
        metrics[chain] = dict(zip(METRICS, columns, strict=True))
    return metrics


# ---------------------------------------------------------------------- HTML


def _section(title: str, content: str, note: str = "") -> str:
    note = f'<p class="sub">{html.escape(note)}</p>' if note else ""
    return f"<section><h2>{html.escape(title)}</h2>{note}{content}</section>"


def _figure(panels: int, fill: partial[None]) -> str:
    return f"<figure>{figures.svg(panels, fill)}</figure>"


def _unbroken(text: str) -> str:
    """HTML of a text without line breaks inside options."""
    return re.sub(r"--[a-z][a-z-]*", r'<span class="whole">\g<0></span>', html.escape(text))


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]], text: bool = False) -> str:
    """HTML of a table; the first column is text, the others are numbers unless they are `text`, too."""
    cell = '<td class="text">' if text else "<td>"
    head = "".join(f"<th>{html.escape(name)}</th>" for name in heading)
    body = "".join("<tr>" + "".join(f"{cell}{html.escape(word)}</td>" for word in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'

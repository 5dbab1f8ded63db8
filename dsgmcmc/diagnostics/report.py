"""The report of a run: one HTML page with tables and figures, without scripts, readable without a network.

The template ``report.html`` in this folder contains the style, the fixed text, and places for the contents.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
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
from dsgmcmc.diagnostics.convergence import diagnose
from dsgmcmc.diagnostics.overview import Table, of_convergence, of_scores, overview
from dsgmcmc.diagnostics.scores import calibration
from dsgmcmc.diagnostics.summary import as_written
from dsgmcmc.errors import InputError, writing
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.traces import labels, scalar_traces
from dsgmcmc.storage.files import write_whole
from dsgmcmc.types import Float64

#: Metrics of a run that the figures show.
METRICS = ("iteration", "time_s", "rmse", "rmse_mean")
MAX_TRACES = 10


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
    facts, verdict, settings, parts = overview(run.directory)
    diagnosis, scored = diagnose(run), calibration(run)
    with as_written(run.directory.summary_file):
        times = _phases(facts["summary"] or {})
    configuration = Table("", ("setting", "value"), [[name, str(value)] for name, value in settings.items()])
    sections = [
        _section("Convergence", _table(of_convergence(diagnosis)), diagnosis["note"]),
        _section("Traces", _traces(run)),
        *(_of_test_ratings(run, scored) if scored else ()),
        *(_section(part.title, _table(part._replace(title=""))) for part in parts),
        _section("Time", _table(times)),
        _section("Configuration", f'<div class="words">{_table(configuration)}</div>'),
    ]
    sizes = [f"{len(run.users):,} users", f"{len(run.items):,} items"]
    named = {"ratings": "training ratings", "test_ratings": "test ratings"}
    sizes += [f"{run.facts[key]:,} {what}" for key, what in named.items() if key in run.facts]
    warnings = [*verdict.warnings, *diagnosis["warnings"]]
    page = Template(resources.files("dsgmcmc.diagnostics").joinpath("report.html").read_text(encoding="utf-8"))
    return page.substitute(
        name=html.escape(name),
        version=__version__,
        sizes=", ".join(sizes),
        command=html.escape(settings.get("started with", "")),
        verdict="".join(f"<li>{html.escape(line)}</li>" for line in (*verdict.result, *verdict.end)),
        warnings="".join(f'<p class="advice">{_unbroken(text)}</p>' for text in warnings),
        sections="\n".join(sections),
    )


# ---------------------------------------------------------------------- sections


def _traces(run: Run) -> str:
    label_of = labels(run)
    traced = {label_of[name]: values for name, values in list(scalar_traces(run).items())[:MAX_TRACES]}
    return _figure(len(traced), partial(figures.traces, chains=run.chains, shown=traced)) if traced else ""


def _of_test_ratings(run: Run, scored: Mapping[str, Any]) -> Iterator[str]:
    """Sections about the test ratings."""
    test = predict_test(run)
    predictive = test.predictive(run.config.law, run.levels)
    note = "Strong lines: posterior mean. Faint lines: current draw."
    yield _section("Error while sampling", _figure(2, partial(figures.errors, metrics=_metrics(run))), note)
    intervals = partial(figures.calibration, predictive=predictive, ratings=test.rating, counts=scored["pit"])
    scores, groups = of_scores(scored)
    yield _section("Calibration", _figure(2, intervals) + _table(scores))
    yield _section("Where the error is", _table(groups))


def _phases(summary: Mapping[str, Any]) -> Table:
    """Seconds of the processes by phase; in exchange and reduce, processes mostly wait for others."""
    rows = [[name, f"{entry['mean']:.2f}", f"{entry['max']:.2f}"] for name, entry in summary.get("phases", {}).items()]
    memory = max(summary.get("peak_rss_bytes", [0])) / 1e6
    title = f"At most {memory:,.0f} MB a process" if rows else "Known once a job has ended"
    return Table(title, ("phase", "mean seconds of a process", "most"), rows)


def _metrics(run: Run) -> dict[int, dict[str, Float64]]:
    """Columns `METRICS` of ``metrics.jsonl``, by chain; null becomes NaN."""
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


def _table(table: Table) -> str:
    """HTML of a table with its title above."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in table.headings)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(word)}</td>" for word in row) + "</tr>" for row in table.rows)
    title = f"<p>{html.escape(table.title)}</p>" if table.title else ""
    return f'{title}<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'

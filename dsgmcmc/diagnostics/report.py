"""The report of a run: one HTML page with tables and figures, which needs no scripts or network.

The template ``report.html`` in this folder contains the style, the fixed text, and slots for the
contents. Matplotlib draws the figures as SVG.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import resources
from itertools import groupby
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np

from dsgmcmc._version import __version__
from dsgmcmc.diagnostics.convergence import RHAT_LIMIT, diagnose
from dsgmcmc.diagnostics.overview import (
    Overview,
    TextTable,
    convergence_table,
    overview,
    score_tables,
)
from dsgmcmc.diagnostics.scores import Pit, calibration, coverage
from dsgmcmc.diagnostics.summary import as_written
from dsgmcmc.errors import InputError, writing
from dsgmcmc.posterior.export import require
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.traces import labels, scalar_traces
from dsgmcmc.storage.files import write_file
from dsgmcmc.terminal import plain
from dsgmcmc.types import Float64

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    Panels = Sequence[Axes]

#: Metrics of a run that the figures show.
METRICS = ("iteration", "time_s", "rmse", "rmse_mean")
MAX_TRACES = 10
#: With these settings equal figures have equal bytes, and a dollar sign in a name does not start a
#: formula.
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "dsgmcmc",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 12,
    "legend.frameon": False,
}
#: Width and height of a panel of a figure, in inches.
PANEL = (5.2, 3.2)


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
    run = Run(path)
    if not out.parent.is_dir():
        raise InputError(f"the folder {out.parent} does not exist")
    page = _page(run, path.resolve().name)
    with writing(out):
        write_file(out, page)


def _page(run: Run, name: str) -> str:
    """Return the HTML of a run's report."""
    described = overview(run.directory)
    diagnosis = diagnose(run)
    lines = [*described.text.result, *described.text.end]
    template = resources.files("dsgmcmc.diagnostics").joinpath("report.html")
    return Template(template.read_text(encoding="utf-8")).substitute(
        name=_html(name),
        version=__version__,
        sizes=_sizes(run),
        command=_html(described.settings.get("started with", "")),
        verdict="".join(f"<li>{_html(line)}</li>" for line in lines),
        warnings=_advice([*described.text.all_warnings(), *diagnosis["warnings"]]),
        rhat_limit=RHAT_LIMIT,
        sections="\n".join(_sections(run, described, diagnosis)),
    )


def _sizes(run: Run) -> str:
    """Say how many users, items and ratings there are."""
    sizes = [f"{len(run.users):,} users", f"{len(run.items):,} items"]
    for fact, label in (("ratings", "training ratings"), ("test_ratings", "test ratings")):
        if fact in run.facts:
            sizes.append(f"{run.facts[fact]:,} {label}")
    return ", ".join(sizes)


def _advice(warnings: Sequence[str]) -> str:
    """Return warnings as paragraphs, without line breaks inside options."""
    paragraphs = "".join(f'<p class="advice">{_html(text)}</p>' for text in warnings)
    return re.sub(r"--[a-z][a-z-]*", r'<span class="whole">\g<0></span>', paragraphs)


# ---------------------------------------------------------------------- sections


def _sections(run: Run, described: Overview, diagnosis: Mapping[str, Any]) -> Iterator[str]:
    """Yield all sections of the page."""
    scored = calibration(run)
    with as_written(run.directory.summary_file):
        times = _phases(described.facts["summary"] or {})
    yield _section("Convergence", _table(convergence_table(diagnosis)), diagnosis["note"])
    yield _section("Traces", _traces(run))
    if scored:
        yield from _test_sections(run, scored)
    for table in described.tables:
        yield _section(table.title, _table(table._replace(title="")))
    yield _section("Time", _table(times))
    settings = [[setting, str(value)] for setting, value in described.settings.items()]
    configuration = _table(TextTable("", ("setting", "value"), settings))
    yield _section("Configuration", f'<div class="words">{configuration}</div>')


def _traces(run: Run) -> str:
    """Return the figure of the first traces of scalars; "" if there are none."""
    traces = scalar_traces(run)
    label_of = labels(run, traces)
    shown = {plain(label_of[name]): values for name, values in list(traces.items())[:MAX_TRACES]}
    if not shown:
        return ""
    return _figure(len(shown), partial(_draw_traces, chains=run.chains, shown=shown))


def _test_sections(run: Run, scored: Mapping[str, Any]) -> Iterator[str]:
    """Yield the sections about the test ratings."""
    tables = score_tables(scored)
    if not scored["pit"]:  # no rating is exact
        yield _section("Scores", _table(tables[0]))
        return
    test = predict_test(run).exact()
    predictive = test.predictive(run.config.law, run.levels)
    errors = partial(_draw_errors, metrics=_metrics(run))
    note = "Strong lines: all draws. Faint lines: current draw."
    yield _section("Error while sampling", _figure(2, errors), note)
    intervals = partial(
        _draw_calibration, transforms=test.transforms(predictive), counts=scored["pit"]
    )
    scores, groups = tables
    yield _section("Calibration", _figure(2, intervals) + _table(scores))
    yield _section("Errors by group", _table(groups))


def _phases(summary: Mapping[str, Any]) -> TextTable:
    """Return the seconds of the processes by phase.

    In exchange and reduce, a process mostly waits for messages.
    """
    rows = [
        [name, f"{entry['mean']:.2f}", f"{entry['max']:.2f}"]
        for name, entry in summary.get("phases", {}).items()
    ]
    memory = max(summary.get("peak_rss_bytes", [0])) / 1e6
    title = f"At most {memory:,.0f} MB per process"
    if not rows:
        title = "Known once a job has ended"
    return TextTable(title, ("phase", "mean seconds per process", "maximum"), rows)


def _metrics(run: Run) -> dict[int, dict[str, Float64]]:
    """Return the columns `METRICS` of ``metrics.jsonl`` by chain; null becomes NaN."""
    metrics = {}
    for chain, lines in groupby(run.directory.metrics(), lambda line: line["chain"]):
        rows = (tuple(_number(line.get(name)) for name in METRICS) for line in lines)
        columns = np.fromiter(rows, dtype=(np.float64, len(METRICS))).T
        metrics[chain] = dict(zip(METRICS, columns, strict=True))
    return metrics


def _number(value: float | None) -> float:
    return np.nan if value is None else value


# ---------------------------------------------------------------------- HTML


def _section(title: str, content: str, note: str = "") -> str:
    if note:
        content = f'<p class="sub">{_html(note)}</p>{content}'
    return f"<section><h2>{_html(title)}</h2>{content}</section>"


def _html(text: str) -> str:
    """Return the HTML of a text, with escapes for characters that would not be seen."""
    return html.escape(plain(text))


def _table(table: TextTable) -> str:
    """Return the HTML of a table with its title above."""
    head = "".join(f"<th>{_html(name)}</th>" for name in table.headings)
    body = ""
    for row in table.rows:
        cells = "".join(f"<td>{_html(word)}</td>" for word in row)
        body += f"<tr>{cells}</tr>"
    title = ""
    if table.title:
        title = f"<p>{_html(table.title)}</p>"
    return f'{title}<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


# ---------------------------------------------------------------------- figures


def _figure(count: int, fill: Callable[[Panels], None]) -> str:
    """HTML of a figure with `count` panels in rows of two; `fill` draws their contents.

    Raises
    ------
    InputError
        If Matplotlib is not installed.
    """
    require("a report", "matplotlib")
    import matplotlib as mpl
    from matplotlib.figure import Figure

    rows = -(-count // 2)
    text = io.StringIO()
    with mpl.rc_context({**mpl.rcParamsDefault, **STYLE}):
        figure = Figure(figsize=(2 * PANEL[0], rows * PANEL[1]), layout="constrained")
        panels = figure.subplots(rows, 2, squeeze=False).ravel()
        for unused in panels[count:]:
            unused.set_axis_off()
        fill(panels[:count].tolist())
        no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(text, format="svg", metadata=no_metadata)
    _, svg, content = text.getvalue().partition("<svg")  # without the declarations of a file
    return f"<figure>{svg}{content}</figure>"


def _draw_traces(panels: Panels, chains: Sequence[int], shown: Mapping[str, Float64]) -> None:
    """Draw traces of scalars, (chains, draws) each, by label."""
    for panel, (label, values) in zip(panels, shown.items(), strict=True):
        for chain, trace in zip(chains, values, strict=True):
            panel.plot(trace, linewidth=0.8, label=f"chain {chain}")
        panel.set(title=label, xlabel="draw")
    if len(chains) > 1:
        panels[0].legend()


def _draw_errors(panels: Panels, metrics: Mapping[int, Mapping[str, Float64]]) -> None:
    """Draw the RMSE of all draws together and of each draw, by iteration and by time."""
    axes = (("iteration", "iteration"), ("time_s", "seconds"))
    for panel, (axis, label) in zip(panels, axes, strict=True):
        for number, (chain, columns) in enumerate(metrics.items()):
            color = f"C{number % 10}"
            panel.plot(columns[axis], columns["rmse"], color=color, alpha=0.35, linewidth=0.8)
            panel.plot(columns[axis], columns["rmse_mean"], color=color, label=f"chain {chain}")
        panel.set(title=f"RMSE by {label}", xlabel=label, ylabel="RMSE on test ratings")
    if not metrics:
        return
    # the scale ignores the first draws, because their errors are much larger
    settled = []
    for columns in metrics.values():
        settled += [columns["rmse"][len(columns["rmse"]) // 20 :], columns["rmse_mean"]]
    low, high = np.nanquantile(np.concatenate(settled), (0, 0.98)) * (0.99, 1.01)
    for panel in panels:
        panel.legend()
        if low < high:  # False for NaN, the value before the first draw
            panel.set_ylim(low, high)


def _draw_calibration(panels: Panels, transforms: Pit, counts: Sequence[float]) -> None:
    """Draw coverage of central predictive intervals, and the probability integral transform."""
    covered, transformed = panels
    levels = np.linspace(0.02, 0.98, 49)
    inside = coverage(transforms, levels.tolist())
    covered.plot([0, 1], [0, 1], "--", color="gray", label="calibrated")
    covered.plot(levels, list(inside.values()), label="this run")
    covered.set(
        title="Test ratings in predictive intervals",
        xlabel="nominal coverage",
        ylabel="observed coverage",
    )
    density = np.asarray(counts) / max(sum(counts), 1) * len(counts)
    transformed.stairs(
        density, np.linspace(0, 1, len(counts) + 1), fill=True, alpha=0.6, label="this run"
    )
    transformed.axhline(1, linestyle="--", color="gray", label="calibrated")
    transformed.set(title="Probability integral transform")
    transformed.set(xlabel="predicted probability below the rating", ylabel="density")
    for panel in panels:
        panel.legend()

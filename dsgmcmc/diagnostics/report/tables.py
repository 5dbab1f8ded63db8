"""Sections of a report about times and settings, and tables."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Any

from dsgmcmc.diagnostics.report.charts import Bar, bar_chart
from dsgmcmc.diagnostics.report.content import Content
from dsgmcmc.diagnostics.verdict import in_units, started

PHASE_COLORS = ("#2563eb", "#0891b2", "#d97706", "#dc2626", "#9333ea", "#6b7280")


#: Glossary of a report.
WORDS = {
    "RMSE, MAE": "root of the mean squared error, and mean absolute error, of the posterior mean on held-out ratings",
    "biases only, mean only": "two baselines: a model of user and item biases, and the mean of the ratings",
    "tau": "precision of the noise: a rating has the standard deviation 1 / sqrt(tau) around its prediction",
    "inside their intervals": "fraction of the held-out ratings inside their central predictive intervals; of 90 % "
    "intervals about 90 %",
    "probability integral transform (PIT)": "predicted probability of a value below the rating: uniform if predictions "
    "are calibrated",
    "CRPS": "continuous ranked probability score of the predictive distributions, in units of the ratings; lower is "
    "better",
    "log density, log p of level": "mean logarithm of the predictive density of the held-out ratings, and of the "
    "predicted probability of their levels, such as stars; higher is better",
    "product of the priors' means, of their variances": "inner products over the dimensions of the users' and items' "
    "priors; they do not depend on the order or rotation of the dimensions, so that chains can be compared",
    "draw": "a state of a chain that is used in averages: one from every few iterations after the burn-in",
    "R-hat": "spread between chains relative to that within them: 1 if they agree; above 1.01 they have not mixed",
    "ESS": "effective sample size: how many independent draws the correlated draws are worth",
}


def phases_section(runs: list[Content]) -> str:
    """Wall time of every process by phase, and the share of communication."""
    charts, rows = [], []
    for run in runs:
        phases = run.summary.get("phases", {})
        entries = list(zip(phases, PHASE_COLORS * 4, strict=False))
        by_process = [entry.get("by_process", [entry["mean"]]) for entry in phases.values()]
        bars = []
        for p in range(min((len(column) for column in by_process), default=0)):
            parts = [(column[p], color) for column, (_, color) in zip(by_process, entries, strict=True)]
            total = sum(value for value, _ in parts)
            bars.append(Bar(f"process {p}", parts, f"{total:.1f} s"))
        of = f", {run.name}" if len(runs) > 1 else ""
        if bars:
            charts.append(bar_chart(f"Wall time by phase{of}", bars[:64], "seconds", entries))
        total = sum(entry["mean"] for entry in phases.values())
        waiting = sum(phases[name]["mean"] for name in ("exchange", "reduce") if name in phases)
        memory = max(run.summary.get("peak_rss_bytes") or [0])
        rows.append(
            (
                run.name,
                str(run.summary.get("processes", "")),
                f"{run.summary.get('seconds_sampling', 0):.1f}",
                in_units(run.summary.get("ratings_per_second", 0.0)),
                f"{waiting / total:.1%}" if total else "-",
                f"{memory / 1e6:,.0f}",
            )
        )
    heading = ("run", "processes", "seconds", "ratings/s", "exchange and reduction", "peak MB per process")
    return "".join(charts) + f'</div>{table(heading, rows)}<div class="charts">'


def configuration_section(runs: list[Content]) -> str:
    """Every setting of every run; marked where they differ."""
    columns = []
    for run in runs:
        flat: dict[str, Any] = {}
        for name, value in run.run.config.model_dump().items():
            flat |= {f"{name}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {name: value}
        flat |= {f"version of {k}": v for k, v in run.summary.get("versions", {}).items()}
        flat["data"] = run.run.facts.get("data", "")
        flat |= started(run.run.directory.jobs())
        columns.append(flat)
    rows = []
    for name in dict.fromkeys(name for flat in columns for name in flat):
        values = ["" if flat.get(name) is None else str(flat[name]) for flat in columns]
        if not any(values):
            continue
        mark = ' class="differs"' if len(set(values)) > 1 else ' class="text"'
        cells = "".join(f"<td{mark}>{html.escape(value)}</td>" for value in values)
        rows.append(f"<tr><td>{html.escape(name)}</td>{cells}</tr>")
    heading = "".join(f'<th style="text-align:left">{html.escape(run.name)}</th>' for run in runs)
    return f'<div class="scroll"><table><tr><th>setting</th>{heading}</tr>{"".join(rows)}</table></div>'


def words_section() -> str:
    """HTML of the glossary."""
    entries = "".join(f"<dt>{html.escape(word)}</dt><dd>{html.escape(text)}</dd>" for word, text in WORDS.items())
    return f"<dl>{entries}</dl>"


def whole(text: str) -> str:
    """HTML of a text without line breaks inside options and hyphenated words."""
    return re.sub(r"--[a-z][a-z-]*|\w+-\w+", r'<span class="whole">\g<0></span>', html.escape(text))


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """HTML of a table; the first column is text, the others are numbers."""
    head = "".join(f"<th>{whole(name)}</th>" for name in heading)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'

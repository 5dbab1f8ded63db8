"""The page: sections of a report, from numbers to HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtri

from dsgmcmc._version import __version__
from dsgmcmc.diagnostics.report.charts import PALETTE, Bar, Series, bar_chart, figure, histogram, line_chart
from dsgmcmc.diagnostics.report.content import Content, gather, names_of
from dsgmcmc.diagnostics.report.tables import configuration_section, phases_section, table
from dsgmcmc.posterior.draws import KINDS
from dsgmcmc.posterior.run import open_run
from dsgmcmc.storage.files import write_whole

TITLES = {
    "tau": "tau, the precision of the noise",
    "test_log_likelihood": "log likelihood of the test ratings",
    "mean_product": "product of the priors' means",
    "variance_product": "product of the priors' variances",
}


def write_report(paths: Sequence[Path], out: Path) -> None:
    """Write the report of some runs to one HTML file.

    Parameters
    ----------
    paths : sequence of Path
        Run directories; several are shown side by side.
    out : Path
        Appears whole or not at all.

    Raises
    ------
    InputError
        If a run cannot be read.
    """
    runs = [gather(open_run(path), name) for path, name in zip(paths, names_of(list(paths)), strict=True)]
    write_whole(out, render(runs))


def render(runs: list[Content]) -> str:
    """Return the HTML of a report."""
    style = resources.files("dsgmcmc.diagnostics.report").joinpath("style.css").read_text(encoding="utf-8")
    title = " and ".join(run.name for run in runs)
    sections = [
        *(_head(run) for run in runs),
        _section("Error while sampling", _errors(runs), "Strong: of the posterior mean. Faint: of the current draw."),
        _section("Traces", _traces(runs)),
        _section("Convergence", "".join(_convergence(run, len(runs) > 1) for run in runs), charts=False),
        _section("Calibration", _calibration(runs)),
        _section("Residuals", _residuals(runs)),
        _section("Where the error is", _groups(runs)),
        _section("Time and communication", phases_section(runs)),
        _section("Configuration", configuration_section(runs), charts=False),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>dsgmcmc: {html.escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f'<p class="sub">dsgmcmc {__version__}</p>\n' + "\n".join(sections) + "\n</main>\n</body>\n</html>\n"
    )


def _section(title: str, content: str, note: str = "", charts: bool = True) -> str:
    inner = f'<div class="charts">{content}</div>' if charts else content
    note = f'<p class="sub">{html.escape(note)}</p>' if note else ""
    return f"<section><h2>{html.escape(title)}</h2>{note}{inner}</section>"


def _head(content: Content) -> str:
    run, summary = content.run, content.summary
    config = run.config
    tiles = []
    if content.calibration:
        scores = content.calibration
        tiles += [
            (f"{scores['rmse']:.4f}", "RMSE of the posterior mean"),
            (f"{scores['coverage'][0.9]:.1%}", "of test ratings in 90 % intervals"),
            (f"{scores['crps']:.4f}", "CRPS"),
        ]
    tau = next((line for line in content.convergence["quantities"] if line["name"] == "tau"), None)
    if tau:
        tiles.append((f"{tau['mean']:.3f}", f"tau (sd {tau['sd']:.2g})"))
    tiles += [
        (f"{content.convergence['chains']} x {content.convergence['draws']}", "chains x draws"),
        (f"{summary.get('seconds_sampling', 0.0):.1f} s", f"sampling on {summary.get('processes', 1)} process(es)"),
        (f"{summary.get('ratings_per_second', 0.0) / 1e6:.0f} M", "ratings a second"),
    ]
    shown = "".join(f'<div class="tile"><b>{value}</b><span>{label}</span></div>' for value, label in tiles)
    advice = "".join(f'<p class="advice">{html.escape(text)}</p>' for text in content.advice)
    facts = f"{config.sampler.name}, rank {config.rank}, {len(run.users):,} users, {len(run.items):,} items"
    return (
        f'<header><h1>{html.escape(content.name)}</h1><p class="sub">{facts}</p>'
        f'<div class="tiles">{shown}</div>{advice}</header>'
    )


def _colors(runs: list[Content]) -> list[list[str]]:
    """Colour of every chain of every run: of one run by chain, of several by run."""
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
    charts = []
    for name in dict.fromkeys(name for run in runs for name in run.traces):
        series = []
        for run, colors in zip(runs, _colors(runs), strict=True):
            for chain, (values, color) in enumerate(zip(run.traces.get(name, []), colors, strict=False)):
                number = run.run.chains[chain]
                series.append(Series(_label(runs, run, number), np.arange(len(values)), values, color))
        charts.append(line_chart(TITLES.get(name, name.replace("_", " ")), series, "draw", name.replace("_", " ")))
    return "".join(charts)


def _convergence(content: Content, several: bool) -> str:
    found = content.convergence
    rows = [
        (line["name"].replace("_", " "), f"{line['mean']:.5g}", f"{line['sd']:.3g}", *_three(line))
        for line in found["quantities"]
    ]
    many = found["predictions"]
    for label, high, low in (("median", np.median, np.median), ("worst", np.max, np.min)):
        if many["pairs"]:
            worst = {
                key: None if many[key] is None else float(reduce(many[key]))
                for key, reduce in (("rhat", high), ("ess_bulk", low), ("ess_tail", low))
            }
            rows.append((f"{label} of {many['pairs']} predictions", "", "", *_three(worst)))
    title = f"<p><b>{html.escape(content.name)}</b></p>" if several else ""
    heading = ("quantity", "mean", "sd", "R-hat", "ESS bulk", "ESS tail")
    priors = _priors(content)
    return f'{title}{table(heading, rows)}<p class="sub">{html.escape(found["note"])}</p>{priors}'


def _three(line: dict[str, Any]) -> tuple[str, str, str]:
    texts = []
    for name, digits in (("rhat", 3), ("ess_bulk", 0), ("ess_tail", 0)):
        texts.append("-" if line[name] is None else f"{line[name]:,.{digits}f}")
    return texts[0], texts[1], texts[2]


def _priors(content: Content) -> str:
    """Prior sds of the dimensions, which say how many of them are in use; sorted, because their order means nothing."""
    run, charts = content.run, []
    k = run.config.rank
    for kind in KINDS:
        series = []
        for chain, trace, color in zip(run.chains, run.traces, PALETTE * 8, strict=False):
            sd = np.sort(1 / np.sqrt(trace[f"{kind}.precision"][:, :k].mean(axis=0)))[::-1]
            series.append(Series(f"chain {chain}", np.arange(1, k + 1), sd, color))
        title = f"Prior sd of the {kind} factors, sorted"
        charts.append(
            line_chart(title, series, "dimension", "sd", (0.0, max(float(np.max(s.y)) for s in series) * 1.1))
        )
    return f'<div class="charts">{"".join(charts)}</div>'


def _calibration(runs: list[Content]) -> str:
    levels = np.linspace(0.02, 0.98, 49)
    series = [Series("calibrated", [0, 1], [0, 1], "#9ca3af", "dashed")]
    rows = []
    charts = []
    for run, color in zip(runs, PALETTE * 8, strict=False):
        if run.calibration is None:
            continue
        inside = [float(np.mean(np.abs(run.z) <= ndtri((1 + level) / 2))) for level in levels]
        series.append(Series(run.name, levels, inside, color))
        pit = run.calibration["pit"]
        share = np.array(pit) / max(sum(pit), 1) * len(pit)
        title = "Probability integral transform" + (f", {run.name}" if len(runs) > 1 else "")
        charts.append(
            histogram(
                title,
                share.tolist(),
                np.linspace(0, 1, len(pit) + 1).tolist(),
                "probability below the rating",
                "density",
                lambda x: np.ones_like(x),
                "calibrated",
            )
        )
        scores = run.calibration
        rows.append(
            (
                run.name,
                f"{scores['rmse']:.4f}",
                f"{scores['mae']:.4f}",
                f"{scores['crps']:.4f}",
                f"{scores['log_predictive_density']:.4f}",
                f"{scores['predictive_sd']:.4f}",
                *(f"{scores['coverage'][level]:.1%}" for level in (0.5, 0.8, 0.9, 0.95)),
            )
        )
    if not rows:
        return figure("Calibration", '<p class="none">no test ratings</p>')
    chart = line_chart(
        "Test ratings inside central predictive intervals", series, "nominal", "observed", (0.0, 1.0), (0.0, 1.0)
    )
    heading = ("run", "RMSE", "MAE", "CRPS", "log density", "predictive sd", "50 %", "80 %", "90 %", "95 %")
    return chart + "".join(charts) + f'</div>{table(heading, rows)}<div class="charts">'


def _residuals(runs: list[Content]) -> str:
    charts = []
    for run in runs:
        if not len(run.z):
            continue
        edges = np.linspace(-4, 4, 41)
        density = np.histogram(np.clip(run.z, -4, 4), edges, density=True)[0]
        of = f", {run.name}" if len(runs) > 1 else ""
        charts.append(
            histogram(
                f"Standardised residuals of test ratings{of}",
                density.tolist(),
                edges.tolist(),
                "(rating - mean) / sd",
                "density",
                lambda x: np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi),
                "normal",
            )
        )
        test = run.run.test
        order = np.array_split(np.argsort(test.mean), min(20, len(test.mean)))
        x = [float(test.mean[part].mean()) for part in order]
        y = [float(test.rating[part].mean()) for part in order]
        lines = [
            Series("observed", x, y, PALETTE[0], "points"),
            Series("as predicted", [x[0], x[-1]], [x[0], x[-1]], PALETTE[1], "dashed"),
        ]
        charts.append(line_chart(f"Mean rating by prediction{of}", lines, "predicted", "observed mean"))
    return "".join(charts) or figure("Residuals", '<p class="none">no test ratings</p>')


def _groups(runs: list[Content]) -> str:
    charts = []
    for name, what in (("by_activity", "training ratings of the user"), ("by_popularity", "of the item")):
        bars = []
        for run, color in zip(runs, PALETTE * 8, strict=False):
            for group in (run.calibration or {}).get(name, []):
                label = f"{group['from']:,} to {group['to']:,}"
                bars.append(Bar(label, [(group["rmse"], color)], f"{group['rmse']:.3f}"))
        title = f"RMSE by {what}" if name == "by_activity" else "RMSE by training ratings of the item"
        entries = [(run.name, color) for run, color in zip(runs, PALETTE * 8, strict=False)] if len(runs) > 1 else []
        charts.append(bar_chart(title, bars, "RMSE", entries) if bars else figure(title, '<p class="none">none</p>'))
    return "".join(charts)

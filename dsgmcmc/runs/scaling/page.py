"""The page of a study: speed and efficiency by the number of processes, seen and said, phases, memory, checkpoints."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from typing import Any

from dsgmcmc.diagnostics.report.charts import PALETTE, Bar, Series, bar_chart, line_chart
from dsgmcmc.diagnostics.report.document import document, section, tiles
from dsgmcmc.diagnostics.report.tables import PHASE_COLORS, table
from dsgmcmc.diagnostics.verdict import in_units
from dsgmcmc.runs.scaling.layouts import ABOUT, SERIES

SEEN, SAID, IDEAL = PALETTE[0], PALETTE[1], "#9ca3af"
COLUMNS = (
    "processes",
    "nodes x each",
    "ratings",
    "B",
    "a sweep, ms",
    "quickest, slowest",
    "processor",
    "said",
    "said / seen",
    "efficiency",
    "said",
    "MB sent",
    "said",
    "messages",
    "said",
    "MB a process",
    "said",
    "reading, s",
    "checkpoint, s",
    "said",
    "resuming, s",
)
BUSY = 1.25  # times the seconds of the processor: from here on a machine has other work

Line = dict[str, Any]


def render(found: Line) -> str:
    """Return the HTML of the results of a study, as they stand in its JSON."""
    lines = {name: [line for line in found["measured"] if name in line["series"]] for name in SERIES}
    sections = [_head(found)]
    for name, about in ABOUT.items():
        if lines[name]:
            sections.append(section(f"{name.capitalize()} scaling", _charts(lines[name]), about.capitalize() + "."))
            sections.append(section("In numbers", table(COLUMNS, list(_rows(lines[name]))), charts=False))
    if found["left_out"]:
        rows = [(str(line["processes"]), f"{line['ratings']:,}", line["left_out"]) for line in found["left_out"]]
        sections.append(section("Left out", table(("processes", "ratings", "why"), rows), charts=False))
    sections.append(section("What it was measured on", _about(found), charts=False))
    return document("scaling", sections)


def _head(found: Line) -> str:
    settings, data = found["settings"], found["data"]
    kind = "synthetic ratings" if data["synthetic"] else "ratings"
    facts = (
        f"{found['nodes']} node(s) with {found['processes_per_node']} process(es). {settings['sampler']}, rank "
        f"{settings['rank']}; {data['ratings']:,} {kind}, {data['rows']:,} x {data['columns']:,}. {found['date']}."
    )
    crowded = found["processes_per_node"] > found["cores_per_node"]
    slowed = max((_slowed(line) for line in found["measured"]), default=0.0)
    advice = '<p class="advice">More processes than cores: they wait for each other.</p>' if crowded else ""
    if slowed > BUSY:
        advice += (
            f'<p class="advice">Sweeps took up to {slowed:.1f} times their seconds of the processor: other work had '
            "it. Speeds and efficiencies are not those of this machine.</p>"
        )
    shown = []
    if found["measured"]:
        best = max(found["measured"], key=rate)
        shown = [(in_units(rate(best)), f"ratings per second at most, on {best['processes']} process(es)")]
    title = f"Scaling on {html.escape(found['machine']['cpu'])}"
    return f'<header><h1>{title}</h1><p class="sub">{html.escape(facts)}</p>{tiles(shown)}{advice}</header>'


def _slowed(line: Line) -> float:
    """Seconds of a sweep over those of the processor; processes that wait for each other use it, too."""
    return float(line["seen"]["seconds_per_sweep"] / line["seen"]["processor_seconds"])


def rate(line: Line, which: str = "seen") -> float:
    """Ratings per second."""
    return float(line["ratings"] / line[which]["seconds_per_sweep"])


def efficiency(lines: list[Line], line: Line, which: str = "seen") -> float:
    """Ratings per second and process, relative to those of the first line of a series."""
    first = lines[0]
    return float(rate(line, which) / line["processes"] / (rate(first, which) / first["processes"]))


def _charts(lines: list[Line]) -> str:
    processes = [line["processes"] for line in lines]
    alone = rate(lines[0]) / processes[0]
    style = {"seen": ("points", SEEN), "said": ("line", SAID)}

    def pair(figure: Callable[[Line, str], float]) -> list[Series]:
        return [
            Series(name, processes, [figure(line, name) for line in lines], color, kind)
            for name, (kind, color) in style.items()
        ]

    ideal = Series("the first, times the processes", processes, [alone * p / 1e6 for p in processes], IDEAL, "dashed")
    charts = [
        line_chart(
            "Speed", [ideal, *pair(lambda line, name: rate(line, name) / 1e6)], "processes", "million ratings a second"
        ),
        line_chart(
            "Efficiency",
            pair(lambda line, name: 100 * efficiency(lines, line, name)),
            "processes",
            "%",
            (0.0, 110.0),
        ),
        line_chart(
            "Memory of the largest process",
            pair(lambda line, name: line[name]["memory_per_process"] / 1e6),
            "processes",
            "MB",
        ),
    ]
    names = list(dict.fromkeys(name for line in lines for name in line["seen"]["phases"]))
    colors = dict(zip(names, PHASE_COLORS, strict=False))
    bars = [
        Bar(
            f"{line['processes']} ({line['nodes']} x {line['each']})",
            [(1e3 * phase["mean"], colors[name]) for name, phase in line["seen"]["phases"].items()],
            f"{1e3 * line['seen']['seconds_per_sweep']:.3g} ms",
        )
        for line in lines
    ]
    charts.append(bar_chart("A sweep by phase, mean of all processes", bars, "milliseconds", list(colors.items())))
    return "".join(charts)


def _rows(lines: list[Line]) -> Iterator[tuple[str, ...]]:
    for line in lines:
        seen, said = line["seen"], line["said"]
        yield (
            str(line["processes"]),
            f"{line['nodes']} x {line['each']}",
            f"{line['ratings']:,}",
            str(said["grid"]),
            f"{1e3 * seen['seconds_per_sweep']:.3g}",
            f"{1e3 * seen['fastest']:.3g}, {1e3 * seen['slowest']:.3g}",
            f"{1e3 * seen['processor_seconds']:.3g}",
            f"{1e3 * said['seconds_per_sweep']:.3g}",
            f"{said['seconds_per_sweep'] / seen['seconds_per_sweep']:.2f}",
            f"{efficiency(lines, line):.0%}",
            f"{efficiency(lines, line, 'said'):.0%}",
            f"{seen['sent_per_sweep'] / 1e6:.3g}",
            f"{said['sent_per_sweep'] / 1e6:.3g}",
            f"{seen['messages_per_sweep']:.4g}",
            f"{said['messages_per_sweep']:.4g}",
            f"{seen['memory_per_process'] / 1e6:,.0f}",
            f"{said['memory_per_process'] / 1e6:,.0f}",
            f"{seen['reading_seconds']:.2f}",
            f"{seen['checkpoint_seconds']:.2f}",
            f"{said['checkpoint_seconds']:.2f}",
            f"{seen['resume_seconds']:.2f}",
        )


def _about(found: Line) -> str:
    machine, link = found["machine"], found["link"]
    rows = [
        ("cores of a node", str(found["cores_per_node"])),
        ("memory of a node", f"{found['memory_per_node'] / 1e9:.3g} GB"),
        ("within a node", f"{machine['exchange']['bandwidth'] / 1e9:.3g} GB/s"),
        ("between nodes", "one node" if link is None else f"{link['bandwidth'] / 1e9:.3g} GB/s"),
        ("disk", f"{machine['disk']['bandwidth'] / 1e6:.4g} MB/s"),
        *((name, value) for name, value in found["software"].items()),
        ("time", f"{found['seconds'] / 60:.1f} of {found['limit_seconds'] / 60:.0f} minutes"),
    ]
    return table(("", ""), rows)

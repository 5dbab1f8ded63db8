"""The report of a run: one HTML page with tables and figures, which needs no scripts or network.

The template ``report.html`` in this folder contains the style, the fixed text, and slots for the
contents. Matplotlib draws the figures as SVG.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from dsgmcmc._version import __version__
from dsgmcmc.diagnostics.convergence import RHAT_LIMIT, diagnose
from dsgmcmc.diagnostics.overview import (
    Overview,
    TextTable,
    convergence_table,
    overview,
    score_tables,
)
from dsgmcmc.diagnostics.scores import calibration
from dsgmcmc.diagnostics.summary import as_written
from dsgmcmc.errors import InputError, writing
from dsgmcmc.plots.biplot import biplot, telling_feature
from dsgmcmc.plots.effects import effect_sides, effects
from dsgmcmc.plots.figures import column_of, svg
from dsgmcmc.plots.heldout import (
    draw_calibration,
    error_histogram,
    largest_misses,
    level_shares,
    observed_and_predicted,
)
from dsgmcmc.plots.item_fit import (
    characteristic_curves,
    item_table,
    residual_histogram,
    residual_table,
)
from dsgmcmc.plots.items import has_items, information, wright_map
from dsgmcmc.plots.known import imputed_and_observed, observed_map
from dsgmcmc.plots.noise import noise, noise_sides
from dsgmcmc.plots.ranking import best, can_be_ranked
from dsgmcmc.plots.sampling import draw_errors, draw_traces, metrics_of
from dsgmcmc.posterior.draws import ENTITIES
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.rated import read_rated
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.traces import labels, scalar_traces
from dsgmcmc.storage.files import write_file
from dsgmcmc.terminal import plain

if TYPE_CHECKING:
    from dsgmcmc.plots.figures import Panels

MAX_TRACES = 10
#: Most training ratings that are read for a picture.
RATINGS = 20_000_000


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
    scored = calibration(run)
    lines = [*described.text.result, *described.text.end]
    template = resources.files("dsgmcmc.plots").joinpath("report.html")
    return Template(template.read_text(encoding="utf-8")).substitute(
        name=_html(name),
        version=__version__,
        sizes=_sizes(run),
        command=_html(described.about.get("started with", "")),
        verdict="".join(f"<li>{_html(line)}</li>" for line in lines),
        warnings=_advice([*described.text.all_warnings(), *diagnosis["warnings"]]),
        rhat_limit=RHAT_LIMIT,
        results="\n".join(_results(run, described, scored)),
        sampling="\n".join(_sampling(run, described, diagnosis, scored)),
    )


def _sizes(run: Run) -> str:
    """Say how many users, items and ratings there are, as the columns of the data are called."""
    sizes = []
    for entity in ENTITIES:
        number = len(run.vocabulary(entity))
        sizes.append(f"{number:,} {_html(column_of(run, entity))}")
    for fact, label in (("ratings", "training ratings"), ("test_ratings", "test ratings")):
        if fact in run.facts:
            sizes.append(f"{run.facts[fact]:,} {label}")
    return ", ".join(sizes)


def _advice(warnings: Sequence[str]) -> str:
    """Return warnings as paragraphs, without line breaks inside options."""
    paragraphs = "".join(f'<p class="advice">{_html(text)}</p>' for text in warnings)
    return re.sub(r"--[a-z][a-z-]*", r'<span class="whole">\g<0></span>', paragraphs)


# ---------------------------------------------------------------------- results


def _results(run: Run, described: Overview, scored: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the sections about the data and what was found in them."""
    if run.draws and run.facts.get("ratings", 0) <= RATINGS:
        yield from _data_sections(run)
    if scored:
        yield from _test_sections(run, scored)
    if run.draws:
        yield from _row_sections(run)
    for table in described.tables:
        yield _section(table.title, _table(table._replace(title="")))


def _data_sections(run: Run) -> Iterator[str]:
    """Yield what was observed, and what is imputed; a sentence if the ratings file is not there."""
    draw: list[Callable[..., Any]] = [observed_map]
    note = "Left: dark squares have many training ratings, white ones none."
    if run.config.law.can_be_evaluated:
        draw.append(imputed_and_observed)
        note += (
            " Right: training ratings beside one value drawn for each of some missing cells. The"
            " two need not agree: cells may be missing because of their values."
        )
    try:
        rated = read_rated(run)
        pictures = _pictures(run, [partial(function, rated=rated) for function in draw])
        yield _section("What was observed", pictures, note)
    except InputError as error:
        yield _section("What was observed", f"<p>Not shown: {_html(str(error))}</p>")


def _row_sections(run: Run) -> Iterator[str]:
    """Yield the sections about rows and columns: ranks, factors, items of a test, noise."""
    if can_be_ranked(run):
        note = (
            "Averages of expected values over all cells of a row or a column, observed or not, with"
            " 90 % intervals, and the probability of being the best; lower values may be the better"
            " ones. Intervals of ranks, and all rows: dsgmcmc export --ranking."
        )
        draw = [partial(best, kind="user"), partial(best, kind="item")]
        yield _section("Ranking", _pictures(run, draw), note)
    if run.config.rank >= 2:
        note = (
            "Points are near each other if they differ in the same way from the average; arrows"
            " point to where values of that column are high. The plane has the first two factors"
            " alone, without biases; other factors do not show. Crosses: one sd to each side."
        )
        draw = [partial(biplot, feature=telling_feature(run))]
        picture = svg(1, lambda panels: _each(run, draw, panels), height=1.6, columns=1)
        yield _section("Rows and columns in one plane", picture, note)
    with_features = effect_sides(run)
    if with_features:
        note = (
            "How much higher ratings are on average: with a number that is one standard deviation"
            " larger, or in a category; 90 % intervals. Features that go together share an effect."
        )
        draw = [partial(effects, entity=side) for side in with_features]
        yield _section("Effects of features", _pictures(run, draw), note)
    if has_items(run):
        note = (
            "Where people stand and where items tell most. Standard errors are those of a person"
            " who answered every item; item by item: dsgmcmc export --items."
        )
        yield _section("People and items", _pictures(run, [wright_map, information]), note)
        yield from _fit_sections(run)
    sides = noise_sides(run)
    if sides:
        note = (
            "The standard deviation of a new value around its expectation, two sds to each side. A"
            " row that the factors cannot describe is noisy, too."
        )
        yield _section(
            "Noise", _pictures(run, [partial(noise, entity=side) for side in sides]), note
        )


def _fit_sections(run: Run) -> Iterator[str]:
    """Yield how answers fit their items; a sentence if the ratings file is needed and not there."""
    note = (
        "Where infit and outfit are above 1, answers vary more than the model says; where p is low,"
        " this is no chance. Residuals of two items should not go together: a pair far to the right"
        " shares more than the ability, such as its wording. Many such pairs: a second dimension."
    )
    try:
        pictures = _pictures(run, [characteristic_curves, residual_histogram])
        tables = _table(item_table(run)) + _table(residual_table(run))
        yield _section("Fit of items", pictures + tables, note)
    except InputError as error:
        yield _section("Fit of items", f"<p>Not shown: {_html(str(error))}</p>")


def _test_sections(run: Run, scored: Mapping[str, Any]) -> Iterator[str]:
    """Yield the sections about the test ratings."""
    tables = score_tables(scored, run.columns)
    if not scored["pit"]:  # no rating is exact
        yield _section("Scores", _table(tables[0]))
        return
    scored_ratings = predict_test(run).scored(run.config.law, run.levels)
    note = (
        "Ratings that were held out, with the intervals that should contain nine in ten of them."
        " Points far from the line are named below: slips of the data, or of the model."
    )
    beside = error_histogram
    if run.levels is not None:
        beside = level_shares
        note = "Ratings that were held out, and the farthest from their predictions by name."
    pictures = _pictures(run, [observed_and_predicted, beside])
    yield _section("Observed and predicted", pictures + _table(largest_misses(run)), note)
    intervals = partial(
        draw_calibration, transforms=scored_ratings.transforms(), counts=scored["pit"]
    )
    scores, groups = tables
    yield _section("Calibration", svg(2, intervals) + _table(scores))
    yield _section("Errors by group", _table(groups))


def _pictures(run: Run, draw: Sequence[Callable[..., Any]]) -> str:
    """Return a figure with a panel for each function of a run and axes."""
    return svg(len(draw), lambda panels: _each(run, draw, panels))


def _each(run: Run, draw: Sequence[Callable[..., Any]], panels: Panels) -> None:
    """Draw on each of the panels by one function of a run and axes."""
    for function, panel in zip(draw, panels, strict=True):
        function(run, axes=panel)


# ---------------------------------------------------------------------- sampling


def _sampling(
    run: Run, described: Overview, diagnosis: Mapping[str, Any], scored: Mapping[str, Any] | None
) -> Iterator[str]:
    """Yield the sections about the sampler."""
    with as_written(run.directory.summary_file):
        times = _phases(described.facts["summary"] or {})
    yield _section("Convergence", _table(convergence_table(diagnosis)), diagnosis["note"])
    yield _section("Traces", _traces(run))
    if scored and scored["pit"]:
        note = "Strong lines: all draws. Faint lines: current draw."
        errors = partial(draw_errors, metrics=metrics_of(run))
        yield _section("Error while sampling", svg(2, errors), note)
    yield _section("Time", _table(times))
    labelled = {**described.settings, **described.about}
    settings = [[setting, str(value)] for setting, value in labelled.items()]
    configuration = _table(TextTable("", ("setting", "value"), settings))
    yield _section("Configuration", f'<div class="words">{configuration}</div>')


def _traces(run: Run) -> str:
    """Return the figure of the first traces of scalars; "" if there are none."""
    traces = scalar_traces(run)
    label_of = labels(run, traces)
    shown = {plain(label_of[name]): values for name, values in list(traces.items())[:MAX_TRACES]}
    if not shown:
        return ""
    return svg(len(shown), partial(draw_traces, chains=run.chains, shown=shown))


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

"""Commands that describe or check a ratings file, a run or the machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsgmcmc.cli import JsonOption, RunArgument
from dsgmcmc.errors import Exit, InputError, retry_if_gone
from dsgmcmc.terminal import console, pass_on, say, say_json, show_facts, show_table

if TYPE_CHECKING:
    from dsgmcmc.diagnostics.overview import TextTable

#: Seconds between two looks at a run that is watched.
WATCHED = 5.0

PathArgument = Annotated[
    Path, typer.Argument(metavar="PATH", help="Ratings file or run directory.")
]


def _recognise(path: Path) -> str:
    """Return what a path is, ``ratings file`` or ``run``; raise InputError for any other path."""
    if path.is_file():
        return "ratings file"
    if (path / "run.toml").exists():
        return "run"
    problem = "has no run.toml" if path.is_dir() else "does not exist"
    raise InputError(f"{path} {problem}: expected a ratings file or a run directory")


@retry_if_gone
def info(
    path: PathArgument,
    diagnostics: Annotated[
        bool,
        typer.Option(
            "--diagnostics", help="Print R-hat, effective sample sizes and calibration of a run."
        ),
    ] = False,
    settings: Annotated[
        bool, typer.Option("--settings", help="Print the settings of a run and its versions, too.")
    ] = False,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Print it again every few seconds until the job has ended."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Describe a ratings file or a run; for a run, also assess its sampling and its predictions.

    \b
    Examples:
      dsgmcmc info ml-1m.h5
      dsgmcmc info run --json
      dsgmcmc info run --diagnostics
      dsgmcmc info run --watch
    """
    recognised = _recognise(path)
    if recognised == "ratings file":
        if diagnostics or settings or watch:
            raise InputError(
                f"{path} is a ratings file: --diagnostics, --settings and --watch are for runs"
            )
        facts, labelled = _describe_ratings(path)
        if as_json:
            say_json({"kind": recognised, **facts})
            return
        say(f"{path}: {recognised}", "")
        _show_facts(labelled)
        return
    if watch:
        if as_json or diagnostics:
            raise InputError("--watch prints for people: leave out --json and --diagnostics")
        _watch(path, settings)
    elif diagnostics:
        _diagnose(path, as_json)
    elif as_json:
        from dsgmcmc.diagnostics.overview import overview
        from dsgmcmc.storage.rundir import RunDirectory

        say_json({"kind": recognised, **overview(RunDirectory(path)).facts})
    else:
        _describe_run(path, settings)


def _describe_run(path: Path, settings: bool) -> bool:
    """Print the facts about a run; return whether a job is sampling it."""
    from dsgmcmc.diagnostics.overview import overview
    from dsgmcmc.storage.rundir import RunDirectory

    described = overview(RunDirectory(path))
    say(f"{path}: run", *described.text.lines(), "")
    _show_facts(described.about)
    if settings:
        say("")
        _show_facts(described.settings)
    _show_tables(described.tables)
    under_way = described.facts["progress"]
    return under_way is not None and under_way["running"]


def _watch(path: Path, settings: bool) -> None:
    """Print the facts about a run again and again, on a terminal in place, until its job ends."""
    while _describe_run(path, settings):
        time.sleep(WATCHED)
        console().clear()  # a terminal only


def _show_facts(labelled: Mapping[str, Any]) -> None:
    show_facts({name: _format_fact(value) for name, value in labelled.items()})


def _show_tables(tables: Iterable[TextTable]) -> None:
    for title, headings, rows in tables:
        say("")
        show_table(headings, rows, title, left=headings[:1])


def _diagnose(path: Path, as_json: bool) -> None:
    """Print the diagnostics and the calibration of a run."""
    from dsgmcmc.diagnostics.convergence import diagnose
    from dsgmcmc.diagnostics.overview import convergence_table, score_tables
    from dsgmcmc.diagnostics.scores import calibration
    from dsgmcmc.posterior.run import Run

    run = Run(path)
    convergence = diagnose(run)
    scores = calibration(run)
    if as_json:
        say_json({"convergence": convergence, "calibration": scores})
        return
    say(f"{path}: run")
    _show_tables([convergence_table(convergence), *score_tables(scores, run.columns)])
    say("", *(f"warning: {warning}" for warning in convergence["warnings"]), convergence["note"])


def _describe_ratings(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the facts about a ratings file twice: by names for scripts, by labels for people.

    The labels are those of `prepare`.
    """
    from dsgmcmc.ratings.description import describe_ratings
    from dsgmcmc.ratings.file import Ratings
    from dsgmcmc.ratings.format import SIDES

    names = (
        "n_rows",
        "n_cols",
        "nnz",
        "nnz_test",
        "replicates",
        "mean_weight",
        "mean",
        "minimum",
        "maximum",
        "resolution",
        "seed",
        "source",
        "digest",
    )
    with Ratings(path) as ratings:
        directions = ratings.open_directions
        facts: dict[str, Any] = {
            **{name: getattr(ratings, name) for name in names},
            "transposed": ratings.orientation.transposed,
            "untrained": ratings.untrained,
            "bounded": ratings.count_bounded("train"),
            "bounded_test": ratings.count_bounded("test"),
            "item_levels": ratings.item_levels,
            "reading": ratings.reading.stored(),
            "directions": None,
        }
        if directions is not None:
            facts["directions"] = list(directions.columns)
        labelled: dict[str, Any] = {**describe_ratings(ratings)}
        if ratings.mean_weight is not None:
            labelled["weights"] = f"mean {ratings.mean_weight:.5g}"
        for side, stored in ratings.features.items():
            entity = ratings.entities[SIDES.index(side)]
            groups = {group: stored.groups.count(group) for group in dict.fromkeys(stored.groups)}
            facts[f"{entity}_features"] = groups
            labelled[f"{entity} features"] = groups
        described = ratings.reading.described()
    if described:
        labelled["read with"] = ", ".join(described)
    labelled |= {"made from": facts["source"], "seed": facts["seed"], "digest": facts["digest"]}
    return facts, labelled


def _format_fact(value: object) -> str | list[str]:
    """Format a fact as one line, or a dict as one line per entry."""
    if isinstance(value, dict):
        return [f"{name}: {item}" for name, item in value.items()]
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


@retry_if_gone
def report(
    run: RunArgument,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE.html",
            help="Page to write.",
            show_default="RUN/report.html",
        ),
    ] = None,
) -> None:
    """Write one HTML file that shows how well a run sampled, and how well it predicts.

    It has convergence, traces, errors, calibration, residuals, times and configuration. The file is
    self-contained and needs no network. Its figures need Matplotlib: `pip install matplotlib`.

    \b
    Examples:
      dsgmcmc report run
      dsgmcmc report run -o page.html
    """
    from dsgmcmc.plots.report import write_report

    page = run / "report.html" if out is None else out
    write_report(run, page)
    pass_on([os.fsencode(f"{page}\n")])


@retry_if_gone
def verify(path: PathArgument, as_json: JsonOption = False) -> None:
    """Check the files of a run, or a ratings file, and print the digest of the content.

    The digest of a run covers its newest checkpoint, its saved draws and its posterior. It depends
    neither on the number of processes nor on how often the run was resumed.

    \b
    Examples:
      dsgmcmc verify run
      dsgmcmc verify run --json | jq -r .digest
    """
    recognised = _recognise(path)
    if recognised == "ratings file":
        from dsgmcmc.ratings.file import Ratings

        with Ratings(path) as ratings:
            ratings.verify()
            digest = ratings.digest
    else:
        from dsgmcmc.diagnostics.overview import audit
        from dsgmcmc.storage.rundir import RunDirectory

        digest = audit(RunDirectory(path))
    if as_json:
        facts = {"path": str(path), "kind": recognised, "valid": True, "digest": digest}
        say_json(facts, indent=None)
    else:
        say(f"{path}: a valid {recognised}, digest {digest}")


def doctor(
    launch: Annotated[
        bool,
        typer.Option(
            "--launch/--no-launch",
            help="Test MPI by starting processes, which login nodes may forbid.",
        ),
    ] = True,
    compile_: Annotated[
        bool,
        typer.Option(
            "--compile",
            help="Compile the usual kernels now, for this processor: minutes, once.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check that this machine can sample, and say how to fix any problem.

    The exit status is 1 if sampling cannot work. On a login node, run `dsgmcmc doctor --no-launch`.
    Under a launcher, as in `srun --mpi=pmix -n 2 dsgmcmc doctor`, its processes are tried.
    """
    from dsgmcmc.doctor import compile_kernels, examine
    from dsgmcmc.parallel.launcher import is_first

    first = is_first()
    checks = examine(launch)
    if compile_ and first:
        checks = chain(checks, compile_kernels())
    findings = []
    for finding in checks:
        findings.append(finding)
        if first and not as_json:
            say(f"{finding.level:8} {finding.name:15} {finding.found}")
            if finding.advice:
                say(f"{'':24} -> {finding.advice}")
    if not first:
        return
    problems = sum(finding.level == "error" for finding in findings)
    if as_json:
        listed = [finding._asdict() for finding in findings]
        say_json({"can_sample": not problems, "findings": listed})
    elif problems:
        say(f"Sampling cannot work here: {problems} error(s).")
    else:
        say("Sampling can work here.")
    raise typer.Exit(Exit.FAILURE if problems else 0)

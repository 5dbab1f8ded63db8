"""Commands that describe or check a ratings file or a run (``info``, ``report``, ``verify``), or
check the machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsgmcmc.cli import JsonOption, RunArgument
from dsgmcmc.errors import Exit, InputError, retry_if_gone
from dsgmcmc.terminal import pass_on, say, say_json, show_facts, show_table

if TYPE_CHECKING:
    from dsgmcmc.diagnostics.overview import TextTable

PathArgument = Annotated[
    Path, typer.Argument(metavar="PATH", help="Ratings file or run directory.")
]


def _kind_of(path: Path) -> str:
    """Return the kind of a path, ``ratings file`` or ``run``; raise InputError for any other path."""
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
    as_json: JsonOption = False,
) -> None:
    """Describe a ratings file or a run; for a run, also assess its sampling and its predictions.

    \b
    Examples:
      dsgmcmc info ml-1m.h5
      dsgmcmc info run --json
      dsgmcmc info run --diagnostics
    """
    if diagnostics:
        _diagnose(path, as_json)
        return
    kind = _kind_of(path)
    if kind == "run":
        from dsgmcmc.diagnostics.overview import overview
        from dsgmcmc.storage.rundir import RunDirectory

        facts, verdict, labelled, tables = overview(RunDirectory(path))
    else:
        (facts, labelled), verdict, tables = _describe_ratings(path), None, []
    if as_json:
        say_json({"kind": kind, **facts})
        return
    say(f"{path}: {kind}", *(verdict.lines() if verdict else []), "")
    show_facts({name: _format_fact(value) for name, value in labelled.items()})
    _show_tables(tables)


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
    convergence, scores = diagnose(run), calibration(run)
    if as_json:
        say_json({"convergence": convergence, "calibration": scores})
        return
    say(f"{path}: run")
    _show_tables([convergence_table(convergence), *score_tables(scores)])
    say("", *(f"warning: {warning}" for warning in convergence["warnings"]), convergence["note"])


def _describe_ratings(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the facts about a ratings file twice: by names for scripts, and by labels for people,
    as in `prepare`.
    """
    from dsgmcmc.data.ratings import Ratings

    with Ratings(path) as ratings:
        sizes = ("n_rows", "n_cols", "nnz", "nnz_test")
        others = ("mean", "minimum", "maximum", "transposed", "seed", "source", "digest")
        facts = {name: getattr(ratings, name) for name in (*sizes, *others)} | {
            "untrained": ratings.untrained()
        }
        sizes_and_scale, features = ratings.describe(), {}
        for side, stored in ratings.features.items():
            kind = "user" if (side == "rows") != ratings.transposed else "item"
            features[f"{kind}_features"] = {
                group: stored.groups.count(group) for group in dict.fromkeys(stored.groups)
            }
    labelled: dict[str, Any] = sizes_and_scale | {
        name.replace("_", " "): groups for name, groups in features.items()
    }
    labelled |= {"made from": facts["source"], "seed": facts["seed"], "digest": facts["digest"]}
    return facts | features, labelled


def _format_fact(value: Any) -> str | list[str]:
    """Format a fact as one line, or a dict as one line per entry."""
    if isinstance(value, dict):
        return [f"{name}: {item}" for name, item in value.items()]
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


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
    """Write one HTML file with convergence, traces, errors, calibration, residuals, times and
    configuration.

    The file is self-contained and needs no network. Its figures need Matplotlib: `pip install
    matplotlib`.

    \b
    Examples:
      dsgmcmc report run
      dsgmcmc report run -o page.html
    """
    from dsgmcmc.diagnostics.report import write_report

    page = run / "report.html" if out is None else out
    write_report(run, page)
    pass_on([os.fsencode(f"{page}\n")])


@retry_if_gone
def verify(path: PathArgument, as_json: JsonOption = False) -> None:
    """Check all checksums and the structure of a ratings file or a run, and print the digest of its
    content.

    The digest of a run covers its newest checkpoint, its saved draws and its posterior. It depends
    neither on the number of processes that wrote these files nor on how often the run was resumed.

    \b
    Examples:
      dsgmcmc verify run
      dsgmcmc verify run --json | jq -r .digest
    """
    kind = _kind_of(path)
    if kind == "ratings file":
        from dsgmcmc.data.ratings import Ratings

        with Ratings(path) as ratings:
            ratings.verify()
            digest = ratings.digest
    else:
        from dsgmcmc.diagnostics.overview import audit
        from dsgmcmc.storage.rundir import RunDirectory

        digest = audit(RunDirectory(path))
    if as_json:
        say_json({"path": str(path), "kind": kind, "valid": True, "digest": digest}, indent=None)
    else:
        say(f"{path}: a valid {kind}, digest {digest}")


def doctor(
    launch: Annotated[
        bool,
        typer.Option(
            "--launch/--no-launch",
            help="Test MPI by starting processes, which login nodes may forbid.",
        ),
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Check that this machine can sample, and say how to fix any problem.

    The exit status is 1 if sampling cannot work. On a login node, run `dsgmcmc doctor --no-launch`.
    """
    from dsgmcmc.doctor import examine

    findings = list(examine(launch))
    problems = sum(finding.level == "error" for finding in findings)
    if as_json:
        say_json(
            {"can_sample": not problems, "findings": [finding._asdict() for finding in findings]}
        )
    else:
        for finding in findings:
            say(f"{finding.level:8} {finding.name:15} {finding.found}")
            if finding.advice:
                say(f"{'':24} -> {finding.advice}")
        say(
            "Sampling can work here."
            if not problems
            else f"Sampling cannot work here: {problems} error(s)."
        )
    raise typer.Exit(Exit.FAILURE if problems else 0)

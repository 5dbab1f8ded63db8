"""``dsgmcmc compare``: compares models on the ratings of a file, and recommends one."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsgmcmc.cli import JsonOption
from dsgmcmc.cli.options import options_in, takes_settings
from dsgmcmc.errors import StoppedError
from dsgmcmc.parallel.comm import on_root, processes, run_parallel
from dsgmcmc.terminal import say, say_json, show_table

if TYPE_CHECKING:
    from dsgmcmc.diagnostics.comparison import Comparison, Model
    from dsgmcmc.ratings.file import Ratings

#: Heading of the column with the criterion.
HEADINGS = {
    "log-probability": "log p",
    "log-density": "density",
    "rmse": "RMSE",
    "ndcg": "NDCG",
}


@takes_settings(options_in("dsgmcmc.runs.settings", "CompareSettings"))
def compare(
    data: Annotated[
        Path, typer.Argument(metavar="DATA.h5", help="Ratings file made by `dsgmcmc prepare`.")
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE.toml",
            help="File for the settings of the recommended model.",
        ),
    ] = Path("best.toml"),
    *,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="File with settings for all models.")
    ] = None,
    assign: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting for all models, e.g. rank=16."),
    ] = None,
    as_json: JsonOption = False,
    **options: object,
) -> None:
    """Compare models that suit the ratings, and write the settings of the recommended model.

    The command, which also runs under mpirun, does not use the test ratings. It samples each model
    briefly, scores it on training ratings that it holds out, and recommends the simplest model
    within one standard error of the best. The recommendation does not depend on the speed of the
    machine or the number of processes. Of a table of three directions (`prepare --columns
    ...,context=C`) the arrangements are compared, too, and FILE.h5 has the best one. FILE.toml
    also has the settings that you give for all models; those for the length of a run have no
    effect on the comparison.

    \b
    Examples:
      dsgmcmc compare ml-1m.h5
      dsgmcmc compare ml-1m.h5 --metric rmse --out by-rmse.toml
      dsgmcmc sample ml-1m.h5 --out run --config best.toml
    """
    comm = processes()
    from dsgmcmc.config.run import collect
    from dsgmcmc.parallel.signals import installed
    from dsgmcmc.runs.compare import Comparing
    from dsgmcmc.runs.settings import CompareSettings
    from dsgmcmc.runs.source import RatingsSource
    from dsgmcmc.storage.files import check_target

    chosen = CompareSettings.from_settings(options)

    source = RatingsSource(data)
    arranged = out.with_suffix(".h5")

    def read() -> dict[str, Any]:
        check_target(out, chosen.force)
        if source.ratings.open_directions is not None:
            check_target(arranged, chosen.force)
        of_models = chosen.model_dump(include={"seed"}, exclude_none=True)
        return collect(of_models, config_file=config, assignments=assign or ())

    def work() -> int:
        settings = on_root(comm, read)
        comparing = Comparing(
            comm,
            source,
            out.with_name(f"{out.name}.compare"),
            settings,
            metric=chosen.metric,
            signals=installed(),
            quiet=as_json,
        )
        try:
            comparison = comparing.run()
        except StoppedError as stopped:
            return stopped.status
        common = {name: value for name, value in settings.items() if value not in ({}, "auto")}
        comparison = comparison.including(common)
        on_root(comm, lambda: _write(comparison, source.ratings, out, arranged))
        if comm.rank == 0:
            sampled = data
            if source.ratings.open_directions is not None:
                sampled = arranged
            _show(comparison, sampled, out, as_json)
        return 0

    run_parallel(comm, work)


def _write(comparison: Comparison, ratings: Ratings, out: Path, arranged: Path) -> None:
    """Write the settings of the recommended model, and the ratings if it has an arrangement."""
    from dsgmcmc.prepare.three_way import arrange_ratings
    from dsgmcmc.storage.files import write_file

    if ratings.open_directions is not None:
        arrange_ratings(ratings, comparison.arrangement(ratings.open_directions), arranged)
    write_file(out, comparison.toml())


def _show(comparison: Comparison, data: Path, out: Path, as_json: bool) -> None:
    """Print a comparison, and the command that samples the recommended model."""
    if as_json:
        say_json(comparison.table())
        return
    _show_table(comparison)
    command = ["dsgmcmc", "sample", str(data), "--out", "RUN", "--config", str(out)]
    say(f"{out}: {shlex.join(command)}")


def _show_table(comparison: Comparison) -> None:
    """Print the table of models, simplest first, and the recommendation."""
    from dsgmcmc.diagnostics.comparison import CRITERIA

    ratings = comparison.held_out + comparison.training
    title = (
        f"{comparison.held_out:,} of {ratings:,} training ratings held out, models by"
        f" {CRITERIA[comparison.metric]}"
    )
    score = HEADINGS[comparison.metric]
    headings = ("model", score, "behind", "se", "RMSE", "MAE", "sweeps", "time")
    rows = [_row_of(model) for model in comparison.models]
    show_table(headings, rows, title, left=headings[:1])
    say(
        "simplest first; behind: gap to the best model after as many sweeps; se: standard error of"
        " this gap"
    )
    if comparison.left_out:
        say(
            f"not sampled: {len(comparison.left_out)} models with a likelihood or a part that did"
            " not help by itself"
        )
    say(comparison.sentence())


def _row_of(model: Model) -> list[str]:
    """Format a model as a row of the table."""
    from dsgmcmc.diagnostics.summary import written

    row = [model.name]
    for number in (model.criterion, model.behind, model.error, model.rmse, model.mae):
        row.append("-" if number is None else written(number))
    row.append(str(model.sweeps))
    row.append("-" if model.seconds is None else f"{model.seconds:,.1f} s")
    return row

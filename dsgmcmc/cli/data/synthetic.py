"""``dsgmcmc synthetic``: ratings with a known truth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsgmcmc.terminal import console, say


def synthetic(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="File to write: .csv or .parquet.", show_default=False)],
    rows: Annotated[int, typer.Option(min=2, help="Users.")] = 6040,
    cols: Annotated[int, typer.Option(min=2, help="Items.")] = 3706,
    ratings: Annotated[int, typer.Option(min=2, help="Ratings.")] = 1_000_000,
    rank: Annotated[int, typer.Option(min=1, help="Length of the planted factors.")] = 10,
    noise: Annotated[float, typer.Option(metavar="SIGMA", help="Standard deviation of the noise.")] = 0.8,
    noise_spread: Annotated[
        float | None,
        typer.Option(
            metavar="NU",
            help="Users and items have their own noise: precisions times Gamma(NU/2, NU/2).",
            show_default="none",
        ),
    ] = None,
    half_stars: Annotated[
        bool, typer.Option("--half-stars/--real", help="Ratings 0.5, 1, ... 5, or real numbers.")
    ] = True,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same file.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it exists.")] = False,
) -> None:
    """Make synthetic ratings shaped like MovieLens, from planted factors, biases and noise.

    The truth goes to NAME.truth.npz beside OUT. The defaults have the size of MovieLens 1M.

    For example:

        dsgmcmc synthetic ratings.csv

        dsgmcmc synthetic large.parquet --rows 138493 --cols 26744 --ratings 20000000
    """
    from rich.progress import Progress

    from dsgmcmc.data.synthetic.generate import SyntheticOptions, best_prediction, chunks, generate, truth_path
    from dsgmcmc.diagnostics.scores import rmse

    options = SyntheticOptions(rows, cols, ratings, rank, noise, noise_spread, half_stars, seed)
    shown = console(stderr=True)
    with Progress(console=shown, transient=True, disable=not shown.is_terminal) as bar:
        task = bar.add_task("drawing ratings", total=ratings)
        truth = generate(out, options, force=force, progress=lambda done: bar.update(task, completed=done))
    users, items, values, _ = next(chunks(options, truth))
    best = rmse(values, best_prediction(truth, users, items))
    say(f"{out}: {ratings:,} synthetic ratings of {rows:,} users and {cols:,} items")
    say(f"{truth_path(out)}: the truth; its predictions have RMSE {best:.4f}, the lowest possible")

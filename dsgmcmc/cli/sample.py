"""``dsgmcmc sample``: the options of a run."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from dsgmcmc.config.job import Policy
from dsgmcmc.parallel import launch
from dsgmcmc.parallel.agreement import agree


def sample(
    context: typer.Context,
    data: Annotated[Path, typer.Argument(metavar="DATA.h5", help="Ratings file made by `dsgmcmc prepare`.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="RUN", help="Run directory.")],
    sampler: Annotated[
        str | None,
        typer.Option(
            help="baoab, gibbs, psgld, hamcmc, sgld, sghmc, sgnht or sgrld.",
            show_default="baoab; psgld without biases or centring, or if the prior is fixed",
        ),
    ] = None,
    rank: Annotated[
        str | None,
        typer.Option("--rank", "-K", help="Latent dimensions, or 'auto'.", show_default="auto, from the counts"),
    ] = None,
    grid: Annotated[
        int | None, typer.Option(help="Blocks a side.", show_default="4, or 2P with P > 4 processes")
    ] = None,
    schedule: Annotated[str | None, typer.Option(help="shuffled, cyclic or random.", show_default="shuffled")] = None,
    prior: Annotated[
        str | None, typer.Option(help="fixed, normal-gamma or normal-wishart.", show_default="normal-gamma")
    ] = None,
    prior_precision: Annotated[
        float | None,
        typer.Option(
            help="Precision of a fixed prior, in the ratings' own unit; start of another.",
            show_default="10; 1 with --prior fixed and with the samplers gibbs, psgld, hamcmc and sgld",
        ),
    ] = None,
    likelihood: Annotated[
        str | None,
        typer.Option(
            help="gaussian, ordinal-logit, ordinal-probit; poisson: of counts; all-cells: of clicks.",
            show_default="gaussian",
        ),
    ] = None,
    zero_weight: Annotated[
        float | None,
        typer.Option(help="Of clicks, what every zero counts beside a click.", show_default="0.1 with all-cells"),
    ] = None,
    noise_precision: Annotated[
        str | None,
        typer.Option(help="'sampled' or a value.", show_default="sampled; 1 with --prior fixed, 30 of clicks"),
    ] = None,
    noise: Annotated[
        str | None, typer.Option(help="shared, by-user, by-item or both: whose noise differs.", show_default="shared")
    ] = None,
    thresholds: Annotated[
        str | None,
        typer.Option(help="shared or user: whose thresholds between levels differ.", show_default="shared"),
    ] = None,
    implicit_features: Annotated[
        str | None,
        typer.Option(help="no, user, item or both: whose prior means follow from what they rated.", show_default="no"),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(help="yes, no, user or item: which features of DATA.h5 are used.", show_default="yes"),
    ] = None,
    time_levels: Annotated[
        str | None,
        typer.Option(
            metavar="user|user:page,user:8,...",
            help="Ratings of a user (item) that share an effect: of a second (page), or so many in a row.",
            show_default="no",
        ),
    ] = None,
    biases: Annotated[
        bool | None, typer.Option("--biases/--no-biases", help="User and item biases.", show_default="on")
    ] = None,
    center: Annotated[
        bool | None, typer.Option("--center/--no-center", help="Subtract the training mean.", show_default="on")
    ] = None,
    standardise: Annotated[
        str | None,
        typer.Option(
            metavar="yes|no",
            help="Priors in units of the ratings' sd, or as published.",
            show_default="yes; no with --prior fixed",
        ),
    ] = None,
    iterations: Annotated[
        str | None,
        typer.Option(
            help="Total with burn-in: a number, or like 500sweeps.",
            show_default="at most 5000sweeps with --until, 700sweeps without",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="rhat=R,ess=N",
            help="End once 95 % of the followed predictions have this R-hat or effective sample size; or none.",
            show_default="ess=100 a chain; none with --iterations",
        ),
    ] = None,
    burn_in: Annotated[
        str | None,
        typer.Option(
            help="Iterations before the first draw.", show_default="50sweeps; 100sweeps with other samplers than baoab"
        ),
    ] = None,
    thin: Annotated[
        str | None, typer.Option(help="Iterations between draws.", show_default="2sweeps, or nearly; of gibbs 1")
    ] = None,
    evaluate_every: Annotated[
        str | None, typer.Option(help="Iterations between lines of metrics.", show_default="10sweeps")
    ] = None,
    step_size: Annotated[
        float | None,
        typer.Option(
            help="Step, in the sampler's own unit; sets the burn-in's too.",
            show_default="0.35 of baoab, less with few ratings; of others docs/settings.md",
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.", show_default="0")] = None,
    chains: Annotated[int | None, typer.Option(help="Independent chains.", show_default="1")] = None,
    checkpoint_every: Annotated[
        str | None, typer.Option(help="Iterations, or a time like 10min.", show_default="10min")
    ] = None,
    keep_checkpoints: Annotated[int | None, typer.Option(help="Checkpoints to keep.", show_default="2")] = None,
    save_draws: Annotated[int | None, typer.Option(help="Draws to keep at least.", show_default="50")] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="Settings by the names of these options.")
    ] = None,
    assign: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any setting, e.g. sampler.friction=0.8."),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option("--from", metavar="EARLIER", help="Start where this run on fewer ratings is, with its model."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with RUN, or start it.")] = False,
    override: Annotated[
        bool, typer.Option("--override", help="With --resume: let --thin and --evaluate-every change from here on.")
    ] = False,
    max_walltime: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Checkpoint and end with 75 in time: 1h, HH:MM:SS, or auto for Slurm's limit."
        ),
    ] = None,
    watchdog: Annotated[
        float, typer.Option(metavar="SECONDS", help="End the job (70) when it has not got on for so long; 0: never.")
    ] = 600.0,
    on_checkpoint_error: Annotated[
        str, typer.Option(metavar="stop|continue", help="When a checkpoint cannot be written.")
    ] = "stop",
    on_divergence: Annotated[
        str, typer.Option(metavar="stop|halve", help="When a chain explodes: go back, with half the step?")
    ] = "stop",
    log_dir: Annotated[Path | None, typer.Option(metavar="DIR", help="A log for every process.")] = None,
    log_level: Annotated[str, typer.Option(metavar="debug|info|warning", help="What is logged.")] = "info",
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Compare the ratings with their checksums as they are read.")
    ] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the resolved settings and costs, and stop.")
    ] = False,
) -> None:
    """Sample the posterior of a matrix factorisation, alone or under mpirun.

    The draws depend on the data, the seed, the grid and the settings, not on the number of processes: stop a
    run at any time and go on with --resume on any number of processes. It ends once its predictions are accurate
    enough, or with --iterations.

    \b
    Examples:
      dsgmcmc sample ml-1m.h5 --out run
      mpirun -n 4 dsgmcmc sample ml-1m.h5 --out run --rank 64 --iterations 1000sweeps
      mpirun -n 2 dsgmcmc sample ml-1m.h5 --out run --resume --until ess=400
      dsgmcmc sample ml-1m.h5 --out run --chains 4 --until rhat=1.01,ess=400
      dsgmcmc sample grown.h5 --from run --out new --burn-in 20sweeps
      dsgmcmc sample ml-1m.h5 --out run --likelihood ordinal-logit --noise both
      dsgmcmc sample clicks.h5 --out run --likelihood all-cells
      dsgmcmc sample ml-1m.h5 --out run --set sampler.friction=0.8 --dry-run
    """
    options = context.params  # by the names of the settings: those of RunConfig and of Policy
    step = {"step_size": step_size, "burn_in_step_size": step_size}
    comm = launch.world_comm()
    from dsgmcmc.config.layers import Layers
    from dsgmcmc.config.run import RunConfig
    from dsgmcmc.parallel.mpirun import COMMAND
    from dsgmcmc.runs.job import Job  # after MPI: it needs an MPI library
    from dsgmcmc.runs.sources.ratings import RatingsSource

    settings = {name: options[name] for name in RunConfig.model_fields if name in options}
    settings["sampler"] = _given({"name": sampler, **step})
    layers = Layers(_given(settings), config, assign or ())

    def work() -> int:
        make = partial(Policy, **{field.name: options[field.name] for field in fields(Policy)})
        command = os.environ.get(COMMAND) or shlex.join(["dsgmcmc", *sys.argv[1:]])
        source = RatingsSource(data, verify, start)
        job = Job(comm, source, out, layers, resume, agree(comm, make, "sample"), command)
        return job.describe() if dry_run else job.run()

    launch.run_parallel(comm, work)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None}

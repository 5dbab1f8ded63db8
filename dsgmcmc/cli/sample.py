"""``dsgmcmc sample``: the options of a run. Those that are settings are made from the table of `dsgmcmc.settings`."""

from __future__ import annotations

import inspect
import os
import shlex
import sys
from collections.abc import Callable
from contextlib import nullcontext
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from dsgmcmc.parallel.comm import agree, processes, run_parallel
from dsgmcmc.settings import Setting, in_python, settings


class Model(StrEnum):
    """How the model is chosen."""

    auto = "auto"


OPTION_TYPES: dict[str, Any] = {kind.__name__: kind for kind in (int, float, bool, str, Path)}


def _parameter(setting: Setting) -> inspect.Parameter:
    """Function parameter for the option of a setting; its value is None if the option is not given."""
    default = f" [default: {setting.default}]" if setting.default else ""
    option = typer.Option(
        *filter(None, (setting.option, setting.short)),
        metavar=setting.metavar or None,
        help=setting.help + default,
        rich_help_panel=f"Settings of the {setting.section}",
    )
    kind: Any = Annotated[OPTION_TYPES[setting.kind] | None, option]
    return inspect.Parameter(setting.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


def _with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of all settings, in place of its ``**given``."""
    signature = inspect.signature(command, eval_str=True)
    own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    command.__signature__ = signature.replace(parameters=[*own, *map(_parameter, settings())])  # type: ignore[attr-defined]
    return command


@_with_settings
def sample(
    data: Annotated[Path, typer.Argument(metavar="DATA.h5", help="Ratings file made by `dsgmcmc prepare`.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="RUN", help="Run directory.")],
    config: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="Settings by the names of these options.")
    ] = None,
    assign: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any setting, e.g. sampler.friction=0.8."),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option("--from", metavar="EARLIER", help="Start from the state and model of this run on fewer ratings."),
    ] = None,
    model: Annotated[
        Model | None,
        typer.Option(help="auto: compare models first, as `dsgmcmc compare` does, and sample the recommended one."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue RUN, or start it.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the resolved settings and costs, and stop.")
    ] = False,
    **given: Any,
) -> None:
    """Sample the posterior of a matrix factorisation, alone or under mpirun.

    The draws depend on the data, the seed, the grid and the settings, not on the number of processes: stop a run at
    any time, and continue it with --resume on any number of processes. It ends once its predictions are accurate
    enough, or after --iterations.

    \b
    Examples:
      dsgmcmc sample ml-1m.h5 --out run
      dsgmcmc sample ml-1m.h5 --out run --model auto
      mpirun -n 4 dsgmcmc sample ml-1m.h5 --out run --rank 64 --iterations 1000sweeps
      mpirun -n 2 dsgmcmc sample ml-1m.h5 --out run --resume --until ess=400
      dsgmcmc sample ml-1m.h5 --out run --chains 4 --until rhat=1.01,ess=400
      dsgmcmc sample grown.h5 --from run --out new --burn-in 20sweeps
      dsgmcmc sample ml-1m.h5 --out run --likelihood ordinal-logit --noise both
      dsgmcmc sample clicks.h5 --out run --likelihood all-cells
      dsgmcmc sample ml-1m.h5 --out run --set sampler.friction=0.8 --dry-run
    """
    comm = processes()
    from dsgmcmc.config.job import Policy
    from dsgmcmc.config.layers import Layers
    from dsgmcmc.parallel.mpirun import COMMAND
    from dsgmcmc.parallel.signals import installed
    from dsgmcmc.runs.compare import Stopped, sample_recommended, with_best_model
    from dsgmcmc.runs.job import Job
    from dsgmcmc.runs.source import RatingsSource

    of_job, of_run = _split(given)
    command = os.environ.get(COMMAND)  # of `BPMF`, if that started it

    def work() -> int:
        source = RatingsSource(data, start)
        policy = agree(comm, partial(Policy, **of_job))
        layers, signals, chosen = Layers(of_run, config, assign or ()), installed(), model is not None
        if chosen:
            try:
                layers = with_best_model(comm, source, out, layers, resume, policy, dry_run, signals)
            except Stopped as stopped:
                return stopped.status
        line = command or shlex.join(["dsgmcmc", *sys.argv[1:]])

        def run(layers: Layers) -> int:
            job = Job(comm, source, out, layers, resume or chosen, policy, line)
            return job.describe() if dry_run else job.run(signals)

        return sample_recommended(run, comm, source, out, layers, policy) if chosen else run(layers)

    with in_python() if command else nullcontext():
        run_parallel(comm, work)


def _split(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the options that were given into those of the job and those of the run; step_size is the sampler's."""
    given = {name: value for name, value in given.items() if value is not None}
    of_job = {each.name: given.pop(each.name) for each in settings() if each.section == "job" and each.name in given}
    if "sampler" in given:
        given["sampler"] = {"name": given["sampler"]}
    if "step_size" in given:
        step = given.pop("step_size")
        given["sampler"] = {**given.get("sampler", {}), "step_size": step, "burn_in_step_size": step}
    return of_job, given

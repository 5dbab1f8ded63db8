"""``dsgmcmc sample``.

Most of its options are settings, which classes declare by `dsgmcmc.settings.setting`.
"""

from __future__ import annotations

import inspect
import os
import shlex
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand
from typing_extensions import override

from dsgmcmc.cli.options import options_of, takes_settings
from dsgmcmc.errors import InputError
from dsgmcmc.parallel.comm import agree, on_root, processes, run_parallel
from dsgmcmc.parallel.machine import ends_with_container

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo


class SampleCommand(TyperCommand):
    """The command `sample`; its help has a heading for each kind of setting."""

    @override
    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            heading = "Arguments" if parameter.param_type_name == "argument" else "Options"
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            section = getattr(parameter, "rich_help_panel", None) or heading
            sections.setdefault(section, []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def _options() -> list[inspect.Parameter]:
    """Return the options of all settings of a run and its job, in the order of the help."""
    options = []
    for section, fields in sections().items():
        options += options_of(fields, f"Settings of the {section}")
    return options


@takes_settings(_options)
def sample(
    data: Annotated[
        Path, typer.Argument(metavar="DATA.h5", help="Ratings file made by `dsgmcmc prepare`.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="RUN", help="Run directory.")],
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml", help="File with settings; the sampler's are in [sampler]."
        ),
    ] = None,
    assign: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any setting, e.g. sampler.friction=0.8."),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="EARLIER",
            help="Start from the last state and model of an earlier run.",
        ),
    ] = None,
    model: Annotated[
        Literal["auto"] | None,
        typer.Option(
            help=(
                "auto: compare models first, as `dsgmcmc compare` does, and sample the recommended"
                " one."
            )
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue RUN, or start it if it does not exist.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Print the resolved settings and the estimated costs, and exit."
        ),
    ] = False,
    **options: object,
) -> None:
    """Sample the posterior of a matrix factorisation, in one process or under mpirun.

    The draws do not depend on the number of processes. You may stop a run at any time, and
    continue it with --resume on another number of processes. A run ends when its predictions are
    accurate enough, or after --iterations.

    \b
    Examples:
      dsgmcmc sample ml-1m.h5 --out run
      dsgmcmc sample ml-1m.h5 --out run --model auto
      mpirun -n 2 dsgmcmc sample ml-1m.h5 --out run --resume --until ess=400
      dsgmcmc sample ml-1m.h5 --out run --chains 4 --until rhat=1.01,ess=400
      dsgmcmc sample grown.h5 --from run --out new --burn-in 20sweeps
      dsgmcmc sample ml-1m.h5 --out run --likelihood ordinal-logit --noise both
      dsgmcmc sample ml-1m.h5 --out run --set sampler.friction=0.8 --dry-run
    """
    comm = processes()
    if ends_with_container(out):
        raise InputError(
            f"{out} is in the memory of this container, and is gone when it ends: bind a folder of"
            " the machine (--bind), or leave -C out. With -C, processes of a launcher outside of"
            " the container do not see each other, either"
        )
    from dsgmcmc.config.job import Policy
    from dsgmcmc.config.run import collect
    from dsgmcmc.parallel.mpirun import COMMAND_VARIABLE
    from dsgmcmc.parallel.signals import installed
    from dsgmcmc.runs.job import Job
    from dsgmcmc.runs.source import RatingsSource
    from dsgmcmc.settings import in_python

    given = {name: value for name, value in options.items() if value is not None}
    job_settings = {name: given.pop(name) for name in Policy.model_fields if name in given}
    if "step_size" in given:
        given["sampler.step_size"] = given.pop("step_size")
    command = os.environ.get(COMMAND_VARIABLE)  # set if `BPMF` started this process

    def work() -> int:
        source = RatingsSource(data, start)
        signals = installed()
        policy = agree(comm, partial(Policy.from_settings, job_settings))
        read = partial(collect, given, config_file=config, assignments=assign or ())
        settings = on_root(comm, read)
        line = command or shlex.join(["dsgmcmc", *sys.argv[1:]])
        job = Job(comm, source, out, settings, resume=resume, policy=policy, command=line)
        if model is not None:
            from dsgmcmc.runs.recommended import sample_recommended

            return sample_recommended(job, signals, dry_run)
        if dry_run:
            return job.describe()
        return job.run(signals)

    with in_python() if command else nullcontext():
        run_parallel(comm, work)


# ---------------------------------------------------------------------- options of settings


def sections() -> dict[str, dict[str, FieldInfo]]:
    """Return the fields of settings by section (model, chain, job) and name.

    The section of the chain includes the step size, the only setting of samplers that has an
    option.
    """
    from dsgmcmc.config.chain import ChainConfig
    from dsgmcmc.config.job import Policy
    from dsgmcmc.config.run import ModelConfig
    from dsgmcmc.samplers.step_size import StepSize

    chain = dict(ChainConfig.model_fields)
    step = StepSize.model_fields["step_size"]
    return {
        "model": dict(ModelConfig.model_fields),
        "chain": {"sampler": chain.pop("sampler"), "step_size": step, **chain},
        "job": dict(Policy.model_fields),
    }

"""``dsgmcmc launch-script``: a job script for a batch system."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from dsgmcmc.cluster.job_script import DATA, RUN, STUDY, JobScript
from dsgmcmc.errors import InputError, writing
from dsgmcmc.storage.files import write_whole
from dsgmcmc.terminal import pass_on, say


def launch_script(
    kind: Annotated[str, typer.Argument(metavar="slurm|pbs|lsf|flux", help="Batch system.", show_default=False)],
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[-- OPTIONS]", help="Further options of the command that is run.")
    ] = None,
    nodes: Annotated[int, typer.Option(help="Machines.")] = JobScript.nodes,
    processes: Annotated[
        int | None, typer.Option(help="Processes on each machine.", show_default=str(JobScript.processes))
    ] = None,
    time: Annotated[str, typer.Option(help="Time limit of the job: 12:00:00, 90min, 2d.")] = JobScript.time,
    warning: Annotated[
        str, typer.Option(metavar="TIME", help="Time before the limit at which the run writes its last checkpoint.")
    ] = JobScript.warning,
    queue: Annotated[str | None, typer.Option("--queue", "--partition", help="Queue or partition.")] = None,
    account: Annotated[str | None, typer.Option(help="Account, project or bank.")] = None,
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="Memory of one machine, such as 32G.")] = None,
    name: Annotated[str, typer.Option(help="Name of the job and of its log.")] = JobScript.name,
    launcher: Annotated[
        str, typer.Option(metavar="mpirun|srun", help="What starts the processes; srun with Slurm only.")
    ] = JobScript.launcher,
    module: Annotated[list[str] | None, typer.Option(help="Module to load; may be repeated.")] = None,
    environment: Annotated[
        str | None, typer.Option(metavar="DIR", help="Virtual environment with dsgmcmc in it.")
    ] = None,
    image: Annotated[str | None, typer.Option(metavar="FILE.sif", help="Apptainer image with dsgmcmc in it.")] = None,
    bench: Annotated[
        bool,
        typer.Option("--bench", help="Measure how these nodes scale (`dsgmcmc bench cluster`) instead of sampling."),
    ] = JobScript.bench,
    data: Annotated[
        str | None,
        typer.Option(metavar="DATA.h5", help="Ratings file.", show_default=f"{DATA}; synthetic with --bench"),
    ] = None,
    run: Annotated[
        str | None, typer.Option(metavar="RUN", help="Run directory.", show_default=f"{RUN}; {STUDY} with --bench")
    ] = None,
    requeue: Annotated[
        bool, typer.Option("--requeue/--no-requeue", help="Whether a new job continues after the time limit.")
    ] = JobScript.requeue,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write it to FILE.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False,
) -> None:
    """Write a job script for Slurm, PBS, LSF or Flux.

    The job samples until shortly before its time limit and writes a checkpoint; the next job continues from it, until
    all iterations are done. With --bench it measures, once, within its time limit. Without --module, --environment or
    --image the job uses the environment that it is submitted from.

    \b
    Examples:
      dsgmcmc launch-script slurm --nodes 4 --processes 32 --time 12:00:00 --out job.sbatch
      dsgmcmc launch-script slurm --launcher srun --module openmpi --environment ~/dsgmcmc -- --rank 64
      dsgmcmc launch-script pbs --queue long --data ml.h5 --run runs/a -- --grid 64 --iterations 5000sweeps
      dsgmcmc launch-script slurm --bench --nodes 4 --processes 32 --time 1:00:00 -- --ratings 1e8
      dsgmcmc launch-script lsf --image dsgmcmc.sif --no-requeue | bsub
    """
    script = JobScript(
        kind,
        nodes=nodes,
        processes=JobScript.processes if processes is None else processes,
        time=time,
        warning=warning,
        queue=queue,
        account=account,
        memory=memory,
        name=name,
        launcher=launcher,
        modules=tuple(module or ()),
        environment=environment,
        image=image,
        data=data,
        run=run,
        options=tuple(options or ()),
        requeue=requeue,
        bench=bench,
    ).render()
    if out is None:
        pass_on(os.fsencode(script).splitlines(keepends=True))
    else:
        if out.exists() and not force:
            raise InputError(f"{out} exists: give another name, or --force to replace it")
        with writing(out):
            write_whole(out, script)
            out.chmod(0o755)
        say(f"{out}: a job script for {kind}; see the comments at its top")
    if processes is None:
        each = " on each node" if nodes > 1 else ""
        say(f"dsgmcmc: {JobScript.processes} processes{each}; --processes chooses another number", file=sys.stderr)

"""Helpers for tests of job scripts: small ratings, a script for them, and the digest of a run."""

import functools
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mpi4py import MPI
from support import digest, injected, options_of, sample, write_planted

LAUNCH = Path(__file__).resolve().parents[2] / "launch"
#: The script of each batch system, and how a user edits it for two processes on one machine.
SCRIPTS = {
    "slurm": ("slurm.sbatch", {"--ntasks-per-node=4": "--ntasks-per-node=2"}),
    "pbs": ("pbs.sh", {"ncpus=4:mpiprocs=4": "ncpus=2:mpiprocs=2"}),
    "lsf": ("lsf.sh", {"#BSUB -n 4": "#BSUB -n 2", "ptile=4": "ptile=2"}),
    "flux": ("flux.sh", {"--nslots=4": "--nslots=2", "--ntasks=4": "--ntasks=2"}),
}

SETTINGS: dict[str, Any] = {
    "rank": 3,
    "grid": 5,
    "burn_in": 6,
    "thin": 3,
    "save_draws": 3,
    "evaluate_every": 4,
}
#: Faults that delay iterations, so that a job can be stopped in the middle on fast and on slow
#: machines.
SLOW = injected("iteration=sleep:0.1,at=*")


def prepare(folder: Path) -> Path:
    """Write ratings into the folder that jobs are submitted from; their script, run and logs go
    there, too.
    """
    # the default sampler's step is too large for fewer
    write_planted(folder / "ratings.h5", rows=200, columns=120)
    return folder


def write_script(
    system: str, folder: Path, edits: Mapping[str, str] = MappingProxyType({}), **settings: Any
) -> Path:
    """Write the script of `launch/`, edited as by a user: two processes, settings, `edits`; and the
    file it reads.
    """
    name, fewer = SCRIPTS[system]
    words = options_of(SETTINGS | settings)
    options = {"options=(--resume)": f"options=(--resume --sampler=psgld {' '.join(words)})"}
    text = (LAUNCH / name).read_text(encoding="utf-8")
    for old, new in {**fewer, **options, **edits}.items():
        assert text.count(old) == 1, f"{name}: {old}"
        text = text.replace(old, new)
    # as in a clone, or copied with the script
    shared = folder / "launch" if system == "lsf" else folder
    shared.mkdir(exist_ok=True)
    shutil.copy(LAUNCH / "job.sh", shared)
    path = folder / f"job.{system}"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


@functools.cache
def expected(iterations: int) -> str:
    """Digest of such a run, made in one go by this process."""
    with tempfile.TemporaryDirectory() as name:
        folder = prepare(Path(name))
        settings = SETTINGS | {"iterations": iterations, "sampler": {"name": "psgld"}}
        assert sample(MPI.COMM_SELF, folder / "ratings.h5", folder / "run", **settings) == 0
        return digest(folder / "run")


def not_getting_on(folder: Path, python: str, status: int = 75) -> Path:
    """Make a folder with a `dsgmcmc` whose sampling ends before its first checkpoint; else it is
    the real one.
    """
    program = folder / "bin" / "dsgmcmc"
    program.parent.mkdir(exist_ok=True)
    text = f'#!/bin/sh\n[ "$1" != sample ] || exit {status}\nexec "{python}" -m dsgmcmc "$@"\n'
    program.write_text(text, encoding="utf-8")
    program.chmod(0o755)
    return program.parent

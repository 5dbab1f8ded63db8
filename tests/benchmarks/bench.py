"""Code that benchmarks share: commands, environments for other packages, tables."""

import argparse
import resource
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from dsgmcmc.parallel.mpirun import run_dsgmcmc

TESTS = Path(__file__).parents[1]
sys.path += [
    str(TESTS.parent / "data"),
    str(TESTS),
    str(TESTS / "reference"),
]  # for `synthetic` and helpers of tests


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Command line whose help is the docstring of the script."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def folder_and_seeds(description: str | None) -> tuple[Path, range]:
    """Return the folder and the seeds that a command line has, FOLDER FIRST END."""
    parser = arguments(description)
    parser.add_argument("folder", type=Path)
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int)
    parsed = parser.parse_args()
    return parsed.folder, range(parsed.first, parsed.end)


def python_with(folder: Path, *packages: str) -> Path:
    """Python of an environment in `folder` with these packages, installed from PyPI at the first
    call.

    Raises
    ------
    RuntimeError
        With the message of pip, if a package cannot be installed.
    """
    python = folder.resolve() / "bin" / "python"
    if not (folder / "whole").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        run_program(python, "-m", "pip", "install", "--quiet", *packages)
        (folder / "whole").touch()
    return python


def run_program(*command: object) -> None:
    """Run a program of another package; RuntimeError with the last line of its messages if it
    fails.
    """
    done = subprocess.run(
        [str(word) for word in command], check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError("failed: " + (done.stderr.strip().splitlines() or ["?"])[-1][:200])


def processor_seconds() -> float:
    """Processor seconds of all processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def quietly(*words: object) -> tuple[str, float]:
    """Run a ``dsgmcmc`` command; its output and processor seconds. An error ends the script."""
    before = processor_seconds()
    done = run_dsgmcmc([str(word) for word in words])
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout, processor_seconds() - before


def movielens(folder: Path, data: Path, ratings: str, *options: str) -> Path:
    """Prepare ratings of a folder of MovieLens 100K or 1M, with times and the features of users and
    items.
    """
    users, items = (
        ("users.dat", "movies.dat") if (folder / "users.dat").exists() else ("u.user", "u.item")
    )
    known = (
        f"--user-features={folder / users}",
        f"--item-features={folder / items}",
        "--timestamps",
        "--force",
    )
    quietly("prepare", folder / ratings, data, *options, *known)
    return data


def row(*cells: object) -> str:
    """A line of a table in Markdown."""
    return f"| {' | '.join(map(str, cells))} |"


def markdown(titles: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown."""
    return "\n".join(row(*cells) for cells in (titles, ["---"] * len(titles), *rows))


def say(*cells: object) -> None:
    """Print a line of a table in Markdown."""
    print(row(*cells), flush=True)


def say_head(*titles: object) -> None:
    """Print the head of a table in Markdown, after an empty line."""
    print()
    say(*titles)
    say(*["---"] * len(titles))

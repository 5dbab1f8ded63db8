"""Command line, data, chains, tables and figures that the experiments of papers share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from dsgmcmc.densities.sample import vector_target
from dsgmcmc.samplers import sampler_named


def command(description: str | None, figure: str) -> argparse.ArgumentParser:
    """A command line with ``--quick`` and ``--out``."""
    parser = argparse.ArgumentParser(description=(description or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a small form of it, to see that it runs")
    parser.add_argument("--out", type=Path, help=f"folder for {figure}; needs matplotlib")
    return parser


def digits(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 784) and labels (n,) of all arrays of a file."""
    with np.load(path) as file:
        arrays = [file[name] for name in file.files]
    images = [array.reshape(len(array), -1) for array in arrays if array.ndim > 1]
    return np.concatenate(images), np.concatenate([array for array in arrays if array.ndim == 1])


def prepare(
    name: str,
    density: Any,
    burn_in: int = 0,
    schedule: Any = "random",
    rows: int = 1,
    grid: int = 1,
    seed: int = 0,
    **settings: Any,
) -> tuple[Any, Any]:
    """Make a sampler with these settings, and its target."""
    kind = sampler_named(name)
    sampler = kind(kind.Config(**settings), burn_in)
    return sampler, vector_target(density, sampler, rows=rows, grid=grid, seed=seed, schedule=schedule)


def follow(
    sampler: Any, target: Any, start: np.ndarray, iterations: int, look: Callable[[int], object] | None = None
) -> tuple[np.ndarray, float]:
    """States (iterations, D) of a chain from a start, and its CPU seconds; `look` is called before every iteration."""
    sampler.start(target, 1.0)
    target.block["theta"][0] = start
    states, begin = np.empty((iterations, len(start))), process_time()
    with np.errstate(all="ignore"):
        for iteration in range(iterations):
            if look:
                look(iteration)
            sampler.advance(target, iteration, 1)
            states[iteration] = target.block["theta"][0]
    return states, process_time() - begin


def row(*cells: object) -> None:
    """Print a row of a table."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def head(*titles: object) -> None:
    """Print the head of a table."""
    print()
    row(*titles)
    print("|" + "---|" * len(titles))


def axes(*shape: int, size: tuple[float, float], **more: Any) -> Any:
    """Panels of a figure, as an array of this shape."""
    from matplotlib import pyplot as plt

    return plt.subplots(*shape, figsize=size, squeeze=False, layout="tight", **more)[1]


def save(panels: Any, folder: Path, name: str) -> None:
    """Save their figure."""
    folder.mkdir(parents=True, exist_ok=True)
    panels.flat[0].figure.savefig(folder / name, dpi=80)

"""Command line, data, chains, tables and figures that the experiments of papers share.

Where it is imported, the helpers of `tests` and `tests/reference` can be imported, too.
"""

import argparse
import sys
from pathlib import Path
from time import process_time

import numpy as np

from dsgmcmc.densities.registry import SAMPLERS
from dsgmcmc.densities.sample import vector_target

TESTS = Path(__file__).resolve().parents[1]
sys.path += [str(TESTS), str(TESTS / "reference")]

#: Settings of samplers with momenta that have no metric; and of SGHMC as it was published.
PLAIN = {"metric": "identity", "warm_up": 0}
PUBLISHED = {**PLAIN, "splitting": "published"}


def command(description, figure=""):
    """A command line with ``--quick``, and with ``--out`` if there is a figure."""
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="a small form of it, to see that it runs"
    )
    if figure:
        parser.add_argument("--out", type=Path, help=f"folder for {figure}; needs matplotlib")
    return parser


def digits(path):
    """Images (n, 784) and labels (n,) of all arrays of a file."""
    with np.load(path) as file:
        arrays = [file[name] for name in file.files]
    images = [array.reshape(len(array), -1) for array in arrays if array.ndim > 1]
    return np.concatenate(images), np.concatenate([array for array in arrays if array.ndim == 1])


def prepare(name, density, burn_in=0, schedule="random", rows=1, grid=1, seed=0, **settings):
    """Make a sampler with these settings, and its target."""
    sampler_type = SAMPLERS[name]
    sampler = sampler_type(sampler_type.Config(**settings), burn_in)
    target = vector_target(density, sampler, rows=rows, grid=grid, seed=seed, schedule=schedule)
    target.block.spread = 1.0  # papers state initial values in the unit of theta
    return sampler, target


def follow(sampler, target, iterations, start=None, thin=1, look=None):
    """States (T, D) of a chain after every `thin` iterations, and its CPU seconds.

    The chain begins at `start`, or else at N(0, I). `look` is called before iterations with target,
    sampler and number.
    """
    sampler.start(target, 1.0)
    if start is not None:
        target.block["theta"][0] = start
    states = []
    begin = process_time()
    with np.errstate(all="ignore"):
        for first in range(0, iterations, thin):
            if look:
                look(target, sampler, first)
            sampler.advance(target, first, thin)
            states.append(target.block["theta"][0].copy())
    return np.array(states), process_time() - begin


def short(number):
    """A number with three significant digits, as people write it."""
    return f"{float(f'{number:.3g}'):,.10g}"


def row(*cells):
    """Print a row of a table."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def head(*titles):
    """Print the head of a table."""
    print()
    row(*titles)
    print("|" + "---|" * len(titles))


def axes(*shape, size, **more):
    """Panels of a figure, as an array of this shape."""
    from matplotlib import pyplot as plt

    return plt.subplots(*shape, figsize=size, squeeze=False, layout="tight", **more)[1]


def save(panels, folder, name):
    """Save their figure, if a folder is given."""
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    panels.flat[0].figure.savefig(folder / name, dpi=80)

"""Ratings files of measurements, with replicates and weights, and of answers to items."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from support import csr, planted, write_cells

from dsgmcmc.ratings.writer import Origin, Sizes, Slab, write_slabs


def write_measured(
    path: Path,
    *,
    test: float = 0.2,
    replicated: bool = False,
    weighted: bool = False,
    bounded: bool = False,
    exact_tests: bool = True,
) -> Path:
    """Write a ratings file of `planted` ratings, a `test` fraction of whose pairs is held out.

    If pairs are `replicated`, they have one to three measurements; if they are `weighted`, weights
    from 0.2 to 5; if they are `bounded`, ratings below 3 are known to be so, and those above 5 to
    lie within half a unit. Without `exact_tests`, no exact rating is held out.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1)
    i, j, x = planted()
    held = rng.random(len(i)) < test
    pair = np.arange(len(i))
    if replicated:
        pair = np.repeat(pair, rng.integers(1, 4, len(pair)))
    x = x[pair] + rng.normal(0, 0.3, len(pair))
    measures = {}
    if weighted:
        measures["weight"] = np.exp(rng.uniform(np.log(0.2), np.log(5), len(pair)))
    if bounded:
        below = x < 3
        above = x > 5
        x = np.where(below, 3, x)
        if not exact_tests:
            held = held & (np.bincount(pair, ~(below | above), len(i)) == 0)
        measures["lower"] = np.where(below, -np.inf, np.where(above, x - 0.25, x))
        measures["upper"] = np.where(above, x + 0.25, x)
    replicates = len(pair) - len(i)
    return write_measures(path, (29, 17), i[pair], j[pair], x, held[pair], measures, replicates)


def write_measures(
    path: Path,
    shape: tuple[int, int],
    i: np.ndarray,
    j: np.ndarray,
    x: np.ndarray,
    held: np.ndarray,
    measures: Mapping[str, np.ndarray],
    replicates: int = 0,
) -> Path:
    """Write ratings that are sorted by row, then column; `measures` are fields of `Slab`."""
    slabs = []
    for part, chosen in (("train", ~held), ("test", held)):
        of_part = {name: array[chosen].astype(np.float32) for name, array in measures.items()}
        slabs.append(Slab(part, *csr(shape[0], i[chosen], j[chosen], x[chosen]), **of_part))
    sizes = Sizes(*shape, int((~held).sum()), int(held.sum()))
    ids = {"rows": [np.arange(shape[0])], "cols": [np.arange(shape[1])]}
    write_slabs(path, sizes, ids, slabs, origin=Origin(replicates=replicates))
    return path


def write_answers(path: Path, transposed: bool = False) -> Path:
    """Write answers of 0 to 3 of 48 users to 48 items, of which every second has only 0 and 1.

    A tenth of the answers are the test part; if `transposed`, the rows are the items.
    """
    rng = np.random.default_rng(4)
    shape = (48, 48)
    eta = rng.normal(size=(48, 1)) + rng.logistic(size=shape)
    answers = np.digitize(eta, [-1.0, 0.5, 1.5]).astype(np.float32)
    answers[:, ::2] = eta[:, ::2] > 0
    if transposed:
        answers = answers.T
    i, j = np.nonzero(rng.random(shape) < 0.9)
    held = rng.random(len(i)) < 0.1
    return write_cells(path, shape, i, j, answers[i, j], held, transposed=transposed)

"""Ratings files of measurements: replicates."""

from pathlib import Path

import numpy as np
from support import planted, write_cells


def write_measured(path: Path, *, test: float = 0.2, replicated: bool = False) -> Path:
    """Write a ratings file of `planted` ratings, a `test` fraction of whose pairs is held out.

    If pairs are `replicated`, they have one to three measurements.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1)
    i, j, x = planted()
    held = rng.random(len(i)) < test
    pair = np.arange(len(i))
    if replicated:
        pair = np.repeat(pair, rng.integers(1, 4, len(pair)))
    return write_cells(
        path,
        (29, 17),
        i[pair],
        j[pair],
        x[pair] + rng.normal(0, 0.3, len(pair)),
        held[pair],
        replicates=len(pair) - len(i),
    )

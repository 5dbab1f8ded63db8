"""A warm start: the state of a chain on other ratings, taken by those rows and parameters that this target has, too.

What is taken are the factors, what the rows' noise and priors have of their own, and what all rows have in common. The
rest begins as ever: rows that the other chain did not know, momenta, and what shifts the rows' prior means, which
follows from these ratings and is drawn given the factors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.model.quantity import THETA
from dsgmcmc.storage.manifest import Key

if TYPE_CHECKING:
    from dsgmcmc.model.target import FactorTarget
    from dsgmcmc.storage.snapshot import Snapshot

#: Marks the rows of a block that are known.
KNOWN = "known"


def take_start(target: FactorTarget, start: Snapshot) -> None:
    """Move a target that is at its usual start to what `start` has of it; the blocks of this process.

    Parameters
    ----------
    target : FactorTarget
        Before its first iteration.
    start : Snapshot
        For the blocks of this grid (`dsgmcmc.runs.sources.start`).

    Raises
    ------
    InputError
        If it is damaged, or of another shape.
    """
    try:
        for block in target.blocks():

            def read(field: str, factor: str = block.factor.name, index: int = block.index) -> np.ndarray:
                return start.read(Key("start", factor, index, field))

            known = read(KNOWN).astype(bool)
            names = [(position, THETA.name) for position in target.positions]
            names += [(q.name, q.name) for q in target.quantities.of_rows if q.started]
            for name, stored in names:
                block[name][known] = read(stored)[known]
        small = {name: value.array() for name, value in start.manifest.state.items()}
        for part in target.model.replicated:
            arrays = part.arrays()
            # one set of what all rows have in common, for every interleaved sub-chain
            part.take({n: np.broadcast_to(small[n], arrays[n].shape).copy() for n in small.keys() & arrays.keys()})
        for block in target.blocks():
            target.likelihood.refresh_derived_fields(block)
    except (ValueError, IndexError) as error:
        raise InputError(f"{start.path} is of another shape than the model: {error}") from error

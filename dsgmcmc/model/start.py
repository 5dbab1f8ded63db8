"""Initial states of chains: with fitted biases, or from an earlier chain (a warm start).

A warm start takes the state of an earlier chain on other ratings, for the rows and parameters that both chains have:
the factors, the rows' noise and prior parameters, and the shared parameters. Other parameters have their usual initial
values: new rows, momenta, and shifts of the rows' prior means, which are then drawn given the factors and the new
ratings.
"""

from __future__ import annotations

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.model.quantity import THETA
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.storage.store import Key, Snapshot
from dsgmcmc.types import Factor

#: Name of the array that marks the known rows of a block.
KNOWN = "known"


def take_start(target: FactorTarget, start: Snapshot) -> None:
    """Set the known rows and parameters of a target to those of `start`, for the blocks of this process.

    Parameters
    ----------
    target : FactorTarget
        The target in its usual initial state, before its first iteration.
    start : Snapshot
        A start with the blocks of this grid (`dsgmcmc.runs.warm_start`).

    Raises
    ------
    InputError
        If `start` is damaged, or its shapes do not fit the target.
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
        for part in target.replicated:
            arrays = part.arrays()
            # every interleaved sub-chain gets the same parameters
            part.take({n: np.broadcast_to(small[n], arrays[n].shape).copy() for n in small.keys() & arrays.keys()})
        for block in target.blocks():
            target.likelihood.refresh_derived_fields(block)
    except InputError:
        raise
    except (ValueError, IndexError) as error:
        raise InputError(f"{start.path} does not have the shapes of the model: {error}") from error


def fit_biases(target: FactorTarget) -> None:
    """Set biases to their conditional means, first in W, then in H. Collective.

    Biases account for most of the variance of ratings. If they had to learn it from gradients, the factors would move
    with them. This is done only for Gaussian ratings, where the conditional mean is known in closed form, and where an
    iteration uses all ratings.
    """
    likelihood, scratch, position = target.likelihood, target.scratch, target.positions[0]
    normal = likelihood.is_conditionally_gaussian()
    if not (normal and target.row_priors.biases and scratch and target.sweep_length == 1):
        return
    tau, (counts, _) = target.noise_precision, likelihood.counts(target.circulation)
    for factor in Factor:
        target.full_gradient(position, scratch, errors=False)
        for block in target.blocks():
            if block.factor == factor:
                prior, bias = block.prior(block), block[position][:, -1]
                strength = np.atleast_1d(prior.precision[-1])[-1]
                away = bias - prior.mean[-1] - (0.0 if prior.shift is None else prior.shift[:, -1])
                bias -= (tau * block[scratch][:, -1] + strength * away) / (tau * counts[block] + strength)

"""Weighted means and standard deviations of arrays over draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dsgmcmc.posterior.run import Run
from dsgmcmc.types import Array, Float64


class Estimates(NamedTuple):
    """Posterior means and standard deviations, float64 arrays of one shape."""

    mean: Float64
    sd: Float64


def spread_positions(run: Run, number: int) -> list[int]:
    """Return positions in `Run.draws` of at most `number` saved draws, spread over all of them."""
    number = min(number, len(run.draws))
    positions: list[int] = np.unique(
        np.linspace(0, len(run.draws) - 1, number).astype(int)
    ).tolist()
    return positions


def last_draws(chains: Sequence[Sequence[Array] | Array]) -> Array:
    """Stack the last draws of all chains, as many from every chain as the shortest chain has."""
    length = min(map(len, chains))
    return np.stack([np.asarray(chain[len(chain) - length :]) for chain in chains])


def saved_of_chains(run: Run, arrays: Sequence[Array]) -> Array:
    """Stack arrays at all saved draws, in the order of `Run.draws`: (chains, draws, ...).

    There are the last draws of each chain, as many as the shortest chain has.
    """
    by_chain: dict[int, list[Array]] = {}
    for (chain, _), array in zip(run.draws, arrays, strict=True):
        by_chain.setdefault(chain, []).append(array)
    return last_draws([*by_chain.values()])


def over_draws(run: Run, arrays_at: Callable[[int], Mapping[str, Float64]]) -> dict[str, Estimates]:
    """Return the posterior means and standard deviations of arrays by name.

    `arrays_at` returns the arrays at a saved draw, given its position in `Run.draws`. Differences
    from those of the first draw are small, so that variances keep their digits.
    """
    start = arrays_at(0)
    mean = {name: np.zeros_like(array) for name, array in start.items()}
    square = {name: np.zeros_like(array) for name, array in start.items()}
    for position, weight in enumerate(run.draw_weights.tolist()):
        for name, array in arrays_at(position).items():
            difference = array - start[name]
            mean[name] += weight * difference
            square[name] += weight * np.square(difference)
    estimates = {}
    for name, array in start.items():
        variance = np.maximum(square[name] - np.square(mean[name]), 0.0)
        estimates[name] = Estimates(array + mean[name], np.sqrt(variance))
    return estimates

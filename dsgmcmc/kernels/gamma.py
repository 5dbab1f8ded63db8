"""Counter-based gamma variables, by the rejection sampler of [Marsaglia & Tsang 2000].

Attempt a for row i uses counter 64 i + a, so a variable depends only on its key and row.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from dsgmcmc.kernels import jit
from dsgmcmc.kernels.philox import NoiseKey, noise_words, rounds
from dsgmcmc.types import Float64

ATTEMPTS = 64  # the probability that all are rejected is below 1e-80

_SOURCE = (
    '''
{gammas}
def gammas(shape, out, first, c1, c2, c3, k0, k1):
    """Standard gamma variables, shape at least 1 (smaller ones are treated as 1)."""
    mask = uint64(0xFFFFFFFF)
    shift = uint64(32)
    for i in range(shape.shape[0]):
        d = max(shape[i], 1.0) - 1.0 / 3.0
        c = 1.0 / math.sqrt(9.0 * d)
        out[i] = d
        for attempt in range({attempts}):
            number = (uint64(first) + uint64(i)) * uint64({attempts}) + uint64(attempt)
'''
    + rounds("x0, x1, x2, x3 = number & mask, (number >> shift) | c1, c2, c3", 12)
    + """
            radius = math.sqrt(-2.0 * math.log((float64(x0) + 0.5) * 2.0**-32))
            x = radius * math.cos(2.0 * math.pi * (float64(x1) + 0.5) * 2.0**-32)
            v = (1.0 + c * x) ** 3
            if v > 0.0 and math.log((float64(x2) + 0.5) * 2.0**-32) < 0.5 * x * x + d - d * v + d * math.log(v):
                out[i] = d * v
                break

"""
)


@functools.cache
def _module() -> Any:
    words = "uint64, " * 5
    return jit.compile_source(
        "gamma",
        _SOURCE.format(
            attempts=ATTEMPTS,
            gammas=jit.decorator(f"void(float64[::1], float64[::1], int64, {words[:-2]})", '{"contract"}'),
        ),
    )


def gammas(shape: Float64, key: NoiseKey) -> Float64:
    """Gamma variables of scale 1 for rows `key.first`, `key.first` + 1, ...

    Parameters
    ----------
    shape : (n,) float64
        Shape parameters, at least 1.
    key : NoiseKey
        Identifies the variables.

    Returns
    -------
    (n,) float64
    """
    out = np.empty(len(shape))
    _module().gammas(np.ascontiguousarray(shape), out, *noise_words(key))
    return out

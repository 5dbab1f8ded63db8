"""Uniform numbers addressed by row, column and number of the measurement of a pair.

Philox turns the row and the number of the measurement, under the seed's key, into a key of their
own, which numbers the columns (`dsgmcmc.kernels.philox` has the words of a counter).
"""

from __future__ import annotations

import numpy as np

from dsgmcmc.kernels.compiling import jit
from dsgmcmc.kernels.philox import NoiseKey, noise_words, rounds
from dsgmcmc.types import Float64, Int64

_SOURCE = f'''\
@exact_helper
def words(x0, x1, x2, x3, k0, k1):
    """The four words of a counter."""
    mask = uint64(0xFFFFFFFF)
    shift = uint64(32)
{rounds("", 4)}    return x0, x1, x2, x3


@kernel("void(int64[::1], int64[::1], int64[::1], float64[::1], int64, uint64, uint64, uint64,"
        " uint64, uint64)", EXACT)
def uniforms(rows, columns, repeats, out, first, c1, c2, c3, k0, k1):
    """Uniform numbers from 52 bits."""
    for r in range(rows.size):
        repeat = uint64(repeats[r]) & uint64(0xFFFF)
        x0, x1, x2, x3 = words(uint64(rows[r]), repeat | c1, c2, c3, k0, k1)
        x0, x1, x2, x3 = words(uint64(columns[r]), c1, x2, x3, x0, x1)
        bits = (x0 << uint64(20)) | (x1 >> uint64(12))
        out[r] = (float64(bits) + 0.5) * 2.0**-52
'''


def uniforms(rows: Int64, columns: Int64, repeats: Int64, key: NoiseKey) -> Float64:
    """Return a number in (0, 1) for every measurement, (n,) float64.

    Parameters
    ----------
    rows, columns : (n,) int64
        Global rows and columns, below 2^31.
    repeats : (n,) int64
        Numbers of the measurements of a pair, from 0.
    key : NoiseKey
    """
    out = np.empty(len(rows))
    module = jit.compile_source("by_pair", _SOURCE)
    module.uniforms(rows, columns, repeats, out, *noise_words(key))
    return out

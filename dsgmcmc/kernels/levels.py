"""Probabilities and moments of ordered levels, whose model is in `dsgmcmc.kernels.ordinal`."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from dsgmcmc.kernels import jit
from dsgmcmc.kernels.jit import indented
from dsgmcmc.kernels.ordinal import FUNCTIONS, LANES, Link
from dsgmcmc.types import Array, Float32, Float64, Int32

#: Lines that compute the smaller of F(z) and 1 - F(z), with z = s (C_{r-1} - eta).
_TAILS = {
    "logit": """\
e = exp32(abs(z))
small = float32(1) / (float32(1) + e)
""",
    "probit": """\
a = abs(z)
small = float32(0.398942280) * exp32(float32(-0.5) * a * a) * mills(min(a, float32(1e9)))
""",
}


_PROBABILITIES = '''
{decorator}
def probabilities(eta, scales, cuts, owner, out):
    """Probabilities of all levels, {lanes} ratings side by side, by the thresholds of everyone's owner."""
    R = out.shape[1]
    tile = np.zeros({size}, np.float32)
    for block in range(0, eta.shape[0], {lanes}):
        here = min({lanes}, eta.shape[0] - block)
        for lane in range(here):
            tile[lane] = eta[block + lane]
            tile[lane + {lanes}] = scales[block + lane]
        for lane in range({lanes}):
            tile[lane + {below}] = float32(0)
            tile[lane + {above}] = float32(1)
        for r in range(R - 1):
            for lane in range(here):
                tile[lane + {cut}] = cuts[owner[block + lane], r]
            for lane in range({lanes}):
                z = tile[lane + {lanes}] * (tile[lane + {cut}] - tile[lane])
{tails}
                up = small if z > float32(0) else float32(1) - small
                down = float32(1) - small if z > float32(0) else small
                tile[lane + {p}] = tile[lane + {above}] - up if z > float32(0) else down - tile[lane + {below}]
                tile[lane + {below}] = down
                tile[lane + {above}] = up
            for lane in range(here):
                out[block + lane, r] = tile[lane + {p}]
        for lane in range(here):
            out[block + lane, R - 1] = tile[lane + {above}]


{moments}
def moments(p, values, mean, variance):
    """Mean and variance of every row's distribution."""
    for q in range(p.shape[0]):
        total = float32(0)
        for r in range(p.shape[1]):
            total += p[q, r] * values[r]
        spread = float32(1e-12)
        for r in range(p.shape[1]):
            spread += p[q, r] * (values[r] - total) * (values[r] - total)
        mean[q] = total
        variance[q] = spread
'''


@functools.cache
def _levels(link: Link) -> Any:
    source = _PROBABILITIES.format(
        decorator=jit.decorator(
            "void(float32[::1], float32[::1], float32[:, ::1], int32[::1], float32[:, ::1])", '{"contract"}'
        ),
        moments=jit.decorator("void(float32[:, ::1], float32[::1], float32[::1], float32[::1])", '{"contract"}'),
        tails="\n".join(indented(_TAILS[link], 4)),
        lanes=LANES,
        size=6 * LANES,
        below=2 * LANES,
        above=3 * LANES,
        p=4 * LANES,
        cut=5 * LANES,
    )
    return jit.compile_source(f"levels_{link}", FUNCTIONS + "\n\n" + source)


def level_probabilities(
    link: Link, eta: Float32, scale: Float32, thresholds: Array, owner: Int32 | None = None
) -> Float32:
    """Compute the probabilities of all levels, (q, R) float32.

    Parameters
    ----------
    link : {"logit", "probit"}
    eta, scale : (q,) float32
    thresholds : (R - 1,), or (m, R - 1) float
        Of all, or of m owners.
    owner : (q,) int32, optional
        Whose thresholds each has.
    """
    cuts = np.atleast_2d(thresholds).astype(np.float32)
    found = np.empty((len(eta), cuts.shape[1] + 1), np.float32)
    owner = np.zeros(len(eta), np.int32) if owner is None else np.ascontiguousarray(owner, np.int32)
    _levels(link).probabilities(np.ascontiguousarray(eta), np.ascontiguousarray(scale), cuts, owner, found)
    return found


def level_moments(p: Float32, values: Float64) -> tuple[Float32, Float32]:
    """Mean and variance, (q,) float32 each, of distributions (q, R) over levels of these values."""
    mean, variance = np.empty(len(p), np.float32), np.empty(len(p), np.float32)
    _levels("logit").moments(np.ascontiguousarray(p), values.astype(np.float32), mean, variance)
    return mean, variance

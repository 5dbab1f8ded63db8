r"""Polya-Gamma variables PG(1, z), one for each rating, at random numbers of its row and column.

[Polson, Scott & Windle 2013, section 4]. PG(1, z) is X / 4, where X has the density proportional to
exp(-h^2 x / 2) sum_n (-1)^n a_n(x), with h = |z| / 2. Let t = `SPLIT`. X is proposed from

    x > t     t + Exp(rate r), r = pi^2 / 8 + h^2 / 2, with probability p(h)
    x <= t    the inverse Gaussian law of mean 1 / h and shape 1, given x <= t

and accepted if a uniform number u is below 1 - a_1 / a_0 + a_2 / a_0 - ... Partial sums lie on
either side of the limit in turns. All are above `CERTAIN`, so that most draws need no term.
Another uniform number is below p(h) or not. A polynomial with a known error decides nearly always.

Both proposals are computed for many draws side by side, without branches. Those that are accepted
make room for others, so that no place is empty until the last ratings of a cell.

Philox turns the row, under the seed's key, into a key of the row's own, which numbers the columns
(`dsgmcmc.kernels.philox` has the words of a counter). If a pair has several ratings, the second and
later ones have keys of their own. A block of four words serves one attempt: where an inverse
Gaussian variable has two roots, the number that has chosen between them is uniform again on its
part, and is the u that accepts.

[Michael, Schucany & Haas 1976] Generating random variates using transformations with multiple
roots. The American Statistician 30.
[Polson, Scott & Windle 2013] Bayesian inference for logistic models using Polya-Gamma latent
variables. JASA 108.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from dsgmcmc.kernels.compact_ratings import COLUMN
from dsgmcmc.kernels.compiling import jit
from dsgmcmc.kernels.philox import NoiseKey, noise_words, rounds, transform
from dsgmcmc.types import Array, Float32

#: Where the two proposals meet.
SPLIT = 0.64
#: Coefficients of p(h) for h up to `NEAR`, with an error below 1.5e-5.
TAIL = (
    0.5776825,
    3.6920127e-4,
    -0.13248949,
    5.9801619e-3,
    5.6915553e-3,
    6.7333342e-3,
    -4.2275134e-3,
    9.4898319e-4,
    -9.8695178e-5,
    4.0222649e-6,
)
NEAR = 5.0
#: How far p(h) is at most from the polynomial, and from 0 beyond `NEAR`.
MARGIN, FAR = 2e-5, 0.0014
#: Below this, u is below every partial sum: a_1 / a_0 is largest, 0.00580, at x = t.
CERTAIN = 0.994
#: Draws whose proposals are computed side by side.
LENGTH = 256
#: Places of arrays in the buffer of counters, in units of LENGTH: columns are the first.
ATTEMPT, ROW, KEY, PLACE = 1, 2, 3, 4
#: Places of arrays in the buffer of floats: h is the first.
IN_BELOW, X, U, ABOVE, BELOW, T = 1, 2, 3, 4, 5, 6
#: Largest h; of one that is not finite the chain has diverged.
LARGEST = 1e6
#: Lines that evaluate the polynomial.
_HORNER = "".join(f"        p = p * h + float32({coefficient})\n" for coefficient in TAIL[-2::-1])
_SOURCE = f'''\
@exact_helper
def words(x0, x1, x2, x3, k0, k1):
    """The four words of a counter."""
    mask = uint64(0xFFFFFFFF)
    shift = uint64(32)
{rounds("", 4)}    return x0, x1, x2, x3


@exact_helper
def tail(h):
    """p(h), the probability of a proposal above the split."""
    rate = math.pi**2 / 8.0 + 0.5 * h * h
    above = math.pi / (2.0 * rate) * math.exp(-rate * {SPLIT})
    root = 1.0 / math.sqrt(2.0 * {SPLIT})
    left = math.exp(-h) * math.erfc((1.0 - {SPLIT} * h) * root)
    right = math.exp(h) * math.erfc((1.0 + {SPLIT} * h) * root)
    return above / (above + left + right)


@exact_helper
def is_accepted(u, x):
    """Whether u is below the alternating sum of a_n / a_0."""
    if u < {CERTAIN}:
        return True
    rate = 0.5 * math.pi**2 * x if x > {SPLIT} else 2.0 / x
    total = 1.0
    for n in range(1, 64):
        term = (2 * n + 1) * math.exp(-n * (n + 1) * rate)
        if n & 1:
            total -= term
            if u <= total:
                return True
        else:
            total += term
            if u > total:
                return False
    return True


@exact_helper
def propose(counters, floats, count):
    """Compute both proposals of the first `count` draws, and choose between them.

    Places up to the next multiple of 16 are computed, too, and not read.
    """
    mask = uint64(0xFFFFFFFF)
    shift = uint64(32)
    for m in range((count + uint64(15)) & ~uint64(15)):
        row = counters[m + uint64({ROW * LENGTH})]
        key = counters[m + uint64({KEY * LENGTH})]
        k0 = key & mask
        k1 = key >> shift
        x0 = counters[m]
        x1 = counters[m + uint64({ATTEMPT * LENGTH})]
{rounds("x2, x3 = row & mask, row >> shift", 8)}        h = floats[m]
        square = h * h
        r1 = radius(uint32(x1))
        r2 = radius(uint32(x2))
        e = float32(0.5) * r1 * r1
        above = float32({SPLIT}) + e / (float32({math.pi**2 / 8}) + float32(0.5) * square)
        # h = 0, the law of 1 / z^2 with z^2 > 1 / t, is thinned by exp(-h^2 x / 2)
        root = float32(1) / (float32(1) + float32({SPLIT}) * e)
        thinned = float32({SPLIT}) * root * root
        stays = float32({SPLIT}) * e * e + square * thinned <= r2 * r2
        # the two roots of [Michael, Schucany & Haas 1976], of which u chooses one
        u = (float32(x3) + float32(0.5)) * float32(2.0**-32)
        quarter = quadrant(uint32(x2))
        a = angle(uint32(x2), quarter)
        z = r1 * (sine(a) if (quarter & uint32(1)) != uint32(0) else cosine(a))
        s = z * z / (float32(2) * h)
        ratio = float32(1) / (float32(1) + s + math.sqrt(s * (float32(2) + s)))
        chosen = u * (float32(1) + ratio)
        is_first = chosen <= float32(1)
        inverse = (ratio if is_first else float32(1) / ratio) / h
        free = chosen if is_first else (chosen - float32(1)) / ratio
        is_near = h < float32({1 / SPLIT})
        kept = stays if is_near else inverse <= float32({SPLIT})
        below = thinned if is_near else inverse
        below = below if kept else float32(0)
        free = u if is_near else free
        t = (float32(x0) + float32(0.5)) * float32(2.0**-32)
        p = float32({TAIL[-1]})
{_HORNER}        low = p - float32({MARGIN}) if h < float32({NEAR}) else float32(0)
        high = p + float32({MARGIN}) if h < float32({NEAR}) else float32({FAR})
        may_be_above = floats[m + uint64({IN_BELOW * LENGTH})] == float32(0)
        is_above = (t < low) & may_be_above
        is_open = (t >= low) & (t <= high) & may_be_above
        x = above if is_above else below
        floats[m + uint64({X * LENGTH})] = float32(-1) if is_open else x
        floats[m + uint64({U * LENGTH})] = u if is_above else free
        floats[m + uint64({ABOVE * LENGTH})] = above
        floats[m + uint64({BELOW * LENGTH})] = below
        floats[m + uint64({T * LENGTH})] = t


@exact_helper
def accept(counters, floats, count, out):
    """Store the accepted ones of the first `count` draws; return how many are left, in front."""
    left = uint64(0)
    for m in range(count):
        x = floats[m + uint64({X * LENGTH})]
        if x < float32(0):
            is_above = floats[m + uint64({T * LENGTH})] < tail(float64(floats[m]))
            x = floats[m + uint64({ABOVE * LENGTH} if is_above else {BELOW * LENGTH})]
        is_proposed = x > float32(0)
        is_drawn = is_proposed
        u = floats[m + uint64({U * LENGTH})]
        if u >= float32({CERTAIN}):
            is_drawn &= is_accepted(float64(u), float64(x))
        out[counters[m + uint64({PLACE * LENGTH})]] = float32(0.25) * x
        for k in range(uint64(0), uint64({(PLACE + 1) * LENGTH}), uint64({LENGTH})):
            counters[left + k] = counters[m + k]
        counters[left + uint64({ATTEMPT * LENGTH})] += uint64(1)
        floats[left] = floats[m]
        # a proposal below the split is repeated until one is kept
        floats[left + uint64({IN_BELOW * LENGTH})] = float32(0 if is_proposed else 1)
        left += uint64(0 if is_drawn else 1)
    return left


@kernel("void(int64[::1], uint16[::1], float32[::1], float32[::1], int64, int64, "
        "uint64, uint64, uint64, uint64, uint64)", EXACT)
def draw(indptr, indices, z, out, first_column, first, c1, c2, c3, k0, k1):
    """Draw the weights of a cell's ratings."""
    wide_vectors()
    mask = uint64(0xFFFFFFFF)
    shift = uint64(32)
    halves = indices.size > z.size
    counters = np.zeros({(PLACE + 1) * LENGTH}, uint64)
    floats = np.zeros({(T + 1) * LENGTH}, float32)
    count = uint64(0)
    for i in range(indptr.size - 1):
        number = uint64(first + i)
        x0, x1, x2, x3 = words(number & mask, (number >> shift) | c1, c2, c3, k0, k1)
        last = uint64(0xFFFFFFFF)  # no column
        repeat = uint64(0)
        for r in range(indptr[i], indptr[i + 1]):
            j = uint64(first_column) + column(indices, halves, uint64(r))
            if j == last or repeat > uint64(0):
                repeat = (repeat + uint64(1)) & uint64(0xFFFF) if j == last else uint64(0)
                # a row is below 2^31: the bits of its upper half number the repeats
                x0, x1, x2, x3 = words(number & mask, repeat | c1, c2, c3, k0, k1)
            last = j
            counters[count] = j
            counters[count + uint64({ATTEMPT * LENGTH})] = c1
            counters[count + uint64({ROW * LENGTH})] = x2 | x3 << shift
            counters[count + uint64({KEY * LENGTH})] = x0 | x1 << shift
            counters[count + uint64({PLACE * LENGTH})] = uint64(r)
            h = float32(0.5) * abs(z[r])
            floats[count] = h if h < float32({LARGEST}) else float32({LARGEST})
            floats[count + uint64({IN_BELOW * LENGTH})] = float32(0)
            count += uint64(1)
            if count == uint64({LENGTH}):
                propose(counters, floats, count)
                count = accept(counters, floats, count, out)
    while count > uint64(0):
        propose(counters, floats, count)
        count = accept(counters, floats, count, out)


@kernel("float64(float64)", EXACT)
def tail_probability(h):
    """p(h)."""
    return tail(h)
'''


@functools.cache
def _module() -> Any:
    return jit.compile_source("polya_gamma", COLUMN + transform() + "\n\n" + _SOURCE)


def draw_weights(
    pattern: tuple[Array, ...], z: Float32, *, first_column: int, key: NoiseKey
) -> Float32:
    """Draw PG(1, z) for every rating of a cell.

    Parameters
    ----------
    pattern : tuple of arrays
        ``indptr`` and ``indices`` from `dsgmcmc.kernels.compact_ratings.kernel_arguments`.
    z : (nnz,) float32
        Parameters of the ratings, in the order of the cell.
    first_column : int
        Number, in its factor, of the cell's first column.
    key : NoiseKey
        Key of the random numbers; `key.first` is the number of the cell's first row.

    Returns
    -------
    (nnz,) float32
    """
    out = np.empty(len(z), np.float32)
    _module().draw(*pattern, z, out, first_column, *noise_words(key))
    return out

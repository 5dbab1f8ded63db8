r"""Polya-Gamma variables PG(1, z), one for each rating, at random numbers of its row and column.

[Polson, Scott & Windle 2013, section 4]. PG(1, z) is X / 4, where X has the density proportional to
exp(-h^2 x / 2) sum_n (-1)^n a_n(x), with h = |z| / 2. Let t = `SPLIT`. X is proposed from

    x > t     t + Exp(rate r), r = pi^2 / 8 + h^2 / 2, with probability p(h)
    x <= t    the inverse Gaussian law of mean 1 / h and shape 1, given x <= t

and accepted if a uniform number u is below 1 - a_1 / a_0 + a_2 / a_0 - ... Partial sums lie on
either side of the limit in turns. All are above `CERTAIN`, so that most draws need no term.
p(h) decreases, and a table of it bounds it between two nodes.

Philox turns the row, under the seed's key, into a key of the row's own, which numbers the columns
(`dsgmcmc.kernels.philox` has the words of a counter). If a pair has several ratings, the second and
later ones have keys of their own. A block of four words serves one proposal.

[Polson, Scott & Windle 2013] Bayesian inference for logistic models using Polya-Gamma latent
variables. JASA 108.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from dsgmcmc.kernels.compact_ratings import COLUMN
from dsgmcmc.kernels.compiling import jit
from dsgmcmc.kernels.philox import NoiseKey, noise_words, rounds
from dsgmcmc.types import Array, Float32, Float64

#: Where the two proposals meet.
SPLIT = 0.64
#: Nodes of the table of p(h), and their distance; p(h) beyond the last is below 1e-56.
NODES = 1024
SPACING = 1 / 48
#: Below this, u is below every partial sum: a_1 / a_0 is largest, 0.00580, at x = t.
CERTAIN = 0.994
#: Largest number of proposals; the probability that all are rejected is below 1e-100.
ATTEMPTS = 1024

_SOURCE = f'''\
{COLUMN}@exact_helper
def words(x0, x1, x2, x3, k0, k1):
    """The four words of a counter."""
    mask = uint64(0xFFFFFFFF)
    shift = uint64(32)
{rounds("", 4)}    return x0, x1, x2, x3


@exact_helper
def fraction(word):
    """A word as a number between 0 and 1."""
    return (float64(word) + 0.5) * 2.0**-32


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
def is_tail(u, h, table):
    """Whether u is below p(h)."""
    node = int64(h * {1 / SPACING})
    if node >= {NODES - 1} or u > table[node]:
        return False
    if u < table[node + 1]:
        return True
    return u < tail(h)


@exact_helper
def accepted(u, x):
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
def polya_gamma(z, column, c1, c2, c3, k0, k1, table):
    """A draw of PG(1, z)."""
    h = 0.5 * abs(z)
    below = False
    for attempt in range({ATTEMPTS}):
        x0, x1, x2, x3 = words(uint64(column), uint64(attempt) | c1, c2, c3, k0, k1)
        if not below and is_tail(fraction(x0), h, table):
            x = {SPLIT} - math.log(fraction(x1)) / (math.pi**2 / 8.0 + 0.5 * h * h)
        elif h < {1 / SPLIT}:
            # h = 0, the law of 1 / z^2 with z^2 > 1 / t, is thinned by exp(-h^2 x / 2)
            below = True
            e = -math.log(fraction(x1))
            x = {SPLIT} / (1.0 + {SPLIT} * e) ** 2
            if fraction(x2) > math.exp(-0.5 * ({SPLIT} * e * e + h * h * x)):
                continue
        else:
            below = True
            z2 = -2.0 * math.log(fraction(x1)) * math.cos(2.0 * math.pi * fraction(x2)) ** 2
            a = z2 / (2.0 * h)
            x = 1.0 / (h * (1.0 + a + math.sqrt(a * (2.0 + a))))
            if fraction(x3) * (1.0 + h * x) > 1.0:
                x = 1.0 / (h * h * x)
            if x > {SPLIT}:
                continue
            # the uniform number of the acceptance is of the attempt with the highest bit set
            high = uint64(attempt + {ATTEMPTS}) | c1
            x0, x1, x2, x3 = words(uint64(column), high, c2, c3, k0, k1)
        if accepted(fraction(x3), x):
            return 0.25 * x
        below = False
    return 0.25 if h < 1e-4 else math.tanh(h) / (4.0 * h)


@kernel("void(int64[::1], uint16[::1], float32[::1], float32[::1], float64[::1], int64, int64, "
        "uint64, uint64, uint64, uint64, uint64)", EXACT)
def draw(indptr, indices, z, out, table, first_column, first, c1, c2, c3, k0, k1):
    """Draw the weights of a cell's ratings."""
    mask = uint64(0xFFFFFFFF)
    halves = indices.size > z.size
    for i in range(indptr.size - 1):
        row = uint64(first + i)
        x0, x1, x2, x3 = words(row & mask, (row >> uint64(32)) | c1, c2, c3, k0, k1)
        last = uint64(0xFFFFFFFF)  # no column
        repeat = uint64(0)
        for r in range(indptr[i], indptr[i + 1]):
            j = uint64(first_column) + column(indices, halves, uint64(r))
            if j == last or repeat > uint64(0):
                repeat = (repeat + uint64(1)) & uint64(0xFFFF) if j == last else uint64(0)
                # a row is below 2^31: the bits of its upper half number the repeats
                x0, x1, x2, x3 = words(row & mask, repeat | c1, c2, c3, k0, k1)
            last = j
            out[r] = polya_gamma(float64(z[r]), j, c1, x2, x3, x0, x1, table)


@kernel("float64(float64)", EXACT)
def tail_probability(h):
    """p(h)."""
    return tail(h)
'''


@functools.cache
def _module() -> Any:
    return jit.compile_source("polya_gamma", _SOURCE)


@functools.cache
def _table() -> Float64:
    """p(h) at the nodes."""
    probability = _module().tail_probability
    return np.array([probability(node * SPACING) for node in range(NODES)])


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
    _module().draw(*pattern, z, out, _table(), first_column, *noise_words(key))
    return out

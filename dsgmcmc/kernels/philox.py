"""Counter-based normals and gamma variables: a random number is a function of its key and index.

Philox 4x32-10 [Salmon 2011] turns a counter of four words and a key of two words into four random
words. The counter contains the index of the element in its factor (e = global row * D + k); the key
is the seed. So every process can compute any slice of the noise, with identical bits.

16 counters are computed side by side. Element e belongs to group e >> 6 of 64 elements and 16
counters. It is word (e >> 4) & 3 of counter c = (group << 4) + (e & 15). The counter's words are

    0   c mod 2^32
    1   c >> 32 (16 bits), purpose (8), factor (8)
    2   iteration mod 2^32
    3   iteration >> 32 (16), chain (16)

The Box-Muller transform turns words 0 and 1 into two normals, and words 2 and 3 into two more.
Normals reach 6.76 standard deviations. Gamma variables are made by the rejection sampler of
[Marsaglia & Tsang 2000]. Attempt a for row i uses counter 64 i + a.

The functions from `log_series` to `uniform` are compiled into kernels, and never called from
Python.

[Marsaglia & Tsang 2000] A simple method for generating gamma variables. ACM Trans. Math. Softw. 26.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy import float32, int32, uint32
from numpy.typing import NDArray

from dsgmcmc.kernels.compiling import jit
from dsgmcmc.types import Float64


class NoiseKey(NamedTuple):
    """Key of the numbers of elements `first`, `first` + 1, ... of a factor in an iteration.

    Attributes
    ----------
    first : int
        Index (global row * D + k) of the first element, below 2^49.
    seed : int
        Seed of the run, below 2^64.
    chain, purpose, iteration, factor : int
        Below 2^16, 2^8, 2^48 and 2^8.
    """

    first: int
    seed: int
    chain: int
    purpose: int
    iteration: int
    factor: int


_BITS = NoiseKey(first=49, seed=64, chain=16, purpose=8, iteration=48, factor=8)


def noise_words(key: NoiseKey) -> tuple[int, int, int, int, int, int]:
    """Pack a key for the kernels: the first element, words of the counter, and the key of Philox.

    Returns
    -------
    first, c1, c2, c3, k0, k1 : int
        The first element; the second, third and fourth word of the counter; and the two words of
        the key. The kernels add the high bits of the counter number to `c1`.

    Raises
    ------
    ValueError
        If a member is negative or too large for its bits.
    """
    first, seed, chain, purpose, iteration, factor = key
    excess = first >> 49 | seed >> 64 | chain >> 16 | purpose >> 8 | iteration >> 48 | factor >> 8
    if excess:  # a negative number shifts to -1
        for name, value, bits in zip(NoiseKey._fields, key, _BITS, strict=True):
            if not 0 <= value < 1 << bits:
                raise ValueError(f"noise {name} = {value} is outside [0, 2^{bits})")
    c1 = purpose << 16 | factor << 24
    c2 = iteration & 0xFFFFFFFF
    c3 = iteration >> 32 | chain << 16
    return first, c1, c2, c3, seed & 0xFFFFFFFF, seed >> 32


def log_series(t: Any) -> Any:
    """Compute (log(1 + t) - t + t^2 / 2) / t^3 by Cephes' polynomial.

    t is between sqrt(1/2) - 1 and sqrt(2) - 1.
    """
    p = float32(7.0376836292e-2)
    p = p * t + float32(-1.1514610310e-1)
    p = p * t + float32(1.1676998740e-1)
    p = p * t + float32(-1.2420140846e-1)
    p = p * t + float32(1.4249322787e-1)
    p = p * t + float32(-1.6668057665e-1)
    p = p * t + float32(2.0000714765e-1)
    p = p * t + float32(-2.4999993993e-1)
    return p * t + float32(3.3333331174e-1)


def radius(word: Any) -> Any:
    """Compute sqrt(-2 log u) for u = (word + 1/2) 2^-32, which is precise near zero."""
    u = float32((float32(word) + float32(0.5)) * float32(2.0**-32))
    # the mantissa goes from sqrt(1/2) to sqrt(2)
    bits = int32(u.view(int32) - int32(0x3F3504F3))
    exponent = float32(bits >> int32(23))
    mantissa = int32((bits & int32(0x007FFFFF)) + int32(0x3F3504F3)).view(float32)
    # 1 - u, which u has rounded off
    below_one = (float32(uint32(~word)) + float32(0.5)) * float32(2.0**-32)
    t = -below_one if exponent == float32(0) else mantissa - float32(1)
    p = log_series(t)
    square = t * t
    rest = p * t * square + exponent * float32(-2.12194440e-4) - float32(0.5) * square
    log = t + rest + exponent * float32(0.693359375)
    return math.sqrt(max(float32(-2) * log, float32(0)))


def quadrant(word: Any) -> Any:
    """Round a word, a fraction of a full turn, to quarter turns."""
    return uint32(uint32(word + uint32(0x20000000)) >> uint32(30))


def angle(word: Any, quarter: Any) -> Any:
    """Compute 2 pi (word + 1/2) 2^-32 minus the quarter turns: from -pi/4 to pi/4."""
    rest = uint32(word - uint32(quarter << uint32(30))).view(int32)
    return (float32(rest) + float32(0.5)) * float32(2 * math.pi * 2.0**-32)


def sine(a: Any) -> Any:
    """Sine from -pi/4 to pi/4, Cephes' polynomial."""
    square = a * a
    p = float32(-1.9515295891e-4)
    p = p * square + float32(8.3321608736e-3)
    p = p * square + float32(-1.6666654611e-1)
    return p * square * a + a


def cosine(a: Any) -> Any:
    """Cosine from -pi/4 to pi/4, Cephes' polynomial."""
    square = a * a
    p = float32(2.443315711809948e-5)
    p = p * square + float32(-1.388731625493765e-3)
    p = p * square + float32(4.166664568298827e-2)
    return p * square * square - float32(0.5) * square + float32(1)


def turned(value: Any, quarter: Any) -> Any:
    """Change the sign in the third and fourth quarter."""
    return uint32(float32(value).view(uint32) ^ uint32((quarter & uint32(2)) << uint32(30))).view(
        float32
    )


def uniform(word: Any) -> Any:
    """Compute (k + 1/2) 2^-23, exact in float32, from the upper 23 bits k of a word."""
    return (float32(uint32(word) >> uint32(9)) + float32(0.5)) * float32(2.0**-23)


def rounds(first: str, indent: int) -> str:
    """Write out ten rounds of Philox 4x32 on x0 .. x3, which the line `first` sets.

    The numbers are uint64 below 2^32. Loops, and functions that return several values, would keep
    the compiler from computing 16 counters at once.
    """
    lines = [first]
    for step in range(10):
        lines += [
            "p0 = uint64(0xD2511F53) * x0",
            "p1 = uint64(0xCD9E8D57) * x2",
            f"x0 = (p1 >> shift) ^ x1 ^ ((k0 + uint64({step * 0x9E3779B9:#x})) & mask)",
            "x1 = p1 & mask",
            f"x2 = (p0 >> shift) ^ x3 ^ ((k1 + uint64({step * 0xBB67AE85:#x})) & mask)",
            "x3 = p0 & mask",
        ]
    return "".join(" " * indent + line + "\n" for line in lines)


def _pair(x: str, y: str, word: int) -> str:
    """Lines of the Box-Muller transform of two words: two of the four rows of 16 in a group."""
    return f"""\
            word = uint32({y})
            quarter = quadrant(word)
            a = angle(word, quarter)
            s = sine(a)
            c = cosine(a)
            r = radius(uint32({x}))
            odd = (quarter & uint32(1)) != uint32(0)
            row[lane + {16 * word}] = r * turned(c if odd else s, quarter)
            row[lane + {16 * word + 16}] = r * turned(s if odd else c, uint32(quarter + uint32(1)))
"""


def transform() -> str:
    """Return the source of the transform; it is read on demand, because `inspect` takes time.

    Only the fast-math flag `contract` is set, so that the bits do not depend on the kernel that
    contains it.
    """
    return _helpers(log_series, radius, quadrant, angle, sine, cosine, turned)


def _helpers(*functions: Callable[..., Any]) -> str:
    return "\n\n".join("@exact_helper\n" + inspect.getsource(function) for function in functions)


def _groups(name: str, numbers: str) -> str:
    """Source of a kernel that fills groups of 64; `numbers` makes four elements from x0 to x3."""
    return f'''

@kernel("void(float32[::1], int64, int64, uint64, uint64, uint64, uint64, uint64)", EXACT)
def {name}(out, group, count, c1, c2, c3, k0, k1):
    """Fill `out` with the numbers of `count` groups of 64, from number `group` on."""
    wide_vectors()
    mask = uint64(0xFFFFFFFF)
    shift = uint64(32)
    for g in range(count):
        number = uint64(group + g) << uint64(4)
        low = number & mask
        high = (number >> shift) | c1
        row = out[g << 6 : (g + 1) << 6]
        for lane in range(16):
{rounds("x0, x1, x2, x3 = low + uint64(lane), high, c2, c3", 12)}{numbers}'''


_GROUPS = _groups("normal_groups", _pair("x0", "x1", 0) + _pair("x2", "x3", 2))
_UNIFORMS = _groups(
    "uniform_groups",
    "".join(f"            row[lane + {16 * word}] = uniform(x{word})\n" for word in range(4)),
)

#: Random numbers that a formula may read: the kernel that makes them, and bits that their counters
#: have in place of the factor's, and that no factor has.
STREAMS = {"z": ("normal_groups", 0), "z2": ("normal_groups", 2), "u": ("uniform_groups", 4)}


@functools.cache
def groups_module(name: str = "normal_groups") -> ModuleType:
    """Return the module with a kernel in `STREAMS`, for kernels that make their own noise.

    The module is compiled once and linked into these kernels, which saves each of them a second of
    compilation.
    """
    if name == "uniform_groups":
        return jit.compile_source("philox_uniforms", _helpers(uniform) + _UNIFORMS)
    return jit.compile_source("philox_groups", transform() + _GROUPS)


def normals(out: NDArray[np.float32], key: NoiseKey) -> None:
    """Fill an array with standard normals, which depend on the key and their elements alone.

    Parameters
    ----------
    out : (n,) float32, C-contiguous
        out[i] is set to the normal of element `key.first` + i.
    key : NoiseKey

    Raises
    ------
    ValueError
        If a member of the key is negative or too large.
    """
    first, *words = noise_words(key)
    in_group = first & 63
    groups = (in_group + len(out) + 63) >> 6
    numbers = np.empty(groups << 6, np.float32)
    groups_module().normal_groups(numbers, first >> 6, groups, *words)
    out[:] = numbers[in_group : in_group + len(out)]


#: The probability that all are rejected is below 1e-80; of truncated variables, below 1e-5 at shape
#: 2, and 1e-9 from shape 5 on.
ATTEMPTS = 64

_GAMMAS = f'''\
@kernel(
    "void(float64[::1], float64[::1], float64[::1], int64, uint64, uint64, uint64, uint64, uint64)",
    EXACT,
)
def gammas(shape, most, out, first, c1, c2, c3, k0, k1):
    """Standard gamma variables of at most `most`, by rejection.

    The shape is at least 1 (smaller ones are treated as 1). Far below the mode, `most` less an
    exponential variable is proposed, as in `dsgmcmc.model.rounding.truncated_gamma`.
    """
    mask = uint64(0xFFFFFFFF)
    shift = uint64(32)
    for i in range(shape.shape[0]):
        power = max(shape[i], 1.0) - 1.0
        d = power + 2.0 / 3.0
        c = 1.0 / math.sqrt(9.0 * d)
        is_below_mode = most[i] < max(0.75 * power, power - 0.5 * math.sqrt(power))
        out[i] = min(d, most[i])
        for attempt in range({ATTEMPTS}):
            number = (uint64(first) + uint64(i)) * uint64({ATTEMPTS}) + uint64(attempt)
{rounds("x0, x1, x2, x3 = number & mask, (number >> shift) | c1, c2, c3", 12)}
            if is_below_mode:
                part = -math.log((float64(x0) + 0.5) * 2.0**-32) / (power - most[i])
                if part < 1.0:
                    level = math.log((float64(x2) + 0.5) * 2.0**-32)
                    if level < power * (math.log1p(-part) + part):
                        out[i] = most[i] * (1.0 - part)
                        break
                continue
            radius = math.sqrt(-2.0 * math.log((float64(x0) + 0.5) * 2.0**-32))
            x = radius * math.cos(2.0 * math.pi * (float64(x1) + 0.5) * 2.0**-32)
            v = (1.0 + c * x) ** 3
            if v > 0.0 and d * v <= most[i]:
                level = math.log((float64(x2) + 0.5) * 2.0**-32)
                if level < 0.5 * x * x + d - d * v + d * math.log(v):
                    out[i] = d * v
                    break
'''


def gammas(shape: Float64, key: NoiseKey, most: Float64 | None = None) -> Float64:
    """Return gamma variables of scale 1 for rows `key.first`, `key.first` + 1, ...

    Parameters
    ----------
    shape : (n,) float64
        Shape parameters, at least 1.
    key : NoiseKey
        Key of the variables.
    most : (n,) float64, optional
        Where the distributions are truncated. A variable that would be below it without a bound is
        the same with it, unless the bound is far below the mode.

    Returns
    -------
    (n,) float64
    """
    out = np.empty(len(shape))
    if most is None:
        most = np.full(len(shape), np.inf)
    kernel = jit.compile_source("gamma", _GAMMAS).gammas
    kernel(np.ascontiguousarray(shape), np.ascontiguousarray(most), out, *noise_words(key))
    return out

"""Ordered levels: gradients by factors, scales and thresholds, and probabilities of levels.

A rating is of level r = 0 .. R - 1 with probability F(z_u) - F(z_l), z_u = s (C_r - eta), z_l = s
(C_{r-1} - eta). F is the logistic distribution function, C_{-1} = -inf, C_{R-1} = inf, and s = s_i
s'_j is 1 or the product of the scales of row and column. With du = d log p / d z_u and dl = d log p
/ d z_l,

    d log p / d eta = -s (du + dl)
    d log p / d C_r = s du
    d log p / d log s = z_u du + z_l dl

Thresholds of +-1e30 represent +-infinity. With E = exp(-z),

    du = E_u (1 + E_l) / ((1 + E_u) (E_l - E_u))      du + dl = 1 - F(z_u) - F(z_l)

Without scales, E_u and E_l are exp(eta) times a constant of the level, and du is another constant
minus F(z_u). Rows or columns may have separate thresholds.

The passes over the ratings are those of `dsgmcmc.kernels.row_layout`. Sums by level are float64.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from dsgmcmc.kernels.compiling import jit
from dsgmcmc.kernels.compiling.jit import indented
from dsgmcmc.kernels.row_layout import Passes, Record, compile_gradient, rating_arguments
from dsgmcmc.types import Array, Factor, Float32, Float64, Int32

int32, float32 = np.int32, np.float32

#: Absolute value of the thresholds below the first level and above the last level.
END = 1e30

#: Number of ratings whose scores are computed side by side.
LANES = 16


def exp32(x: Any) -> Any:
    """Exponential function by Cephes' polynomial; arguments are clipped to -87 and 87."""
    x = min(max(x, float32(-87)), float32(87))
    half = float32(0.5) if x > float32(0) else float32(-0.5)
    n = int32(x * float32(1.44269504) + half)
    f = float32(n)
    r = x - f * float32(0.693359375)
    r = r - f * float32(-2.12194440e-4)
    p = float32(1.9875691500e-4)
    p = p * r + float32(1.3981999507e-3)
    p = p * r + float32(8.3334519073e-3)
    p = p * r + float32(4.1665795894e-2)
    p = p * r + float32(1.6666665459e-1)
    p = p * r + float32(5.0000001201e-1)
    return (p * r * r + r + float32(1)) * int32((n + int32(127)) << int32(23)).view(float32)


#: The exponential's remainder must be computed as written.
FUNCTIONS = "@exact_helper\n" + inspect.getsource(exp32)

#: Passes with scales: what they keep of rating r of row i and column j, before and after its score
#: is computed.
SCALED = Passes(
    scores=[],
    kept=("scales", "slopes"),
    before=["scales[r - base] = scale_w[i] * scale_h[j]"],
    after=["slope_w[i] += slopes[r - base]", "slope_h[j] += slopes[r - base]"],
)
SCALE_ARGUMENTS = dict.fromkeys(("scale_w", "scale_h", "slope_w", "slope_h"), "float32[::1]")

#: Lines that compute du, and du + dl as `both`, from `eta` and the tables of the level, by whether
#: there are scales.
DERIVATIVES = {
    False: """\
t = exp32(min(max(eta, float32(-40)), float32(40)))
fu = float32(1) / (float32(1) + t * upper)
both = float32(1) - fu - float32(1) / (float32(1) + t * lower)
du = rise - fu
""",
    True: """\
zu = max(s * (upper - eta), float32(-42))
zl = max(s * (lower - eta), float32(-44))
eu = exp32(-zu)
el = exp32(-zl)
fu = float32(1) / (float32(1) + eu)
both = float32(1) - fu - float32(1) / (float32(1) + el)
du = eu * fu * ((float32(1) + el) / max(el - eu, float32(1e-7) * el))
""",
}


@functools.cache
def ordinal_kernel(
    K: int,
    biases: bool,
    *,
    scaled: bool = False,
    cut_by: Factor | None = None,
    offset: bool = False,
) -> Callable[..., None]:
    """Compile the gradient for one rank.

    Parameters
    ----------
    K : int
        Rank, 0 to 512; 0 only with biases.
    biases : bool
        Whether the factors have biases in one more column: D = K + 1, otherwise D = K.
    scaled : bool
        Whether rows and columns have scales s.
    cut_by : Factor, optional
        Factor whose rows have separate thresholds; `scaled` must then be true.
    offset : bool
        Whether an offset is added to the predictor of every rating.

    Returns
    -------
    f(indptr, indices, codes, values, theta_w, theta_h, out_w, out_h, tables, sums, scale) -> None
        Arguments are as in `dsgmcmc.kernels.gradient.gradient_kernel`, offsets included; values are
        levels. `tables` (3, R) float32 comes from `level_tables`. The sums of s du and of -s (du +
        dl) over the ratings of each level, times `scale`, are added to `sums` (R, 2) float64.

        With scales four arguments precede `scale`: `scale_w` (n,) and `scale_h` (m,) float32, and
        `slope_w` (n,) and `slope_h` (m,) float32, to which the derivatives of log p with respect to
        log s, times `scale`, are added.

        If rows have separate thresholds, `tables` (n, R + 1) or (m, R + 1) float32 contains them,
        from -`END` to `END`, and the derivatives of log p with respect to them, times `scale`, are
        added to `sums`, float64 of the same shape.

    Raises
    ------
    ValueError
        If K is outside 0 to 512, or 0 without biases, or `cut_by` is given without `scaled`.
    """
    if cut_by is not None and not scaled:
        raise ValueError("separate thresholds of rows need scales of rows")
    more = {"tables": "float32[:, ::1]", "sums": "float64[:, ::1]"}
    passes = Passes([])
    if scaled:
        more |= SCALE_ARGUMENTS
        passes = SCALED
    if cut_by is not None:
        passes = _with_cuts(passes, cut_by)
    scores = []
    if offset:
        scores += ["for t in range(count):", "    errors[t] += offsets[base + t]"]
    scores += _scores(scaled, cut_by)
    passes = passes._replace(
        scores=scores,
        functions=FUNCTIONS + "\n\n",
        begin=[f"tile = np.zeros({3 * LANES}, np.float32)"],
    )
    return compile_gradient(
        "ordinal", Record(K, biases), passes, more=more, of_ratings=rating_arguments(offset=offset)
    )


def _with_cuts(passes: Passes, cut_by: Factor) -> Passes:
    """Add lines that look up the thresholds of rating r, and that add du and dl to their sums.

    du is in ``uppers`` after the scores are computed.
    """
    owner = "i" if cut_by == Factor.W else "j"
    level = "level = uint64(observed[r - base])"
    low = f"[{owner}, level]"
    high = f"[{owner}, level + uint64(1)]"
    look_up = [level, f"lowers[r - base] = tables{low}", f"uppers[r - base] = tables{high}"]
    add = [
        level,
        f"sums{low} -= errors[r - base] + uppers[r - base]",
        f"sums{high} += uppers[r - base]",
    ]
    return passes._replace(
        kept=(*passes.kept, "uppers", "lowers"),
        before=[*passes.before, *look_up],
        after=[*passes.after, *add],
    )


def _scores(scaled: bool, cut_by: Factor | None) -> list[str]:
    """Lines that replace the `count` predictors in ``errors`` by scores times `scale`.

    They also add to the sums. `LANES` ratings are processed at a time. The table entries of their
    levels are copied to ``tile``, and du replaces the first of them. If rows have separate
    thresholds, these are in ``uppers`` and ``lowers``, and du replaces ``uppers``.
    """
    lines = [
        f"for block in range(uint64(0), count, uint64({LANES})):",
        f"    here = min(uint64({LANES}), count - block)",
    ]
    if cut_by is not None:
        lane = _lane(scaled, upper="uppers[block + lane]", lower="lowers[block + lane]")
        return [*lines, f"    for lane in range(uint64({LANES})):", *indented(lane, 2)]
    level = "level = uint64(observed[block + lane])"
    tables = 2 if scaled else 3
    fill = [f"tile[lane + uint64({k * LANES})] = tables[{k}, level]" for k in range(tables)]
    add = ["sums[level, 0] += tile[lane]", "sums[level, 1] += errors[block + lane]"]
    lines += ["    for lane in range(here):", *indented([level, *fill], 2)]
    lane = _lane(scaled, upper="tile[lane]", lower=f"tile[lane + uint64({LANES})]")
    lines += [f"    for lane in range(uint64({LANES})):", *indented(lane, 2)]
    lines += ["    for lane in range(here):", *indented([level, *add], 2)]
    return lines


def _lane(scaled: bool, upper: str, lower: str) -> list[str]:
    """Lines for one rating, whose thresholds are in `upper` and `lower`; du replaces `upper`."""
    lines = ["eta = errors[block + lane]", f"upper = {upper}", f"lower = {lower}"]
    if scaled:
        lines += ["s = scales[block + lane]", *DERIVATIVES[True].splitlines()]
        lines += ["errors[block + lane] = -scale * s * both", f"{upper} = scale * s * du"]
        slope = "min(zu, float32(1e9)) * du + max(zl, float32(-1e9)) * (both - du)"
        lines += [f"slopes[block + lane] = scale * ({slope})"]
    else:
        lines += [f"rise = tile[lane + uint64({2 * LANES})]", *DERIVATIVES[False].splitlines()]
        lines += ["errors[block + lane] = -scale * both", f"{upper} = scale * du"]
    return lines


def level_tables(scaled: bool, thresholds: Float64) -> Float32:
    """Make the tables that `ordinal_kernel` reads, (3, R) float32, from the thresholds (R - 1,).

    With scales, the tables are the thresholds above and below each level, and zeros. Without
    scales, they are the exponentials of minus these thresholds, and the constant c of du = c -
    F(z_u).
    """
    upper = np.append(thresholds, END)
    lower = np.append(-END, thresholds)
    if scaled:
        tables = [upper, lower, np.zeros(len(upper))]
    else:
        rise = 1 / np.maximum(-np.expm1(lower - upper), 1e-7)
        tables = [np.exp(-np.minimum(upper, 200)), np.exp(np.minimum(-lower, 85)), rise]
    return np.stack(tables).astype(np.float32)


_BELOW, _ABOVE, _P, _CUT = range(2 * LANES, 6 * LANES, LANES)

_LEVELS = f'''

@kernel("void(float32[::1], float32[::1], float32[:, ::1], int32[::1], float32[::1], "
        "float32[:, ::1])", EXACT)
def probabilities(eta, scales, cuts, owner, tile, out):
    """Probabilities of all levels by the thresholds of the owners, {LANES} side by side."""
    R = out.shape[1]
    for block in range(0, eta.shape[0], {LANES}):
        here = min({LANES}, eta.shape[0] - block)
        for lane in range(here):
            tile[lane] = eta[block + lane]
            tile[lane + {LANES}] = scales[block + lane]
        for lane in range({LANES}):
            tile[lane + {_BELOW}] = float32(0)
            tile[lane + {_ABOVE}] = float32(1)
        for r in range(R - 1):
            for lane in range(here):
                tile[lane + {_CUT}] = cuts[owner[block + lane], r]
            for lane in range({LANES}):
                z = tile[lane + {LANES}] * (tile[lane + {_CUT}] - tile[lane])
                small = float32(1) / (float32(1) + exp32(abs(z)))
                up = small if z > float32(0) else float32(1) - small
                down = float32(1) - small if z > float32(0) else small
                above = tile[lane + {_ABOVE}] - up
                below = down - tile[lane + {_BELOW}]
                tile[lane + {_P}] = above if z > float32(0) else below
                tile[lane + {_BELOW}] = down
                tile[lane + {_ABOVE}] = up
            for lane in range(here):
                out[block + lane, r] = tile[lane + {_P}]
        for lane in range(here):
            out[block + lane, R - 1] = tile[lane + {_ABOVE}]


@kernel("void(float32[:, ::1], float32[::1], float32[::1], float32[::1])", EXACT)
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


def level_probabilities(
    eta: Float32, scale: Float32, thresholds: Array, owner: Int32 | None = None
) -> Float32:
    """Compute the probabilities of all levels, (q, R) float32.

    Parameters
    ----------
    eta, scale : (q,) float32
        Predictors, and products s of the scales of row and column.
    thresholds : (R - 1,), or (m, R - 1) float
        Thresholds of all ratings, or of m rows or columns.
    owner : (q,) int32, optional
        Row of `thresholds` that applies to each rating; by default the first.
    """
    cuts = np.atleast_2d(thresholds).astype(np.float32)
    probability = np.empty((len(eta), cuts.shape[1] + 1), np.float32)
    if owner is None:
        owner = np.zeros(len(eta), np.int32)
    owner = np.ascontiguousarray(owner, np.int32)
    jit.native_kernels("levels", FUNCTIONS + _LEVELS)["probabilities"](
        np.ascontiguousarray(eta),
        np.ascontiguousarray(scale),
        cuts,
        owner,
        np.zeros(6 * LANES, np.float32),
        probability,
    )
    return probability


def level_moments(p: Float32, values: Float64) -> tuple[Float32, Float32]:
    """Return means and variances, (q,) float32, of distributions (q, R) over these values."""
    mean = np.empty(len(p), np.float32)
    variance = np.empty(len(p), np.float32)
    jit.native_kernels("levels", FUNCTIONS + _LEVELS)["moments"](
        np.ascontiguousarray(p), values.astype(np.float32), mean, variance
    )
    return mean, variance

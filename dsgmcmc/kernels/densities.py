"""Gradients for likelihoods with shape parameters, and sums for draws of these parameters.

The gradient is computed as in `dsgmcmc.kernels.gradient`, but the score e depends on parameters
that change from sweep to sweep. Further expressions of each rating are summed, in float32 over a
group of ratings and in float64 over groups. If rows have scales, the derivatives of log p with
respect to their logarithms are summed, too.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.kernels.compiling.jit import indented
from dsgmcmc.kernels.ordinal import SCALE_ARGUMENTS, SCALED, exp32
from dsgmcmc.kernels.philox import log_series
from dsgmcmc.kernels.row_layout import Passes, Record, compile_gradient, rating_arguments

int32, float32 = np.int32, np.float32


def log32(x: Any) -> Any:
    """Natural logarithm of positive numbers."""
    bits = float32(x).view(int32)
    n = int32(int32(bits - int32(0x3F3504F3)) >> int32(23))
    f = int32(bits - int32(n << int32(23))).view(float32) - float32(1)
    p = log_series(f)
    square = f * f
    low = f * square * p + float32(n) * float32(-2.12194440e-4) - float32(0.5) * square
    return f + low + float32(n) * float32(0.693359375)


def log1p32(x: Any) -> Any:
    """Logarithm of 1 + x for x >= 0: a series up to 1 / 8, and without cancellation beyond."""
    near = min(x, float32(0.125))
    z = near / (float32(2) + near)
    square = z * z
    rest = square * (float32(1 / 3) + square * (float32(0.2) + square * float32(1 / 7)))
    series = float32(2) * z * (float32(1) + rest)
    return series + log32((float32(1) + x) / (float32(1) + near))


def positive32(x: Any) -> Any:
    """1 - exp(-x) for x >= 0: a series up to 1 / 4, and without cancellation beyond."""
    near = min(x, float32(0.25))
    p = float32(1) - near * float32(1 / 6)
    p = float32(1) - near * float32(1 / 5) * p
    p = float32(1) - near * float32(1 / 4) * p
    p = float32(1) - near * float32(1 / 3) * p
    p = near * (float32(1) - near * float32(1 / 2) * p)
    return p + (float32(1) - p) * (float32(1) - exp32(near - x))


FUNCTIONS = "\n\n".join(
    "@exact_helper\n" + inspect.getsource(function)
    for function in (exp32, log_series, log32, log1p32, positive32)
)


class Shaped(NamedTuple):
    """A likelihood with shape parameters, as source.

    Attributes
    ----------
    name : str
        Part of file names.
    lines : str
        Lines that assign the score to ``e``, given the rating ``x``, its predictor ``eta``, the
        product ``s`` of the scales of row and column (1 without scales), and the parameters.
    parameters : tuple of str
        Names of the parameters.
    tallies : tuple of str
        Expressions to be summed over ratings.
    tally_lines : str
        Further lines, for the tallies alone.
    slope : str
        The derivative of log p with respect to log s, if rows have scales.
    """

    name: str
    lines: str
    parameters: tuple[str, ...]
    tallies: tuple[str, ...]
    tally_lines: str = ""
    slope: str = "float32(0)"


@functools.cache
def shaped_kernel(
    K: int,
    biases: bool,
    law: Shaped,
    *,
    scaled: bool = False,
    offset: bool = False,
    by_rating: bool = False,
) -> Callable[..., None]:
    """Compile the gradient for one rank and one likelihood.

    Parameters
    ----------
    K : int
        Rank, 0 to 512; 0 only with biases.
    biases : bool
        Whether the factors have biases in one more column: D = K + 1, otherwise D = K.
    law : Shaped
        The likelihood, as source.
    scaled : bool
        Whether rows and columns have scales.
    offset : bool
        Whether an offset is added to the predictor of every rating.
    by_rating : bool
        Whether every rating has a weight, which multiplies ``s``.

    Returns
    -------
    f(indptr, ..., out_h, parameters, sums, scale) -> None
        The first arguments are as in `dsgmcmc.kernels.gradient.gradient_kernel`, with offsets and
        weights.
        `parameters` (p,) float32 are the values of the shape parameters; the tallies are added to
        `sums` (t,) float64.

        With scales four arguments precede `scale`: `scale_w` (n,) and `scale_h` (m,) float32, and
        `slope_w` (n,) and `slope_h` (m,) float32, to which the slopes are added.
    """
    more = {"parameters": "float32[::1]", "sums": "float64[::1]"}
    passes = Passes([])
    if scaled:
        more |= SCALE_ARGUMENTS
        passes = SCALED
    passes = passes._replace(
        scores=_scores(law, scaled, offset=offset, by_rating=by_rating),
        functions=FUNCTIONS + "\n\n",
        begin=[f"{name} = parameters[{k}]" for k, name in enumerate(law.parameters)],
    )
    of_ratings = rating_arguments(offset=offset, by_rating=by_rating)
    return compile_gradient(law.name, Record(K, biases), passes, more=more, of_ratings=of_ratings)


def _scores(law: Shaped, scaled: bool, *, offset: bool, by_rating: bool) -> list[str]:
    """Lines that replace the predictors in ``errors`` by scores, and add the tallies to sums."""
    rating = ["x = observed[t]"]
    if offset:
        rating += ["eta = errors[t] + offsets[base + t]"]
    else:
        rating += ["eta = errors[t]"]
    if scaled:
        rating += ["s = scales[t]"]
    else:
        rating += ["s = float32(1)"]
    if by_rating:
        rating += ["s *= weights[base + t]"]
    rating += [*law.lines.splitlines(), "errors[t] = scale * e", *law.tally_lines.splitlines()]
    if scaled:
        rating += [f"slopes[t] = {law.slope}"]
    rating += [f"tally{k} += {expression}" for k, expression in enumerate(law.tallies)]
    tallies = range(len(law.tallies))
    lines = [f"tally{k} = float32(0)" for k in tallies]
    lines += ["for t in range(count):", *indented(rating)]
    lines += [f"sums[{k}] += tally{k}" for k in tallies]
    return lines

"""Averages over draws of functions of predictors, for a block of users and items.

For user i and item j, with eta_d at draw d, the functions are

- `Averages.LINEAR`: eta_d
- `Averages.LOGISTIC`, `Averages.NORMAL`: sum_r step_r F(s'_dj (s_di eta_d - cut_dir)), where F is
  the logistic or the normal distribution function
- `Averages.TABLE`: a function of eta_d that is tabulated for every draw, and interpolated

All are float32, and inner loops run over items, so that they become vectors. The logistic function
errs by 1e-7, the normal one by 2e-7 [Abramowitz & Stegun 1964, 7.1.26].
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

import numpy as np

from dsgmcmc.kernels.compiling import jit
from dsgmcmc.kernels.compiling.jit import indented
from dsgmcmc.kernels.ordinal import FUNCTIONS
from dsgmcmc.types import Float32

_AVERAGE = '''\
{functions}

@kernel("void(float32[:, :, ::1], float32[:, ::1], float32[::1], {types}, "
        "float32[::1], float32[::1], float32[::1], float32[::1], "
        "float32[:, ::1], float32[:, ::1])")
def average(
    eta, biases, weights, {arguments}, first, value, total, square, means, variances
):
    """Means and variances of a function of every cell's predictors; weights sum to 1."""
    D, users, items = eta.shape
    for i in range(users):
        for j in range(items):
            total[j] = float32(0)
            square[j] = float32(0)
        for d in range(D):
            x = eta[d, i]
            bias = biases[d, i]
            weight = weights[d]
{lines}
            if d == 0:
                for j in range(items):
                    first[j] = value[j]
            # differences from the first draw are small, so that variances keep their digits
            for j in range(items):
                difference = value[j] - first[j]
                total[j] += weight * difference
                square[j] += weight * difference * difference
        for j in range(items):
            means[i, j] = first[j] + total[j]
            variances[i, j] = max(square[j] - total[j] * total[j], float32(0))
'''

_LINEAR = """\
for j in range(items):
    value[j] = x[j] + bias
"""

_STEPS = """\
scale = user_scales[d, i]
item_scale = item_scales[d]
for j in range(items):
    value[j] = float32(0)
for r in range(steps.shape[0]):
    cut = cuts[d, i, r]
    step = steps[r]
    for j in range(items):
        z = item_scale[j] * (scale * (x[j] + bias) - cut)
        value[j] += step * {function}(z)
"""
_STEP_TYPES = {
    "user_scales": "float32[:, ::1]",
    "cuts": "float32[:, :, ::1]",
    "item_scales": "float32[:, ::1]",
    "steps": "float32[::1]",
}

_TABLE = """\
low = lows[d]
rate = rates[d]
last = float32(tables.shape[1] - 2)
for j in range(items):
    at = min(max((x[j] + bias - low) * rate, float32(0)), last)
    k = int32(at)
    value[j] = tables[d, k] + (at - float32(k)) * (tables[d, k + 1] - tables[d, k])
"""
_TABLE_TYPES = {"lows": "float32[::1]", "rates": "float32[::1]", "tables": "float32[:, ::1]"}

_LOGISTIC = """\
@helper
def logistic(z):
    return float32(1) / (float32(1) + exp32(-z))
"""

_NORMAL = """\
@helper
def normal(z):
    x = abs(z) * float32(0.70710678)
    t = float32(1) / (float32(1) + float32(0.3275911) * x)
    p = float32(-1.453152027) + t * float32(1.061405429)
    p = float32(1.421413741) + t * p
    p = float32(-0.284496736) + t * p
    p = float32(0.254829592) + t * p
    tail = float32(0.5) * t * p * exp32(-x * x)
    return float32(1) - tail if z > float32(0) else tail
"""


class Function(NamedTuple):
    """Source of a function of predictors.

    Attributes
    ----------
    lines : str
        Lines that set ``value`` for all items of the user `i` at draw `d`.
    types : dict of str to str
        Types of its arguments, by name.
    functions : str
        Functions that the lines call.
    """

    lines: str
    types: dict[str, str]
    functions: str = ""


class Averages(Enum):
    """Functions of predictors whose means and variances over draws are compiled."""

    LINEAR = Function(_LINEAR, {"unused": "float32"})
    LOGISTIC = Function(
        _STEPS.format(function="logistic"), _STEP_TYPES, FUNCTIONS + "\n\n" + _LOGISTIC
    )
    NORMAL = Function(_STEPS.format(function="normal"), _STEP_TYPES, FUNCTIONS + "\n\n" + _NORMAL)
    TABLE = Function(_TABLE, _TABLE_TYPES)

    def __call__(
        self, eta: Float32, biases: Float32, weights: Float32, *arguments: Float32 | float
    ) -> tuple[Float32, Float32]:
        """Return means and variances over draws, (users, items) float32.

        Parameters
        ----------
        eta : (draws, users, items) float32
            Predictors, without the biases of the users.
        biases : (draws, users) float32
        weights : (draws,) float32
            Weights of the draws, whose sum is 1.
        *arguments
            For `LOGISTIC` and `NORMAL` ``user_scales`` (draws, users), ``cuts`` (draws, users, m),
            ``item_scales`` (draws, items) and ``steps`` (m,). For `TABLE` ``lows`` (draws,),
            the predictor of the first entry, ``rates`` (draws,), entries per unit, and ``tables``
            (draws, n).
        """
        means = np.empty(eta.shape[1:], np.float32)
        variances = np.empty(eta.shape[1:], np.float32)
        if self is Averages.LINEAR:
            arguments = (0.0,)
        # an allocation in the kernel would need Numba
        scratch = np.empty((4, eta.shape[2]), np.float32)
        _kernel(self)(eta, biases, weights, *arguments, *scratch, means, variances)
        return means, variances


@functools.cache
def _kernel(function: Averages) -> Callable[..., None]:
    lines, types, functions = function.value
    source = _AVERAGE.format(
        functions=functions,
        types=", ".join(types.values()),
        arguments=", ".join(types),
        lines="\n".join(indented(lines.splitlines(), 3)),
    )
    kernels = jit.native_kernels(f"average_{function.name.lower()}", source)
    kernel: Callable[..., None] = kernels["average"]
    return kernel

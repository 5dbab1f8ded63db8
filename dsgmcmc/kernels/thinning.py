"""Metropolis steps that evaluate few data, for regressions [Cornish 2019].

Energies U_i(theta) = u(x_i . theta, y_i) are expanded to order k about an anchor theta^. Let v =
theta - theta^, d = x_i . v, and R_i the remainder of U_i after the terms of orders 0 to k. The
factor of a datum rejects at the rate

    lambda_i = max(R_i(theta') - R_i(theta), 0)  <=  phi psi_i

where psi_i = sup |u^(k + 1)| c_i^(k + 1) / (k + 1)!, and phi = |v|^(k + 1) + |v'|^(k + 1). The norm
and the lengths c_i satisfy |x_i . v| <= c_i |v|. Candidates form a Poisson process of rate phi sum
psi in a unit of time. A candidate is datum i with probability psi_i / sum psi (alias table), and
rejects with probability lambda_i / (phi psi_i). The probability that no candidate rejects is
therefore exp(-sum lambda_i).

If phi sum psi reaches a limit, the step is plain Metropolis-Hastings, which evaluates all data.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.kernels.compiling import jit
from dsgmcmc.kernels.philox import NoiseKey, noise_words, rounds
from dsgmcmc.types import Float64, Int64

# The functions from here to `norm_of` are never called from Python: their source is compiled into
# the kernel.


def uniform(high: Any, low: Any) -> Any:
    """Uniform in (0, 1) from two words, in steps of 2^-52."""
    return (np.float64((high << np.uint64(20)) | (low >> np.uint64(12))) + 0.5) * 2.0**-52


def dot(a: Any, b: Any) -> Any:
    """Inner product of two short vectors."""
    total = 0.0
    for k in range(a.shape[0]):
        total += a[k] * b[k]
    return total


def free_energy(linear: Any, quadratic: Any, v: Any) -> Any:
    """b.v + v.A v / 2."""
    total = 0.0
    for k in range(v.shape[0]):
        total += v[k] * (linear[k] + 0.5 * dot(quadratic[k], v))
    return total


def norm_of(white: Any, euclidean: Any, v: Any) -> Any:
    """Norm of white v: Euclidean, or the sum of absolute values."""
    total = 0.0
    for k in range(v.shape[0]):
        part = dot(white[k], v)
        total += part * part if euclidean else abs(part)
    return np.sqrt(total) if euclidean else total


_SHARED = (uniform, dot, free_energy, norm_of)

_KERNEL = f'''
@helper
def words(draw, c1, c2, c3, k0, k1):
    """The four words of a counter."""
    mask = uint64(0xFFFFFFFF)
    shift = uint64(32)
{rounds("x0, x1, x2, x3 = draw, c1, c2, c3", 4)}    return x0, x1, x2, x3


@helper
def remainder(order, d, y, at, shape):
    """R_i at x_i . theta = at[0] + d; where terms would cancel, the next one of the series."""
    if abs(d) < 4e-4:
        third = third_(at[0], y, shape) * d * d * d / 6.0
        return third if order == 2 else 0.5 * at[3] * d * d + third
    left = value(at[0] + d, y, shape) - at[1] - at[2] * d
    return left if order == 1 else left - 0.5 * at[3] * d * d


@helper
def rate(order, i, v, w, features, responses, taylor, shape):
    """lambda_i of a move from v to w."""
    before = remainder(order, dot(features[i], v), responses[i], taylor[i], shape)
    after = remainder(order, dot(features[i], w), responses[i], taylor[i], shape)
    return max(after - before, 0.0)


@helper
def energy(v, features, responses, taylor, shape):
    """Sum of all U_i."""
    total = 0.0
    for i in range(features.shape[0]):
        total += value(taylor[i, 0] + dot(features[i], v), responses[i], shape)
    return total


@helper
def reach(order, euclidean, v, w, white):
    """phi of a move from v to w."""
    return norm_of(white, euclidean, v) ** (order + 1) + norm_of(white, euclidean, w) ** (order + 1)


# No reassociation: theta = anchor + w, and v = theta - anchor, must be rounded as if theta were
# stored.
@kernel("void(float64[:, ::1], float64[::1], float64[:, ::1], int64, int64, "
        "uint64, uint64, uint64, uint64, int64, boolean, float64, float64, "
        "float64[:, ::1], float64[::1], float64[:, ::1], float64[::1], float64[::1], int64[::1], "
        "float64, float64[::1], float64[:, ::1], float64[:, ::1], float64[:, :, ::1], "
        "float64, float64[::1], float64[:, ::1])", EXACT)
def iterate(theta, energies, counts, first, count, c1, c3, k0, k1, order, euclidean, limit, shape,
            features, responses, taylor, psi, chance, alias, total, anchor, white, linear,
            quadratic, keep, centre, root):
    """Move every row of theta; `energies` has the sums of U_i that are known."""
    rows, dimension = theta.shape
    n = features.shape[0]
    v = np.empty(dimension)
    w = np.empty(dimension)
    z = np.empty(dimension + 1)  # normals come in pairs
    for row in range(rows):
        low = c1 | uint64(row)
        for k in range(dimension):
            v[k] = theta[row, k] - anchor[k]
        for iteration in range(first, first + count):
            c2 = uint64(iteration) & uint64(0xFFFFFFFF)
            high = c3 | (uint64(iteration) >> uint64(32))
            draw = uint64(0)
            for k in range(0, dimension, 2):
                x0, x1, x2, x3 = words(draw, low, c2, high, k0, k1)
                radius = np.sqrt(-2.0 * np.log(uniform(x0, x1)))
                angle = 2.0 * np.pi * uniform(x2, x3)
                z[k] = radius * np.cos(angle)
                z[k + 1] = radius * np.sin(angle)
                draw += uint64(1)
            for k in range(dimension):
                w[k] = centre[k] + keep * (v[k] - centre[k]) + dot(root[k], z)
            x0, x1, x2, x3 = words(draw, low, c2, high, k0, k1)
            threshold = -np.log(uniform(x0, x1))
            expected = reach(order, euclidean, v, w, white) * total
            plain = not expected < limit
            a = 0 if plain else 1
            change = free_energy(linear[a], quadratic[a], w)
            change -= free_energy(linear[a], quadratic[a], v)
            new = np.nan
            if plain:
                if np.isnan(energies[row]):
                    energies[row] = energy(v, features, responses, taylor, shape)
                    counts[row, 1] += n
                new = energy(w, features, responses, taylor, shape)
                counts[row, 1] += n
                accepted = change + new - energies[row] <= threshold
                counts[row, 2] += 1
            else:
                accepted = change <= threshold
                time = 0.0
                while accepted:
                    draw += uint64(1)
                    x0, x1, x2, x3 = words(draw, low, c2, high, k0, k1)
                    time -= np.log((float64(x0) + 0.5) * 2.0**-32)
                    if time >= expected:
                        break
                    at = uniform(x1, x2) * n
                    i = min(int64(at), n - 1)
                    if at - i >= chance[i]:
                        i = alias[i]
                    rejects = rate(order, i, v, w, features, responses, taylor, shape)
                    counts[row, 1] += 2
                    accepted = (float64(x3) + 0.5) * 2.0**-32 * psi[i] * expected >= rejects * total
            if accepted:
                counts[row, 0] += 1
                energies[row] = new
                for k in range(dimension):
                    theta[row, k] = anchor[k] + w[k]
                    # as a call that starts from this theta computes it
                    v[k] = theta[row, k] - anchor[k]
'''


def _source(function: Callable[..., Any]) -> str:
    """Return the source of a function without its annotations, which can name what it imports."""
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        source = ""
    if not source.startswith("def "):
        raise InputError(
            f"{function!r} cannot be compiled: define the functions of a link by def, in a file"
        )
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
    return ast.unparse(tree)


@functools.cache
def thinning_module(value: Callable[..., Any], third: Callable[..., Any]) -> Any:
    """Compile the kernels for a link, which contain the source of its functions.

    Raises
    ------
    InputError
        If a function has no source.
    """
    functions = "\n\n".join(
        f"@helper\n{_source(function)}" for function in (*_SHARED, value, third)
    )
    names = f"\n\nvalue = {value.__name__}\nthird_ = {third.__name__}\n"
    return jit.compile_source("thinning", functions + names + _KERNEL)


class Tables(NamedTuple):
    """Constant arrays and numbers that the kernel reads.

    Attributes
    ----------
    features, responses : (N, D) and (N,) float64
        The data.
    taylor : (N, 4) float64
        x_i . theta^, and u and its first two derivatives at this predictor.
    psi : (N,) float64
        Bounds psi_i.
    chance, alias : (N,) float64 and int64
        Alias table of psi.
    total : float
        Sum of psi.
    anchor : (D,) float64
        theta^.
    white : (D, D) float64
        Matrix whose product with v has the norm |v|.
    linear, quadratic : (2, D) and (2, D, D) float64
        b and A of the energy without data, b.v + v.A v / 2, for plain Metropolis-Hastings and for
        order k, minus the energy with respect to which the proposal is reversible.
    keep, centre, root : float64, (D,) and (D, D) float64
        Proposal v' = centre + keep (v - centre) + root z.
    """

    features: Float64
    responses: Float64
    taylor: Float64
    psi: Float64
    chance: Float64
    alias: Int64
    total: float
    anchor: Float64
    white: Float64
    linear: Float64
    quadratic: Float64
    keep: float
    centre: Float64
    root: Float64


class Thinning(NamedTuple):
    """The compiled steps for one regression, with their constants.

    Attributes
    ----------
    value, third : callable
        u and its third derivative, ``f(eta, y, shape)`` with functions of NumPy, defined by ``def``
        in a file.
    shape : float
        Parameter of the link.
    order : int
        k, 1 or 2.
    euclidean : bool
        Whether the norm is Euclidean, otherwise the sum of absolute values.
    limit : float
        Value of phi sum psi at and above which a step is plain Metropolis-Hastings.
    tables : Tables
        Constant arrays and numbers that the kernel reads.
    """

    value: Callable[..., Any]
    third: Callable[..., Any]
    shape: float
    order: int
    euclidean: bool
    limit: float
    tables: Tables

    def iterate(
        self, theta: Float64, energies: Float64, counts: Float64, *, key: NoiseKey, count: int
    ) -> None:
        """Run iterations, and update the arrays in place.

        Noise has one Philox counter for each (chain, iteration, draw), with the row of theta in its
        second word. The first draws make the proposal, the next draw decides on the factor without
        data, and each candidate has one further draw.

        Parameters
        ----------
        theta : (n, D) float64
            State of n independent chains, one in each row.
        energies : (n,) float64
            Energy of all data at theta; NaN if unknown.
        counts : (n, 3) float64
            Numbers of accepted proposals, of evaluations of single energies, and of plain
            Metropolis-Hastings steps; the numbers of these iterations are added.
        key : NoiseKey
            Key of the first iteration.
        count : int
            Number of iterations.

        Raises
        ------
        ValueError
            If there are more than 2^16 rows, or a member of the key is too large.
        """
        if len(theta) > 1 << 16:
            raise ValueError(f"{len(theta)} rows do not have separate counters: at most 2^16")
        _, c1, _, c3, k0, k1 = noise_words(key._replace(iteration=0))
        thinning_module(self.value, self.third).iterate(
            theta,
            energies,
            counts,
            key.iteration,
            count,
            c1,
            c3,
            k0,
            k1,
            self.order,
            self.euclidean,
            self.limit,
            self.shape,
            *self.tables,
        )

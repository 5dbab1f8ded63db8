"""Passes over a cell's ratings for effects of groups: predictors, sums, and proposed changes.

If ratings are normal given their predictors, sums of residuals suffice. Otherwise let e(eta) = d
log p / d eta be the score of a rating with predictor eta, which may depend on further terms
(`Score.terms`), and c the change in the effect of the rating's group. A pass sums over the ratings
of every group

    S = sum e(eta + c)
    I = sum max(i(eta + c), e(eta + c)^2 / 4)
    L = sum [log p(eta + c) - log p(eta)]

where i(x) = [e(x - H) - e(x)] / H is the curvature. It can be small compared with the score in the
tails, and negative for densities that are not log-concave. Therefore each term of I is at least e^2
/ 4. L is the integral of the score from eta to eta + c, by Gauss-Legendre quadrature: with 3 nodes
for logistic levels (error 3e-7 for a change of 1), and with 6 for formulas, which may have heavy
tails.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from dsgmcmc.kernels.compiling import jit
from dsgmcmc.kernels.compiling.jit import indented
from dsgmcmc.kernels.densities import FUNCTIONS, Shaped
from dsgmcmc.kernels.formulas.parser import functions, parse_score
from dsgmcmc.kernels.ordinal import DERIVATIVES, LANES
from dsgmcmc.kernels.row_layout import PATTERN, Record, by_rows, compile_passes
from dsgmcmc.types import Float32, Float64, Int32

STEP = 0.1  # H, the step of the difference quotient i(x)


class Score(NamedTuple):
    """The score of a rating, as source.

    Attributes
    ----------
    name : str
        Part of file names.
    lines : str
        Lines that assign the score to ``e``, given ``eta`` and the terms.
    terms : tuple of str
        Further arguments of the score, one number for each rating.
    nodes : int
        Number of nodes of the quadrature.
    """

    name: str
    lines: str
    terms: tuple[str, ...] = ("x",)
    nodes: int = 6


def formula_score(score: str) -> Score:
    """Make a score from an expression of x and eta, in the language of formulas."""
    return Score("formula", f"e = {parse_score(score)}")


def shaped_score(law: Shaped) -> Score:
    """Make the score of a likelihood with shape parameters.

    Its terms are the rating, the product of the scales if the score depends on it, and those
    parameters on which it depends.
    """
    names = set(re.findall(r"[a-z]\w*", law.lines))
    terms = ("x", *(name for name in ("s", *law.parameters) if name in names))
    return Score(law.name, law.lines, terms)


def level_score(scaled: bool) -> Score:
    """Make the score of a level (`dsgmcmc.kernels.ordinal`).

    Its terms are the thresholds above and below the level, and its scale if it is `scaled`.
    """
    lines = f"{DERIVATIVES[True]}e = -s * both"
    if scaled:
        return Score("levels", lines, terms=("upper", "lower", "s"), nodes=3)
    return Score("levels", f"s = float32(1)\n{lines}", terms=("upper", "lower"), nodes=3)


_SOURCE = '''\
_exp = exp32


@kernel("void(int32[::1], float32[::1], float32[:, ::1], float32[:, ::1], float32[:, ::1])")
def effects(groups, predictors, terms, nodes, sums):
    """Add scores, curvatures and changes of the log density to the sums of their groups."""
    wide_vectors()
    tile = np.zeros({size}, np.float32)
    n = groups.shape[0]
    for block in range(uint64(0), uint64(n), uint64({lanes})):
        here = min(uint64({lanes}), uint64(n) - block)
        for lane in range(here):
            tile[lane] = predictors[block + lane]
            tile[lane + uint64({lanes})] = sums[uint64(groups[block + lane]), uint64(0)]
{fill}
        for lane in range(uint64({lanes})):
{clear}
        for node in range(nodes.shape[0]):
            for lane in range(uint64({lanes})):
                change = tile[lane + uint64({lanes})]
                eta = tile[lane] + nodes[node, 0] * change + nodes[node, 1]
{take}
{lines}
{add}
        for lane in range(here):
            g = uint64(groups[block + lane])
            e = tile[lane + uint64({sums})]
            sums[g, uint64(1)] += e
            sums[g, uint64(2)] += max(tile[lane + uint64({sums} + {lanes})], float32(0.25) * e * e)
            change = tile[lane + uint64({lanes})]
            sums[g, uint64(3)] += tile[lane + uint64({sums} + 2 * {lanes})] * change
'''


def _nodes(n: int) -> Float32:
    """Return the points at which scores are computed, (n + 2, 5).

    The columns are the factor of c, the shift, and the weights in S, I and L / c.
    """
    nodes, weights = np.polynomial.legendre.leggauss(n)
    points = [
        (node, 0, 0, 0, weight) for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True)
    ]
    at_change = (1, 0, 1, -1 / STEP, 0)
    step_before = (1, -STEP, 0, 1 / STEP, 0)
    return np.array([*points, at_change, step_before], np.float32)


@functools.cache
def effects_kernel(score: Score) -> Callable[..., None]:
    """Compile the sums over groups.

    Returns
    -------
    f(groups, predictors, terms, sums, *, moved) -> None
        For a cell's ratings: `groups` (nnz,) int32, `predictors` (nnz,) float32, and `terms` (m,
        nnz) float32, in the order of `Score.terms`. `sums` (G, 4) float32 has c in its first
        column; S, I and L are added to the other columns. If `moved` is false, c must be 0 for
        every group, and nothing is added to L, which is 0.
    """
    source = "\n\n".join((functions("float32"), FUNCTIONS, _effects_source(score)))
    kernel = jit.compile_source(f"effects_{score.name}", source).effects
    nodes = _nodes(score.nodes)

    def add(
        groups: Int32, predictors: Float32, terms: Float32, sums: Float32, *, moved: bool
    ) -> None:
        nodes_used = nodes
        if not moved:
            nodes_used = nodes[-2:]
        kernel(groups, predictors, terms, nodes_used, sums)

    return add


def _effects_source(score: Score) -> str:
    """Source of the sums over groups for one score."""
    first_sum = (2 + len(score.terms)) * LANES
    terms = [f"tile[lane + uint64({(2 + k) * LANES})]" for k in range(len(score.terms))]
    totals = [f"tile[lane + uint64({first_sum + k * LANES})]" for k in range(3)]
    fill = [f"{term} = terms[{k}, block + lane]" for k, term in enumerate(terms)]
    clear = [f"{total} = float32(0)" for total in totals]
    take = [f"{name} = {term}" for name, term in zip(score.terms, terms, strict=True)]
    add = [f"{total} += nodes[node, {2 + k}] * e" for k, total in enumerate(totals)]
    return _SOURCE.format(
        fill="\n".join(indented(fill, 3)),
        clear="\n".join(indented(clear, 3)),
        take="\n".join(indented(take, 4)),
        lines="\n".join(indented(score.lines.splitlines(), 4)),
        add="\n".join(indented(add, 4)),
        lanes=LANES,
        sums=first_sum,
        size=first_sum + 3 * LANES,
    )


_GROUPS = '''\
@helper
def log_density(new, old, score, curvature, precision):
    """Log density of a proposed effect, up to a constant."""
    total = curvature + precision
    error = new - old - (score - precision * old) / total
    return 0.5 * (math.log(total) - total * error * error)


@kernel("void(float32[::1], float32[:, ::1], float64, float64, float32[::1], float32[:, ::1])")
def propose(effects, sums, tau, precision, noise, out):
    """Propose changes of the effects."""
    for g in range(effects.shape[0]):
        total = tau * sums[g, 2] + precision
        step = (tau * sums[g, 1] - precision * effects[g]) / total + noise[g] / math.sqrt(total)
        out[g, 0] = float32(step)


@kernel("void(float32[::1], float32[:, ::1], float32[:, ::1], float64, float64, float32[::1])")
def accept(effects, here, there, tau, precision, noise):
    """Keep accepted changes; set the others to 0, and their sums to those at the old effects."""
    for g in range(effects.shape[0]):
        old = float64(effects[g])
        new = float64(effects[g] + there[g, 0])
        ratio = tau * there[g, 3] - 0.5 * precision * (new - old) * (new + old)
        ratio += log_density(old, new, tau * there[g, 1], tau * there[g, 2], precision)
        ratio -= log_density(new, old, tau * here[g, 1], tau * here[g, 2], precision)
        level = -0.5 * (float64(noise[2 * g]) ** 2 + float64(noise[2 * g + 1]) ** 2)
        if not level < ratio:
            there[g, 0] = float32(0)
            there[g, 1] = here[g, 1]
            there[g, 2] = here[g, 2]
            there[g, 3] = float32(0)


@kernel("void(float32[::1], float32[:, ::1], float64, float64[::1])")
def along(effects, sums, tau, out):
    """Sums of d^2, d S, d^2 I and L, of changed effects d."""
    for g in range(effects.shape[0]):
        d = float64(effects[g] + sums[g, 0])
        out[0] += d * d
        out[1] += tau * d * sums[g, 1]
        out[2] += tau * d * d * sums[g, 2]
        out[3] += tau * sums[g, 3]


@kernel("void(int32[::1], float32[::1], float32[::1], float32[:, ::1])")
def add(groups, residuals, weights, out):
    """Add weighted residuals, and weights, to the sums of their groups."""
    for r in range(groups.shape[0]):
        g = uint64(groups[r])
        out[g, uint64(0)] += weights[r] * residuals[r]
        out[g, uint64(1)] += weights[r]


@kernel("void(int32[::1], float32[::1], float32[::1])")
def subtract(groups, effects, out):
    """Subtract the effect of every group from its ratings."""
    for r in range(groups.shape[0]):
        out[r] -= effects[uint64(groups[r])]
'''


def propose(
    effects: Float32, here: Float32, *, tau: float, precision: float, noise: Float32
) -> Float32:
    """Propose changes of effects by a Newton step with noise.

    Parameters
    ----------
    effects : (G,) float32
    here : (G, 4) float32
        0, S, I and L at these effects, for noise precision 1.
    tau, precision : float
        Precisions of the noise and of the effects' prior.
    noise : (G,) float32
        Standard normals.

    Returns
    -------
    (G, 4) float32
        The changes in the first column, zeros in the others.
    """
    out = np.zeros_like(here)
    jit.compile_source("groups", _GROUPS).propose(effects, here, tau, precision, noise, out)
    return out


def accept(
    effects: Float32,
    here: Float32,
    there: Float32,
    *,
    tau: float,
    precision: float,
    noise: Float32,
) -> None:
    """Accept or reject the changes in the first column of `there`.

    A rejected change is replaced by 0, and its S and I by the values in `here`.

    Parameters
    ----------
    effects, here, tau, precision
        As in `propose`.
    there : (G, 4) float32
        The changes, and S, I and L at the changed effects.
    noise : (2 G,) float32
        Standard normals; minus half the sum of two squares is the logarithm of a uniform number.
    """
    jit.compile_source("groups", _GROUPS).accept(effects, here, there, tau, precision, noise)


def along(effects: Float32, sums: Float32, tau: float) -> Float64:
    """Sum d^2, d S, d^2 I and L over groups, (4,) float64, where d is an effect plus its change."""
    out = np.zeros(4)
    jit.compile_source("groups", _GROUPS).along(effects, sums, tau, out)
    return out


@functools.cache
def predictor_kernel(K: int, biases: bool, sign: Literal["+", "-"]) -> Callable[..., None]:
    """Compile the sum, or the difference, of values and the predictors of a cell's ratings.

    Returns
    -------
    f(indptr, indices, values, theta_w, theta_h, out)
        `indptr` and `indices` come from `dsgmcmc.kernels.compact_ratings.kernel_arguments`;
        `values` (nnz,), `theta_w` (n, D) and `theta_h` (m, D) are float32. `out` (nnz,) float32 is
        set to the values plus, or minus, the predictors.
    """
    record = Record(K, biases, sides="")
    arguments = {
        **PATTERN,
        "values": "float32[::1]",
        "theta_w": "float32[:, ::1]",
        "theta_h": "float32[:, ::1]",
        "out": "float32[::1]",
    }
    lines = record.begin()
    lines += ["errors = np.empty(values.size + 3, np.float32)", "base = uint64(0)"]
    lines += by_rows(record.predictors())
    lines += ["for r in range(values.size):", f"    out[r] = values[r] {sign} errors[r]"]
    return compile_passes(f"predict_ratings_{K}", arguments, lines)


def add_to_groups(groups: Int32, residuals: Float32, weights: Float32, out: Float32) -> None:
    """Add the weighted residuals and the weights of ratings to the sums of their groups.

    Parameters
    ----------
    groups : (nnz,) int32
        Group of every rating.
    residuals, weights : (nnz,) float32
    out : (G, 2) float32
        Sums of each group, to which the values are added.
    """
    jit.compile_source("groups", _GROUPS).add(groups, residuals, weights, out)


def subtract_groups(groups: Int32, effects: Float32, out: Float32) -> None:
    """Subtract the effects (G,) of the groups (nnz,) of ratings from `out`, (nnz,) float32."""
    jit.compile_source("groups", _GROUPS).subtract(groups, effects, out)

r"""Draws and moves of the coefficients y of implicit features (`dsgmcmc.model.parts.implicit`).

Let X = diag(rho) E, where E_ij is 1 if row i has a training rating in column j and 0 if not. If
rows have the prior precision g_i Lambda (docs/model.md), X^T X stands for X^T diag(g) X. A
*system* of equations is named after the factor whose prior means are shifted: its rows are this
factor's rows, and its coefficients belong to the other factor's rows. Both systems are solved at
the same time, so that a factor may have the rows of one system and the coefficients of the other. A
product with X or X^T takes a tour of the ring. Until one of them is solved, both factors' systems
share their tours.

`CoefficientDraw` draws y given the rows; with `CoefficientMove`, y moves with the rows. Both use
the same directions U, in which X^T X is large (`Systems`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar

import numpy as np

from dsgmcmc.kernels.formulas.formula import Formula
from dsgmcmc.kernels.philox import normals
from dsgmcmc.kernels.products import add_rotated, inner
from dsgmcmc.model.circulation import OTHER, Circulation
from dsgmcmc.model.conjugate import GammaPrior
from dsgmcmc.model.parts.base import DESCRIBED, DrawContext
from dsgmcmc.model.quantity import NONE, Quantity, Sampled
from dsgmcmc.model.quantity import WEIGHT as ROW_WEIGHT
from dsgmcmc.parallel.ring import shapes_of
from dsgmcmc.targets.base import RowStep
from dsgmcmc.targets.state import ParameterBlock, RandomStream, Rows
from dsgmcmc.types import Array, Factor, Float64, Purpose

#: Prior of beta.
PRIOR = GammaPrior(1.0, 0.2)
#: Residual at which conjugate gradients stop, relative to its initial value. If it is e, the drawn
#: y has the fraction (1 - e) / (1 + e) of its variance: with e = 0.2, the precisions of rows given
#: y were wrong by a fifth.
TOLERANCE = 0.05
#: Products with X^T X that find U; more save no step.
SUBSPACE_STEPS = 2
#: Largest number of steps of conjugate gradients.
MAX_STEPS = 50
#: Lower bound on a variance of shifts, so that divisions by it stay finite.
SMALLEST_VARIANCE = 1e-12
#: l of moves; with 2, chains on ordered levels with aligned covariates diverged.
L = 4.0

#: y: contribution of a row to the prior means of the rows with which it has ratings.
IMPLICIT = Quantity("implicit", ("column",), of_rows=True, columns=1)
#: Momentum of y, N(0, 1) in the coordinates of its metric.
MOMENTUM = Quantity("implicit_drift", ("column",), of_rows=True, drawn=False)

#: Scratch arrays of a draw and of moves, by their names in formulas; the prefix keeps them apart
#: from the samplers' fields. ``before`` is y before the draw.
SCRATCH = {name: f"implicit.{name}" for name in ("send", "got", "r", "p", "scaled", "before")}
MOVING = {name: f"implicit.{name}" for name in ("send", "got", "kick", "free")}
SEND = SCRATCH["send"]
GOT = SCRATCH["got"]
P = SCRATCH["p"]
SCALED = SCRATCH["scaled"]
KICK = MOVING["kick"]
FREE = MOVING["free"]
#: Arrays with the pattern's sums, and with the directions U.
WEIGHT = "implicit.weight"
DIAGONAL = "implicit.diagonal"
DIRECTIONS = "implicit.directions"
#: Prefixes of names of sums.
_SPECTRUM = "spectrum."
_ALONG = "along."

#: Names in formulas of vectors over columns, and over rows.
COLUMNS = ("mean", "lambda_", "ratio", "alpha", "gain", "average", "variance", "beta")
ROWS = ("rho", "known", "diagonal", "scale")


def _formula(source: str, *column_sums: str) -> Formula:
    """Return a formula that declares the vectors in its source."""

    def occurring(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(name for name in names if re.search(rf"\b{name}\b", source))

    return Formula(
        source, columns=occurring(COLUMNS), rows=occurring(ROWS), column_sums=column_sums
    )


RESIDUAL = _formula("send = scale * rho * (theta - mean - shift + sqrt(1 / (scale * lambda_)) * z)")
SCALE = """
scaled = r / sqrt(diagonal + ratio)
square = scaled * scaled
"""
BEGIN = _formula(
    "r = got - ratio * implicit + sqrt(ratio / lambda_) * z\nbefore = implicit" + SCALE, "square"
)
STEP = _formula(
    "implicit = implicit + alpha * p\nr = r - alpha * (got + ratio * p)" + SCALE, "square"
)
THROUGH_ROWS = _formula("send = scale * rho * rho * got")
CURVATURE = _formula("pq = p * (got + ratio * p)", "pq")
DIRECTION = _formula("p = (scaled - send) / sqrt(diagonal + ratio) + gain * p")
CHANGE = _formula("send = implicit - before")
SHIFTED = _formula("shift = shift + rho * got")
SQUARES = _formula("squares = implicit * implicit", "squares")
MOMENTS = _formula(
    """
total = known * (shift - others)
square = known * (shift - others) * (shift - others)
""",
    "total",
    "square",
)
UNKNOWN = _formula("""
own = scale * lambda_
precision = 1 / variance + own
drawn = (average / variance + own * (theta - mean - others) + sqrt(precision) * z) / precision
shift = known * shift + (1 - known) * (others + drawn)
""")

#: Of moves: the energy's derivative with respect to y, first its part in every row; the kick; the
#: new momentum; the move; the rows' move.
PULL = _formula("send = rho * (free * grad - grad_prior)\nkept = known * (1 - free)", "kept")
PRECISION = "precision = lambda_ * average * diagonal + beta\n"
PUSH = _formula(PRECISION + "kick = step * (got + beta * implicit) / sqrt(precision)")
NEW_MOMENTUM = _formula("""
kicked = drift - minimum(maximum(kick, -5.0), 5.0)
drift = damp * kicked + spread * z
kick = kicked + drift
""")
STEP_OF_Y = _formula(
    PRECISION + "send = 0.5 * step * kick / sqrt(precision)\nimplicit = implicit + send"
)
MOVE_ROWS = _formula("shift = shift + rho * got\ntheta = theta + free * rho * got")


@dataclass
class ImplicitParameters(Sampled):
    """Parameters other than y, by the factor whose rows' means are shifted; (D,) float64 each.

    Attributes
    ----------
    precision : dict of Factor to (D,)
        beta.
    average, variance : dict of Factor to (D,)
        Mean and variance, over all rows with ratings, of the shifts by y.
    """

    quantities: ClassVar[Mapping[str, Quantity]] = {
        "precision": Quantity("{}.implicit.precision", ("column",), columns=-2, positive=True),
        "average": Quantity("{}.implicit.mean", ("column",), columns=1),
        "variance": Quantity("{}.implicit.variance", ("column",), columns=2),
    }

    precision: dict[Factor, Float64]
    average: dict[Factor, Float64]
    variance: dict[Factor, Float64]


class Systems:
    """The two products with the pattern, X and X^T, for the rows of one factor or of both.

    *The preconditioner.* Few directions, of columns that the same rows have, have eigenvalues of
    X^T X that are hundreds of times its diagonal: on MovieLens 1M 785, 131, 122 and, the 64th, 10,
    over a median diagonal of 0.55. Let D_b = diag(X^T X) + b. Subspace iteration finds orthonormal
    vectors U, as many as a factor has columns, near the largest eigenvalues of
    D_1^-1/2 X^T X D_1^-1/2; let s be the larger of an eigenvalue and 1. The inverse of the
    preconditioner is

        D_b^-1/2 (I - U diag(1 - 1 / s) U^T) D_b^-1/2,

    which is positive definite for any U, so that U affects only the number of steps. It halves this
    number: at b = 1 from 15 to 5, and at b = 0.3 from 19 to 10. U and s depend only on the pattern,
    and are computed again after a resume.

    Parameters
    ----------
    factors : tuple of Factor
        The factors whose rows' means are shifted: the systems.
    parameters : ImplicitParameters
        The parameters, which are changed.
    spectra : dict of Factor to (D,) float64
        s, by system; filled by the first use.
    context : DrawContext

    Attributes
    ----------
    unsolved : list of Factor
        The systems whose residuals are still above `TOLERANCE`.
    rows, coefficients : dict of Factor to Rows
        By system: its rows, and the other factor's rows, which have its coefficients.
    """

    scratch: ClassVar[dict[str, str]]

    def __init__(
        self,
        factors: tuple[Factor, ...],
        parameters: ImplicitParameters,
        spectra: dict[Factor, Float64],
        context: DrawContext,
    ) -> None:
        self.factors = factors
        self.unsolved = list(factors)
        self.parameters = parameters
        self.spectra = spectra
        self.circulation = context.circulation
        by_factor = {rows.factor: rows for rows in self.circulation.rows_by_factor()}
        self.rows = {factor: by_factor[factor] for factor in factors}
        self.coefficients = {factor: by_factor[OTHER[factor]] for factor in factors}
        #: Vectors in formulas: over the rows of a factor, and over the columns of a system.
        self._vectors = {
            factor: _row_vectors(rows, self.circulation) for factor, rows in by_factor.items()
        }
        self._scaled: list[Factor] = []
        self._columns: dict[Factor, dict[str, Array]] = {}
        self.set_context(context)
        for block in self.circulation.blocks():
            shape = (len(block.counts), block.dimension)
            for name in self.scratch.values():
                if name not in block.arrays:
                    block.arrays[name] = np.zeros(shape, block.dtype)
        if any(DIRECTIONS not in rows.blocks[0].arrays for rows in self.coefficients.values()):
            self._find_directions()
        self._set_scales()

    def _set_scales(self) -> None:
        """Weight the rows by the scales of their priors, if these have any. Collective.

        The directions were found without them: a resumed run finds the same ones.
        """
        for factor, rows in self.rows.items():
            if self.context.prior(rows.blocks[0]).scale is not None:
                self._scaled.append(factor)
                self._vectors[factor]["scale"] = ROW_WEIGHT.name
        if self._scaled:
            self._set_diagonals()

    def set_context(self, context: DrawContext) -> None:
        """Use the current parameters; blocks must be where they were."""
        self.context = context
        for factor, rows in self.rows.items():
            prior = context.prior(rows.blocks[0])
            beta = self.parameters.precision[factor]
            columns = {
                "ratio": beta / prior.precision,
                "beta": beta,
                "lambda_": prior.precision,
                "mean": prior.mean,
            }
            self._columns[factor] = {
                name: column.astype(rows.dtype) for name, column in columns.items()
            }
        if self._scaled:
            self._set_diagonals()

    def _update(
        self,
        rows: Rows,
        system: Factor,
        formula: Formula,
        *,
        purpose: Purpose = Purpose.IMPLICIT,
        numbers: Mapping[str, Any] = NONE,
        columns: Mapping[str, Float64] = NONE,
    ) -> dict[str, Any]:
        """Apply a formula to the rows or coefficients of a system.

        `numbers` and `columns`, (D,) each, are further values of names in the formula.
        """
        values: dict[str, Any] = dict(self._columns[system])
        for name, column in columns.items():
            values[name] = column.astype(rows.dtype)
        values |= self._vectors[rows.factor]
        values |= {"diagonal": DIAGONAL, "theta": self.context.position}
        return rows.update(formula, purpose, **values, **self.scratch, **numbers)

    # ------------------------------------------------------------------ products and directions

    def _multiply(self, field: str) -> None:
        """Set `got` of the unsolved systems' coefficients to X^T X times a field. Collective."""
        self.circulation.spread(field, GOT, self.unsolved, by_pair=True)
        for factor in self.unsolved:
            self._update(self.rows[factor], factor, THROUGH_ROWS)
        self.circulation.spread(
            SEND, GOT, [OTHER[factor] for factor in self.unsolved], by_pair=True
        )

    def _set_diagonals(self) -> None:
        """Compute the diagonals of all X^T X. Collective."""
        for block in self.circulation.blocks():
            for name in (WEIGHT, DIAGONAL):
                block.arrays[name] = np.zeros((len(block.counts), 1), block.dtype)
            n_pairs = self.circulation.pair_counts(block)
            block.row(WEIGHT)[:] = (n_pairs > 0) / np.maximum(n_pairs, 1)
            if block.factor in self._scaled:
                block.row(WEIGHT)[:] *= block.row(ROW_WEIGHT.name)
        self.circulation.spread(WEIGHT, DIAGONAL, by_pair=True)

    def _find_directions(self) -> None:
        """Compute the diagonals of all X^T X, and U and s by subspace iteration. Collective."""
        self._set_diagonals()
        blocks = [block for rows in self.coefficients.values() for block in rows.blocks]
        for block in blocks:
            block.arrays[DIRECTIONS] = _random_directions(block)
        for _ in range(SUBSPACE_STEPS):
            for block in blocks:
                block[SEND][:] = block[DIRECTIONS] / np.sqrt(block[DIAGONAL] + 1)
            self._multiply(SEND)
            for block in blocks:
                block.arrays[DIRECTIONS] = block[GOT] / np.sqrt(block[DIAGONAL] + 1)
            products = self._along_directions(DIRECTIONS)
            shapes = {name: array.shape[1:] for name, array in products.items()}
            shapes |= {_SPECTRUM + name: shape[:1] for name, shape in shapes.items()}
            solved = self.circulation.ring.sum(products, _orthonormalise, shapes)
            for factor in self.factors:
                self.spectra[factor] = solved[_SPECTRUM + factor.name]
            for block in blocks:
                rotation = solved[OTHER[block.factor].name]
                add_rotated(block[DIRECTIONS], block[DIRECTIONS], rotation, keep=0.0)

    def _along_directions(self, field: str) -> dict[str, Float64]:
        """U^T F of every block with coefficients of an unsolved system, by system.

        F is the block's field.
        """
        products = {}
        for factor in self.unsolved:
            blocks = self.coefficients[factor].blocks
            by_block = [inner(block[DIRECTIONS], block[field]) for block in blocks]
            products[factor.name] = np.array(by_block)
        return products

    # ------------------------------------------------------------------ draws

    def draw_others(self) -> None:
        """Draw beta given y, and the shifts of rows without ratings. Collective."""
        partials: dict[str, Float64] = {}
        others: dict[Factor, dict[str, Any]] = {}
        for factor, rows in self.rows.items():
            is_described = DESCRIBED.name in rows.blocks[0].arrays
            others[factor] = {"others": DESCRIBED.name if is_described else 0.0}
            coefficients = self.coefficients[factor]
            sums = self._update(coefficients, factor, SQUARES)
            sums |= self._update(rows, factor, MOMENTS, numbers=others[factor])
            for name, totals in sums.items():
                partials[f"{factor.name}.{name}"] = totals
            sizes = []
            for block, other in zip(rows.blocks, coefficients.blocks, strict=True):
                sizes.append([np.count_nonzero(block.counts), len(other.counts)])
            partials[f"{factor.name}.sizes"] = np.array(sizes, np.float64)
        shapes = shapes_of(self.parameters.arrays())
        self.parameters.take(self.circulation.ring.sum(partials, self._draw_parameters, shapes))
        for factor, rows in self.rows.items():
            self._update(
                rows,
                factor,
                UNKNOWN,
                purpose=Purpose.IMPLICIT_UNKNOWN,
                numbers=others[factor],
                columns={
                    "average": self.parameters.average[factor],
                    "variance": self.parameters.variance[factor],
                },
            )

    def _draw_parameters(self, sums: dict[str, Float64]) -> dict[str, Float64]:
        """Draw beta given y, and compute the moments of the shifts; runs at the root."""
        rng = self.context.stream.generator(Purpose.HYPERPARAMETERS, part=1)
        drawn = ImplicitParameters({}, {}, {})
        for factor in self.factors:
            n_rows, n_coefficients = sums[f"{factor.name}.sizes"]
            squares = sums[f"{factor.name}.squares"]
            average = sums[f"{factor.name}.total"] / max(n_rows, 1.0)
            variance = sums[f"{factor.name}.square"] / max(n_rows, 1.0) - average**2
            drawn.precision[factor] = PRIOR.draw(squares, n_coefficients, rng)
            drawn.average[factor] = average
            drawn.variance[factor] = np.maximum(variance, SMALLEST_VARIANCE)
        return drawn.arrays()


def _row_vectors(rows: Rows, circulation: Circulation) -> dict[str, Array | str]:
    """Vectors in formulas over the rows of a factor: rho, whether they have ratings, and scales."""
    n = np.concatenate([circulation.pair_counts(block) for block in rows.blocks])
    rho = np.divide(1, np.sqrt(n), out=np.zeros(len(n)), where=n > 0)
    return {
        "rho": rho.astype(rows.dtype),
        "known": (n > 0).astype(rows.dtype),
        "scale": np.ones(len(n), rows.dtype),
    }


def _random_directions(block: ParameterBlock) -> Array:
    """Standard normal directions with which subspace iteration starts, (n, D)."""
    first = block.start * block.dimension
    numbers = np.empty(block[SEND].size, np.float32)
    normals(numbers, RandomStream(0, 0).key(Purpose.IMPLICIT_START, block.factor, first))
    return numbers.reshape(block[SEND].shape)


def _orthonormalise(products: Mapping[str, Float64]) -> dict[str, Float64]:
    """Return by system s, and T with which U = Z T, given Z^T Z.

    Columns of U with s = 1 are not orthonormal.
    """
    solved: dict[str, Float64] = {}
    for name, product in products.items():
        squares, vectors = np.linalg.eigh(product)
        s = np.sqrt(np.maximum(squares, 1))
        solved[name] = vectors / s
        solved[_SPECTRUM + name] = s
    return solved


def _quotient(a: Float64, b: Float64) -> Float64:
    """Return a / b, by column; 0 where b is 0, because the column is solved."""
    return np.divide(a, b, out=np.zeros(len(b)), where=b > 0)


class CoefficientDraw(Systems):
    """One draw of all y.

    Let u = theta - m - shift. Given everything else, the step d of y from its current value has the
    distribution of the solution of

        (X^T X + b_k) d = X^T (u + lambda_k^-1/2 e) - b_k y + (b_k / lambda_k)^1/2 e'
        b_k = beta_k / lambda_k

    for each k, with standard normal e and e' [Simm 2017, section 3.2]. The solution is computed by
    conjugate gradients for all k at once, until every residual is at most `TOLERANCE` times its
    initial value.
    """

    scratch = SCRATCH

    def draw_coefficients(self) -> None:
        """Draw all y given the rows, and shift the rows' means by the change. Collective."""
        self._solve()
        for factor, rows in self.coefficients.items():
            self._update(rows, factor, CHANGE)
        self.circulation.spread(SEND, GOT, self.factors, by_pair=True)
        for factor, rows in self.rows.items():
            self._update(rows, factor, SHIFTED)
        self._delete_scratch()

    def _delete_scratch(self) -> None:
        """Delete the scratch arrays; blocks that move do not take U along."""
        names = {*SCRATCH.values(), WEIGHT}
        if self.circulation.schedule:
            names |= {DIAGONAL, DIRECTIONS}
        for block in self.circulation.blocks():
            for name in names.intersection(block.arrays):
                del block.arrays[name]

    def _solve(self) -> None:
        """Draw all y by conjugate gradients. Collective."""
        for factor, rows in self.rows.items():
            self._update(rows, factor, RESIDUAL, purpose=Purpose.IMPLICIT_FIT)
        self.circulation.spread(
            SEND, GOT, [OTHER[factor] for factor in self.unsolved], by_pair=True
        )
        first, rp = self._precondition(BEGIN)
        gain = {factor: np.zeros_like(columns) for factor, columns in rp.items()}
        for _ in range(MAX_STEPS):
            for factor in self.unsolved:
                self._update(
                    self.coefficients[factor], factor, DIRECTION, columns={"gain": gain[factor]}
                )
            self._multiply(P)
            curved = {}
            for factor in self.unsolved:
                sums = self._update(self.coefficients[factor], factor, CURVATURE)
                curved[factor.name] = sums["pq"]
            pq = self.circulation.ring.sum(curved)
            alpha = {f: _quotient(rp[f], pq[f.name]) for f in self.unsolved}
            squares, new = self._precondition(STEP, alpha=alpha)
            gain = {factor: _quotient(new[factor], rp[factor]) for factor in self.unsolved}
            rp = new
            self.unsolved = [
                f for f in self.unsolved if (squares[f] > TOLERANCE**2 * first[f]).any()
            ]
            if not self.unsolved:
                break  # also if the chain has diverged and the residuals are NaN

    def _precondition(
        self, formula: Formula, **columns: dict[Factor, Float64]
    ) -> tuple[dict[Factor, Float64], dict[Factor, Float64]]:
        """Renew the residuals r of the unsolved systems by a formula. Collective.

        `send` is set to U diag(1 - 1 / s) U^T D_b^-1/2 r.

        Returns
        -------
        squares, products : dict of Factor to (D,) float64
            r . D_b^-1 r, and r . P^-1 r with the preconditioner P, by system.
        """
        partials: dict[str, Float64] = {}
        for factor in self.unsolved:
            own = {name: by_factor[factor] for name, by_factor in columns.items()}
            sums = self._update(self.coefficients[factor], factor, formula, columns=own)
            partials[factor.name] = sums["square"]
        for name, along in self._along_directions(SCALED).items():
            partials[_ALONG + name] = along
        totals = self.circulation.ring.sum(partials)
        squares = {factor: totals[factor.name] for factor in self.unsolved}
        products = {}
        for factor in self.unsolved:
            along = totals[_ALONG + factor.name]
            weighted = (1 - 1 / self.spectra[factor])[:, None] * along
            products[factor] = squares[factor] - (along * weighted).sum(axis=0)
            for block in self.coefficients[factor].blocks:
                add_rotated(block[SEND], block[DIRECTIONS], weighted, keep=0.0)
        return squares, products


class CoefficientMove(Systems):
    """Moves of all y, each after the gradient was computed and before the rows move.

    In draws given theta, predictions forget the past twice as slowly as without implicit features,
    because y and the rows that it shifts hold each other. If y moves by d, row i moves by
    f_i rho_i sum_{j in R_i} d_j, where

        f_ik = lambda_k / (lambda_k + l_i tau n_i c_k)

    is the prior's share of the row's curvature, in the notation of `dsgmcmc.samplers.baoab`: rows
    with few ratings follow their prior mean, and rows with many stay, as in a draw of y given
    theta. If l_i were 1, the row's conditional mean would move as far, and moves of y and of theta
    would not interact; but this is true only of average covariates. If they are aligned, the row's
    curvature is l_i times as large, and rows that follow too far make chains diverge.

    Along these directions the energy's curvature is at most about
    lambda_k X^T (I - F_k) X + beta_k, with F_k = diag(f_ik). With
    D_k = lambda_k diag(X^T X) mean_i(1 - f_ik) + beta_k, the coordinates of its metric are

        y_k = D_k^-1/2 (I - U diag(1 - s^-1/2) U^T) x_k.

    Momenta in additional directions leave the law of underdamped dynamics as it is, and since l_i
    and c_k do not depend on the row itself, nor do the directions. A move takes a tour for its
    gradient and one for the shifts.
    """

    scratch = MOVING

    def move(self, step: RowStep) -> None:
        """Kick all y and their momenta, and send the moves to the rows. Collective."""
        free_shares = self._free_shares(step)
        average = {factor: {"average": share} for factor, share in free_shares.items()}
        self.circulation.spread(SEND, GOT, [OTHER[factor] for factor in self.factors], by_pair=True)
        size = {"step": step.h / sqrt(L)}
        momentum = {
            "damp": step.damp,
            "spread": sqrt(1 - step.damp**2),
            "drift": MOMENTUM.name,
        }
        for factor, rows in self.coefficients.items():
            self._update(rows, factor, PUSH, numbers=size, columns=average[factor])
        self._deflate()
        for factor, rows in self.coefficients.items():
            self._update(rows, factor, NEW_MOMENTUM, numbers=momentum)
        self._deflate()
        for factor, rows in self.coefficients.items():
            self._update(rows, factor, STEP_OF_Y, numbers=size, columns=average[factor])
        self.circulation.spread(SEND, GOT, self.factors, by_pair=True)

    def _free_shares(self, step: RowStep) -> dict[Factor, Float64]:
        """Set `free` of all rows to f, and `send` to their pull; return mean_i(1 - f_i), (D,).

        Collective.
        """
        partials = {}
        for factor, rows in self.rows.items():
            step.prior_share(rows, FREE)
            partials[factor.name] = self._update(rows, factor, PULL)["kept"]
            known = [np.count_nonzero(block.counts) for block in rows.blocks]
            partials[f"{factor.name}.known"] = np.array(known, np.float64)[:, None]
        sums = self.circulation.ring.sum(partials)
        return {f: sums[f.name] / max(sums[f"{f.name}.known"][0], 1.0) for f in self.factors}

    def _deflate(self) -> None:
        """Multiply field ``kick`` by I - U diag(1 - s^-1/2) U^T. Collective."""
        along = self.circulation.ring.sum(self._along_directions(KICK))
        for factor, rows in self.coefficients.items():
            less = (1 / np.sqrt(self.spectra[factor]) - 1)[:, None] * along[factor.name]
            for block in rows.blocks:
                add_rotated(block[KICK], block[DIRECTIONS], less)

    def move_rows(self) -> None:
        """Move the rows, and their shifts, by the last move of y."""
        for factor, rows in self.rows.items():
            self._update(rows, factor, MOVE_ROWS)

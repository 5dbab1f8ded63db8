r"""Implicit features: the set of items that a user has rated shifts the user's prior mean [Koren
2008, eq. 15].

The values of the ratings do not matter. The model is SVD++, but for both sides, and in the prior,
so that the likelihood is unchanged:

    theta_i ~ N(m + rho_i sum_{j in R_i} y_j, Lambda^-1),    rho_i = |R_i|^-1/2
    y_jk    ~ N(0, 1 / beta_k),                                    beta_k ~ Gamma(1, rate 0.2)

R_i is the set of columns with which row i has training ratings; y_j belongs to column j and is
stored in its block. The prior means of columns are shifted likewise. Let X = diag(rho) E, where
E_ij is 1 if j is in R_i and 0 if not, and u = theta - m - shift. Given everything else, the step d
of y from its current value has the distribution of the solution of

    (X^T X + b_k) d = X^T (u + lambda_k^-1/2 e) - b_k y + (b_k / lambda_k)^1/2 e',    b_k = beta_k / lambda_k

for each k, with standard normal e and e' [Simm 2017, section 3.2]. The solution is computed by
conjugate gradients for all k at once, until every residual is at most `TOLERANCE` times its initial
value. A product with X or X^T takes a tour of the ring. Until one of them is solved, both factors'
systems share their tours.

**The preconditioner.** Few directions, of columns that the same rows have, have eigenvalues of X^T
X that are hundreds of times its diagonal: on MovieLens 1M 785, 131, 122 and, the 64th, 10, over a
median diagonal of 0.55. Let D_b = diag(X^T X) + b. Subspace iteration finds orthonormal vectors U,
as many as a factor has columns, near the largest eigenvalues of D_1^-1/2 X^T X D_1^-1/2; let s be
the larger of an eigenvalue and 1. The inverse of the preconditioner is

    D_b^-1/2 (I - U diag(1 - 1 / s) U^T) D_b^-1/2,

which is positive definite for any U, so that U affects only the number of steps. It halves this
number: at b = 1 from 15 to 5, and at b = 0.3 from 19 to 10. U and s depend only on the pattern, and
are computed again after a resume.

**Moves.** After the burn-in of `dsgmcmc.samplers.baoab`, y is not drawn, but moves with the rows,
by a BAOAB step. In draws given theta, predictions forget the past twice as slowly as without
implicit features, because y and the rows that it shifts hold each other. If y moves by d, row i
moves by f_i rho_i sum_{j in R_i} d_j, where

    f_ik = lambda_k / (lambda_k + l_i tau n_i c_k)

is the prior's share of the row's curvature, in the notation of `dsgmcmc.samplers.baoab`: rows with
few ratings follow their prior mean, and rows with many stay, as in a draw of y given theta. If l_i
were 1, the row's conditional mean would move as far, and moves of y and of theta would not
interact; but this is true only of average covariates. If they are aligned, the row's curvature is
l_i times as large, and rows that follow too far make chains diverge. Along these directions the
energy's curvature is at most about lambda_k X^T (I - F_k) X + beta_k, with F_k = diag(f_ik). With
D_k = lambda_k diag(X^T X) mean_i(1 - f_ik) + beta_k, the coordinates of its metric are

    y_k = D_k^-1/2 (I - U diag(1 - s^-1/2) U^T) x_k.

Momenta in additional directions leave the law of underdamped dynamics as it is, and since l_i and
c_k do not depend on the row itself, nor do the directions. A move takes a tour for its gradient and
one for the shifts.

For a row without ratings, the set R_i counts as unknown, not as empty: the row's shift has a normal
distribution with the mean and variance of the shifts of rows with ratings, and is drawn given the
row's theta.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import sqrt
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import BaseModel

from dsgmcmc.errors import InputError
from dsgmcmc.kernels.formula import Formula
from dsgmcmc.kernels.philox import normals
from dsgmcmc.kernels.products import add_rotated, inner
from dsgmcmc.model.circulation import OTHER
from dsgmcmc.model.conjugate import GammaPrior
from dsgmcmc.model.parts.base import (
    DESCRIBED,
    DrawContext,
    FeatureSizes,
    ModelFacts,
    Part,
    chosen_factors,
)
from dsgmcmc.model.quantity import NONE, SHIFT, Quantity, Sampled, SavedDraw
from dsgmcmc.parallel.ring import shapes_of
from dsgmcmc.settings import named, setting
from dsgmcmc.targets.base import RowStep
from dsgmcmc.targets.state import ParameterBlock, RandomStream, Rows
from dsgmcmc.types import Factor, Float64, ImplicitName, Int32, Purpose

#: Sweeps between draws.
DRAW_EVERY = 5
PRIOR = GammaPrior(1.0, 0.2)  # prior of beta
#: Residual at which conjugate gradients stop, relative to its initial value. If it is e, the drawn
#: y has the fraction (1 - e) / (1 + e) of its variance: with e = 0.2, the precisions of rows given
#: y were wrong by a fifth.
TOLERANCE = 0.05
SUBSPACE_STEPS = 2  # products with X^T X that find U; more save no step
MAX_STEPS = 50  # maximum number of steps of conjugate gradients
SMALLEST_VARIANCE = (
    1e-12  # lower bound on a variance of shifts, so that divisions by it stay finite
)
L = 4.0  # l of moves; with 2, chains on ordered levels with aligned covariates diverged

#: Scratch arrays of a draw and of moves, by their names in formulas; the prefix keeps them apart
#: from the samplers' fields. ``before`` is y before the draw.
SCRATCH = {name: f"implicit.{name}" for name in ("send", "got", "r", "p", "scaled", "before")}
MOVING = {name: f"implicit.{name}" for name in ("send", "got", "kick", "free")}
SEND, GOT, P, SCALED, KICK, FREE = (
    (SCRATCH | MOVING)[n] for n in ("send", "got", "p", "scaled", "kick", "free")
)
_SPECTRUM, _ALONG = "spectrum.", "along."  # names of sums
WEIGHT, DIAGONAL, DIRECTIONS = "implicit.weight", "implicit.diagonal", "implicit.directions"

#: Names in formulas of vectors over columns, and over rows.
COLUMNS = ("mean", "lambda_", "ratio", "alpha", "gain", "average", "variance", "beta")
ROWS = ("rho", "known", "diagonal")


def _formula(source: str, *column_sums: str) -> Formula:
    """Return a formula that declares the vectors in its source."""
    columns, rows = (
        tuple(name for name in names if re.search(rf"\b{name}\b", source))
        for names in (COLUMNS, ROWS)
    )
    return Formula(source, columns=columns, rows=rows, column_sums=column_sums)


RESIDUAL = _formula("send = rho * (theta - mean - shift + sqrt(1 / lambda_) * z)")
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
THROUGH_ROWS = _formula("send = rho * rho * got")
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
precision = 1 / variance + lambda_
drawn = (average / variance + lambda_ * (theta - mean - others) + sqrt(precision) * z) / precision
shift = known * shift + (1 - known) * (others + drawn)
""")

#: Of moves: the energy's derivative with respect to y, first its part in every row; the kick; the
#: move; the rows' move.
PULL = _formula("send = rho * (free * grad - grad_prior)\nkept = known * (1 - free)", "kept")
PRECISION = "precision = lambda_ * average * diagonal + beta\n"
PUSH = _formula(PRECISION + "kick = step * (got + beta * implicit) / sqrt(precision)")
TURN = _formula("""
kicked = drift - minimum(maximum(kick, -5.0), 5.0)
drift = damp * kicked + spread * z
kick = kicked + drift
""")
STEP_OF_Y = _formula(
    PRECISION + "send = 0.5 * step * kick / sqrt(precision)\nimplicit = implicit + send"
)
FOLLOW = _formula("shift = shift + rho * got\ntheta = theta + free * rho * got")


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


#: y: contribution of a row to the prior means of the rows with which it has ratings.
IMPLICIT = Quantity("implicit", ("column",), of_rows=True, columns=1)
#: Momentum of y, N(0, 1) in the coordinates of its metric.
MOMENTUM = Quantity("implicit_drift", ("column",), of_rows=True, drawn=False)


def implicit_quantities(factors: Sequence[Factor], moves: bool) -> tuple[Quantity, ...]:
    """Quantities of a model that shifts the prior means of these factors' rows, by y that `moves`
    or is drawn.
    """
    if not factors:
        return ()
    of_rows = (IMPLICIT, MOMENTUM) if moves else (IMPLICIT,)
    coefficients = (q if len(factors) > 1 else q.of(Factor(1 - factors[0])) for q in of_rows)
    return (SHIFT, *coefficients, *ImplicitParameters.about(factors))


class ImplicitSettings(BaseModel):
    """Settings of implicit features."""

    implicit_features: ImplicitName = setting(
        "Learn also from who rated what: about users, items, or both.", "no"
    )


class ImplicitFeatures(Part):
    """Implicit features of the users, the items, or both.

    Field ``implicit`` of a block is the y of its rows, which shift the prior means of the other
    factor's rows.

    Parameters
    ----------
    factors : tuple of Factor
        The factors whose rows' means are shifted.
    dimension : int
        Columns D of a factor.
    start : float
        Initial value of all beta.
    moves_from : int, optional
        First iteration in which y moves with the rows; None if the sampler does not move it.
    """

    Settings = ImplicitSettings
    prior_every = DRAW_EVERY
    parameters: ImplicitParameters

    def __init__(
        self,
        factors: tuple[Factor, ...],
        dimension: int,
        start: float,
        moves_from: int | None = None,
    ) -> None:
        self.factors, self._dimension = factors, dimension
        self._start, self._moves_from = start, moves_from
        self._move: _Move | None = None
        self.spectra: dict[Factor, Float64] = {}  # s, by the factor whose means are shifted
        self.quantities = implicit_quantities(factors, moves_from is not None)
        self.parameters = ImplicitParameters({}, {}, {})
        self.start(())

    @classmethod
    def check(cls, config: Any) -> None:
        """Refuse dense priors and interleaved chains."""
        if config.implicit_features == "no":
            return
        if config.prior == "normal-wishart":
            raise InputError(
                f"implicit features need a diagonal prior: {named('prior')} normal-gamma or fixed"
            )
        if config.interleaved:
            leave = f"use another {named('sampler')}, or {named('implicit_features')} no"
            raise InputError(
                f"{config.sampler.name} interleaves chains, which implicit features do not allow:"
                f" {leave}"
            )

    @classmethod
    def quantities_of(
        cls, config: Any, transposed: bool, features: FeatureSizes
    ) -> tuple[Quantity, ...]:
        """The part's quantities; none if the run does not use the part."""
        moves = config.make_sampler().moves_from is not None
        return implicit_quantities(
            sorted(chosen_factors(config.implicit_features, transposed)), moves
        )

    @classmethod
    def of(cls, model: ModelFacts, data: None) -> Self | None:
        """Make a chain's instance of the part; None if the run does not use the part.

        Collective.
        """
        factors = tuple(sorted(chosen_factors(model.config.implicit_features, model.transposed)))
        config = model.config
        return (
            cls(factors, config.dimension, config.prior_precision, model.moves_from)
            if factors
            else None
        )

    def start(self, blocks: Iterable[ParameterBlock]) -> None:
        """Set all y and their momenta to 0, and their precisions to the initial value."""
        for block in blocks:
            for name in {IMPLICIT.name, MOMENTUM.name}.intersection(block.arrays):
                block[name].fill(0.0)
        zeros = np.zeros(self._dimension)
        self.parameters.precision = dict.fromkeys(self.factors, zeros + self._start)
        self.parameters.average = {factor: zeros.copy() for factor in self.factors}
        self.parameters.variance = {factor: zeros.copy() for factor in self.factors}

    @classmethod
    def of_unseen(cls, draw: SavedDraw, kind: str) -> tuple[Float64, Float64] | None:
        """Mean and covariance of the shift of a row without ratings: the moments of the shifts of
        rows with ratings.
        """
        if f"{kind}.implicit.mean" not in draw.shared:
            return None
        return draw.shared[f"{kind}.implicit.mean"], np.diag(
            draw.shared[f"{kind}.implicit.variance"]
        )

    @classmethod
    def of_rated(cls, draw: SavedDraw, kind: str, others: Int32) -> Float64 | None:
        """Shift of the prior mean of a new row with ratings of the other side's rows `others`,
        (D,).
        """
        if f"{kind}.implicit.mean" not in draw.shared:
            return None
        y = draw.rows["item" if kind == "user" else "user"][IMPLICIT.name][others]
        return np.asarray(y.sum(axis=0) / np.sqrt(len(others)))

    def draw(self, context: DrawContext) -> None:
        """Draw all y, if they do not move; beta, and the shifts of rows without ratings, if due.

        Collective.
        """
        if context.is_turn(DRAW_EVERY):
            systems = self._move_at(context) or _Draw(self, context)
            systems.draw_coefficients()
            systems.draw_others()

    def _move_at(self, context: DrawContext) -> _Move | None:
        """The move of all y at this state; None if they do not move in this iteration."""
        if self._moves_from is None or context.stream.iteration < self._moves_from:
            return None
        self._move = self._move or _Move(self, context)
        return self._move.at(context)

    def momenta_of(self, factor: Factor) -> Mapping[str, str]:
        """Fields of a factor's rows that contain N(0, 1) momenta, by the name of the parameters
        that they move.
        """
        moved = self._moves_from is not None and OTHER[factor] in self.factors
        return {"implicit features": MOMENTUM.name} if moved else {}

    @contextmanager
    def moving(self, context: DrawContext, step: RowStep) -> Iterator[None]:
        """Move all y, if they move, with the rows, which move in the ``with`` block. Collective."""
        move = self._move_at(context)
        if move:
            move.move(step)
        yield
        if move:
            move.follow()


class _Systems:
    """The two products with the pattern, X and X^T, for the rows of one factor or of both.

    A system of equations is named after the factor whose means are shifted: its rows are this
    factor's rows, and its coefficients belong to the other factor's rows. Both systems are solved
    at the same time, so that a factor may have the rows of one system and the coefficients of the
    other.
    """

    scratch: ClassVar[dict[str, str]]

    def __init__(self, part: ImplicitFeatures, context: DrawContext) -> None:
        #: `unsolved` are the systems whose residuals are still above `TOLERANCE`.
        self.factors, self.unsolved, self.parameters = (
            part.factors,
            list(part.factors),
            part.parameters,
        )
        self.circulation, self.spectra = context.circulation, part.spectra
        by_factor = {rows.factor: rows for rows in self.circulation.rows_by_factor()}
        #: By system: its rows, and the other factor's rows, which have its coefficients.
        self.rows = {factor: by_factor[factor] for factor in self.factors}
        self.coefficients = {factor: by_factor[OTHER[factor]] for factor in self.factors}
        #: Vectors in formulas: over the rows of a factor, and over the columns of a system.
        self.vectors: dict[Factor, dict[str, Any]] = {}
        for factor, rows in by_factor.items():
            n = np.concatenate([block.counts for block in rows.blocks])
            rho = np.divide(1, np.sqrt(n), out=np.zeros(len(n)), where=n > 0)
            self.vectors[factor] = {
                "rho": rho.astype(rows.dtype),
                "known": (n > 0).astype(rows.dtype),
            }
        self.at(context)
        for block in self.circulation.blocks():
            shape = len(block.counts), block.dimension
            for name in self.scratch.values():
                if name not in block.arrays:
                    block.arrays[name] = np.zeros(shape, block.dtype)
        if any(DIRECTIONS not in rows.blocks[0].arrays for rows in self.coefficients.values()):
            self._find_directions()

    def at(self, context: DrawContext) -> Self:
        """Take the current parameters; blocks must be where they were."""
        self.context, self.columns = context, dict[Factor, dict[str, Any]]()
        for factor, rows in self.rows.items():
            prior = context.prior(rows.blocks[0])
            beta = self.parameters.precision[factor]
            given = {
                "ratio": beta / prior.precision,
                "beta": beta,
                "lambda_": prior.precision,
                "mean": prior.mean,
            }
            self.columns[factor] = {
                name: column.astype(rows.dtype) for name, column in given.items()
            }
        return self

    def _update(
        self,
        rows: Rows,
        factor: Factor,
        formula: Formula,
        purpose: Purpose,
        /,
        numbers: Any = NONE,
        **columns: Float64,
    ) -> dict[str, Any]:
        """Apply a formula to the rows or coefficients of a system, given further numbers and column
        vectors.
        """
        given = self.columns[factor] | {
            name: column.astype(rows.dtype) for name, column in columns.items()
        }
        given |= self.vectors[rows.factor] | {"diagonal": DIAGONAL, "theta": self.context.position}
        return rows.update(formula, purpose, **given, **self.scratch, **numbers)

    def _multiply(self, field: str) -> None:
        """Set `got` of the unsolved systems' coefficients to X^T X times a field. Collective."""
        self.circulation.spread(field, GOT, self.unsolved)
        for factor in self.unsolved:
            self._update(self.rows[factor], factor, THROUGH_ROWS, Purpose.IMPLICIT)
        self.circulation.spread(SEND, GOT, [OTHER[factor] for factor in self.unsolved])

    def _find_directions(self) -> None:
        """Compute the diagonals of all X^T X, and U and s by subspace iteration. Collective."""
        for block in self.circulation.blocks():
            block.arrays |= {
                name: np.zeros((len(block.counts), 1), block.dtype) for name in (WEIGHT, DIAGONAL)
            }
            block.row(WEIGHT)[:] = (block.counts > 0) / np.maximum(block.counts, 1)
        self.circulation.spread(WEIGHT, DIAGONAL)
        blocks = [block for rows in self.coefficients.values() for block in rows.blocks]
        for block in blocks:
            start = np.empty(block[SEND].size, np.float32)
            normals(
                start,
                RandomStream(0, 0).key(
                    Purpose.IMPLICIT_START, block.factor, block.start * block.dimension
                ),
            )
            block.arrays[DIRECTIONS] = start.reshape(block[SEND].shape)
        for _ in range(SUBSPACE_STEPS):
            for block in blocks:
                block[SEND][:] = block[DIRECTIONS] / np.sqrt(block[DIAGONAL] + 1)
            self._multiply(SEND)
            for block in blocks:
                block.arrays[DIRECTIONS] = block[GOT] / np.sqrt(block[DIAGONAL] + 1)
            products = self._along_directions(DIRECTIONS)
            shapes = {name: array.shape[1:] for name, array in products.items()}
            shapes |= {_SPECTRUM + name: shape[:1] for name, shape in shapes.items()}
            turns = self.circulation.ring.sum(products, _turns, shapes)
            self.spectra.update({f: turns[_SPECTRUM + f.name] for f in self.factors})
            for block in blocks:
                add_rotated(
                    block[DIRECTIONS], block[DIRECTIONS], turns[OTHER[block.factor].name], keep=0.0
                )

    def draw_coefficients(self) -> None:
        """Draw all y given the rows, unless they move. Collective."""

    def _along_directions(self, field: str) -> dict[str, Float64]:
        """U^T F of every block with coefficients of an unsolved system, by system; F is the block's
        field.
        """
        of_systems = {factor.name: self.coefficients[factor].blocks for factor in self.unsolved}
        return {
            name: np.array([inner(b[DIRECTIONS], b[field]) for b in blocks])
            for name, blocks in of_systems.items()
        }

    # ------------------------------------------------------------------ what follows from y

    def draw_others(self) -> None:
        """Draw beta given y, and the shifts of rows without ratings. Collective."""
        partials: dict[str, Float64] = {}
        described = {f: DESCRIBED.name in rows.blocks[0].arrays for f, rows in self.rows.items()}
        others = {f: {"others": DESCRIBED.name if described[f] else 0.0} for f in self.factors}
        for factor, rows in self.rows.items():
            coefficients = self.coefficients[factor]
            sums = self._update(coefficients, factor, SQUARES, Purpose.IMPLICIT)
            sums |= self._update(rows, factor, MOMENTS, Purpose.IMPLICIT, others[factor])
            partials |= {f"{factor.name}.{name}": totals for name, totals in sums.items()}
            pairs = zip(rows.blocks, coefficients.blocks, strict=True)
            sizes = [[np.count_nonzero(block.counts), len(other.counts)] for block, other in pairs]
            partials[f"{factor.name}.sizes"] = np.array(sizes, np.float64)
        shapes = shapes_of(self.parameters.arrays())
        self.parameters.take(self.circulation.ring.sum(partials, self._draw_parameters, shapes))
        for factor, rows in self.rows.items():
            moments = {
                "average": self.parameters.average[factor],
                "variance": self.parameters.variance[factor],
            }
            self._update(rows, factor, UNKNOWN, Purpose.IMPLICIT_UNKNOWN, others[factor], **moments)

    def _draw_parameters(self, sums: dict[str, Float64]) -> dict[str, Float64]:
        """Draw beta given y, and compute the moments of the shifts; runs at the root."""
        rng = self.context.stream.generator(Purpose.HYPERPARAMETERS, part=1)
        drawn = ImplicitParameters({}, {}, {})
        for factor in self.factors:
            n_rows, n_coefficients = sums[f"{factor.name}.sizes"]
            drawn.precision[factor] = PRIOR.draw(
                sums[f"{factor.name}.squares"], n_coefficients, rng
            )
            drawn.average[factor] = sums[f"{factor.name}.total"] / max(n_rows, 1.0)
            variance = sums[f"{factor.name}.square"] / max(n_rows, 1.0) - drawn.average[factor] ** 2
            drawn.variance[factor] = np.maximum(variance, SMALLEST_VARIANCE)
        return drawn.arrays()


class _Draw(_Systems):
    """One draw of all y."""

    scratch = SCRATCH

    def draw_coefficients(self) -> None:
        """Draw all y given the rows, and shift the rows' means by the change. Collective."""
        self._solve()
        for factor, rows in self.coefficients.items():
            self._update(rows, factor, CHANGE, Purpose.IMPLICIT)
        self.circulation.spread(SEND, GOT, self.factors)
        for factor, rows in self.rows.items():
            self._update(rows, factor, SHIFTED, Purpose.IMPLICIT)
        kept = (
            () if self.circulation.schedule else (DIAGONAL, DIRECTIONS)
        )  # blocks that move do not take U along
        for block in self.circulation.blocks():
            for name in {*SCRATCH.values(), WEIGHT, DIAGONAL, DIRECTIONS}.intersection(
                block.arrays
            ).difference(kept):
                del block.arrays[name]

    # ------------------------------------------------------------------ the systems of equations

    def _solve(self) -> None:
        """Draw all y by conjugate gradients. Collective."""
        for factor, rows in self.rows.items():
            self._update(rows, factor, RESIDUAL, Purpose.IMPLICIT_FIT)
        self.circulation.spread(SEND, GOT, [OTHER[factor] for factor in self.unsolved])
        first, rp = self._precondition(BEGIN)
        gain = {factor: np.zeros_like(columns) for factor, columns in rp.items()}
        for _ in range(MAX_STEPS):
            for factor in self.unsolved:
                self._update(
                    self.coefficients[factor],
                    factor,
                    DIRECTION,
                    Purpose.IMPLICIT,
                    gain=gain[factor],
                )
            self._multiply(P)
            curved = [
                self._update(self.coefficients[f], f, CURVATURE, Purpose.IMPLICIT)
                for f in self.unsolved
            ]
            pq = self.circulation.ring.sum(
                {f.name: c["pq"] for f, c in zip(self.unsolved, curved, strict=True)}
            )
            squares, new = self._precondition(
                STEP, alpha={f: _quotient(rp[f], pq[f.name]) for f in self.unsolved}
            )
            gain, rp = {factor: _quotient(new[factor], rp[factor]) for factor in self.unsolved}, new
            self.unsolved = [
                f for f in self.unsolved if (squares[f] > TOLERANCE**2 * first[f]).any()
            ]
            if not self.unsolved:
                break  # also if the chain has diverged and the residuals are NaN

    def _precondition(
        self, formula: Formula, **columns: dict[Factor, Float64]
    ) -> tuple[dict[Factor, Float64], ...]:
        """Renew the residuals r of the unsolved systems by a formula.

        Set `send` to U diag(1 - 1 / s) U^T D_b^-1/2 r.
        Return r . D_b^-1 r, and r . P^-1 r with the preconditioner P, by system. Collective.
        """
        partials: dict[str, Float64] = {}
        for factor in self.unsolved:
            rows, given = (
                self.coefficients[factor],
                {name: column[factor] for name, column in columns.items()},
            )
            partials[factor.name] = self._update(rows, factor, formula, Purpose.IMPLICIT, **given)[
                "square"
            ]
        partials |= {
            _ALONG + name: products for name, products in self._along_directions(SCALED).items()
        }
        sums = self.circulation.ring.sum(partials)
        squares, products = {factor: sums[factor.name] for factor in self.unsolved}, {}
        for factor in self.unsolved:
            along = sums[_ALONG + factor.name]
            weighted = (1 - 1 / self.spectra[factor])[:, None] * along
            products[factor] = squares[factor] - (along * weighted).sum(axis=0)
            for block in self.coefficients[factor].blocks:
                add_rotated(block[SEND], block[DIRECTIONS], weighted, keep=0.0)
        return squares, products


class _Move(_Systems):
    """One move of all y, after the gradient was computed and before the rows move."""

    scratch = MOVING

    def move(self, step: RowStep) -> None:
        """Kick all y and their momenta, and send the moves to the rows. Collective."""
        kept = {}
        for factor, rows in self.rows.items():
            step.prior_share(rows, FREE)
            kept[factor.name] = self._update(rows, factor, PULL, Purpose.IMPLICIT)["kept"]
            known = [np.count_nonzero(block.counts) for block in rows.blocks]
            kept[f"{factor.name}.known"] = np.array(known, np.float64)[:, None]
        sums = self.circulation.ring.sum(kept)
        average = {
            f: {"average": sums[f.name] / max(sums[f"{f.name}.known"][0], 1.0)}
            for f in self.factors
        }
        self.circulation.spread(SEND, GOT, [OTHER[factor] for factor in self.factors])
        h = {"step": step.h / sqrt(L)}
        fresh = {"damp": step.damp, "spread": sqrt(1 - step.damp**2), "drift": MOMENTUM.name}
        for factor, rows in self.coefficients.items():
            self._update(rows, factor, PUSH, Purpose.IMPLICIT, h, **average[factor])
        self._deflate()
        for factor, rows in self.coefficients.items():
            self._update(rows, factor, TURN, Purpose.IMPLICIT, fresh)
        self._deflate()
        for factor, rows in self.coefficients.items():
            self._update(rows, factor, STEP_OF_Y, Purpose.IMPLICIT, h, **average[factor])
        self.circulation.spread(SEND, GOT, self.factors)

    def _deflate(self) -> None:
        """Multiply field ``kick`` by I - U diag(1 - s^-1/2) U^T. Collective."""
        along = self.circulation.ring.sum(self._along_directions(KICK))
        for factor, rows in self.coefficients.items():
            less = (1 / np.sqrt(self.spectra[factor]) - 1)[:, None] * along[factor.name]
            for block in rows.blocks:
                add_rotated(block[KICK], block[DIRECTIONS], less)

    def follow(self) -> None:
        """Move the rows, and their shifts."""
        for factor, rows in self.rows.items():
            self._update(rows, factor, FOLLOW, Purpose.IMPLICIT)


def _turns(products: Mapping[str, Float64]) -> dict[str, Float64]:
    """Return by system s, and T with which U = Z T, given Z^T Z; columns of U with s = 1 are not
    orthonormal.
    """
    turns: dict[str, Float64] = {}
    for name, product in products.items():
        squares, vectors = np.linalg.eigh(product)
        s = np.sqrt(np.maximum(squares, 1))
        turns |= {name: vectors / s, _SPECTRUM + name: s}
    return turns


def _quotient(a: Float64, b: Float64) -> Float64:
    """Return a / b, by column; 0 where b is 0, because the column is solved."""
    return np.divide(a, b, out=np.zeros(len(b)), where=b > 0)

r"""Side information: the features of a row shift its prior mean (Macau's link matrix [Simm 2017]).

    theta_i ~ N(m + B^T x_i, Lambda^-1)
    B_f     ~ N(0, (beta_g(f) Lambda)^-1)
    beta_g  ~ Gamma(1, rate 1)

where x_i are the F features of row i, centred over the rows that have features; a row without
features is treated as average. A group of features is derived from one column of the source, such
as the genres of films. With A = X^T X + diag(beta) = L L^T,

    beta_g | B, Lambda ~ Gamma(1 + n_g D / 2, rate 1 + sum_{f in g} B_f^T Lambda B_f / 2)
    B | rest = A^-1 (X^T (theta - m) + L Z Lambda^-1/2),    Z standard normal

If row i has the prior precision g_i Lambda (docs/model.md), the sums over rows in X^T X and in
X^T (theta - m) get the weights g_i. Both draws are exact; theta - m also excludes other parts'
contributions to the prior mean. Between them, Lambda and m are drawn given B
(`FeatureEffects.precision_terms`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.random import Generator
from pydantic import BaseModel
from typing_extensions import override

from dsgmcmc.errors import InputError
from dsgmcmc.kernels.formulas.formula import dense
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.conjugate import GammaPrior
from dsgmcmc.model.parts.base import (
    DESCRIBED,
    ChainFacts,
    DrawContext,
    FileFacts,
    ModelFacts,
    Part,
    PrecisionTerms,
)
from dsgmcmc.model.quantity import NONE, SHIFT, WEIGHT, Quantity, Sampled
from dsgmcmc.orientation import Orientation
from dsgmcmc.parallel.ring import Ring, shapes_of, stacked
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.format import MAX_SAMPLED_FEATURES, SIDES, Features
from dsgmcmc.settings import named, setting
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Factor, FeaturesName, Float32, Float64, Int64, Purpose

#: Sweeps between draws of beta and B.
DRAW_EVERY = 10
#: Prior of beta.
STRENGTH_PRIOR = GammaPrior(1.0, 1.0)
_SLICE = 1 << 20  # elements of the Gram matrix that are added over the processes at a time


def used_factors(
    features: FeaturesName, available: Collection[Factor], orientation: Orientation
) -> tuple[Factor, ...]:
    """Factors whose features are used, among the `available` ones.

    `orientation` says which factor's rows stand for users.
    """
    if features == "yes":
        selected = orientation.factors_of("both")
    else:
        selected = orientation.factors_of(features)
    return tuple(factor for factor in sorted(available) if factor in selected)


def featured_factors(features: FeaturesName, ratings: Ratings) -> tuple[Factor, ...]:
    """Factors whose features are used, among the factors with features in the ratings file.

    Raises
    ------
    InputError
        If the ratings file lacks features that the setting requires.
    """
    stored = {Factor(SIDES.index(side)) for side in ratings.features}
    used = used_factors(features, stored, ratings.orientation)
    if features in ("user", "item") and not used:
        raise InputError(
            f"{ratings.path} has no features of {features}s: give them to `dsgmcmc prepare`"
        )
    return used


class Design:
    """Features X of a factor's rows, centred.

    Row i is x_i less the mean over the rows with features, so that m remains the prior mean of an
    average row; it is 0 if row i has no features.

    Parameters
    ----------
    blocks : dict of int to Features
        Features of the blocks whose home is this process.
    ring : Ring
        The processes of the chain.

    Attributes
    ----------
    size : int
        Number F of features.
    rows : float
        Number of rows that have features.
    groups : (F,) int
        Number of each feature's group, in the order in which groups first occur.
    centre : (F,) float64
        Mean of x_i over the rows that have features.
    """

    def __init__(self, blocks: Mapping[int, Features], ring: Ring) -> None:
        first = next(iter(blocks.values()))
        self.size = len(first.names)
        group_number = {group: k for k, group in enumerate(dict.fromkeys(first.groups))}
        self.groups: Int64 = np.array([group_number[group] for group in first.groups], np.int64)
        self._x = {b: features.matrix() for b, features in blocks.items()}
        self._known = {b: (np.diff(x.indptr) > 0).astype(np.float64) for b, x in self._x.items()}
        totals = []
        for b, x in self._x.items():
            known = self._known[b]
            totals.append(np.append(known @ x, known.sum()))
        total = ring.total(np.array(totals))
        self.rows = float(total[-1])
        self.centre: Float64 = total[:-1] / max(self.rows, 1.0)

    def product(self, block: int, effects: Float64) -> Float32:
        """X B of a block, (n, D) float32, for B (F, D) float64."""
        centred = self._x[block] @ effects - np.outer(self._known[block], self.centre @ effects)
        return np.asarray(centred.astype(np.float32))

    def moment(self, block: int, residual: Float64) -> Float64:
        """X^T R of a block, (F, D), for R (n, D)."""
        return np.asarray(
            self._x[block].T @ residual - np.outer(self.centre, self._known[block] @ residual)
        )

    def gram(self, ring: Ring, scales: Mapping[int, Float64] = NONE) -> Float64:
        """X^T diag(g) X over all blocks, (F, F). Collective.

        `scales` has g of the rows of each block, (n,); 1 without them.
        """
        step = max(1, _SLICE // self.size)
        rows = []
        for start in range(0, self.size, step):
            part = slice(start, start + step)
            addends = [self._gram_rows(b, part, scales.get(b)).ravel() for b in self._x]
            rows.append(ring.total(np.array(addends)).reshape(-1, self.size))
        return np.concatenate(rows)

    def _gram_rows(self, block: int, part: slice, scale: Float64 | None) -> Float64:
        """Rows `part` of X^T diag(g) X of a block, (rows, F)."""
        x = self._x[block]
        weight = self._known[block]
        if scale is not None:
            weight = weight * scale
            x = x.multiply(scale[:, None]).tocsr()
        total = self._known[block] @ x
        across = np.outer(self.centre[part], total) + np.outer(total[part], self.centre)
        square = weight.sum() * np.outer(self.centre[part], self.centre)
        return np.asarray((self._x[block][:, part].T @ x).toarray() - across + square)


@dataclass
class FeatureParameters(Sampled):
    """Parameters of the effects of features, by the factor whose rows have the features; float64.

    Attributes
    ----------
    effects : dict of Factor to (F, D)
        B.
    strength : dict of Factor to (groups,)
        beta.
    explained : dict of Factor to (groups,)
        Mean square of a group's contribution to the prior means, in units of the rows' variance
        around these means.
    """

    quantities: ClassVar[Mapping[str, Quantity]] = {
        "effects": Quantity(
            "{}.features.effects", ("{}.feature", "column"), columns=1, traced=False
        ),
        "strength": Quantity("{}.features.strength", ("{}.feature_group",), positive=True),
        "explained": Quantity("{}.features.explained", ("{}.feature_group",)),
    }

    effects: dict[Factor, Float64]
    strength: dict[Factor, Float64]
    explained: dict[Factor, Float64]


def feature_quantities(factors: Sequence[Factor]) -> tuple[Quantity, ...]:
    """Quantities of a model that uses features of these factors' rows."""
    if not factors:
        return ()
    return (SHIFT, DESCRIBED, *FeatureParameters.about(factors))


class FeatureSettings(BaseModel):
    """Settings of features."""

    features: FeaturesName = setting(
        "Use features of the ratings file: of users, items, both, or neither.", "yes"
    )


class FeatureEffects(Part[FeatureSettings]):
    """Features of the rows of one factor or both.

    Parameters
    ----------
    designs : dict of Factor to Design
        The features of the factors whose features are used.
    dimension : int
        Columns D of a factor.
    """

    Settings = FeatureSettings
    prior_every = DRAW_EVERY
    parameters: FeatureParameters

    def __init__(self, designs: Mapping[Factor, Design], dimension: int) -> None:
        self.designs = dict(designs)
        self._dimension = dimension
        self.quantities = feature_quantities(tuple(self.designs))
        self._grams: dict[Factor, Float64] = {}
        self.parameters = FeatureParameters({}, {}, {})
        self.start(())

    @classmethod
    @override
    def check_ratings(cls, settings: FeatureSettings, model: ModelFacts, ratings: Ratings) -> None:
        """Refuse a file without required features or with too many, and interleaved chains."""
        for factor in featured_factors(settings.features, ratings):
            number = len(ratings.features[SIDES[factor]].names)
            # the Cholesky factor of A, F^2 numbers, takes about a second at the limit
            if number > MAX_SAMPLED_FEATURES:
                raise InputError(
                    f"{ratings.path} has {number:,} features of users or items, and at most"
                    f" {MAX_SAMPLED_FEATURES:,} are allowed: give columns the kind skip"
                    f" ({named('feature_kinds')}), or use {named('features')} no"
                )
            if model.sampler.interleaved:
                raise InputError(
                    f"{model.sampler.name} interleaves chains, which features do not allow:"
                    f" use another {named('sampler')}, or {named('features')} no"
                )

    @classmethod
    @override
    def quantities_of(
        cls, settings: FeatureSettings, model: ModelFacts, file: FileFacts
    ) -> tuple[Quantity, ...]:
        return feature_quantities(used_factors(settings.features, file.features, file.orientation))

    @classmethod
    @override
    def read(
        cls, settings: FeatureSettings, ratings: Ratings, blocks: RatingBlocks, ring: Ring
    ) -> dict[Factor, Design]:
        """Read the features of the blocks whose home is this process. Collective."""

        def slabs() -> dict[Factor, dict[int, Features]]:
            read: dict[Factor, dict[int, Features]] = {}
            for factor in featured_factors(settings.features, ratings):
                read[factor] = {}
                for b in ring.blocks:
                    start, stop = blocks.bounds(factor, b)
                    read[factor][b] = ratings.feature_slab(SIDES[factor], start, stop)
            return read

        by_factor = ring.agree(slabs, "reading features")
        return {factor: Design(by_block, ring) for factor, by_block in by_factor.items()}

    @classmethod
    @override
    def create(
        cls, settings: FeatureSettings, chain: ChainFacts, data: Mapping[Factor, Design]
    ) -> Self | None:
        if not data:
            return None
        return cls(data, chain.model.dimension)

    @override
    def start(self, blocks: Iterable[ParameterBlock]) -> None:
        """Set B and the features' contribution to the shifts to 0, and beta to 1."""
        for block in blocks:
            block[DESCRIBED.name].fill(0.0)
        for factor, design in self.designs.items():
            groups = int(design.groups.max()) + 1
            self.parameters.effects[factor] = np.zeros((design.size, self._dimension))
            self.parameters.strength[factor] = np.ones(groups)
            self.parameters.explained[factor] = np.zeros(groups)

    @override
    def precision_terms(self) -> dict[Factor, PrecisionTerms]:
        """Additional sufficient statistics for drawing Lambda: F, and sum_f beta_f B_f B_f^T.

        The prior of B adds F / 2 to the shape of lambda_k, and sum_f beta_f B_fk^2 / 2 to its rate.
        """
        terms = {}
        for factor, design in self.designs.items():
            effects = self.parameters.effects[factor]
            beta = self.parameters.strength[factor][design.groups]
            terms[factor] = PrecisionTerms(design.size, effects.T @ (beta[:, None] * effects))
        return terms

    @override
    def draw(self, context: DrawContext) -> None:
        """Draw beta and B, if due, and shift the rows' prior means by the change. Collective."""
        if not context.is_due(DRAW_EVERY):
            return
        circulation = context.circulation
        precision = {block.factor: context.prior(block).precision for block in circulation.blocks()}

        def finish(sums: dict[str, Float64]) -> dict[str, Float64]:
            return self._draw_all(sums, precision, context, weighted)

        scales = self._scales(context)
        moments = self._moments(context, scales)
        shapes = shapes_of(self.parameters.arrays())
        weighted = {
            factor: self.designs[factor].gram(circulation.ring, of_blocks)
            for factor, of_blocks in scales.items()
        }
        self.parameters.take(circulation.ring.sum(moments, finish, shapes))
        fields = (SHIFT.name, DESCRIBED.name)
        for block in circulation.home(fields, returning=fields):
            if block.factor in self.designs:
                effects = self.parameters.effects[block.factor]
                described = block[DESCRIBED.name]
                new = self.designs[block.factor].product(block.index, effects)
                block[SHIFT.name][:] += new - described
                described[:] = new

    def _scales(self, context: DrawContext) -> dict[Factor, dict[int, Float64]]:
        """Scales g of the precisions of the rows' priors, (n,) by block at home. Collective.

        Only of factors whose rows have features, and whose prior has scales.
        """
        scales: dict[Factor, dict[int, Float64]] = {}
        for rows in context.circulation.rows_by_factor():
            if rows.factor in self.designs and context.prior(rows.blocks[0]).scale is not None:
                scales[rows.factor] = {}
        if scales:
            for block in context.circulation.home((WEIGHT.name,)):
                if block.factor in scales:
                    of_block = block.row(WEIGHT.name).astype(np.float64)
                    scales[block.factor][block.index] = of_block
        return scales

    def _moments(
        self, context: DrawContext, scales: Mapping[Factor, Mapping[int, Float64]]
    ) -> dict[str, Float64]:
        """X^T diag(g) (theta - m - other parts' shifts), by block. Collective.

        Also computes Gram matrices that are not yet known.
        """
        partials: dict[int, dict[str, Float64]] = {}
        for block in context.circulation.home((context.position, SHIFT.name, DESCRIBED.name)):
            if block.factor not in self.designs:
                continue
            theta = block[context.position].astype(np.float64)
            shift = block[SHIFT.name].astype(np.float64)
            described = block[DESCRIBED.name].astype(np.float64)
            residual = theta - context.prior(block).mean - (shift - described)
            if block.factor in scales:
                residual *= scales[block.factor][block.index][:, None]
            moment = self.designs[block.factor].moment(block.index, residual)
            partials.setdefault(block.index, {})[f"{block.factor.name}.moment"] = moment
        ring = context.circulation.ring
        for factor, design in self.designs.items():
            if factor not in self._grams:
                self._grams[factor] = design.gram(ring)
        return stacked(partials[b] for b in ring.blocks)

    def _draw_all(
        self,
        sums: dict[str, Float64],
        precision: dict[Factor, Float64],
        context: DrawContext,
        weighted: Mapping[Factor, Float64],
    ) -> dict[str, Float64]:
        """Draw beta and B of all factors, given Gram matrices with weights; runs at the root."""
        rng = context.stream.generator(Purpose.HYPERPARAMETERS, part=2)
        drawn = FeatureParameters({}, {}, {})
        for factor, design in self.designs.items():
            groups = design.groups
            lambda_ = dense(precision[factor].astype(np.float64))
            old = self.parameters.effects[factor]
            squares = ((old @ lambda_) * old).sum(axis=1)
            elements = np.bincount(groups) * self._dimension
            strength = STRENGTH_PRIOR.draw(np.bincount(groups, squares), elements, rng)
            gram = self._grams[factor]
            moment = sums[f"{factor.name}.moment"]
            effects = draw_effects(
                weighted.get(factor, gram),
                moment,
                beta=strength[groups],
                precision=lambda_,
                rng=rng,
            )
            covariance = gram / max(design.rows, 1.0)
            drawn.strength[factor] = strength
            drawn.effects[factor] = effects
            drawn.explained[factor] = explained(effects, covariance, groups, lambda_)
        return drawn.arrays()


def draw_effects(
    gram: Float64, moment: Float64, *, beta: Float64, precision: Float64, rng: Generator
) -> Float64:
    """Draw B given the rest.

    Parameters
    ----------
    gram : (F, F)
        X^T X.
    moment : (F, D)
        X^T (theta - m), without other parts' contributions to the prior means.
    beta : (F,)
    precision : (D, D)
        Lambda.
    rng : Generator

    Returns
    -------
    (F, D) float64
    """
    from scipy.linalg import solve_triangular  # slow to import, and most runs do not need it

    # with an L from another beta, B would have a wrong distribution
    lower = np.linalg.cholesky(gram + np.diag(beta))
    z = rng.standard_normal(moment.shape)
    # A^-1 (moment + L z Lambda^-1/2) = L^-T (L^-1 moment + z Lambda^-1/2)
    spread = solve_triangular(np.linalg.cholesky(precision), z.T, lower=True, trans="T").T
    half = solve_triangular(lower, moment, lower=True)
    effects: Float64 = solve_triangular(lower, half + spread, lower=True, trans="T")
    return effects


def explained(effects: Float64, covariance: Float64, groups: Int64, precision: Float64) -> Float64:
    """Mean square of every group's contribution to X B, in units of Lambda^-1, (groups,).

    The mean is over rows and columns. `covariance` is X^T X divided by the number of rows that have
    features; `precision` is Lambda, (D, D).
    """
    scaled = effects @ np.linalg.cholesky(precision)
    squares = []
    for group in range(groups.max() + 1):
        features = groups == group
        in_group = scaled[features]
        product = covariance[np.ix_(features, features)] @ in_group
        squares.append((product * in_group).sum() / effects.shape[1])
    return np.array(squares)

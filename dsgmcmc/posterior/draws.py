"""Results of a run in memory, by users and items: saved draws, and the moments of a chain."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from typing_extensions import override

from dsgmcmc.model.likelihoods.base import Law
from dsgmcmc.model.parts import PARTS, RowPriors
from dsgmcmc.model.quantity import WEIGHT
from dsgmcmc.types import Array, Float32, Float64, Int32, Int64, Mask

#: What a row stands for.
ENTITIES = ("user", "item")
#: The other entity.
OTHER = {"user": "item", "item": "user"}


class Prior(NamedTuple):
    """Prior of a factor's rows: mean (D,) and covariance (D, D), float64."""

    mean: Float64
    covariance: Float64


class RowsAtDraw(NamedTuple):
    """Rows of one entity at one draw.

    Attributes
    ----------
    mean : (n, D) float
        Rows that were sampled, and the means of others.
    noise : (n,) float
        1 / g for each row; for ordinal ratings 1 / s, where s is the scale of the row.
    spread_of : (n,) int64
        Position of the covariance of each row; -1 for a row that was sampled, or drawn.
    covariance : (m, D, D) float64
    parameters : (n, p) float64 or None
        Parameters of the likelihood for each row, if users, or items, have their own.
    """

    mean: Array
    noise: Array
    spread_of: Int64
    covariance: Float64
    parameters: Float64 | None = None

    @property
    def uncertain(self) -> Int64:
        """Positions of the rows that have a covariance."""
        return np.flatnonzero(self.spread_of >= 0)

    def with_rows(self, chosen: Mask, rows: RowsAtDraw) -> RowsAtDraw:
        """Return these rows with others in place of the chosen ones; overwrites arrays of these."""
        self.mean[chosen] = rows.mean
        self.noise[chosen] = rows.noise
        self.spread_of[chosen] = np.where(
            rows.spread_of < 0, -1, len(self.covariance) + rows.spread_of
        )
        if self.parameters is not None:
            self.parameters[chosen] = rows.parameters
        return self._replace(covariance=np.concatenate([self.covariance, rows.covariance]))

    def drawn(self, generators: list[Generator]) -> Float32:
        """Return the rows, (n, D); those that were not sampled are drawn by one generator each."""
        rows = np.array(self.mean, np.float32)
        if generators:
            values, vectors = np.linalg.eigh(self.covariance[self.spread_of[self.uncertain]])
            normals = np.array([rng.standard_normal(rows.shape[1]) for rng in generators])
            scaled = np.sqrt(np.maximum(values, 0.0)) * normals
            rows[self.uncertain] += np.einsum("nij,nj->ni", vectors, scaled)
        return rows


@dataclass(frozen=True, repr=False)
class Draw:
    """One saved draw, in units of the ratings.

    Attributes
    ----------
    chain, iteration : int
    shared : dict of str to float64 array
        Quantities that all rows share, such as ``tau``, ``user.mean`` and ``thresholds``; names
        have ``user`` or ``item`` in place of the factor.
    rows : dict of entity to dict of str to (n, ...) float32 array
        Quantities of every user and item: ``theta``, and ``weight``, ``implicit``, ``cuts`` if the
        model has them. Rows have the order of the factor, not that of ids:
        ``run.users.index_of(ids)`` gives the row numbers of ids.
    coupled : bool
        Whether noise scales multiply the precision of the rows' priors, too.
    """

    chain: int
    iteration: int
    shared: Mapping[str, Float64]
    rows: Mapping[str, Mapping[str, Float32]]
    coupled: bool = False

    @override
    def __repr__(self) -> str:
        rows = ", ".join(
            f"{len(next(iter(arrays.values())))} {entity}s with {' '.join(arrays)}"
            for entity, arrays in self.rows.items()
        )
        shared = " ".join(self.shared)
        return f"<Draw: chain {self.chain}, iteration {self.iteration}, {rows}; shared {shared}>"

    @cached_property
    def theta(self) -> dict[str, Float32]:
        """Factors of the users and of the items, (n, D).

        The last column is the bias, if the model has biases.
        """
        return {entity: rows["theta"] for entity, rows in self.rows.items()}

    def one_set(self, law: type[Law]) -> Float64 | None:
        """Return the parameters of a likelihood, (1, 1, m), as `PredictorDraws` has them."""
        parameters = law.parameters_of(self.shared)
        if parameters is None:
            return None
        return np.asarray(parameters, np.float64)[np.newaxis, np.newaxis]

    def own_parameters(self, law: type[Law], entity: str) -> Float32 | None:
        """Return what users (or items) have in place of `Observation.parameters_of`, (n, m).

        None if they share the parameters.
        """
        return self.rows[entity].get(law.row_parameters)

    @property
    def tau(self) -> float:
        """Precision of the noise."""
        return float(self.shared["tau"])

    @cached_property
    def noise_scale(self) -> dict[str, Float32]:
        """Noise scales g, (n,) by entity: a rating has variance 1 / (tau g_user g_item).

        All 1 if noise is shared.
        """
        scales = {}
        for entity, rows in self.rows.items():
            if WEIGHT.name in rows:
                scales[entity] = rows[WEIGHT.name][:, 0]
            else:
                scales[entity] = np.ones(len(rows["theta"]), np.float32)
        return scales

    def mean_log_scale(self, entity: str) -> float:
        """Return the mean of log g over the users or the items; 0 if noise is shared."""
        return float(np.log(self.noise_scale[entity].astype(np.float64)).mean())

    @cached_property
    def inverse_scale(self) -> dict[str, Float32]:
        """1 / g, (n,) by entity."""
        return {entity: np.reciprocal(scale) for entity, scale in self.noise_scale.items()}

    @cached_property
    def prior(self) -> dict[str, Prior]:
        """Normal prior of a row of noise scale 1 by entity, without the terms of other parts."""
        return {entity: Prior(*RowPriors.of_unseen(self, entity)) for entity in ENTITIES}

    @cached_property
    def new_inverse_scale(self) -> dict[str, float]:
        """Mean of 1 / g of a row without ratings by entity, if g is the scale of its prior, too.

        It is nu / (nu - 2). Otherwise 1.
        """
        means = dict.fromkeys(ENTITIES, 1.0)
        for entity in ENTITIES:
            nu = self.shared.get(f"{entity}.nu")
            if self.coupled and nu is not None:
                means[entity] = float(nu / (nu - 2))
        return means

    @cached_property
    def unseen(self) -> dict[str, Prior]:
        """Distribution of a row without ratings and features, by entity.

        All parts of the model add to its moments.
        """
        priors = {}
        for entity in ENTITIES:
            terms = [part.of_unseen(self, entity) for part in PARTS.values()]
            mean, covariance = _summed([term for term in terms if term])
            if self.new_inverse_scale[entity] != 1.0:
                more = self.new_inverse_scale[entity] - 1.0
                covariance = covariance + more * self.prior[entity].covariance
            priors[entity] = Prior(mean, covariance)
        return priors

    def of_ratings(self, users: Int32, items: Int32) -> tuple[Float32 | float, Float32 | float]:
        """Return mean and variance of what the model's parts add to predictors of new ratings."""
        return _summed([part.of_ratings(self, users, items) for part in PARTS.values()])


def _summed(terms: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Return the sums of means, and of variances or covariances."""
    means, variances = zip(*terms, strict=True)
    return functools.reduce(np.add, means), functools.reduce(np.add, variances)


class PosteriorMoments(NamedTuple):
    """Posterior moments of one chain.

    Attributes
    ----------
    mean, variance : dict of entity to (n, D) float32
        Mean and variance of every element of the factors over all draws of the chain.
    """

    mean: dict[str, Float32]
    variance: dict[str, Float32]

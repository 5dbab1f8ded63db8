"""Results of a run in memory, by users and items: saved draws, and the moments of a chain."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from dsgmcmc.model.likelihoods.row_thresholds import CUTS
from dsgmcmc.model.parts import PARTS, RowPriors
from dsgmcmc.model.quantity import WEIGHT
from dsgmcmc.types import Float32, Float64, Int32

ENTITIES = ("user", "item")  # kinds of rows
OTHER = {"user": "item", "item": "user"}  # the opposite entity of each entity


class Prior(NamedTuple):
    """Prior of a factor's rows: mean (D,) and covariance (D, D), float64."""

    mean: Float64
    covariance: Float64


class RowDistributions(NamedTuple):
    """Means and covariances of rows of one entity at one draw.

    Attributes
    ----------
    mean : (q, D) float64
    covariance : (q, D, D) float64
    noise : (q,) float64
        1 / g for each row; for ordinal ratings 1 / s, where s is the scale of the row.
    cuts : (q, R - 1) float64 or None
        Thresholds of each row, if users have individual thresholds.
    """

    mean: Float64
    covariance: Float64
    noise: Float64
    cuts: Float64 | None = None


@dataclass(frozen=True)
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
    """

    chain: int
    iteration: int
    shared: Mapping[str, Float64]
    rows: Mapping[str, Mapping[str, Float32]]

    @cached_property
    def theta(self) -> dict[str, Float32]:
        """Factors of the users and of the items, (n, D); the last column is the bias, if the model
        has biases.
        """
        return {entity: rows["theta"] for entity, rows in self.rows.items()}

    @property
    def tau(self) -> float:
        """Precision of the noise."""
        return float(self.shared["tau"])

    @cached_property
    def noise_scale(self) -> dict[str, Float32]:
        """Noise scales g, (n,) by entity: a rating has variance 1 / (tau g_user g_item).

        All 1 if noise is shared.
        """
        ones = {
            entity: np.ones((len(theta), 1), np.float32) for entity, theta in self.theta.items()
        }
        return {
            entity: rows.get(WEIGHT.name, ones[entity])[:, 0] for entity, rows in self.rows.items()
        }

    @cached_property
    def inverse_scale(self) -> dict[str, Float32]:
        """1 / g, (n,) by entity."""
        return {entity: np.reciprocal(scale) for entity, scale in self.noise_scale.items()}

    @cached_property
    def prior(self) -> dict[str, Prior]:
        """Normal prior of a row by entity, without the terms that other parts of the model add."""
        return {entity: Prior(*RowPriors.of_unseen(self, entity)) for entity in ENTITIES}

    @cached_property
    def unseen(self) -> dict[str, Prior]:
        """Distribution of a row without ratings and features, by entity; all parts of the model add
        to its moments.
        """
        priors = {}
        for entity in ENTITIES:
            terms = [term for part in PARTS.values() if (term := part.of_unseen(self, entity))]
            mean, covariance = (
                functools.reduce(np.add, moments) for moments in zip(*terms, strict=True)
            )
            priors[entity] = Prior(mean, covariance)
        return priors

    def of_ratings(self, users: Int32, items: Int32) -> tuple[Float32 | float, Float32 | float]:
        """Return mean and variance of the sum of the terms that the model's parts add to predictors
        of new ratings.
        """
        terms = [part.of_ratings(self, users, items) for part in PARTS.values()]
        return functools.reduce(np.add, (mean for mean, _ in terms)), functools.reduce(
            np.add, (v for _, v in terms)
        )

    @property
    def thresholds(self) -> Float64 | None:
        """Thresholds between levels, (R - 1,); None if ratings are not ordinal."""
        return self.shared.get("thresholds")

    @property
    def user_thresholds(self) -> Float32 | None:
        """Thresholds of every user, (users, R - 1); None if thresholds are shared, or if ratings
        are not ordinal.
        """
        return self.rows["user"].get(CUTS)

    @property
    def nbytes(self) -> int:
        """Number of bytes of the rows and of the arrays that are computed from their noise scales."""
        arrays = [array for rows in self.rows.values() for array in rows.values()]
        return sum(array.nbytes for array in arrays) + sum(
            8 * len(theta) for theta in self.theta.values()
        )


class PosteriorMoments(NamedTuple):
    """Posterior moments of one chain.

    Attributes
    ----------
    mean, variance : dict of entity to (n, D) float32
        Mean and variance of every element of the factors over all draws of the chain.
    """

    mean: dict[str, Float32]
    variance: dict[str, Float32]

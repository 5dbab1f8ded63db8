"""Predictors of pairs of which at least one row was not sampled, at every saved draw.

Such a row has a distribution given a draw: its prior, if nothing is known of it, or what follows
from its features or its ratings. With independent rows u and v of means m and n and covariances S
and T, the predictor u . v has the mean m . n and the variance tr(S T) + n' S n + m' T m.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from dsgmcmc.kernels.prediction import PairedRows, join_rows
from dsgmcmc.posterior.draws import Draw, RowDistributions
from dsgmcmc.posterior.rows.by_parts import PartRows
from dsgmcmc.types import Array, Float64, Int32, Int64, Mask


class NewRows(NamedTuple):
    """Distributions of rows that were folded in, at one draw.

    Attributes
    ----------
    positions : (n,) int64
        Positions of the rows in the vocabulary of `FoldIn`, ascending.
    rows : RowDistributions
    """

    positions: Int64
    rows: RowDistributions

    def at(self, positions: Array) -> RowDistributions:
        """Return the distributions of the rows at some positions."""
        return self.rows.at(np.searchsorted(self.positions, positions))


class RowIndex(NamedTuple):
    """What the index of a row of one entity means.

    Attributes
    ----------
    known : int
        Number of rows that were sampled. They come first; -1 stands for a row of which nothing is
        known.
    first_part_row : int
        Index of the first row that is known by the parts of its name; rows between these two were
        folded in.
    part_rows : PartRows or None
    """

    known: int
    first_part_row: int
    part_rows: PartRows | None

    def is_new(self, index: Int32) -> Mask:
        """Return which rows were not sampled."""
        return (index < 0) | (index >= self.known)

    def is_folded(self, index: Array) -> Mask:
        """Return which rows were folded in."""
        folded: Mask = (index >= self.known) & (index < self.first_part_row)
        return folded


class _Side:
    """One side of some pairs.

    The first covariance is that of rows of which nothing is known, the second that of all rows that
    are known by the parts of their names.
    """

    def __init__(self, entity: str, rows: RowIndex, index: Int32) -> None:
        self._entity = entity
        self._part_rows = rows.part_rows
        distinct, of_pair = np.unique(index, return_inverse=True)
        self._of_pair = of_pair.astype(np.int64)
        self._sampled = np.flatnonzero(~rows.is_new(distinct))
        self._unknown = np.flatnonzero(distinct < 0)
        self._folded = np.flatnonzero(rows.is_folded(distinct))
        self._by_parts = np.flatnonzero(distinct >= rows.first_part_row)
        self._sampled_index = distinct[self._sampled]
        self._folded_positions = distinct[self._folded].astype(np.int64) - rows.known
        self._part_positions = distinct[self._by_parts] - np.int32(rows.first_part_row)
        self._which = np.full(len(distinct), -1)
        self._which[self._unknown] = 0
        self._which[self._by_parts] = 1
        self._which[self._folded] = 2 + np.arange(len(self._folded))

    def at(self, position: int, draw: Draw, new: NewRows | None, rank: int) -> PairedRows:
        """Return the distributions of the distinct rows at a draw; `new` has the folded rows."""
        theta = draw.theta[self._entity]
        mean = np.empty((len(self._which), theta.shape[1]))
        noise = np.ones(len(self._which))
        covariance = np.zeros((2 + len(self._folded), theta.shape[1], theta.shape[1]))
        mean[self._sampled] = theta[self._sampled_index]
        noise[self._sampled] = draw.inverse_scale[self._entity][self._sampled_index]
        if len(self._unknown):
            prior = draw.unseen[self._entity]
            mean[self._unknown] = prior.mean
            covariance[0] = prior.covariance
        if len(self._by_parts):
            assert self._part_rows is not None
            of_parts = self._part_rows.rows(position, self._part_positions)
            mean[self._by_parts] = of_parts.mean
            noise[self._by_parts] = of_parts.noise
            covariance[1] = of_parts.covariance[0]
        if len(self._folded):
            assert new is not None
            folded = new.at(self._folded_positions)
            mean[self._folded] = folded.mean
            noise[self._folded] = folded.noise
            covariance[2:] = folded.covariance
        across = mean.copy()
        across[:, rank:] = 1.0
        return PairedRows(self._of_pair, mean, across, covariance, self._which, noise)


class Predictors(NamedTuple):
    """Predictors of pairs at one draw.

    Attributes
    ----------
    mean, variance : (p,) float64
    noise : (p,) float64
        Products of 1 / g of both rows.
    """

    mean: Float64
    variance: Float64
    noise: Float64


class UnseenPairs:
    """Pairs of which at least one row was not sampled.

    Attributes
    ----------
    pairs : (p,) int64
        Positions of these pairs among all pairs.
    """

    def __init__(self, pairs: Int64, users: _Side, items: _Side, rank: int) -> None:
        self.pairs = pairs
        self._users = users
        self._items = items
        self._rank = rank

    @classmethod
    def create(
        cls,
        users: Int32,
        items: Int32,
        *,
        index: Mapping[str, RowIndex],
        rank: int,
    ) -> UnseenPairs | None:
        """Find these pairs among others; None if there are none.

        Parameters
        ----------
        users, items : (q,) int32
            Indices of all pairs.
        index : mapping of entity to RowIndex
        rank : int
        """
        is_new = index["user"].is_new(users) | index["item"].is_new(items)
        if not is_new.any():
            return None
        pairs = np.flatnonzero(is_new)
        of_users = _Side("user", index["user"], users[pairs])
        of_items = _Side("item", index["item"], items[pairs])
        return cls(pairs, of_users, of_items, rank)

    def at(self, position: int, draw: Draw, new: NewRows | None) -> Predictors:
        """Return the predictors at a draw, which is at `position` in `Run.draws`."""
        users = self._users.at(position, draw, new, self._rank)
        items = self._items.at(position, draw, new, self._rank)
        mean, variance = join_rows(users, items, self._rank)
        for rows in (users, items):
            mean += rows.mean[rows.of_pair, self._rank :].sum(axis=1)  # the bias, if there is one
        noise = users.noise[users.of_pair] * items.noise[items.of_pair]
        return Predictors(mean, variance, noise)

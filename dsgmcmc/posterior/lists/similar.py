r"""Similar items, or similar users.

In each draw, the similarity of items j and k is the correlation, over the users, between the
ratings of j and of k that are predicted from the factors alone,

    s_jk = H_j^T S H_k / sqrt(H_j^T S H_j  H_k^T S H_k),

where S is the covariance of the rows W_i over the users. Unlike the plain cosine of H_j and H_k, it
depends on the factors only through the products W_i . H_j, and not on their rotation or scale.
Biases are left out, because two items that everybody likes need not be similar. Items are ranked by
the mean similarity over the saved draws. The vector H_j of an item with few ratings has a different
direction in each draw, so its mean similarity is small.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.posterior.draws import OTHER
from dsgmcmc.posterior.lists.ranking import Columns, Ranking
from dsgmcmc.posterior.run import Run, once
from dsgmcmc.settings import named
from dsgmcmc.types import Float32


class Metric(NamedTuple):
    """Covariance S of the rows on the other side at a draw, and lengths of all rows under it.

    Attributes
    ----------
    matrix : (K, K) float32
    lengths : (n,) float32
    """

    matrix: Float32
    lengths: Float32


def similarities(run: Run, entity: str, row: int) -> Float32:
    """Return the similarity of one user (or item) to all others, (draws, n) float32."""
    run.need_draws()
    rank = run.config.rank
    if not rank:
        raise InputError(
            f"{run.path} has biases only ({named('rank')} 0), and similarity needs factors: sample"
            f" with {named('rank')} 1 or more"
        )
    similarity = np.empty((len(run.draws), len(run.vocabulary(entity))), np.float32)
    for position in range(len(run.draws)):
        rows = run.draw(position).theta[entity][:, :rank]
        key = (Metric, entity, position)
        metric, lengths = once(run, key, partial(_metric, run, entity, position))
        similarity[position] = rows @ (metric @ rows[row]) / (lengths * lengths[row])
    return similarity


def _metric(run: Run, entity: str, position: int) -> Metric:
    """Return the metric of users (or items) at a saved draw."""
    rank = run.config.rank
    theta = run.draw(position).theta
    covariance = np.cov(theta[OTHER[entity]][:, :rank], rowvar=False)
    matrix = np.atleast_2d(covariance).astype(np.float32)
    rows = theta[entity][:, :rank]
    squares = ((rows @ matrix) * rows).sum(axis=1)
    return Metric(matrix, np.sqrt(np.maximum(squares, np.finfo(np.float32).tiny)))


def similar(run: Run, entity: str, name: Any, n: int = 10) -> Columns:
    """Return the items (or users) that are most similar to a given one.

    Parameters
    ----------
    run : Run
        A run with saved draws.
    entity : {"user", "item"}
        Whether users or items are compared.
    name
        Original name of the item (or user).
    n : int
        Largest number of items (or users).

    Returns
    -------
    dict of str to (m,) array
        Columns ``item_id`` (or ``user_id``, or the parts of names), ``similarity`` (its posterior
        mean), ``rank``, ``sd`` and ``ratings``, the number of training ratings.

    Raises
    ------
    InputError
        If the name is unknown, or the run has no draws or no factors.
    """
    vocabulary = run.vocabulary(entity)
    if np.ndim(name) and not vocabulary.parts:
        raise InputError(f"{name!r}: expected the name of one {entity}")
    row = int(vocabulary.index_of([name], refuse=True)[0])
    draws = similarities(run, entity, row)
    mean = run.draw_weights @ draws
    mean[row] = -np.inf
    number = min(Ranking(top=n).top, len(mean) - 1)  # `Ranking` checks n
    best = np.argsort(-mean, kind="stable")[:number]
    variance = run.draw_weights @ (draws[:, best] - mean[best]) ** 2
    return {
        **vocabulary.table(vocabulary.ids[best]),
        "similarity": mean[best].astype(np.float32),
        "rank": np.arange(1, len(best) + 1, dtype=np.int32),
        "sd": np.sqrt(variance).astype(np.float32),
        "ratings": run.counts(entity)[best],
    }

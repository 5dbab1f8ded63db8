r"""Similarity of items, or of users: the correlation of their predicted ratings, with its uncertainty.

At a draw, the similarity of items j and k is that of the ratings that the factors predict for them over the users,

    s_jk = H_j^T S H_k / sqrt(H_j^T S H_j  H_k^T S H_k),    S the covariance of the rows W_i over the users:

the correlation of W_i . H_j and W_i . H_k, the cosine of H_j and H_k in the metric S. It is the same for all factors
that have the same products W_i . H_j, whatever their rotation or scale, which the plain cosine is not. Biases are left
out: two items are not similar because everybody likes both. Items are ranked by its mean over the saved draws, and it
has an sd and quantiles; an item with few ratings points in another direction at every draw, so its mean is small. Users
are compared in the same way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dsgmcmc.errors import InputError
from dsgmcmc.posterior.draws import OTHER
from dsgmcmc.posterior.saved import SavedRun
from dsgmcmc.settings import named
from dsgmcmc.types import Float32, Float64


def similarities(run: SavedRun, kind: str, row: int) -> Float32:
    """Similarity of one row to all of its kind at every saved draw, (draws, n) float32.

    Parameters
    ----------
    run : Run
        With saved draws.
    kind : {"user", "item"}
    """
    run.need_draws()
    rank = run.config.rank
    if not rank:
        raise InputError(
            f"{run.path} has biases only ({named('rank')} 0), and similarity is of factors: sample with "
            f"{named('rank')} 1 or more"
        )
    similarity = np.empty((len(run.draws), len(run.vocabulary(kind))), np.float32)
    for number in range(len(run.draws)):
        theta = run.draw(number).theta
        metric = np.atleast_2d(np.cov(theta[OTHER[kind]][:, :rank], rowvar=False)).astype(np.float32)
        rows = theta[kind][:, :rank]
        lengths = np.sqrt(np.maximum(((rows @ metric) * rows).sum(axis=1), np.finfo(np.float32).tiny))
        similarity[number] = rows @ (metric @ rows[row]) / (lengths * lengths[row])
    return similarity


def similar(
    run: SavedRun, kind: str, name: Any, n: int = 10, *, titles: dict[int, str] | None = None
) -> dict[str, npt.NDArray[Any]]:
    """Return the items (or users) that are most similar to one.

    Parameters
    ----------
    run : Run
        With saved draws.
    kind : {"user", "item"}
        What is compared.
    name
        Its original name.
    n : int
        Number of items (or users).
    titles : dict of int to str, optional
        Titles of items, by row.

    Returns
    -------
    dict of str to (m,) array
        Columns ``item_id`` (or ``user_id``), ``similarity`` (its posterior mean), ``rank``, ``sd, q05, q95`` and
        ``ratings``, its number of training ratings; and, with `titles`, ``item_name``.

    Raises
    ------
    InputError
        If the name is unknown, or the run has no draws, or no factors.
    """
    vocabulary = run.vocabulary(kind)
    if np.ndim(name):
        raise InputError(f"{name!r}: expected the name of one {kind}")
    row = int(vocabulary.index_of([name], refuse=True)[0])
    draws, weights = similarities(run, kind, row), run.draw_weights
    mean = weights @ draws
    mean[row] = -np.inf
    best = np.argsort(-mean, kind="stable")[: min(n, len(mean) - 1)]
    own = draws[:, best]
    low, high = _quantiles(own, weights)
    columns = {
        f"{kind}_id": vocabulary.ids[best],
        "similarity": mean[best].astype(np.float32),
        "rank": np.arange(1, len(best) + 1, dtype=np.int32),
        "sd": np.sqrt(weights @ (own - mean[best]) ** 2).astype(np.float32),
        "q05": low,
        "q95": high,
        "ratings": run.counts(kind)[best],
    }
    if titles is not None and kind == "item":
        columns["item_name"] = np.array([titles.get(each, "") for each in best.tolist()], dtype=object)
    return columns


def _quantiles(draws: Float32, weights: Float64) -> tuple[Float32, Float32]:
    """5 % and 95 % quantiles of the columns of draws (draws, n)."""
    order = np.argsort(draws, axis=0)
    below = np.cumsum(weights[order], axis=0)
    ordered = np.take_along_axis(draws, order, axis=0)
    places = [np.minimum((below < level).sum(axis=0), len(draws) - 1) for level in (0.05, 0.95)]
    low, high = (np.take_along_axis(ordered, place[None], axis=0)[0] for place in places)
    return low, high

"""Predictions as a table: what `Predictor` says, and the probabilities that are asked for besides."""

from __future__ import annotations

import numpy as np

from dsgmcmc.posterior.mixture import at_least, level_probabilities
from dsgmcmc.posterior.predict import BLOCK, Predictor
from dsgmcmc.types import Float32, Int32


def column_names(predictor: Predictor) -> list[str]:
    """Such as ``mean, sd, q05, q95``, ``at_least_4`` and ``p_1, p_2`` of levels, where these are asked for."""
    options = predictor.options
    levels = predictor.run.levels if options.probabilities else None
    names = [*options.columns, *([] if options.at_least is None else [f"at_least_{options.at_least:g}"])]
    return names + ([] if levels is None else [f"p_{level:g}" for level in levels.tolist()])


def predict_columns(predictor: Predictor, users: Int32, items: Int32) -> dict[str, Float32]:
    """Predict pairs, of users and items by their index; (q,) float32 by `column_names`."""
    found = list(predictor(users, items))
    if predictor.options.at_least is not None or predictor.options.probabilities:
        found += list(probabilities(predictor, users, items).T)
    return dict(zip(column_names(predictor), found, strict=True))


def probabilities(predictor: Predictor, users: Int32, items: Int32) -> Float32:
    """What is asked for, (q, m) float32: probabilities of a rating of at least so much, and of every level.

    Raises
    ------
    InputError
        If the ratings have no levels, and those are asked for.
    """
    run, options = predictor.run, predictor.options
    users, items = np.ascontiguousarray(users, np.int32), np.ascontiguousarray(items, np.int32)
    blocks = []
    for start in range(0, max(len(users), 1), BLOCK):
        found = predictor.mixture(users[start : start + BLOCK], items[start : start + BLOCK])
        columns = [] if options.at_least is None else [at_least(run, found, options.at_least)[:, None]]
        columns += [level_probabilities(run, found)] if options.probabilities else []
        blocks.append(np.concatenate(columns, axis=1))
    return np.concatenate(blocks)

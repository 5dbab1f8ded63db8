"""Plain Gibbs sampling with effects of groups: the oracle of
`tests/statistical/test_effects_law.py`.

The factors are drawn as in `gibbs.py`, given what the effects leave of the ratings; effects and
their precisions from their textbook conditionals, with lambda given d alone.
"""

from collections.abc import Iterator

import gibbs
import numpy as np

RATE = 0.1


def sweeps(
    i: np.ndarray,
    j: np.ndarray,
    x: np.ndarray,
    groups: list[np.ndarray],
    train: np.ndarray,
    model: gibbs.Model,
    number: int,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Draw theta with the fixed prior and precision of `model`, d and lambda.

    Parameters
    ----------
    i, j, x : (n,)
        Rows, columns and centred ratings, sorted by row.
    groups : list of (n,) int
        Of every rating, by level.
    train : (n,) bool
        Which ratings count.

    Yields
    ------
    eta : (n,) predictors with their effects
    precisions : (L,)
    """
    rng = np.random.default_rng(7)
    shape = (int(i.max()) + 1, int(j.max()) + 1)
    views = gibbs.views(i[train], j[train], shape)
    state = gibbs.start(model, shape, rng)
    effects = [np.zeros(int(group.max()) + 1) for group in groups]
    precisions = np.full(len(groups), 10.0)
    for _ in range(number):
        shift = sum(d[group] for d, group in zip(effects, groups, strict=True))
        for side, view in enumerate(views):
            z = rng.standard_normal(state.theta[side].shape)
            gibbs.draw_side(state, side, (x - shift)[train], view, model, z)
        eta = gibbs.predictor(state.theta, model.rank, i, j)
        for k, group in enumerate(groups):
            other_effects = sum(
                d[g] for m, (d, g) in enumerate(zip(effects, groups, strict=True)) if m != k
            )
            n = model.tau * np.bincount(group[train], minlength=len(effects[k]))
            residual_sum = np.bincount(
                group[train], model.tau * (x - eta - other_effects)[train], len(n)
            )
            total = n + precisions[k]
            effects[k] = residual_sum / total + rng.normal(size=len(n)) / np.sqrt(total)
            observed = n > 0
            precisions[k] = rng.gamma(1 + observed.sum() / 2) / (
                RATE + (effects[k][observed] ** 2).sum() / 2
            )
            effects[k][~observed] = rng.normal(0, precisions[k] ** -0.5, int((~observed).sum()))
        yield (
            eta + sum(d[group] for d, group in zip(effects, groups, strict=True)),
            precisions.copy(),
        )

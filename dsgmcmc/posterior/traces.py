r"""Scalar functions of a draw that are comparable between chains, and the importance of features.

The scalars are identified quantities, never raw factors: permutations, sign changes and rotations
of latent dimensions change the factors but no observable quantity. They are

- ``tau``, the precisions of the user and item biases, and the degrees of freedom ``nu`` of
  heteroscedastic noise;
- for ordinal ratings, the thresholds (``threshold_1`` lies between the two lowest levels) and the
  precisions of the logarithms of the users' and items' ``scales``; if users have individual
  thresholds, the sds of the logarithms of the gaps (``gap_sd_1`` for the gap between the first two
  thresholds);
- with levels of time, the sd of the effects of each level (``time_sd_user_8`` for every eight
  ratings of a user);
- ``mean_product`` = sum_k m_k m'_k of the prior means of users and items and, if the precisions are
  diagonal, ``variance_product`` = sum_k 1 / (lambda_k lambda'_k), which are invariant under
  permutations, sign changes, and scaling one side against the other;
- ``test_log_likelihood`` of all test ratings;
- predictions of a fixed set of about 256 test pairs.

The *importance* of a group of features is the mean square of its term B_g^T x_ig in the prior means
of the rows, relative to the variance of the rows around them. For a single feature, it is the
effect on the bias, in units of the ratings; for a level of time, the sd of its effects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from dsgmcmc.model.quantity import Quantity
from dsgmcmc.posterior.draws import ENTITIES
from dsgmcmc.posterior.moments import last_draws
from dsgmcmc.posterior.run import Run
from dsgmcmc.types import Float64, Int64

#: Probability of the intervals of `importance`.
LEVEL = 0.9
TEST_LOG_LIKELIHOOD = "test_log_likelihood"

#: Labels of scalars that do not belong to a single quantity of the model: the test log likelihood,
#: and scalars of the priors of rows.
LABELS = {
    "user_bias_precision": "precision of the user biases",
    "item_bias_precision": "precision of the item biases",
    TEST_LOG_LIKELIHOOD: "log likelihood of the test ratings",
    "mean_product": "product of the priors' means",
    "variance_product": "product of the priors' variances",
}


def scalar_traces(run: Run) -> dict[str, Float64]:
    """Return identified scalars of every draw.

    Returns
    -------
    dict of str to (chains, draws) float64
        The last draws of each chain, as many as the shortest chain has.
    """
    traces: dict[str, Float64] = {}
    for quantity in run.quantities.traced:
        if quantity.diagnosed:
            values = np.moveaxis(traced(run, run.name_of(quantity.name)), -1, 0)
            names = _names(run, quantity, len(values))
            if quantity.as_sd:
                values = values**-0.5
            traces |= dict(zip(names, values, strict=True))
    traces |= _prior_traces(run)
    index, _, log_likelihoods = run.monitored()
    if len(index):
        traces[TEST_LOG_LIKELIHOOD] = last_draws(log_likelihoods)
    # constants have no diagnostics
    return {name: values for name, values in traces.items() if values.std() > 0}


def _names(run: Run, quantity: Quantity, width: int) -> list[str]:
    """Return the names of the `width` elements of a quantity in diagnostics."""
    entity = _entity_of(run, quantity)
    labels: Sequence[str] = [""] * width
    if quantity.dims == ("time_level",):
        labels = run.config.times
    return [
        quantity.diagnosed.format(entity=entity, number=number, label=label.replace(":", "_"))
        for number, label in enumerate(labels, start=1)
    ]


def _entity_of(run: Run, quantity: Quantity) -> str:
    """Return "user" or "item" for a quantity of one factor, and "" for others."""
    if quantity.factor is None:
        return ""
    return run.entity_of(quantity.factor)


def _prior_traces(run: Run) -> dict[str, Float64]:
    """Return functions of prior means and precisions.

    Permutations, sign changes and scaling of latent dimensions leave them unchanged.
    """
    rank = run.config.rank
    traces = {}
    mean = {entity: traced(run, f"{entity}.mean") for entity in ENTITIES}
    precision = {entity: traced(run, f"{entity}.precision") for entity in ENTITIES}
    if run.config.biases:
        for entity in ENTITIES:
            traces[f"{entity}_bias_precision"] = precision[entity][..., rank]
    products = mean["user"][..., :rank] * mean["item"][..., :rank]
    traces["mean_product"] = products.sum(axis=-1)
    if run.config.prior != "normal-wishart":  # the trace of a dense precision has only its diagonal
        products = precision["user"][..., :rank] * precision["item"][..., :rank]
        traces["variance_product"] = (1 / products).sum(axis=-1)
    return traces


def labels(run: Run, names: Iterable[str]) -> dict[str, str]:
    """Return the labels of scalars of `scalar_traces`.

    A scalar without a label has its name, with spaces in place of underscores.
    """
    texts = {name: name.replace("_", " ") for name in names} | LABELS
    for quantity in run.quantities.traced:
        if quantity.label:
            entity = _entity_of(run, quantity)
            texts[quantity.diagnosed.format(entity=entity)] = quantity.label.format(entity=entity)
    return texts


def is_read(run: Run, name: str) -> bool:
    """Whether people read a scalar of `scalar_traces`, which then has a unit of its own.

    Thresholds, scales and precisions of rows have none: `item_parameters` and other tables show
    them relative to each other. Nor has tau if rows have noise scales.
    """
    if name == "tau":
        return run.config.noise == "shared"
    return name in ("nu", "dispersion") or name.startswith("time_sd_")


def predictions(run: Run) -> tuple[Int64, Float64]:
    """Return the predictions of the monitored test pairs.

    Returns
    -------
    index : (m,) int64
        Positions among the test ratings, in the order of `Run.test_pairs`.
    values : (chains, draws, m) float64
        The last draws of each chain, as many as the shortest chain has.
    """
    index, values, _ = run.monitored()
    return index, last_draws(values).astype(np.float64)


def draw_weights(run: Run) -> Float64:
    """Return the weights of the draws of `scalar_traces`, (chains, draws) float64."""
    return traced(run, "weight")[..., 0]


def traced(run: Run, name: str) -> Float64:
    """Return the last draws of a quantity in `Run.traces`, (chains, draws, width) float64."""
    return last_draws([trace[name] for trace in run.traces])


# ---------------------------------------------------------------------- importance


class Importance(NamedTuple):
    """Posterior mean of an importance, and the bounds of its central interval (`LEVEL`)."""

    name: str
    mean: float
    low: float
    high: float


def importance(run: Run) -> dict[str, list[Importance]]:
    """Return the importance of groups of features, of single features, and of levels of time.

    The keys are titles.
    """
    by_title = {}
    for entity in ENTITIES:
        if not run.feature_names(entity):
            continue
        name = run.vocabulary(entity).title
        title = f"Variance by {name} that features explain, relative to the remaining variance"
        by_title[title] = explained_by_groups(run, entity)
        if run.config.biases and run.draws:
            title = f"Effects of features on the mean rating by {name}"
            by_title[title] = feature_effects(run, entity)
    if run.config.times:
        sds = _all_draws(run, "time.precision") ** -0.5
        by_title["Sd of the effects of groups of ratings"] = _estimates(
            run.config.times, sds, _all_draws(run, "weight")[:, 0]
        )
    return by_title


def explained_by_groups(run: Run, entity: str) -> list[Importance]:
    """Return the variance that each group of features explains, the most first.

    It is relative to the variance that remains. The rows of `entity` have features.
    """
    groups = list(dict.fromkeys(run.index.features(entity)[1]))
    explained = _all_draws(run, f"{entity}.features.explained")
    return _estimates(groups, explained, _all_draws(run, "weight")[:, 0])


def feature_effects(run: Run, entity: str) -> list[Importance]:
    """Return the effects of features on the mean ratings of users or items, the largest first.

    Effects of numbers are those of a standard deviation. The run has saved draws and biases, and
    these rows have features.
    """
    names = run.feature_names(entity)
    return _estimates(names, run.effects(entity), run.draw_weights)


def _all_draws(run: Run, name: str) -> Float64:
    """Return the draws of a quantity of all chains, (draws, width) float64."""
    return np.concatenate([trace[name] for trace in run.traces])


def _estimates(names: Sequence[str], draws: Float64, weights: Float64) -> list[Importance]:
    """Return estimates from the columns of `draws`, (n, names).

    They are in the order of decreasing absolute means.
    """
    share = weights / weights.sum()
    estimates = []
    for name, values in zip(names, draws.T, strict=True):
        order = np.argsort(values)
        below = np.cumsum(share[order]) - share[order] / 2
        low, high = np.interp([(1 - LEVEL) / 2, (1 + LEVEL) / 2], below, values[order])
        estimates.append(Importance(name, float(share @ values), float(low), float(high)))
    return sorted(estimates, key=lambda estimate: -abs(estimate.mean))

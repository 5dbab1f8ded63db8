r"""Numbers of every draw that chains can be compared by.

Of what is identified, never of raw factors: likelihood and priors are unchanged when the latent dimensions are permuted
or flip their signs (or are rotated, with a dense prior), so chains differ in their factors for ever and agree in all
that can be observed. Looked at are

- ``tau``, the precisions of the user and item biases, the degrees of freedom ``nu`` of heteroscedastic noise;
- where ratings are of levels, the thresholds, ``threshold_1`` being that between the two lowest, and the precisions of
  the logarithms of the users' and items' ``scales``; where users have thresholds of their own, the sds of the
  logarithms of their gaps, ``gap_sd_1`` being that between the first two;
- where there are levels of time, the sd of the effects of each, ``time_sd_user_8`` being that of every eight of a user;
- ``mean_product`` = sum_k m_k m'_k of the priors' means of users and items and, where the precisions are diagonal,
  ``variance_product`` = sum_k 1 / (lambda_k lambda'_k): unchanged by permutations, signs, and scaling one side against
  the other;
- ``test_log_likelihood`` of all test ratings;
- predictions of a fixed set of about 256 test pairs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dsgmcmc.model.quantity import Quantity
from dsgmcmc.posterior.draws import KINDS
from dsgmcmc.posterior.saved import SavedRun
from dsgmcmc.types import Float64

#: What people read that scalars are which belong to no quantity of the model alone.
LABELS = {
    "user_bias_precision": "precision of the user biases",
    "item_bias_precision": "precision of the item biases",
    "test_log_likelihood": "log likelihood of the test ratings",
    "mean_product": "product of the priors' means",
    "variance_product": "product of the priors' variances",
}


def scalar_traces(run: SavedRun) -> dict[str, Float64]:
    """Identified numbers of every draw.

    Returns
    -------
    dict of str to (chains, draws) float64
        Cut to the shortest chain, from its end.
    """
    length = min(len(trace["weight"]) for trace in run.traces)

    def take(name: str) -> Float64:
        return np.stack([trace[name][-length:] for trace in run.traces])

    found: dict[str, Float64] = {}
    for quantity in run.quantities.traced:
        if quantity.diagnosed:
            values = np.moveaxis(take(run.name_of(quantity.name)), -1, 0)
            names = _names(run, quantity, len(values))
            found |= dict(zip(names, values**-0.5 if quantity.as_sd else values, strict=True))
    found |= _of_priors(run, take)
    index, _, scores = run.followed()
    if len(index):
        found["test_log_likelihood"] = np.stack([score[-length:] for score in scores])
    return {name: values for name, values in found.items() if values.std() > 0}  # what is fixed has no diagnostics


def _names(run: SavedRun, quantity: Quantity, number: int) -> list[str]:
    """What the elements of a quantity are called in diagnostics."""
    kind = "" if quantity.factor is None else run.kind_of(quantity.factor)
    labels = run.config.times if quantity.dims == ("time_level",) else ("",) * number
    return [
        quantity.diagnosed.format(kind=kind, number=place + 1, label=label.replace(":", "_"))
        for place, label in enumerate(labels)
    ]


def _of_priors(run: SavedRun, take: Callable[[str], Float64]) -> dict[str, Float64]:
    """What of the priors' means and precisions is unchanged by permutations, signs and scaling one side."""
    rank, found = run.config.rank, {}
    if run.config.biases:
        found = {f"{kind}_bias_precision": take(f"{kind}.precision")[..., rank] for kind in KINDS}
    means, precisions = ([take(f"{kind}.{what}")[..., :rank] for kind in KINDS] for what in ("mean", "precision"))
    found["mean_product"] = (means[0] * means[1]).sum(axis=-1)
    if run.config.prior != "normal-wishart":  # of a dense precision the trace has the diagonal
        found["variance_product"] = (1 / (precisions[0] * precisions[1])).sum(axis=-1)
    return found


def labels(run: SavedRun) -> dict[str, str]:
    """What people read that scalars of `scalar_traces` are; without a label of their own their names in words."""
    found = {name: name.replace("_", " ") for name in scalar_traces(run)} | LABELS
    for quantity in run.quantities.traced:
        if quantity.label:
            kind = "" if quantity.factor is None else run.kind_of(quantity.factor)
            found[quantity.diagnosed.format(kind=kind)] = quantity.label.format(kind=kind)
    return found


def predictions(run: SavedRun) -> tuple[npt.NDArray[np.int64], Float64]:
    """Predictions of the test pairs that were followed.

    Returns
    -------
    index : (m,) int64
        Of the test ratings, in the order of `Run.test_pairs`.
    values : (chains, draws, m) float64
        Cut to the shortest chain, from its end.
    """
    index, values, _ = run.followed()
    length = min(map(len, values))
    return index, np.stack([chain[-length:] for chain in values]).astype(np.float64)


def draw_weights(run: SavedRun) -> Float64:
    """(chains, draws) float64: weights of the draws of `scalar_traces`."""
    length = min(len(trace["weight"]) for trace in run.traces)
    return np.stack([trace["weight"][-length:, 0] for trace in run.traces])

r"""Scalar functions of a draw, by which chains can be compared.

The scalars are identified quantities, never raw factors. Likelihood and priors do not change if the latent dimensions
are permuted or change signs (or are rotated, with a dense prior), so chains may have different factors although they
agree in all observable quantities. The scalars are

- ``tau``, the precisions of the user and item biases, and the degrees of freedom ``nu`` of heteroscedastic noise;
- for ordinal ratings, the thresholds (``threshold_1`` lies between the two lowest levels) and the precisions of the
  logarithms of the users' and items' ``scales``; if users have individual thresholds, the sds of the logarithms of the
  gaps (``gap_sd_1`` for the gap between the first two thresholds);
- with levels of time, the sd of the effects of each level (``time_sd_user_8`` for every eight ratings of a user);
- ``mean_product`` = sum_k m_k m'_k of the prior means of users and items and, if the precisions are diagonal,
  ``variance_product`` = sum_k 1 / (lambda_k lambda'_k), which are invariant under permutations, sign changes, and
  scaling one side against the other;
- ``test_log_likelihood`` of all test ratings;
- predictions of a fixed set of about 256 test pairs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dsgmcmc.model.quantity import Quantity
from dsgmcmc.posterior.draws import KINDS
from dsgmcmc.posterior.run import Run
from dsgmcmc.types import Float64

TEST_LOG_LIKELIHOOD = "test_log_likelihood"
#: Scalars of the priors of rows.
PRIOR_SCALARS = ("user_bias_precision", "item_bias_precision", "mean_product", "variance_product")

#: Labels of scalars that do not belong to a single quantity of the model.
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
    length = min(len(trace["weight"]) for trace in run.traces)

    def take(name: str) -> Float64:
        return np.stack([trace[name][-length:] for trace in run.traces])

    traces: dict[str, Float64] = {}
    for quantity in run.quantities.traced:
        if quantity.diagnosed:
            values = np.moveaxis(take(run.name_of(quantity.name)), -1, 0)
            names = _names(run, quantity, len(values))
            traces |= dict(zip(names, values**-0.5 if quantity.as_sd else values, strict=True))
    traces |= _of_priors(run, take)
    index, _, scores = run.followed()
    if len(index):
        traces[TEST_LOG_LIKELIHOOD] = np.stack([score[-length:] for score in scores])
    return {name: values for name, values in traces.items() if values.std() > 0}  # constants have no diagnostics


def _names(run: Run, quantity: Quantity, number: int) -> list[str]:
    """Names of the elements of a quantity in diagnostics."""
    kind = "" if quantity.factor is None else run.kind_of(quantity.factor)
    labels = run.config.times if quantity.dims == ("time_level",) else ("",) * number
    return [
        quantity.diagnosed.format(kind=kind, number=place + 1, label=label.replace(":", "_"))
        for place, label in enumerate(labels)
    ]


def _of_priors(run: Run, take: Callable[[str], Float64]) -> dict[str, Float64]:
    """Functions of prior means and precisions that are invariant under permutations, sign changes and scaling."""
    rank, traces = run.config.rank, {}
    if run.config.biases:
        traces = {f"{kind}_bias_precision": take(f"{kind}.precision")[..., rank] for kind in KINDS}
    means, precisions = ([take(f"{kind}.{what}")[..., :rank] for kind in KINDS] for what in ("mean", "precision"))
    traces["mean_product"] = (means[0] * means[1]).sum(axis=-1)
    if run.config.prior != "normal-wishart":  # the trace of a dense precision has only its diagonal
        traces["variance_product"] = (1 / (precisions[0] * precisions[1])).sum(axis=-1)
    return traces


def labels(run: Run) -> dict[str, str]:
    """Labels of the scalars of `scalar_traces`; by default the name with spaces for underscores."""
    texts = {name: name.replace("_", " ") for name in scalar_traces(run)} | LABELS
    for quantity in run.quantities.traced:
        if quantity.label:
            kind = "" if quantity.factor is None else run.kind_of(quantity.factor)
            texts[quantity.diagnosed.format(kind=kind)] = quantity.label.format(kind=kind)
    return texts


def predictions(run: Run) -> tuple[npt.NDArray[np.int64], Float64]:
    """Predictions of the monitored test pairs.

    Returns
    -------
    index : (m,) int64
        Positions among the test ratings, in the order of `Run.test_pairs`.
    values : (chains, draws, m) float64
        The last draws of each chain, as many as the shortest chain has.
    """
    index, values, _ = run.followed()
    length = min(map(len, values))
    return index, np.stack([chain[-length:] for chain in values]).astype(np.float64)


def draw_weights(run: Run) -> Float64:
    """(chains, draws) float64: weights of the draws of `scalar_traces`."""
    length = min(len(trace["weight"]) for trace in run.traces)
    return np.stack([trace["weight"][-length:, 0] for trace in run.traces])

r"""Numbers of every draw that chains can be compared by.

Of what is identified, never of raw factors: likelihood and priors are unchanged when the latent dimensions are permuted
or flip their signs (or are rotated, with a dense prior), so chains differ in their factors for ever and agree in all
that can be observed. Looked at are

- ``tau``, the precisions of the user and item biases, the degrees of freedom ``nu`` of heteroscedastic noise;
- ``mean_product`` = sum_k m_k m'_k of the priors' means of users and items and, where the precisions are diagonal,
  ``variance_product`` = sum_k 1 / (lambda_k lambda'_k): unchanged by permutations, signs, and scaling one side against
  the other;
- ``test_log_likelihood`` of all test ratings;
- predictions of a fixed set of about 256 test pairs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dsgmcmc.posterior.draws import KINDS
from dsgmcmc.posterior.run import Run
from dsgmcmc.types import Float64


def scalar_traces(run: Run) -> dict[str, Float64]:
    """Identified numbers of every draw.

    Returns
    -------
    dict of str to (chains, draws) float64
        Cut to the shortest chain, from its end.
    """
    traces = run.traces
    length = min(len(trace["tau"]) for trace in traces)
    biases, rank = run.config.biases, run.config.rank

    def take(name: str) -> Float64:
        return np.stack([trace[name][-length:] for trace in traces])

    found = {"tau": take("tau")[..., 0]}
    for kind in KINDS:
        if biases:
            found[f"{kind}_bias_precision"] = take(f"{kind}.precision")[..., rank]
        if f"{kind}.nu" in traces[0]:
            found[f"{kind}_nu"] = take(f"{kind}.nu")[..., 0]
    means, precisions = ([take(f"{kind}.{what}")[..., :rank] for kind in KINDS] for what in ("mean", "precision"))
    found["mean_product"] = (means[0] * means[1]).sum(axis=-1)
    if run.config.prior != "normal-wishart":  # of a dense precision the trace has the diagonal
        found["variance_product"] = (1 / (precisions[0] * precisions[1])).sum(axis=-1)
    index, _, scores = run.followed()
    if len(index):
        found["test_log_likelihood"] = np.stack([score[-length:] for score in scores])
    return {name: values for name, values in found.items() if values.std() > 0}  # what is fixed has no diagnostics


def predictions(run: Run) -> tuple[npt.NDArray[np.int64], Float64]:
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


def draw_weights(run: Run) -> Float64:
    """(chains, draws) float64: weights of the draws of `scalar_traces`."""
    length = min(len(trace["weight"]) for trace in run.traces)
    return np.stack([trace["weight"][-length:, 0] for trace in run.traces])

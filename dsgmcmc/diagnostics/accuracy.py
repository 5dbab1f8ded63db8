"""The target accuracy of a run: when it is checked, and whether it is reached.

The predictions of test ratings are monitored, and so is the log likelihood of all test ratings, in
which every effect of the shared parameters on predictions shows. Shared parameters themselves mix
more slowly, often along directions that leave all predictions unchanged. The log likelihood needs
less ESS than predictions by the factor `LIKELIHOOD_ALLOWANCE`, and is ignored once predictions are
`ACCURACY_ALONE` times as accurate as the target (docs/evidence/dropped.md).

A single chain is compared with itself: its halves count as chains.

Checks are due when all chains have completed burn-in and 10 n sweeps, where n runs through the
numbers with at most three significant binary digits: 1, ..., 8, 10, 12, 14, 16, 20, ... So the end
depends on the draws alone, not on the clock; all checks cost about as much as six at the end; and
chains run at most a quarter longer than necessary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.config.chain import ResolvedChain
from dsgmcmc.config.units import LEAST_DRAWS, format_accuracy, parse_accuracy
from dsgmcmc.diagnostics import mixing
from dsgmcmc.diagnostics.convergence import SHARE_LEFT_OUT, split_interleaved
from dsgmcmc.posterior.moments import last_draws
from dsgmcmc.settings import named
from dsgmcmc.targets.base import Monitored
from dsgmcmc.types import Float64

#: Checks are due CHECK_SWEEPS * n sweeps after burn-in; n has at most CHECK_DIGITS significant
#: binary digits.
CHECK_SWEEPS = 10
CHECK_DIGITS = 3
#: For the log likelihood of the test ratings, the ESS may be smaller, and R-hat - 1 larger, by this
#: factor.
LIKELIHOOD_ALLOWANCE = 10
#: If the predictions are so many times as accurate as the target, the log likelihood is ignored.
ACCURACY_ALONE = 1.5
#: Label and format of each measure.
LABELS = {
    "rhat": ("R-hat of predictions", ".3f"),
    "ess": ("ESS", ".0f"),
    "shared_rhat": ("R-hat of the test log likelihood", ".3f"),
    "shared_ess": ("ESS of the test log likelihood", ".0f"),
}


class AccuracyCheck(NamedTuple):
    """Result of a check of the accuracy.

    Attributes
    ----------
    until : str
        The target accuracy.
    iteration : int
        Iteration of the check.
    found : dict of str to float
        Value of each measure in `until` for the worst prediction, after leaving out the worst
        `SHARE_LEFT_OUT` of the predictions; values for the log likelihood of the test ratings are
        ``shared_ess`` and ``shared_rhat``. Empty if unknown.
    reached : bool
        Whether the target is reached.
    limit : int
        Iteration at which chains end even if the target is not reached.
    """

    until: str
    iteration: int
    found: dict[str, float]
    reached: bool
    limit: int

    def __str__(self) -> str:
        """Say how accurate the predictions are, and whether the test log likelihood drifts."""
        if not self.found:
            return (
                "the accuracy of predictions is unknown: too few draws, or draws of unequal weight"
            )
        words = []
        wanted = limits(parse_accuracy(self.until), self.found)
        for name, value in self.found.items():
            if name == "ess":
                words.append(
                    f"predictions are as accurate as {value:,.0f} independent draws,"
                    f" {wanted[name]:g} were wanted"
                )
            elif name == "rhat" or not (self.reached or _meets(self.found, {name: wanted[name]})):
                words.append(f"{_measured(name, value)}, {wanted[name]:g} was wanted")
        return "; ".join(words)

    def against(self, targets: Mapping[str, float]) -> str:
        """Return the values of the measures as text, each with its limit."""
        wanted = limits(targets, self.found)
        return ", ".join(
            f"{_against(name, value)}/{wanted[name]:g}" for name, value in self.found.items()
        )


def _measured(name: str, value: float) -> str:
    """Write a measure as part of a sentence."""
    label, form = LABELS[name]
    return f"{label} is {value:{form}}"


def _against(name: str, value: float) -> str:
    """Write a measure in a line of progress."""
    label, form = LABELS[name]
    return f"{label} {value:{form}}"


class ChainProgress(NamedTuple):
    """Iteration of a chain, and the weights of its draws, (draws,) float64."""

    iteration: int
    weights: Float64


class ProcessDraws(NamedTuple):
    """What one process knows of the chains.

    Attributes
    ----------
    monitored : dict of (int, int) to Monitored
        Monitored values by chain and block.
    progress : dict of int to ChainProgress
        Progress by chain.
    """

    monitored: Mapping[tuple[int, int], Monitored]
    progress: Mapping[int, ChainProgress]


def next_check(iteration: int, burn_in: int, sweep: int) -> int:
    """Return the iteration of the first check that is not before `iteration`.

    Parameters
    ----------
    iteration, burn_in : int
    sweep : int
        Number of iterations in a sweep.
    """
    number = max(1, -(-(iteration - burn_in) // (CHECK_SWEEPS * sweep)))
    spacing = 1 << max(0, number.bit_length() - CHECK_DIGITS)
    return burn_in + -(-number // spacing) * spacing * CHECK_SWEEPS * sweep


def check_accuracy(config: ResolvedChain, gathered: Sequence[ProcessDraws]) -> AccuracyCheck:
    """Measure the accuracy of all chains; `gathered` is what every process knows of them."""
    monitored: dict[tuple[int, int], Monitored] = {}
    progress: dict[int, ChainProgress] = {}
    for process in gathered:
        monitored |= process.monitored
        progress |= process.progress
    predictions = []
    log_likelihoods = []
    for chain in sorted(progress):
        # in the order of blocks, for reproducible rounding
        blocks = [monitored[key] for key in sorted(monitored) if key[0] == chain]
        predictions.append(np.concatenate([block.values for block in blocks], axis=1))
        log_likelihoods.append(np.sum([block.score for block in blocks], axis=0))
    weights = last_draws([chain.weights for chain in progress.values()])
    found: dict[str, float] = {}
    if mixing.equal_weights(weights):
        log_likelihood = None
        if log_likelihoods[0].size:
            log_likelihood = last_draws(log_likelihoods)
        found = accuracy(
            last_draws(predictions).astype(np.float64),
            config.interleaved,
            list(config.accuracy_limits),
            log_likelihood,
        )
    return AccuracyCheck(
        until=str(config.until),
        iteration=min(chain.iteration for chain in progress.values()),
        found=found,
        reached=reached(config.accuracy_limits, found),
        limit=config.iterations,
    )


def describe_ending(until: Mapping[str, Any]) -> str:
    """Say in one line why a run ended, and how to continue.

    `until` has the attributes of its last `AccuracyCheck`, as its summary does.
    """
    last = AccuracyCheck(**until)
    if last.reached:
        better = format_accuracy(scaled(parse_accuracy(last.until), 2))
        return (
            f"{last}: reached at iteration {last.iteration:,}; to continue: {named('resume')}"
            f" {named('until')} {better}"
        )
    if last.iteration >= last.limit:
        more = f"{named('resume')} {named('iterations')} {2 * last.limit}"
        return f"{last}: ended at the limit of {last.limit:,} iterations; to continue: {more}"
    return f"{last}: stopped at iteration {last.iteration:,}; to continue: {named('resume')}"


def accuracy(
    values: Float64,
    interleaved: int,
    measures: Sequence[str],
    log_likelihood: Float64 | None = None,
) -> dict[str, float]:
    """Measure the worst monitored quantity, after leaving out the worst `SHARE_LEFT_OUT` of them.

    Parameters
    ----------
    values : (chains, draws, m) float64
        All draws of the monitored quantities.
    interleaved : int
        Number of states to which the draws of a chain belong in turns.
    measures : sequence of str
        "rhat", "ess" (the smaller of bulk and tail ESS), or both.
    log_likelihood : (chains, draws) float64, optional
        Log likelihood of the test ratings at each draw, which is measured separately.

    Returns
    -------
    dict of str to float
        Empty if there are too few draws.
    """
    found = _worst(values, interleaved, measures)
    if log_likelihood is not None and found:
        for name, value in _worst(log_likelihood[..., None], interleaved, measures).items():
            found[f"shared_{name}"] = value
    return found


def _worst(values: Float64, interleaved: int, measures: Sequence[str]) -> dict[str, float]:
    """Return the measures of the worst quantity that is not left out."""
    chains = split_interleaved(values, interleaved)
    compared = chains
    if len(values) == 1:
        compared = mixing.halves(chains)
    if compared.shape[1] < LEAST_DRAWS:
        return {}
    found = {}
    if "rhat" in measures:
        found["rhat"] = _largest(mixing.rhat(compared))
    if "ess" in measures:
        found["ess"] = -_largest(-mixing.ess_smaller(chains))
    return found


def _largest(values: Float64) -> float:
    """Return the largest value, after leaving out the largest `SHARE_LEFT_OUT` of the values."""
    return float(np.nanquantile(values, 1 - SHARE_LEFT_OUT, method="inverted_cdf"))


def scaled(targets: Mapping[str, float], times: float) -> dict[str, float]:
    """Return limits of an accuracy `times` times as high.

    ESS is multiplied, and R-hat - 1 divided, by `times`.
    """
    result = {}
    for name, limit in targets.items():
        if name == "ess":
            result[name] = times * limit
        else:
            result[name] = 1 + (limit - 1) / times
    return result


def limits(targets: Mapping[str, float], measured: Mapping[str, float]) -> dict[str, float]:
    """Return the limits of the measures in `measured`."""
    all_limits = dict(targets)
    for name, limit in scaled(targets, 1 / LIKELIHOOD_ALLOWANCE).items():
        all_limits[f"shared_{name}"] = limit
    return {name: limit for name, limit in all_limits.items() if name in measured}


def reached(targets: Mapping[str, float], measured: Mapping[str, float]) -> bool:
    """Whether predictions and log likelihood reach the targets.

    Predictions alone suffice if they reach a stricter target (`ACCURACY_ALONE`).
    """
    if not measured or not _meets(measured, targets):
        return False
    if _meets(measured, limits(targets, measured)):
        return True
    return _meets(measured, scaled(targets, ACCURACY_ALONE))


def _meets(measured: Mapping[str, float], bounds: Mapping[str, float]) -> bool:
    """Whether measures are within their bounds."""
    for name, limit in bounds.items():
        if name.endswith("rhat"):
            within = measured[name] <= limit
        else:
            within = measured[name] >= limit
        if not within:
            return False
    return True

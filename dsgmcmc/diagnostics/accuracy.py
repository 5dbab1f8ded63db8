"""Accuracy of the monitored predictions over all chains, and how a run with a target accuracy ended.

Shared parameters, such as thresholds and precisions, mix more slowly than predictions, and many of them move along
directions that leave all predictions unchanged: thresholds together with the means of the factors, a precision of
biases together with these biases. Their effect on predictions is measured by the log likelihood of the test ratings at
each draw. This log likelihood is therefore monitored in place of the shared parameters. Its ESS may be smaller than
that of the predictions by `LIKELIHOOD_ALLOWANCE`, and still distinguish a chain that has converged from one that
drifts. It is ignored once the predictions are `ENOUGH_ALONE` times as accurate as wanted; docs/defaults.md shows the
gain from waiting for it.

A single chain is compared with itself: its halves count as chains, and R-hat splits each half again. 9 of 10 monitored
quantities must reach the accuracy.

The accuracy is checked when all chains have completed burn-in and 10 n sweeps, n = 1, 2, ..., 7, 8, 10, 12, 14, 16, 20,
..., numbers with at most three significant binary digits. So the end depends on the draws alone, all checks together
cost about as much as six checks at the end, and chains run at most a quarter longer than necessary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dsgmcmc.config.chain import ResolvedChain
from dsgmcmc.config.units import LEAST_DRAWS, format_accuracy, parse_accuracy
from dsgmcmc.diagnostics import mixing
from dsgmcmc.diagnostics.convergence import SHARE_LEFT_OUT, split_subchains
from dsgmcmc.targets.base import Followed
from dsgmcmc.types import Float64

LOOK_SWEEPS, LOOK_DIGITS = 10, 3
#: For the log likelihood of the test ratings, the ESS may be smaller, and R-hat - 1 larger, by this factor.
LIKELIHOOD_ALLOWANCE = 10
ENOUGH_ALONE = 1.5
LABELS = {
    "rhat": ("R-hat", ".3f"),
    "ess": ("ESS", ".0f"),
    "shared_rhat": ("R-hat of the test log likelihood", ".3f"),
    "shared_ess": ("ESS of the test log likelihood", ".0f"),
}


@dataclass(frozen=True)
class Look:
    """Result of a check of the accuracy.

    Attributes
    ----------
    until : str
        The target accuracy.
    iteration : int
        Iteration of the check.
    found : dict of str to float
        Value of each measure in `until` for the worst prediction, after leaving out the fraction `SHARE_LEFT_OUT` of
        the predictions; values for the log likelihood of the test ratings are ``shared_ess`` and ``shared_rhat``.
        Empty if unknown.
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

    def table(self) -> dict[str, Any]:
        """Return the entry for ``summary.json``."""
        return asdict(self)

    def __str__(self) -> str:
        """Write the values of the measures."""
        if not self.found:
            return "unknown: too few draws, or draws of unequal weight"
        return ", ".join(f"{LABELS[name][0]} {value:{LABELS[name][1]}}" for name, value in self.found.items())

    def against(self, wanted: Mapping[str, float]) -> str:
        """Write the values of the measures, each with its limit."""
        limit = limits(wanted, self.found)
        shown = [f"{LABELS[name][0]} {value:{LABELS[name][1]}}/{limit[name]:g}" for name, value in self.found.items()]
        return ", ".join(shown)


def next_look(iteration: int, burn_in: int, sweep: int) -> int:
    """Return the iteration of the first check that is not before `iteration`.

    Parameters
    ----------
    iteration, burn_in : int
    sweep : int
        Number of iterations in a sweep.
    """
    number = max(1, -(-(iteration - burn_in) // (LOOK_SWEEPS * sweep)))
    spacing = 1 << max(0, number.bit_length() - LOOK_DIGITS)
    return burn_in + -(-number // spacing) * spacing * LOOK_SWEEPS * sweep


def look_at(
    config: ResolvedChain,
    gathered: Sequence[tuple[Mapping[tuple[int, int], Followed], Mapping[int, tuple[int, Float64]]]],
) -> Look:
    """Measure the accuracy of all chains.

    Parameters
    ----------
    config : ResolvedChain
        Settings of the run.
    gathered : sequence of (dict, dict)
        From every process two dicts: the monitored values, by chain and block; and by chain the pair of its iteration
        and the weights of its draws, (draws,) float64.
    """
    followed = {key: values for blocks, _ in gathered for key, values in blocks.items()}
    facts = {chain: progress for _, chains in gathered for chain, progress in chains.items()}
    chains, scores = [], []
    for number in sorted(facts):
        blocks = [followed[key] for key in sorted(followed) if key[0] == number]
        chains.append(np.concatenate([block.values for block in blocks], axis=1))
        scores.append(np.sum([block.score for block in blocks], axis=0))  # in the order of the blocks
    draws = min(map(len, chains))
    weights = np.stack([weight[len(weight) - draws :] for _, weight in facts.values()])
    measured: dict[str, float] = {}
    if mixing.equal_weights(weights):
        values = np.stack([chain[len(chain) - draws :] for chain in chains]).astype(np.float64)
        shared = np.stack([score[len(score) - draws :] for score in scores]) if scores[0].size else None
        measured = accuracy(values, len(config.make_sampler().positions), list(config.wanted), shared)
    return Look(
        until=str(config.until),
        iteration=min(iteration for iteration, _ in facts.values()),
        found=measured,
        reached=reached(config.wanted, measured),
        limit=config.iterations,
    )


def ending(look: Mapping[str, Any]) -> str:
    """Say in one line why a run ended, and how to continue; `look` is a `Look.table` from its summary."""
    now = Look(**look)
    if now.reached:
        better = format_accuracy(scaled(parse_accuracy(now.until), 2))
        return (
            f"reached its target ({now}, wanted {now.until}) at iteration {now.iteration:,}; "
            f"to continue: --resume --until {better}"
        )
    if now.iteration >= now.limit:
        more = f"--resume --iterations {2 * now.limit}"
        return f"ended at the limit of {now.limit:,} iterations without {now.until} ({now}); to continue: {more}"
    return f"stopped at iteration {now.iteration:,}, before {now.until} ({now}); to continue: --resume"


def accuracy(
    values: Float64, interleaved: int, measures: Sequence[str], shared: Float64 | None = None
) -> dict[str, float]:
    """Measure the worst monitored quantity, after leaving out the fraction `SHARE_LEFT_OUT` of them.

    Parameters
    ----------
    values : (chains, draws, m) float64
        All draws of the monitored quantities.
    interleaved : int
        Sub-chains per chain.
    measures : sequence of str
        "rhat", "ess" (the smaller of bulk and tail ESS), or both.
    shared : (chains, draws) float64, optional
        Log likelihood of the test ratings at each draw, which is measured separately.

    Returns
    -------
    dict of str to float
        Empty if there are too few draws.
    """
    result = _worst(values, interleaved, measures)
    if shared is not None and result:
        for name, value in _worst(shared[..., None], interleaved, measures).items():
            result[f"shared_{name}"] = value
    return result


def _worst(values: Float64, interleaved: int, measures: Sequence[str]) -> dict[str, float]:
    """Measures of the worst quantity, after leaving out the fraction `SHARE_LEFT_OUT` of the quantities."""
    chains = split_subchains(values, interleaved)
    compared = mixing.halves(chains) if len(values) == 1 else chains
    if compared.shape[1] < LEAST_DRAWS:
        return {}
    result = {}
    if "rhat" in measures:
        result["rhat"] = _largest(mixing.rhat(compared))
    if "ess" in measures:
        result["ess"] = -_largest(-np.minimum(mixing.ess_bulk(chains), mixing.ess_tail(chains)))
    return result


def _largest(values: Float64) -> float:
    """Largest value, after leaving out the fraction `SHARE_LEFT_OUT` of the values."""
    return float(np.nanquantile(values, 1 - SHARE_LEFT_OUT, method="inverted_cdf"))


def scaled(wanted: Mapping[str, float], times: float) -> dict[str, float]:
    """Limits for an accuracy that is `times` as high: ESS times `times`, R-hat - 1 divided by it."""
    return {name: times * limit if name == "ess" else 1 + (limit - 1) / times for name, limit in wanted.items()}


def limits(wanted: Mapping[str, float], found: Mapping[str, float]) -> dict[str, float]:
    """Limits of the measures in `found`."""
    of_shared = {f"shared_{name}": limit for name, limit in scaled(wanted, 1 / LIKELIHOOD_ALLOWANCE).items()}
    return {name: limit for name, limit in {**wanted, **of_shared}.items() if name in found}


def reached(wanted: Mapping[str, float], found: Mapping[str, float]) -> bool:
    """Whether predictions and log likelihood reach the accuracy, or predictions `ENOUGH_ALONE` times the accuracy."""

    def met(wanted: Mapping[str, float]) -> bool:
        return all(
            found[name] <= limit if name.endswith("rhat") else found[name] >= limit for name, limit in wanted.items()
        )

    return bool(found) and met(wanted) and (met(limits(wanted, found)) or met(scaled(wanted, ENOUGH_ALONE)))

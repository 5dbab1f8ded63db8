r"""Which candidates are sampled, how long, and which is recommended: decided by scores alone, never by time.

1. *The law.* The laws that the ratings admit, with nothing added, and biases only. The law is that of the recommended
   one among those with factors.
2. *What is added.* Each part by itself, with the law if that is Gaussian, else with noise by user and item, whose
   sweeps are shorter and draw effects of time exactly. Then all parts that gained anything, together, with the law.
   Whether they did so beyond chance is asked of them together: their gains add up, their chances do not.
3. *Recommended* is, of all that were sampled, the first in the order of complexity that is within one standard error of
   the best. The standard error is that of the paired difference, with the Monte Carlo errors of both chains.

All chains have the same number of sweeps: fewer on many ratings, where errors are small and sweeps take long. A
candidate whose chain diverges is out. The chain of the simplest falls back to safer samplers, as a run does, so that
there is always a model to recommend.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dsgmcmc.runs.compare.candidates import BIASES_ONLY, Candidate
from dsgmcmc.runs.compare.scores import Scores

#: Sweeps of burn-in, and most of a chain; of all chains together, of few and of many training ratings; which are many.
BURN_IN_SWEEPS, MAX_SWEEPS, ALL_SWEEPS, ALL_SWEEPS_MANY, MANY_RATINGS = 50, 300, 1400, 840, 500_000
#: The law with which parts are tried, where it is another.
TRIAL = {"logistic": "noise", "ordinal": "noise"}


def length_of(ratings: int, models: Sequence[Candidate]) -> int:
    """Sweeps of every candidate's chain, burn-in included, by the number of training ratings and of chains."""
    laws = sum(not each.added and each.law != BIASES_ONLY for each in models)  # its sweeps cost little
    parts = len({each.added for each in models if len(each.added) == 1})
    return min(MAX_SWEEPS, (ALL_SWEEPS_MANY if ratings >= MANY_RATINGS else ALL_SWEEPS) // (laws + parts + 1))


def half_way(length: int) -> int:
    """Sweeps after which a chain has made half of its draws."""
    return (BURN_IN_SWEEPS + length) // 2


def best_of(scores: Mapping[int, Scores]) -> int:
    """The candidate with the largest mean score; the first of equal ones."""
    return max(scores, key=lambda number: (scores[number].each.mean(), -number))


def recommended(scores: Mapping[int, Scores]) -> int:
    """The first candidate, in the order of their numbers, within one standard error of the best."""
    best = scores[best_of(scores)]
    gaps = {number: scores[number].behind(best) for number in sorted(scores)}
    return next(number for number, gap in gaps.items() if gap.mean <= gap.error)


def helpful(scores: Mapping[int, Scores], bare: int, others: Sequence[int]) -> list[int]:
    """Those of the candidates that are better than `bare`."""
    means = {number: float(each.each.mean()) for number, each in scores.items()}
    return [number for number in others if number in means and means[number] > means.get(bare, -np.inf)]

r"""Which candidates are sampled, how long, and which is recommended: decided by scores alone, never by time.

1. *The law.* The laws that the ratings admit, with nothing added. The law is that of the recommended one among them.
2. *What is added* to that law: each part by itself; then together all parts that gained more than one standard error.
3. *Recommended* is, of all that were sampled, the first in the order of complexity that is within one standard error of
   the best. The standard error is that of the paired difference, with the Monte Carlo errors of both chains.

A chain has `LENGTH` sweeps. It stops at `LOOK` of them if a model that has all that it has, and more, is better by more
than `CLEAR` standard errors, those without the Monte Carlo error, which is not known then: further sweeps bring more to
the larger model, since it has more to learn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dsgmcmc.runs.compare.candidates import LAWS, Candidate
from dsgmcmc.runs.compare.scores import Scores

#: Sweeps of a candidate's chain, burn-in included, where it is looked at and where it ends.
LOOK, LENGTH = 70, 120
#: Standard errors that are taken for clear before the chains have ended.
CLEAR = 4


def best_of(scores: Mapping[int, Scores]) -> int:
    """The candidate with the largest mean score; the first of equal ones."""
    return max(scores, key=lambda number: (scores[number].each.mean(), -number))


def recommended(scores: Mapping[int, Scores]) -> int:
    """The first candidate, in the order of their numbers, within one standard error of the best."""
    best = scores[best_of(scores)]
    gaps = {number: scores[number].behind(best) for number in sorted(scores)}
    return next(number for number, gap in gaps.items() if gap.mean <= gap.error)


def helpful(scores: Mapping[int, Scores], bare: int, others: Sequence[int]) -> list[int]:
    """Those of the candidates that are better than `bare` by more than one standard error."""
    gaps = {number: scores[bare].behind(scores[number]) for number in others if number in scores}
    return [number for number, gap in gaps.items() if gap.mean > gap.error]


def hopeless(models: Sequence[Candidate], scores: Mapping[int, Scores]) -> set[int]:
    """Candidates that a larger one has left behind."""
    return {
        number
        for number, own in scores.items()
        for other, theirs in scores.items()
        if _larger(models[other], models[number]) and (gap := own.behind(theirs)).mean > CLEAR * gap.error
    }


def _larger(one: Candidate, other: Candidate) -> bool:
    """Whether one has all that the other has, and more."""
    order = list(LAWS)
    lawful = one.law == other.law or (one.law in order and order.index(one.law) > order.index(other.law))
    return one != other and lawful and set(one.added) >= set(other.added)

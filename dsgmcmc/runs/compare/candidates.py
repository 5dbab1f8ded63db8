"""The models that are compared, in the order of their complexity: a law of ratings, and what is added to it.

The order is that of `LAWS`, and with each law of what is added: nothing, one of `ADDED`, two of them, all.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any, NamedTuple

#: Laws of ratings by their names, the simplest first.
LAWS: dict[str, dict[str, Any]] = {
    "plain": {"likelihood": "gaussian", "noise": "shared", "thresholds": "shared"},
    "noise": {"likelihood": "gaussian", "noise": "both", "thresholds": "shared"},
    "ordinal": {"likelihood": "ordinal-logit", "noise": "both", "thresholds": "user"},
}

#: The law where every training rating is a click.
CLICKS: dict[str, dict[str, Any]] = {"clicks": {"likelihood": "all-cells", "noise": "shared", "thresholds": "shared"}}

#: What can be added to each law, and what is there where it is not.
ADDED: dict[str, dict[str, Any]] = {
    "features": {"features": "yes"},
    "implicit features": {"implicit_features": "both"},
    "time": {"time_levels": "user"},
}
WITHOUT = {"features": "no", "implicit_features": "no", "time_levels": "no"}


class Candidate(NamedTuple):
    """A model.

    Attributes
    ----------
    law : str
        A key of `LAWS` or `CLICKS`.
    added : tuple of str
        Keys of `ADDED`.
    """

    law: str
    added: tuple[str, ...]

    @property
    def name(self) -> str:
        """The law, and what is added."""
        return " + ".join((self.law, *self.added))

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings by the names of `sample`."""
        given = {name: value for part in self.added for name, value in ADDED[part].items()}
        return {**(LAWS | CLICKS)[self.law], **WITHOUT, **given}


def candidates(*, clicks: bool, features: bool, times: bool) -> list[Candidate]:
    """The models that ratings may suit, in the order of their complexity; settings or ratings may not admit all of them.

    Parameters
    ----------
    clicks : bool
        Whether all ratings are 1.
    features : bool
        Whether users or items have features.
    times : bool
        Whether the order in time is known.
    """
    there = {"features": features, "implicit features": True, "time": times and not clicks}
    added = [name for name in ADDED if there[name]]
    chosen = [some for size in range(len(added) + 1) for some in combinations(added, size)]
    return [Candidate(law, some) for law in (CLICKS if clicks else LAWS) for some in chosen]

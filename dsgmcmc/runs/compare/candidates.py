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

#: What can be added to each law: the setting, and its value; of context that is the names of all columns.
ADDED: dict[str, tuple[str, str]] = {
    "features": ("features", "yes"),
    "implicit": ("implicit_features", "both"),
    "time": ("time_levels", "user"),
    "context": ("context", ""),
}


class Candidate(NamedTuple):
    """A model.

    Attributes
    ----------
    law : str
        A key of `LAWS` or `CLICKS`.
    added : tuple of str
        Keys of `ADDED`.
    columns : tuple of str
        Context columns that there are.
    """

    law: str
    added: tuple[str, ...]
    columns: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The law, and what is added."""
        return " + ".join((self.law, *self.added))

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings by the names of `sample`."""
        parts = {
            setting: (value or ",".join(self.columns)) if part in self.added else "no"
            for part, (setting, value) in ADDED.items()
        }
        return {**(LAWS | CLICKS)[self.law], **parts}


def candidates(*, clicks: bool, features: bool, times: bool, context: tuple[str, ...] = ()) -> list[Candidate]:
    """The models that ratings may suit, the simplest first; settings or ratings may not admit all of them.

    Parameters
    ----------
    clicks : bool
        Whether all ratings are 1.
    features : bool
        Whether users or items have features.
    times : bool
        Whether the order in time is known.
    context : tuple of str
        Context columns.
    """
    there = {"features": features, "implicit": True, "time": times and not clicks}
    there["context"] = bool(context) and not clicks
    added = [name for name in ADDED if there[name]]
    chosen = [some for size in range(len(added) + 1) for some in combinations(added, size)]
    return [Candidate(law, some, context) for law in (CLICKS if clicks else LAWS) for some in chosen]

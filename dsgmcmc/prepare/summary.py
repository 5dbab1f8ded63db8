"""What was decided about the columns of ratings and features, for users of Python."""

from __future__ import annotations

from typing import NamedTuple

from typing_extensions import override

from dsgmcmc.prepare.prepare import Summary
from dsgmcmc.terminal import plain

_SHOWN = 10  # columns of features that the text names


class DataReading(NamedTuple):
    """How `BPMF.fit` read its ratings and features; its text has a line for each decision.

    Attributes
    ----------
    summary : Summary
        All that is known, as ``dsgmcmc prepare --json`` prints it.
    """

    summary: Summary

    def lines(self) -> list[str]:
        """Return the decisions, one a line."""
        summary = self.summary
        lines = [
            f"{summary.ratings:,} ratings of {summary.users:,} users and {summary.items:,} items",
            f"columns: {summary.columns}",
        ]
        lines += [f"dates in {dates}" for dates in summary.dates]
        if summary.missing:
            lines.append(f"left out, as missing: {summary.missing:,}")
        if summary.duplicates:
            lines.append(f"repeated pairs: {summary.duplicates:,}, ordered by {summary.order}")
        for entity, features in summary.features.items():
            kinds = [f"{column} {kind}" for column, kind in features["kinds"].items()]
            shown = ", ".join(kinds[:_SHOWN]) or "unchanged"
            if len(kinds) > _SHOWN:
                shown += f", ... ({len(kinds):,} columns)"
            lines.append(f"{entity} features: {shown}")
            lines += [f"{column}: {functions}" for column, functions in features["times"].items()]
            lines += features["notes"]
        lines += [f"doubt: {doubt}" for doubt in summary.doubts]
        return lines

    @override
    def __repr__(self) -> str:
        return "\n".join(map(plain, self.lines()))

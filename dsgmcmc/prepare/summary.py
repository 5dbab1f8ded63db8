"""What a prepared ratings file has, and what was decided about the columns of its sources."""

from __future__ import annotations

from typing import NamedTuple

from typing_extensions import override

from dsgmcmc.features.encoders import FeaturesReport
from dsgmcmc.terminal import plain

_SHOWN = 10  # columns of features that the text names


class Summary(NamedTuple):
    """Summary of a prepared ratings file.

    Attributes
    ----------
    mean, minimum, maximum : float
        Of the training ratings.
    resolution : float or None
        Step to which they were recorded (`dsgmcmc.ratings.resolution`).
    columns : str
        Roles of the columns in the first input file.
    other_columns : dict of str to str
        The same of further input files, by path, if they differ from the first one.
    features : dict of str to FeaturesReport
        For "user" and "item", if they have features.
    not_rated : float
        Share of the ratings whose values probably mean "not rated".
    codes : list of float
        These values.
    missing : int
        Number of ratings that were left out because their values mean "not rated".
    duplicates : int
        Number of ratings that were left out or averaged because another rating has the same user
        and item.
    replicates : int
        Number of ratings beyond the first of their user and item, all of which are kept.
    bounded : int
        Number of ratings that are known to lie within bounds.
    order : str
        What the first and the last of such ratings means: the column of times, or "line".
    dates : list of str
        The order of day, month and year in columns of dates, if their values show it.
    holes : str
        How the cells that are missing lie, if a random split would mislead, and what follows;
        otherwise empty.
    doubts : list of str
        What speaks against the columns that were taken for users, items and ratings, against their
        names, and for another unit of time than seconds.
    """

    path: str
    users: int
    items: int
    ratings: int
    train: int
    test: int
    mean: float
    minimum: float
    maximum: float
    resolution: float | None
    content_sha256: str
    columns: str
    other_columns: dict[str, str]
    features: dict[str, FeaturesReport]
    not_rated: float
    codes: list[float]
    missing: int
    duplicates: int
    replicates: int
    bounded: int
    order: str
    dates: list[str]
    holes: str
    doubts: list[str]


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

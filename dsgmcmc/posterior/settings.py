"""The settings of commands that use draws: each is declared once, for its option and for Python.

This file loads no libraries for numbers, because ``dsgmcmc predict --help`` reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import field_validator, model_validator

from dsgmcmc.errors import InputError
from dsgmcmc.settings import Checked, named, setting

#: Rules that rank items.
By = Literal["likely", "explore", "exposure", "mean", "ucb", "lcb", "thompson", "sd"]
#: Rules that use the pattern of the ratings.
PATTERN_RULES = ("likely", "explore", "exposure")
#: What is done with unknown users and items of a file.
Unknown = Literal["refuse", "prior"]
#: Probability of intervals unless users say another one.
INTERVAL = 0.9
#: From which ratings the exposure of users to items is learnt.
ExposureKind = Literal["auto", "rated", "liked"]


def _clip(default: bool) -> Any:
    return setting(
        "Clip predictions and quantiles, not scores, to the range of levels; counts, and amounts"
        " with zeros, at 0.",
        default,
    )


def _data(text: str = "Ratings file of the run.") -> Any:
    return setting(text, None, metavar="DATA.h5", shown="the path given to sample")


def _exposure() -> Any:
    return setting(
        "Learn the exposure from what users rated, or from what they rated and liked; auto: by"
        " held-out lists.",
        "auto",
    )


def _unknown() -> Any:
    return setting(
        "Refuse unknown users and items, or predict their ratings from the prior.", "refuse"
    )


def _columns() -> Any:
    return setting(
        "Columns of the file by name or position from 1; detected by default.",
        None,
        metavar="user=U,item=I,...",
    )


class PredictOptions(Checked):
    """What is predicted for a pair of a user and an item."""

    in_file: ClassVar[bool] = False

    of_mean: bool = setting("Predict the expected rating, without noise.", False)
    interval: float | None = setting(
        "Probability of the interval; 0.9 gives the quantiles q05 and q95.",
        None,
        shown="0.9; with --matrix none",
    )
    at_least: float | None = setting(
        "Also predict the probability of at least this rating.", None, metavar="RATING"
    )
    probabilities: bool = setting(
        "Also predict the probability of each level of the ratings.", False
    )
    clip: bool = _clip(False)

    @field_validator("interval")
    @classmethod
    def _check_probability(cls, value: float | None) -> float | None:
        if value is not None and not 1e-9 <= value <= 1 - 1e-9:
            raise ValueError("expected a probability between 0 and 1")
        return value

    @model_validator(mode="after")
    def _check_combination(self) -> PredictOptions:
        if self.of_mean and (self.at_least is not None or self.probabilities):
            raise ValueError(
                f"{named('of_mean')} cannot be combined with {named('at_least')} or"
                f" {named('probabilities')}: leave it out"
            )
        return self

    @property
    def levels(self) -> tuple[float, float]:
        """Probabilities of the two quantiles."""
        interval = INTERVAL if self.interval is None else self.interval
        tail = round((1 - interval) / 2, 12)
        return tail, 1 - tail

    @property
    def predicted_columns(self) -> tuple[str, str, str, str]:
        """Names of the predicted columns, such as ``mean, sd, q05, q95``."""
        low, high = (f"{level:.10f}".rstrip("0")[2:].ljust(2, "0") for level in self.levels)
        return "mean", "sd", f"q{low}", f"q{high}"


class PredictSettings(PredictOptions):
    """Settings of ``dsgmcmc predict``."""

    clip: bool = _clip(True)
    unknown: Unknown = _unknown()
    columns: str | None = _columns()
    matrix: bool = setting("In place of PAIRS, complete the matrix of all users and items.", False)
    draws: int = setting(
        "Number of draws in place of means: columns rating_1 and so on of PAIRS; with --matrix,"
        " matrices for multiple imputation. With --of-mean, of expected ratings.",
        0,
        ge=0,
    )
    sd: bool = setting(
        "With --matrix, also write standard deviations, which PAIRS always get.", False
    )
    data: Path | None = _data("With --matrix, ratings file of the run.")

    @model_validator(mode="after")
    def _check_form(self) -> PredictSettings:
        of_pairs = ["at_least", "probabilities", "unknown", "columns"]
        if self.draws:
            self._refuse(
                ["sd", "interval", "at_least", "probabilities", "unknown"],
                f"{named('draws')} writes draws, of known users and items",
            )
        if self.matrix:
            self._refuse(of_pairs, f"{named('matrix')} predicts all pairs of users and items")
        else:
            self._refuse(["sd", "data"], f"PAIRS, not {named('matrix')}, are predicted")
        return self

    def _refuse(self, names: Sequence[str], because: str) -> None:
        """Raise ValueError if one of these settings is given."""
        given = self.changed(*names)
        if given:
            raise ValueError(f"{because}: leave out {named(given[0])}")


class RankingOptions(Checked):
    """How items are ranked."""

    in_file: ClassVar[bool] = False

    top: int = setting("Number of items per user, or of pairs.", 10, short="-n", ge=1)
    by: By = setting(
        "Rank by likely: whether the user will choose and like an item; explore: that at one draw;"
        " exposure: choose it; mean: expected rating; ucb, lcb: its confidence bounds; sd: its"
        " uncertainty; thompson: a draw.",
        "likely",
    )
    z: float = setting(
        "With ucb and lcb, number of standard deviations between mean and bound.", 1.0, ge=0
    )
    at_least: float | None = setting(
        "With --by likely and explore, the lowest rating that counts as liked (default: the upper"
        " quarter); with mean and thompson, rank by the probability of this.",
        None,
        metavar="RATING",
    )
    exposure: ExposureKind = _exposure()
    clip: bool = _clip(True)
    include_rated: bool = setting("Also recommend items that the user has rated.", False)
    at_most: str | None = setting(
        "List at most N items of each category in this column of the items' features.",
        None,
        metavar="COLUMN=N",
    )
    lowest: bool = setting("With mean, ucb, lcb, sd and thompson, list the lowest first.", False)
    reasons: bool = setting(
        "Name the rated item that exposes the user most to each item (likely, explore, exposure).",
        False,
    )
    unknown: Unknown = setting(
        "Refuse unknown users, or give them the list of somebody without ratings.", "refuse"
    )
    seed: int | None = setting(
        "Seed of the draws of thompson and explore.", None, shown="random", ge=0
    )

    @model_validator(mode="after")
    def _check_rule(self) -> RankingOptions:
        if self.at_least is not None and self.by in ("exposure", "ucb", "lcb", "sd"):
            raise ValueError(
                f"{named('by')} {self.by} does not use {named('at_least')}: leave it out, or rank"
                " by mean"
            )
        if self.lowest and self.by in PATTERN_RULES:
            raise ValueError(
                f"{named('by')} {self.by} has no lowest that anybody wants: rank by mean, ucb, lcb,"
                f" sd or thompson, or leave out {named('lowest')}"
            )
        if self.reasons and self.by not in PATTERN_RULES:
            raise ValueError(
                f"{named('by')} {self.by} does not ask what users rated, so that it has no"
                f" {named('reasons')}: rank by {', '.join(PATTERN_RULES)}, or leave them out"
            )
        return self


class RecommendSettings(RankingOptions):
    """Settings of ``dsgmcmc recommend``."""

    items: Path | None = setting(
        "File with titles of items: movies.dat, u.item, movies.csv or any CSV.",
        None,
        metavar="FILE",
    )
    matching: str | None = setting(
        "Recommend only items whose line in --items matches, e.g. 'Comedy|Drama'.",
        None,
        metavar="REGEX",
    )
    candidates: Path | None = setting(
        "Recommend only these items, one name per line.", None, metavar="FILE"
    )
    exclude: Path | None = setting(
        "Never recommend these items, one name per line; or these pairs, in columns user and item.",
        None,
        metavar="FILE",
    )
    data: Path | None = _data()


class EvaluateSettings(Checked):
    """Settings of ``dsgmcmc evaluate``."""

    in_file: ClassVar[bool] = False

    at: int = setting("Number of recommended items per user.", 10, ge=1, le=100_000)
    liked: float | None = setting(
        "Lowest test rating that counts as liked.", None, shown="as in recommend"
    )
    exposure: ExposureKind = _exposure()
    everyone: bool = setting("Rank for all users, not only for 1,000 of them.", False, flag="all")
    data: Path | None = _data()
    unknown: Unknown = _unknown()
    columns: str | None = _columns()
    missing: str | None = setting(
        "Values of the file that mean not rated.",
        None,
        metavar="VALUE,...",
        shown="as the ratings of the run were read",
    )

    def check_form(self, *, of_file: bool) -> None:
        """Raise InputError for settings of rankings with a file, or of a file without one."""
        unused = self.changed("unknown", "columns", "missing")
        advice = "rankings are compared on the test ratings: give RATINGS, or leave out"
        if of_file:
            unused = self.changed("at", "liked", "exposure", "everyone")
            advice = "RATINGS are compared with predictions, not with rankings: leave out"
        if unused:
            flag = unused[0].replace("everyone", "all")
            raise InputError(f"{advice} {named(flag)}")

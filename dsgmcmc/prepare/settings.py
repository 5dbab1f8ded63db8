"""The settings of `prepare`: each is declared once, for ``dsgmcmc prepare`` and for Python.

`dsgmcmc.prepare.prepare` uses them. This file loads no libraries for data, because ``dsgmcmc
prepare --help`` reads it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

from dsgmcmc.errors import InputError
from dsgmcmc.settings import Checked, named, setting

_TEST_FRACTION = 0.1  # by default

#: What happens to several ratings of an item by a user.
Duplicates = Literal["error", "first", "last", "mean", "keep"]


class PrepareSettings(Checked):
    """Settings of ``dsgmcmc prepare``, whose help describes them.

    In Python, columns may also be a dict, with a tuple for the parts of a name, features a
    `Description`, the kinds of their columns a dict, and `missing` a number or a sequence.
    """

    in_file: ClassVar[bool] = False

    columns: Any = setting(
        "Columns that are not detected, by name in the header or by position from 1, e.g."
        " item=joke. Names may have several parts: user=station+day; context=day leaves open on"
        " which side a third column is (docs/three-way.md). With rating=none every line"
        " is a click. weight=W names relative precisions of measurements; lower=L,upper=U or"
        " relation=R, bounds of ratings.",
        None,
        metavar="user=U,item=I,rating=R,timestamp=T",
    )
    test_fraction: float | None = setting(
        "Fraction of the ratings to hold out for testing.", None, shown="0.1", ge=0, lt=1
    )
    seed: int = setting(
        "Seed for the split, and for the order of rows and columns.", 0, ge=0, le=2**63 - 1
    )
    split: Literal["random", "temporal"] = setting(
        "Test ratings: drawn at random, or the latest by timestamp.", "random"
    )
    hold_out_by: str | None = setting(
        "Hold out whole groups: all ratings with the same values in these columns. With --test,"
        " only in comparisons of models.",
        None,
        metavar="COLUMN+...",
    )
    test: Path | None = setting(
        "File with the test ratings, instead of a split.", None, metavar="FILE"
    )
    timestamps: bool = setting(
        "Keep the temporal order of ratings, for `sample --time-levels`.", False
    )
    try_times: bool = setting(
        "Keep the temporal order of ratings if every rating has a time that can be read.",
        False,
        offered=False,
    )
    duplicates: Duplicates | None = setting(
        "Rating to use if a user rated an item more than once: the first or last by timestamp (or"
        " line), or the mean; keep: all, as measurements of their own; error: refuse such"
        " ratings.",
        None,
        shown="last; keep for measurements without times that differ; asked for matrices",
    )
    matrix: bool = setting(
        "The files are matrices: a row a user, a column an item. Cells that are empty, NaN, NA,"
        " N/A, null or a dot are not rated. The first column, or --columns user=NAME, names users;"
        " the header names items.",
        False,
    )
    first_line: Literal["names", "ratings"] | None = setting(
        "What the first line of text has, if its numbers may be either.", None, shown="detected"
    )
    skip_rows: str | None = setting(
        "Lines of text that are no rows: 1-3 above the header, or 2 with units below it.",
        None,
        metavar="LINE,...",
    )
    decimal: Literal[",", "."] | None = setting(
        "Mark before the decimals of numbers in text; the other one, or a blank, may stand between"
        " thousands.",
        None,
        shown="detected",
    )
    levels: Any = setting(
        "Lowest and highest level of items, whose ratings are ordered levels: a table with the"
        " columns item, lowest and highest.",
        None,
        metavar="FILE",
        shown="levels that were observed",
    )
    unit: str | None = setting(
        "Unit of the ratings, such as t/ha, which results and pictures name.",
        None,
        metavar="UNIT",
    )
    ignore: Any = setting(
        "Columns of a matrix that are no items, by name or position; none: all are items.",
        None,
        metavar="COLUMN,...",
    )
    variable: str | None = setting(
        "Matrix or table of a file that has several: layer, variable, R object, type of features.",
        None,
        metavar="NAME",
    )
    unstored: Literal["missing", "zero", "limit"] | None = setting(
        "Cells that a sparse matrix does not store: not rated, or ratings of 0, as counts are;"
        " limit: these, and cells without a number, are within their limits.",
        None,
        shown="none; missing in .mtx and .npz",
    )
    missing: Any = setting(
        "Values that mean not rated: such ratings are left out. A word, or '' for an empty field,"
        " also leaves out lines without a user or an item.",
        None,
        metavar="VALUE,...",
    )
    user_features: Any = setting(
        "Features of users: text with a header, JSON, Parquet, or a matrix, with the names in the"
        " column of --columns, in a column user, or in the first column. Text becomes categories,"
        " text with separators becomes lists, dates become functions of time, and numbers are"
        " standardised. names: the names of users, which are dates.",
        None,
        metavar="FILE",
    )
    item_features: Any = setting("Features of items, likewise.", None, metavar="FILE")
    feature_kinds: Any = setting(
        "Kinds of columns that are not detected: number, category, list, year, flag, time, skip.",
        None,
        metavar="COLUMN=KIND,...",
    )
    part_features: bool = setting("Use the parts of names as features.", True)
    separator: str = setting("Separator between the values of a list.", "|", min_length=1)
    memory: int | str | None = setting(
        "Memory limit, e.g. 2GB.",
        None,
        metavar="SIZE",
        shown="60 % of the memory of the machine, or of the cgroup's limit",
    )
    force: bool = setting("Replace OUT.", False)

    @property
    def of_repeated(self) -> Duplicates:
        """Which of repeated ratings is used."""
        return self.duplicates or "last"

    @property
    def temporal(self) -> bool:
        """Whether the test ratings are the latest ones."""
        return self.split == "temporal"

    @property
    def timed(self) -> bool:
        """Whether every rating needs a time."""
        return self.timestamps or self.temporal

    @property
    def fraction(self) -> float:
        """Share of the ratings that become test ratings."""
        return _TEST_FRACTION if self.test_fraction is None else self.test_fraction

    def check(self) -> None:
        """Raise InputError if a setting does not go with another one."""
        if self.matrix and self.timed:
            raise InputError(
                f"{named('matrix')}: a matrix has no timestamps: leave out {named('timestamps')},"
                f" and {named('split')} temporal"
            )
        if self.ignore is not None and not self.matrix:
            raise InputError(
                f"{named('ignore')} is for a matrix: give {named('matrix')}, or name the columns of"
                f" a table with a line for each rating ({named('columns')})"
            )
        if self.hold_out_by and (self.temporal or self.matrix):
            raise InputError(
                f"{named('hold_out_by')} does not go with {named('matrix')} and {named('split')}"
                " temporal: leave them out"
            )
        if self.test is not None and (self.test_fraction is not None or self.temporal):
            raise InputError(
                f"{named('test')} gives the test ratings: leave out {named('test_fraction')}, and"
                f" {named('split')} temporal"
            )

"""How ratings in memory are read, as users say."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from dsgmcmc.input.sources.labelled import Choice
from dsgmcmc.input.values import parse_missing
from dsgmcmc.ratings.reading import Reading
from dsgmcmc.tables.usual import Columns


class InputForm(NamedTuple):
    """How ratings in memory are read: parameters of `BPMF`.

    Attributes
    ----------
    columns : str or dict of str, optional
        Columns of a data frame by role, such as ``user=U,item=I``.
    matrix : bool, optional
        Whether the ratings are a matrix with a row for each user; None if their form tells.
    missing : optional
        Values that mean "not rated".
    variable : str, optional
        Which matrix of an object with several.
    unstored : {"missing", "zero"}, optional
        What cells mean that a sparse matrix does not store.
    ignored : tuple of str
        Columns of a matrix that are no items.
    """

    columns: str | Columns | None = None
    matrix: bool | None = None
    missing: Any = None
    variable: str | None = None
    unstored: Literal["missing", "zero"] | None = None
    ignored: tuple[str, ...] = ()

    @property
    def choice(self) -> Choice:
        """What the user chooses in objects that can be read in several ways."""
        return Choice(self.variable, self.unstored)

    @property
    def reading(self) -> Reading:
        """What the user has said of the ratings."""
        return Reading(
            matrix=bool(self.matrix),
            missing=tuple(parse_missing(self.missing)),
            variable=self.variable,
            unstored=self.unstored,
            ignore=self.ignored,
        )


ANY_FORM = InputForm()

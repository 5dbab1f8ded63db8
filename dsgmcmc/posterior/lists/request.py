"""Lists of items for users, as Python and commands request them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.input.titles import read_names
from dsgmcmc.posterior.cells.fitted_rows import FittedRows, UsersByRow
from dsgmcmc.posterior.index import item_titles
from dsgmcmc.posterior.lists.exclusions import Exclusions, by_user, excluded_in_file
from dsgmcmc.posterior.lists.liked import warn_of_few
from dsgmcmc.posterior.lists.pairs import best_pairs
from dsgmcmc.posterior.lists.ranking import (
    Columns,
    Ranking,
    allowed_items,
    recommendations,
)
from dsgmcmc.posterior.lists.slices import Slices
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.settings import RankingOptions, RecommendSettings, Unknown
from dsgmcmc.settings import named
from dsgmcmc.terminal import warn
from dsgmcmc.types import Mask


class Request(NamedTuple):
    """Lists that are requested.

    Attributes
    ----------
    ranking : Ranking
        How items are ranked; its `among` are the items that may be recommended, besides
        `candidates` and `exclude`.
    users : list, optional
        Names of users, or slices of a table of three directions in any form of `Slices.read`;
        default all users.
    candidates : list, optional
        Names of items that may be recommended; default all.
    exclude : list or tuple of (n,) array, optional
        Names of items that must not be recommended; or users and items of such pairs.
    titles : dict of int to str, optional
        Titles of items by row, for a column ``item_name``.
    of_pairs : bool
        Whether all pairs of users and items are ranked together.
    """

    ranking: Ranking
    users: object = None
    candidates: list[Any] | None = None
    exclude: Exclusions | None = None
    titles: dict[int, str] | None = None
    of_pairs: bool = False

    @classmethod
    def of_files(
        cls, run: Run, settings: RecommendSettings, users: object, *, of_pairs: bool
    ) -> Request:
        """Return a request whose items are named by files."""
        titles = None
        if settings.items is not None:
            titles = item_titles(run.items, settings.items)
        exclude = None
        if settings.exclude is not None:
            exclude = excluded_in_file(run, settings.exclude)
        options = settings.model_dump(include=set(RankingOptions.model_fields))
        return cls(
            Ranking(**options, among=_matching_items(run, settings)),
            users,
            candidates=_names_in(settings.candidates),
            exclude=exclude,
            titles=titles,
            of_pairs=of_pairs,
        )

    def ranking_for(self, model: FittedRows, tell: Callable[[str], None]) -> Ranking:
        """Return the ranking with all items that may be recommended; notes go to `tell`."""
        run = model.run
        excluded = None
        items = self.exclude
        if isinstance(items, tuple):
            excluded = by_user(model, items, tell)
            items = None
        among = allowed_items(run, self.candidates, items, tell)
        if self.ranking.among is not None:
            among &= self.ranking.among
        for note in warn_of_few(run, self.ranking.by, self.ranking.at_least):
            tell(note)
        return self.ranking.model_copy(update={"among": among, "excluded": excluded})


class ListBlock(NamedTuple):
    """Lists of some users, or one list with a heading: of a slice, or of all pairs."""

    columns: Columns
    heading: str | None = None


def lists(
    model: FittedRows, request: Request, tell: Callable[[str], None] = warn
) -> Iterator[ListBlock]:
    """Yield the lists that are requested, in blocks of users; doubts go to `tell`.

    Columns are those of `dsgmcmc.posterior.lists.ranking.recommendations`, or, of slices, of
    `Slices.best`.

    Raises
    ------
    InputError
        If a user or every candidate is unknown, or if items (for pairs: or users) were folded in.
    """
    ranking = request.ranking_for(model, tell)
    of_slices = bool(model.run.directions) and request.users is not None
    if request.of_pairs or of_slices:
        for name in ("at_most", "reasons"):
            if getattr(ranking, name):
                raise InputError(f"{named(name)} is for lists of users: leave it out")
    if request.of_pairs:
        yield _of_pairs(model, ranking, request.titles)
        return
    if model.newcomers is not None and model.newcomers.entity == "item":
        raise InputError(
            "this model has folded-in items, which cannot be ranked: recommend from the run itself"
        )
    if of_slices:
        yield from _of_slices(model, ranking, request)
        return
    users = _users(model, request.users, ranking.unknown)
    for columns in recommendations(model, users, ranking, request.titles):
        yield ListBlock(columns)


def _of_pairs(model: FittedRows, ranking: Ranking, titles: dict[int, str] | None) -> ListBlock:
    """Return the list of the best pairs."""
    if model.newcomers is not None:
        raise InputError("pairs are ranked for the run itself: use the model before fold_in")
    best = best_pairs(model, model.users_at(np.arange(len(model.run.users))), ranking, titles)
    heading = None
    if len(best["rank"]):
        heading = "pairs of user and item"
    return ListBlock(best, heading)


def _of_slices(model: FittedRows, ranking: Ranking, request: Request) -> Iterator[ListBlock]:
    """Yield the list of every slice, each of them once."""
    slices = Slices(model)
    by_heading = {str(chosen): chosen for chosen in slices.read(request.users)}
    for heading, chosen in by_heading.items():
        yield ListBlock(slices.best(chosen, ranking, request.titles), heading)


def _users(model: FittedRows, names: Any, unknown: Unknown) -> UsersByRow:
    """Return users by name, each of them once; without names all, in the order of their names."""
    users = model.run.users
    if names is None:
        return model.users_at(users.rows_in_order())
    return model.users(list(dict.fromkeys(users.typed(names).tolist())), unknown)


def joined(blocks: Iterable[ListBlock]) -> Columns:
    """Return the columns of all blocks, one after the other."""
    tables = [block.columns for block in blocks]
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def _names_in(file: Path | None) -> list[str] | None:
    """Return the names in a file, or None."""
    if file is None:
        return None
    return read_names(file)


def _matching_items(run: Run, settings: RecommendSettings) -> Mask | None:
    """Return the mask of items whose line in a file matches a regular expression."""
    if settings.matching is None:
        return None
    if settings.items is None:
        raise InputError("--matching needs --items FILE, the file with the lines to match")
    matched = np.zeros(len(run.items), bool)
    matched[list(item_titles(run.items, settings.items, settings.matching))] = True
    return matched

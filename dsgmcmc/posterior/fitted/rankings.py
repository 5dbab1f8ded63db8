"""Lists of items, and of similar items or users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from dsgmcmc.input.arrays import list_names
from dsgmcmc.posterior.fitted.state import FittedState, renewing
from dsgmcmc.posterior.index import Vocabulary
from dsgmcmc.posterior.lists.exclusions import excluded_in_memory
from dsgmcmc.posterior.lists.ranking import Ranking
from dsgmcmc.posterior.lists.request import Request, joined, lists
from dsgmcmc.posterior.lists.similar import similar
from dsgmcmc.posterior.settings import By, ExposureKind, Unknown
from dsgmcmc.types import Array

Names = str | int | Sequence[Any] | Array


class Rankings(FittedState):
    """Methods that recommend items."""

    @renewing
    def recommend(  # noqa: PLR0913  # as the command has them
        self,
        users: Names | Any = None,
        n: int = 10,
        *,
        by: By = "likely",
        z: float = 1.0,
        seed: int | None = None,
        at_least: float | None = None,
        exposure: ExposureKind = "auto",
        include_rated: bool = False,
        at_most: str | None = None,
        lowest: bool = False,
        reasons: bool = False,
        unknown: Unknown = "refuse",
        candidates: Names | None = None,
        exclude: Names | Any = None,
    ) -> Any:
        """Recommend items to users.

        Parameters
        ----------
        users : name, sequence of names, or data frame with a column of names, optional
            Default: all users of the run, in the order of their names. Of a table of three
            directions, values of some columns, such as ``{"station": "s3", "day": "d4"}``: cells
            with these values are ranked together.
        n : int
            Number of items per user.
        by : {"likely", "explore", "exposure", "mean", "ucb", "lcb", "thompson", "sd"}
            Rule of `dsgmcmc.posterior.lists.ranking`.
        z : float
            Number of standard deviations between the mean and the bounds of ``ucb`` and ``lcb``.
        seed : int, optional
            Seed of the draws of ``thompson`` and ``explore``; without a seed, every call uses
            different random numbers.
        at_least : float, optional
            With ``likely`` and ``explore``, the lowest rating that counts as liked, by default
            `dsgmcmc.posterior.lists.liked.liked_from`; with ``mean`` and ``thompson``, rank by the
            probability of a rating of at least this value; other rules do not allow it.
        exposure : {"auto", "rated", "liked"}
            Whether exposure is learnt from what users rated, or from what they rated and liked;
            ``auto`` chooses by lists of held-out training ratings
            (`dsgmcmc.posterior.lists.exposure_choice`).
        include_rated : bool
            Whether to recommend also items that the users rated, in training or when they were
            folded in.
        at_most : str, optional
            ``"genres=3"``: at most three items of a list have the same category in this column of
            the features of items in the ratings file.
        lowest : bool
            With ``mean``, ``ucb``, ``lcb``, ``sd`` and ``thompson``, list the lowest scores first.
        reasons : bool
            Under ``likely``, ``explore`` and ``exposure``, name the rated item that exposes the
            user most to each item, in a column ``because``: the largest term of the score
            (`dsgmcmc.posterior.lists.exposure`).
        unknown : {"refuse", "prior"}
            Raise an error for unknown users, or give all of them the list of somebody without
            ratings, from the prior.
        candidates, exclude : as `users`, optional
            Items that may be recommended (default all), and items that must not be recommended. A
            data frame with columns of users and items excludes these pairs alone.

        Returns
        -------
        Table, or a data frame if `users` is one or a column of one, or `fit` was given one
            Columns ``user_id, item_id, score, rank``; ``sd, q05, q95`` of the predictor; and
            ``ratings``, the number of training ratings of the item. Names of several parts have a
            column for each part.

        Raises
        ------
        InputError
            If a user or every candidate is unknown, an option is invalid, or items were folded in.
        """
        ranking = Ranking(
            top=n,
            by=by,
            z=z,
            seed=seed,
            clip=self.clip,
            at_least=at_least,
            exposure=exposure,
            include_rated=include_rated,
            at_most=at_most,
            lowest=lowest,
            reasons=reasons,
            unknown=unknown,
        )
        run = self._fitted()
        chosen = users  # of three directions, slices
        if not run.directions:
            chosen = _listed(users, run.users)
        excluded = None
        if exclude is not None:
            excluded = excluded_in_memory(run, exclude)
        request = Request(
            ranking, chosen, candidates=_listed(candidates, run.items), exclude=excluded
        )
        return self._table(joined(lists(self._rows, request)), users)

    @renewing
    def recommend_pairs(
        self,
        n: int = 10,
        *,
        by: By = "sd",
        z: float = 1.0,
        at_least: float | None = None,
        include_rated: bool = False,
        lowest: bool = False,
        candidates: Names | None = None,
    ) -> Any:
        """Return the best of all pairs of users and items: by default the least certain ones.

        Parameters are as for `recommend`; `n` is the number of pairs, whatever their users.

        Returns
        -------
        Table or data frame
            As `recommend` returns; ``rank`` is that among all pairs.

        Raises
        ------
        InputError
            If an option is invalid, or users or items were folded in.
        """
        ranking = Ranking(
            top=n,
            by=by,
            z=z,
            clip=self.clip,
            at_least=at_least,
            include_rated=include_rated,
            lowest=lowest,
        )
        items = self._fitted().items
        request = Request(ranking, candidates=_listed(candidates, items), of_pairs=True)
        return self._table(joined(lists(self._rows, request)))

    @renewing
    def similar(self, name: object, n: int = 10, *, kind: Literal["user", "item"] = "item") -> Any:
        """Return the items (or users) most similar to one (`dsgmcmc.posterior.lists.similar`).

        They are in a Table, or a data frame if `fit` was given one.
        """
        return self._table(similar(self._fitted(), kind, name, n))


def _listed(names: object, vocabulary: Vocabulary) -> list[Any] | None:
    """Return names of users or items as a list."""
    if names is None:
        return None
    return list_names(names, vocabulary.entity, vocabulary.parts)

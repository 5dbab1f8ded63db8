"""An item scorer for LensKit's pipelines; it needs LensKit 2025 or later."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
from lenskit.data import Dataset, ItemList, QueryInput, RecQuery
from lenskit.pipeline import Component
from lenskit.training import Trainable, TrainingOptions
from pydantic import BaseModel

from dsgmcmc.bpmf import BPMF
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.fitted import FittedModel
from dsgmcmc.posterior.lists.ranking import Ranking, Scorer
from dsgmcmc.posterior.settings import PATTERN_RULES, By
from dsgmcmc.types import Array


class BPMFConfig(BaseModel, extra="allow"):
    """Configuration of `BPMFScorer`; all fields except `by` are parameters of `dsgmcmc.BPMF`.

    Attributes
    ----------
    by : str
        Ranking rule of `dsgmcmc.posterior.lists.ranking`: ``likely`` ranks first the items that
        users will probably choose and like; ``mean`` gives predicted ratings.
    """

    by: By = "likely"

    def model_post_init(self, context: object, /) -> None:
        """Refuse parameters that `BPMF` does not have."""
        self.model()

    def model(self) -> BPMF:
        """Return the unfitted estimator.

        By default it does not clip predictions, because clipping creates ties.
        """
        return BPMF().set_params(**{"clip": False, **(self.model_extra or {})})


class BPMFScorer(Component[ItemList], Trainable):
    """Bayesian matrix factorisation as a LensKit component.

    The score is NaN if the user is unknown and has no history. If the query has the history of an
    unknown user, the history is folded in. Items that nobody rated are scored by the prior of
    items; ``likely`` and ``exposure`` give them 0, because nobody is exposed to them.

    Parameters
    ----------
    config : BPMFConfig, optional
        The configuration; its fields may be given as keyword arguments instead.

    Examples
    --------
    >>> from lenskit.pipeline import predict_pipeline, topn_pipeline  # doctest: +SKIP
    >>> ranked = topn_pipeline(BPMFScorer(rank=16), n=20)  # doctest: +SKIP
    >>> rated = predict_pipeline(BPMFScorer(rank=16, by="mean"))  # doctest: +SKIP
    """

    config: BPMFConfig
    model_: BPMF

    def is_trained(self) -> bool:
        """Return whether `train` was called; LensKit asks from version 2026 on."""
        return hasattr(self, "model_")

    def train(
        self,
        data: Dataset,
        options: TrainingOptions = TrainingOptions(),  # noqa: B008 (as LensKit has it)
    ) -> None:
        """Sample the posterior given the ratings.

        In data without ratings, every interaction is a rating of 1.
        """
        if self.is_trained() and not options.retrain:
            return
        model = self.config.model()
        if options.rng is not None:
            model.set_params(random_state=int(options.random_generator().integers(2**31)))
        table = data.interaction_table(format="pandas", original_ids=True)
        columns = ["user_id", "item_id"]
        if model.time_levels not in (None, "no"):
            columns.append("timestamp")
        ratings = table["rating"] if "rating" in table else np.ones(len(table))
        self.model_ = model.fit(table[columns], ratings)

    def __call__(self, query: QueryInput, items: ItemList) -> ItemList:
        """Return the items with their scores."""
        model, user = self._model_of(RecQuery.create(query))
        ids = items.ids()
        if model is None or not len(ids):
            return ItemList(items, scores=np.nan)
        if self.config.by == "mean":
            return ItemList(items, scores=model.predict([[user, item] for item in ids.tolist()]))
        known = model.run_.items.index_of(ids) >= 0
        scores = np.zeros(len(ids))
        if known.any():
            scores[known] = self._scores(model, user, ids[known])
        if not known.all() and self.config.by not in PATTERN_RULES:
            newcomers = model._rows.newcomers
            ranking = Ranking(by=self.config.by)
            scorer = Scorer(model.run_, ranking, newcomers, np.array([-1], np.int32))
            scores[~known] = scorer.scores(scorer.predictor.index_of("user", [user]), 0)[0]
        return ItemList(items, scores=scores)

    def _scores(self, model: FittedModel, user: object, ids: Array) -> list[float]:
        """Return the scores of items that the model knows; NaN where it gives none."""
        ranked = model.recommend(
            user, len(ids), by=self.config.by, include_rated=True, candidates=ids
        )
        by_item = dict(zip(ranked["item_id"].tolist(), ranked["score"].tolist(), strict=True))
        return [by_item.get(item, np.nan) for item in ids.tolist()]

    def _model_of(self, query: RecQuery) -> tuple[FittedModel | None, Any]:
        """Return a model that knows the user of a query, and the user's name in it.

        Both are None if there is no such model.
        """
        users = self.model_.run_.users
        with suppress(InputError):  # the name may have another type than the names in the run
            if query.user_id is not None and users.index_of([query.user_id])[0] >= 0:
                return self.model_, query.user_id
        history = query.history_items
        if history is None:
            return None, None
        known = self.model_.run_.items.index_of(history.ids()) >= 0
        if not known.any():
            return None, None
        user = int(users.ids.max()) + 1 if users.integers else "new user"
        pairs = [[user, item] for item in history.ids()[known].tolist()]
        ratings = np.ones(len(pairs))
        if history.field("rating") is not None:
            ratings = history.field("rating")[known]
        return self.model_.fold_in(pairs, ratings), user

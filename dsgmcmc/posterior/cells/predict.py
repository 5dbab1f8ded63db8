r"""Predictive distributions of single ratings.

The distribution of a rating is a mixture over the saved draws, with the weights of the draws.
Component d is N(mu + a_i + b_j + W_i . H_j, 1 / (tau g_i g'_j)), with all parameters from draw d.
Mean, variance and quantiles are computed from the mixture, without a normal approximation. For the
linear predictor alone (``of_mean``) the components are point masses, and the quantiles are sample
quantiles.

An unknown user or item has its prior distribution given each draw. The prediction is exact if only
one side of the pair is unknown. If both sides are unknown, the product has the exact mean and
variance but is taken to be normal. The noise scale g of an unknown user or item is taken to be 1.

For ordinal ratings the probabilities of the levels are mixed; mean, sd and quantiles are computed
from the mixture, and ``of_mean`` predicts the expected rating. If the linear predictor itself is
uncertain at a draw, because a side of the pair is unknown or new, the probabilities are integrated
over its distribution.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.model.limits import UNLIMITED
from dsgmcmc.model.predictive.base import Prediction, Predictive
from dsgmcmc.posterior.cells.predictors import Predictors
from dsgmcmc.posterior.index import Names
from dsgmcmc.posterior.moments import Estimates
from dsgmcmc.posterior.rows.added import FoldIn
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.settings import PredictOptions
from dsgmcmc.types import Array, Float32, Float64, Int32

#: Pairs that are predicted at a time, so that the components fit in the cache.
BLOCK = 8192


class Predictor:
    """Predicts ratings of pairs of users and items, which are given by index.

    Parameters
    ----------
    run : Run
    options : PredictOptions
    newcomers : FoldIn, optional
        New users (or items), whose indices follow the indices of the known users (or items).

    Attributes
    ----------
    names : list of str
        Names of the columns: ``mean, sd, q05, q95``, with scale log ``median`` in place of a mean
        that does not exist (`dsgmcmc.model.log_scale`), and, if requested, ``at_least_4`` and
        ``p_1, p_2`` of levels.

    Raises
    ------
    InputError
        If the run does not support the options.
    """

    def __init__(self, run: Run, options: PredictOptions, newcomers: FoldIn | None = None) -> None:
        run.need_draws()
        self.run = run
        self.options = options
        self.newcomers = newcomers
        self.predictors = Predictors(run, newcomers)
        self._summary = self._summary_columns()
        self.names = [name for name in self._summary if name]
        self._probabilities = self._probability_columns()
        self.names += self._probabilities
        self.limits = UNLIMITED
        if options.clip:
            self.limits = run.limits

    def _summary_columns(self) -> tuple[str, str | None, str, str]:
        """Return the names of mean, sd and quantiles; None for an sd that does not exist."""
        if self.options.of_mean or self.run.config.law.transform.point_name == "mean":
            return self.options.predicted_columns
        _, _, low, high = self.options.predicted_columns
        return "median", None, low, high

    def _probability_columns(self) -> list[str]:
        """Return the names of the requested probabilities."""
        run = self.run
        options = self.options
        if not run.config.law.can_be_evaluated and (
            options.at_least is not None or options.probabilities
        ):
            raise InputError(
                f"{run.path}: {run.config.likelihood} predicts scores, not ratings or their"
                " probabilities"
            )
        names = []
        if options.at_least is not None:
            names.append(f"at_least_{options.at_least:g}")
        if options.probabilities:
            if run.levels is None:
                raise InputError(
                    f"{run.path}: its ratings have no levels, so there are no probabilities of"
                    " levels"
                )
            for level in run.levels.astype(np.float32):
                names.append(f"p_{str(level).removesuffix('.0')}")
        return names

    def __call__(self, users: Int32, items: Int32) -> Prediction:
        """Predict pairs.

        Parameters
        ----------
        users, items : (q,) int32
            Indices from `index_of`; -1 for an unknown user or item, which is predicted from the
            prior.

        Returns
        -------
        Prediction
            In units of the ratings.
        """
        columns = self.columns(users, items)
        absent = np.full(len(users), np.nan, np.float32)
        return Prediction(*(columns[name] if name else absent for name in self._summary))

    def columns(self, users: Int32, items: Int32) -> dict[str, Float32]:
        """Return all predictions of pairs, each (q,) float32, by column name (`names`)."""
        columns = {name: np.empty(len(users), np.float32) for name in self.names}
        for rows, predictive in self.distributions(users, items):
            summary = predictive.summary(*self.options.levels)
            for name, values in zip(self._summary, summary, strict=True):
                if name == "sd":
                    columns[name][rows] = values
                elif name:
                    columns[name][rows] = self.limits.clip(values)
            probabilities = self._probabilities_of(predictive)
            for name, probability in zip(self._probabilities, probabilities, strict=True):
                columns[name][rows] = probability
        return columns

    def moments(self, users: Int32, items: Int32) -> Estimates:
        """Return the means and standard deviations of new ratings of pairs, (q,) each."""
        mean = np.empty(len(users))
        sd = np.empty(len(users))
        for rows, predictive in self.distributions(users, items):
            mean[rows] = self.limits.clip(predictive.mean)
            sd[rows] = predictive.sd
        return Estimates(mean, sd)

    def _probabilities_of(self, predictive: Predictive) -> list[Float64]:
        """Return the requested probabilities, (q,) each."""
        probabilities = []
        if self.options.at_least is not None:
            probabilities.append(predictive.at_least(self.options.at_least))
        if self.options.probabilities:
            probabilities += [*predictive.probabilities().T]
        return probabilities

    def probabilities(self, users: Int32, items: Int32) -> Float32:
        """Return the requested probabilities of pairs, (q, m) float32.

        They are that of a rating of at least the bound, and that of every level.
        """
        found = np.empty((len(users), len(self._probabilities)), np.float32)
        for rows, predictive in self.distributions(users, items):
            found[rows] = np.stack(self._probabilities_of(predictive), axis=1)
        return found

    def index_of(self, entity: str, names: Names) -> Int32:
        """Return indices of users or items by name; -1 for those of which nothing is known."""
        return self.predictors.rows[entity].index_of(names)

    def distributions(
        self,
        users: Int32,
        items: Int32,
        positions: Sequence[int] | None = None,
        weights: Float64 | None = None,
    ) -> Iterator[tuple[Array, Predictive]]:
        """Yield row numbers of pairs and their predictive distributions, in batches.

        `weights`, (q,), are the relative precisions of the ratings, by default those of average
        ratings. Other parameters are as for `Predictors.at`.
        """
        users = np.ascontiguousarray(users, np.int32)
        items = np.ascontiguousarray(items, np.int32)
        law = self.run.config.law
        make = law.expectation if self.options.of_mean else law.predictive
        order = np.arange(len(users))
        if self.newcomers is not None:  # pairs of a new row come together, so it is computed once
            by_entity = {"user": users, "item": items}
            order = np.argsort(by_entity[self.newcomers.entity], kind="stable")
        for start in range(0, len(users), BLOCK):
            part = order[start : start + BLOCK]
            of_pairs = self.predictors.at(users[part], items[part], positions)
            if weights is not None:
                inverse: Float32 = (1 / weights[part, None]).astype(np.float32)
                of_pairs = of_pairs._replace(noise=of_pairs.noise * inverse)
            for rows, draws in of_pairs.by_certainty():
                yield part[rows], make(draws, self.run.mean, self.run.levels)

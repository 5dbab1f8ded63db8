r"""Users or items with new ratings: their exact posterior given each saved draw, without sampling anew.

Given a draw, all ratings x of a row depend on the other side alone through phi_j = (H_j, 1), so that its theta has
the normal law [Salakhutdinov 2008, eq. 11]

    precision  Lambda* = Lambda + tau sum_j g'_j phi_j phi_j^T
    mean       Lambda*^-1 (Lambda m + tau sum_j g'_j (x_j - mu - b_j) phi_j)

where m has the row's implicit features, if the model has such: those of what it has ratings of; and B^T x of its own
features. Of a row without ratings the law is its prior, that of one that nothing is known of but for its features.

Over all saved draws this is the law of the row given the old ratings of everything else and all its own, exact but for
what its new ratings would say about everything else. The run may know the row or not: x is what it was sampled from, if
so, and what is new. Where rows have noise of their own, g | theta ~ Gamma((nu + n) / 2, (nu + tau SSE) / 2) and
theta | g are drawn in turns, `GIBBS` times from g = 1, and theta's law given the last g is taken. Where rows have
scales, Lambda above is s Lambda, and s | theta ~ Gamma((nu + D) / 2, (nu + Q) / 2) is drawn alike, with Q = (theta -
m)^T Lambda (theta - m): so the prior of a new row, too, is a Student's t.

Where the model has levels of time, nobody knows which of the new ratings were given together: their effects are taken
to be independent, as more noise, 1 / (tau g') + sum_l 1 / lambda_l in the place of 1 / (tau g').
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dsgmcmc.errors import InputError
from dsgmcmc.posterior.described import Shifts
from dsgmcmc.posterior.draws import Draw
from dsgmcmc.posterior.names import Vocabulary
from dsgmcmc.posterior.predict import Rows
from dsgmcmc.posterior.run import Run
from dsgmcmc.types import Float64, Int32

GIBBS = 10
_OTHER = {"user": "item", "item": "user"}


class FoldIn:
    """Users (or items) of a run with new ratings.

    Parameters
    ----------
    run : Run
        With saved draws.
    kind : {"user", "item"}
        What the rows are.
    vocabulary : Vocabulary
        Their names.
    rows : (n,) int
        Whose each rating is, by its place in the vocabulary; of one that the run knows all ratings are wanted, also
        those that it was sampled from.
    others : (n,) int32
        Row of the item (or user) that it is of.
    values : (n,) float
        The ratings.
    seed : int
        Of the scales of noise and of rows, where the model has them.
    shifts : Shifts, optional
        What features do to the prior means of the rows; nothing without.

    Raises
    ------
    InputError
        If the run has no draws, or its likelihood has no such law.
    """

    def __init__(
        self,
        run: Run,
        kind: str,
        vocabulary: Vocabulary,
        rows: npt.NDArray[np.integer],
        others: Int32,
        values: npt.NDArray[np.floating],
        seed: int = 0,
        shifts: Shifts | None = None,
    ) -> None:
        run.source("draws")
        if not run.config.law.is_conditionally_gaussian():
            raise InputError(
                f"a fold-in is exact, which it cannot be with the {run.config.likelihood} likelihood: sample again "
                "with the new ratings"
            )
        self.run, self.kind, self.vocabulary, self.seed = run, kind, vocabulary, seed
        self._shifts = shifts
        order = np.argsort(rows, kind="stable")
        self._others = others[order]
        self._values = np.ones(len(order)) if run.config.law.all_cells else values[order].astype(np.float64)
        self._ends = np.searchsorted(rows[order], np.arange(len(vocabulary) + 1))
        self._rows: dict[int, Rows] = {}

    def rated(self, which: int) -> Int32:
        """Rows of the items (or users) that a new row rated."""
        found: Int32 = self._others[self._ends[which] : self._ends[which + 1]]
        return found

    def rows(self, number: int, which: npt.NDArray[np.intp]) -> Rows:
        """Laws of new rows at a saved draw.

        Parameters
        ----------
        number : int
            Position of the draw among the run's.
        which : (q,) int
            New rows.

        Returns
        -------
        Rows
            Means, covariances and 1 / g.
        """
        if number not in self._rows:
            self._rows[number] = self._solve(number)
        rows = self._rows[number]
        return Rows(rows.mean[which], rows.covariance[which], rows.noise[which])

    def _solve(self, number: int) -> Rows:
        draw, n = self.run.draw(number), len(self.vocabulary)
        unseen = draw.unseen[self.kind]
        items = draw.theta[_OTHER[self.kind]].astype(np.float64)
        background = draw.tau * (self.run.config.zero_weight or 0.0) * items.T @ items
        d = items.shape[1]
        shifts = np.zeros((n, d)) if self._shifts is None else self._shifts.at(draw.features[self.kind].effects)
        precision = np.linalg.inv(draw.prior[self.kind].covariance)
        rng = np.random.default_rng([self.seed, number])
        result = Rows(np.empty((n, d)), np.empty((n, d, d)), np.ones(n))
        for row in range(n):
            part = slice(self._ends[row], self._ends[row + 1])
            if part.start == part.stop:
                result.mean[row], result.covariance[row] = unseen.mean + shifts[row], unseen.covariance
                continue
            found = self._law(draw, part, shifts[row], precision, background, rng)
            result.mean[row], result.covariance[row], result.noise[row] = found
        return result

    def _law(
        self,
        draw: Draw,
        part: slice,
        shift: Float64,
        precision: npt.NDArray[np.floating],
        background: Float64,
        rng: np.random.Generator,
    ) -> tuple[Float64, Float64, float]:
        """Mean, covariance and 1 / g of a row with these ratings at a draw."""
        other, rank, law = _OTHER[self.kind], self.run.config.rank, self.run.config.law
        prior, nu = draw.prior[self.kind], draw.nu.get(self.kind)
        d = len(prior.mean)
        theta = draw.theta[other][self._others[part]].astype(np.float64)
        centre = prior.mean + shift
        if other in draw.implicit:
            centre = centre + draw.implicit[other][self._others[part]].sum(axis=0) / np.sqrt(len(theta))
        target = self._values[part] - self.run.mean
        if self.run.config.biases:
            target = target - theta[:, rank]
            theta[:, rank] = 1.0
        noise_precision = draw.tau * draw.noise_scale[other][self._others[part]].astype(np.float64)
        if draw.time_variance:
            noise_precision = 1 / (1 / noise_precision + draw.time_variance)
        statistics = law.statistics(theta, target, noise_precision)
        assert statistics is not None
        gram, moment = statistics
        gram = gram + background
        g, s = 1.0, 1.0
        turns = GIBBS if nu is not None or prior.nu is not None else 0
        for turn in range(turns + 1):
            lower = np.linalg.cholesky(s * precision + g * gram)
            inverse = np.linalg.inv(lower)
            mean = inverse.T @ (inverse @ (s * precision @ centre + g * moment))
            if turn == turns:
                break
            drawn = mean + inverse.T @ rng.standard_normal(d)
            if nu is not None:
                squares = float(noise_precision @ (target - theta @ drawn) ** 2)
                g = rng.gamma((nu + len(target)) / 2) / ((nu + squares) / 2)
            if prior.nu is not None:
                u = drawn - centre
                s = rng.gamma((prior.nu + d) / 2) / ((prior.nu + float(u @ precision @ u)) / 2)
        return mean, inverse.T @ inverse, 1 / g

r"""Users or items with new ratings: their exact posterior given each saved draw, without sampling again.

Given a draw, all ratings x of a row depend on the other side alone through phi_j = (H_j, 1), so that its theta has
the normal law [Salakhutdinov 2008, eq. 11]

    precision  Lambda* = Lambda + tau sum_j g'_j phi_j phi_j^T
    mean       Lambda*^-1 (Lambda m + tau sum_j g'_j (x_j - mu - b_j) phi_j)

where m includes the implicit features of what the row rated, if the model has them, and B^T x of its own features. The
law of a row without ratings is its prior, which depends on its features alone.

Over all saved draws this is the posterior of the row given its own ratings and the old ratings of all others. The only
approximation is that its new ratings do not change anything else. For a row that the run knows, x has both the ratings
that were sampled and the new ones. If rows have their own noise, g | theta ~ Gamma((nu + n) / 2, (nu + tau SSE) / 2)
and theta | g are drawn in turns, `GIBBS` times from g = 1, and theta's law given the last g is used.

If the model has levels of time, it is not known which of the new ratings were given together. Their effects are taken
to be independent, which is more noise: 1 / (tau g') + sum_l 1 / lambda_l in place of 1 / (tau g'). With other
likelihoods the likelihood of a rating is integrated over them.

With ordinal ratings or counts the law of a row is not normal. Then one row is drawn at each saved draw
(`dsgmcmc.posterior.elliptical`), with its scale and its thresholds, if rows have their own.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dsgmcmc.errors import InputError
from dsgmcmc.model.likelihoods import Law
from dsgmcmc.model.parts import PARTS
from dsgmcmc.posterior.draws import OTHER, Draw, Rows
from dsgmcmc.posterior.elliptical import RatedRow, Spread, draw_row
from dsgmcmc.posterior.names import Vocabulary
from dsgmcmc.posterior.saved import SavedRun
from dsgmcmc.types import Array, Float64, Int32

GIBBS = 10


class Shifts:
    """Shifts of the prior means of rows by their features.

    Parameters
    ----------
    rows : list of (features, values)
        Features of each row; a row without any is taken to be average.
    centre : (F,) float64
        Means of the run's features, which are subtracted.
    """

    def __init__(self, rows: list[tuple[Int32, Float64]], centre: Float64) -> None:
        from scipy.sparse import csr_matrix  # takes its time to import

        ends = np.append(0, np.cumsum([len(features) for features, _ in rows]))
        features, values = (np.concatenate(each) for each in zip(*rows, strict=True))
        self._x = csr_matrix((values, features, ends), (len(rows), len(centre)))
        self._known, self._centre = np.diff(ends) > 0, centre

    def at(self, effects: Float64) -> Float64:
        """(n, D) float64: B^T (x - centre) of every row, for B (F, D)."""
        shifts: Float64 = self._x @ effects - np.outer(self._known, self._centre @ effects)
        return shifts


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
        User (or item) of each rating, by position in the vocabulary. If the run knows it, all its ratings are needed,
        also those that the run was sampled from.
    others : (n,) int32
        Item (or user) of each rating, by its row in the run.
    values : (n,) float
        The ratings.
    seed : int
        For drawing the noise scales, if the model has them.
    shifts : Shifts, optional
        Shifts of the prior means of the rows by their features; default none.

    Raises
    ------
    InputError
        If the run has no draws, or the run's likelihood does not allow a rating.
    """

    def __init__(
        self,
        run: SavedRun,
        kind: str,
        vocabulary: Vocabulary,
        rows: npt.NDArray[np.integer],
        others: Int32,
        values: npt.NDArray[np.floating],
        seed: int = 0,
        shifts: Shifts | None = None,
    ) -> None:
        run.need_draws()
        self.run, self.kind, self.vocabulary, self.seed = run, kind, vocabulary, seed
        self._shifts = shifts
        self._own_cuts = kind == "user" and run.config.thresholds != "shared"
        order = np.argsort(rows, kind="stable")
        self._others = others[order]
        run.config.law.check_new(values)
        self._values = run.config.law.codes(values[order].astype(np.float64), run.levels)
        self._ends = np.searchsorted(rows[order], np.arange(len(vocabulary) + 1))
        self._rows: dict[int, Rows] = {}

    def rated(self, which: int) -> Int32:
        """Rows of the items (or users) that a new row rated."""
        rows: Int32 = self._others[self._ends[which] : self._ends[which + 1]]
        return rows

    def rows(self, number: int, which: npt.NDArray[np.intp]) -> Rows:
        """Distributions of new rows at a saved draw.

        Parameters
        ----------
        number : int
            Position of the draw in the run's `draws`.
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
        cuts = None if rows.cuts is None else rows.cuts[which]
        return Rows(rows.mean[which], rows.covariance[which], rows.noise[which], cuts)

    def _solve(self, number: int) -> Rows:
        draw, n = self.run.draw(number), len(self.vocabulary)
        unseen = draw.unseen[self.kind]
        items = draw.theta[OTHER[self.kind]].astype(np.float64)
        background = draw.tau * (self.run.config.zero_weight or 0.0) * items.T @ items
        d = items.shape[1]
        shifts = np.zeros((n, d))
        if self._shifts is not None:
            shifts = self._shifts.at(draw.shared[f"{self.kind}.features.effects"])
        precision = np.linalg.inv(draw.prior[self.kind].covariance).astype(np.float64)
        rng = np.random.default_rng([self.seed, number])
        cuts = np.tile(draw.thresholds, (n, 1)) if self._own_cuts and draw.thresholds is not None else None
        result = Rows(np.empty((n, d)), np.empty((n, d, d)), np.ones(n), cuts)
        for row in range(n):
            part = slice(self._ends[row], self._ends[row + 1])
            if part.start == part.stop:
                result.mean[row], result.covariance[row] = unseen.mean + shifts[row], unseen.covariance
                continue
            law = self._law(draw, part, shifts[row], precision, background, rng)
            result.mean[row], result.covariance[row], result.noise[row] = law[:3]
            if cuts is not None:
                cuts[row] = law[3]
        return result

    def _shared(self, draw: Draw, name: str) -> float | None:
        """A number that all rows share, None if the model does not have it."""
        value = draw.shared.get(f"{self.kind}.{name}")
        return None if value is None else value.item()

    def _law(
        self,
        draw: Draw,
        part: slice,
        shift: Float64,
        precision: Float64,
        background: Float64,
        rng: np.random.Generator,
    ) -> tuple[Float64, Float64, float, Array | None]:
        """Mean, covariance and 1 / g (ordinal: 1 / s, and thresholds) of a row with these ratings at a draw."""
        other, config = OTHER[self.kind], self.run.config
        prior = draw.prior[self.kind]
        rated = self._others[part]
        theta = draw.theta[other][rated].astype(np.float64)
        of_rated = (each.of_rated(draw, self.kind, rated) for each in PARTS)
        centre = sum((term for term in of_rated if term is not None), prior.mean + shift)
        nobody = np.full(len(rated), -1, np.int32)
        users, items = (nobody, rated) if self.kind == "user" else (rated, nobody)
        added, variance = draw.of_ratings(users, items)
        offset = np.full(len(theta), self.run.mean) + added
        if config.biases:
            offset = offset + theta[:, config.rank]
            theta[:, config.rank] = 1.0
        x, own = self._values[part], draw.noise_scale[other][rated].astype(np.float64)
        row = RatedRow(theta, offset, x, centre, precision, variance)
        if config.law.is_conditionally_gaussian():
            noise_precision = draw.tau * own
            if np.any(variance):
                noise_precision = 1 / (1 / noise_precision + variance)
            return *_normal(config.law, row, noise_precision, background, self._shared(draw, "nu"), rng), None
        cuts: Array | None = config.law.shape_of(draw.shared) if draw.thresholds is None else draw.thresholds
        if draw.own_thresholds is not None and not self._own_cuts:
            cuts = draw.own_thresholds[rated]
        gaps = draw.shared["thresholds.precision"] if self._own_cuts else None
        sd = Spread.of(config.law, self._shared(draw, "scales"), gaps)
        theta, scale, cuts = draw_row(config.law, row, own * draw.tau, cuts, sd, rng)
        return theta, np.zeros((len(theta), len(theta))), 1 / scale, cuts


def _normal(
    law: type[Law],
    row: RatedRow,
    noise_precision: Float64,
    background: Float64,
    nu: float | None,
    rng: np.random.Generator,
) -> tuple[Float64, Float64, float]:
    """Mean, covariance and 1 / g of a row whose law is normal given g."""
    target = row.x - row.offset
    statistics = law.statistics(row.features, target, noise_precision)
    assert statistics is not None
    gram, moment = statistics
    gram = gram + background
    g = 1.0
    for turn in range(GIBBS + 1):
        try:
            lower = np.linalg.cholesky(row.precision + g * gram)
        except np.linalg.LinAlgError as error:
            raise InputError(
                f"new rows have no distribution at a saved draw: its precisions are out of range ({error})"
            ) from error
        inverse = np.linalg.inv(lower)
        mean = inverse.T @ (inverse @ (row.precision @ row.centre + g * moment))
        if nu is None or turn == GIBBS:
            break
        drawn = mean + inverse.T @ rng.standard_normal(len(mean))
        squares = float(noise_precision @ (target - row.features @ drawn) ** 2)
        g = rng.gamma((nu + len(target)) / 2) / ((nu + squares) / 2)
    return mean, inverse.T @ inverse, 1 / g

"""Predictions of the test ratings: at the state last looked at, and their mean and variance over the draws.

Each test rating costs 28 bytes, 36 where users or items have noise of their own; memory counts, since a tenth of all
ratings is usual. A few ratings are followed: their predictions at every draw are kept, for convergence diagnostics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dsgmcmc.kernels.prediction import predict_kernel
from dsgmcmc.storage.manifest import Key
from dsgmcmc.storage.snapshot import Lazy, Snapshot
from dsgmcmc.targets.base import Draw
from dsgmcmc.targets.factorisation.blocks import TestRows
from dsgmcmc.targets.factorisation.cell import RatingsCell
from dsgmcmc.targets.factorisation.circulation import Circulation
from dsgmcmc.targets.factorisation.likelihoods import Likelihood
from dsgmcmc.types import Float32, Float64

#: About so many test ratings, evenly spaced in every row block, have their prediction at every draw in the trace.
FOLLOWED = 256


class HeldOut:
    """Predictions of a process's test ratings; a `dsgmcmc.targets.base.Recorder`.

    Parameters
    ----------
    circulation : Circulation
        Has the test ratings and the factors.
    likelihood : Likelihood
        Law of a rating.
    noise_precision : callable
        Gives tau as it is now.
    """

    def __init__(self, circulation: Circulation, likelihood: Likelihood, noise_precision: Callable[[], float]) -> None:
        self._circulation, self._ring, self._noise_precision = circulation, circulation.ring, noise_precision
        self._drawn, self._ratings = likelihood.drawn, circulation.ratings
        self._predict = predict_kernel(likelihood.rank, likelihood.biases)
        follow = max(1, FOLLOWED // circulation.grid)
        self._rows = {b: HeldOutRows(b, self._ratings.test[b], likelihood, follow) for b in self._ring.blocks}
        self._has_draws = False

    def record(self, position: str, draw: Draw | None) -> None:
        """Predict the test ratings at the current state; count it if it is a draw. Collective."""
        if self._ratings.n_test:
            tau = self._noise_precision()
            for cell in self._circulation.tour((position, *self._drawn)):
                self._rows[cell.row.index].predict(self._predict, position, cell, tau)
        if draw is not None:
            self._has_draws = True
            for rows in self._rows.values():
                rows.count(draw)

    def metrics(self) -> dict[str, float | None]:
        """RMSE now and of the posterior mean prediction, null without test ratings, and tau. Collective."""
        n, tau = self._ratings.n_test, self._noise_precision()
        if not n:
            return {"rmse": None, "rmse_mean": None, "tau": tau}
        errors = self._ring.total(np.array([rows.squared_errors() for rows in self._rows.values()]))
        now, mean = np.sqrt(errors / n).tolist()
        return {"rmse": now, "rmse_mean": mean if self._has_draws else None, "tau": tau}

    def saved(self) -> Iterator[tuple[Key, npt.NDArray[Any]]]:
        """See `Recorder.saved`."""
        for rows in self._rows.values():
            yield from rows.saved()

    def small(self) -> dict[str, Float64]:
        """See `Recorder.small`."""
        return {}

    def load(self, snapshot: Snapshot) -> None:
        """See `Recorder.load`."""
        for rows in self._rows.values():
            rows.load(snapshot)
            self._has_draws = bool(rows.log_likelihoods)

    def posterior(self, weight: float) -> Iterator[tuple[Key, Lazy]]:
        """See `Recorder.posterior`."""
        for rows in self._rows.values():
            yield from rows.posterior(self._ratings.centre, weight)


class HeldOutRows:
    """The test ratings of one row block, in the order of the file.

    Parameters
    ----------
    block : int
        Number of the row block.
    rows : TestRows
        Its test ratings.
    likelihood : Likelihood
        Law of a rating.
    follow : int
        How many to follow, if there are as many.

    Attributes
    ----------
    prediction : (q,) float32
        Expected ratings at the state last looked at, less the centre.
    noise : (q,) or (1,) float32
        Variance of a rating about it at that state.
    mean, m2, mean_noise : float32
        Weighted mean and sum of squared deviations of the predictions over the draws; mean of the noise variances.
    """

    def __init__(self, block: int, rows: TestRows, likelihood: Likelihood, follow: int) -> None:
        self.block, self.rows, self.likelihood = block, rows, likelihood
        q = len(rows.values)
        self.prediction, self.mean, self.m2 = (np.zeros(q, np.float32) for _ in range(3))
        self.noise, self.mean_noise = (np.ones(q if likelihood.noise_varies else 1, np.float32) for _ in range(2))
        self.followed = np.unique(np.linspace(0, q - 1, min(q, follow)).astype(np.int64))
        self.followed_predictions: list[Float32] = []
        self.log_likelihoods: list[float] = []

    def predict(self, kernel: Any, position: str, cell: RatingsCell, tau: float) -> None:
        """Predict the ratings in a column block, and the variance of their noise."""
        chosen, rows, columns = self.rows.by_column[cell.column.index]
        if not len(chosen):
            return
        eta = np.empty(len(chosen), np.float32)
        kernel(rows, columns, cell.row[position], cell.column[position], eta)
        self.prediction[chosen] = self.likelihood.mean(eta)
        noise = self.likelihood.variance(eta, cell, rows, columns, tau)
        if self.likelihood.noise_varies:
            self.noise[chosen] = noise
        else:
            self.noise[0] = noise

    def count(self, draw: Draw) -> None:
        """Count the state last looked at as a draw."""
        delta = self.prediction - self.mean
        self.mean += draw.share * delta
        self.m2 += draw.weight * delta * (self.prediction - self.mean)
        self.mean_noise += draw.share * (self.noise - self.mean_noise)
        self.followed_predictions.append(self.prediction[self.followed])
        self.log_likelihoods.append(self.likelihood.log_likelihood(self.rows.values, self.prediction, self.noise))

    def squared_errors(self) -> Float64:
        """Sums of squared errors of the state last looked at and of the mean prediction, (2,) float64."""
        x = self.rows.values
        return np.array([np.square(p - x).sum(dtype=np.float64) for p in (self.prediction, self.mean)])

    # ------------------------------------------------------------------ saving

    def _key(self, name: str) -> Key:
        return Key("test", "W", self.block, name)

    def saved(self) -> Iterator[tuple[Key, npt.NDArray[Any]]]:
        """Give the accumulators, for a snapshot."""
        for name in ("mean", "m2", "mean_noise"):
            yield self._key(name), getattr(self, name)
        yield from self.traces(0.0)

    def traces(self, centre: np.float32 | float) -> Iterator[tuple[Key, npt.NDArray[Any]]]:
        """Give what is kept of every draw; `centre` is added to predictions."""
        shape = (len(self.followed_predictions), len(self.followed))
        predictions = np.array(self.followed_predictions, np.float32).reshape(shape)
        yield Key("trace", "W", self.block, "prediction"), predictions + centre
        yield Key("trace", "W", self.block, "log_likelihood"), np.array(self.log_likelihoods, np.float64)
        yield Key("trace", "W", self.block, "followed"), self.followed

    def load(self, snapshot: Snapshot) -> None:
        """Take the accumulators of a snapshot."""
        for name in ("mean", "m2", "mean_noise"):
            setattr(self, name, snapshot.read(self._key(name)))
        self.followed_predictions = list(snapshot.read(Key("trace", "W", self.block, "prediction")))
        self.log_likelihoods = snapshot.read(Key("trace", "W", self.block, "log_likelihood")).tolist()

    def posterior(self, centre: float, total: float) -> Iterator[tuple[Key, Lazy]]:
        """Posterior of the predictions; `total` is the weight of all draws."""
        yield self._key("rating"), partial(np.add, self.rows.values, np.float32(centre))
        yield self._key("mean"), partial(np.add, self.mean, np.float32(centre))
        yield self._key("variance"), partial(np.divide, self.m2, np.float32(total))
        yield self._key("noise_variance"), np.broadcast_to(self.mean_noise, self.mean.shape)
        yield from self.traces(np.float32(centre))

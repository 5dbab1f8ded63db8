"""A quarter of a matrix is known only to lie below a limit: draws recover what is below it."""

from pathlib import Path

import numpy as np
import pytest
from measurements import write_measures

from dsgmcmc.parallel.alone import Alone
from dsgmcmc.posterior.run import Run
from dsgmcmc.runs.job import Job
from dsgmcmc.runs.source import RatingsSource

N, M = 80, 40
RANK = 6


class Censored:
    """A matrix of rank 3 with noise of sd 0.3, 30 % holes, and a limit at its first quartile."""

    def __init__(self) -> None:
        rng = np.random.default_rng(3)
        truth = 20 + rng.normal(size=(N, 3)) @ rng.normal(size=(3, M))
        self.truth = truth + rng.normal(size=(N, 1))
        self.ratings = self.truth + rng.normal(0, 0.3, (N, M))
        self.hole = rng.random((N, M)) < 0.3
        self.limit = np.quantile(self.ratings, 0.25)
        self.below = ~self.hole & (self.ratings < self.limit)

    def error(self, folder: Path, sampler: str, drawn: bool, **settings: object) -> tuple:
        """RMSE and bias of the holes below the limit, with draws or with the limit as exact."""
        i, j = np.nonzero(~self.hole)
        x = np.where(self.below, self.limit, self.ratings)[i, j]
        measures = {}
        if drawn:
            measures = {"lower": np.where(self.below[i, j], -np.inf, x), "upper": x}
        held = np.zeros(len(i), bool)
        path = write_measures(folder / f"{drawn}.h5", (N, M), i, j, x, held, measures)
        settings |= {"rank": RANK, "sampler": sampler, "grid": 3, "seed": 1, "save_draws": 100}
        settings |= {"iterations": "300sweeps", "burn_in": "100sweeps"}
        Job(Alone(), RatingsSource(path), folder / f"{drawn}", settings, quiet=True).run()
        run = Run(folder / f"{drawn}")
        mean = np.zeros((N, M))
        for k in range(len(run.draws)):
            theta = run.draw(k).theta
            w = theta["user"]
            h = theta["item"]
            mean += w[:, :RANK] @ h[:, :RANK].T + w[:, RANK:] + h[:, RANK]
        predicted = np.empty((N, M))
        predicted[np.ix_(run.users.ids, run.items.ids)] = run.mean + mean / len(run.draws)
        errors = (predicted - self.truth)[self.hole & (self.ratings < self.limit)]
        return float(np.sqrt((errors**2).mean())), float(errors.mean())


@pytest.mark.parametrize(
    ("sampler", "settings"),
    [("gibbs", {}), ("baoab", {}), ("psgld", {}), ("baoab", {"likelihood": "student-t"})],
)
def test_holes_below_the_limit_are_recovered(tmp_path: Path, sampler: str, settings: dict) -> None:
    """With a plain Gibbs sampler of such values, the RMSE is 0.36 and the bias -0.02.

    Room is for 300 sweeps of each sampler.
    """
    error, bias = Censored().error(tmp_path, sampler, drawn=True, **settings)
    assert error < 0.45
    assert abs(bias) < 0.1


def test_a_limit_that_is_taken_as_exact_misleads(tmp_path: Path) -> None:
    """So that the test above can fail: there the RMSE is 1.57."""
    error, bias = Censored().error(tmp_path, "gibbs", drawn=False)
    assert error > 1.3
    assert bias > 1

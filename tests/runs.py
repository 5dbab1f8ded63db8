"""Small finished runs for tests of the use of a posterior, and the distribution of a row given its
ratings.
"""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from mpi4py import MPI
from scipy import stats
from support import planted, sample

from dsgmcmc.posterior.draws import OTHER, Draw
from dsgmcmc.posterior.run import Run
from dsgmcmc.prepare.prepare import prepare_ratings

SETTINGS: dict[str, Any] = {
    "sampler": {"name": "baoab"},
    "rank": 3,
    "grid": 3,
    "iterations": 120,
    "burn_in": 40,
    "thin": 2,
    "evaluate_every": 20,
    "save_draws": 40,
}


@dataclass(frozen=True)
class Made:
    """A run, and the ratings under their original names that it was made from."""

    path: Path
    data: Path
    users: list[Any]
    items: list[Any]
    ratings: np.ndarray

    @functools.cached_property
    def run(self) -> Run:
        """It, open, with the draws that were read before; for tests that leave it as it is."""
        return self.open()

    def open(self) -> Run:
        """Open it afresh."""
        return Run(self.path)


def make_run(
    folder: Path,
    *,
    users: int = 40,
    items: int = 18,
    strings: bool = False,
    stars: bool = False,
    **settings: Any,
) -> Made:
    """Sample planted ratings of `users` x `items`; the file is transposed where there are more
    items.

    Names are integers with gaps, or text with spaces, quotes and letters beyond ASCII; `stars`
    rounds to 1 .. 5. There are times if there are `time_levels` among the settings.
    """
    folder.mkdir(parents=True, exist_ok=True)
    i, j, x = planted(users, items, share=0.6, seed=3)
    x = np.clip(np.round(x), 1, 5) if stars else x
    user_names = [f"Zoë, no. {k}" if strings else 7 * k + 3 for k in range(users)]
    item_names = [f'item "{k}"' if strings else 1000 - 11 * k for k in range(items)]
    named = {"user": [user_names[a] for a in i], "item": [item_names[b] for b in j], "rating": x}
    ratings = pd.DataFrame(named)
    timed = "time_levels" in settings
    source = folder / "ratings.tsv"
    data = folder / "ratings.h5"
    written = ratings.assign(timestamp=np.arange(len(x)) % 10) if timed else ratings
    written.to_csv(source, sep="\t", index=False)
    prepare_ratings([str(source)], data, test_fraction=0.2, timestamps=timed)
    assert sample(MPI.COMM_SELF, data, folder / "run", **{**SETTINGS, **settings}) == 0
    return Made(folder / "run", data, user_names, item_names, ratings.to_numpy(object))


def given_ratings(
    run: Run, entity: str, number: int, mean: np.ndarray, others: list[int], values: list[float]
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of a row with prior mean `mean` given its ratings at a draw, by the joint
    normal of both.

    This inverts another matrix than the product does: the covariance of the ratings.
    """
    draw = run.draw(number)
    k = run.config.rank
    covariance = draw.prior[entity].covariance
    theta = draw.theta[OTHER[entity]][others].astype(float)
    phi = np.column_stack([theta[:, :k], np.ones(len(others))])
    gain = (
        covariance
        @ phi.T
        @ np.linalg.inv(phi @ covariance @ phi.T + np.eye(len(others)) / draw.tau)
    )
    residual = np.array(values) - run.mean - theta[:, k] - phi @ mean
    return mean + gain @ residual, covariance - gain @ phi @ covariance


def law_of_counts(draw: Draw, eta: np.ndarray) -> Any:
    """SciPy's law of counts with these predictors at a draw, before zeros are ruled out."""
    r = draw.shared["dispersion"][0]
    top = draw.shared["counts.ceiling"][0]
    return stats.nbinom(r, r / (r + 1 / (np.exp(-eta.astype(float)) + 1 / top)))

"""Intervals of levels, counts and heavy tails hold what they say, and the parameters of their noise
are found.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from scipy.stats import poisson
from support import sample, write_cells

from dsgmcmc.diagnostics.scores import calibration
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.run import Run

pytestmark = pytest.mark.statistical


class Planted:
    """Pairs of rows and columns, sorted, and predictors of planted biases of this sd and of `rank`
    dimensions.
    """

    def __init__(
        self, seed: int, shape: tuple[int, int], n: int, rank: int, factor_sd: float, bias_sd: float
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.shape = shape
        self.i, self.j = np.divmod(
            np.sort(self.rng.choice(shape[0] * shape[1], n, replace=False)), shape[1]
        )
        w, h = (self.rng.normal(0, factor_sd, (side, rank)) for side in shape)
        a, b = (self.rng.normal(0, bias_sd, side) for side in shape)
        self.eta = (w[self.i] * h[self.j]).sum(axis=1) + a[self.i] + b[self.j]

    def run(
        self, folder: Path, x: np.ndarray, test: float, **settings: Any
    ) -> tuple[Run, np.ndarray]:
        """Sample these ratings, of which a `test` fraction is held out; the run, and which they
        are.
        """
        out = folder / settings["likelihood"]
        held_out = self.rng.random(len(x)) < test
        data = out.with_suffix(".h5")
        write_cells(data, self.shape, self.i, self.j, x, held_out)
        assert sample(MPI.COMM_SELF, data, out, rank=3, save_draws=2, **settings) == 0
        return Run(out), held_out


def check_coverage(run: Run, tolerance: float) -> dict[str, Any]:
    """Scores of a run whose intervals of 50, 80 and 90 % hold as many of the held-out ratings."""
    scores = calibration(run)
    assert scores is not None
    for level in (0.5, 0.8, 0.9):
        assert scores["coverage"][level] == pytest.approx(level, abs=tolerance)
    return scores


def test_levels(tmp_path: Path) -> None:
    """Of 2,400 held-out ratings, to 3 points: three standard errors.

    And the thresholds that made the ratings are found, to 0.35: their posterior sds are about 0.1.
    """
    planted = Planted(5, (200, 120), 12_000, 1, 1.0, 0.7)
    thresholds = np.array([-2.0, -0.7, 0.4, 2.2])
    x = 1.0 + (planted.rng.logistic(size=12_000) + planted.eta > thresholds[:, None]).sum(axis=0)
    settings = {"noise": "both", "iterations": 900, "burn_in": 300}
    run, _ = planted.run(tmp_path, x, 0.2, likelihood="ordinal-logit", **settings)
    scores = check_coverage(run, 0.03)
    assert max(scores["pit"]) < 1.4 * min(scores["pit"])
    np.testing.assert_allclose(run.traces[0]["thresholds"].mean(axis=0), thresholds, atol=0.35)


def test_counts_whose_rates_differ_a_thousandfold(tmp_path: Path) -> None:
    """Neither the way in nor the steep walls of rows without counts make it diverge, and intervals
    hold.

    Of 1,200 held-out counts of 1 to thousands, to 4 points, three standard errors, and their log
    probability is within 0.15 of the truth's.
    """
    planted = Planted(5, (200, 120), 8000, 2, 0.6, 1.3)
    rate = np.exp(0.7 + planted.eta)
    settings = {"iterations": 700, "burn_in": 300}
    run, held_out = planted.run(
        tmp_path, planted.rng.poisson(rate), 0.15, likelihood="negative-binomial", **settings
    )
    scores = check_coverage(run, 0.04)
    assert max(scores["pit"]) < 1.7 * min(scores["pit"])
    counts = predict_test(run).rating
    truth = poisson.logpmf(counts, rate[held_out]).mean()
    assert truth - 0.15 < scores["log_predictive_density"] < truth
    assert counts.max() > 300


def test_heavy_tails(tmp_path: Path) -> None:
    """Degrees of freedom 3 and tau = 4 within four posterior sds; better than Gaussian by 0.1 in
    log density.

    Of 6,000 held-out ratings, to 0.02: three binomial standard errors of 90 % are 0.012.
    """
    planted = Planted(1, (300, 200), 30_000, 2, 0.6, 0.5)
    x = 3 + planted.eta + planted.rng.standard_t(3.0, 30_000) / 2
    state = planted.rng.bit_generator.state
    settings = {"iterations": 500, "burn_in": 150}
    run, _ = planted.run(tmp_path, x, 0.2, likelihood="student-t", **settings)
    planted.rng.bit_generator.state = state  # the same ratings are held out
    gaussian, _ = planted.run(tmp_path, x, 0.2, likelihood="gaussian", **settings)
    scores = check_coverage(run, 0.02)
    gaussian_scores = calibration(gaussian)
    assert scores["log_predictive_density"] > gaussian_scores["log_predictive_density"] + 0.1
    for name, value in (("nu", 3.0), ("tau", 4.0)):
        draws = np.ravel(run.traces[0][name])
        assert abs(draws.mean() - value) < 4 * draws.std()

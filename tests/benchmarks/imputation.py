"""Multiple imputation: coverage of a regression coefficient over made-up matrices.

    python tests/benchmarks/imputation.py [--sets 100]

Every matrix has 150 rows and 6 columns of two factors and noise, and a quarter of its cells is
missing completely at random. The last column is regressed on the first two in each of 20 imputed
matrices, and the results are combined by Rubin's rules [Rubin 1987]. A 95 % interval should contain
the coefficient of the population in 92 to 98 of 100 matrices. Rows without holes, and the matrix
with its holes filled once by expected values, are for comparison.

[Rubin 1987] Multiple Imputation for Nonresponse in Surveys.
"""

from typing import NamedTuple

import numpy as np
from bench import arguments, say, say_head
from scipy import stats

from dsgmcmc import BPMF

ROWS = 150
COLUMNS = 6
NOISE = 0.6
MISSING = 0.25
IMPUTATIONS = 20
MODEL = {
    "rank": 3,
    "sampler": "gibbs",
    "iterations": 700,
    "burn_in": 200,
    "noise": "by-item",
    "options": {"grid": 1},
}


class Estimate(NamedTuple):
    """An estimate, its variance and the degrees of freedom of its t distribution."""

    value: float
    variance: float
    freedom: float

    def covers(self, truth: float) -> bool:
        """Whether the 95 % interval contains the truth."""
        reach = stats.t.ppf(0.975, self.freedom) * np.sqrt(self.variance)
        return bool(abs(self.value - truth) <= reach)


def coefficient(matrix: np.ndarray) -> Estimate:
    """Return the coefficient of the first column in a regression of the last on the first two."""
    covariates = np.column_stack([np.ones(len(matrix)), matrix[:, :2]])
    inverse = np.linalg.inv(covariates.T @ covariates)
    slopes = inverse @ covariates.T @ matrix[:, -1]
    freedom = len(matrix) - covariates.shape[1]
    residual = np.square(matrix[:, -1] - covariates @ slopes).sum() / freedom
    return Estimate(slopes[1], residual * inverse[1, 1], freedom)


def pool(estimates: list[Estimate]) -> Estimate:
    """Combine estimates by Rubin's rules, with the degrees of freedom of Barnard & Rubin (1999)."""
    m = len(estimates)
    within = np.mean([estimate.variance for estimate in estimates])
    between = np.var([estimate.value for estimate in estimates], ddof=1)
    total = within + (1 + 1 / m) * between
    share = (1 + 1 / m) * between / total
    complete = estimates[0].freedom
    observed = (complete + 1) / (complete + 3) * complete * (1 - share)
    freedom = 1 / (share**2 / (m - 1) + 1 / observed)
    return Estimate(float(np.mean([estimate.value for estimate in estimates])), total, freedom)


def truth(loadings: np.ndarray) -> float:
    """Return the coefficient in the population."""
    covariance = loadings.T @ loadings + NOISE**2 * np.eye(COLUMNS)
    return float(np.linalg.solve(covariance[:2, :2], covariance[:2, -1])[0])


def main() -> int:
    """Measure the coverage."""
    parser = arguments(__doc__)
    parser.add_argument("--sets", type=int, default=100)
    sets = parser.parse_args().sets
    methods = ("no holes", "complete rows", "expected values", "20 imputations")
    errors: dict[str, list[float]] = {method: [] for method in methods}
    covered: dict[str, list[bool]] = {method: [] for method in methods}
    for seed in range(sets):
        rng = np.random.default_rng(seed)
        loadings = rng.normal(size=(2, COLUMNS))
        whole = rng.normal(size=(ROWS, 2)) @ loadings + rng.normal(0, NOISE, (ROWS, COLUMNS))
        holes = np.where(rng.random(whole.shape) < MISSING, np.nan, whole)
        model = BPMF(**MODEL, random_state=seed).fit(holes)
        imputed = model.complete(draws=IMPUTATIONS)
        estimates = {
            "no holes": coefficient(whole),
            "complete rows": coefficient(holes[~np.isnan(holes).any(axis=1)]),
            "expected values": coefficient(model.complete()),
            "20 imputations": pool([coefficient(matrix) for matrix in imputed]),
        }
        for method, estimate in estimates.items():
            errors[method].append(estimate.value - truth(loadings))
            covered[method].append(estimate.covers(truth(loadings)))
    say_head("method", "intervals that cover", "bias", "RMSE")
    for method in methods:
        error = np.array(errors[method])
        say(
            method,
            f"{np.mean(covered[method]):.0%}",
            f"{error.mean():+.3f}",
            f"{np.sqrt(np.mean(error**2)):.3f}",
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

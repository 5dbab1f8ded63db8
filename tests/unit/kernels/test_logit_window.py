"""Changes of the log likelihood of two levels at several places, beside float64."""

import numpy as np
import pytest

from dsgmcmc.kernels.compact_ratings import kernel_arguments
from dsgmcmc.kernels.logit_window import PLACES, TOGETHER, add_changes


@pytest.mark.parametrize("scale", [0.5, 4.0, 40.0], ids=["usual", "certain", "beyond float32"])
@pytest.mark.parametrize("columns", [3, TOGETHER, 3 * TOGETHER + 5])
def test_changes_are_those_of_the_log_likelihood(columns: int, scale: float) -> None:
    """At every place, 0 at the element's own. Rounding is that of numbers near 1 in float32."""
    rows = 7
    rng = np.random.default_rng(columns)
    levels = rng.integers(0, 2, (rows, columns)).astype(np.float32)
    z = rng.normal(0, scale, (rows, columns)).astype(np.float32)
    covariate = rng.normal(size=columns).astype(np.float32)
    places = rng.integers(0, PLACES, rows)
    windows = np.column_stack([places, rng.uniform(0.05, 0.5, rows)]).astype(np.float32)
    indptr = columns * np.arange(rows + 1, dtype=np.int64)
    indices = np.tile(np.arange(columns, dtype=np.uint16), rows)
    ratings = kernel_arguments(indptr, indices, levels.ravel(), None)
    out = np.ones((rows, PLACES), np.float32)
    add_changes(ratings, z.ravel(), covariate, windows, out=out)

    steps = (np.arange(PLACES) - places[:, None]) * windows[:, 1:].astype(np.float64)
    moved = z[:, :, None] + covariate[:, None] * steps[:, None]
    likelihood = -np.logaddexp(0, -(2 * levels[:, :, None] - 1) * moved).sum(axis=1)
    expected = 1 + likelihood - likelihood[np.arange(rows), places][:, None]
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=3e-7 * columns * max(scale, 1))

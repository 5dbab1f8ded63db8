"""The verdict names what is wrong with draws, and says nothing where all is right."""

import re
from typing import Any

import numpy as np
import pytest

from dsgmcmc.densities.density import Gaussian
from dsgmcmc.densities.verdict import Mixing, reasons_to_doubt, spread
from dsgmcmc.diagnostics.mixing import rhat

LAW = Gaussian(np.zeros(5), np.eye(5) + 0.5)
DRAWS = np.random.default_rng(0).multivariate_normal(LAW.mean, LAW.covariance, (4, 2000))
APART = np.arange(4)[:, None, None] * np.eye(5)[2]
LATER = (np.arange(2000) >= 1000)[:, None] * np.eye(5)[1]
COUNTS = [{"divergent": 1}, {"divergent": 2, "cut": 4, "acceptance": 0.5}]


@pytest.mark.parametrize(
    ("theta", "more", "said"),
    [
        (DRAWS, {}, []),
        (DRAWS + APART, {}, [r"disagree about element 2 \(R-hat 1.3"]),
        (
            DRAWS * (np.arange(5) > 3),
            {},
            [r"element 0 \(R-hat nan\), .* element 2 \(R-hat nan\) and 1 more"],
        ),
        (
            DRAWS,
            {"ess": np.array([4e3, 54, 70, 400, 399])},
            [r"few .* element 1 \(ESS 54\), .* 4 \(ESS 399\), and"],
        ),
        (
            DRAWS + 0.32 * LATER,
            {"rhat": np.ones(5)},
            [r"second half .* element 1 \(0.2. standard deviations\)"],
        ),
        (DRAWS * 1.2, {}, [r"standard deviations are 1.[12]\d to 1.2\d times the right ones"]),
        (DRAWS, {"ess": np.full(5, np.nan)}, ["R-hat and ESS are unknown"]),
        (DRAWS, {"statistics": COUNTS}, ["^3 divergent trajectories", "^4 trajectories cut"]),
    ],
)
def test_each_fault_has_its_sentence(
    theta: np.ndarray, more: dict[str, Any], said: list[str]
) -> None:
    """A fault has one sentence, by R-hat where it shows; draws of the density have none."""
    with np.errstate(all="ignore"):
        mixing = Mixing(more.get("rhat", rhat(theta)), more.get("ess", np.full(5, 8e3)))
        found = list(reasons_to_doubt(theta, mixing, more.get("statistics", []), LAW))
    assert len(found) == len(said), found
    assert all(
        re.search(pattern, sentence) for pattern, sentence in zip(said, found, strict=True)
    ), found


def test_the_spread_is_that_of_the_extreme_directions() -> None:
    """Variances of half and of 1.5 times the right ones, within four standard errors."""
    axes = np.linalg.eigh(LAW.covariance)[1]
    ratios, errors = spread(DRAWS @ (axes * np.sqrt([0.5, 1, 1, 1, 1.5])) @ axes.T, LAW)
    assert (np.abs(ratios - [0.5, 1.5]) < 4 * errors).all()
    assert errors.max() < 0.04

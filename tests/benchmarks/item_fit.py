"""Fit of items on exact data of the 2PL, with 0, .1 and .3 of the answers held out.

    python tests/benchmarks/item_fit.py  # a minute

Five times 1,000 people and 30 items, three tenths missing. One line for each share: the mean of the
150 ``p``, and the share below 0.05.
"""

import warnings

import numpy as np

from dsgmcmc import BPMF


def answers(seed: int) -> np.ndarray:
    """Return answers of 0 and 1, (1000, 30), NaN where missing."""
    rng = np.random.default_rng(seed)
    ability = rng.normal(size=1000)
    difficulty = rng.normal(0, 1, 30)
    slope = np.exp(rng.normal(0, 0.3, 30))
    logits = slope * (ability[:, None] - difficulty)
    cells = (rng.random((1000, 30)) < 1 / (1 + np.exp(-logits))).astype(float)
    cells[rng.random(cells.shape) < 0.3] = np.nan
    return cells


def main() -> None:
    """Print the table."""
    warnings.simplefilter("ignore")
    for share in (0.0, 0.1, 0.3):
        p = []
        for seed in range(5):
            model = BPMF(
                rank=0,
                noise="by-item",
                test_fraction=share,
                random_state=seed,
                iterations=1000,
                burn_in=200,
            )
            p += model.fit(answers(seed)).item_parameters()["p"].tolist()
        print(f"{share}: {np.mean(p):.3f}, {np.mean(np.array(p) < 0.05):.3f}")


if __name__ == "__main__":
    main()

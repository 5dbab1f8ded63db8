"""Slopes, intercepts and the correlation of two dimensions, on exact data of a 2PL.

    python tests/benchmarks/two_dimensions.py  # half a minute

1,500 people, 15 items of each dimension, a fifth of the answers missing. The true correlation, its
estimate and sd; then root mean square errors in units of the sds.
"""

import warnings

import numpy as np

from dsgmcmc import BPMF

PEOPLE = 1500
ITEMS = 30


def main() -> None:
    """Print both lines."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(1)
    normals = rng.normal(size=(PEOPLE, 2))
    second = 0.4 * normals[:, 0] + np.sqrt(1 - 0.4**2) * normals[:, 1]
    abilities = np.column_stack([normals[:, 0], second])
    abilities = (abilities - abilities.mean(axis=0)) / abilities.std(axis=0)
    slopes = np.zeros((ITEMS, 2))
    slopes[:15, 0] = rng.uniform(0.8, 1.8, 15)
    slopes[15:, 1] = rng.uniform(0.8, 1.8, 15)
    intercepts = rng.normal(0, 1, ITEMS)
    chance = 1 / (1 + np.exp(-(abilities @ slopes.T + intercepts)))
    answers = (rng.random(chance.shape) < chance).astype(float)
    answers[rng.random(answers.shape) < 0.2] = np.nan
    model = BPMF(rank=1, noise="by-item", iterations=3000, burn_in=600, chains=2, random_state=0)
    found = model.fit(answers).item_dimensions(target=slopes > 0)
    truth = np.corrcoef(abilities.T)[0, 1]
    print(f"{truth:.3f}, {found.correlation[0, 1]:.3f}, {found.correlation_sd[0, 1]:.3f}")
    columns = {"a_1": slopes[:, 0], "a_2": slopes[:, 1], "d_1": intercepts}
    for name, true_values in columns.items():
        away = (found.items[name] - true_values) / found.items[f"{name}_sd"]
        print(f"{name}: {np.sqrt(np.square(away).mean()):.2f}")


if __name__ == "__main__":
    main()

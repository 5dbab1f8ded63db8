"""Standard deviations that samplers of densities have at their defaults, over those of quadrature or of the law itself.

    python tests/benchmarks/oracle.py                # every sampler: two minutes of one core
    python tests/benchmarks/oracle.py sgld --step .1

200 chains, 2,000 iterations after 1,000, all data in each. Targets are a logistic regression on 60 data with two
coefficients, a correlated normal in two dimensions, and a double well; errors of means are in standard deviations.
"""

from __future__ import annotations

import argparse

import numpy as np

from dsgmcmc.densities.sample import sample, vector_target
from dsgmcmc.densities.targets.potentials import DoubleWell, Gaussian
from dsgmcmc.densities.targets.regression import Regression
from dsgmcmc.errors import InputError
from dsgmcmc.samplers import OF_DENSITIES, SAMPLERS


def moments(density, axis):
    """Means and standard deviations by quadrature on a grid of this axis in every dimension."""
    points = np.stack(np.meshgrid(*[axis] * density.dimension, indexing="ij"), axis=-1).reshape(-1, density.dimension)
    parts = np.array_split(points, max(1, len(points) // 4000))
    prior = 0.5 * (density.prior_precision * (points - density.prior_mean) ** 2).sum(axis=1)
    energy = np.concatenate([density.energy(part) for part in parts]) + prior
    weights = np.exp(energy.min() - energy)
    mean = weights @ points / weights.sum()
    return mean, np.sqrt(weights @ (points - mean) ** 2 / weights.sum())


def targets():
    """Densities with their means and standard deviations."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    x[:, 1] += 0.5 * x[:, 0]
    regression = Regression(x, rng.random(60) < 1 / (1 + np.exp(-x @ [1.0, -0.5])))
    normal = Gaussian(np.array([1.0, -1.0]), np.array([[2.0, 0.6], [0.6, 0.5]]))
    return {
        "logistic": (regression, *moments(regression, np.linspace(-4, 5, 401))),
        "normal": (normal, normal.mean, np.sqrt(np.diag(normal.covariance))),
        "double well": (DoubleWell(), *moments(DoubleWell(), np.linspace(-4, 4, 4001))),
    }


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("samplers", nargs="*", help="all, if none is named")
    parser.add_argument("--step", type=float, help="step in the place of the default")
    options = parser.parse_args()
    kinds = {**SAMPLERS, **OF_DENSITIES}
    print("| sampler | target | error of the mean | standard error | sd / true |\n|---|---|---|---|---|")
    for name in options.samplers or kinds:
        for label, (density, mean, sd) in targets().items():
            step = options.step or kinds[name].step_of_densities
            sampler = kinds[name](kinds[name].Config(**({"step_size": step} if step else {})), 1000)
            try:
                target = vector_target(density, sampler, rows=200, seed=1)
                with np.errstate(all="ignore"):
                    states = [theta.copy() for theta in sample(target, sampler, 3000)][1000::10]
            except InputError:  # it is for other densities
                continue
            draws = (np.array(states) - mean) / sd
            cells = draws.mean(axis=(0, 1)), draws.mean(axis=0).std(axis=0) / 200**0.5, (draws**2).mean((0, 1)) ** 0.5
            print(f"| {name} | {label} | " + " | ".join(" ".join(f"{x:.3f}" for x in cell) for cell in cells) + " |")


if __name__ == "__main__":
    main()

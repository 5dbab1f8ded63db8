"""[El Hanchi 2019]: how noisy gradients of 122 of 13,276 data are, for each way of drawing them. MNIST, zeros and ones.

    python tests/benchmarks/adaptive.py mnist.npz [--quick]

The file has arrays of images (n, 28, 28) or (n, 784) and of labels (n,). Coefficients of a logistic regression on ten
principal components, N(0, 1) before the data. Every estimator follows one path of Langevin dynamics with exact
gradients from the mode on, with draws and tables of its own; what is printed is the largest eigenvalue of the exact
covariance of its gradient given theta and its tables, in the mean over the second half of the path. A minute or two of
one core.
"""

from __future__ import annotations

import argparse
from math import sqrt

import numpy as np
from scipy.optimize import minimize

from dsgmcmc.samplers.sample import vector_target
from dsgmcmc.samplers.sgmcmc.sgld import SGLD, SGLDConfig
from dsgmcmc.samplers.subsampling import ON_DATA
from dsgmcmc.targets.regression import Regression

SIZE, COMPONENTS, STEPS = 122, 10, (5e-3, 5e-4, 5e-5)


def digits(path):
    """Logistic regression of one against zero on principal components of pixels in 0 .. 1."""
    with np.load(path) as file:
        arrays = [file[name] for name in file.files]
    images = np.concatenate([a.reshape(len(a), -1) for a in arrays if a.ndim > 1])
    labels = np.concatenate([a for a in arrays if a.ndim == 1])
    chosen = labels <= 1
    pixels = images[chosen] / 255.0
    pixels -= pixels.mean(axis=0)
    _, vectors = np.linalg.eigh(pixels.T @ pixels)
    return Regression(pixels @ vectors[:, : -COMPONENTS - 1 : -1], labels[chosen])


def covariance(density, estimator, target, terms):
    """Of the gradient given theta and tables: (sum a a^T / p - a a^T) / S for the terms a of all data."""
    block = target.block
    p = np.full(density.n_data, 1 / density.n_data)
    if estimator is not None:
        p = estimator.probabilities(target, block, 0, block["theta"][0])
        if estimator.control_variate:
            terms = terms - density.spread(estimator.table(density, block))[0]
    total = terms.sum(axis=0)
    return (terms.T @ (terms / p[:, None]) - np.outer(total, total)) / SIZE


def variances(density, mode, eps, iterations):
    """Largest variance of the gradient by estimator."""
    grid, rng = density.n_data // SIZE, np.random.default_rng(0)
    bound = density.curvature.max()
    followers = {}
    for name in (None, *ON_DATA):
        sampler = SGLD(SGLDConfig(step_size=eps * bound, gradient=name), 0)
        followers[name or "uniform"] = (sampler, vector_target(density, sampler, grid=grid, schedule="random"))
    theta, found = mode.copy(), {name: [] for name in followers}
    for iteration in range(iterations):
        look = iteration >= iterations // 2 and iteration % 25 == 0
        terms = density.gradients(theta[None])[0] if look else None
        for name, (sampler, target) in followers.items():
            target.begin(iteration)
            target.block["theta"][0] = theta
            if look:
                drawn = sampler.gradient if name != "uniform" else None
                found[name].append(np.linalg.eigvalsh(covariance(density, drawn, target, terms))[-1])
            if name != "uniform":
                for _ in sampler.gradient(target, "theta"):
                    pass
        gradient = density.gradient(theta[None]) + density.prior_gradient(theta[None])
        theta = theta - eps * gradient[0] + sqrt(2 * eps) * rng.normal(size=theta.shape)
    return {name: float(np.mean(values)) for name, values in found.items()}


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data")
    parser.add_argument("--quick", action="store_true", help="a small form of it, to see that it runs")
    options = parser.parse_args()
    density = digits(options.data)

    def energy(theta):
        gradient = density.gradient(theta[None]) + density.prior_gradient(theta[None])
        return (density.energy(theta[None]) + density.prior_energy(theta[None]))[0], gradient[0]

    mode = minimize(energy, np.zeros(COMPONENTS), jac=True).x
    columns = [variances(density, mode, eps, 200 if options.quick else 3000) for eps in STEPS]
    print(f"{density.n_data:,} data\n\n| gradient | " + " | ".join(f"eps {eps:g}" for eps in STEPS) + " |")
    print("|---|" + "---|" * len(STEPS))
    for name in columns[0]:
        print(f"| {name} | " + " | ".join(f"{column[name]:.3g}" for column in columns) + " |")


if __name__ == "__main__":
    main()

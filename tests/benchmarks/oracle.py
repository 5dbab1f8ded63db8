"""Standard deviations that samplers of densities have at their defaults, over those of quadrature
or of the law itself.

    python tests/benchmarks/oracle.py                # every sampler
    python tests/benchmarks/oracle.py sgld --step .1
    python tests/benchmarks/oracle.py --parts        # with minibatches

200 chains, 2,000 iterations after 1,000, all data in each, at the defaults of `sample_density`.
Targets are a logistic regression on 60 data with two coefficients, a correlated normal in two
dimensions, and a double well. Standard errors are about 0.005, as they are with the 600 iterations
after 300 of `adjusted_sgld`, one of which takes 30 ms.

With ``--parts`` every iteration sees one of ten parts of a logistic regression on 1,000 data with
two correlated features, in random or in shuffled order; 4,000 iterations after 2,000, with standard
errors up to 0.02. The standard deviations are the smallest and the largest of any direction, in
coordinates in which the true covariance is the identity: wrong correlations show, too.
"""

import numpy as np
from bench import arguments, say, say_head
from densities import correlated, quadrature

from dsgmcmc.densities import SAMPLERS
from dsgmcmc.densities.density import DoubleWell, Gaussian
from dsgmcmc.densities.models.regression import Regression
from dsgmcmc.densities.sample import DensityConfig, sample, vector_target
from dsgmcmc.errors import InputError


def targets():
    """Densities with their means and covariances."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    x[:, 1] += 0.5 * x[:, 0]
    regression = Regression(x, rng.random(60) < 1 / (1 + np.exp(-x @ [1.0, -0.5])))
    normal = Gaussian(np.array([1.0, -1.0]), np.array([[2.0, 0.6], [0.6, 0.5]]))
    return {
        "logistic": (regression, *quadrature(regression, *[np.linspace(-4, 5, 401)] * 2)),
        "normal": (normal, normal.mean, normal.covariance),
        "double well": (DoubleWell(), np.zeros(1), np.array([[DoubleWell.square]])),
    }


def make(name, grid, schedule="shuffled", step=None, burn_in=1000):
    """The sampler that `sample_density` makes."""
    section = {"name": name, **({"step_size": step} if step else {})}
    config = DensityConfig.build(
        {"sampler": section, "grid": grid, "schedule": schedule, "thin": 1}
    ).resolved()
    return config.sampler.algorithm(config.sampler.config, burn_in)


def draws(target, sampler, iterations, **start):
    """200 states of every chain, after a third of the iterations; 900 iterations of chains that
    move fast.
    """
    iterations = 900 if isinstance(sampler, SAMPLERS["adjusted_sgld"]) else iterations
    with np.errstate(all="ignore"):
        states = [theta.copy() for theta in sample(target, sampler, iterations, **start)]
    return np.array(states[iterations // 3 :: iterations // 300])


def say_rows(names, columns, cell):
    """Print a row for each sampler with `cell(name, column)`, empty where the sampler refuses; no
    empty rows.
    """
    for name in names:
        cells = []
        for column in columns:
            try:
                cells.append(cell(name, column))
            except InputError:
                cells.append("")
        if any(cells):
            say(name, *cells)


def of_all_data(names, step):
    """Print the table of all data."""
    say_head("sampler", *targets())

    def cell(name, known):
        density, mean, covariance = known
        sampler = make(name, 1, step=step)
        states = draws(vector_target(density, sampler, rows=200, seed=1), sampler, 3000)
        ratios = np.sqrt(((states - mean) ** 2).mean(axis=(0, 1)) / np.diag(covariance))
        return ", ".join(f"{ratio:.3f}" for ratio in ratios)

    say_rows(names, targets().values(), cell)


def of_parts(names, step):
    """Print the table of minibatches."""
    density = correlated(1000)
    exact = make("hmc", 1, burn_in=200)
    target = vector_target(density, exact, rows=400, seed=2)
    true = np.concatenate([theta.copy() for theta in sample(target, exact, 400, sd=0.1)][200::2])
    root = np.linalg.inv(np.linalg.cholesky(np.cov(true.T)))
    say_head("sampler", "random parts", "shuffled parts")

    def cell(name, schedule):
        sampler = make(name, 10, schedule, step)
        if not sampler.gradient.by_parts:
            return ""
        target = vector_target(density, sampler, rows=200, grid=10, schedule=schedule, seed=1)
        states = draws(target, sampler, 6000, sd=0.1) @ root.T
        values = np.sqrt(np.linalg.eigvalsh(np.cov(np.concatenate(states).T)))
        return f"{values[0]:.2f} to {values[1]:.2f}"

    say_rows(names, ("random", "shuffled"), cell)


def main():
    """Print the table."""
    parser = arguments(__doc__)
    parser.add_argument("samplers", nargs="*", help="all, if none is named")
    parser.add_argument("--step", type=float, help="step in the place of the default")
    parser.add_argument("--parts", action="store_true", help="with minibatches")
    options = parser.parse_args()
    names = options.samplers or [name for name in SAMPLERS if name != "gibbs"]
    (of_parts if options.parts else of_all_data)(names, options.step)


if __name__ == "__main__":
    main()

"""Why figures 16 to 19 of [El Hanchi 2019] come out as they do here: a hundred components of MNIST's zeros and ones.

    python tests/papers/adaptive_why.py mnist.npz             # four minutes of one core; --quick: seconds

First, modified SGLD at the step of Langevin dynamics: the largest variance of its gradient along the chain, how many
data make half of the trace, when these were last drawn, and the gradients that the table has of them beside those that
they have. Then the same chain with tables that are renewed every so many iterations, with more data an iteration, and
with smaller steps. Then both for `adaptive-stored`, also with half of its draws uniform. Then Metropolis kernels over
the risk of a wrong decision, from the mode on. See `adaptive.py`.
"""

from __future__ import annotations

import argparse
from math import sqrt
from pathlib import Path

import numpy as np
from adaptive import EPS, SIZE, Problem, noise

from dsgmcmc.densities.sample import vector_target
from dsgmcmc.samplers import DENSITY_SAMPLERS

#: Kernel, variance of its steps, risk.
KERNELS = (
    ("mh", 0.003, None),
    ("mh", 0.01, None),
    ("modified_stochastic_mh", 0.003, 0.01),
    ("modified_stochastic_mh", 0.003, 0.3),
    ("modified_stochastic_mh", 0.01, 0.3),
    ("austerity", 0.003, 0.1),
)


def culprits(density, sampler, target):
    """Cells of a table: noise, data that make half of its trace, their ages, gradients kept and true, and N p."""
    block = target.block
    p = sampler.gradient.probabilities(target, block, 0, block["theta"][0])
    terms = density.gradients(block["theta"])[0]
    table = density.spread(sampler.gradient.table(density, block))[0]
    part = ((terms - table) ** 2).sum(axis=1) / p
    order = np.argsort(-part)
    worst = order[: 1 + np.searchsorted(np.cumsum(part[order]), 0.5 * part.sum())]
    age = target.stream.iteration - block["last"][0]
    lengths = [np.median(np.linalg.norm(each[worst], axis=1)) for each in (table, terms)]
    typical = np.median(age[worst]), *lengths, np.median(p[worst]) * density.n_data
    return [noise(density, sampler, target), len(worst), *typical]


def growth(problem, iterations, gradient):
    """Table of the noise over the iterations of one chain."""
    heads = ("iteration", "variance", "data that make half", "age", "gradient kept", "true", "N p")
    print(f"\n{gradient}\n\n| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    looks = set(np.geomspace(4, iterations - 1, 8).astype(int).tolist())

    def look(target, sampler, iteration):
        if iteration in looks and np.isfinite(target.block["theta"]).all():
            target.begin(iteration)
            cells = culprits(problem.density, sampler, target)
            print(f"| {iteration:,} | " + " | ".join(f"{cell:.2g}" for cell in cells) + " |", flush=True)

    with np.errstate(all="ignore"):
        problem.chain("adjusted_sgld", gradient, EPS, iterations, look)


def renewing(problem, every, share=None):
    """What makes the tables anew every so many iterations, and a share of the draws uniform."""

    def renew(target, sampler, iteration):
        if share and not iteration:
            sampler.gradient.uniform = share
        if every and iteration and iteration % every == 0:
            target.begin(iteration)
            sampler.gradient.begin_tables(problem.density, target.block, "theta")
            target.block["last"][:] = iteration

    return renew


def stored(problem, iterations):
    """Table of the errors of chains with weights that are the stored gradients alone."""
    print("\n| adaptive-stored, eps | uniform | tables renewed | error of mean | of variance |")
    print("|---|---|---|---|---|")
    for eps, share, every in (
        (EPS, 0.1, 0),
        (EPS, 0.1, 100),
        (EPS, 0.5, 0),
        (EPS * 0.6, 0.1, 0),
        (EPS * 0.4, 0.1, 0),
        (EPS * 0.2, 0.1, 0),
    ):
        with np.errstate(all="ignore"):
            look = renewing(problem, every, share)
            states, _ = problem.chain("adjusted_sgld", "adaptive-stored", eps, iterations, look)
        ends = " | ".join(f"{error:.2f}" for error in problem.errors(states))
        print(f"| {eps:g} | {share:g} | {f'every {every}' if every else ''} | {ends} |", flush=True)


def mended(problem, iterations):
    """Table of the errors of mean and variance of chains with fresher tables, more data or smaller steps."""
    print("\n| eps | data | tables renewed | million calls | error of mean | of variance |\n|---|---|---|---|---|---|")
    n = problem.density.n_data
    for eps, size, every in (
        (EPS, SIZE, 0),
        (EPS, SIZE, 400),
        (EPS, SIZE, 100),
        (EPS, 4 * SIZE, 0),
        (EPS * 0.6, SIZE, 0),
        (EPS * 0.4, SIZE, 0),
        (EPS * 0.2, SIZE, 0),
    ):
        made = iterations * SIZE // size
        problem.grid = n // size
        states, _ = problem.chain("adjusted_sgld", "adaptive", eps, made, renewing(problem, every))
        problem.grid = n // SIZE
        calls = (n + made * size + (made - 1) // every * n if every else n + made * size) / 1e6
        errors = " | ".join(f"{error:.2f}" for error in problem.errors(states))
        print(f"| {eps:g} | {size} | {f'every {every}' if every else ''} | {calls:.2f} | {errors} |", flush=True)
    states, _ = problem.chain("sgld", "full", EPS, iterations)
    for made in np.linspace(0.02, 1, 4) * iterations:
        errors = " | ".join(f"{error:.2f}" for error in problem.errors(states[: int(made)]))
        print(f"| {EPS:g} | all, LD | | {int(made) * n / 1e6:.1f} | {errors} |", flush=True)


def metropolis(problem, budgets):
    """Table of kernels after so many million evaluations."""
    widths = (problem.draws @ problem.axes).var(axis=0)
    print(
        "\n| kernel | variance | risk | million | a step | accepted | error of mean | of variance | narrowest | all |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, variance, risk in KERNELS:
        kind = DENSITY_SAMPLERS[name]
        more = {} if risk is None else {"batch": SIZE, "risk": risk}
        sampler = kind(kind.Config(proposal="walk", scale=sqrt(variance * problem.density.n_data), **more), 0)
        target = vector_target(problem.density, sampler)
        sampler.start(target, 0.0)
        target.block["theta"][0] = problem.mode
        states = []
        for budget in budgets:
            while not states or sampler.metrics()["evaluations"] * len(states) < 1e6 * budget:
                sampler.advance(target, len(states), 1)
                states.append(target.block["theta"][0].copy())
            found, metrics = np.array(states), sampler.metrics()
            ratios = (found @ problem.axes).var(axis=0)[1] / widths[1], found.var(axis=0).sum() / problem.variance.sum()
            cells = [f"{value:.2f}" for value in (*problem.errors(found), *ratios)]
            first = f"{budget:g} | {metrics['evaluations']:,.0f} | {metrics['acceptance']:.2f}"
            print(f"| {name} | {variance:g} | {risk or ''} | {first} | " + " | ".join(cells) + " |", flush=True)


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", type=Path, help="mnist.npz")
    parser.add_argument("--quick", action="store_true", help="a small form of it, to see that it runs")
    options = parser.parse_args()
    problem = Problem(options.data, 100, 20 if options.quick else 1333)
    iterations = 150 if options.quick else 6000
    growth(problem, iterations, "adaptive")
    mended(problem, iterations)
    growth(problem, iterations, "adaptive-stored")
    stored(problem, iterations)
    metropolis(problem, (0.1,) if options.quick else (1.5, 5.0, 20.0))


if __name__ == "__main__":
    main()

"""Figures 1 to 3 and table 2 of [Nemeth 2021]: kernel Stein discrepancy, and logistic regression on
100,000 data.

    python tests/papers/review_figures_1_3.py --out docs/figures               # d = 10 and 50
    python tests/papers/review_figures_1_3.py --dimensions 10 50 100           # all of the paper's
    python tests/papers/review_figures_1_3.py --quick  # to see that it works

Figure 1: SGLD on N(0, S), S = diag(2, 1) turned by 45 degrees, gradient noise N(0, .01), 10,000
iterations kept every tenth, ten runs; h is the paper's step, twice ours. Then the data of the
public code: x ~ N(0, Sigma), theta_k ~ N(0, s_k^2) with s_k of .1, 1 or 10, 1,000 of 100,000 data
an iteration, prior N(0, 10 I). Samplers start from N(0, 1), those with control variates at the
mode, which Newton's method finds and the paper by half of the iterations: so they have half of them
here, too; ULA, whose gradients take all data, has a twentieth. Steps are those of five with the
smallest discrepancy in pilot runs from the mode, a fifth as long. The truth is SMH-2, which is
exact. Discrepancies are of 250 of the last 1,000 draws, of all alike, in coordinates in which the
posterior's standard deviations are 1; that of as many independent draws of the normal approximation
at the mode stands beside them, as no number of draws has none. Seconds are CPU seconds, without
pilots.
"""

from math import log10, sqrt
from typing import NamedTuple

import numpy as np
from common import PLAIN, axes, command, follow, head, prepare, row, save
from scalable_mh import effective
from scipy.linalg import solve_discrete_lyapunov
from stein import kernel_stein_discrepancy

from dsgmcmc.densities.curvature import mode_of
from dsgmcmc.densities.density import Gaussian, prior_gradient
from dsgmcmc.densities.models.regression import Regression
from dsgmcmc.densities.sample import sample

BATCH = 1000
CV = {"gradient": "control-variate"}
DAMPED = {"gamma": 5.0}  # or the noise of the gradients would need far smaller steps
#: Sampler, settings, steps in its own unit, share of the iterations; full gradients are those of
#: 100 others.
SAMPLERS = {
    "SGLD": ("sgld", {}, (0.01, 0.03, 0.1, 0.3, 1.0), 1.0),
    "SGLD-CV": ("sgld", CV, (0.1, 0.3, 1.0, 3.0, 8.0), 0.5),
    "ULA": ("sgld", {"gradient": "full"}, (0.3, 1.0, 3.0, 8.0, 12.0), 0.05),
    "SGHMC": ("sghmc", PLAIN | DAMPED, (0.01, 0.03, 0.1, 0.3, 1.0), 1.0),
    "SGHMC-CV": ("sghmc", PLAIN | DAMPED | CV, (0.03, 0.1, 0.3, 1.0, 3.0), 0.5),
    "SGNHT": ("sgnht", PLAIN, (0.003, 0.01, 0.03, 0.1, 0.3), 1.0),
    "SGNHT-CV": ("sgnht", PLAIN | CV, (0.01, 0.03, 0.1, 0.3, 1.0), 0.5),
}


class Noisy(Gaussian):
    """The target of figure 1, with noise in its gradient; steps are in time."""

    def __init__(self):
        rotation = np.array([[1.0, -1.0], [1.0, 1.0]]) / sqrt(2)
        super().__init__(np.zeros(2), rotation @ np.diag([2.0, 1.0]) @ rotation.T)
        self.curvature = np.ones(2)
        self.rng = np.random.default_rng(0)

    def gradient(self, theta, data=slice(None)):
        """See `Gaussian.gradient`."""
        return super().gradient(theta, data) + 0.1 * self.rng.standard_normal(theta.shape)


def figure_1(iterations, runs):
    """Table over h: log10 of the discrepancy, effective draws, and the trace of the covariance."""
    head("h", "log10 KSD", "a run's sd", "ESS", "trace of the covariance", "derived", "as printed")
    law = Noisy()
    found = {}
    variances = np.linalg.eigvalsh(law.covariance)
    for h in (0.001, 0.01, 0.1, 0.3, 1.0):
        sampler, target = prepare("sgld", law, rows=runs, step_size=h / 2)
        draws = np.array([theta.copy() for theta in sample(target, sampler, iterations, sd=0.0)])
        kept = draws[::10].swapaxes(0, 1)
        ksd = [log10(kernel_stein_discrepancy(each, Gaussian.gradient(law, each))) for each in kept]
        ess = np.mean([effective(draws[:, run]) for run in range(runs)])
        trace = np.mean([np.trace(np.cov(each.T)) for each in kept])
        derived = (variances * (1 + 0.01 * h / 4) / (1 - h / (4 * variances))).sum()
        printed = (variances * (1 + 0.01 * h) / (1 - h / (4 * variances))).sum()
        found[h] = np.mean(ksd)
        ksds = f"{np.mean(ksd):.2f}", f"{np.std(ksd):.2f}"
        row(f"{h:g}", *ksds, f"{ess:,.0f}", f"{trace:.2f}", f"{derived:.3f}", f"{printed:.3f}")
    return found


def data(dimension, n):
    """A regression, and data that were left out: (n, d) and (n,)."""
    rng = np.random.default_rng(dimension)
    apart = np.abs(np.subtract.outer(np.arange(dimension), np.arange(dimension)))
    while True:
        upper = np.triu(rng.uniform(-0.4, 0.4, apart.shape) ** apart, 1)
        sigma = upper + upper.T + np.eye(dimension)
        if np.linalg.eigvalsh(sigma)[0] > 0.01:
            break
    theta = rng.normal(size=dimension) * rng.choice([0.1, 1.0, 10.0], dimension)
    x = rng.multivariate_normal(np.zeros(dimension), sigma, n + 10_000)
    y = rng.random(len(x)) < 1 / (1 + np.exp(-x @ theta))
    return Regression(x[:n], y[:n], prior_precision=0.1), (x[n:], y[n:])


class Chain(NamedTuple):
    """Draws (T, d), seconds, and gradients of a datum a draw."""

    draws: np.ndarray
    seconds: float
    calls: float


def run(density, name, settings, step, iterations, start):
    """A chain from a start."""
    sampler, target = prepare(
        name, density, grid=density.n_data // BATCH, step_size=step, **settings
    )
    draws, seconds = follow(sampler, target, iterations, start)
    calls = {
        None: BATCH,
        "full": density.n_data,
        "control-variate": 2 * BATCH + density.n_data / iterations,
    }
    return Chain(draws, seconds, calls[settings.get("gradient")])


def discrepancy(density, draws, number, scale):
    """KSD of some of the last draws, evenly spaced, in units of `scale`."""
    kept = draws[-min(len(draws) // 2, 1000) :]
    kept = kept[:: max(1, len(kept) // number)][:number]
    if not np.isfinite(kept).all() or np.abs(kept).max() > 1e6:
        return np.inf
    slopes = np.concatenate(
        [density.gradient(part) for part in np.array_split(kept, max(1, len(kept) // 20))]
    )
    return kernel_stein_discrepancy(kept / scale, (slopes + prior_gradient(density, kept)) * scale)


def inflation(density, mode, eps):
    """Variances of SGLD over those of the posterior, both of the normal approximation at the
    mode.
    """
    hessian = density.hessian(mode)
    slopes = density.gradients(mode[None])[0]
    noise = density.n_data**2 / BATCH * np.cov(slopes.T)
    shrink = np.eye(len(mode)) - eps * hessian
    return np.diag(
        solve_discrete_lyapunov(shrink, 2 * eps * np.eye(len(mode)) + eps**2 * noise)
    ) / np.diag(np.linalg.inv(hessian))


def oracle(density, iterations):
    """The posterior by SMH-2: a chain, of which some 2,000 states are kept, and its effective
    draws.
    """
    sampler, target = prepare("smh2", density, proposal="pcn", rho=0.5)
    states, seconds = follow(sampler, target, iterations, thin=max(1, iterations // 2000))
    draws = states[len(states) // 10 :]
    return Chain(draws, seconds, sampler.metrics()["evaluations"]), effective(draws)


def log_loss(theta, unseen):
    """Of the mean prediction of draws."""
    p = (1 / (1 + np.exp(-unseen[0] @ theta.T))).mean(axis=1)
    p = np.clip(np.where(unseen[1], p, 1 - p), 1e-12, 1)
    return float(-np.log(p).mean())


def table_2(dimension, n, iterations, exact_iterations):
    """Table 2 for one dimension; what figure 3 shows, and the chains of figure 2."""
    density, unseen = data(dimension, n)
    mode = mode_of(density)
    truth, ess = oracle(density, exact_iterations)
    mean = truth.draws.mean(axis=0)
    sd = truth.draws.std(axis=0)
    errors = "error of the mean", "sd / true sd", "log-loss"
    head(
        f"d = {dimension}",
        "step",
        "KSD",
        *errors,
        "arrives at",
        "seconds",
        "gradients; ESS of SMH-2",
    )
    exact = discrepancy(density, truth.draws, 250, sd)
    loss = f"{log_loss(truth.draws[::20], unseen):.5f}"
    row("SMH-2", "", f"{exact:.2f}", "", "", loss, "", f"{truth.seconds:.1f}", f"{ess:,.0f}")
    normal = np.random.default_rng(2).multivariate_normal(
        mode, np.linalg.inv(density.hessian(mode)), 500
    )
    row("independent draws", "", f"{discrepancy(density, normal, 250, sd):.2f}", *[""] * 6)
    start = np.random.default_rng(1).normal(size=dimension)
    chains = {"SMH-2": truth}
    for label, (name, settings, steps, share) in SAMPLERS.items():
        length = max(40, int(share * iterations))
        pilots = [run(density, name, settings, step, length // 5, mode) for step in steps]
        step = steps[
            int(np.argmin([discrepancy(density, pilot.draws, 50, sd) for pilot in pilots]))
        ]
        chain = run(density, name, settings, step, length, mode if share == 0.5 else start)
        chains[label] = chain
        draws = chain.draws[len(chain.draws) // 2 :]
        off = (draws.mean(axis=0) - mean) / sd
        wide = np.exp(np.log(draws.std(axis=0) / sd).mean())
        near = np.flatnonzero((np.abs((chain.draws - mean) / sd) < 5).all(axis=1))
        ends = (
            f"{sqrt((off**2).mean()):.2f} sd",
            f"{wide:.2f}",
            f"{log_loss(draws[::20], unseen):.5f}",
        )
        when = f"{near[0] + 1:,}" if len(near) else "never"
        calls = f"{chain.seconds:.1f}", f"{chain.calls * len(chain.draws):.2g}"
        row(
            label,
            f"{step:g}",
            f"{discrepancy(density, chain.draws, 250, sd):.2f}",
            *ends,
            when,
            *calls,
        )
        if label == "SGLD":
            inflated = inflation(density, mode, step / density.curvature.max())
            geometric = np.exp(np.log(inflated).mean() / 2)
            row("derived for it", f"{step:g}", "", "0", f"{geometric:.2f}", *[""] * 4)
    figure_3(chains, mean[0], sd[0])
    return chains


def figure_3(chains, mean, sd):
    """Mean and variance of theta_1 after a tenth, 3 tenths and all of the time of SGLD, the first
    tenth left out.
    """
    limit = chains["SGLD"].seconds
    head("theta_1 after", *(f"{limit * part:.1f} s: mean, variance" for part in (0.1, 0.3, 1)))
    for label in ("SGLD", "SGLD-CV", "ULA", "SMH-2"):
        draws, seconds, _ = chains[label]
        cells = []
        for part in (0.1, 0.3, 1.0):
            made = min(len(draws), int(len(draws) * limit * part / seconds))
            some = draws[made // 10 : made, 0]
            cells.append(
                f"{(some.mean() - mean) / sd:+.2f} sd, {some.var() / sd**2:.2f}"
                if len(some) > 1
                else ""
            )
        row(label, *cells)


def main():
    """Print the tables, and draw traces and discrepancies."""
    parser = command(__doc__, "review_figures_1_3.png")
    parser.add_argument("--dimensions", type=int, nargs="*", default=[10, 50])
    options = parser.parse_args()
    found = figure_1(1000 if options.quick else 10_000, 2 if options.quick else 10)
    sizes = options.dimensions, 100_000, 20_000, 200_000
    dimensions, n, iterations, exact = ((3,), 10_000, 400, 6000) if options.quick else sizes
    chains = {d: table_2(d, n, iterations, max(exact // d, 4000)) for d in dimensions}
    if options.out:
        draw(found, chains[dimensions[0]], options.out)


def draw(found, chains, folder):
    """Figure 1, bottom, and figure 2: traces of the first coefficient."""
    panels = axes(1, 2, size=(9, 3.4))
    one, two = panels[0]
    one.semilogx(list(found), list(found.values()), marker="o")
    one.set(xlabel="h", ylabel="log10 KSD", title="figure 1")
    for label, chain in chains.items():
        if label != "SMH-2":
            two.plot(
                np.linspace(0, 1, len(chain.draws)), chain.draws[:, 0], label=label, linewidth=0.7
            )
    two.axhline(chains["SMH-2"].draws[:, 0].mean(), color="black", linestyle="--")
    two.set(xlabel="part of the run", title="figure 2: theta_1")
    two.legend(fontsize=7)
    save(panels, folder, "review_figures_1_3.png")


if __name__ == "__main__":
    main()

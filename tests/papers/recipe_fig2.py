"""[Ma 2015, fig.

2]: four samplers on two laws in one dimension, three on a banana, against quadrature.

    python tests/papers/recipe_fig2.py --out docs/figures
    python tests/papers/recipe_fig2.py --quick               # to see that it works

Left: Kullback-Leibler divergence of the histogram of all draws (80 bins on [-4, 4]) from the law.
Right: the same of a histogram in two dimensions, over the steps that a chain has made. Friction 1,
the metric G^-1 = 1.5 sqrt(U - min U + 1/2), dynamics one after the other, r first. A figure needs
matplotlib.
"""

import numpy as np
from common import PUBLISHED, axes, command, head, prepare, row, save

from dsgmcmc.densities.density import ALL, DoubleWell, Gaussian
from dsgmcmc.densities.sample import sample

TIME = 150
BURN_IN = 30
CHAINS = 4000
EDGES = np.linspace(-4, 4, 81)
CELLS = (np.linspace(-4, 4, 33), np.linspace(-3, 4, 29))
LEFT = {"SGLD": "sgld", "SGHMC": "sghmc", "naive SGRHMC": "gsgrhmc", "gSGRHMC": "gsgrhmc"}
RIGHT = {"SGLD": (0.01, 0.02, 0.03), "SGHMC": (0.05, 0.1, 0.2), "gSGRHMC": (0.02, 0.05, 0.1)}


class Energetic:
    """G^-1 = 1.5 sqrt(U - min U + 1/2) times the identity; steps are given in the time of the
    dynamics.
    """

    least = 0.0
    corrected = 1.0

    def metric(self, theta):
        above = self.energy(theta)[:, None] - self.least + 0.5
        root = np.sqrt(1.5) * above**0.25
        return np.repeat(
            root, theta.shape[1], axis=1
        ), self.corrected * 0.25 * root / above * self.gradient(theta)


class OnePeak(Energetic, Gaussian):
    """U = x^2 / 2."""

    def __init__(self):
        super().__init__(np.zeros(1), np.eye(1))


class TwoPeaks(Energetic, DoubleWell):
    """U = x^4 - 2 x^2."""

    least = -1.0
    curvature = np.ones(1)


class Banana(Energetic):
    """U = x1^4 / 10 + (4 (x2 + 1.2) - x1^2)^2 / 2: a ridge along a parabola."""

    dimension = 2
    n_data = 1
    curvature = np.ones(2)
    prior_mean = np.zeros(2)
    prior_precision = np.zeros(2)

    def energy(self, theta, data=ALL):
        """Energy, (n,) for theta (n, 2)."""
        x1, x2 = theta.T
        return x1**4 / 10 + (4 * (x2 + 1.2) - x1**2) ** 2 / 2

    def gradient(self, theta, data=ALL):
        """Gradient of the energy, (n, 2)."""
        x1, x2 = theta.T
        off = 4 * (x2 + 1.2) - x1**2
        return np.column_stack([0.4 * x1**3 - 2 * x1 * off, 4 * off])


def make(name, density, eps, chains):
    """A sampler of fig. 2, of step eps in time, and its target."""
    settings = {"step_size": eps}
    if name == "SGHMC":
        settings = {"step_size": eps**2 / 2, "gamma": 1.0, **PUBLISHED}
    density.corrected = float(name != "naive SGRHMC")
    return prepare(LEFT[name], density, rows=chains, gradient="full", **settings)


def divergence(counts, p):
    """Kullback-Leibler divergence of a histogram from probabilities."""
    q = counts / counts.sum()
    seen = q > 0
    return float((q[seen] * np.log(q[seen] / p[seen])).sum())


def cells(density, *edges, fine=20):
    """Probabilities of the cells of a histogram, by quadrature."""
    middles = (np.arange(fine) + 0.5) / fine
    grids = [(e[:-1, None] + np.diff(e)[:, None] * middles).ravel() for e in edges]
    points = np.stack([grid.ravel() for grid in np.meshgrid(*grids, indexing="ij")], axis=1)
    p = np.exp(-density.energy(points)).reshape(
        [s for grid in grids for s in (len(grid) // fine, fine)]
    )
    p = p.sum(axis=tuple(range(1, p.ndim, 2)))
    return p / p.sum()


def left(density, name, eps, chains):
    """Divergence, E x^2 over its exact value, and how many chains were lost."""
    sampler, target = make(name, density, eps, chains)
    every = max(1, round(0.5 / eps))
    counts = np.zeros(len(EDGES) - 1)
    squares = []
    with np.errstate(all="ignore"):
        for step, theta in enumerate(sample(target, sampler, round(TIME / eps), sd=0.5)):
            if step * eps >= BURN_IN and step % every == 0:
                x = theta[np.isfinite(theta)]
                counts += np.histogram(x, EDGES)[0]
                squares.append(np.mean(x[np.abs(x) < 4] ** 2))
    lost = int((~np.isfinite(theta)).sum())
    return divergence(counts, cells(density, EDGES)), float(np.mean(squares)), lost


def right(name, eps, chains, last):
    """Mean divergence over chains after 100 * 3^k steps, k = 0 .. last; infinite from where a chain
    is lost.
    """
    density = Banana()
    (sampler, target) = make(name, density, eps, chains)
    p = cells(density, *CELLS, fine=8)
    shape = tuple(len(edges) - 1 for edges in CELLS)
    counts = np.zeros((chains, *shape))
    found = []
    kept = []
    stops = [100 * 3**k for k in range(last + 1)]
    with np.errstate(all="ignore"):
        for step, theta in enumerate(sample(target, sampler, stops[-1], sd=0.5), start=1):
            kept.append(theta.copy())
            if len(kept) < 1000 and step not in stops:
                continue
            draws = np.array(kept)
            kept = []
            if not np.isfinite(draws).all():
                return found + [np.inf] * (len(stops) - len(found))
            places = [
                np.clip(np.searchsorted(e, draws[..., i]) - 1, 0, len(e) - 2)
                for i, e in enumerate(CELLS)
            ]
            np.add.at(counts, (np.broadcast_to(np.arange(chains), places[0].shape), *places), 1)
            if step in stops:
                found.append(float(np.mean([divergence(each, p) for each in counts])))
    return found


def main():
    """Print both tables, and draw them."""
    options = command(__doc__, "recipe_fig2.png").parse_args()
    chains, steps, last = (200, (0.05,), 2) if options.quick else (CHAINS, (0.05, 0.02), 6)
    bars = {}
    curves = {}
    head("sampler, energy, eps", "KL", "E x^2", "exact", "chains lost")
    for density, exact in ((OnePeak(), 1.0), (TwoPeaks(), DoubleWell.square)):
        for eps in steps:
            for name in LEFT:
                kl, square, lost = left(density, name, eps, chains)
                bars[type(density).__name__, eps, name] = kl
                law = type(density).__doc__.rstrip(".")
                row(f"{name}, {law}, eps {eps}", f"{kl:.4f}", f"{square:.4f}", f"{exact:.4f}", lost)
    head("sampler, eps", *(f"{100 * 3**k} steps" for k in range(last + 1)))
    for name, grid in RIGHT.items():
        for eps in grid:
            curves[name, eps] = right(name, eps, 10 if options.quick else 40, last)
            row(f"{name}, eps {eps}", *(f"{kl:.3f}" for kl in curves[name, eps]))
    if options.out:
        draw(bars, curves, steps[-1], options.out)


def draw(bars, curves, eps, folder):
    """The figure, as in the paper."""
    panels = axes(1, 2, size=(9, 3.4))
    one, two = panels[0]
    for shift, law in ((-0.2, "OnePeak"), (0.2, "TwoPeaks")):
        heights = [bars[law, eps, name] for name in LEFT]
        one.bar(
            np.arange(len(LEFT)) + shift,
            heights,
            0.4,
            label="one peak" if shift < 0 else "two peaks",
        )
    one.set_xticks(range(len(LEFT)), list(LEFT), fontsize=8)
    one.set(ylabel="Kullback-Leibler divergence", title=f"left: steps of {eps}")
    one.legend()
    for (name, step), curve in curves.items():
        best = min((c for (other, _), c in curves.items() if other == name), key=lambda c: c[-1])
        if curve is best:
            two.loglog(
                [100 * 3**k for k in range(len(curve))],
                curve,
                marker="o",
                label=f"{name}, eps {step}",
            )
    two.set(xlabel="steps", title="right: the step that ends lowest")
    two.legend()
    save(panels, folder, "recipe_fig2.png")


if __name__ == "__main__":
    main()

"""[Nemeth 2021, fig.

5]: a network on MNIST by stochastic gradients with and without control variates.

    python tests/papers/review_figure5.py mnist.npz --out docs/figures  # the small form
    python tests/papers/review_figure5.py mnist.npz --out docs/figures --iterations 10000
    python tests/papers/review_figure5.py mnist.npz --quick  # to see that it works

The file has arrays of images (n, 28, 28) or (n, 784), training digits first, and of labels (n,):
the last 10,000 are for testing. 784-100-10 units, softmax in both layers as the paper prints it,
552 images an iteration, normal priors whose four precisions, Gamma(1, 1), are drawn exactly after
every update. Steps are those of the paper's public code, in its units.

Chains start at N(0, 0.01) and burn in for as many iterations as are then looked at; those with
control variates start at the end of as many steps of gradient descent. A gradient call is the
gradient of one datum. Seconds are of CPU, without those of looking at test data. Some rows are not
the paper's: see the page.
"""

from math import sqrt
from pathlib import Path
from time import process_time
from typing import NamedTuple

import numpy as np
from common import PLAIN, PUBLISHED, axes, command, digits, head, prepare, row, save
from neural_network import Network

from dsgmcmc.densities.density import prior_gradient

HIDDEN = 100
BATCH = 552
TEST = 10_000
SD = 0.1
LOOKS = 20
STEPS = {"SGLD": 1e-4, "SGHMC": 4e-6, "SGNHT": 7e-6}  # h, and twice h^2 of momenta
PAPER = tuple(f"{name}{cv}" for name in STEPS for cv in ("", "-CV"))
OURS = ("SGLD, from the optimum", "SGNHT, a thermostat an element", "SGLD, sigmoid")


class Curve(NamedTuple):
    """Gradient calls so far, log losses of states and of mean predictions, accuracy, seconds."""

    calls: list[float]
    single: list[float]
    mean: list[float]
    accuracy: float
    seconds: float


class Experiment:
    """Data, and what has been done with them."""

    def __init__(self, path, iterations, quick):
        images, labels = digits(path)
        test = TEST // 20 if quick else TEST
        n = 20 * BATCH if quick else len(labels) - test
        self.train = (images[:n], labels[:n])
        self.test = (images[-test:], labels[-test:])
        self.iterations = iterations
        self.grid = n // BATCH

    def network(self, activation):
        """The density, its steps in the units of the paper."""
        return Network(*self.train, HIDDEN, activation, 1 / 255)

    def optimum(self):
        """Gradient descent at the step of SGLD, and its seconds; precisions are 1, with which no
        weights vanish.
        """
        density = self.network("softmax")
        rng = np.random.default_rng(1)
        begin = process_time()
        theta = SD * rng.normal(size=(1, density.dimension))
        for _ in range(self.iterations):
            part = slice(rng.integers(self.grid), None, self.grid)
            gradient = self.grid * density.gradient(theta, part) + prior_gradient(density, theta)
            theta -= STEPS["SGLD"] / 2 * gradient
        return theta, process_time() - begin

    def losses(self, p):
        """Log loss and accuracy of probabilities of the test data."""
        labels = self.test[1]
        loss = -np.log(np.maximum(p[np.arange(len(labels)), labels], 1e-300)).mean()
        return float(loss), float((p.argmax(axis=1) == labels).mean())

    def chain(self, name, start=None, spent=0.0):
        """Run a chain from a state, or through burn-in, and look at it `LOOKS` times in either
        half.
        """
        density = self.network("sigmoid" if "sigmoid" in name else "softmax")
        sampler, target = make(name, density, self.grid)
        sampler.start(target, SD)
        if start is not None:
            target.block["theta"][:] = start
        burn_in = self.iterations if start is None else 0
        before = 0 if start is None else self.iterations * BATCH
        anchored = sampler.config.gradient == "control-variate"
        rng = np.random.default_rng(2)
        every = max(1, self.iterations // LOOKS)
        curve = Curve([], [], [], 0.0, 0.0)
        total = 0.0
        seen = 0
        seconds = spent
        for iteration in range(burn_in + self.iterations):
            begin = process_time()
            sampler.advance(target, iteration, 1)
            theta = target.block["theta"]
            draw_precisions(density, theta[0], rng)
            seconds += process_time() - begin
            if (iteration + 1) % every:
                continue
            p = density.probabilities(theta, self.test[0])[0]
            calls = (1 + anchored) * BATCH * (iteration + 1) + anchored * density.n_data
            curve.calls.append(before + calls)
            curve.single.append(self.losses(p)[0])
            if iteration >= burn_in:
                total = total + p
                seen = seen + 1
                curve.mean.append(self.losses(total / seen)[0])
        self.last = theta.copy()
        return curve._replace(accuracy=self.losses(total / seen)[1], seconds=seconds)

    def noise(self, theta, anchor):
        """Variance of a part's gradient with control variates over that without, at a state."""
        density = self.network("softmax")
        parts = range(0, self.grid, max(1, self.grid // 24))
        plain = [density.gradient(theta, slice(part, None, self.grid))[0] for part in parts]
        fixed = [density.gradient(anchor, slice(part, None, self.grid))[0] for part in parts]
        return float(np.var(np.subtract(plain, fixed), axis=0).sum() / np.var(plain, axis=0).sum())


def draw_precisions(density, theta, rng):
    """Precisions of the groups given their elements, Gamma(1 + m / 2, 1 + |v|^2 / 2)."""
    for place in density.groups.values():
        v = theta[place]
        density.prior_precision[place] = rng.gamma(1 + v.size / 2) / (1 + v @ v / 2)


def algorithm_of(name):
    """Sampler of a row."""
    return name.split(",")[0].removesuffix("-CV")


def make(name, density, grid):
    """Sampler of a row, and its target; eps is half of the paper's h, or of its h^2 where there is
    a momentum.
    """
    algorithm = algorithm_of(name)
    eps = STEPS[algorithm] / 2
    friction = 0.01 / sqrt(2 * eps)
    settings = {
        "SGLD": {},
        "SGHMC": {**PUBLISHED, "gamma": friction, "refresh": 5},
        "SGNHT": {
            **PLAIN,
            "thermostat": "element" if "element" in name else "scalar",
            "diffusion": friction,
        },
    }[algorithm]
    gradient = "control-variate" if "-CV" in name else "part"
    return prepare(
        algorithm.lower(), density, grid=grid, step_size=eps, gradient=gradient, **settings
    )


def main():
    """Print the table, and draw the figure."""
    parser = command(__doc__, "review_figure5.png")
    parser.add_argument("data", type=Path)
    parser.add_argument(
        "--iterations", type=int, default=1000, help="of burn-in or descent, and of looking"
    )
    options = parser.parse_args()
    experiment = Experiment(
        options.data, LOOKS if options.quick else options.iterations, options.quick
    )
    start, spent = experiment.optimum()
    losses = experiment.losses(
        experiment.network("softmax").probabilities(start, experiment.test[0])[0]
    )
    n = len(experiment.train[1])
    print(
        f"{n:,} images; after descent log loss {losses[0]:.4f}, accuracy {losses[1]:.4f},"
        f" {spent:.0f} s\n"
    )
    head(
        "",
        "step",
        "log loss of states",
        "of their mean",
        "accuracy of it",
        "passes",
        "seconds",
        "gradient calls",
    )
    curves = {}
    for name in (*PAPER, *OURS):
        placed = (start, spent) if "-CV" in name or "optimum" in name else ()
        curve = curves[name] = experiment.chain(name, *placed)
        step = STEPS[algorithm_of(name)]
        single = np.mean(curve.single[-len(curve.mean) :])
        losses = (
            f"{step:g}",
            f"{single:.3f}",
            f"{curve.mean[-1]:.3f}",
            f"{100 * curve.accuracy:.1f} %",
        )
        row(
            name,
            *losses,
            f"{curve.calls[-1] / n:.0f}",
            f"{curve.seconds:.0f}",
            f"{curve.calls[-1] / 1e6:.1f} million",
        )
        if name == "SGLD-CV":
            noise = experiment.noise(experiment.last, start)
    head("variance of the gradient", "with control variates over that without")
    row("where SGLD-CV ends", f"{noise:.2f}")
    if options.out:
        draw(curves, n, options.out)


def draw(curves, n, folder):
    """Log loss of single states, and of mean predictions, over passes."""
    panels = axes(1, 2, size=(10, 3.8), sharey=True)
    for name in PAPER:
        curve = curves[name]
        algorithm = name.removesuffix("-CV")
        style = {
            "color": f"C{list(STEPS).index(algorithm)}",
            "ls": "--" if "-CV" in name else "-",
            "label": name,
            "lw": 1.2,
        }
        passes = np.array(curve.calls) / n
        panels[0, 0].plot(passes, curve.single, **style)
        panels[0, 1].plot(passes[-len(curve.mean) :], curve.mean, **style)
    for axis, title in zip(
        panels[0], ("single states", "mean of the predictions so far"), strict=True
    ):
        axis.set(xlabel="passes over the data", title=title, yscale="log")
    panels[0, 0].set_ylabel("log loss, test data")
    panels[0, 0].legend(fontsize=8)
    save(panels, folder, "review_figure5.png")


if __name__ == "__main__":
    main()

"""[El Hanchi 2019], table 1 and figures 1 to 19: adaptive subsampling on the zeros and ones of
MNIST.

    python tests/papers/adaptive.py mnist.npz --out docs/figures                  # the small form
    python tests/papers/adaptive.py mnist.npz --out docs/figures --long 100000  # longer chains
    python tests/papers/adaptive.py mnist.npz --quick  # to see that it runs

The file has arrays of images (n, 28, 28) or (n, 784) and of labels (n,). Coefficients of a logistic
regression on ten (figures 1 to 15) or a hundred (16 to 19) principal components, N(0, 1) before the
data, 122 data an iteration, all chains from the mode. The truth is MALA in the coordinates in which
the normal approximation at the mode is round, eight chains together. Noise of gradients is the
largest eigenvalue of their exact covariance given theta and the tables.
"""

from math import sqrt

import numpy as np
from common import axes, command, digits, follow, head, prepare, row, save, short
from scipy.optimize import minimize
from scipy.stats import kurtosis

from dsgmcmc.densities.density import posterior_gradient, prior_energy
from dsgmcmc.densities.models.regression import Regression
from dsgmcmc.densities.sample import sample
from dsgmcmc.densities.subsampling import DATUM_GRADIENTS

SIZE = 122
STEPS = (5e-3, 5e-4, 5e-5)
EPS = 5e-3
#: Rows of the table of laws: sampler, gradient, eps.
LAWS = {
    "LD, all data": ("sgld", "full", EPS),
    "SGLD": ("sgld", "part", EPS),
    "SAGA": ("sgld", "saga", EPS),
    "IS": ("sgld", "importance", EPS),
    "IS-SAGA": ("sgld", "importance-saga", EPS),
    "SAGA, eps .0005": ("sgld", "saga", EPS / 10),
    "modified SGLD, weights as printed": ("adjusted_sgld", "adaptive-published", EPS),
    "modified SGLD, `adaptive-stored`": ("adjusted_sgld", "adaptive-stored", EPS),
    "modified SGLD, `adaptive`": ("adjusted_sgld", "adaptive", EPS),
    "`adaptive`, noise not adjusted": ("sgld", "adaptive", EPS),
}
MODIFIED = [name for name in LAWS if name.startswith("modified")]
LABELS = ("MH", "stochastic MH", "modified MH", "austerity")
KERNELS = dict(
    zip(LABELS, ("mh", "stochastic_mh", "modified_stochastic_mh", "austerity"), strict=True)
)
DRAWN = ("LD, all data", "SGLD", "modified SGLD, weights as printed", "modified SGLD, `adaptive`")


class Problem:
    """A posterior, its mode, moments, and the directions in which it is widest and narrowest."""

    def __init__(self, path, components, draws):
        images, labels = digits(path)
        pixels = images[labels <= 1] / 255.0
        pixels -= pixels.mean(axis=0)
        _, vectors = np.linalg.eigh(pixels.T @ pixels)
        self.density = density = Regression(
            pixels @ vectors[:, : -components - 1 : -1], labels[labels <= 1]
        )
        self.grid = density.n_data // SIZE

        def energy(theta):
            at = theta[None]
            return (density.energy(at) + prior_energy(density, at))[0], posterior_gradient(
                density, at
            )[0]

        self.mode = minimize(energy, np.zeros(components), jac=True).x
        self.hessian = density.hessian(self.mode)
        self.draws = self.truth(draws)
        self.mean = self.draws.mean(axis=0)
        self.variance = self.draws.var(axis=0)
        self.axes = np.linalg.eigh(np.cov(self.draws, rowvar=False))[1][:, [-1, 0]]

    def truth(self, number):
        """Draws (8 number, D) of the posterior itself."""
        density = self.density
        root = np.linalg.inv(np.linalg.cholesky(self.hessian)).T
        round_ = Regression(
            density.features @ root, density.responses, prior_precision=root.T @ root
        )
        round_.curvature = 1 - np.diag(round_.prior_precision)
        round_.start = np.linalg.solve(root, self.mode)
        sampler, target = prepare("mala", round_, rows=8, step_size=0.6 / len(self.mode) ** (1 / 3))
        states = [theta @ root.T for theta in sample(target, sampler, number + number // 10)]
        print(f"acceptance of the truth's chains {sampler.metrics()['acceptance']:.2f}", flush=True)
        return np.concatenate(states[number // 10 :])

    def chain(self, name, gradient, eps, iterations, record=None):
        """States from the mode on, seconds, and the sampler; `look(target, sampler, iteration)`
        before iterations.
        """
        step = eps * self.density.curvature.max()
        sampler, target = prepare(
            name, self.density, grid=self.grid, step_size=step, gradient=gradient
        )
        return *follow(sampler, target, iterations, self.mode, look=record), sampler

    def kernel(self, name, variance, iterations):
        """States of a Metropolis kernel that walks with steps N(0, variance I), and what it
        counted.
        """
        more = {"batch": SIZE, "risk": 0.01} if name != "mh" else {}
        scale = sqrt(variance * self.density.n_data)
        sampler, target = prepare(name, self.density, proposal="walk", scale=scale, **more)
        states, _ = follow(sampler, target, iterations, self.mode)
        return states, sampler.metrics()

    def size(self):
        """What errors compare with."""
        mean, variance = (float(np.linalg.norm(each)) for each in (self.mean, self.variance))
        return f"norms of mean and variance {mean:.3g}, {variance:.3g}"

    def errors(self, states):
        """Norms of the errors of mean and variance."""
        wrong = states.mean(axis=0) - self.mean, states.var(axis=0) - self.variance
        return [float(np.linalg.norm(each)) for each in wrong]


def noise(density, sampler, target):
    """Largest variance of the gradient at the state: of (sum a a^T / p - a a^T) / S for the terms a
    of all data.
    """
    block = target.block
    p = np.full(density.n_data, 1 / density.n_data)
    terms = density.gradients(block["theta"])[0]
    if type(sampler.gradient) in DATUM_GRADIENTS.values():
        p = sampler.gradient.probabilities(target, 0, block["theta"][0])
        if sampler.gradient.control_variate:
            terms = terms - density.spread(sampler.gradient.table)[0]
    total = terms.sum(axis=0)
    drawn = p > 0
    covariance = terms[drawn].T @ (terms[drawn] / p[drawn, None]) - np.outer(total, total)
    return float(np.linalg.eigvalsh(covariance / SIZE)[-1])


def along_one_path(problem, eps, iterations):
    """Noise of every estimator that follows the same path of LD, with draws and tables of its
    own.
    """
    density = problem.density
    rng = np.random.default_rng(0)
    settings = {"grid": problem.grid, "step_size": eps * density.curvature.max()}
    followers = {}
    for name in (None, *DATUM_GRADIENTS):
        followers[name or "uniform"] = prepare("sgld", density, gradient=name, **settings)
    theta = problem.mode.copy()
    found = {name: [] for name in followers}
    for iteration in range(iterations):
        for name, (sampler, target) in followers.items():
            target.begin(iteration)
            target.block["theta"][0] = theta
            if iteration >= iterations // 2 and iteration % 25 == 0:
                found[name].append(noise(density, sampler, target))
            if name != "uniform":
                for _ in sampler.gradient(target, "theta"):
                    pass
        gradient = posterior_gradient(density, theta[None])[0]
        theta = theta - eps * gradient + sqrt(2 * eps) * rng.normal(size=theta.shape)
    return {name: float(np.mean(values)) for name, values in found.items()}


def on_their_own(problem, eps, iterations):
    """Noise of estimators along the chains that they drive: the paper's table 1, and its modified
    SGLD.
    """
    found = {}
    for name in ("SGLD", "SAGA", "IS", "IS-SAGA", *MODIFIED):
        seen = []

        def record(target, sampler, iteration, seen=seen):
            if iteration >= iterations // 2 and iteration % 25 == 0:
                seen.append(noise(problem.density, sampler, target))

        problem.chain(*LAWS[name][:2], eps, iterations, record)
        found[name] = float(np.mean(seen))
    return found


def table(rows, what):
    """Print dicts, one for each of `STEPS`, as the rows of a table."""
    head(f"eps, {what}", *rows[0])
    for eps, found in zip(STEPS, rows, strict=True):
        row(f"{eps:.5f}".rstrip("0"), *map(short, found.values()))


def autocorrelation(states, lag):
    """Of a series (T,)."""
    off = states - states.mean()
    return float((off[lag:] * off[:-lag]).mean() / off.var())


def laws(problem, iterations):
    """Table of what the chains of ten dimensions sample; the states of those that are drawn."""
    truth = (problem.draws @ problem.axes).var(axis=0)
    kept = {}
    print(f"\n{problem.size()}; variance along axes {truth[0]:.3g}, {truth[1]:.3g}")
    head(
        "",
        "widest variance",
        "narrowest",
        "error of mean",
        "of variance",
        "ACF at 10",
        "nothing added",
        "seconds",
    )
    for name, settings in LAWS.items():
        states, seconds, sampler = problem.chain(*settings, iterations + iterations // 2)
        kept[name] = states = states[iterations // 2 :]
        ratio = (states @ problem.axes).var(axis=0) / truth
        errors = problem.errors(states)
        clipped = sampler.metrics().get("clipped")
        rest = "" if clipped is None else f"{100 * clipped:.1f} %"
        acf = autocorrelation(states @ problem.axes[:, 0], 10)
        row(name, *map(short, (*ratio, *errors)), f"{acf:.2f}", rest, f"{seconds:.1f}")
    return kept


def estimators(problem, number):
    """Figures 2, 5, 11 and 14: sd and excess kurtosis of this many estimates at the mode."""
    density = problem.density
    rng = np.random.default_rng(3)
    theta = problem.mode[None]
    energies = density.energies(theta)[0]
    gradients = density.gradients(theta)[0]
    widest = np.linalg.eigh(gradients.T @ gradients)[1][:, -1]
    head("estimate at the mode", "uniform sd", "uniform kurtosis", "sd by size", "kurtosis by size")
    lengths = np.linalg.norm(gradients, axis=1)
    for what, terms, weights in (
        ("U", energies, np.abs(energies)),
        ("gradient", gradients @ widest, lengths),
    ):
        cells = []
        for share in (0.0, 0.5):
            p = share * weights / weights.sum() + (1 - share) / len(terms)
            found = (terms / p)[rng.choice(len(terms), size=(number, SIZE), p=p)].mean(axis=1)
            cells += [short(found.std()), f"{kurtosis(found):.2f}"]
        row(what, *cells)


def kernels(problem, variance, iterations):
    """Figures 1, 10, 12: Metropolis kernels in ten dimensions."""
    truth = (problem.draws @ problem.axes).var(axis=0)
    head(
        "",
        "accepted",
        "longest stay",
        "evaluations a step",
        "widest variance",
        "narrowest variance",
    )
    for label, name in KERNELS.items():
        states, metrics = problem.kernel(name, variance, iterations)
        moved = np.flatnonzero(np.any(np.diff(states, axis=0) != 0, axis=1))
        stay = int(np.diff(np.concatenate([[0], moved, [iterations]])).max())
        ratio = map(short, (states @ problem.axes).var(axis=0) / truth)
        row(
            label,
            f"{metrics['acceptance']:.2f}",
            f"{stay:,}",
            f"{metrics['evaluations']:,.0f}",
            *ratio,
        )


def against_calls(problem, long):
    """Figures 16 to 19: errors of mean and variance from the mode on, over calls of gradients or
    energies.
    """
    n = problem.density.n_data
    curves = {}
    ends = {}
    few = max(20, round(2 * long * SIZE / n))

    def show(label, states, each, first=0.0):
        stops = np.unique(np.geomspace(10, len(states), 16).astype(int))
        errors = np.array([problem.errors(states[:stop]) for stop in stops])
        curves[label] = first + each * stops, errors
        ends[label] = f"{curves[label][0][-1] / 1e6:.2f}", f"{each:,.0f}", *map(short, errors[-1])

    print(f"\n{problem.size()}")
    show("LD, all data", problem.chain("sgld", "full", EPS, few)[0], n)
    show("SGLD", problem.chain("sgld", "part", EPS, long)[0], SIZE)
    for name in MODIFIED:
        show(name, problem.chain(*LAWS[name], long)[0], SIZE, n)
    show(
        "`adaptive`, eps 0.001",
        problem.chain("adjusted_sgld", "adaptive", EPS / 5, long)[0],
        SIZE,
        n,
    )
    for label in ("MH", "modified MH"):
        states, metrics = problem.kernel(KERNELS[label], 3e-3, few if label == "MH" else long // 4)
        show(label, states, metrics["evaluations"])
    head("in 100 dimensions", *ends)
    for title, *cells in zip(
        ("million calls", "a step", "error of mean", "of variance"), *ends.values(), strict=True
    ):
        row(title, *cells)
    return curves


def draw(problem, states, curves, folder):
    """Marginals in ten dimensions, errors in a hundred."""
    panels = axes(2, 2, size=(9.5, 6.5))
    for axis, direction, title in zip(
        panels[0], problem.axes.T, ("widest", "narrowest"), strict=True
    ):
        exact = problem.draws @ direction
        edges = np.linspace(exact.mean() - 6 * exact.std(), exact.mean() + 6 * exact.std(), 61)
        axis.hist(exact, edges, density=True, color="0.8", label="posterior")
        for name in DRAWN:
            axis.hist(
                states[name] @ direction, edges, density=True, histtype="step", lw=1.3, label=name
            )
        axis.set(title=f"10 components, eps .005: the {title} direction", yticks=[])
    panels[0, 0].legend(fontsize=7)
    for axis, which, title in zip(panels[1], (0, 1), ("mean", "variance"), strict=True):
        for name, (calls, errors) in curves.items():
            axis.loglog(calls, errors[:, which], label=name, lw=1.3)
        axis.set(
            title=f"100 components: error of the {title}",
            xlabel="gradients or energies of single data",
        )
    panels[1, 1].legend(fontsize=6)
    save(panels, folder, "adaptive.png")


def main():
    """Print the tables, and draw the figure."""
    parser = command(__doc__, "adaptive.png")
    parser.add_argument("data")
    parser.add_argument(
        "--long",
        type=int,
        default=6000,
        help="iterations of chains in 100 dimensions that subsample",
    )
    options = parser.parse_args()
    iterations, long = (100, 200) if options.quick else (4000, options.long)
    ten = Problem(options.data, 10, iterations // 2)
    print(f"{ten.density.n_data:,} data")
    table([along_one_path(ten, eps, iterations // 2) for eps in STEPS], "one path of LD")
    table([on_their_own(ten, eps, iterations // 2) for eps in STEPS], "chains of their own")
    states = laws(ten, iterations)
    estimators(ten, 20 * iterations)
    kernels(ten, 0.01, iterations)
    hundred = Problem(options.data, 100, iterations // 3)
    curves = against_calls(hundred, long)
    if options.out:
        draw(ten, states, curves, options.out)


if __name__ == "__main__":
    main()

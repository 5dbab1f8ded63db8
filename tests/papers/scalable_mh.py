"""Figures 1 to 9 of [Cornish 2019] by the kernels of this package.

    python tests/papers/scalable_mh.py --out docs/figures
    python tests/papers/scalable_mh.py --runs 20                 # as many runs as the paper's
    python tests/papers/scalable_mh.py --quick                   # to see that it works
    python tests/papers/scalable_mh.py --model wide              # figure 6, a small form
    python tests/papers/scalable_mh.py --model robust            # figures 7 to 9, a small form
    python tests/papers/scalable_mh.py --model robust --exponents 6 8 10 12 --runs 20

Logistic regression, d = 10 (wide: 20), x ~ N(0, I), theta = 1, y Bernoulli, or robust regression
with Student's t of 4 degrees of freedom and errors N(0, 1); n = 2^6 .. 2^17, 20,000 iterations a
run from the normal approximation at the mode, in the small forms n = 2^9 .. 2^15 and 5,000.
Proposal (16), N(theta, H^-1), and pCN. The prior is N(0, 100 I) where the paper's is flat, as small
data may be separable. Plain Metropolis-Hastings is the same compiled loop with its limit at 0, so
that it pays neither for Python nor for other code.

Evaluations are of the energy of a datum, after the first tenth. ESS is by overlapping batch means
of every fifth state, batches of T^(2/3), averaged over the elements of theta. Seconds a step are
CPU seconds of whole blocks of iterations, kernel after kernel for each n, in the same run. Writes
``scalable_mh.png`` and prints tables. Left out: the paper's Firefly and Zig-Zag curves.
"""

from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from common import axes, command, follow, head, prepare, row, save, short
from scipy.stats import skew

from dsgmcmc.densities.models.regression import LOGISTIC, Link, Regression, student

APART = 5


class Model(NamedTuple):
    """An experiment: dimension, link, exponents of n, those for pCN, and iterations."""

    dimension: int
    link: Link
    exponents: tuple[int, ...]
    pcn: tuple[int, ...]
    iterations: int


MODELS = {
    "logistic": Model(10, LOGISTIC, (6, 8, 10, 12, 14, 16, 17), (10, 13, 16), 20_000),
    "wide": Model(20, LOGISTIC, (9, 12, 15), (), 5_000),
    "robust": Model(10, student(4.0), (9, 12, 15), (9, 12, 15), 5_000),
}
KERNELS = {
    "MH": ("smh2", {"fallback": 0.0}),
    "SMH-1, published bound": ("smh1", {"bound": "published"}),
    "SMH-2, published bound": ("smh2", {"bound": "published"}),
    "SMH-1, whitened bound": ("smh1", {"bound": "whitened"}),
    "SMH-2, whitened bound": ("smh2", {"bound": "whitened"}),
}


class Measured(NamedTuple):
    """What a chain was seen to do, by step."""

    acceptance: float
    evaluations: float
    microseconds: float
    ess: float

    @property
    def ess_per_second(self) -> float:
        """Effective draws a CPU second."""
        return 1e6 * self.ess / self.microseconds


def data(model: Model, n: int, run: int) -> Regression:
    """Of the paper's section 4 and supplement G."""
    rng = np.random.default_rng([n, run])
    x = rng.normal(size=(n, model.dimension))
    if model.link is LOGISTIC:
        y = rng.random(n) < 1 / (1 + np.exp(-x.sum(axis=1)))
    else:
        y = x.sum(axis=1) + rng.normal(size=n)
    return Regression(x, y, model.link, prior_precision=0.01)


def effective(draws: np.ndarray) -> float:
    """Effective number of draws (T, d), by overlapping batch means."""
    t = len(draws)
    b = int(t ** (2 / 3))
    sums = np.concatenate(
        [np.zeros((1, draws.shape[1])), np.cumsum(draws - draws.mean(axis=0), axis=0)]
    )
    means = (sums[b:] - sums[:-b]) / b
    variance = t * b / ((t - b) * (t - b + 1)) * (means**2).sum(axis=0)
    return float((t * draws.var(axis=0) / np.maximum(variance, 1e-300)).mean())


def measure(density: Regression, name: str, iterations: int, run: int, **settings: Any) -> Measured:
    """Run a chain, look at every fifth state, and time blocks of steps apart from that."""
    burn_in = iterations // 10
    sampler, target = prepare(name, density, burn_in, seed=run, **settings)
    states, _ = follow(sampler, target, iterations, thin=APART)
    moves, evaluations, _, steps = sampler.counts[0].copy()
    block = min(4096, max(1, 2**24 // density.n_data))
    made = 0
    begin = process_time()
    while made < iterations // 2 and process_time() - begin < 5:
        sampler.advance(target, iterations + made, block)
        made += block
    seconds = process_time() - begin
    draws = states[burn_in // APART :]
    return Measured(
        moves / steps,
        evaluations / steps,
        1e6 * seconds / made,
        effective(draws) / (APART * len(draws)),
    )


def table(rows: dict[str, dict[int, Measured]], what: str, title: str = "") -> None:
    """Print a table of one quantity by kernel and n."""
    head(title + what, *(f"2^{n.bit_length() - 1}" for n in next(iter(rows.values()))))
    for name, by_n in rows.items():
        row(name, *(short(getattr(measured, what)) for measured in by_n.values()))


def figures(model: Model, runs: int, out: Path | None) -> None:
    """Evaluations, seconds and effective draws of every kernel at every n."""
    found: dict[str, dict[int, Measured]] = {name: {} for name in KERNELS}
    for n in (1 << exponent for exponent in model.exponents):
        for label, (name, settings) in KERNELS.items():
            each = [
                measure(data(model, n, run), name, model.iterations, run, **settings)
                for run in range(runs)
            ]
            found[label][n] = Measured(*np.mean(each, axis=0))
    head(
        f"at n = {n:,}",
        "acceptance",
        "evaluations a step",
        "microseconds a step",
        "ESS a second",
        "slope from n / 8",
    )
    for name, by_n in found.items():
        large = np.log(
            [
                (size, m.evaluations)
                for size, m in by_n.items()
                if 8 * size >= n and m.evaluations > 0
            ]
        )
        slope = np.polyfit(*large.T, 1)[0] if len(large) > 1 else np.nan
        row(name, *map(short, (*by_n[n][:3], by_n[n].ess_per_second)), f"{slope:.2f}")
    for what in ("evaluations", "microseconds", "acceptance", "ess_per_second"):
        table(found, what)
    if out is not None:
        draw(found, out)


def draw(found: dict[str, dict[int, Measured]], out: Path) -> None:
    """The paper's figures 1 and 2 side by side."""
    panels = axes(1, 2, size=(10, 4))
    for axis, what in zip(panels[0], ("evaluations", "ess_per_second"), strict=True):
        for name, by_n in found.items():
            axis.loglog(
                list(by_n), [getattr(m, what) for m in by_n.values()], "o-", base=2, label=name
            )
        axis.set(
            xlabel="n",
            title={"evaluations": "evaluations a step", "ess_per_second": "ESS a second"}[what],
        )
    panels[0, 0].legend(fontsize=8)
    save(panels, out, "scalable_mh.png")


def crank_nicolson(model: Model, sizes: list[int]) -> None:
    """Acceptance and effective draws of pCN, which depend on n and rho."""
    rows: dict[str, dict[int, Measured]] = {}
    for label in ("MH", "SMH-2, published bound"):
        for rho in (0.9, 0.5, 0.0):
            name, settings = KERNELS[label]
            more = {**settings, "proposal": "pcn", "rho": rho}
            rows[f"{label}, rho = {rho:g}"] = {
                n: measure(data(model, n, 0), name, min(model.iterations, 5_000), 0, **more)
                for n in sizes
            }
    for what in ("acceptance", "ess_per_second"):
        table(rows, what, "pCN: ")


def normality(model: Model, sizes: list[int]) -> None:
    """Figure 5: theta_1 by SMH-2 with pCN, 50,000 iterations, compared with the normal
    approximation at the mode.
    """
    head("n", "mean in sd of the approximation", "sd / its sd", "skewness", "effective draws")
    for n in sizes:
        sampler, target = prepare("smh2", data(model, n, 0), proposal="pcn", rho=0.5)
        states, _ = follow(sampler, target, 10 * min(model.iterations, 5_000), thin=APART)
        _, normal = sampler.prepared(target)
        x = (states[:, 0] - normal.mean[0]) / np.linalg.norm(normal.root[0])
        row(
            f"{n:,}",
            f"{x.mean():+.3f}",
            f"{x.std():.3f}",
            f"{skew(x):+.2f}",
            f"{effective(x[:, None]):,.0f}",
        )


def main() -> None:
    """Run it."""
    parser = command(__doc__, "scalable_mh.png, of the logistic model")
    parser.add_argument("--model", choices=MODELS, default="logistic")
    parser.add_argument("--exponents", type=int, nargs="+", help="of n, in place of the model's")
    parser.add_argument("--iterations", type=int, help="in place of the model's")
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    model = MODELS[options.model]
    if options.quick:
        model = model._replace(exponents=(6, 9), pcn=(8,), iterations=1_000)
    model = model._replace(
        exponents=tuple(options.exponents or model.exponents),
        iterations=options.iterations or model.iterations,
    )
    figures(model, options.runs, options.out)
    if model.pcn:
        crank_nicolson(model, [1 << exponent for exponent in model.pcn])
    if options.model == "logistic":
        normality(model, [1 << exponent for exponent in ((8,) if options.quick else (11, 14, 17))])


if __name__ == "__main__":
    main()

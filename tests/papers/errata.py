"""The numbers of docs/papers/what-is-here.md, computed anew: formulas as printed beside those that
hold.

    python tests/papers/errata.py

A quarter of a minute of one core.
"""

from math import sqrt

import numpy as np
from common import PLAIN, PUBLISHED, head, prepare, row
from recipe import Dynamics, euler, residual
from stein import stein_kernel

from dsgmcmc.densities.density import Gaussian
from dsgmcmc.densities.sample import sample

RNG = np.random.default_rng(0)


def each(*numbers):
    """(n, 1, 1) arrays as (n, m, m) matrices of rows of them."""
    size = round(sqrt(len(numbers)))
    return np.stack(numbers, axis=-1).reshape(len(numbers[0]), size, size)


def correction():
    """Gamma and its sign: D = 1/2 + 1 / (1 + x^2) on N(0, 1), Euler steps of .01, 4,000 chains."""
    d = lambda x: 0.5 + 1 / (1 + x**2)  # noqa: E731
    slope = lambda x: -2 * x / (1 + x**2) ** 2  # noqa: E731
    grid = np.linspace(-8, 8, 100_001)
    for label, sign, law in (
        ("Gamma with a plus, as derived", 1.0, np.exp(-(grid**2) / 2)),
        ("Gamma left out", 0.0, np.exp(-(grid**2) / 2) / d(grid)),
        ("Gamma inside the bracket, as printed", -1.0, np.exp(-(grid**2) / 2) / d(grid) ** 2),
    ):
        dynamics = Dynamics(
            lambda z: z,
            lambda z: d(z)[:, :, None],
            lambda z: 0 * z[:, :, None],
            lambda z, s=sign: s * slope(z),
        )
        z = RNG.normal(size=(4000, 1))
        squares = []
        for step in range(3000):
            z = euler(dynamics, z, 0.01, RNG.normal(size=z.shape))
            if step > 500 and step % 20 == 0:
                squares.append((z**2).mean())
        quadrature = (law * grid**2).sum() / law.sum()
        row(f"E x^2, {label}", f"{np.mean(squares):.3f}", f"{quadrature:.3f}", "")


def riemannian(friction, divergence):
    """[Ma 2015, eq.

    17] in one dimension with signs, at U = x^2 / 2 and S = sqrt(1.5) (U + 1/2)^(1/4).
    """
    s = lambda x: sqrt(1.5) * (x**2 / 2 + 0.5) ** 0.25  # noqa: E731
    slope = lambda x: sqrt(1.5) * 0.25 * x * (x**2 / 2 + 0.5) ** -0.75  # noqa: E731
    gradient = lambda z: z  # noqa: E731
    zero = lambda z: 0 * z[:, 0]  # noqa: E731
    dynamics = Dynamics(
        gradient,
        lambda z: each(zero(z), zero(z), zero(z), s(z[:, 0]) ** 2),
        lambda z: each(zero(z), -s(z[:, 0]), s(z[:, 0]), zero(z)),
    )

    def found(z):
        x, r = z.T
        return np.stack(
            [s(x) * r, -s(x) * x + divergence * slope(x) + friction * s(x) ** 2 * r], axis=1
        )

    return np.abs(residual(dynamics, RNG.normal(size=(9, 2)), found)).max()


def signs_of_eq_17():
    """The last two signs."""
    for label, friction, divergence in (
        ("algorithm 1", -1, 1),
        ("eq. 17 as printed", 1, -1),
        ("eq. 16", -1, 0),
    ):
        row(f"Fokker-Planck residual, {label}", f"{riemannian(friction, divergence):.1g}", 0, "")


def thermostat():
    """H of SGNHT: (d/2)(xi - A)^2, or divided by 2 d; the dynamics of eq. 15, d = 2."""
    d = 2
    a = 0.5

    def grad(weight):
        return lambda z: np.hstack([z[:, :d], z[:, d : 2 * d], weight * (z[:, 2 * d :] - a)])

    def found(z):
        theta = z[:, :d]
        r = z[:, d : 2 * d]
        xi = z[:, 2 * d :]
        return np.hstack([r, -theta - xi * r, (r**2).sum(axis=1, keepdims=True) / d - 1])

    matrix = np.diag([0.0] * d + [a] * d + [0.0])
    for label, weight in (("(d / 2) (xi - A)^2", d), ("(xi - A)^2 / (2 d), as printed", 1 / d)):
        dynamics = Dynamics(grad(weight), lambda z: np.tile(matrix, (len(z), 1, 1)), lambda z: 0)
        left = np.abs(residual(dynamics, RNG.normal(size=(9, 5)), found)).max()
        row(f"Fokker-Planck residual of eq. 15, H with {label}", f"{left:.1g}", 0, "")
    sampler, target = prepare(
        "sgnht", Gaussian(np.zeros(5), np.eye(5)), rows=4000, step_size=0.05**2 / 2, **PLAIN
    )
    variance = np.mean(
        [target.block["xi"].var() for t, _ in enumerate(sample(target, sampler, 3000)) if t > 1000]
    )
    row("Var xi, d = 5", f"{variance:.3f}", 1 / 5, 5)


def variance(update):
    """Variance of theta after the first 1,000 of 4,000 updates of (theta, r), over 4,000 chains."""
    theta, r = RNG.normal(size=(2, 4000))
    variances = []
    for step in range(4000):
        theta, r = update(theta, r)
        if step > 1000:
            variances.append(theta.var())
    return np.mean(variances)


def stein():
    """The Stein kernel's signs: E k0 over independent pairs of a normal law in two dimensions."""
    totals = {1.0: [], -1.0: []}
    for _ in range(400):
        x, y = RNG.normal(size=(2, 100, 2))
        for sign, found in totals.items():
            found.append(stein_kernel(x, -sign * x, y, -sign * y).mean())
    for sign, label in ((1.0, "minus in the mixed terms"), (-1.0, "plus, as printed")):
        found = np.array(totals[sign])
        row(f"E k0, {label}", f"{found.mean():.4f} ± {found.std() / sqrt(len(found)):.4f}", 0, "")


def euler_and_refresh():
    """SGHMC read as simultaneous updates; and with momenta drawn anew every L updates, whole
    kicks.
    """
    eps = 0.1
    c = 1.0
    chains = 4000
    for friction in (1.0, 0.2):

        def simultaneous(theta, r, friction=friction):
            noise = sqrt(2 * friction * eps) * RNG.normal(size=chains)
            return theta + eps * r, r - eps * theta - eps * friction * r + noise

        law = (
            2
            * friction
            * (2 - friction * eps + eps**2)
            / ((friction - eps) * (4 - 2 * friction * eps + eps**2))
        )
        row(
            f"Var theta, at once, C = {friction:g}",
            f"{variance(simultaneous):.3f}",
            f"{law:.3f}",
            "",
        )
    law = Gaussian(np.zeros(1), np.eye(1))
    sampler, target = prepare("sghmc", law, rows=chains, step_size=eps**2 / 2, gamma=c, **PUBLISHED)
    found = [theta.var() for t, theta in enumerate(sample(target, sampler, 4000)) if t > 1000]
    row("Var theta, one after the other, C = 1", f"{np.mean(found):.3f}", "", "")
    h = 0.05
    for length, first, kick, derived in (
        (5, "r", 1.0, 5 / 6),
        (5, "theta", 1.0, 5 / 4),
        (5, "r", 0.5, 1.0),
    ):
        theta = RNG.normal(size=chains)
        found = []
        for step in range(4000):
            r = RNG.normal(size=chains)
            for leap in range(length):
                if first == "theta":
                    theta = theta + h * r
                r = r - (kick if leap == 0 else 1.0) * h * theta
                if first == "r":
                    theta = theta + h * r
            if step > 1500:
                found.append(theta.var())
        label = f"Var theta, {first} first, fresh every {length}, first kick {kick:g}"
        row(label, f"{np.mean(found):.3f}", f"{derived:.3f}", "")


def naive_noise():
    """Friction against gradient noise of variance V = 4 in steps of .1, on N(0, 1), where nothing
    else is added.
    """
    eps = 0.1
    v = 4.0
    chains = 4000
    for label, friction in (
        ("C = eps V, as printed", eps * v),
        ("C = eps V / 2, as derived", eps * v / 2),
    ):

        def without_noise(theta, r, friction=friction):
            r = r - eps * (theta + sqrt(v) * RNG.normal(size=chains)) - eps * friction * r
            return theta + eps * r, r

        row(f"Var theta, {label}", f"{variance(without_noise):.3f}", "", "")
    s = 2.0  # root of the inverse metric
    for label, corrected in (("B = V", v), ("B = S V S", s * v * s)):

        def with_correction(theta, r, corrected=corrected):
            noise = sqrt(eps * (2 * s * s - eps * corrected)) * RNG.normal(size=chains)
            r = r - eps * s * (theta + sqrt(v) * RNG.normal(size=chains)) - eps * s * s * r + noise
            return theta + eps * s * r, r

        row(f"Var theta, algorithm 1, {label}", f"{variance(with_correction):.3f}", "", "")


def contraction():
    """Distance of theta_K from N(0, 1) in W2, from theta_0 = 10: steps h with drift h / 2, K h
    = 4.
    """
    for h in (0.1, 0.01, 0.001):
        k = round(4 / h)
        mean = 10 * (1 - h / 2) ** k
        sd = sqrt(h * (1 - (1 - h / 2) ** (2 * k)) / (1 - (1 - h / 2) ** 2))
        row(
            f"W2 at h = {h:g}",
            f"{sqrt(mean**2 + (sd - 1) ** 2):.3f}",
            "",
            f"{10 * (1 - h) ** k:.3f}",
        )


def main():
    """All of them."""
    head("entry", "found", "derived", "as printed")
    for part in (
        correction,
        signs_of_eq_17,
        thermostat,
        stein,
        euler_and_refresh,
        naive_noise,
        contraction,
    ):
        part()


if __name__ == "__main__":
    main()

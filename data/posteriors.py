"""Posteriors of the shapes that posteriordb has, with made-up data: energies and gradients.

Gradients are by complex steps.

`posteriors.json` has their means and standard deviations: of linear regressions in closed form, of
others from 40,000 draws by NUTS (NumPyro 0.22, dense metric, acceptance 0.95). Their ESS is above
4,000, but 1,433 in `centred`. NUTS has divergences, too: 23 in `centred` and 20 in `counts`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.signal import lfilter


class Posterior:
    """A density whose energy (n,) of theta (n, D), real or complex, contains the prior."""

    n_data = 1

    def __init__(self, dimension: int, energy: Callable[[np.ndarray], np.ndarray]) -> None:
        self.dimension, self.energy, self.steps = dimension, energy, 1e-30j * np.eye(dimension)
        self.prior_mean = self.prior_precision = np.zeros(dimension)

    def gradient(self, theta: np.ndarray, data: object = None) -> np.ndarray:
        """Exact to rounding."""
        moved = theta[:, None] + self.steps
        return self.energy(moved.reshape(-1, self.dimension)).imag.reshape(theta.shape) / 1e-30


def linear(x: np.ndarray, y: np.ndarray) -> Posterior:
    """Coefficients and log sigma of a linear regression with a constant, flat."""
    x = np.column_stack([np.ones(len(y)), x])
    square = lambda t: ((y - t[:, :-1] @ x.T) ** 2).sum(axis=1)  # noqa: E731
    return Posterior(
        x.shape[1] + 1, lambda t: 0.5 * square(t) * np.exp(-2 * t[:, -1]) + len(y) * t[:, -1]
    )


def regression(
    n: int, *, mean: float, sd: object, beta: object, sigma: float, mix: float = 0.0
) -> Posterior:
    """Features with these means and standard deviations, of which a share `mix` is in common."""
    rng = np.random.default_rng(n)
    x = rng.normal(size=(n, np.size(beta)))
    x = mean + sd * (mix * x[:, :1] + np.sqrt(1 - mix**2) * x)
    return linear(x, x @ np.atleast_1d(beta) + sigma * rng.normal(size=n))


def autoregression(n: int = 205, lags: int = 5) -> Posterior:
    """Of five lags."""
    y = lfilter(
        [1.0], [1.0, -0.05, 0.0, -0.2, 0.1, -0.6], 0.15 * np.random.default_rng(n).normal(size=n)
    )
    return linear(np.column_stack([y[lags - k : n - k] for k in range(1, lags + 1)]), y[lags:])


def schools(t: np.ndarray, centred: bool = False) -> np.ndarray:
    """Mu ~ N(0, 25), log tau with tau ~ half Cauchy(5), and eight effects or their z."""
    y, sd = np.array([[26.0, 9, -4, 8, 0, 2, 17, 11], [14, 11, 15, 12, 9, 10, 11, 17]])
    mu, tau, given = t[:, :1], np.exp(t[:, 1:2]), t[:, 2:]
    z, effect = ((given - mu) / tau, given) if centred else (given, mu + tau * given)
    total = 0.5 * (((y - effect) / sd) ** 2 + z**2).sum(axis=1) + (8 * centred - 1) * t[:, 1]
    return total + t[:, 0] ** 2 / 50 + np.log(1 + tau[:, 0] ** 2 / 25)


def vote() -> Posterior:
    """Logistic regression with a feature of mean 4 and three rare ones."""
    rng = np.random.default_rng(3)
    x = np.column_stack([np.ones(300), rng.normal(4, 1.3, 300), rng.random((300, 3)) < 0.3])
    y = x @ [-1.4, 0.3, 0.5, -0.8, 0.2] + rng.logistic(size=300) > 0

    def energy(t: np.ndarray) -> np.ndarray:
        eta = t @ x.T
        return (np.log(1 + np.exp(eta)) - y * eta).sum(axis=1)

    return Posterior(5, energy)


def counts() -> Posterior:
    """Counts whose log rate is 1 and a Gaussian process: log length, log amplitude, 11 sines."""
    place, wave = np.linspace(-10, 10, 11), np.arange(1, 12) * np.pi / 30
    y, sines = (
        np.random.default_rng(4).poisson(np.exp(1 + np.sin(place / 3))),
        np.sin(np.outer(wave, place + 15)),
    )

    def energy(t: np.ndarray) -> np.ndarray:
        length, amplitude = np.exp(t[:, :1]), np.exp(t[:, 1:2])
        root = (
            amplitude
            * np.sqrt(np.sqrt(2 * np.pi) * length / 15)
            * np.exp(-((length * wave) ** 2) / 4)
        )
        f = 1 + (root * t[:, 2:]) @ sines
        prior = 4 * length - 25 * t[:, :1] + amplitude**2 / 8 - t[:, 1:2]
        return prior[:, 0] + (np.exp(f) - y * f + 0.5 * t[:, 2:] ** 2).sum(axis=1)

    return Posterior(13, energy)


def garch() -> Posterior:
    """GARCH(1, 1): mu, log alpha_0, logits of alpha_1 and of beta_1 / (1 - alpha_1)."""
    y = 5 + 2 * np.random.default_rng(5).standard_t(5, 200)

    def energy(t: np.ndarray) -> np.ndarray:
        a, b = (1 / (1 + np.exp(-t[:, 2:]))).T
        squares, total = (y - t[:, :1]) ** 2, -np.log(a * (1 - a) ** 2 * b * (1 - b)) - t[:, 1]
        news = np.exp(t[:, 1:2]) + a[:, None] * squares
        for row, feedback in enumerate(b * (1 - a)):
            variance = lfilter([1.0], [1.0, -feedback], np.append(4.0, news[row, :-1]))
            total[row] += 0.5 * (np.log(variance) + squares[row] / variance).sum()
        return total

    return Posterior(4, energy)


def mixture() -> Posterior:
    """First mean, log distance of the second, log sds, and logit of the first's share."""
    rng = np.random.default_rng(6)
    y = np.append(rng.normal(-2.7, 1, 240), rng.normal(2.9, 1.1, 160))

    def energy(t: np.ndarray) -> np.ndarray:
        share = 1 / (1 + np.exp(-t[:, 4]))
        mean, sd = np.stack([t[:, 0], t[:, 0] + np.exp(t[:, 1])]), np.exp(t[:, 2:4].T)
        z, weight = (y - mean[..., None]) / sd[..., None], np.stack([share, 1 - share]) / sd
        parts = np.exp(-0.5 * z**2) * weight[..., None]
        prior = (
            ((mean**2 + sd**2) / 8).sum(axis=0)
            - t[:, 1:4].sum(axis=1)
            - 5 * np.log(share * (1 - share))
        )
        return prior - np.log(parts.sum(axis=0)).sum(axis=1)

    return Posterior(5, energy)


POSTERIORS = {
    "autoregression": autoregression(),
    "kidscore": regression(434, mean=100, sd=15, beta=0.6, sigma=18),
    "mesquite": regression(
        46, mean=2, sd=[0.9, 0.6, 0.4, 3], beta=[400, 200, -100, 30], sigma=270, mix=0.8
    ),
    "blr": regression(100, mean=0, sd=[100, 30, 300, 1000], beta=[1, 2, -1, 0.5], sigma=0.3),
    "diamonds": regression(
        500, mean=0, sd=1, beta=[1, -1, 0.5, 2, 0, 0.3, -0.2, 0.1], sigma=0.1, mix=0.995
    ),
    "kilpisjarvi": regression(62, mean=1982, sd=18, beta=0.0194, sigma=1.1),
    "centred": Posterior(10, lambda t: schools(t, centred=True)),
    "noncentred": Posterior(10, schools),
    "vote": vote(),
    "counts": counts(),
    "garch": garch(),
    "mixture": mixture(),
}
#: Means and standard deviations by name.
REFERENCES = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))

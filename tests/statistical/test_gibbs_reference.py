"""The reference Gibbs sampler itself: everything statistical leans on it, so it is held to exact
answers.
"""

import gibbs
import numpy as np
import pytest

pytestmark = pytest.mark.statistical

# Factors whose scales are sampled have heavy tails; weak data (a small tau) keep the test's chain
# mixing.
MODELS = {
    "fixed": gibbs.Model(rank=2, prior="fixed", biases=False, tau=2.0),
    "biases only": gibbs.Model(rank=0, tau=0.02),
    "biases, sampled tau": gibbs.Model(rank=1, prior="fixed"),
    "half-cauchy": gibbs.Model(rank=2, prior="half-cauchy", tau=0.002),
    "half-cauchy, sizes": gibbs.Model(rank=2, prior="half-cauchy", tau=0.02, size_moves=True),
    "normal-gamma": gibbs.Model(rank=2, tau=0.002),
    "normal-wishart": gibbs.Model(rank=2, prior="normal-wishart", tau=0.02),
    "noise by item": gibbs.Model(rank=1, prior="fixed", noise="by-item", nu=6.0),
    "noise by both, sampled nu": gibbs.Model(rank=1, prior="fixed", noise="both", nu=None),
}


def prior_of_a_side(model: gibbs.Model, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw mean and precision of one side, from the model's definition and not from the sampler."""
    K = model.rank
    D = model.rank + model.biases
    mean = np.zeros(D)
    precision = model.precision * np.eye(D)
    if model.prior in ("half-cauchy", "normal-gamma"):
        scales = rng.exponential(1 / 5, K)
        if model.prior == "half-cauchy":
            scales = (rng.choice(gibbs.common_scales(K)) * rng.standard_cauchy(K)) ** -2
        mean[:K] = rng.normal(0, scales**-0.5)
        precision[:K, :K] = np.diag(scales)
    if model.prior == "normal-wishart":
        a = rng.standard_normal((K, K))  # a^T a is W(I, K)
        precision[:K, :K] = a.T @ a
        mean[:K] = np.linalg.solve(
            np.linalg.cholesky(2 * precision[:K, :K]).T, rng.standard_normal(K)
        )
    if model.prior != "fixed" and model.biases:
        precision[K, K] = rng.exponential(1 / 5)
    return mean, precision


def factors_given(
    mean: np.ndarray, precision: np.ndarray, n: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw n rows of N(mean, precision^-1)."""
    root = np.linalg.cholesky(precision)
    return mean + np.linalg.solve(root.T, rng.standard_normal((len(mean), n))).T


def ratings(shape: tuple[int, int], share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each observed pair, sorted by row; row 0 and column 0 have no rating."""
    observed = np.random.default_rng(seed).random(shape) < share
    observed[0] = observed[:, 0] = False
    return np.nonzero(observed)


def draw_from_prior(
    model: gibbs.Model, shape: tuple[int, int], rng: np.random.Generator
) -> gibbs.State:
    """Draw every parameter from its prior."""
    state = gibbs.start(model, shape, rng)
    for side, n in enumerate(shape):
        state.prior[side] = prior_of_a_side(model, rng)
        state.theta[side] = factors_given(*state.prior[side], n, rng)
        if side in gibbs.NOISY_SIDES[model.noise]:
            state.nu[side] = model.nu or rng.choice(gibbs.NU_GRID)
            state.g[side] = rng.gamma(state.nu[side] / 2, 2 / state.nu[side], n)
    if model.tau is None:
        state.tau = rng.exponential(1.0)
    return state


def functions(state: gibbs.State, residuals: np.ndarray) -> np.ndarray:
    """Quantities with finite variance under priors whose factors and data have none."""
    values = [np.log(state.tau), state.tau, np.tanh(residuals[0]), np.log1p(residuals[-1] ** 2)]
    for (mean, precision), theta in zip(state.prior, state.theta, strict=True):
        scales = np.diag(precision)
        values += [*np.log(scales), *np.tanh(mean), *np.log1p(mean**2), np.tanh(precision[0, -1])]
        values += [
            *np.tanh(theta[0]),
            *np.tanh(theta[-1]),
            *np.log1p(theta[0] ** 2),
            *np.log1p(theta[-1] ** 2),
        ]
        values += [np.log1p(theta[1, 0] ** 2) * np.log1p(theta[2, 0] ** 2)]
    for nu, g in zip(state.nu, state.g, strict=True):
        values += [np.log(nu), *np.log(g[:3]), g[-1], g[1] * g[2]]
    return np.array(values)


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_joint_distribution(name):
    """Every conditional draw matches the stated model, by "Getting it right" [Geweke 2004].

    If data are drawn anew given the parameters between sweeps, the parameters keep their prior; one
    wrong rate, shape or weight in any conditional shifts some moment. Standard errors come from
    batch means.
    """
    model = MODELS[name]
    shape = (5, 4)
    rng = np.random.default_rng(1)
    rows, columns = ratings(shape, 0.5, seed=3)
    sides = gibbs.views(rows, columns, shape)

    def data(state: gibbs.State) -> np.ndarray:
        sd = 1 / np.sqrt(state.tau * state.g[0][rows] * state.g[1][columns])
        signal = sum(
            state.theta[0][rows, k] * state.theta[1][columns, k] for k in range(model.rank)
        )
        if model.biases:
            signal = signal + state.theta[0][rows, -1] + state.theta[1][columns, -1]
        return signal + sd * rng.standard_normal(len(rows))

    independent = []
    chained = []
    for _ in range(10_000):
        state = draw_from_prior(model, shape, rng)
        independent.append(functions(state, data(state)))
    for _ in range(24_000):
        residuals = data(state)
        gibbs.sweep(state, residuals, sides, model, rng)
        chained.append(functions(state, residuals))
    batches = np.array(chained).reshape(60, -1, len(chained[0])).mean(axis=1)
    error = np.sqrt(
        batches.var(axis=0, ddof=1) / len(batches) + np.var(independent, axis=0) / len(independent)
    )
    difference = batches.mean(axis=0) - np.mean(independent, axis=0)
    # what the model holds constant differs by rounding only
    z = difference / np.maximum(error, 1e-9)
    print(name, z)
    assert np.max(np.abs(z)) < 5, z

"""Latent Dirichlet allocation: against sums over all assignments of words."""

from itertools import product

import numpy as np
from densities import differences
from latent_dirichlet import LatentDirichlet

DOCUMENTS = [[0, 1, 1, 2], [2, 2, 0], [], [1, 0, 2, 0, 0]]
ALPHA = 0.4
BETA0 = 1.7
K = 2
V = 3
THETA = np.random.default_rng(0).gamma(2.0, size=(1, K * V))


def made(**settings: int) -> LatentDirichlet:
    return LatentDirichlet(DOCUMENTS, V, K, alpha=ALPHA, beta0=BETA0, **settings)


def probability(beta: np.ndarray, words: list[int]) -> float:
    """p(w | beta), proportions integrated out: the sum over all assignments of words to topics."""
    total = 0.0
    for z in product(range(K), repeat=len(words)):
        n = np.zeros(K)
        p = 1.0
        for k, v in zip(z, words, strict=True):
            p *= (ALPHA + n[k]) / (K * ALPHA + n.sum()) * beta[k, v]
            n[k] += 1
        total += p
    return total


def energy(theta: np.ndarray, documents: list[list[int]], share: float) -> float:
    """Exact; `share` of the prior."""
    beta = theta.reshape(K, V) / theta.reshape(K, V).sum(axis=1, keepdims=True)
    prior = (theta - (BETA0 - 1) * np.log(theta)).sum()
    return share * prior - sum(np.log(probability(beta, words)) for words in documents)


def test_the_gradient_is_that_of_the_collapsed_likelihood() -> None:
    """By central differences; of a part with its share of the prior.

    40,000 sweeps leave a noise of some .002.
    """
    data = slice(1, None, 2)
    chosen = DOCUMENTS[data]
    found = made(kept=40_000).gradient(THETA, data)[0]
    exact = differences(lambda theta: energy(theta, chosen, len(chosen) / 4), THETA[0])
    np.testing.assert_allclose(found, exact, rtol=0, atol=0.01)
    assert np.abs(exact).max() > 0.2


def test_it_is_continued_evenly_over_zero() -> None:
    """So that |theta| is a reflected chain of any sampler: the metric is even, gradient and
    divergence are odd.
    """
    density = made()
    signs = np.where(np.arange(K * V) % 2, 1.0, -1.0)
    np.testing.assert_array_equal(density.gradient(signs * THETA), signs * density.gradient(THETA))
    for one, two in zip(density.metric(signs * THETA), density.metric(THETA), strict=True):
        np.testing.assert_array_equal(np.abs(one), np.abs(two))
    h = 1e-6
    (root, divergence) = density.metric(-THETA)
    slopes = (density.metric(-THETA + h)[0] - density.metric(-THETA - h)[0]) / (2 * h)
    np.testing.assert_allclose(divergence, slopes, rtol=1e-6)
    np.testing.assert_allclose(root**2, THETA)
    assert np.isfinite(density.gradient(np.zeros((1, K * V)))).all()


def test_the_predictive_law_is_that_of_the_collapsed_likelihood() -> None:
    """p(v | words) = p(words, v) / p(words); 20,000 sweeps."""
    beta = made().topics(THETA)[0]
    observed = [[0, 1, 1], []]
    unseen = [[2, 0], [1]]
    found = made(kept=20_000).predictive(THETA, observed, unseen)[0]
    exact = [
        probability(beta, [*words, v]) / probability(beta, words)
        for words, asked in zip(observed, unseen, strict=True)
        for v in asked
    ]
    np.testing.assert_allclose(found, exact, rtol=0, atol=0.003)

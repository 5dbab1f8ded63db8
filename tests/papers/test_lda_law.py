"""Latent Dirichlet allocation: topics of few words, against the sum over all assignments of these to topics."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from latent_dirichlet import LatentDirichlet
from scipy.special import gammaln

from dsgmcmc.densities.sample import sample, vector_target
from dsgmcmc.densities.sgmcmc.gsgrld import GSGRLD, GSGRLDConfig

DOCUMENTS, K, V, ALPHA, BETA0 = [[0, 0, 0], [0, 0, 1]], 2, 3, 0.5, 3.0


def draws(density: LatentDirichlet, rows: int, eps: float, iterations: int, grid: int = 1) -> list[np.ndarray]:
    """States of `rows` chains, every twentieth, without the first fifth."""
    sampler = GSGRLD(GSGRLDConfig(step_size=eps), 0)
    target = vector_target(density, sampler, rows=rows, grid=grid)
    return [theta.copy() for theta in sample(target, sampler, iterations, sd=3.0)][iterations // 5 :: 20]


def dirichlet(counts: np.ndarray, a: float) -> np.ndarray:
    """Log probability of words in an order with these counts (n, m), summed over n."""
    m, total = counts.shape[1], counts.sum(axis=1)
    return (gammaln(a * m) - gammaln(a * m + total) + (gammaln(a + counts) - gammaln(a)).sum(axis=1)).sum()


def enumerated() -> np.ndarray:
    """Rows: E beta_kv, E beta_kv^2, E beta_1v beta_2v; beta_k is Dirichlet given an assignment."""
    moments, total = np.zeros((3, V)), 0.0
    places = [(d, v) for d, words in enumerate(DOCUMENTS) for v in words]
    for z in product(range(K), repeat=len(places)):
        words, documents = np.zeros((K, V)), np.zeros((len(DOCUMENTS), K))
        for k, (d, v) in zip(z, places, strict=True):
            words[k, v] += 1
            documents[d, k] += 1
        p, a = np.exp(dirichlet(words, BETA0) + dirichlet(documents, ALPHA)), BETA0 + words
        mean, size = a / a.sum(axis=1, keepdims=True), a.sum(axis=1, keepdims=True)
        moments += p * np.array([mean.mean(axis=0), (mean * (a + 1) / (size + 1)).mean(axis=0), mean[0] * mean[1]])
        total += p
    return moments / total


def test_topics_of_six_words() -> None:
    """From parts of a document each: 4 %, of which 2 are four standard errors of 150 chains, the rest that of steps."""
    density = LatentDirichlet(DOCUMENTS, V, K, alpha=ALPHA, beta0=BETA0, dropped=4, kept=2)
    beta = density.topics(np.concatenate(draws(density, 150, 0.01, 1500, grid=2)))
    found = [beta.mean(axis=(0, 1)), (beta**2).mean(axis=(0, 1)), (beta[:, 0] * beta[:, 1]).mean(axis=0)]
    np.testing.assert_allclose(found, enumerated(), rtol=0.04)
    assert enumerated()[0, 0] > 0.42  # 1/3 before the data


def test_without_words_it_is_the_prior() -> None:
    """|theta| ~ Gamma(5, 1): mean and variance to 2 %, of 2,000 entries; the step's bias is below 1 %."""
    density = LatentDirichlet([[]], 50, 2, beta0=5.0)
    theta = np.abs(draws(density, 20, 0.01, 1500))
    assert theta.mean() == pytest.approx(5, rel=0.02)
    assert theta.var() == pytest.approx(5, rel=0.02)

r"""Latent Dirichlet allocation: topics beta_k over V words, by their expanded means theta
[Patterson 2013].

    beta_kv = theta_kv / sum_v theta_kv,  theta_kv ~ Gamma(beta0, 1),  pi_d ~ Dirichlet(alpha),
    word i of document d: z_di ~ pi_d, w_di ~ beta_(z_di)

so that beta_k ~ Dirichlet(beta0), and theta is a vector of K V positive numbers. With n_dkv words
of document d that are v and of topic k,

    d U / d theta_kv = 1 - (beta0 - 1) / theta_kv
                       - sum_d E[n_dkv] / theta_kv + sum_d E[n_dk.] / theta_k.

E over topics of the words given theta, by Gibbs sweeps with pi integrated out (`topics`). Its noise
is a function of theta and of the documents: the sweeps' numbers have a hash of theta for their key.
So a gradient is repeatable as any other, and new with every state.

Reflection at zero is the target's: U is continued evenly, U(-theta) = U(theta). A chain that steps
over zero goes on there as one that is thrown back would on this side, so that |theta| is a
reflected chain, of any sampler.

In the metric G^-1 = diag(theta) that it brings `gsgrld` is the sampler of [Patterson 2013], and
`gsgrhmc` that of [Ma 2015, section 4.2]. Near zero the steps of any sampler are too long, more so
the smaller beta0 is: entries below about the step are not of the posterior's law [Baker 2018]. Left
out: learning alpha and beta0.

[Ma 2015] Y.-A. Ma, T. Chen, E. B. Fox: A complete recipe for stochastic gradient MCMC. [Patterson
2013] S. Patterson, Y. W. Teh: Stochastic gradient Riemannian Langevin dynamics on the probability
simplex. [Baker 2018] J. Baker et al.: Large-scale stochastic sampling from the probability simplex.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from topics import topics_module

from dsgmcmc.densities.density import ALL, Data
from dsgmcmc.types import Float64, Int64

TINY = np.finfo(np.float64).tiny


class Corpus(NamedTuple):
    """Documents one after another.

    Attributes
    ----------
    words : (T,) int64
        Numbers of the words.
    starts : (N + 1,) int64
        Where each document begins, and the end.
    """

    words: Int64
    starts: Int64

    @classmethod
    def from_documents(cls, documents: Sequence[npt.ArrayLike]) -> Corpus:
        """Make it of documents, each a sequence of numbers of words; it may be empty."""
        arrays = [np.asarray(document, np.int64).reshape(-1) for document in documents]
        words = np.concatenate(arrays)
        return cls(
            words,
            np.concatenate([[0], np.cumsum([len(array) for array in arrays])]).astype(np.int64),
        )


class LatentDirichlet:
    """Topics of documents; a `dsgmcmc.densities.density.Riemannian`.

    Steps are given in the time of the dynamics. Documents are the data: a part of them is a
    minibatch.

    Parameters
    ----------
    documents : sequence of (n_d,) int arrays
        Words of each, as numbers below `n_words`.
    n_words, n_topics : int
        V and K.
    alpha, beta0 : float
        Concentrations of a document's topics and of a topic's words.
    dropped, kept : int
        Gibbs sweeps over a document: those for it to settle, and those that are averaged.
    """

    def __init__(
        self,
        documents: Sequence[npt.ArrayLike],
        n_words: int,
        n_topics: int,
        *,
        alpha: float = 0.1,
        beta0: float = 0.1,
        dropped: int = 10,
        kept: int = 10,
    ) -> None:
        self.words, self.starts = Corpus.from_documents(documents)
        self.n_words = n_words
        self.n_topics = n_topics
        self.alpha = float(alpha)
        self.beta0 = float(beta0)
        self.dropped = dropped
        self.kept = kept
        self.n_data = len(documents)
        self.dimension = n_words * n_topics
        self.curvature = np.ones(self.dimension)
        self.prior_mean = np.zeros(self.dimension)
        self.prior_precision = np.zeros(self.dimension)

    def topics(self, theta: Float64) -> Float64:
        """beta, (n, K, V) of theta (n, K V)."""
        size = np.maximum(np.abs(theta), TINY).reshape(len(theta), self.n_topics, self.n_words)
        return size / size.sum(axis=2, keepdims=True)

    # ------------------------------------------------------------------ as a density

    def energy(self, theta: Float64, data: Data = ALL) -> Float64:
        """A sum over all assignments of words, which is not computed: no sampler of the experiment
        asks for it.
        """
        raise NotImplementedError

    def gradient(self, theta: Float64, data: Data = ALL) -> Float64:
        """See `dsgmcmc.densities.density.Density.gradient`; unbiased but for the sweeps that are
        dropped.
        """
        documents = np.ascontiguousarray(np.arange(self.n_data)[data])
        size = np.maximum(np.abs(theta), TINY)
        share = len(documents) / self.n_data
        found = np.empty_like(size)
        for row, (beta, at) in enumerate(zip(self.topics(theta), size, strict=True)):
            of_words, of_documents = self._expected(
                beta, at, Corpus(self.words, self.starts), documents
            )
            means = at.reshape(beta.shape)
            of_topics = of_documents.sum(axis=0) / means.sum(axis=1)
            slopes = share + of_topics[:, None] - (of_words.T + share * (self.beta0 - 1)) / means
            found[row] = slopes.ravel()
        return np.sign(theta) * found

    def metric(self, theta: Float64) -> tuple[Float64, Float64]:
        """See `dsgmcmc.densities.density.Riemannian.metric`: the root of abs(theta)."""
        root = np.sqrt(np.maximum(np.abs(theta), TINY))
        return root, 0.5 * np.sign(theta) / root

    # ------------------------------------------------------------------ predictions

    def predictive(
        self, theta: Float64, observed: Sequence[npt.ArrayLike], unseen: Sequence[npt.ArrayLike]
    ) -> Float64:
        """Probability of words of documents given theta and the words of them that were observed.

        Parameters
        ----------
        theta : (n, K V) float64
            Draws; their mean is what the posterior predicts.
        observed, unseen : sequences of int arrays
            Of the same documents.

        Returns
        -------
        (n, T) float64
            Of each unseen word, document after document.
        """
        known = Corpus.from_documents(observed)
        asked = Corpus.from_documents(unseen)
        counts = np.diff(known.starts)
        row_of = np.repeat(np.arange(len(unseen)), np.diff(asked.starts))
        found = np.empty((len(theta), len(asked.words)))
        for row, (beta, at) in enumerate(zip(self.topics(theta), theta, strict=True)):
            _, of_documents = self._expected(beta, np.abs(at), known, np.arange(len(observed)))
            pi = (self.alpha + of_documents) / (self.alpha * self.n_topics + counts)[:, None]
            found[row] = (pi[row_of] * beta.T[asked.words]).sum(axis=1)
        return found

    def _expected(
        self, beta: Float64, size: Float64, corpus: Corpus, documents: Int64
    ) -> tuple[Float64, Float64]:
        """Expected numbers of every word by topic, (V, K), and of every document's words by topic,
        (S, K).
        """
        of_words = np.zeros(beta.T.shape)
        of_documents = np.zeros((len(documents), self.n_topics))
        state = (
            np.ascontiguousarray(beta.T),
            *corpus,
            documents,
            self.alpha,
            self.dropped,
            self.kept,
        )
        key = np.frombuffer(hashlib.blake2b(size.tobytes(), digest_size=8).digest(), "<u4").tolist()
        topics_module().assign(*state, *key, of_words, of_documents)
        return of_words, of_documents

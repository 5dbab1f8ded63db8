"""Latent Dirichlet allocation given its topics: words are assigned to topics by collapsed Gibbs, in
one compiled loop.

A document's proportions have the prior Dirichlet(alpha) and are integrated out. Word i of it, the
word v of the vocabulary, is of topic k given the other words' topics with a probability in
proportion to

    q_k = (alpha + n_k) beta_kv,    n_k: other words of the document that are of topic k now.

What is summed over the sweeps that are kept is q_k / sum q, which has the expectation of the drawn
topic and a smaller variance. The first sweep assigns words given those before them alone.

Noise: one Philox counter a (document, sweep, four words), under a key that the caller makes.
"""

from typing import Any

from dsgmcmc.kernels.compiling import jit
from dsgmcmc.kernels.philox import rounds

_KERNEL = f'''
@helper
def chosen(q, rest):
    """Topic at which the sum of q passes rest; the last one, where rounding left none."""
    last = q.shape[0] - 1
    for k in range(last):
        rest -= q[k]
        if rest < 0.0:
            return k
    return last


@kernel("void(float64[:, ::1], int64[::1], int64[::1], int64[::1], float64, "
        "int64, int64, uint64, uint64, float64[:, ::1], float64[:, ::1])")
def assign(
    beta, words, starts, documents, alpha, dropped, kept, k0, k1, topic_words, document_topics
):
    """Add expected numbers of words: of every (word, topic), and of every (document, topic)."""
    mask = uint64(0xFFFFFFFF)
    shift = uint64(32)
    topics = beta.shape[1]
    n, q = np.empty(topics), np.empty(topics)
    z = np.empty(np.max(np.diff(starts)) + 1, np.int64)
    for place in range(documents.shape[0]):
        d = documents[place]
        n[:] = 0.0
        for sweep in range(dropped + kept):
            x0 = x1 = x2 = x3 = uint64(0)
            for i in range(starts[d + 1] - starts[d]):
                if i & 3 == 0:
{rounds("x0, x1, x2, x3 = uint64(i >> 2), uint64(sweep), uint64(d), uint64(0)", 20)}
                v = words[starts[d] + i]
                if sweep > 0:
                    n[z[i]] -= 1.0
                total = 0.0
                for k in range(topics):
                    q[k] = (alpha + n[k]) * beta[v, k]
                    total += q[k]
                k = chosen(q, (float64(x0) + 0.5) * 2.0**-32 * total)
                x0, x1, x2 = x1, x2, x3
                z[i] = k
                n[k] += 1.0
                if sweep >= dropped:
                    share = 1.0 / (kept * total)
                    for k in range(topics):
                        topic_words[v, k] += share * q[k]
                        document_topics[place, k] += share * q[k]

'''


def topics_module() -> Any:
    """The kernel ``assign``, whose arguments are in its source.

    `beta` is (V, K); `words` are numbers below V, those of document d from ``starts[d]`` on;
    `documents` are those to look at; `dropped` is at least 1 where the topics of earlier words are
    to know of later ones; k0 and k1 are the key.
    """
    return jit.compile_source("topics", _KERNEL)

"""Run a rival when told: python vector_speed_run.py PACKAGE SAMPLER DATA.npz BATCH ITERATIONS, then a line a turn.

Runs in the rivals' environment, without dsgmcmc. Writes the CPU seconds of every turn.
"""

from __future__ import annotations

import sys
from functools import partial
from time import process_time

import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np

STEP = 1e-6


def log_prior(theta):
    """Of a standard normal law."""
    return -0.5 * jnp.sum(theta**2)


def log_likelihood(theta, x, y):
    """Of one datum."""
    eta = x @ theta
    return y * eta - jnp.logaddexp(0.0, eta)


def blackjax_step(name, x, y, batch):
    """State and iteration (state, key) -> state of BlackJAX: of SGLD alone.

    Its SGHMC draws momenta anew in every call, and the last gradient of a call changes nothing: of one update there is
    no gradient left to time.
    """
    import blackjax

    assert name == "sgld"
    n = len(x)
    gradient = blackjax.sgmcmc.gradients.grad_estimator(log_prior, lambda t, datum: log_likelihood(t, *datum), n)
    sampler = blackjax.sgld(gradient)

    def step(theta, key):
        first, second = jax.random.split(key)
        index = jax.random.randint(first, (batch,), 0, n)
        return sampler.step(second, theta, (x[index], y[index]), STEP)

    return jnp.zeros(x.shape[1], x.dtype), step


def sgmcmcjax_step(name, x, y, batch):
    """The same of SGMCMCJax."""
    jax.experimental.host_callback = None  # of its progress bar, which is not used: newer JAX has none
    from sgmcmcjax import kernels

    model = {"loglikelihood": log_likelihood, "logprior": log_prior, "data": (x, y), "batch_size": batch}
    make = {"sgld": kernels.build_sgld_kernel, "sghmc": partial(kernels.build_sghmc_kernel, L=1)}[name]
    start, kernel, _ = make(dt=STEP, **model)
    return start(jax.random.PRNGKey(1), jnp.zeros(x.shape[1], x.dtype)), lambda state, key: kernel(1, key, state)


def main():
    """Listen."""
    package, name, data, batch, count = sys.argv[1:]
    with np.load(data) as file:
        x, y = jnp.asarray(file["features"]), jnp.asarray(file["responses"])
    state, step = {"blackjax": blackjax_step, "sgmcmcjax": sgmcmcjax_step}[package](name, x, y, int(batch))
    turn = jax.jit(lambda state, keys: jax.lax.scan(lambda s, key: (step(s, key), None), state, keys)[0])
    for number, _ in enumerate(sys.stdin):
        keys = jax.random.split(jax.random.PRNGKey(number), int(count))
        jax.block_until_ready(keys)
        begin = process_time()
        state = jax.block_until_ready(turn(state, keys))
        print(process_time() - begin, flush=True)
        assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree_util.tree_leaves(state))


if __name__ == "__main__":
    main()

"""Run a rival in JAX when told: python vector_speed_run.py PACKAGE SAMPLER MODEL DATA.npz BATCH ITERATIONS.

Then a line a turn. Runs in the rivals' environment, without dsgmcmc. Writes the CPU seconds of every turn.
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


def log_prior(params):
    """Of a standard normal law."""
    return -0.5 * sum(jnp.sum(leaf**2) for leaf in jax.tree_util.tree_leaves(params))


def of_logistic(theta, x, y):
    """Log likelihood of a datum."""
    eta = x @ theta
    return y * eta - jnp.logaddexp(0.0, eta)


def of_network(params, x, y):
    """The same of a network with one hidden layer."""
    hidden = jax.nn.sigmoid(x @ params["inner"] + params["inner_bias"])
    return jax.nn.log_softmax(hidden @ params["outer"] + params["outer_bias"])[y]


def model_of(name, x):
    """Log likelihood of a datum, and where to start."""
    if name == "logistic":
        return of_logistic, jnp.zeros(x.shape[1], x.dtype)
    from vector_speed_models import network_start

    return of_network, {key: jnp.asarray(value, x.dtype) for key, value in network_start(x.shape[1]).items()}


def blackjax_step(name, log_likelihood, start, x, y, batch):
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

    return start, step


def sgmcmcjax_step(name, log_likelihood, start, x, y, batch):
    """The same of SGMCMCJax."""
    jax.experimental.host_callback = None  # of its progress bar, which is not used: newer JAX has none
    from sgmcmcjax import kernels

    model = {"loglikelihood": log_likelihood, "logprior": log_prior, "data": (x, y), "batch_size": batch}
    make = {"sgld": kernels.build_sgld_kernel, "sghmc": partial(kernels.build_sghmc_kernel, L=1)}[name]
    begin, kernel, _ = make(dt=STEP, **model)
    return begin(jax.random.PRNGKey(1), start), lambda state, key: kernel(1, key, state)


def main():
    """Listen."""
    package, name, model, data, batch, count = sys.argv[1:]
    with np.load(data) as file:
        x, y = jnp.asarray(file["features"]), jnp.asarray(file["responses"])
    make = {"blackjax": blackjax_step, "sgmcmcjax": sgmcmcjax_step}[package]
    state, step = make(name, *model_of(model, x), x, y, int(batch))
    turn = jax.jit(lambda state, keys: jax.lax.scan(lambda s, key: (step(s, key), None), state, keys)[0])
    for number, _ in enumerate(sys.stdin):
        keys = jax.random.split(jax.random.PRNGKey(number), int(count))
        jax.block_until_ready(keys)
        begin = process_time()
        state = jax.block_until_ready(turn(state, keys))
        print(process_time() - begin, flush=True)
        leaves = [leaf for leaf in jax.tree_util.tree_leaves(state) if jnp.issubdtype(leaf.dtype, jnp.floating)]
        assert all(bool(jnp.isfinite(leaf).all()) for leaf in leaves)


if __name__ == "__main__":
    main()

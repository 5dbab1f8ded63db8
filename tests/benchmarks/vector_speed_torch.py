"""Run posteriors when told: python vector_speed_torch.py SAMPLER MODEL DATA.npz BATCH ITERATIONS BITS.

Then a line a turn. Runs in an environment of its own, without dsgmcmc. Writes the CPU seconds of every turn.
"""

from __future__ import annotations

import sys
from time import process_time

import numpy as np
import posteriors
import torch

STEP = 1e-6


def of_logistic(params, x, y):
    """Log likelihood of some data."""
    eta = x @ params["theta"]
    return (y * eta - torch.nn.functional.softplus(eta)).mean()


def of_network(params, x, y):
    """The same of a network with one hidden layer."""
    hidden = torch.sigmoid(x @ params["inner"] + params["inner_bias"])
    return -torch.nn.functional.cross_entropy(hidden @ params["outer"] + params["outer_bias"], y)


def main():
    """Listen."""
    name, model, data, batch, count, bits = sys.argv[1:]
    torch.set_num_threads(1)
    kind = {"32": torch.float32, "64": torch.float64}[bits]
    with np.load(data) as file:
        x, y = torch.as_tensor(file["features"], dtype=kind), torch.as_tensor(file["responses"])
    if model == "logistic":
        params, log_likelihood, y = {"theta": torch.zeros(x.shape[1], dtype=kind)}, of_logistic, y.to(kind)
    else:
        from vector_speed_models import network_start

        params = {key: torch.as_tensor(value, dtype=kind) for key, value in network_start(x.shape[1]).items()}
        log_likelihood = of_network
    n = len(x)

    def log_posterior(params, both):  # divided by N, as its pages have it
        prior = -0.5 * sum((leaf**2).sum() for leaf in params.values())
        return log_likelihood(params, *both) + prior / n, torch.zeros(0)

    module = getattr(posteriors.sgmcmc, name)
    transform = module.build(log_posterior, lr=STEP * n, temperature=1 / n)
    state = transform.init(params)
    for _ in sys.stdin:
        begin = process_time()
        for _ in range(int(count)):
            index = torch.randint(0, n, (int(batch),))
            state, _aux = transform.update(state, (x[index], y[index]))
        print(process_time() - begin, flush=True)
        assert all(bool(torch.isfinite(leaf).all()) for leaf in state.params.values())


if __name__ == "__main__":
    main()

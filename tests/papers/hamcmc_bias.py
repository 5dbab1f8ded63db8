"""The bias of HAMCMC that small steps do not remove, on a log-cosh target in two dimensions.

    python tests/papers/hamcmc_bias.py
    python tests/papers/hamcmc_bias.py --quick    # to see that it works

U(u) = sum_k log cosh u_k, round: u_1 and u_2 have the hyperbolic secant law, of variance pi^2 / 4.
Chains of the dense reference start from that law. The table has E[u_k^2] / (pi^2 / 4) over the
second half of six relaxation times, ± its standard error over independent chains. gamma = 1 / the
largest curvature = 1 and trust 1, the sampler's defaults. SGLD at the same eps (memory 0), with ten
times as many chains, shows what the step itself does.
"""

import numpy as np
from common import command, head, row
from hamcmc import DenseHAMCMC

VARIANCE = np.pi**2 / 4
RELAXATIONS = 6
BATCH = 4096  # chains that move together


def second_moments(memory: int, eps: float, batches: int) -> tuple[np.ndarray, np.ndarray]:
    """Ratio of E[u_k^2] to the exact one for both k, and its standard error.

    Parameters
    ----------
    memory : int
        M, or 0 for SGLD.
    eps : float
        Step, with gamma = 1.
    batches : int
        Number of batches of independent chains.
    """
    rng = np.random.default_rng([memory, round(1e6 * eps)])
    steps = round(RELAXATIONS * max(memory, 1) / eps)
    ratios = []

    def normals(t: int) -> np.ndarray:
        return rng.standard_normal((BATCH, 2))

    def langevin(x: np.ndarray):
        for t in range(steps):
            x = x - eps * np.tanh(x) + np.sqrt(2 * eps) * normals(t)
            yield x

    reference = DenseHAMCMC(lambda x, t: np.tanh(x), memory, eps, 1.0, lambda t, g: np.ones(2))
    for _ in range(batches):
        start = np.log(np.tan(np.pi / 2 * rng.random((BATCH, 2))))
        path = reference.run(start, normals, steps) if memory else langevin(start)
        total = sum(x**2 for t, x in enumerate(path) if t >= steps // 2)
        ratios.append(total / ((steps - steps // 2) * VARIANCE))
    ratio = np.concatenate(ratios)
    return ratio.mean(axis=0), ratio.std(axis=0) / np.sqrt(len(ratio))


def main() -> None:
    """Print the table."""
    quick = command(__doc__).parse_args().quick
    steps, batches = ((0.5,), 1) if quick else ((0.04, 0.01), 2)
    head("E u^2 over its exact value", *(f"u_{k} at eps {eps:g}" for eps in steps for k in (1, 2)))
    for memory in (0, 2, 5):
        cells = []
        for eps in steps:
            both = second_moments(memory, eps, batches if memory else 10 * batches)
            cells += [f"{mean:.3f} ± {error:.3f}" for mean, error in zip(*both, strict=True)]
        row(f"round: {f'HAMCMC with M = {memory}' if memory else 'SGLD'}", *cells)


if __name__ == "__main__":
    main()

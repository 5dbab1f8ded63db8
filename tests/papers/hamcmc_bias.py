"""The bias of HAMCMC that small steps do not remove, on a log-cosh target in two dimensions.

    python tests/papers/hamcmc_bias.py            # four minutes of one core
    python tests/papers/hamcmc_bias.py --quick    # to see that it works: seconds

U(x) = sum_k log cosh u_k with x = R diag(1, 1/2) u, or x = u: u_k has the hyperbolic secant law, of variance pi^2 / 4.
Chains of the dense reference start from that law. The table has E[u_k^2] / (pi^2 / 4) over the second half of six
relaxation times, ± its standard error over independent chains. gamma = 1 / the largest curvature and trust 1, the
sampler's defaults. SGLD at the same eps (memory 0), with ten times as many chains, shows what the step itself does.
"""

import numpy as np
from common import command, head, row
from hamcmc import DenseHAMCMC

ANGLE = 0.6
ROTATION = np.array([[np.cos(ANGLE), -np.sin(ANGLE)], [np.sin(ANGLE), np.cos(ANGLE)]])
TARGETS = {"round": np.eye(2), "turned": ROTATION @ np.diag([1.0, 0.5])}
VARIANCE = np.pi**2 / 4
RELAXATIONS = 6
BATCH = 4096  # chains that move together


def second_moments(shape: np.ndarray, memory: int, eps: float, batches: int) -> tuple[np.ndarray, np.ndarray]:
    """Ratio of E[u_k^2] to the exact one for both k, and its standard error.

    Parameters
    ----------
    shape : (2, 2)
        x = shape u.
    memory : int
        M, or 0 for SGLD.
    eps : float
        Step, with gamma = 1 / the largest curvature.
    batches : int
        Number of batches of independent chains.
    """
    rng = np.random.default_rng([memory, round(1e6 * eps)])
    inverse = np.linalg.inv(shape)
    curvature = np.linalg.norm(inverse, 2) ** 2
    steps = round(RELAXATIONS * max(memory, 1) * curvature / eps)
    ratios = []

    def gradient(x: np.ndarray, t: int) -> np.ndarray:
        return np.tanh(x @ inverse.T) @ inverse

    def normals(t: int) -> np.ndarray:
        return rng.standard_normal((BATCH, 2))

    def langevin(x: np.ndarray, step: float, steps: int):
        for t in range(steps):
            x = x - step * gradient(x, t) + np.sqrt(2 * step) * normals(t)
            yield x

    reference = DenseHAMCMC(gradient, memory, eps, 1.0, lambda t, g: np.full(2, 1 / curvature))
    for _ in range(batches):
        start = np.log(np.tan(np.pi / 2 * rng.random((BATCH, 2)))) @ shape.T
        path = reference.run(start, normals, steps) if memory else langevin(start, eps / curvature, steps)
        total = sum((x @ inverse.T) ** 2 for t, x in enumerate(path) if t >= steps // 2)
        ratios.append(total / ((steps - steps // 2) * VARIANCE))
    ratio = np.concatenate(ratios)
    return ratio.mean(axis=0), ratio.std(axis=0) / np.sqrt(len(ratio))


def main() -> None:
    """Print the table."""
    quick = command(__doc__).parse_args().quick
    steps, batches = ((0.5,), 1) if quick else ((0.04, 0.01), 2)
    head("E u^2 over its exact value", *(f"u_{k} at eps {eps:g}" for eps in steps for k in (1, 2)))
    for name, shape in TARGETS.items():
        for memory in (0, 2, 5):
            cells = []
            for eps in steps:
                both = second_moments(shape, memory, eps, batches if memory else 10 * batches)
                cells += [f"{mean:.3f} ± {error:.3f}" for mean, error in zip(*both, strict=True)]
            row(f"{name}: {f'HAMCMC with M = {memory}' if memory else 'SGLD'}", *cells)


if __name__ == "__main__":
    main()

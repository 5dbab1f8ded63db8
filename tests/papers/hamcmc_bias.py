"""The bias of HAMCMC that small steps do not remove, on a log-cosh target in two dimensions.

    python tests/papers/hamcmc_bias.py            # an hour of one core
    python tests/papers/hamcmc_bias.py --quick    # to see that it works: seconds

U(x) = sum_k log cosh u_k with x = R diag(1, 1/2) u, or x = u: u_k has the hyperbolic secant law, of variance pi^2 / 4.
Chains of the dense reference start from that law; what is printed is E[u_k^2] / (pi^2 / 4) over the second half of six
relaxation times, with its standard error over independent chains. gamma = 1 / the largest curvature and trust 1,
the sampler's defaults. SGLD at the same eps (memory 0) shows what the step itself does.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from common import command
from hamcmc import DenseHAMCMC

ANGLE = 0.6
ROTATION = np.array([[np.cos(ANGLE), -np.sin(ANGLE)], [np.sin(ANGLE), np.cos(ANGLE)]])
TARGETS = {"x = u": np.eye(2), "x = R diag(1, 1/2) u": ROTATION @ np.diag([1.0, 0.5])}
VARIANCE = np.pi**2 / 4
RELAXATIONS = 6
BATCH = 4096  # chains that move together


def second_moments(shape: np.ndarray, memory: int, eps: float, chains: int) -> tuple[np.ndarray, np.ndarray]:
    """Ratio of E[u_k^2] to the exact one for both k, and its standard error.

    Parameters
    ----------
    shape : (2, 2)
        x = shape u.
    memory : int
        M, or 0 for SGLD.
    eps : float
        Step, with gamma = 1 / the largest curvature.
    chains : int
        Independent chains.
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
    for _ in range(-(-chains // BATCH)):
        start = np.log(np.tan(np.pi / 2 * rng.random((BATCH, 2)))) @ shape.T
        path = reference.run(start, normals, steps) if memory else langevin(start, eps / curvature, steps)
        total = sum((x @ inverse.T) ** 2 for t, x in enumerate(path) if t >= steps // 2)
        ratios.append(total / ((steps - steps // 2) * VARIANCE))
    ratio = np.concatenate(ratios)
    return ratio.mean(axis=0), ratio.std(axis=0) / np.sqrt(len(ratio))


def main() -> None:
    """Print the table."""
    quick = command(__doc__).parse_args().quick
    print("E[u^2] over its exact value, for u_1 and u_2")
    for name, memory, eps in product(TARGETS, (0, 2, 3, 5), (0.5,) if quick else (0.02, 0.005)):
        mean, error = second_moments(TARGETS[name], memory, eps, 100 if quick else 40_000)
        label = f"HAMCMC M={memory}" if memory else "SGLD"
        figures = "   ".join(f"{m:.4f} +- {e:.4f}" for m, e in zip(mean, error, strict=True))
        print(f"{name:22}{label:12}eps {eps:<7g}{figures}", flush=True)


if __name__ == "__main__":
    main()

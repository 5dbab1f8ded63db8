"""Metrics: the coordinates that they find, what updates and momenta are in them, and the steps that
rows take.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from support import MODEL, Model, factor_target, rows_of, write_planted

from dsgmcmc.model.target import FactorTarget
from dsgmcmc.samplers.baoab import BAOAB, BAOABConfig
from dsgmcmc.samplers.metrics import EARLY_UNTIL, REFRESH_EVERY, Fisher, Kronecker
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Factor

MODELS = {
    "diagonal": MODEL,
    "dense": Model(2, True, "normal-wishart", 1.0, None),
    "no biases": Model(3, False, "fixed", 2.0, 1.5),
}


@pytest.fixture(params=MODELS)
def target(tmp_path: Path, request: Any) -> FactorTarget:
    """At a state of no symmetry, with columns that are correlated and unlike precisions of the
    prior.
    """
    sampler = BAOAB(BAOABConfig(metric="kronecker"), 0)
    model = MODELS[request.param]
    target = factor_target(
        MPI.COMM_SELF, write_planted(tmp_path / "r.h5"), 4, model=model, sampler=sampler
    )
    rng = np.random.default_rng(0)
    d = target.dimension
    for factor in Factor:
        precision = target.row_priors.parameters.precision[factor]
        root = rng.normal(size=(d, d))
        precision[:] = root @ root.T + np.eye(d) if precision.ndim == 2 else rng.uniform(0.5, 3, d)
    move(target, rng)
    for block in target.blocks():
        block["r"][:] = rng.normal(size=block["r"].shape)
    return target


def move(target: FactorTarget, rng: np.random.Generator) -> None:
    mixing = rng.normal(size=(target.dimension,) * 2)
    for block in target.blocks():
        block["theta"][:] = rng.normal(size=block["theta"].shape) @ mixing + 0.5


def features(target: FactorTarget) -> dict[Factor, np.ndarray]:
    """Covariates that multiply the rows of the other factor."""
    rows = {factor: rows_of(target, factor) for factor in Factor}
    for matrix in rows.values() if target.row_priors.biases else ():
        matrix[:, -1] = 1.0
    return rows


def information(target: FactorTarget) -> dict[Factor, np.ndarray]:
    """C of both factors, from the state."""
    averages = {}
    for factor, rows in features(target).items():
        n = np.concatenate(
            [b.counts for b in sorted(target.blocks(), key=lambda b: b.start) if b.factor == factor]
        )
        averages[Factor.H if factor == Factor.W else Factor.W] = (rows.T * n) @ rows / n.sum()
    return averages


STATES: dict[str, Callable[[np.ndarray, np.random.Generator], np.ndarray]] = {
    "usual": lambda theta, rng: theta,
    "collinear": lambda theta, rng: rng.choice([-1, 1], (len(theta), 1)) * theta[:1],
    "heavy tails": lambda theta, rng: theta * rng.pareto(0.7, (len(theta), 1)),
}


def own_matrices(
    target: FactorTarget, metric: Fisher
) -> Iterator[tuple[ParameterBlock, int, np.ndarray]]:
    """M_i of every row with ratings, in the metric's coordinates, made rating by rating."""
    phi = features(target)
    tau = target.noise_precision
    found = target.information("theta", True, {})
    seen = np.zeros((len(phi[Factor.W]), len(phi[Factor.H])))
    for (b, c), cell in target.ratings.train.items():
        at = np.repeat(np.arange(len(cell.indptr) - 1), np.diff(cell.indptr))
        seen[
            target.ratings.bounds(Factor.W, b)[0] + at,
            target.ratings.bounds(Factor.H, c)[0] + cell.indices,
        ] = 1
    for block in target.blocks():
        other, rated = (Factor.H, seen) if block.factor == Factor.W else (Factor.W, seen.T)
        common = found.common[block.factor]
        axes = np.eye(target.dimension)
        if isinstance(metric, Kronecker):
            axes = metric.vectors[block.factor]
        dense = axes.T @ (common if common.ndim == 2 else np.diag(common)) @ axes
        for k, row in enumerate(rated[block.start : block.start + len(block.counts)]):
            p = tau * row.sum() * metric.c[block.factor] + np.diag(dense)
            turned = phi[other][row > 0] @ axes
            yield block, k, (tau * turned.T @ turned + dense) / np.sqrt(np.outer(p, p))


@pytest.mark.parametrize("metric_type", [Fisher, Kronecker])
@pytest.mark.parametrize("state", STATES)
def test_steps_suit_the_curvature_of_every_row(
    target: FactorTarget, metric_type: type[Fisher], state: str
) -> None:
    """l_i is at least half the largest eigenvalue of the row's own Hessian, less a tenth, and never
    above its trace.

    So it has to be where rows are collinear, with signs that cancel in the mean; where one rating
    outweighs the others; and for rows of one rating. Without power iteration l_i is up to ten times
    too small there.
    """
    rng = np.random.default_rng(1)
    for block in target.blocks():
        block["theta"][:] = STATES[state](block["theta"], rng)
    metric = metric_type()
    for _ in range(8):  # of power iteration, at one state
        metric.compute(target)
    average = target.information("theta", True, {}).bound
    assert average is not None
    for block, k, matrix in own_matrices(target, metric):
        l_i = 1 / float(block.row("h")[k]) ** 2
        assert l_i > 0.45 * np.linalg.eigvalsh(matrix)[-1]
        if metric_type is Fisher:
            assert l_i < 1.001 * max(average[block][k], (1 + np.trace(matrix)) / 2)


@pytest.mark.parametrize("metric_type", [Fisher, Kronecker])
def test_bounds_are_computed_anew_where_a_row_has_grown(
    target: FactorTarget, metric_type: type[Fisher]
) -> None:
    """Between two turns at which they are due, steps of rows that have ratings with it fall; else
    nothing changes.
    """
    metric = metric_type()
    not_due = (EARLY_UNTIL + 1) * REFRESH_EVERY * target.sweep_length
    for _ in range(3):
        metric.compute(target)

    def steps() -> np.ndarray:
        metric.refresh(target, not_due)
        return np.concatenate(
            [block.row("h").copy() for block in target.blocks() if block.factor == Factor.W]
        )

    before = steps()
    grown = next(block for block in target.blocks() if block.factor == Factor.H)
    grown["theta"][0, : target.row_priors.rank] *= (
        2  # four times its mean square, and chance is left room
    )
    np.testing.assert_array_equal(steps(), before)
    grown["theta"][0, : target.row_priors.rank] *= 20
    after = steps()
    assert (after <= before).all()
    assert (after < before).mean() > 0.8


def test_a_move_is_that_of_the_whole_matrix(target: FactorTarget) -> None:
    """-h_i^2 / 2 (tau n_i C + Lambda)^-1 grad, row by row, as a dense solver finds it.

    So it is equivariant: in other coordinates W R, H R^-T of the same predictions it is the same
    move.
    """
    metric = Kronecker()
    metric.compute(target)
    drift = metric.formula("theta = theta - 0.5 * step * step * grad\n")
    c = information(target)
    target.full_gradient("theta", "g")
    for block in target.blocks():
        block.begin_gradient("theta", "g", prior=True)
        block["g"][:] += np.random.default_rng(block.index).normal(size=block["g"].shape)
        before = block["theta"].astype(np.float64)
        gradient = block["g"].astype(np.float64)
        precision = target.row_priors.parameters.precision[block.factor]
        dense = precision if precision.ndim == 2 else np.diag(precision)
        h = 0.7 * block.row("h").astype(np.float64)
        metric.update(target, block, drift, 0.7)
        for i, n in enumerate(block.counts):
            full_precision = target.noise_precision * n * c[block.factor] + dense
            expected = -0.5 * h[i] ** 2 * np.linalg.solve(full_precision, gradient[i])
            np.testing.assert_allclose(
                block["theta"][i] - before[i], expected, rtol=2e-3, atol=2e-5
            )


@pytest.mark.parametrize("follows", [False, True])
def test_the_diagonal_metric_has_what_was_drawn_last(target: FactorTarget, follows: bool) -> None:
    """(tau n_i c_k + lambda_k)^-1/2 r, of tau and lambda that were drawn after the metric was
    taken, where it follows.

    Those of older states would make posteriors too narrow.
    """
    target.metric_uses_current_hyperparameters = follows
    metric = Fisher()
    state = target.row_priors.parameters
    metric.compute(target)
    tau = target.noise_precision
    lambdas = {factor: state.precision[factor].copy() for factor in Factor}
    target.noise.parameters.tau[...] *= 1.7
    for factor in Factor:
        state.precision[factor] *= 0.6
    for block in target.blocks():
        precision = lambdas[block.factor] * (0.6 if follows else 1)
        lambda_ = np.diag(precision) if precision.ndim == 2 else precision
        counted = tau * (1.7 if follows else 1) * block.counts[:, None] * metric.c[block.factor]
        before = block["theta"].copy()
        h = 0.7 * block.row("h").astype(np.float64)
        metric.update(target, block, metric.formula("theta = theta + step * r\n"), 0.7)
        expected = h[:, None] / np.sqrt(counted + lambda_) * block["r"]
        np.testing.assert_allclose(block["theta"] - before, expected, rtol=1e-3, atol=1e-5)

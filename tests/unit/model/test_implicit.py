"""Implicit features: draws of y given the factors, against the normal law that NumPy computes from
dense matrices.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from measurements import write_measured
from mpi4py import MPI
from support import Model, cells_of, factor_target, rows_of

from dsgmcmc.model.parts.implicit import ImplicitFeatures
from dsgmcmc.model.parts.implicit_systems import DIRECTIONS
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.samplers.baoab import BAOAB, BAOABConfig
from dsgmcmc.types import Factor

ROWS = 29
COLUMNS = 17
DRAWS = 1000
MODEL = Model(rank=1, biases=True, prior="fixed", prior_precision=2.0, noise_precision=1.0)


def with_scales(model: Model, scaled: bool) -> Model:
    """The model or, if `scaled`, one whose rows' scales multiply their priors' precisions, too."""
    if not scaled:
        return model
    return replace(model, heteroscedastic=tuple(Factor), coupled=True)


def set_scales(target: FactorTarget) -> dict[Factor, np.ndarray]:
    """Give the rows scales that stay, if they have any; 1 without."""
    rng = np.random.default_rng(8)
    scales = {}
    for factor, n in ((Factor.W, ROWS), (Factor.H, COLUMNS)):
        scales[factor] = np.ones(n)
        if target.noise.factors:
            scales[factor] = rng.gamma(3, 1 / 3, n)
            for block in target.blocks():
                if block.factor == factor:
                    block.row("weight")[:] = scales[factor][block.start :][: len(block.counts)]
    target.noise.factors = ()  # they are not drawn
    return scales


def target_of(
    data: Path, sampler: BAOAB | None = None, scaled: bool = False
) -> tuple[FactorTarget, np.ndarray]:
    """A target at a random state, with implicit features of both sides, and its pattern, whose last
    column is empty.
    """
    part = ImplicitFeatures((Factor.W, Factor.H), 2, 5.0)
    model = with_scales(MODEL, scaled)
    target = factor_target(MPI.COMM_SELF, data, model=model, sampler=sampler, parts=(part,))
    rng = np.random.default_rng(1)
    for block in target.blocks():
        block["theta"][:] = rng.normal(0.3, 0.7, block["theta"].shape)
    pattern = np.zeros((ROWS, COLUMNS))
    i, j, _ = cells_of(data)
    pattern[i, j] = 1
    return target, pattern


def draw(target: FactorTarget, iteration: int) -> None:
    """Draw all implicit features once."""
    target.stream.iteration = iteration
    target.parts[-1].draw(target.context()._replace(hyper_sweep=1))


@pytest.mark.parametrize("scaled", [False, True], ids=["", "scaled"])
def test_y_has_its_conditional_law_and_a_row_without_ratings_the_shifts_of_the_others(
    data: Path, scaled: bool
) -> None:
    """Mean and variance of y | theta at fixed beta, over a chain of its own, which must leave that
    law invariant.

    The shift of a row without ratings is drawn from the normal law of the others given its theta,
    not set to that of an empty set.
    """
    target, pattern = target_of(data, scaled=scaled)
    scales = set_scales(target)
    part = target.parts[-1]
    assert isinstance(part, ImplicitFeatures)
    (column,) = np.flatnonzero(pattern.sum(axis=0) == 0)
    theta = rows_of(target, Factor.H, "theta")[column]
    own = 2.0 * scales[Factor.H][column]
    draws = []
    z = []
    for iteration in range(DRAWS):
        part.parameters.precision = {factor: np.full(2, 5.0) for factor in Factor}
        draw(target, iteration)
        draws.append(rows_of(target, Factor.H, "implicit"))
        parameters = part.parameters.arrays()
        mean = parameters["H.implicit.mean"]
        variance = parameters["H.implicit.variance"]
        precision = 1 / variance + own
        shift = rows_of(target, Factor.H, "shift")[column]
        z.append((shift - (mean / variance + own * theta) / precision) * np.sqrt(precision))
    np.testing.assert_allclose(np.mean(z, axis=0), 0.0, atol=5 / np.sqrt(DRAWS))
    np.testing.assert_allclose(np.std(z, axis=0), 1.0, atol=5 / np.sqrt(2 * DRAWS))
    x = pattern / np.sqrt(np.maximum(pattern.sum(axis=1), 1))[:, None]
    weighted = 2.0 * x.T * scales[Factor.W]
    precision = weighted @ x + 5.0 * np.eye(COLUMNS)
    covariance = np.linalg.inv(precision)
    mean = covariance @ (weighted @ rows_of(target, Factor.W, "theta"))
    se = np.sqrt(np.diag(covariance) / DRAWS)[:, None]
    # draws are nearly independent: what the conjugate gradients leave unsolved moves less, and
    # stays correlated; so 7 standard errors of means and of variances, of which there are 34 each
    np.testing.assert_allclose(np.mean(draws, axis=0), mean, atol=7 * se.max())
    variances = np.var(draws, axis=0) / np.diag(covariance)[:, None]
    np.testing.assert_allclose(variances, 1.0, atol=7 * np.sqrt(2 / DRAWS))


def test_the_shift_is_what_y_adds_up_to(data: Path) -> None:
    """rho_i times the sum of the y of what a row has ratings of, on both sides, after several
    draws.
    """
    target, pattern = target_of(data)
    assert not any(block["shift"].any() for block in target.blocks())
    for iteration in range(6):
        draw(target, iteration)
    for factor, r in ((Factor.W, pattern), (Factor.H, pattern.T)):
        n = r.sum(axis=1)
        shift = (
            r @ rows_of(target, Factor(1 - factor), "implicit") / np.sqrt(np.maximum(n, 1))[:, None]
        )
        np.testing.assert_allclose(rows_of(target, factor, "shift")[n > 0], shift[n > 0], atol=1e-5)


def test_the_directions_of_the_preconditioner_have_the_largest_eigenvalues(data: Path) -> None:
    """U and s are those of the largest eigenvalues of the scaled X^T X, nearly; blocks that stay
    keep them.
    """
    target, pattern = target_of(data, BAOAB(BAOABConfig(), 0))
    draw(target, 0)
    u = rows_of(target, Factor.H, DIRECTIONS)
    x = pattern / np.sqrt(np.maximum(pattern.sum(axis=1), 1))[:, None]
    scaled = x / np.sqrt((x**2).sum(axis=0) + 1)
    wanted = 1 - 1 / np.maximum(1, np.linalg.eigvalsh(scaled.T @ scaled)[-2:])
    found = 1 - 1 / target.parts[-1].spectra[Factor.W]
    assert np.all((found <= wanted + 1e-5) & (found >= 0.6 * wanted))
    assert wanted[1] > 0.7
    np.testing.assert_allclose((u.T @ u)[1, 1], 1, atol=1e-5)
    draw(target, 1)
    np.testing.assert_array_equal(rows_of(target, Factor.H, DIRECTIONS), u)


@pytest.mark.parametrize("scaled", [False, True], ids=["", "scaled"])
def test_moves_of_y_leave_a_normal_posterior_invariant(data: Path, scaled: bool) -> None:
    """Biases alone, with fixed precisions: the posterior of all theta and y is normal, and NumPy
    computes it exactly.

    4,000 sweeps are worth at least 400 independent draws of any of them; 4.5 standard errors are
    allowed for the largest of 88 means and of 88 variances. The variances of rows less their
    shifts, on average over 44 rows, have a standard error of 0.01 at most; they are 0.04 too large
    if rows follow too far by a half.
    """
    sampler = BAOAB(BAOABConfig(step_size=0.25), 0)
    part = ImplicitFeatures((Factor.W, Factor.H), 1, 3.0, moves_from=0)
    model = Model(rank=0, biases=True, prior="fixed", prior_precision=2.0, noise_precision=0.2)
    model = with_scales(model, scaled)
    target = factor_target(MPI.COMM_SELF, data, model=model, sampler=sampler, parts=(part,))
    scales = set_scales(target)
    sampler.start(target, 0.3)
    fields = [
        (Factor.W, "theta"),
        (Factor.H, "theta"),
        (Factor.W, "implicit"),
        (Factor.H, "implicit"),
    ]
    draws = []
    for iteration in range(4200):
        part.parameters.precision = {factor: np.full(1, 3.0) for factor in Factor}
        target.begin(iteration)
        sampler.step(target, iteration)
        if iteration >= 200:
            draws.append(np.concatenate([rows_of(target, *field)[:, 0] for field in fields]))
    i, j, x = cells_of(data)
    n = ROWS
    m = COLUMNS
    pattern = np.zeros((n, m))
    pattern[i, j] = 1
    to_rows, to_columns = (
        r / np.sqrt(np.maximum(r.sum(axis=1), 1))[:, None] for r in (pattern, pattern.T)
    )
    design = np.zeros((len(x), 2 * (n + m)))
    design[np.arange(len(x)), i] = design[np.arange(len(x)), n + j] = 1
    residual = np.eye(n + m, 2 * (n + m))  # theta less the shift
    residual[:n, 2 * n + m :] = -to_rows
    residual[n:, n + m : 2 * n + m] = -to_columns
    fit = 0.2 * design.T * (scales[Factor.W][i] * scales[Factor.H][j])
    pull = 2.0 * residual.T * np.concatenate([scales[Factor.W], scales[Factor.H]])
    precision = fit @ design + pull @ residual
    precision[n + m :, n + m :] += 3.0 * np.eye(n + m)
    mean = np.linalg.solve(precision, fit @ (x - x.mean()))
    covariance = np.linalg.inv(precision)
    variance = np.diag(covariance)
    # others have shifts of their own
    rated = np.concatenate([r.sum(axis=1) > 0 for r in (pattern, pattern.T)] * 2)
    assert np.abs((np.mean(draws, axis=0) - mean) / np.sqrt(variance))[rated].max() < 4.5 / np.sqrt(
        400
    )
    assert np.abs(np.var(draws, axis=0) / variance - 1)[rated].max() < 4.5 * np.sqrt(2 / 400)
    apart = np.var(draws @ residual.T, axis=0) / np.diag(residual @ covariance @ residual.T)
    assert abs(apart[rated[: n + m]].mean() - 1) < 0.03


def test_a_pair_counts_once_whatever_the_number_of_its_measurements(tmp_path: Path) -> None:
    """Draws given the factors are the same for a file in which pairs have several measurements, and
    one with the first of each.
    """
    theta = np.random.default_rng(2).normal(0.3, 0.7, (2, ROWS, 2))
    drawn = []
    for path in (tmp_path / "several.h5", tmp_path / "one.h5"):
        write_measured(path, test=0.0, replicated=path.stem == "several")
        target, _ = target_of(path)
        for block in target.blocks():
            block["theta"][:] = theta[block.factor, block.start :][: len(block.counts)]
        draw(target, 1)
        drawn.append([rows_of(target, factor, "implicit") for factor in Factor])
    np.testing.assert_allclose(drawn[0][0], drawn[1][0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(drawn[0][1], drawn[1][1], rtol=1e-5, atol=1e-6)

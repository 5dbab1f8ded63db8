"""The joint move of columns and their half-Cauchy priors: its law, its sums, and what it leaves."""

from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from support import Model, factor_target

from dsgmcmc.model.parts import column_sizes
from dsgmcmc.model.parts.column_sizes import (
    draw_multipliers,
    move_column_sizes,
    sums_of_products,
)
from dsgmcmc.samplers.baoab import BAOAB, BAOABConfig
from dsgmcmc.types import Factor


@pytest.mark.parametrize(("gram", "moment"), [(0.01, 0.0), (4.0, 3.0), (0.5, -2.0)])
def test_repeated_moves_have_the_posterior_of_quadrature(gram: float, moment: float) -> None:
    """The product of all multipliers c has the density N(gram c; moment, gram) / (A^2 + s^2 c^2).

    20,000 draws, autocorrelated by the auxiliary variable, have an error below 0.015 of a share.
    """
    scale = 0.4
    sd = 0.7
    grid = np.linspace(-60, 60, 240_001)
    log_density = moment * grid - gram * grid**2 / 2 - np.log(scale**2 + (sd * grid) ** 2)
    share = np.cumsum(np.exp(log_density - log_density.max()))
    share /= share[-1]
    rng = np.random.default_rng(2)
    product = np.ones(200)  # as many columns, each with a chain
    draws = []
    for _ in range(120):
        c = draw_multipliers(
            np.diag(gram * product**2),
            moment * product,
            sds=sd * np.abs(product),
            scale=scale,
            rng=rng,
        )
        product = product * c
        draws.append(product)
    found = np.concatenate(draws[20:])
    for level in (0.05, 0.25, 0.5, 0.75, 0.95):
        quantile = np.interp(level, share, grid)
        assert np.mean(found < quantile) == pytest.approx(level, abs=0.015)


@pytest.mark.parametrize("noisy", [False, True])
def test_sums_are_those_of_a_regression_on_the_products_of_columns(
    data: Path, monkeypatch: pytest.MonkeyPatch, noisy: bool
) -> None:
    """With slabs of fewer ratings than a cell has."""
    monkeypatch.setattr(column_sizes, "SLAB", 3)
    target = factor_target(
        MPI.COMM_SELF, data, model=Model(rank=2, heteroscedastic=tuple(Factor) if noisy else ())
    )
    rng = np.random.default_rng(1)
    for block in target.blocks():
        block["theta"][:] = rng.normal(size=block["theta"].shape)
        if noisy:
            block["weight"][:] = rng.uniform(0.5, 2, block["weight"].shape)
    gram = np.zeros((2, 2))
    moment = np.zeros(2)
    for row, column, ratings in target.circulation.tour(("theta",)):
        w = row["theta"].astype(np.float64)[ratings.rows]
        h = column["theta"].astype(np.float64)[ratings.indices]
        g = np.ones(len(w))
        if noisy:
            g = row["weight"][ratings.rows, 0] * column["weight"][ratings.indices, 0]
        x = w[:, :2] * h[:, :2]
        gram += (x.T * g) @ x
        moment += x.T @ (g * (ratings.values - w[:, 2] - h[:, 2]))
    products = sums_of_products(target.context()).sum(axis=0)
    assert products[:2, :2] == pytest.approx(gram, rel=1e-4)
    assert products[:2, 2] == pytest.approx(moment, rel=1e-4, abs=1e-3)


def test_more_columns_than_ratings_have_multipliers() -> None:
    """Products in float32 of 6 ratings with 20 columns, whose prior is far wider than they are."""
    rng = np.random.default_rng(0)
    products = rng.normal(size=(6, 20)).astype(np.float32)
    gram = (products.T @ products).astype(np.float64)
    sds = np.full(20, 1e-9)
    for _ in range(50):
        assert np.isfinite(draw_multipliers(gram, gram[0], sds=sds, scale=1.0, rng=rng)).all()


def test_rows_are_as_far_from_their_prior_as_before(data: Path) -> None:
    """In units of the prior's sd, and momenta with the sign of their column."""
    sampler = BAOAB(BAOABConfig(), 0)
    model = Model(rank=2, prior="half-cauchy", standardised=True)
    target = factor_target(MPI.COMM_SELF, data, model=model, sampler=sampler)
    sampler.start(target, 0.01)
    parameters = target.row_priors.parameters
    for factor in Factor:
        parameters.precision[factor][:2] = 1e4
        parameters.mean[factor][:2] = 0.004
    before = deviations(target)
    momenta = [block["r"][:, :2].copy() for block in target.blocks()]
    old = {factor: parameters.mean[factor].copy() for factor in Factor}
    context = target.context()._replace(hyper_sweep=4, momentum="r")
    move_column_sizes(
        context,
        parameters.mean,
        parameters.precision,
        rank=2,
        scales=target.row_priors.scales,
    )
    for number, (block, standard) in enumerate(
        zip(target.blocks(), deviations(target), strict=True)
    ):
        sign = np.sign(parameters.mean[block.factor][:2] / old[block.factor][:2])
        assert standard * sign == pytest.approx(before[number], rel=1e-4, abs=1e-5)
        assert np.array_equal(block["r"][:, :2] * sign, momenta[number])
    for factor in Factor:
        assert parameters.precision[factor][:2].max() != 1e4
        assert np.array_equal(parameters.mean[factor][2:], old[factor][2:])


def deviations(target) -> list[np.ndarray]:
    """Deviations of all rows from their prior mean, in units of its sd, without biases."""
    found = []
    for block in target.blocks():
        prior = target.row_priors.parameters
        centred = block["theta"] - prior.mean[block.factor]
        found.append((centred * np.sqrt(prior.precision[block.factor]))[:, :2])
    return found

"""Weights: a measurement of weight n has the gradients and the laws of n equal measurements."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from measurements import write_measured, write_measures
from mpi4py import MPI
from support import Model, factor_target, planted, rows_of

from dsgmcmc.config.run import build
from dsgmcmc.errors import InputError
from dsgmcmc.model.likelihoods import LIKELIHOODS
from dsgmcmc.model.likelihoods.student_t import StudentT
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.held_out import InnerSplit
from dsgmcmc.samplers.gibbs import Gibbs, GibbsConfig
from dsgmcmc.types import Factor

MODEL = Model(rank=2, biases=True, prior="fixed", noise_precision=1.5)
SHAPE = (29, 17)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, float]:
    """The same ratings, repeated once to thrice and with weights 1 to 3; the mean weight."""
    i, j, x = planted()
    repeats = np.random.default_rng(5).integers(1, 4, len(i))
    # both files have one mean, which is subtracted
    share = 1 / len(i) - repeats / repeats.sum()
    often = repeats == 3
    x = x + often * (x @ -share) / share[often].sum()
    pair = np.repeat(np.arange(len(i)), repeats)
    repeated = tmp_path / "repeated.h5"
    weighted = tmp_path / "weighted.h5"
    none = np.zeros(len(pair), bool)
    write_measures(repeated, SHAPE, i[pair], j[pair], x[pair], none, {}, len(pair) - len(i))
    write_measures(weighted, SHAPE, i, j, x, none[: len(i)], {"weight": repeats})
    return repeated, weighted, float(repeats.mean())


def target_of(path: Path, model: Model, **more: object) -> FactorTarget:
    """A target at a random state that does not depend on the blocks, about the rating 3.5."""
    target = factor_target(MPI.COMM_SELF, path, model=model, **more)
    rng = np.random.default_rng(1)
    theta = rng.normal(0, 0.7, (2, SHAPE[0], 3))
    scales = rng.uniform(0.5, 2, (2, SHAPE[0]))
    for block in target.blocks():
        rows = slice(block.start, block.start + len(block.counts))
        block["theta"][:] = theta[block.factor, rows]
        if "weight" in block.arrays:
            block.row("weight")[:] = scales[block.factor, rows]
    return target


@pytest.mark.parametrize("noisy", [(), tuple(Factor)])
def test_gradients_are_those_of_repeated_measurements(files, noisy) -> None:
    """With one noise level, and with scales of users and items; so are the sums of squared errors,
    from which noise is drawn, and the information.
    """
    repeated, weighted, mean = files
    model = replace(MODEL, heteroscedastic=noisy)
    found = []
    for path, unit in ((repeated, 1.0), (weighted, mean)):
        target = target_of(path, model)
        target.begin(0)
        target.full_gradient("theta", "g")
        arrays = [unit * rows_of(target, factor, "g") for factor in Factor]
        arrays.append(unit * target.noise.squared_error.sum())
        if noisy:
            arrays += [unit * rows_of(target, factor, "row_error") for factor in Factor]
        n, squares = target.likelihood.counts(target.circulation)
        arrays.append(unit * np.concatenate([n[block] for block in target.blocks()]).sum())
        assert all((squares[block] >= 0).all() for block in target.blocks())
        found.append(arrays)
    for of_repeated, of_weighted in zip(*found, strict=True):
        np.testing.assert_allclose(of_repeated, of_weighted, rtol=2e-4, atol=2e-3)


def test_conditionals_of_gibbs_sampling_are_those_of_repeated_measurements(files) -> None:
    """The statistics of the rows of both factors, from which they are drawn exactly."""
    repeated, weighted, mean = files
    model = replace(MODEL, heteroscedastic=tuple(Factor), first=10**6)
    found = []
    for path, unit in ((repeated, 1.0), (weighted, mean)):
        target = target_of(path, model, sampler=Gibbs(GibbsConfig(), 0))
        target.begin(0)
        statistics = {}
        for factor in Factor:
            for rows, conditional in target.conditionals(factor, "theta"):
                of_rows = conditional.statistics * conditional.scale[:, None] * unit
                for block, of_block in rows.by_block(of_rows):
                    for k, of_row in enumerate(of_block):
                        statistics[factor, block.start + k] = of_row
        found.append(statistics)
    assert found[0].keys() == found[1].keys()
    for key, of_repeated in found[0].items():
        np.testing.assert_allclose(of_repeated, found[1][key], rtol=2e-4, atol=2e-3)


def test_heavy_tails_are_narrower_by_the_weight(tmp_path: Path) -> None:
    """The gradient of Student-t ratings is that of their log density with precisions tau w."""
    path = write_measured(tmp_path / "r.h5", test=0.0, weighted=True)
    target = target_of(path, MODEL, likelihood=StudentT)
    target.begin(0)
    target.full_gradient("theta", "g")
    with Ratings(path) as ratings:
        slab = ratings.slab("train", 0, ratings.n_rows)
    law = target.likelihood
    tau = target.noise_precision
    w = rows_of(target, Factor.W, "theta")[slab.rows]
    h = rows_of(target, Factor.H, "theta")[slab.indices]
    eta = (w[:, :2] * h[:, :2]).sum(axis=1) + w[:, 2] + h[:, 2]
    x = slab.values.astype(np.float64) - target.ratings.centre
    variance = law.variance(eta, 1 / (tau * slab.weights), *law.shape)
    step = 1e-3
    slopes = law.log_density(x, eta + step, variance, *law.shape)
    slopes = (slopes - law.log_density(x, eta - step, variance, *law.shape)) / (2 * step)
    expected = np.bincount(slab.rows, -slopes, SHAPE[0])
    found = tau * rows_of(target, Factor.W, "g")[:, 2]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def test_weights_have_the_mean_1_over_the_training_part(tmp_path: Path) -> None:
    """Of a file, and of the part of it that is trained on when models are compared."""
    path = write_measured(tmp_path / "r.h5", weighted=True)
    with Ratings(path) as ratings:
        ratings.verify()
        for view in (ratings, InnerSplit(ratings, 0.3, seed=1)):
            weights = view.slab("train", 0, view.n_rows).weights
            assert weights.mean() == pytest.approx(1, rel=1e-6)
            assert weights.std() > 0.3


@pytest.mark.parametrize("likelihood", ["negative-binomial", "ordinal-logit", "all-cells"])
def test_other_likelihoods_refuse_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, likelihood: str
) -> None:
    """The message names those that take them, also one that a script registers."""
    monkeypatch.setitem(LIKELIHOODS, "own", StudentT)
    path = write_measured(tmp_path / "r.h5", weighted=True)
    config = build({"likelihood": likelihood}).resolved()
    with Ratings(path) as ratings, pytest.raises(InputError) as raised:
        config.check_ratings(ratings)
    assert f"likelihood {likelihood} does not take" in str(raised.value)
    assert "use gaussian or student-t or own, or prepare" in str(raised.value)

"""Thresholds of every user: their coordinates, gradients over all ratings, priors, and what a warm start takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from scipy.special import expit, ndtr
from support import MODEL, factor_target, sample, write_planted

from dsgmcmc.config.layers import build
from dsgmcmc.data.ratings import open_ratings, write_ratings
from dsgmcmc.errors import InputError
from dsgmcmc.model.likelihoods import LIKELIHOODS
from dsgmcmc.model.likelihoods.thresholds import (
    CUTS,
    GAP_PRIOR,
    GAPS,
    MAX_DEVIATION,
    ThresholdModel,
    gap_information,
    slopes_of,
    values_of,
)
from dsgmcmc.model.target import FactorTarget
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.posterior.run import Run
from dsgmcmc.runs.source import RatingsSource, targets_of
from dsgmcmc.samplers.sgmcmc.sgld import SGLD, SGLDConfig
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.types import Factor

CDF = {"ordinal-logit": expit, "ordinal-probit": ndtr}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_planted(tmp_path_factory.mktemp("data") / "r.h5", stars=True)


def target_of(data: Path, name: str, factor: Factor, scaled: bool) -> FactorTarget:
    """A target away from its start: random factors, scales, thresholds and gaps."""
    sampler = SGLD(SGLDConfig(gradient="full"), 0)
    model = replace(MODEL, noise_precision=1.0, heteroscedastic=tuple(Factor) if scaled else ())
    given = {"model": model, "sampler": sampler, "likelihood": LIKELIHOODS[name], "own_thresholds": factor}
    target = factor_target(MPI.COMM_SELF, data, 3, **given)
    sampler.start(target, 0.6)
    rng, law = np.random.default_rng(2), target.likelihood
    law.thresholds.position = law.thresholds.position + np.array([0.3, -0.2, 0.1, 0.4])
    for block in target.blocks():
        if scaled:
            block.row("weight")[:] = np.exp(rng.normal(0, 0.3, len(block.counts)))
        if block.factor == factor:
            block[GAPS][:] = rng.normal(0, 0.3, block[GAPS].shape)
        law.refresh_derived_fields(block)
    return target


def whole(target: FactorTarget, factor: Factor, field: str) -> np.ndarray:
    """A field of all rows of a factor; the columns are at home."""
    return np.concatenate([block[field] for block in target.blocks() if block.factor == factor]).astype(np.float64)


@pytest.mark.parametrize(("name", "factor"), [("ordinal-logit", 0), ("ordinal-logit", 1), ("ordinal-probit", 0)])
@pytest.mark.parametrize("scaled", [False, True])
def test_slopes_are_those_of_the_log_likelihood(name: str, factor: int, scaled: bool, data: Path) -> None:
    """In the log gaps of single rows, and in the coordinates that all have in common, by finite differences."""
    owner = Factor(factor)
    target = target_of(data, name, owner, scaled)
    target.full_gradient("theta", "g")
    position = target.likelihood.thresholds.position
    gaps = MAX_DEVIATION * np.tanh(whole(target, owner, GAPS) / MAX_DEVIATION)
    w, h = whole(target, Factor.W, "theta"), whole(target, Factor.H, "theta")
    with open_ratings(data) as ratings:
        indptr, j, x = ratings.slab("train", 0, ratings.n_rows)
    i = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    eta = (w[i, :-1] * h[j, :-1]).sum(axis=1) + w[i, -1] + h[j, -1]
    s = whole(target, Factor.W, "weight")[i, 0] * whole(target, Factor.H, "weight")[j, 0] if scaled else np.ones(len(i))
    level, of = np.searchsorted(target.likelihood.values, x), (i, j)[factor]

    def log_likelihoods(phi: np.ndarray, d: np.ndarray) -> np.ndarray:
        cuts = values_of(phi + np.insert(d, 2, 0.0, axis=1))[of]
        up_to = CDF[name](s[:, None] * (cuts - eta[:, None]))
        p = np.diff(np.column_stack([np.zeros(len(eta)), up_to, np.ones(len(eta))]), axis=1)
        return np.log(p[np.arange(len(p)), level])

    found = np.concatenate([slopes_of(block) for block in target.blocks() if block.factor == owner])
    for k, place in enumerate((0, 1, 3)):
        e = 1e-5 * np.eye(3)[k]
        change = (log_likelihoods(position, gaps + e) - log_likelihoods(position, gaps - e)) / 2e-5
        np.testing.assert_allclose(found[:, place], np.bincount(of, change, len(gaps)), rtol=1e-3, atol=1e-3)
    for k, e in enumerate(1e-5 * np.eye(4)):
        change = (log_likelihoods(position + e, gaps) - log_likelihoods(position - e, gaps)).sum() / 2e-5
        assert found[:, k].sum() == pytest.approx(change, rel=1e-3, abs=1e-2)
    other = whole(target, Factor(1 - factor), CUTS)
    assert not other.any()


def test_no_row_has_more_information_than_the_metric_says() -> None:
    """Whatever its predictor; and what is said is reached."""
    model = ThresholdModel("logit", np.array([6, 11, 27, 34, 22]))
    bound = gap_information(model)
    start = values_of(model.position)
    for eta in np.linspace(-8, 8, 161):
        up_to = expit(start - eta)
        p = np.diff(up_to, prepend=0.0, append=1.0)
        for k, place in enumerate((0, 1, 3)):
            e = 1e-6 * np.eye(4)[place]
            slope = np.diff(expit(values_of(model.position + e) - eta) - up_to, prepend=0.0, append=0.0) / 1e-6
            assert (slope**2 / p).sum() < 1.01 * bound[k]
    assert (bound > 0.2).all()


def test_the_precision_of_gaps_is_drawn_from_its_conditional() -> None:
    """Gamma(1 + n / 2, rate + sum / 2): means of 20,000 draws to five standard errors."""
    rng, squares, n = np.random.default_rng(0), np.array([2.0, 8.0]), 30
    drawn = np.array([GAP_PRIOR.draw(squares, n, rng) for _ in range(20_000)])
    shape, rate = 1 + n / 2, GAP_PRIOR.rate + squares / 2
    np.testing.assert_allclose(drawn.mean(axis=0), shape / rate, rtol=5 / np.sqrt(20_000 * shape))
    np.testing.assert_allclose(drawn.var(axis=0), shape / rate**2, rtol=0.06)


def test_precisions_wait_until_rows_have_departed(data: Path) -> None:
    """Those of scales and gaps are drawn from `hyper_start` on: while all rows are the same, they would be huge."""
    settings = {"rank": 1, "grid": 1, "noise": "both", "thresholds": "user", "hyper_start": 5}
    config = build(settings | {"likelihood": "ordinal-logit", "sampler": "baoab"}).resolved()
    sampler = config.make_sampler()
    with open_ratings(data) as ratings:
        target = targets_of(config, ratings, Ring(MPI.COMM_SELF, 1))(0, sampler)
    target.reset()
    sampler.start(target, 0.4)
    precisions = []
    for iteration in range(5):
        target.begin(iteration)
        sampler.step(target, iteration)
        found = target.parameters()
        precisions.append(np.concatenate([found[name] for name in ("W.scales", "H.scales", "thresholds.precision")]))
    np.testing.assert_array_equal(precisions[:4], np.full((4, 5), 10.0))
    assert (precisions[4] != 10.0).all()


@pytest.mark.long
def test_rows_without_ratings_have_their_prior(data: Path, tmp_path: Path) -> None:
    """The last user has none: over 400 draws gaps have the mean and the sd that the sampled precisions say.

    To 0.2 and 15 %, three times what so many draws err by.
    """
    settings = {"rank": 1, "grid": 3, "iterations": 4_200, "burn_in": 200, "thin": 10, "evaluate_every": 4_200}
    settings |= {"sampler": {"name": "baoab", "step_size": 0.05}, "save_draws": 400, "thresholds": "user"}
    assert sample(MPI.COMM_SELF, data, tmp_path / "run", likelihood="ordinal-logit", **settings) == 0
    run = Run(tmp_path / "run")
    draws = [run.draw(number) for number in range(len(run.draws))]
    row = int(np.flatnonzero(run.counts("user") == 0)[0])
    f = np.array([np.log(np.diff(draw.own_thresholds[row]) / np.diff(draw.thresholds)) for draw in draws])
    d = MAX_DEVIATION * np.arctanh(f / MAX_DEVIATION)
    sd = np.sqrt((1 / np.concatenate([trace["thresholds.precision"] for trace in run.traces])).mean(axis=0))
    np.testing.assert_allclose(d.mean(axis=0) / sd, 0.0, atol=0.2)
    np.testing.assert_allclose(d.std(axis=0) / sd, 1.0, atol=0.15)


def test_two_levels_and_laws_without_thresholds_are_refused(tmp_path: Path) -> None:
    """One threshold is moved by the bias; before anything is sampled."""
    path = write_planted(tmp_path / "r.h5", stars=True)
    with open_ratings(path) as ratings:
        slabs = [ratings.slab(part, 0, ratings.n_rows) for part in ("train", "test")]
        ids = ratings.row_ids(), ratings.col_ids()
    parts = [(indptr, j, (x > 3).astype(np.float32)) for indptr, j, x in slabs]
    write_ratings(tmp_path / "two.h5", *parts, *ids, source="two")
    source = RatingsSource(tmp_path / "two.h5")
    with pytest.raises(InputError, match="one threshold between them"):
        source.resolve(1, {}, {"likelihood": "ordinal-logit", "thresholds": "user"})
    for likelihood in ("gaussian", "negative-binomial", "all-cells"):
        with pytest.raises(InputError, match="has no thresholds: leave out thresholds"):
            source.build({"likelihood": likelihood, "thresholds": "user"}).resolved()


def test_a_warm_start_takes_the_gaps(tmp_path: Path) -> None:
    """Of users that the earlier run knew; others begin with the thresholds of all."""
    few, grown = write_planted(tmp_path / "few.h5", rows=22, stars=True), write_planted(tmp_path / "r.h5", stars=True)
    settings = {"rank": 2, "grid": 3, "likelihood": "ordinal-logit", "thresholds": "user"}
    assert sample(MPI.COMM_SELF, few, tmp_path / "run", iterations=20, burn_in=5, **settings) == 0
    more = {"grid": 3, "iterations": 1, "burn_in": 1, "evaluate_every": 1, "start": tmp_path / "run"}
    assert sample(MPI.COMM_SELF, grown, tmp_path / "new", **more) == 0
    start = RunDirectory(tmp_path / "new").open_start(0, RunDirectory(tmp_path / "new").read_settings()[1])
    gaps = start.whole("start", "W", GAPS)
    assert gaps.shape == (29, 3)
    assert (gaps[:22] != 0).any(axis=1).sum() >= 21
    assert not gaps[22:].any()

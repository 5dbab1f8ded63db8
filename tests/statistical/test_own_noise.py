"""Noise of its own for users and items, and agreement of BAOAB with exact Gibbs, on synthetic
ratings.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from gibbs import GibbsResult, Model, gibbs
from support import cells_of, typed
from synthetic import SyntheticOptions, generate

from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.run import Run
from dsgmcmc.ratings.format import SPLITS

pytestmark = pytest.mark.statistical
RANK = 4
SIGMA = 0.8


def prepared(folder: Path, spread: float | None):
    """A ratings file of 50,000 real-valued ratings, with planted noise of its own or without."""
    raw = folder / "raw.csv"
    data = folder / "data.h5"
    options = SyntheticOptions(
        rows=800,
        cols=400,
        ratings=50_000,
        rank=RANK,
        noise=SIGMA,
        half_stars=False,
        noise_spread=spread,
        seed=3,
    )
    generate(raw, options)
    typed("prepare", raw, data).expect()
    return data


def sampled(data: Path, out: Path, noise: str, sweeps: int = 1500, sampler: str = "baoab"):
    """A run with sampled tau: summary, test predictions, run."""
    options = ("--sampler", sampler, "--noise", noise, "--rank", str(RANK), "--save-draws", "0")
    length = ("--burn-in", "200sweeps", "--iterations", f"{sweeps}sweeps", "--thin", "2sweeps")
    typed("sample", data, "--out", out, *options, *length).expect()
    run = Run(out)
    return json.loads((out / "summary.json").read_text()), predict_test(run), run


def by_gibbs(data: Path, sweeps: int, **settings) -> GibbsResult:
    """Exact Gibbs on the same data, with the same priors."""
    train, test = (cells_of(data, part) for part in SPLITS)
    model = Model(RANK, "half-cauchy", standardised=True, **settings)
    return gibbs(train, test, model, burn_in=100, sweeps=sweeps)


@pytest.fixture(scope="module")
def equal(tmp_path_factory):
    """Data with one noise, sampled both ways."""
    folder = tmp_path_factory.mktemp("equal")
    data = prepared(folder, None)
    return data, {noise: sampled(data, folder / noise, noise) for noise in ("shared", "both")}


@pytest.fixture(scope="module")
def exact(equal):
    """Exact Gibbs on the data with one noise."""
    return by_gibbs(equal[0], sweeps=700)


@pytest.mark.long
def test_own_noise_agrees_with_gibbs(tmp_path):
    """Noise variances, predictive sd and RMSE agree with exact Gibbs under the same model, nu
    sampled by both.

    Not tau itself: the likelihood knows only tau g_i g'_j, and the scale between them mixes over
    hundreds of sweeps in both samplers (two Gibbs chains: fifths of a run between 1.35 and 1.49).
    """
    data = prepared(tmp_path, 5.0)
    summary, test, _ = sampled(data, tmp_path / "run", "both")
    exact = by_gibbs(data, noise="both", nu=None, coupled=True, sweeps=500)
    assert np.mean(np.sqrt(test.variance)) == pytest.approx(np.mean(exact.sd), rel=0.04)
    assert summary["rmse_mean"] == pytest.approx(exact.rmse_mean, abs=0.002)
    log_noise = np.log(test.noise_variance), np.log(exact.noise_variance)
    assert np.corrcoef(*log_noise)[0, 1] > 0.99
    assert np.mean(log_noise[0]) == pytest.approx(np.mean(log_noise[1]), abs=0.02)


def test_own_noise_does_no_harm_where_noise_is_equal(equal):
    """With one noise for all, nu grows until the weights are one, and RMSE does not get worse."""
    _, runs = equal
    assert runs["both"][0]["rmse_mean"] < runs["shared"][0]["rmse_mean"] + 0.001
    for entity in ("user", "item"):
        assert runs["both"][2].traces[0][f"{entity}.nu"].mean() > 50


def test_baoab_agrees_with_gibbs(equal, exact):
    """Shared noise: tau within 1 %, predictive sd within 3 % and correlated above 0.98, RMSE within
    0.002.

    Both chains have some 600 draws, so the sd of one prediction is known to 3 % from each: hence
    0.98 and not 1.
    """
    summary, test, _ = equal[1]["shared"]
    sd = np.sqrt(test.variance)
    assert summary["tau"] == pytest.approx(exact.tau.mean(), rel=0.01)
    assert sd.mean() / exact.sd.mean() == pytest.approx(1.0, abs=0.03)
    assert np.corrcoef(sd, exact.sd)[0, 1] > 0.98
    assert summary["rmse_mean"] == pytest.approx(exact.rmse_mean, abs=0.002)


def test_psgld_predicts_as_well_as_gibbs(equal, exact, tmp_path):
    """RMSE within 1 % of exact Gibbs."""
    summary, *_ = sampled(equal[0], tmp_path / "run", "shared", 600, "psgld")
    assert summary["rmse_mean"] == pytest.approx(exact.rmse_mean, rel=0.01)

"""Gibbs sampling of a factorisation that is small enough for quadrature."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from scipy import integrate
from support import MODEL, csr, factor_target

from dsgmcmc.data.ratings import write_ratings
from dsgmcmc.samplers.gibbs import Gibbs, GibbsConfig
from dsgmcmc.types import Factor

pytestmark = pytest.mark.statistical
COPIES, BURN_IN, SWEEPS, TAU = 2000, 20, 150, 4.0


def exact(function) -> float:
    """Mean of a function of w and h given one rating: 1 ~ N(w h, 1 / tau), w and h ~ N(0, 1)."""

    def integral(f) -> float:
        def joint(h, w):
            return f(w, h) * np.exp(-(w * w + h * h + TAU * (1 - w * h) ** 2) / 2)

        return integrate.dblquad(joint, -7, 7, -7, 7, epsabs=1e-7)[0]

    return integral(function) / integral(lambda w, h: 1.0)


def test_a_factorisation_of_one_rating(tmp_path: Path) -> None:
    """Moments of w and h by quadrature, from 2,000 copies: the only rating of row i is of column i, +1 or -1.

    Their means over the sweeps are independent, so each moment is compared within 4.5 standard errors of their spread,
    which is below 1 % of it.
    """
    i = np.arange(COPIES)
    sign = np.where(i % 2, 1.0, -1.0)
    path, nothing = tmp_path / "r.h5", np.zeros(0, np.int64)
    parts = (csr(COPIES, i, i, sign), csr(COPIES, nothing, nothing, np.zeros(0)))
    write_ratings(path, *parts, i, i, seed=0, source="one rating a row")
    model = replace(MODEL, rank=1, biases=False, prior="fixed", noise_precision=TAU)
    sampler = Gibbs(GibbsConfig(), 0)
    target = factor_target(MPI.COMM_SELF, path, grid=2, model=model, sampler=sampler, seed=1)
    sampler.start(target, 1.0)
    functions = {
        "w^2": lambda w, h: w * w,
        "wh": lambda w, h: w * h,
        "w^2 h^2": lambda w, h: (w * h) ** 2,
        "w^4": lambda w, h: w**4,
    }
    totals = {name: np.zeros(COPIES) for name in functions}
    for iteration in range(BURN_IN + SWEEPS):
        target.begin(iteration)
        sampler.step(target, iteration)
        w, h = (np.concatenate([b["theta"][:, 0] for b in target.blocks() if b.factor == f]) for f in Factor)
        for name, function in functions.items() if iteration >= BURN_IN else ():
            totals[name] += function(w.astype(np.float64), sign * h) / SWEEPS
    for name, means in totals.items():
        expected, error = exact(functions[name]), means.std() / np.sqrt(COPIES)
        assert error < 0.01 * expected * (2 if name == "w^4" else 1), name
        assert abs(means.mean() - expected) < 4.5 * error, name

"""A factorisation that is small enough for quadrature, by samplers that draw, or step with all ratings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chain_states import iterate, make_sampler
from mpi4py import MPI
from support import MODEL, factor_target, rows_of, write_cells

from dsgmcmc.types import Factor

pytestmark = pytest.mark.statistical
COPIES, TAU = 2000, 4.0
MOMENTS = {
    "w^2": lambda w, h: w * w,
    "wh": lambda w, h: w * h,
    "w^2 h^2": lambda w, h: (w * h) ** 2,
    "w^4": lambda w, h: w**4,
}


@pytest.mark.parametrize(
    ("name", "section", "sweeps", "bias"),
    [
        ("gibbs", {}, 150, 0.0),
        ("baoab", {"step_size": 0.02, "warm_up": 0}, 4000, 0.005),
        ("sghmc", {"step_size": 0.02, "warm_up": 0, "gradient": "full", "gamma": 2.0}, 4000, 0.005),
    ],
    ids=["gibbs", "baoab", "sghmc"],
)
def test_a_factorisation_of_one_rating(
    tmp_path: Path, name: str, section: dict[str, Any], sweeps: int, bias: float
) -> None:
    """Moments of w and h by quadrature, from 2,000 copies: the only rating of row i is of column i, +1 or -1.

    Their means over the sweeps are independent, so each moment is compared within 4.5 standard errors of their spread,
    which is below 1 % of it; the steps leave half a per cent more. The metric is made of the other factor, so Gamma
    is zero [Ma 2015, eq. 3].
    """
    i = np.arange(COPIES)
    sign = np.where(i % 2, 1.0, -1.0)
    path = write_cells(tmp_path / "r.h5", (COPIES, COPIES), i, i, sign)
    model = replace(MODEL, rank=1, biases=False, prior="fixed", noise_precision=TAU)
    sampler = make_sampler(name, **section)
    target = factor_target(MPI.COMM_SELF, path, grid=2, model=model, sampler=sampler, seed=1)
    sampler.start(target, 1.0)
    totals, burn_in = {moment: np.zeros(COPIES) for moment in MOMENTS}, sweeps // 7
    for iteration in iterate(target, sampler, burn_in + sweeps):
        if iteration >= burn_in:
            w, h = rows_of(target, Factor.W)[:, 0], sign * rows_of(target, Factor.H)[:, 0]
            for moment, function in MOMENTS.items():
                totals[moment] += function(w, h) / sweeps
    w, h = np.meshgrid(*[np.linspace(-7, 7, 1401)] * 2)
    density = np.exp(-(w**2 + h**2 + TAU * (1 - w * h) ** 2) / 2)
    for moment, means in totals.items():
        expected = (density * MOMENTS[moment](w, h)).sum() / density.sum()
        error = means.std() / np.sqrt(COPIES)
        assert error < 0.01 * expected * (2 if moment == "w^4" else 1), moment
        assert abs(means.mean() - expected) < 4.5 * error + bias * expected, moment

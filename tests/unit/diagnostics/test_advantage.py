"""What is said of a model that predicts no better than biases only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from support import csr, sample, typed

from dsgmcmc.data.ratings import write_ratings
from dsgmcmc.diagnostics.summary import no_better, read_summary

BETTER = {
    "measure": "log_probability",
    "biases_only": -1.3,
    "gain": 0.07,
    "gain_error": 0.004,
    "square": 0.09,
    "square_error": 0.008,
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"gain": 0.003},
            ["no better than biases only", "level is higher by 0.0030 (standard error 0.0040)", "--rank 0"],
        ),
        ({"gain": -0.003}, ["no better than biases only", "lower by 0.0030"]),
        ({"gain": -0.03}, ["worse than biases only", "lower by 0.0300"]),
        ({"measure": "log_predictive_density", "gain": 0.0}, ["log predictive density of a rating"]),
        ({"square": 0.001}, ["no better than biases only in the mean squared error", "lower by 0.001"]),
        ({"square": -0.02}, ["higher by 0.02", "its predictive distributions are better"]),
    ],
)
def test_a_model_must_be_better_by_a_standard_error(change: dict[str, Any], words: list[str]) -> None:
    """In its log score, and then in its errors; and the sentence has the difference and its error."""
    assert no_better({"over_biases": BETTER}) == []
    (said,) = no_better({"over_biases": BETTER | change})
    assert all(word in said for word in words), said


def test_biases_only_are_not_held_to_themselves(tmp_path: Path) -> None:
    """A summary has no such comparison at rank 0; the baseline has the RMSE of such a run, to 1 %."""
    assert no_better({}) == no_better({"over_biases": None}) == []
    settings = {"rank": 0, "grid": 2, "iterations": 80, "burn_in": 50, "save_draws": 0}
    assert sample(MPI.COMM_SELF, write(tmp_path / "r.h5", 0.0), tmp_path / "run", **settings) == 0
    found = read_summary(tmp_path / "run" / "summary.json")
    assert found["over_biases"] is None
    assert found["baselines"]["biases_only"] == pytest.approx(found["rmse_mean"], rel=0.01)


def write(path: Path, factors: float) -> Path:
    """4,000 ratings of 150 users and 80 items, a fifth of them held out: biases, noise of sd 1, and factors."""
    rng = np.random.default_rng(0)
    i, j = np.nonzero(rng.random((150, 80)) < 0.33)
    w, h = rng.normal(size=(150, 2)), rng.normal(size=(80, 2))
    x = 3 + rng.normal(0, 0.5, 150)[i] + rng.normal(0, 0.5, 80)[j] + factors * (w[i] * h[j]).sum(axis=1)
    x += rng.normal(0, 1, len(i))
    held = rng.random(len(i)) < 0.2
    parts = [csr(150, i[part], j[part], x[part]) for part in (~held, held)]
    write_ratings(path, *parts, np.arange(150), np.arange(80), seed=0, source="biases, noise and factors")
    return path


@pytest.mark.parametrize(("factors", "worth"), [(0.0, False), (0.7, True)])
def test_a_run_says_whether_its_factors_are_worth_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], factors: float, worth: bool
) -> None:
    """`sample`, the summary and `info` say so where all there is are biases and noise, and not where tastes differ."""
    data, run = write(tmp_path / "r.h5", factors), tmp_path / "run"
    settings = {"rank": 4, "grid": 2, "iterations": 300, "burn_in": 50, "save_draws": 4}
    assert sample(MPI.COMM_SELF, data, run, **settings) == 0
    said = " ".join(capsys.readouterr().out.split())
    found = read_summary(run / "summary.json")["over_biases"]
    assert (found["gain"] > found["gain_error"]) == worth
    assert ("better than biases only" in said or "worse than biases only" in said) != worth
    assert f"(biases only {found['biases_only']:.4f})" in said
    shown = " ".join(typed("info", run).expect().out.split())
    assert ("better than biases only" in shown or "worse than biases only" in shown) != worth
    if not worth:
        assert typed("report", run).expect().code == 0
        page = (run / "report.html").read_text(encoding="utf-8")
        assert "than biases only: the log predictive density" in " ".join(page.split())

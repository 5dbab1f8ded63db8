"""Synthetic ratings: the promises of ``data/synthetic.py``."""

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest
import synthetic
from scipy.stats import chi2, gamma
from support import run
from synthetic import SyntheticOptions

PROGRAM = Path(__file__).resolve().parents[3] / "data" / "synthetic.py"
SMALL = SyntheticOptions(rows=400, cols=250, ratings=12_000, rank=3, seed=4)


def draw(options: SyntheticOptions) -> tuple[synthetic.Truth, list[np.ndarray]]:
    """Return the truth, and all rows, columns, values and timestamps."""
    truth = synthetic.draw_truth(options)
    return truth, [
        np.concatenate(parts) for parts in zip(*synthetic.chunks(options, truth), strict=True)
    ]


@pytest.mark.parametrize(
    "options",
    [
        SMALL,
        SyntheticOptions(rows=4, cols=4, ratings=4),
        SyntheticOptions(rows=300, cols=10, ratings=750),
        SyntheticOptions(rows=90, cols=110, ratings=90 * 110 // 4),
        SyntheticOptions(rows=3000, cols=2000, ratings=700_000),
    ],
    ids=lambda o: f"{o.rows}x{o.cols}, {o.ratings}",
)
def test_every_size_has_its_ratings(options):
    """There are as many ratings as asked for, no pair twice, every user and item at least once, and
    users ascend.

    The sizes are the densest and the sparsest that are allowed, and one with several chunks.
    """
    _, (rows, cols, values, times) = draw(options)
    assert len(rows) == len(cols) == len(values) == len(times) == options.ratings
    assert len(np.unique(rows.astype(np.int64) * options.cols + cols)) == options.ratings
    assert np.array_equal(np.unique(rows), np.arange(options.rows))
    assert np.array_equal(np.unique(cols), np.arange(options.cols))
    assert np.all(np.diff(rows) >= 0)


def test_marginals_are_skewed_as_promised():
    """At MovieLens 1M's size both sides follow their laws, which resemble the real percentiles.

    The laws are compared at the 5th to 99th percentile; the real figures (median 96 and 123, 99 %
    906 and 1784, largest 2314 and 3428) allow 15 %. Items' numbers scatter about the wanted ones by
    no more than Poisson noise: the weights are right, also of the most popular.
    """
    options = SyntheticOptions()
    _, (rows, cols, _, _) = draw(options)
    users = np.bincount(rows)
    items = np.bincount(cols)
    assert users.min() == 20
    levels = np.array([0.05, 0.25, 0.5, 0.75, 0.9, 0.99])
    wanted = 20 + gamma.ppf(levels, 0.6) / 0.6 * (users.mean() - 20)
    assert np.quantile(users, levels) == pytest.approx(wanted, rel=0.02, abs=1)
    wanted = 1 + chi2.ppf(levels, 1) * (items.mean() - 1)
    assert np.quantile(items, levels) == pytest.approx(wanted, rel=0.08, abs=3)
    for counts, figures in ((users, (96, 906, 2314)), (items, (123, 1784, 3428))):
        assert np.quantile(counts, [0.5, 0.99, 1]) == pytest.approx(figures, rel=0.15)
    _, popularity = synthetic.marginals(6040, 3706, 1_000_000, synthetic._generator(options, 3))
    assert 0.5 < np.mean((items - popularity) ** 2 / popularity) < 1.05
    top = np.argsort(popularity)[-100:]
    assert items[top].sum() == pytest.approx(popularity[top].sum(), rel=0.005)


@pytest.mark.parametrize("spread", [None, 6.0])
def test_noise_is_as_planted(spread):
    """Real-valued ratings deviate from the predictor by N(0, sigma^2 / (g_i g'_j)), and by nothing
    else.
    """
    options = dataclasses.replace(
        SMALL, ratings=25_000, noise=0.3, noise_spread=spread, half_stars=False
    )
    truth, (rows, cols, values, _) = draw(options)
    error = values - synthetic.best_prediction(truth, rows, cols)
    z = error * np.sqrt(truth.g_rows[rows] * truth.g_cols[cols]) / 0.3
    n = len(z)
    assert abs(z.mean()) < 5 / np.sqrt(n)
    assert abs(np.mean(z**2) - 1) < 5 * np.sqrt(2 / n)
    assert abs(np.mean(z**4) - 3) < 5 * np.sqrt(96 / n)
    for g, n in ((truth.g_rows, options.rows), (truth.g_cols, options.cols)):
        if spread is None:
            assert np.all(g == 1)
        else:
            assert abs(g.mean() - 1) < 5 * np.sqrt(2 / spread / n)
            assert g.var() == pytest.approx(2 / spread, rel=0.35)


def test_best_prediction_of_half_stars():
    """The best prediction is the mean of half-star ratings, also at the ends of the scale and with
    noise by user.
    """
    rng = np.random.default_rng(0)
    a = np.array([-6.0, -3.1, -1.0, 0.0, 0.4, 1.2, 2.5], np.float32)
    ones = np.ones((7, 1), np.float32)
    zeros = np.zeros((1, 1), np.float32)
    g_rows = np.linspace(0.3, 3, 7, dtype=np.float32)
    g_cols = np.array([1.7], np.float32)
    truth = synthetic.Truth(
        ones, zeros, a, np.zeros(1, np.float32), g_rows, g_cols, 3.5, 0.9, half_stars=True
    )
    draws = 400_000
    x = 3.5 + a[:, None] + 0.9 / np.sqrt(g_rows[:, None] * 1.7) * rng.standard_normal((7, draws))
    simulated = np.clip(np.round(2 * x) / 2, 0.5, 5)
    error = np.maximum(simulated.std(axis=1), 1e-3) / np.sqrt(draws)
    best = synthetic.best_prediction(truth, np.arange(7), np.zeros(7, int))
    assert np.all(np.abs(best - simulated.mean(axis=1)) < 5 * error)


def test_command(tmp_path):
    """The script makes the same file as the function, and names the best possible RMSE."""
    options = dataclasses.replace(SMALL, noise_spread=4.0, half_stars=False, noise=0.5)
    arguments = (
        "--rows 400 --cols 250 --ratings 12000 --rank 3 --seed 4 --noise 0.5 --noise-spread 4"
        " --real"
    )
    program = (sys.executable, PROGRAM, tmp_path / "a.csv")
    said = run(*program, *arguments.split(), env={"COLUMNS": "200"}).expect().out
    synthetic.generate(tmp_path / "b.csv", options)
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    truth, (rows, cols, values, _) = draw(options)
    best = np.sqrt(np.mean((values - synthetic.best_prediction(truth, rows, cols)) ** 2))
    assert f"RMSE {best:.4f}" in said
    assert "exists; give --force" in run(*program).expect(2).err

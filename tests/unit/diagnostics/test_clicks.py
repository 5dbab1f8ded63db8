"""A run on clicks has rankings in place of errors, and new users from their clicks alone."""

import json
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from support import sample, write_cells

from dsgmcmc.diagnostics.ranking import click_scores, evaluate
from dsgmcmc.diagnostics.summary import describe_run
from dsgmcmc.errors import InputError
from dsgmcmc.plots.report import write_report
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.index import Vocabulary
from dsgmcmc.posterior.rated import Rated
from dsgmcmc.posterior.rows.added import FoldIn, RatingsOfRows
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.settings import PredictOptions
from dsgmcmc.ratings.file import Ratings

ROWS = 60
COLUMNS = 40


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Clicks of users with two tastes, who seldom click at the other half; a fifth is held out."""
    rng = np.random.default_rng(0)
    taste = np.arange(ROWS)[:, None] % 2 == np.arange(COLUMNS) % 2
    i, j = np.nonzero(rng.random((ROWS, COLUMNS)) < np.where(taste, 0.5, 0.05))
    path = tmp_path_factory.mktemp("clicks") / "r.h5"
    return write_cells(path, (ROWS, COLUMNS), i, j, np.ones(len(i)), rng.random(len(i)) < 0.2)


@pytest.fixture(scope="module")
def run(data: Path) -> Run:
    """A short run on the clicks."""
    settings = {
        "likelihood": "all-cells",
        "rank": 3,
        "iterations": 600,
        "burn_in": 50,
        "save_draws": 10,
    }
    assert sample(MPI.COMM_SELF, data, data.parent / "run", **settings) == 0
    return Run(data.parent / "run")


def test_the_summary_has_rankings_and_no_errors(run: Run, data: Path) -> None:
    """The rankings are those of `evaluate`, far above popularity, and the verdict and the report
    show them.
    """
    summary = json.loads((run.path / "summary.json").read_text())
    assert summary["rmse_mean"] is None
    with Ratings(data) as ratings:
        assert summary["rankings"] == click_scores(run, ratings)
        scores = evaluate(run, Rated(ratings), at=20)
    rules = {rule["rule"]: rule for rule in scores["rules"]}
    recall = summary["rankings"]["recall@20"]
    assert recall["mean"] == pytest.approx(rules["mean"]["recall"]["mean"])
    assert recall["popular"] == pytest.approx(rules["most popular"]["recall"]["mean"])
    assert recall["mean"] > recall["popular"] + 0.2
    assert rules["likely"]["recall"]["mean"] > recall["popular"] + 0.2
    assert (
        describe_run(summary)
        .result[0]
        .startswith(f"Recall@20 of held-out clicks {recall['mean']:.4f}")
    )
    assert describe_run(summary).warnings == []
    write_report(run.path, run.path.parent / "report.html")
    page = (run.path.parent / "report.html").read_text()
    assert f"<li>{describe_run(summary).result[0]}</li>" in page
    assert "RMSE" not in page.partition("<h2>Glossary")[0]


def test_scores_are_neither_ratings_nor_probabilities(run: Run) -> None:
    """Scores of clicks are not clipped to the range of the ratings, and have no noise and no
    probabilities.
    """
    pairs = np.arange(5, dtype=np.int32), np.arange(5, dtype=np.int32)
    predicted, plain = (
        Predictor(run, PredictOptions(clip=True, of_mean=of_mean))(*pairs)
        for of_mean in (False, True)
    )
    assert (predicted.mean < 1).all()
    np.testing.assert_array_equal(predicted.sd, plain.sd)
    with pytest.raises(InputError, match="not ratings or their probabilities"):
        Predictor(run, PredictOptions(probabilities=True))


def test_a_new_user_has_the_law_of_all_cells_given_a_draw(run: Run) -> None:
    """The zeros of all items count as in sampling, and the values of new clicks do not."""
    items = np.int32([0, 2, 4])
    ratings = RatingsOfRows(np.zeros(3, int), items, np.array([1.0, 5.0, 2.0]), np.ones(3))
    folded = FoldIn(run, Vocabulary("user", np.array([-1])), ratings)
    rows = folded.rows(3, np.array([0]))
    draw = run.draw(3)
    theta = draw.theta["item"].astype(float)
    prior = np.linalg.inv(draw.prior["user"].covariance)
    precision = prior + 30.0 * (theta[items].T @ theta[items] + 0.1 * theta.T @ theta)
    mean = np.linalg.solve(
        precision, prior @ draw.prior["user"].mean + 30.0 * theta[items].sum(axis=0)
    )
    np.testing.assert_allclose(rows.mean[0], mean, rtol=1e-6)
    np.testing.assert_allclose(rows.covariance[0], np.linalg.inv(precision), rtol=1e-6, atol=1e-12)

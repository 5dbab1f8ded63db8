"""Models that are compared: which are candidates, which is recommended, and that a run keeps what was chosen for it."""

from __future__ import annotations

import json
import signal
import tomllib
from itertools import pairwise

import numpy as np
import pytest
from support import copied, csr, typed, write_planted

from dsgmcmc import BPMF
from dsgmcmc.config.job import Policy
from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.data.ratings import open_ratings, write_ratings
from dsgmcmc.diagnostics.comparison import Comparison
from dsgmcmc.errors import DivergenceError, InputError
from dsgmcmc.model.likelihoods import LIKELIHOODS, Levels
from dsgmcmc.model.predictive.base import Moments
from dsgmcmc.parallel.comm import Alone
from dsgmcmc.runs import compare as comparing
from dsgmcmc.runs.candidates import candidates, laws_for
from dsgmcmc.runs.compare import Comparing, best_of, helpful, recommended, sample_recommended
from dsgmcmc.runs.job import Job
from dsgmcmc.runs.scores import Scores, recorded_values
from dsgmcmc.runs.source import RatingsSource
from dsgmcmc.storage.rundir import RunDirectory

OWNERS = np.repeat(np.arange(100), 10)


def scores(mean, spread=0.0, error=0.0, seed=0):
    """Scores of 1,000 ratings of 100 users about a mean."""
    return Scores(mean + spread * np.random.default_rng(seed).normal(size=1000), OWNERS, error)


# ---------------------------------------------------------------------- the choice


def test_candidates_in_the_order_of_their_complexity():
    """Laws, then what is added, one, two, all; only what the ratings admit."""
    names = [each.name for each in candidates(clicks=False, features=True, times=False)]
    plain = ["plain", "plain + features", "plain + implicit", "plain + features + implicit"]
    assert names[:6] == ["biases only", *plain, "noise"]
    assert candidates(clicks=False, features=True, times=False, laws=["plain", "noise"])[0].name == "plain"
    assert [each.name for each in candidates(clicks=True, features=False, times=True)] == [
        "clicks",
        "clicks + implicit",
    ]
    last = candidates(clicks=False, features=True, times=True)[-1]
    assert last.settings == {
        "likelihood": "ordinal-logit",
        "noise": "by-item",
        "thresholds": "user",
        "features": "yes",
        "implicit_features": "both",
        "time_levels": "user",
    }


@pytest.mark.parametrize(
    ("error", "expected"),
    [(0.0, 2), (0.02, 1), (0.08, 0)],
)
def test_the_simplest_model_within_one_standard_error_is_recommended(error, expected):
    """With Monte Carlo errors of .02 / sqrt 2 and .08 / sqrt 2 each; models lose .05 and .015 to the best, the last."""
    error /= np.sqrt(2)
    found = {0: scores(-0.05, error=error), 1: scores(-0.015, error=error), 2: scores(0.0, error=error)}
    assert recommended(found) == expected
    assert best_of(found) == 2


def test_differences_are_paired():
    """Scores that vary alike, as those of easy and hard ratings do, are told apart by a hundredth of their sd."""
    found = {0: scores(0.0, spread=1.0), 1: scores(0.01, spread=1.0)}
    assert recommended(found) == 1


def test_parts_that_help_are_those_that_gain():
    """Of one that gains, one that loses, and one whose chain diverged."""
    assert helpful({4: scores(0.0), 5: scores(0.01), 6: scores(-0.01)}, 4, [4, 5, 6, 7]) == [5]


# ---------------------------------------------------------------------- comparisons


def write_noisy(path, noises, seed=0):
    """60 x 40 measurements of biases, with noise of these sds in turns from user to user."""
    rng = np.random.default_rng(seed)
    i, j = np.nonzero(rng.random((60, 40)) < 0.7)
    x = (
        rng.normal(0, 0.5, 60)[i]
        + rng.normal(0, 0.5, 40)[j]
        + rng.normal(size=len(i)) * np.array(noises)[i % len(noises)]
    )
    held = rng.random(len(i)) < 0.1
    parts = [csr(60, i[chosen], j[chosen], x[chosen]) for chosen in (~held, held)]
    write_ratings(path, *parts, np.arange(60), np.arange(40))
    return path


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Chains of 100 sweeps are enough for what is planted here."""
    monkeypatch.setattr(comparing, "MAX_SWEEPS", 100)


def compare(tmp_path, data, metric=None, **settings):
    """Result of a comparison of models of rank 2."""
    given = {"rank": 2, "grid": 2, **settings}
    return Comparing(Alone(), RatingsSource(data), tmp_path / "folder", given, metric, quiet=True).run()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.arange(2.0), ["plain", "noise", "logistic"]),
        (np.arange(1.0, 6.0), ["plain", "noise", "ordinal"]),
        (np.linspace(-1, 1, 300), ["plain", "noise", "tails"]),
        (np.append(np.ones(40), [3, 95]), ["plain", "noise", "counts", "ordinal"]),
        (np.append(np.arange(40.0), [300]), ["plain", "noise", "tails", "counts"]),
        (np.append(np.arange(40.0), [-300]), ["plain", "noise", "tails"]),
    ],
)
def test_laws_are_tried_where_ratings_admit_them(values, expected):
    """Yes or no, levels, measurements, counts with few and with many values, and whole numbers that are no counts."""
    assert laws_for(Levels(*np.unique(values, return_counts=True))) == ["biases only", *expected]


def test_laws_are_compared_by_the_probability_of_the_recorded_value(tmp_path):
    """Of counts: the intervals half-way between those that occur, whose probabilities under each law sum to 1."""
    rng = np.random.default_rng(0)
    chosen = np.sort(rng.choice(60 * 40, 1500, replace=False))
    i, j = np.divmod(chosen, 40)
    x = rng.negative_binomial(0.5, 0.5 / (0.5 + 60), len(i)) + 1.0
    write_ratings(tmp_path / "r.h5", csr(60, i, j, x), csr(60, i[:0], j[:0], x[:0]), np.arange(60), np.arange(40))
    with open_ratings(tmp_path / "r.h5") as ratings:
        values = recorded_values(ratings)
    assert len(values) > 100
    mean, variance = np.full(len(values), 40.0), np.full(len(values), 3000.0)
    for law, shape in (("gaussian", None), ("student-t", [1.5]), ("negative-binomial", [1.0, 1e4, 1.0])):
        given = None if shape is None else np.tile(shape, (len(values), 1))
        found = LIKELIHOODS[law].predictive_of_moments(Moments(mean, variance, None, values, variance, given))
        assert np.exp(found.log_probability(values)).sum() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(("noises", "laws"), [((0.1, 1.0), {"noise", "tails"}), ((0.5, 0.5), {"plain"})])
def test_noise_is_found_where_it_differs(tmp_path, noises, laws):
    """Under either law that has some, where it differs tenfold; where it is the same for all, the simplest."""
    found = compare(tmp_path, write_noisy(tmp_path / "r.h5", noises))
    assert found.metric == "log-density"
    assert found.recommended.split(" + ")[0] in laws
    assert not (tmp_path / "folder").exists()


def test_biases_only_are_recommended_where_there_is_nothing_else(tmp_path):
    """Where the rank is left open; the run that is sampled then has no factors."""
    data, out = write_noisy(tmp_path / "r.h5", (0.5, 0.5)), tmp_path / "run"
    typed("sample", data, "--out", out, "--model", "auto", "--set", "grid=2", "--iterations", 60).expect()
    found = Comparison.read(out / "comparison.json")
    assert [each.name for each in found.models][:3] == ["biases only", "plain", "plain + implicit"]
    assert found.recommended == "biases only"
    assert ResolvedConfig.of_run(RunDirectory(out))[0].rank == 0


def test_settings_restrict_what_is_compared(tmp_path):
    """All models have the setting, and those that cannot have it are left out."""
    data = write_planted(tmp_path / "r.h5", stars=True, features=(2, 2))
    found = compare(tmp_path, data, metric="rmse", likelihood="gaussian", implicit_features="no", features="no")
    assert [each.name for each in found.models] == ["plain", "noise"]
    with pytest.raises(InputError, match="levels"):
        compare(tmp_path, write_noisy(tmp_path / "m.h5", [0.5]), likelihood="ordinal-logit")


def test_clicks_are_compared_by_rankings(tmp_path):
    """Nothing else can be measured, and nothing else is accepted."""
    rng = np.random.default_rng(0)
    i, j = np.nonzero(rng.random((60, 40)) < np.outer(rng.beta(1, 2, 60), rng.beta(1, 2, 40)) * 2)
    empty = csr(60, *(np.zeros(0, np.int64),) * 3)
    write_ratings(tmp_path / "c.h5", csr(60, i, j, np.ones(len(i))), empty, np.arange(60), np.arange(40))
    found = compare(tmp_path, tmp_path / "c.h5")
    assert found.metric == "ndcg"
    assert {each.name for each in found.models} == {"clicks", "clicks + implicit"}
    assert all(0 < each.ndcg == each.criterion <= 1 and each.rmse is None for each in found.models)
    with pytest.raises(InputError, match="compared by ndcg"):
        compare(tmp_path, tmp_path / "c.h5", metric="rmse")


def test_a_folder_of_something_else_is_refused(tmp_path):
    """A comparison removes its folder at the end; what it has not made stays."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "precious").write_text("")
    with pytest.raises(InputError, match="not the folder of a comparison"):
        compare(tmp_path, write_noisy(tmp_path / "r.h5", [0.5]))
    assert (tmp_path / "folder" / "precious").exists()


# ---------------------------------------------------------------------- command and estimator


def test_the_command_writes_settings_for_sample(tmp_path):
    """The table as JSON; the file is what `sample --config` takes, and is not replaced unless that is asked for."""
    data, best = write_noisy(tmp_path / "r.h5", (0.1, 1.0)), tmp_path / "best.toml"
    command = ("compare", data, "--out", best, "--set", "rank=2", "--set", "grid=2", "--json")
    table = json.loads(typed(*command).expect().out)
    assert table["recommended"].startswith(("noise", "tails"))
    assert tomllib.loads(best.read_text()) == table["settings"] == {**table["settings"], "noise": "both"}
    assert "give --force" in typed(*command).expect(2).err
    sampled = typed("sample", data, "--out", tmp_path / "run", "--config", best, "--iterations", 10).expect()
    assert "tau" in sampled.err + sampled.out


def test_a_run_keeps_its_choice(tmp_path, monkeypatch):
    """`--model auto` compares once: resumed, the run has the model that it had, though other models would win now."""
    data, out = write_noisy(tmp_path / "r.h5", (0.1, 1.0)), tmp_path / "run"
    shared = ("sample", data, "--out", out, "--model", "auto", "--set", "rank=2", "--set", "grid=2")
    typed(*shared, "--iterations", 60).expect()
    config, _ = ResolvedConfig.of_run(RunDirectory(out))
    assert config.noise == "both"
    assert Comparison.read(out / "comparison.json").recommended.startswith(("noise", "tails"))
    monkeypatch.setattr(Comparing, "run", lambda _: pytest.fail("compared again"))
    typed(*shared, "--iterations", 80, "--resume").expect()
    assert "is not empty" in typed(*shared).expect(2).err
    assert "comparison.json" not in typed("verify", out).expect().out
    assert "recommended of" in typed("info", out).expect().out
    damaged = (out / "comparison.json").read_text().replace('"held_out": ', '"held_out": 1')
    (out / "comparison.json").write_text(damaged)
    assert "comparison.json is incomplete or damaged" in typed("verify", out).expect(2).err


def test_a_model_that_diverges_whole_gives_way_to_the_next(tmp_path):
    """Its run goes, and the best of the others is sampled from the beginning; the comparison says so, and is kept."""
    data, out = write_noisy(tmp_path / "r.h5", (0.1, 1.0)), tmp_path / "run"
    source, given = RatingsSource(data), {"grid": 2, "iterations": 60}
    out.mkdir()
    comparison = Comparing(Alone(), source, out / "compare", given, quiet=True).run()
    comparison.save(out / "comparison.json")
    made = []

    def sample(usual):
        Job(Alone(), source, out, given, resume=True, quiet=True, usual=usual).run_inside()
        made.append(ResolvedConfig.of_run(RunDirectory(out))[0])
        if len(made) < 3:
            raise DivergenceError("chain 0 diverged")

    with pytest.raises(DivergenceError):
        sample_recommended(sample, Alone(), source, out, given, True, Policy(on_divergence="stop"))
    assert Comparison.read(out / "comparison.json") == comparison
    made.clear()
    sample_recommended(sample, Alone(), source, out, given, True, Policy())
    tried = [(each.likelihood, each.noise, each.rank, each.implicit_features) for each in made]
    assert len(set(tried)) == 3
    after = Comparison.read(out / "comparison.json")
    assert after.given_up[0] == comparison.recommended
    assert len(after.given_up) == 2
    assert after.recommended not in after.given_up
    named = [*after.given_up, after.recommended]
    said = [f"the model {first} diverged, and {second} was sampled in its place" for first, second in pairwise(named)]
    shown = " ".join(typed("info", out).expect().out.split())
    assert all(sentence in shown for sentence in said)
    assert typed("verify", out).expect().out
    typed("sample", data, "--out", out, "--model", "auto", "--iterations", 80, "--resume").expect()
    assert ResolvedConfig.of_run(RunDirectory(out))[0].noise == made[-1].noise


@pytest.mark.parametrize("fault", ["rename=kill,path=.trash-", "remove=kill", "rename=kill,at=3,path=.trash-"])
def test_a_job_may_be_killed_between_two_models(tmp_path, fault):
    """While snapshots of the model that diverged are removed: what is left can be read, and the run goes on."""
    data, out = write_noisy(tmp_path / "r.h5", (0.1, 1.0)), tmp_path / "run"
    source, given = RatingsSource(data), {"rank": 2, "grid": 2, "iterations": 60, "implicit_features": "no"}
    out.mkdir()
    comparison = Comparing(Alone(), source, out / "compare", given, quiet=True).run()
    comparison.save(out / "comparison.json")
    Job(Alone(), source, out, given, resume=True, quiet=True, usual=comparison.settings).run_inside()

    def diverge(_):
        raise DivergenceError("chain 0 diverged")

    def sampled() -> None:
        sample_recommended(diverge, Alone(), source, out, given, True, Policy())

    assert copied(fault, sampled) == -signal.SIGKILL
    assert not (out / "run.toml").exists()
    options = ("--set", "rank=2", "--set", "grid=2", "--set", "implicit_features=no", "--iterations", 60)
    typed("sample", data, "--out", out, "--model", "auto", *options, "--resume").expect()
    assert typed("verify", out).expect().out
    assert Comparison.read(out / "comparison.json") == comparison


def test_a_run_with_a_model_of_its_own_is_not_compared_for(tmp_path):
    """Nor is one that starts from another run; and nothing is sampled by --dry-run."""
    data, out = write_planted(tmp_path / "r.h5"), tmp_path / "run"
    typed("sample", data, "--out", out, "--iterations", 10, "--set", "grid=2").expect()
    for more, said in (
        (("--out", out, "--resume"), "a model of its own"),
        (("--out", tmp_path / "new", "--from", out), "leave out --model"),
        (("--out", tmp_path / "new", "--dry-run"), "dsgmcmc compare"),
    ):
        assert said in typed("sample", data, "--model", "auto", *more).expect(2).err


def test_the_estimator_compares_and_fits(tmp_path):
    """`compare` says what `fit` with ``model="auto"`` samples; a parameter that is given stays."""
    rng = np.random.default_rng(0)
    pairs = np.argwhere(rng.random((60, 40)) < 0.7)
    x = rng.normal(0, 0.5, 60)[pairs[:, 0]] + rng.normal(size=len(pairs)) * np.where(pairs[:, 0] % 2, 0.1, 1.0)
    model = BPMF(2, iterations=60, burn_in=20, implicit_features="both", model="auto", options={"grid": 2})
    found = model.compare(pairs, x)
    fitted = model.fit(pairs, x).run_.config
    assert found.settings["noise"] == fitted.noise == "both"
    assert fitted.implicit_features == "both"
    with pytest.raises(InputError, match="expected 'auto'"):
        BPMF(model="best").fit(pairs, x)

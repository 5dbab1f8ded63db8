"""A run adapts to its ratings: to their unit, their number and their kind; and a job to the run
that it resumes.
"""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from support import planted, sample, write_cells, write_planted

from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.errors import AgreedError, InputError
from dsgmcmc.posterior.heldout import predict_test
from dsgmcmc.posterior.run import Run
from dsgmcmc.runs import models
from dsgmcmc.runs.job import Job
from dsgmcmc.runs.source import RatingsSource
from dsgmcmc.storage.rundir import RunDirectory


def write(
    path: Path,
    rows: int,
    columns: int,
    values: Any = lambda x: x,
    share: float = 0.5,
    seed: int = 0,
) -> Path:
    """Write planted ratings, of which a fifth are held out, as `values` makes them."""
    i, j, x = planted(rows, columns, share, seed)
    return write_cells(path, (rows, columns), i, j, values(x), np.arange(len(i)) % 5 == 0)


def sampled(folder: Path, data: Path, **settings: Any) -> dict[str, Any]:
    """Summary of a run."""
    short = {"grid": 2, "iterations": 60, "burn_in": 20, "save_draws": 4}
    assert sample(MPI.COMM_SELF, data, folder, **(short | settings)) == 0
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return summary


@pytest.mark.parametrize(
    ("unit", "factor", "part"),
    [(1e-30, "1e[+]30", "train"), (1e25, "1e-25", "train"), (1e25, "1e-25", "test")],
)
def test_ratings_beyond_float32_are_refused(
    tmp_path: Path, unit: float, factor: str, part: str
) -> None:
    """Ratings whose variances float32 cannot hold are refused, with the factor that helps."""
    i, j, x = planted(29, 17)
    held = np.arange(len(i)) % 5 == 0
    x = np.where(held if part == "test" else ~held, x * np.float32(unit), 0 * x if unit < 1 else x)
    write_cells(tmp_path / "r.h5", (29, 17), i, j, x, held)
    with pytest.raises(
        InputError, match=rf"r\.h5: ratings range from .* multiply them by {factor}"
    ):
        sample(MPI.COMM_SELF, tmp_path / "r.h5", tmp_path / "run")
    assert not (tmp_path / "run" / "run.toml").exists()


@pytest.mark.parametrize(
    "settings", [{"sampler": "baoab", "noise": "both"}, {"sampler": "psgld", "noise": "by-item"}]
)
def test_results_do_not_depend_on_the_unit_of_the_ratings(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    """Scores, moments and draws of ratings in another unit change by the unit alone.

    The units are powers of 2, so that even the bits of the standardised ratings are equal; 1e-3 is
    for float32 sums.
    """
    runs = {}
    for unit in (1.0, 2.0**-13, 2.0**20):
        data = write(tmp_path / f"{unit}.h5", 29, 17, lambda x, unit=unit: x * np.float32(unit))
        out = tmp_path / f"run-{unit}"
        runs[unit] = sampled(out, data, rank=2, **settings), Run(out)
    one, run = runs.pop(1.0)
    for unit, (summary, other) in runs.items():
        assert summary["rmse_mean"] == pytest.approx(unit * one["rmse_mean"], rel=1e-3)
        assert summary["tau"] == pytest.approx(one["tau"] / unit**2, rel=1e-3)
        assert summary["coverage"] == one["coverage"]
        assert summary["log_predictive_density"] == pytest.approx(
            one["log_predictive_density"] - np.log(unit), abs=1e-3
        )
        last = other.draw(len(other.draws) - 1)
        expected = run.draw(len(run.draws) - 1)
        products = [d.theta["user"][:, :2] @ d.theta["item"][:, :2].T for d in (last, expected)]
        np.testing.assert_allclose(products[0], unit * products[1], rtol=1e-3, atol=1e-5 * unit)
        for entity in ("user", "item"):
            np.testing.assert_allclose(
                last.theta[entity][:, 2], unit * expected.theta[entity][:, 2], rtol=1e-3
            )
            variances = [r.moments[0].variance[entity][:, 2] for r in (other, run)]
            np.testing.assert_allclose(variances[0], unit**2 * variances[1], rtol=1e-3)
            covariances = [np.diag(d.prior[entity].covariance) for d in (last, expected)]
            np.testing.assert_allclose(
                covariances[0], [unit, unit, unit**2] * covariances[1], rtol=1e-3
            )


def test_rank_and_step_follow_from_the_ratings(tmp_path: Path) -> None:
    """Few ratings have a small rank and a small step; settings that are given, or those of a run,
    win.
    """
    for rows, columns, share, rank in ((29, 17, 0.5, 3), (60, 50, 0.02, 1), (200, 100, 0.9, 32)):
        source = RatingsSource(write(tmp_path / f"{rank}.h5", rows, columns, share=share))
        assert source.build({}).resolved().rank == rank
        assert source.build({"rank": "auto"}, {"rank": 5}).resolved().rank == 5
    source = RatingsSource(tmp_path / "3.h5")
    small = source.build({}).resolved()
    assert 0.05 < small.sampler.config.step_size < 0.1
    assert (
        source.build({"sampler": {"step_size": 0.35}}).resolved().sampler.config.step_size == 0.35
    )
    assert source.build(small.table()).resolved() == small
    step = source.build({"rank": 60}).resolved().sampler.config.step_size
    assert step == pytest.approx(0.4 * source.ratings.nnz / (46 * 61), abs=1e-4)


@pytest.mark.parametrize("sampler", ["sgld", "hamcmc"])
def test_steps_on_full_tables_are_bounded_by_tau(tmp_path: Path, sampler: str) -> None:
    """New runs alone: not those with a step or another metric of their own, nor where tau is none,
    nor those that were begun before.
    """
    source = RatingsSource(write(tmp_path / "full.h5", 25, 15, share=1.0))

    def limit(saved: dict[str, Any], **settings: Any) -> float | None:
        config = source.build(saved, {"sampler": {"name": sampler}, **settings}).resolved()
        found: float | None = config.sampler.config.tau_limit
        return found

    most = max(np.diff(source.ratings.row_indptr).max(), source.ratings.column_counts.max())
    assert limit({}) == pytest.approx(0.05 * most * 15 / source.ratings.nnz, abs=1e-4)
    begun = source.build({}, {"sampler": {"name": sampler}}).resolved().table()
    assert begun["sampler"].pop("tau_limit") == limit({})
    assert limit(begun) is None
    assert limit({"sampler": {"name": sampler, "step_size": 0.9}}) is None
    if sampler == "sgld":
        assert limit({}, likelihood="ordinal-logit") is None
    else:
        assert limit({"sampler": {"name": sampler, "metric": "fisher"}}) is None
    limited = begun | {"sampler": {**begun["sampler"], "tau_limit": 0.1}}
    for tau, size in ((0.01, 0.9), (2.0, 0.05)):
        assert source.build(limited).resolved().sampler.config.limited(0.9, tau) == pytest.approx(
            size
        )


@pytest.mark.parametrize(
    ("rows", "columns", "share", "seed", "noise"),
    [(40, 30, 0.05, 0, "both"), (25, 20, 0.4, 1, "shared")],
)
def test_few_ratings_are_predicted_no_worse_than_by_their_mean(
    tmp_path: Path, rows: int, columns: int, share: float, seed: int, noise: str
) -> None:
    """The defaults for 54 and 153 ratings are at most 5 % worse than the mean, which is chance."""
    data = write(tmp_path / "r.h5", rows, columns, share=share, seed=seed)
    i, _, x = planted(rows, columns, share, seed)
    held = np.arange(len(i)) % 5 == 0
    mean_only = float(np.sqrt(np.mean((x[held] - x[~held].mean()) ** 2)))
    summary = sampled(tmp_path / "run", data, grid=4, iterations=400, burn_in=50, noise=noise)
    assert summary["baselines"]["mean_only"] == pytest.approx(mean_only)
    assert summary["rmse_mean"] < 1.05 * mean_only


def test_more_processes_than_blocks_are_refused(tmp_path: Path) -> None:
    """The message names a grid that is large enough for the processes of a chain."""
    source = RatingsSource(write(tmp_path / "r.h5", 29, 17))
    with pytest.raises(InputError, match=r"3 processes cannot share a grid of 2 blocks.*--grid 6"):
        source.resolve(6, {}, {"grid": 2, "chains": 2})


def test_warnings_say_what_does_not_suit_the_data(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning names a rank that is too large; a likelihood of real numbers for two values, if it
    was chosen; and skewed positive ratings whose logarithms are not modelled.
    """
    data = write(tmp_path / "r.h5", 29, 17)
    binary = write(tmp_path / "b.h5", 29, 17, lambda x: (x > 3.5).astype(np.float32))
    skewed = write(tmp_path / "s.h5", 29, 17, lambda x: np.exp(2 * x).astype(np.float32))
    for path, settings, expected in (
        (data, {}, ""),
        (skewed, {}, "try --scale log"),
        (skewed, {"scale": "log"}, ""),
        (data, {"rank": 32}, "leave out --rank, or try --rank 3"),
        (binary, {}, ""),
        (binary, {"likelihood": "gaussian"}, "0 and 1"),
    ):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            RatingsSource(path).resolve(1, {}, settings)
        assert expected in caplog.text
        assert bool(caplog.text) == bool(expected)


def test_two_values_are_logistic_unless_another_likelihood_is_needed(tmp_path: Path) -> None:
    """Their scores are the AUC, as counted over pairs, the Brier score, and minus the log
    probability.
    """
    for low, high in ((0, 1), (-1, 1)):
        data = write(
            tmp_path / f"{low}.h5",
            29,
            17,
            lambda x, low=low, high=high: np.where(x > 3.5, high, low) * 1.0,
        )
        laws = {
            likelihood_of(data, {}),
            likelihood_of(data, {"noise": "both"}),
            likelihood_of(data, {"rank": 0}),
        }
        assert laws == {"ordinal-logit"}
        settings: Any = (
            {"likelihood": "gaussian"},
            {"sampler": "gibbs", "noise": "both"},
            {"noise_precision": 2.0},
        )
        assert {likelihood_of(data, requested) for requested in settings} == {"gaussian"}
    summary = sampled(tmp_path / "run", data)
    test = predict_test(Run(tmp_path / "run"))
    assert test.probability is not None
    x = test.rating
    p = test.probability[:, 1]
    apart = p[x > 0][:, None] - p[x < 0]
    assert summary["auc"] == pytest.approx(np.mean((apart > 0) + (apart == 0) / 2))
    assert summary["brier"] == pytest.approx(np.mean((p - (x > 0)) ** 2))
    assert (
        summary["log_loss"]
        == pytest.approx(-np.log(np.where(x > 0, p, 1 - p)).mean())
        == -summary["log_probability"]
    )


def likelihood_of(data: Path, settings: dict[str, Any]) -> str:
    return RatingsSource(data).resolve(1, {}, settings).likelihood


@pytest.mark.parametrize(
    ("value", "why"), [(-1.0, "rating of -1,"), (2.5, "rating of 2.5,"), (0.0, "all")]
)
def test_ratings_that_are_no_counts_are_refused(tmp_path: Path, value: float, why: str) -> None:
    """Negative ratings, fractions and zeros alone are refused."""
    data = write(tmp_path / "r.h5", 9, 7, lambda x: np.where(x > 3.5, np.float32(value), 0.0))
    with pytest.raises(InputError, match=why):
        sampled(tmp_path / "run", data, likelihood="negative-binomial")


def test_measurements_are_no_levels(tmp_path: Path) -> None:
    """Ratings that are all different have no levels, and an ordinal law refuses more than 25; few
    values are levels.
    """
    cases = [
        (lambda x: x, False),
        (lambda x: np.clip(np.round(2 * x) / 2, 0.5, 5), True),
        (lambda x: np.where(x > 3.5, np.float32(0.7), np.float32(0.3)), True),
    ]
    for number, (values, expected) in enumerate(cases):
        data = write(tmp_path / f"{number}.h5", 12, 9, values)
        out = tmp_path / f"run-{number}"
        summary = sampled(out, data, rank=1)
        assert (Run(out).levels is not None) == expected
        assert (summary["log_probability"] is not None) == expected
    with pytest.raises(InputError, match="more than 25 different training ratings"):
        sampled(tmp_path / "many", tmp_path / "0.h5", rank=1, likelihood="ordinal-logit")


# ---------------------------------------------------------------------- settings of a job

SMALL = {"rank": 2, "sampler": "psgld", "iterations": 20, "burn_in": 4, "thin": 4}


def ask(
    data: Path, out: Path, *, resume: bool = False, **options: Any
) -> tuple[ResolvedConfig, list[str]]:
    """Resolve options on one process."""
    return Job(MPI.COMM_SELF, RatingsSource(data), out, options, resume=resume).resolve()


@pytest.fixture
def begun(data: Path, tmp_path: Path) -> Path:
    """Directory of a run that was started with `SMALL` settings."""
    assert sample(MPI.COMM_SELF, data, tmp_path / "run", **SMALL) == 0
    return tmp_path / "run"


def test_what_a_chain_cannot_change_is_refused(data: Path, begun: Path) -> None:
    """A refusal names every such setting with both values; a second start needs --resume."""
    with pytest.raises(
        AgreedError, match=r"thin: 4 in the run, 5 requested\n  rank: 2 in the run, 3 requested\n"
    ):
        ask(data, begun, resume=True, rank=3, thin=5)
    with pytest.raises(AgreedError, match="is not empty: give --resume"):
        ask(data, begun, **SMALL)


def test_a_run_goes_on_with_its_own_ratings_only(begun: Path, tmp_path: Path) -> None:
    """A run refuses to go on with ratings of another content."""
    other = write_planted(tmp_path / "other.h5", seed=5)
    with pytest.raises(AgreedError, match=r"was sampled on other data than .*other\.h5"):
        ask(other, begun, resume=True)


def test_the_default_grid_fits_tiny_data(tmp_path: Path) -> None:
    """The default grid is as coarse as the data need."""
    tiny = write_planted(tmp_path / "tiny.h5", rows=9, columns=3)
    assert ask(tiny, tmp_path / "run")[0].grid == 3


@pytest.mark.parametrize(
    ("settings", "sampler"),
    [
        ({}, "gibbs"),
        ({"sampler": "auto"}, "gibbs"),
        ({"sampler": {"name": "auto", "step_size": 0.1}}, "baoab"),
        ({"noise": "both"}, "gibbs"),
        ({"sampler": "baoab"}, "baoab"),
        ({"sampler": {"step_size": 0.1}}, "baoab"),
        ({"likelihood": "student-t"}, "baoab"),
        ({"implicit_features": "both"}, "baoab"),
        ({"biases": False}, "psgld"),
    ],
)
def test_gibbs_is_the_default_for_nearly_full_matrices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], sampler: str
) -> None:
    """Where it can draw the model, and no sampler or setting of one is chosen."""
    monkeypatch.setattr(models, "DENSE_RATINGS", 100)
    data = write_planted(tmp_path / "r.h5")
    assert RatingsSource(data).resolve(1, {}, settings).sampler.name == sampler


def test_ratings_that_are_all_one_are_clicks(tmp_path: Path) -> None:
    """A Gaussian model of a constant fits perfectly and says nothing; who asks for it has it."""
    clicks = write(tmp_path / "clicks.h5", 30, 20, np.ones_like)
    assert RatingsSource(clicks).resolve(1, {}, {}).likelihood == "all-cells"
    asked = {"likelihood": "gaussian"}
    assert RatingsSource(clicks).resolve(1, {}, asked).likelihood == "gaussian"
    stars = write(tmp_path / "stars.h5", 30, 20)
    assert RatingsSource(stars).resolve(1, {}, {}).likelihood == "gaussian"


def test_few_or_sparse_ratings_have_baoab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed run keeps its sampler, whatever the ratings are."""
    data = write_planted(tmp_path / "r.h5")
    assert RatingsSource(data).resolve(1, {}, {}).sampler.name == "baoab"
    monkeypatch.setattr(models, "DENSE_RATINGS", 100)
    saved = RatingsSource(data).resolve(1, {}, {"sampler": "baoab"}).table()
    assert RatingsSource(data).resolve(1, saved, {}).sampler.name == "baoab"
    sparse = write_planted(tmp_path / "s.h5", 60, 60, share=0.15)
    assert RatingsSource(sparse).resolve(1, {}, {}).sampler.name == "baoab"


def test_a_run_stores_the_sampler_that_was_asked_and_the_one_that_was_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``auto`` leaves the sampler of a resumed run as it is; another name is refused."""
    monkeypatch.setattr(models, "DENSE_RATINGS", 100)
    data = write_planted(tmp_path / "r.h5")
    for asked, taken in (("auto", "gibbs"), ("baoab", "baoab")):
        out = tmp_path / asked
        settings = {"rank": 2, "sampler": asked, "iterations": 20, "burn_in": 4, "thin": 4}
        assert sample(MPI.COMM_SELF, data, out, **settings) == 0
        stored, facts = RunDirectory(out).read_settings()
        assert stored["sampler"]["name"] == taken
        assert facts["requested_sampler"] == asked
        config, _ = ask(data, out, resume=True, sampler="auto", iterations=30)
        assert config.sampler.name == taken
    with pytest.raises(AgreedError, match=r"gibbs.* in the run, .*psgld.* requested"):
        ask(data, tmp_path / "auto", resume=True, sampler="psgld")


def test_dense_measurements_of_unequal_rows_get_noise_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of large values would otherwise rule the common noise level, and the factors."""
    monkeypatch.setattr(models, "DENSE_RATINGS", 100)
    i, j, x = planted(40, 30, 0.9, 0)
    held = np.arange(len(i)) % 5 == 0
    equal = write_cells(tmp_path / "equal.h5", (40, 30), i, j, x, held)
    size = np.where(i < 4, np.float32(30), np.float32(1))
    unequal = write_cells(tmp_path / "unequal.h5", (40, 30), i, j, x * size, held)
    tails = np.where(np.arange(len(i)) % 11 == 0, x * 30, x)
    single = write_cells(tmp_path / "single.h5", (40, 30), i, j, tails, held)

    def noise_of(data: Path, **settings: Any) -> str:
        return RatingsSource(data).resolve(1, {}, settings).noise

    assert noise_of(equal) == "shared"
    assert noise_of(single) == "shared"
    assert noise_of(unequal) == "both"
    assert noise_of(unequal, sampler="baoab") == "both"
    for chosen in ({"noise": "shared"}, {"noise_precision": 1.0}, {"likelihood": "student-t"}):
        assert noise_of(unequal, **chosen) == "shared"
    monkeypatch.setattr(models, "DENSE_SHARE", 1.1)
    assert noise_of(unequal) == "shared"

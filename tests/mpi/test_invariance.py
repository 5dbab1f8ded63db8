"""The chain does not know the machine: equal bits for any number of processes, in one go or resumed.

Everything is compared with what one process makes in one go. On three processes the first stop is resumed on two.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from mpi4py import MPI
from support import digest, metrics, rest, sample

from dsgmcmc.errors import InputError
from dsgmcmc.model import circulation
from dsgmcmc.parallel import ring
from dsgmcmc.samplers import SAMPLERS
from dsgmcmc.samplers.gradients import GRADIENTS
from dsgmcmc.storage.series import steps

pytestmark = pytest.mark.mpi
SCHEDULES = ("shuffled", "cyclic", "random")
PRIORS = ("fixed", "normal-gamma", "normal-wishart")
NOISES = ("shared", "by-user", "both")
BASE: dict[str, Any] = {"rank": 3, "grid": 5, "burn_in": 4, "thin": 3, "evaluate_every": 4, "save_draws": 2}
STEPS = {"baoab": 0.02}  # the default is for real data, not for 250 ratings
INDEPENDENT = ("sgnht",)  # take random parts alone
SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("sghmc", {"splitting": "published", "metric": "identity", "refresh": 3}),
    ("sghmc", {"friction": "metric", "refresh": 2}),
    ("baoab", {"metric": "kronecker"}),
    ("sghmc", {"metric": "kronecker", "refresh": 3}),
    ("sgnht", {"thermostat": "scalar", "metric": "identity"}),
    ("sgnht", {"thermostat": "element"}),
    ("sgnht", {"metric": "kronecker"}),
    ("hamcmc", {"metric": "fisher"}),
    ("sgnht", {"thermostat": "scalar", "gradient": "control-variate"}),
]


def settings_of(sampler: str, gradient: str | None = None, **more: Any) -> dict[str, Any]:
    section = {"name": sampler} | ({"step_size": STEPS[sampler]} if sampler in STEPS else {})
    section |= {"gradient": gradient} if gradient else {}
    return {**BASE, "sampler": section, "iterations": 17, **more}


def compare(comm: MPI.Comm, together, data: Path, folder: Path, settings: dict[str, Any], stops: list[int]) -> None:
    """One go on one process against all processes in several goes, the last of them on one process less."""
    failures = []
    if comm.rank == 0:
        failures.append(sample(MPI.COMM_SELF, data, folder / "one", **settings))
    rest(comm)
    for number, iterations in enumerate(stops):
        fewer = comm.size > 1 and number == len(stops) - 1 > 0
        group = comm.Split(int(fewer and comm.rank == comm.size - 1), comm.rank)
        if not (fewer and comm.rank == comm.size - 1):
            more = {"iterations": iterations} if number else {**settings, "iterations": iterations}
            failures.append(sample(group, data, folder / "many", resume=number > 0, **more))
        rest(comm)
    with together():
        assert not any(failures)
        if comm.rank == 0:
            assert digest(folder / "many") == digest(folder / "one")


def pairs() -> list[Any]:
    """A covering array: any two of samplers, schedules, priors and noises meet, in three cases a sampler.

    Case k of sampler s has schedule k, prior k + s and noise k + 2 s, modulo 3, as in the orthogonal array of nine
    runs: two columns differ by s or 2 s, which takes all values. What samples independent parts alone has random ones
    in all three cases. One case a sampler also runs on other numbers of processes and with other libraries.
    """
    found = []
    for (s, sampler), k in product(enumerate(SAMPLERS), range(3)):
        schedule = "random" if sampler in INDEPENDENT else SCHEDULES[k]
        case = (sampler, schedule, PRIORS[(k + s) % 3], NOISES[(k + 2 * s) % 3])
        found.append(pytest.param(*case, marks=[pytest.mark.once] * (k != s % 3)))
    return found


@pytest.mark.parametrize(("sampler", "schedule", "prior", "noise"), pairs())
def test_number_of_processes_and_resuming(
    comm: MPI.Comm, together, data: Path, mpi_tmp_path: Path, sampler: str, schedule: str, prior: str, noise: str
) -> None:
    """Every sampler, schedule, prior and noise, and any two of them; stopped within a sweep."""
    settings = settings_of(sampler, schedule=schedule, prior=prior, noise=noise)
    compare(comm, together, data, mpi_tmp_path, settings, [7, 17])


def other_gradients() -> list[tuple[str, str, str]]:
    """Samplers, estimators that are not their own, and noises in turns, where an estimator serves both."""
    pairs = [(name, gradient) for name, sampler in SAMPLERS.items() for gradient in sampler.gradients[1:]]
    return [
        (name, gradient, "shared" if number % 2 or GRADIENTS[gradient].fixed_likelihood else "both")
        for number, (name, gradient) in enumerate(pairs)
    ]


@pytest.mark.once
@pytest.mark.parametrize(("sampler", "gradient", "noise"), other_gradients())
def test_gradients_that_are_not_the_default(
    comm: MPI.Comm, together, data: Path, mpi_tmp_path: Path, sampler: str, gradient: str, noise: str
) -> None:
    """Every estimator that a sampler can use instead of its own."""
    settings = settings_of(sampler, gradient, noise=noise)
    compare(comm, together, data, mpi_tmp_path, settings, [7, 17])


@pytest.mark.once
@pytest.mark.parametrize("sampler", ["baoab", "hamcmc"])
def test_blocks_that_are_large(
    comm: MPI.Comm, together, data: Path, mpi_tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampler: str
) -> None:
    """They travel as messages, and a process keeps no memory for those that have left."""
    monkeypatch.setattr(ring, "LARGEST", 0)
    monkeypatch.setattr(circulation, "KEPT_BYTES", 0)
    settings = settings_of(sampler, noise="both")
    compare(comm, together, data, mpi_tmp_path, settings, [7, 17])


@pytest.mark.once
@pytest.mark.parametrize(
    ("sampler", "prior"),
    [("baoab", "normal-gamma"), ("gibbs", "normal-wishart"), ("sgld", "fixed")],
)
def test_biases_only(comm: MPI.Comm, together, data: Path, mpi_tmp_path: Path, sampler: str, prior: str) -> None:
    """Rank 0: rows of one number, and priors over no columns."""
    settings = settings_of(sampler, rank=0, prior=prior, noise="both")
    compare(comm, together, data, mpi_tmp_path, settings, [7, 17])


@pytest.mark.once
@pytest.mark.parametrize("sampler", ["baoab", "psgld", "gibbs"])
def test_implicit_features(comm: MPI.Comm, together, data: Path, mpi_tmp_path: Path, sampler: str) -> None:
    """Systems of equations solved on the ring, from home and from where parts have left the columns."""
    settings = settings_of(sampler, implicit_features="both", noise="both", iterations=30)
    compare(comm, together, data, mpi_tmp_path, settings, [12, 30])


@pytest.mark.once
@pytest.mark.parametrize(("sampler", "prior"), [("baoab", "normal-gamma"), ("psgld", "normal-wishart")])
def test_features(comm: MPI.Comm, together, described: Path, mpi_tmp_path: Path, sampler: str, prior: str) -> None:
    """B is drawn from sums over blocks, whether the columns are at home or not; stopped between two draws of it."""
    settings = settings_of(sampler, prior=prior, noise="both")
    sweep = 1 if sampler == "baoab" else BASE["grid"]
    settings |= {"iterations": 23 * sweep, "thin": sweep}
    compare(comm, together, described, mpi_tmp_path, settings, [14 * sweep + sweep // 2, 23 * sweep])


@pytest.mark.once
@pytest.mark.parametrize(
    ("sampler", "settings"),
    [
        ("baoab", {"time_levels": "user,item", "noise": "both", "implicit_features": "both"}),
        ("psgld", {"time_levels": "item:page,user:3,item:4"}),
        ("baoab", {"time_levels": "user,item", "noise": "both", "likelihood": "ordinal-logit", "thresholds": "user"}),
        ("psgld", {"time_levels": "item:4,user:page", "likelihood": "negative-binomial"}),
        ("baoab", {"time_levels": "user,item", "likelihood": "student-t", "noise": "both"}),
        ("gibbs", {"time_levels": "item:3,user:page", "noise": "by-item"}),
    ],
)
def test_effects_of_time(
    comm: MPI.Comm, together, timed: Path, mpi_tmp_path: Path, sampler: str, settings: dict[str, Any]
) -> None:
    """Groups of rows at home and of columns on their way, with parts anywhere; stopped between two draws."""
    sweep = BASE["grid"] if sampler == "psgld" else 1
    settings = settings_of(sampler, **settings) | {"iterations": 14 * sweep, "thin": sweep}
    compare(comm, together, timed, mpi_tmp_path, settings, [8 * sweep + sweep // 2, 14 * sweep])


@pytest.mark.once
@pytest.mark.parametrize(("sampler", "section"), SETTINGS)
def test_settings_with_state_or_sums_of_their_own(
    comm: MPI.Comm, together, data: Path, mpi_tmp_path: Path, sampler: str, section: dict[str, Any]
) -> None:
    """What is drawn, saved or added up under these settings alone."""
    settings = settings_of(sampler)
    settings["sampler"] |= section
    compare(comm, together, data, mpi_tmp_path, settings, [7, 17])


@pytest.mark.once
def test_bounds_that_are_kept_from_a_refresh_before(comm: MPI.Comm, together, data: Path, mpi_tmp_path: Path) -> None:
    """Stopped between two looks at the curvature of single rows, which come less often once a chain has settled."""
    settings = settings_of("baoab", iterations=27)
    compare(comm, together, data, mpi_tmp_path, settings, [23, 27])


@pytest.mark.once
@pytest.mark.parametrize(
    ("likelihood", "sampler", "noise", "thresholds"),
    [
        ("ordinal-logit", "baoab", "both", "shared"),
        ("ordinal-logit", "baoab", "both", "user"),
        ("ordinal-probit", "psgld", "by-user", "shared"),
        ("ordinal-logit", "psgld", "shared", "user"),
        ("negative-binomial", "baoab", "shared", "shared"),
        ("student-t", "psgld", "by-user", "shared"),
    ],
)
def test_ratings_of_levels_and_counts(
    comm: MPI.Comm,
    together,
    stars: Path,
    mpi_tmp_path: Path,
    likelihood: str,
    sampler: str,
    noise: str,
    thresholds: str,
) -> None:
    """Thresholds and scales move by ordered sums, and what was gathered of them within a sweep is in the checkpoint.

    What a count counts in the metric follows from the totals of its row and column, wherever these are.
    """
    implicit = "both" if noise == "by-user" else "no"
    settings = settings_of(sampler, likelihood=likelihood, noise=noise, implicit_features=implicit)
    settings["thresholds"] = thresholds
    compare(comm, together, stars, mpi_tmp_path, settings, [7, 17])


@pytest.mark.once
@pytest.mark.parametrize(("sampler", "noise"), [("baoab", "shared"), ("psgld", "both")])
def test_thresholds_of_users_who_are_columns(
    comm: MPI.Comm, together, turned_stars: Path, mpi_tmp_path: Path, sampler: str, noise: str
) -> None:
    """They travel, and what is gathered of them comes home."""
    settings = settings_of(sampler, likelihood="ordinal-logit", noise=noise, thresholds="user")
    compare(comm, together, turned_stars, mpi_tmp_path, settings, [7, 17])


@pytest.mark.once
@pytest.mark.parametrize("sampler", ["baoab", "gibbs"])
def test_clicks(comm: MPI.Comm, together, data: Path, mpi_tmp_path: Path, sampler: str) -> None:
    """Gram matrices over all cells are ordered sums."""
    settings = settings_of(sampler, likelihood="all-cells")
    settings["sampler"] |= {"metric": "kronecker"} if sampler == "baoab" else {}
    compare(comm, together, data, mpi_tmp_path, settings, [7, 17])


@pytest.mark.parametrize(("grid", "biases"), [(4, True), (7, False), (8, True)])
def test_grids_with_and_without_biases(
    comm: MPI.Comm, together, data: Path, mpi_tmp_path: Path, grid: int, biases: bool
) -> None:
    """Grids that the processes divide and do not divide."""
    settings = settings_of("psgld", grid=grid, biases=biases, center=biases)
    compare(comm, together, data, mpi_tmp_path, settings, [17])


@pytest.mark.parametrize("chains", [2, 3])
def test_chains_share_the_processes(comm: MPI.Comm, together, data: Path, mpi_tmp_path: Path, chains: int) -> None:
    """As many groups as chains, or chains in turn where there are fewer processes."""
    compare(comm, together, data, mpi_tmp_path, settings_of("psgld", chains=chains), [9, 17])
    with together():
        if comm.rank == 0:
            for run in ("one", "many"):
                lines = [(line["chain"], line["iteration"]) for line in metrics(mpi_tmp_path / run)]
                assert lines == [(c, n) for c in range(chains) for n in (1, 4, 8, 12, 16)]


@pytest.mark.once
@pytest.mark.parametrize(("chains", "until"), [(1, "rhat=1.3"), (3, "ess=40")])
def test_chains_end_together_when_they_are_accurate(
    comm: MPI.Comm, together, data: Path, mpi_tmp_path: Path, chains: int, until: str
) -> None:
    """At the same look on any number of processes, also where limits stopped them before, between looks and at one."""
    settings = settings_of("baoab", chains=chains, until=until, iterations=300, thin=1, burn_in=20)
    settings |= {
        "sampler": {"name": "baoab", "step_size": 0.15},
        "prior": "fixed",
        "prior_precision": 20.0,
    }  # mixes fast
    compare(comm, together, data, mpi_tmp_path, settings, [44, 60, 300])
    with together():
        if comm.rank == 0:
            looks = [json.loads((mpi_tmp_path / run / "summary.json").read_text())["until"] for run in ("one", "many")]
            assert looks[0] == looks[1]
            assert looks[0]["reached"]
            assert 60 < looks[0]["iteration"] < 300
            ends = {steps(mpi_tmp_path / "many" / "posterior" / f"chain-{chain}")[0] for chain in range(chains)}
            assert ends == {looks[0]["iteration"]}


def test_chains_are_unlike(comm: MPI.Comm, together, data: Path, mpi_tmp_path: Path) -> None:
    """Two chains of one seed are two samples, not one sample twice."""
    sample(comm, data, mpi_tmp_path / "run", **settings_of("psgld", chains=2))
    with together():
        taus: dict[int, list[float]] = {0: [], 1: []}
        for line in metrics(mpi_tmp_path / "run"):
            taus[line["chain"]].append(line["rmse"])
        assert len(taus[0]) == len(taus[1]) == 5
        assert all(a != b for a, b in zip(taus[0], taus[1], strict=True))


def test_times_of_checkpoints_do_not_matter(comm: MPI.Comm, together, data: Path, mpi_tmp_path: Path) -> None:
    """Saving every second iteration changes no bit of the draws, the posterior or the last state."""
    settings = settings_of("psgld")
    rare, often = mpi_tmp_path / "rare", mpi_tmp_path / "often"
    sample(comm, data, rare, **settings)
    sample(comm, data, often, **settings, checkpoint_every=2)
    with together():
        if comm.rank == 0:
            assert digest(rare) == digest(often)
            assert steps(often / "checkpoints" / "chain-0") == [4, 16, 17]  # 4 is the end of burn-in, which stays


def test_an_unreadable_run_is_refused_by_all_alike(comm: MPI.Comm, together, data: Path, mpi_tmp_path: Path) -> None:
    """All processes raise the one error that process 0 found, and none is left waiting."""
    sample(comm, data, mpi_tmp_path / "run", **settings_of("psgld"))
    comm.Barrier()
    if comm.rank == 0:
        for shard in (mpi_tmp_path / "run").glob("checkpoints/chain-0/*/shard-*"):
            shard.write_bytes(b"")
    comm.Barrier()
    message = ""
    try:
        sample(comm, data, mpi_tmp_path / "run", resume=True)
    except InputError as error:
        message = str(error)
    with together():
        assert "can be read" in message

"""The chain does not know the machine: equal bits for any number of processes, in one go or
resumed.

Everything is compared with a run of one process in one go. On three processes the last part is
resumed on two.
"""

import json
import shutil
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from support import (
    digest,
    diverging,
    metrics,
    planted,
    sample,
    write_cells,
    write_dominant,
    write_planted,
)

from dsgmcmc.diagnostics.summary import read_summary
from dsgmcmc.parallel import ring
from dsgmcmc.runs import models
from dsgmcmc.samplers import SAMPLERS
from dsgmcmc.samplers.gradients import GRADIENTS
from dsgmcmc.storage import store
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.storage.store import step_name, steps

pytestmark = pytest.mark.mpi
SCHEDULES = ("shuffled", "cyclic", "random")
PRIORS = ("fixed", "half-cauchy", "normal-wishart")
NOISES = ("shared", "by-user", "both")
BASE: dict[str, Any] = {
    "rank": 3,
    "grid": 5,
    "burn_in": 4,
    "thin": 3,
    "evaluate_every": 4,
    "save_draws": 2,
}
STEPS = {"baoab": 0.02}  # the default is for real data, not for 250 ratings
INDEPENDENT = ("sgnht",)  # take random parts alone


def settings_of(sampler: str, **more: Any) -> dict[str, Any]:
    section = {"name": sampler} | ({"step_size": STEPS[sampler]} if sampler in STEPS else {})
    return {**BASE, "sampler": section, "iterations": 17, **more}


def compare(
    comm: MPI.Comm, together, data: Path, folder: Path, settings: dict[str, Any], stops: list[int]
) -> None:
    """One go on one process against all processes in several goes, the last of them on one process
    less.
    """
    with together():
        if comm.rank == 0:
            assert sample(MPI.COMM_SELF, data, folder / "one", **settings) == 0
    for number, iterations in enumerate(stops):
        fewer = comm.size > 1 and number == len(stops) - 1 > 0
        group = comm.Split(int(fewer and comm.rank == comm.size - 1), comm.rank)
        with together():  # an error is raised on all processes of the group alike
            if not (fewer and comm.rank == comm.size - 1):
                more = (
                    {"iterations": iterations} if number else {**settings, "iterations": iterations}
                )
                assert sample(group, data, folder / "many", resume=number > 0, **more) == 0
    with together():
        if comm.rank == 0:
            assert digest(folder / "many") == digest(folder / "one")


def pairs() -> list[Any]:
    """A covering array: any two of samplers, schedules, priors and noises meet, in three cases a
    sampler.

    Case k of sampler s has schedule k, prior k + s and noise k + 2 s, modulo 3, as in the
    orthogonal array of nine runs: two columns differ by s or 2 s, which takes all values. A sampler
    of independent parts has the random schedule in all three cases. One case a sampler also runs on
    other numbers of processes and with other libraries.
    """
    cases = []
    for (s, sampler), k in product(enumerate(SAMPLERS), range(3)):
        schedule = "random" if sampler in INDEPENDENT else SCHEDULES[k]
        values = (sampler, schedule, PRIORS[(k + s) % 3], NOISES[(k + 2 * s) % 3])
        marks = [pytest.mark.once] if k != s % 3 else []
        cases.append(pytest.param(*values, marks=marks))
    return cases


@pytest.mark.parametrize(("sampler", "schedule", "prior", "noise"), pairs())
def test_number_of_processes_and_resuming(
    comm: MPI.Comm,
    together,
    data: Path,
    mpi_tmp_path: Path,
    sampler: str,
    schedule: str,
    prior: str,
    noise: str,
) -> None:
    """Any two of samplers, schedules, priors and noises meet in a run that is stopped within a
    sweep.
    """
    settings = settings_of(sampler, schedule=schedule, prior=prior, noise=noise)
    compare(comm, together, data, mpi_tmp_path, settings, [7, 17])


#: Settings of a sampler that has its defaults.
NO_SETTINGS: Mapping[str, Any] = MappingProxyType({})


def case(
    sampler: str,
    file: str = "plain",
    stops: tuple[float, ...] = (7, 17),
    *,
    sampler_settings: Mapping[str, Any] = NO_SETTINGS,
    **settings: Any,
) -> tuple[str, dict[str, Any], list[int]]:
    """A file, settings, and the iterations after which a run stops and ends, from sweeps."""
    sweep = 5 if sampler == "psgld" and stops != (7, 17) else 1
    ends = [round(stop * sweep) for stop in stops]
    thin = {"thin": sweep} if file in ("described", "timed") else {}
    settings = settings_of(sampler, iterations=ends[-1], **thin, **settings)
    return file, settings | {"sampler": settings["sampler"] | dict(sampler_settings)}, ends


BOTH = {"noise": "both"}
ORDINAL = {"likelihood": "ordinal-logit"}
TIME = {"time_levels": "user,item", "noise": "both"}
CASES = {
    # state and sums that exist under these settings of a sampler alone
    "published splitting": case(
        "sghmc", sampler_settings={"splitting": "published", "metric": "identity", "refresh": 3}
    ),
    "baoab, kronecker": case("baoab", sampler_settings={"metric": "kronecker"}),
    "sghmc, kronecker": case("sghmc", sampler_settings={"metric": "kronecker", "refresh": 3}),
    "one thermostat": case(
        "sgnht", sampler_settings={"thermostat": "scalar", "metric": "identity"}
    ),
    "a thermostat an element": case("sgnht", sampler_settings={"thermostat": "element"}),
    "hamcmc, fisher": case("hamcmc", sampler_settings={"metric": "fisher"}),
    # stopped before the first step of every sub-chain, in the first 2 M + 1 steps, while v is
    # frozen, and after
    "hamcmc, phases": case(
        "hamcmc",
        "plain",
        (*range(1, 9), 17),
        sampler_settings={"memory": 2},
        schedule="cyclic",
        thin=5,
    ),
    "hamcmc, phases of v": case(
        "hamcmc",
        "plain",
        (*range(1, 11), 17),
        sampler_settings={"memory": 3, "metric": "diagonal"},
        schedule="random",
        thin=5,
    ),
    # blocks that are large travel as messages
    "large blocks, baoab": case("baoab", **BOTH),
    "large blocks, hamcmc": case("hamcmc", **BOTH),
    # stopped between two looks at the curvature of single rows, which come less often once a chain
    # has settled
    "bounds kept from before": case("baoab", stops=(23, 27)),
    # sums over cells, by slabs of rows; stopped between two moves of sizes
    "sizes": case("baoab", stops=(10, 17), hyper_start=1, size_moves=True, **BOTH),
    "sizes, weights": case("baoab", "weights", hyper_start=1, size_moves=True),
    # rank 0: rows of one number, and priors over no columns
    "biases, baoab": case("baoab", rank=0, **BOTH),
    "biases, gibbs": case("gibbs", rank=0, prior="normal-wishart", **BOTH),
    "biases, sgld": case("sgld", rank=0, prior="fixed", **BOTH),
    # systems of equations solved on the ring, from home and from where parts have left the columns
    "implicit, baoab": case("baoab", stops=(12, 30), implicit_features="both", **BOTH),
    "implicit, psgld": case("psgld", stops=(2.4, 6), implicit_features="both", **BOTH),
    "implicit, gibbs": case("gibbs", stops=(12, 30), implicit_features="both", **BOTH),
    # B is drawn from sums over blocks, whether the columns are at home or not; stopped between two
    # draws of it
    "features, baoab": case("baoab", "described", (14, 23), **BOTH),
    "features, psgld": case("psgld", "described", (14.5, 23), prior="normal-wishart", **BOTH),
    # groups of rows at home and of columns on their way, with parts anywhere; stopped between two
    # draws
    "time, implicit": case("baoab", "timed", (8, 14), implicit_features="both", **TIME),
    "time, levels": case("baoab", "timed", (8, 14), thresholds="user", **ORDINAL, **TIME),
    "time, counts": case(
        "psgld", "timed", (8.5, 14), time_levels="item:4,user:page", likelihood="negative-binomial"
    ),
    "time, heavy tails": case("baoab", "timed", (8, 14), likelihood="student-t", **TIME),
    "time, gibbs": case("gibbs", "timed", (8, 14), time_levels="item:3,user:page", noise="by-item"),
    # thresholds and scales move by ordered sums; their sums within a sweep are in the checkpoint
    "levels, own thresholds": case("baoab", "stars", thresholds="user", **ORDINAL, **BOTH),
    "levels, noise of users": case(
        "psgld", "stars", noise="by-user", implicit_features="both", **ORDINAL
    ),
    # thresholds of users who are columns travel, and their sums come home
    "turned levels, psgld": case("psgld", "turned stars", thresholds="user", **ORDINAL, **BOTH),
    # items lack levels, which they get from the training and test ratings of all processes
    "levels of items": case("baoab", "answers", thresholds="item", **ORDINAL),
    "turned levels of items": case("psgld", "turned answers", thresholds="item", **ORDINAL, **BOTH),
    # the weight of a count in the metric follows from the totals of its row and column, wherever
    # these are
    "counts": case("baoab", "stars", likelihood="negative-binomial"),
    "heavy tails": case(
        "psgld", "stars", likelihood="student-t", noise="by-user", implicit_features="both"
    ),
    # the mean of logarithms is computed by every process
    "logarithms": case("baoab", "stars", likelihood="student-t", scale="log", **BOTH),
    # Gram matrices over all cells are ordered sums
    "clicks": case("baoab", sampler_settings={"metric": "kronecker"}, likelihood="all-cells"),
    "clicks, gibbs": case("gibbs", likelihood="all-cells"),
    # columns recur in a row; implicit features count a pair once
    "replicates": case("baoab", "replicates", implicit_features="both", **BOTH),
    "replicates, gibbs": case("gibbs", "replicates", **BOTH),
    # information and statistics are sums over weights
    "weights": case("baoab", "weights", **BOTH),
    "weights, gibbs": case("gibbs", "weights", **BOTH),
    # drawn values are a part of the state; stopped between two draws of them
    "bounds": case("baoab", "bounds", (8, 14), **BOTH),
    "bounds, gibbs": case("gibbs", "bounds", **BOTH),
    "bounds, heavy tails": case("psgld", "bounds", (7, 17), likelihood="student-t"),
    "weights, heavy tails": case("psgld", "weights", likelihood="student-t"),
}
#: Every estimator that a sampler can use instead of its own, and noises in turns, where an
#: estimator serves both.
OTHERS = [(name, each) for name, sampler in SAMPLERS.items() for each in sampler.gradients[1:]]
for number, (name, gradient) in enumerate(OTHERS):
    noise = {} if number % 2 or GRADIENTS[gradient].fixed_likelihood else BOTH
    CASES[f"{name}, {gradient}"] = case(name, sampler_settings={"gradient": gradient}, **noise)


@pytest.mark.once
@pytest.mark.parametrize("name", CASES)
def test_every_setting_with_state_or_sums_of_its_own(
    comm: MPI.Comm,
    together,
    files: dict[str, Path],
    mpi_tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    """Samplers, estimators, likelihoods and parts of the model: stopped on all processes, ended on
    one less.
    """
    monkeypatch.setattr(
        "dsgmcmc.samplers.metrics.REFRESH_EVERY", 1 if name == "bounds kept from before" else 3
    )
    if name.startswith("large blocks"):
        monkeypatch.setattr(ring, "MAX_BLOCK_BYTES", 0)
    file, settings, ends = CASES[name]
    compare(comm, together, files[file], mpi_tmp_path, settings, ends)


@pytest.mark.parametrize(("grid", "biases"), [(4, True), (7, False), (8, True)])
def test_grids_with_and_without_biases(
    comm: MPI.Comm, together, data: Path, mpi_tmp_path: Path, grid: int, biases: bool
) -> None:
    """Grids that the processes divide and do not divide."""
    settings = settings_of("psgld", grid=grid, biases=biases, center=biases)
    compare(comm, together, data, mpi_tmp_path, settings, [17])


@pytest.mark.parametrize("chains", [2, 3])
def test_chains_share_the_processes(
    comm: MPI.Comm, together, data: Path, mpi_tmp_path: Path, chains: int
) -> None:
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
    """At the same look on any number of processes, also where limits stopped them before, between
    looks and at one.
    """
    mixing_fast = {
        "sampler": {"name": "baoab", "step_size": 0.15},
        "prior": "fixed",
        "prior_precision": 20.0,
    }
    settings = {
        **BASE,
        **mixing_fast,
        "chains": chains,
        "until": until,
        "iterations": 300,
        "thin": 1,
        "burn_in": 20,
    }
    compare(comm, together, data, mpi_tmp_path, settings, [44, 60, 300])
    with together():
        if comm.rank == 0:
            looks = [
                json.loads((mpi_tmp_path / run / "summary.json").read_text())["until"]
                for run in ("one", "many")
            ]
            assert looks[0] == looks[1]
            assert looks[0]["reached"]
            assert 60 < looks[0]["iteration"] < 300
            ends = {
                steps(mpi_tmp_path / "many" / "posterior" / f"chain-{chain}")[0]
                for chain in range(chains)
            }
            assert ends == {looks[0]["iteration"]}


@pytest.mark.parametrize("writers", [2, 1])
def test_times_and_files_of_checkpoints_do_not_matter(
    comm: MPI.Comm,
    together,
    data: Path,
    mpi_tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    writers: int,
) -> None:
    """Saving every second iteration changes no bit of the draws, the posterior or the last state.

    Nor does it matter how many processes write: of many, neighbours send their blocks to one, so
    that there are few files.
    """
    settings = settings_of("psgld")
    rare = mpi_tmp_path / "rare"
    often = mpi_tmp_path / "often"
    sample(comm, data, rare, **settings)
    monkeypatch.setattr(store, "MAX_WRITERS", writers)
    monkeypatch.setattr(store, "_PIECE_NUMBERS", 7)  # blocks are sent in several messages
    sample(comm, data, often, **settings, checkpoint_every=2)
    with together():
        if comm.rank == 0:
            assert digest(rare) == digest(often)
            checkpoints = often / "checkpoints" / "chain-0"
            assert steps(checkpoints) == [4, 16, 17]  # 4 is the end of burn-in, which stays
            assert len(list((checkpoints / step_name(17)).glob("shard-*"))) == min(
                writers, comm.size
            )


@pytest.mark.once
@pytest.mark.parametrize("chains", [1, 2])
def test_a_chain_that_diverged_begins_again_alike(
    comm: MPI.Comm, together, mpi_tmp_path: Path, data: Path, chains: int
) -> None:
    """One process samples in one go; several stop at iterations at which the state is not looked at
    otherwise.
    """
    out = mpi_tmp_path / "run"
    alone = mpi_tmp_path / "alone"
    with together():
        if comm.rank == 0:  # first, so that one process compiles the kernels of all
            assert diverging(MPI.COMM_SELF, data, alone, chains=chains) == 0
    for iterations in (23, 27, 41, 60):
        assert diverging(comm, data, out, iterations, chains=chains) == 0
    with together():
        if comm.rank == 0:
            assert len(read_summary(alone / "summary.json")["fell_back"]) >= chains
            assert digest(out) == digest(alone)


@pytest.mark.once
def test_a_step_is_halved_in_burn_in_alike(comm: MPI.Comm, together, mpi_tmp_path: Path) -> None:
    """Temperatures decide about the step, and are equal on any number of processes; a chain that is
    stopped between two measurements, or while bounds follow a halved step, goes on as if it were
    not.
    """
    data = mpi_tmp_path / "dominant.h5"
    with together():
        if comm.rank == 0:
            write_dominant(data, 100, 60)
    settings = {**BASE, "burn_in": 24, "sampler": "baoab", "iterations": 31}
    compare(comm, together, data, mpi_tmp_path, settings, [9, 11, 17, 20, 31])
    with together():
        if comm.rank == 0:
            for run in ("one", "many"):
                events = RunDirectory(mpi_tmp_path / run).events()
                halved = [event for event in events if event["event"] == "halved step"]
                assert [event["iteration"] for event in halved] == [10]


@pytest.mark.once
def test_defaults_of_dense_measurements_are_chosen_alike(
    comm: MPI.Comm, together, mpi_tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gibbs sampling, and noise levels of rows of unequal scale, on any number of processes."""
    monkeypatch.setattr(models, "DENSE_RATINGS", 100)
    data = mpi_tmp_path / "unequal.h5"
    with together():
        if comm.rank == 0:
            shape = (40, 30)
            i, j, x = planted(*shape, share=0.9)
            x[i < 4] *= 30
            write_cells(data, shape, i, j, x, np.arange(len(i)) % 5 == 0)
    settings = {**BASE, "sampler": "auto", "iterations": 17}
    compare(comm, together, data, mpi_tmp_path, settings, [3, 10, 17])
    with together():
        if comm.rank == 0:
            stored, _ = RunDirectory(mpi_tmp_path / "many").read_settings()
            assert stored["sampler"]["name"] == "gibbs"
            assert stored["noise"] == "both"


@pytest.mark.once
@pytest.mark.parametrize("sampler", ["gibbs", "psgld"])
def test_a_warm_start_is_a_function_of_the_run_and_the_seed(
    comm: MPI.Comm, together, mpi_tmp_path: Path, sampler: str
) -> None:
    """A run on more ratings, on all processes and resumed after the earlier run is gone, is that of
    one process.
    """
    folder = mpi_tmp_path
    model = {"rank": 3, "noise": "both", "prior": "normal-wishart"}
    settings = {"grid": 5, "burn_in": 2, "thin": 2, "evaluate_every": 4, "save_draws": 2}
    chains = {"sampler": {"name": sampler}, "chains": 2, **settings}
    grown = folder / "grown.h5"
    started = {"start": folder / "run", **chains}
    with together():
        if comm.rank == 0:
            few = write_planted(folder / "few.h5", rows=22, columns=15)
            write_planted(grown)
            assert (
                sample(MPI.COMM_SELF, few, folder / "run", iterations=9, **model, **settings) == 0
            )
            assert sample(MPI.COMM_SELF, grown, folder / "one", iterations=11, **started) == 0
            assert (
                sample(
                    MPI.COMM_SELF,
                    grown,
                    folder / "cold",
                    iterations=11,
                    hyper_start=1,
                    **model,
                    **chains,
                )
                == 0
            )
    assert sample(comm, grown, folder / "many", iterations=5, **started) == 0
    with together():
        if comm.rank == 0:
            shutil.rmtree(folder / "run")
    assert sample(comm, grown, folder / "many", resume=True, iterations=11) == 0
    with together():
        if comm.rank == 0:
            assert digest(folder / "many") == digest(folder / "one") != digest(folder / "cold")

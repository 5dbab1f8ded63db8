"""The size of the package and of its tests: whoever adds code, or an option, must find some to take
away.

The last raises: 20,400 lines of the package for `dsgmcmc.testing`, which was a part of the tests;
21,200 for files in the formats of the field, checks of valid input, ratings on a logarithmic scale,
and one compilation for processes that start together. Since then what was said twice was taken
away: 20,900. 20,925 for rows of new users that are drawn many at a time, and snapshots that are
read by HDF5's own calls.
"""

import ast
import io
import tokenize
from pathlib import Path

import pytest
import typer

from dsgmcmc.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
#: Lines of code that the package and the tests may have.
LIMITS = {"dsgmcmc": 20_925, "tests": 19_070}
#: Parameters that all commands together may have, and `sample`: those that they have. The latest
#: are --scale, because amounts and plays need logarithms, and only a setting of the run can give
#: predictions in their own unit; and --matrix, because a matrix with numbers for names may also be
#: a table with a line for each rating.
PARAMETERS, PARAMETERS_OF_SAMPLE = 109, 34
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


@pytest.mark.parametrize("folder", LIMITS)
def test_a_folder_does_not_grow(folder):
    """A change that needs more room takes away as much, or raises the limit with a reason for
    users.
    """
    count = sum(
        code_lines(path.read_text(encoding="utf-8")) for path in (ROOT / folder).rglob("*.py")
    )
    assert count <= LIMITS[folder], (
        f"{count:,} lines of code, and {LIMITS[folder]:,} are allowed: take some away"
    )


def test_the_commands_do_not_grow():
    """An option more takes another one away."""
    number = {
        name: len(command.params) for name, command in typer.main.get_command(app).commands.items()
    }
    assert number["sample"] <= PARAMETERS_OF_SAMPLE
    assert sum(number.values()) <= PARAMETERS, number

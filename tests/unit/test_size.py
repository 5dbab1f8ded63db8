"""The size of the package: whoever adds code, or an option, must find some to take away."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import typer

from dsgmcmc.cli.app import app

PACKAGE = Path(__file__).resolve().parents[2] / "dsgmcmc"
#: Lines of code that the package may have: those that it has.
LIMIT = 19_882
#: Parameters that all commands together may have, and `sample`: those that they have.
PARAMETERS, PARAMETERS_OF_SAMPLE = 107, 33
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
BLANK = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


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


def test_the_package_does_not_grow():
    """A change that needs more than there is room for takes away as much, or raises LIMIT with a reason for users."""
    count = sum(code_lines(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py"))
    assert count <= LIMIT, f"{count:,} lines of code, and {LIMIT:,} are allowed: take some away"


def test_the_commands_do_not_grow():
    """An option more takes another one away."""
    number = {name: len(command.params) for name, command in typer.main.get_command(app).commands.items()}
    assert number["sample"] <= PARAMETERS_OF_SAMPLE
    assert sum(number.values()) <= PARAMETERS, number

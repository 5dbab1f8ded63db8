"""The small language of formulas: parsed, checked, and written again with typed literals."""

from __future__ import annotations

import ast
import keyword
import textwrap
from collections.abc import Collection
from dataclasses import dataclass, field

from dsgmcmc.kernels import jit

FUNCTIONS = {"sqrt": 1, "abs": 1, "minimum": 2, "maximum": 2, "exp": 1, "log": 1}
"""Functions of a formula and how many arguments they take."""

_OPERATORS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}

_RESERVED = {*FUNCTIONS, "float32", "float64", "math", "max", "min", "np", "range"}

_SOURCE = """\
_number = {dtype}


{helper}
def _minimum(a, b):
    return a if a < b or a != a else b


{helper}
def _maximum(a, b):
    return a if a > b or a != a else b


{helper}
def _exp(x):
    return {dtype}(math.exp(x))


{helper}
def _log(x):
    return {dtype}(math.log(x))
"""


def functions(dtype: str) -> str:
    """Source of the functions that formulas call; minimum and maximum keep a NaN."""
    return _SOURCE.format(helper=jit.helper(), dtype=dtype)


@dataclass
class Assignments:
    """A parsed formula: its lines, and the names that it reads and writes."""

    lines: list[str] = field(default_factory=list)
    read: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)


def parse(source: str, known: Collection[str], assignable: Collection[str]) -> Assignments:
    """Check a formula and write it again for the compiler.

    Parameters
    ----------
    source : str
        Assignments to single names.
    known : collection of str
        Names that may be read from the start.
    assignable : collection of str
        Those of them that may be assigned.

    Raises
    ------
    ValueError
        With the line and what is wrong.
    """
    if len(set(known)) != len(known):
        raise ValueError(f"a name is declared twice among {sorted(known)}")
    for name in known:
        if not _usable(name):
            raise ValueError(f"{name!r} cannot be a name in a formula")
    try:
        tree = ast.parse(textwrap.dedent(source))
    except SyntaxError as error:
        raise ValueError(f"formula line {error.lineno}: {error.msg}") from error
    result = Assignments()
    for statement in tree.body:
        if (
            not isinstance(statement, ast.Assign)
            or len(statement.targets) != 1
            or not isinstance(statement.targets[0], ast.Name)
        ):
            raise ValueError(f"formula line {statement.lineno}: only `name = expression` is allowed")
        name = statement.targets[0].id
        if not _usable(name) or (name in known and name not in assignable):
            raise ValueError(f"formula line {statement.lineno}: {name!r} cannot be assigned")
        text = _expression(statement.value, known, result)
        result.lines.append(f"{name} = {text}")
        result.written.add(name)
    if not result.lines:
        raise ValueError("an empty formula")
    return result


def _usable(name: str) -> bool:
    """Tell whether a name is free: the generated code's own begin with an underscore."""
    return name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_") and name not in _RESERVED


def _expression(node: ast.expr, known: Collection[str], result: Assignments) -> str:
    """One expression as source; literals become `_number(...)`, of the arrays' dtype."""

    def inner(child: ast.expr) -> str:
        return _expression(child, known, result)

    match node:
        case ast.Name(id=name) if name in known or name in result.written:
            result.read.add(name)
            return name
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() | float() as value):
            return f"_number({value!r})"
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return f"(-{inner(operand)})"
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int() as power)) if power > 0:
            base = inner(left)
            return "(" + " * ".join([base] * power) + ")"
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            return f"({inner(left)} {_OPERATORS[type(operator)]} {inner(right)})"
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if FUNCTIONS.get(name) == len(arguments):
            function = {"sqrt": "math.sqrt", "abs": "abs"}.get(name, f"_{name}")
            return f"{function}({', '.join(inner(argument) for argument in arguments)})"
    raise ValueError(f"formula line {node.lineno}: {ast.unparse(node)!r} is not allowed or not declared")

"""The parser of formulas: it checks them, and writes them as Python source with typed literals."""

from __future__ import annotations

import ast
import keyword
import textwrap
from collections.abc import Collection
from typing import NamedTuple

#: Functions that a formula may call, and their numbers of arguments.
FUNCTIONS = {"sqrt": 1, "abs": 1, "sign": 1, "minimum": 2, "maximum": 2, "exp": 1, "log": 1}

_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
}

_COMPARISONS: dict[type[ast.cmpop], str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}

_RESERVED = {*FUNCTIONS, "where", "float32", "float64", "math", "max", "min", "np", "range"}

_SOURCE = """\
_number = {dtype}


@helper
def _minimum(a, b):
    return a if a < b or a != a else b


@helper
def _maximum(a, b):
    return a if a > b or a != a else b


@helper
def _sign(x):
    return _number(1) if x > 0 else (_number(-1) if x < 0 else x)


@helper
def _exp(x):
    return {dtype}(math.exp(x))


@helper
def _log(x):
    return {dtype}(math.log(x))
"""

#: Names that a formula may read without a value in the arguments.
BUILT_IN = frozenset(("z", "z2", "u", "grad", "grad_likelihood", "grad_prior"))


def functions(dtype: str) -> str:
    """Source of the functions that formulas call.

    Minimum and maximum are NaN if an argument is NaN.
    """
    return _SOURCE.format(dtype=dtype)


class Assignments(NamedTuple):
    """A parsed formula: its lines, and the names that it reads and assigns.

    `free` has the names that it reads before it assigns them.
    """

    lines: tuple[str, ...]
    read: frozenset[str]
    written: frozenset[str]
    free: frozenset[str]

    def with_definition(self, name: str, expression: str) -> Assignments:
        """Return the formula with a built-in name defined before the line that first reads it.

        Raises
        ------
        ValueError
            If an earlier line assigns a name in the expression.
        """
        definition = parse(f"{name} = {expression}", definable=(name,))
        first = next(
            k for k, line in enumerate(self.lines) if name in _names(line.partition(" = ")[2])
        )
        early = {line.partition(" = ")[0] for line in self.lines[:first]} & definition.free
        if early:
            raise ValueError(
                f"the formula assigns {min(early)!r} before {name} = {expression} reads it"
            )
        return Assignments(
            lines=(*self.lines[:first], *definition.lines, *self.lines[first:]),
            read=(self.read - {name}) | definition.read,
            written=self.written,
            free=(self.free - {name}) | definition.free,
        )


def _names(expression: str) -> set[str]:
    """Return the names in an expression, names of functions included."""
    return {node.id for node in ast.walk(ast.parse(expression)) if isinstance(node, ast.Name)}


def parse(
    source: str, vectors: Collection[str] = (), definable: Collection[str] = ()
) -> Assignments:
    """Check a formula, and write it as source for the compiler.

    Parameters
    ----------
    source : str
        Assignments to single names.
    vectors : collection of str
        Names of declared vectors, which cannot be assigned.
    definable : collection of str
        Built-in names that may be assigned in this formula.

    Raises
    ------
    ValueError
        If the formula is not allowed; the message names the line.
    """
    fixed = BUILT_IN.union(vectors).difference(definable)
    try:
        tree = ast.parse(textwrap.dedent(source))
    except SyntaxError as error:
        raise ValueError(f"formula line {error.lineno}: {error.msg}") from error
    lines: list[str] = []
    read: set[str] = set()
    written: set[str] = set()
    free: set[str] = set()
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case _:
                raise ValueError(
                    f"formula line {statement.lineno}: only `name = expression` is allowed"
                )
        if not _usable(name) or name in fixed:
            raise ValueError(f"formula line {statement.lineno}: {name!r} cannot be assigned")
        names: set[str] = set()
        lines.append(f"{name} = {_expression(value, names)}")
        read |= names
        free |= names - written - BUILT_IN
        written.add(name)
    if not lines:
        raise ValueError("an empty formula")
    return Assignments(tuple(lines), frozenset(read), frozenset(written), frozenset(free))


def parse_score(score: str) -> str:
    """Check a score, an expression of x and eta, and write it as source for the compiler."""
    parsed = parse(f"e = {score}")
    if len(parsed.lines) > 1:
        raise ValueError(f"the score {score!r} is more than one expression")
    if unknown := parsed.read - {"x", "eta"}:
        raise ValueError(f"the score {score!r} may contain only x and eta, not {min(unknown)}")
    return parsed.lines[0].partition(" = ")[2]


def _usable(name: str) -> bool:
    """Whether a formula may use a name.

    Names that begin with an underscore belong to the generated code.
    """
    return (
        name.isidentifier()
        and not keyword.iskeyword(name)
        and not name.startswith("_")
        and name not in _RESERVED
    )


def _expression(node: ast.expr, read: set[str]) -> str:
    """Return the source of an expression, with literals in the arrays' dtype.

    Its names are added to `read`.
    """

    def inner(child: ast.expr) -> str:
        return _expression(child, read)

    match node:
        case ast.Name(id=name) if _usable(name):
            read.add(name)
            return name
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return f"_number({value!r})"
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return f"(-{inner(operand)})"
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int() as power)) if (
            power > 0
        ):
            return "(" + " * ".join([inner(left)] * power) + ")"
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            return f"({inner(left)} {_OPERATORS[type(operator)]} {inner(right)})"
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if FUNCTIONS.get(
            name
        ) == len(arguments):
            function = {"sqrt": "math.sqrt", "abs": "abs"}.get(name, f"_{name}")
            return f"{function}({', '.join(inner(argument) for argument in arguments)})"
        case ast.Call(
            func=ast.Name(id="where"),
            args=[ast.Compare(left=left, ops=[comparison], comparators=[right]), yes, no],
            keywords=[],
        ) if type(comparison) in _COMPARISONS:
            condition = f"{inner(left)} {_COMPARISONS[type(comparison)]} {inner(right)}"
            return f"({inner(yes)} if {condition} else {inner(no)})"
    raise ValueError(f"formula line {node.lineno}: {ast.unparse(node)!r} is not allowed")

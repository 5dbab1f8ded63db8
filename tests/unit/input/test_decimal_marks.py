"""Decimal commas and thousands: found where a column allows one reading, or said, or asked."""

import io

import numpy as np
import pandas
import pytest
from ingest_cases import everything, prepare
from support import typed

from dsgmcmc.bpmf import BPMF
from dsgmcmc.input.sources.marks import find_mark, with_point

RNG = np.random.default_rng(31)
VALUES = np.round(20 + 4 * RNG.normal(size=(12, 6)), 2)
NAMES = [f"v{i}" for i in range(12)]
HEAD = ["1,5", *(f"env{j}" for j in range(5))]  # an item whose name looks like a number
EXPECTED = {
    (name, item): np.float32(x)
    for name, row in zip(NAMES, VALUES.tolist(), strict=True)
    for item, x in zip(HEAD, row, strict=True)
}


def comma(value):
    """A number with a decimal comma."""
    return f"{value:.2f}".replace(".", ",")


def three_decimals(value):
    """A number that may be a thousand times as large."""
    return f"{value:.3f}".replace(".", ",")


def long_table(write, delimiter=";", head="variety;env;yield"):
    """A table with a line for each value."""
    lines = [head.replace(";", delimiter)] if head else []
    for (name, item), x in EXPECTED.items():
        lines.append(delimiter.join([name, item, write(float(x))]))
    return "\n".join(lines) + "\n"


def wide_table(write, delimiter=";", above=""):
    """A matrix with a line for each row."""
    lines = [delimiter.join(["variety", *HEAD])]
    for name, row in zip(NAMES, VALUES.tolist(), strict=True):
        lines.append(delimiter.join([name, *map(write, row)]))
    return above + "\n".join(lines) + "\n"


COLUMNS = {"columns": "user=variety,item=env,rating=yield"}
BY_POSITION = {"columns": "user=1,item=2,rating=3"}
TABLES = {
    "long": (long_table(comma), COLUMNS),
    "long, tabs": (long_table(comma, "\t"), COLUMNS),
    "long, no header": (long_table(comma, head=""), BY_POSITION),
    "matrix": (wide_table(comma), {"matrix": True}),
    "matrix, tabs": (wide_table(comma, "\t"), {"matrix": True}),
    "for spreadsheets": (wide_table(comma, above="sep=;\n"), {"matrix": True}),
    "for spreadsheets, with points": (
        wide_table("{:.2f}".format, above='"sep=;"\n'),
        {"matrix": True},
    ),
}


@pytest.mark.parametrize("kind", TABLES)
def test_decimal_commas_are_found(tmp_path, kind):
    """They are decimals of ratings, and nothing in names, in tables and in matrices."""
    text, options = TABLES[kind]
    prepare(tmp_path, text, **options)
    assert everything(tmp_path / "out.h5") == EXPECTED


def test_thousands(tmp_path):
    """1.234,5 and 1,234.5 are told by their decimals; blanks may stand between thousands."""
    thousand = np.round(1000 + 900 * RNG.random(12), 1)
    for write in (
        lambda x: f"{x:,.1f}".replace(",", "_").replace(".", ",").replace("_", "."),
        lambda x: f"{x:,.1f}".replace(",", " ").replace(".", ","),
        lambda x: f"{x:,.1f}",
    ):
        texts = dict(zip(NAMES, map(write, thousand), strict=True))
        lines = [f"{name};e{k};{text}" for k in range(3) for name, text in texts.items()]
        prepare(tmp_path, "\n".join(["variety;env;yield", *lines]) + "\n", **COLUMNS)
        found = everything(tmp_path / "out.h5")
        assert [found[name, "e0"] for name in NAMES] == thousand.astype(np.float32).tolist()


@pytest.mark.parametrize("matrix", [False, True])
def test_what_may_be_either_is_asked(tmp_path, matrix):
    """1,234 alone may be a thousand; each answer of the message is followed to the letter."""
    path = tmp_path / "m.csv"
    options = ["--columns", COLUMNS["columns"]]
    text = long_table(three_decimals)
    if matrix:
        options = ["--matrix", "--ignore", "none"]
        text = wide_table(three_decimals)
    path.write_text(text)
    failed = typed("prepare", path, tmp_path / "o.h5", *options).expect(2).err.replace("\n", " ")
    assert "--decimal , that decimals follow a comma" in failed
    for mark, factor in ((",", 1), (".", 1000)):
        out = tmp_path / f"{factor}.h5"
        typed("prepare", path, out, *options, "--decimal", mark).expect(0)
        for pair, x in everything(out).items():
            assert x == pytest.approx(factor * float(EXPECTED[pair]), rel=1e-6)


def test_contradictions_are_refused(tmp_path):
    """A point where decimals follow a comma is no number, whether said or found."""
    path = tmp_path / "m.csv"
    lines = long_table(comma).splitlines()
    path.write_text("\n".join([*lines, "v99;env0;3.5"]) + "\n")
    for said in ([], ["--decimal", ","]):
        failed = typed(
            "prepare", path, tmp_path / "o.h5", "--columns", COLUMNS["columns"], *said
        ).expect(2)
        assert "rating 3.5" in failed.err
    path.write_text(wide_table(comma) + "v99;3.5" + ";1,5" * 5 + "\n")
    failed = typed("prepare", path, tmp_path / "o.h5", "--matrix").expect(2)
    assert "--decimal ," in failed.err.replace("\n", " ")
    failed = typed("prepare", path, tmp_path / "o.h5", "--matrix", "--decimal", ",").expect(2)
    assert "'3.5' (user v99)" in failed.err


@pytest.mark.parametrize("matrix", [False, True])
def test_a_later_point_is_asked_for(tmp_path, matrix):
    """1.234 below the rows that showed commas may be a thousand, or have another mark."""
    path = tmp_path / "m.csv"
    out = tmp_path / "o.h5"
    options = ["--columns", COLUMNS["columns"]]
    rows = [f"v{k};env{k % 5};8,70" for k in range(80)]
    text = "variety;env;yield\n"
    last = "v80;env0;{}"
    if matrix:
        options = ["--matrix"]
        rows = [f"v{k};8,7{k % 10};5,3{k % 7}" for k in range(80)]
        text = "variety;env0;env1\n"
        last = "v80;{};1,5"
    for number, value in (("1.234", 1234), ("1.234,5", 1234.5)):
        path.write_text(text + "\n".join([*rows, last.format(number)]) + "\n")
        if value == 1234:
            failed = typed("prepare", path, out, *options).expect(2).err
            assert "line 82" in failed
            assert "--decimal ," in failed.replace("\n", " ")
        typed("prepare", path, out, "--force", *options, "--decimal", ",").expect(0)
        assert everything(out)["v80", "env0"] == value


def test_bounds_and_weights_have_commas_too(tmp_path):
    """A limit of detection such as <0,5, and weights, follow the rule of their table."""
    lines = long_table(comma).splitlines()
    with_weights = [f"{lines[0]};w", *(f"{line};0,25" for line in lines[1:])]
    with_weights[1] = f"v0;{HEAD[0]};<0,5;1,5"
    prepare(tmp_path, "\n".join(with_weights) + "\n", columns=f"{COLUMNS['columns']},weight=w")
    assert everything(tmp_path / "out.h5")[("v0", HEAD[0])] == np.float32(0.5)
    rows = wide_table(comma).splitlines()
    rows[1] = ";".join(["v0", "<0,5", *rows[1].split(";")[2:]])
    prepare(tmp_path, "\n".join(rows) + "\n", matrix=True)
    assert everything(tmp_path / "out.h5")[("v0", HEAD[0])] == np.float32(0.5)


def test_what_is_said_is_remembered(tmp_path):
    """Ratings that a run reads later are read with the same mark."""
    path = tmp_path / "m.csv"
    path.write_text(long_table(comma))
    model = BPMF(rank=1, iterations=4, burn_in=2, decimal=",", **COLUMNS).fit(path)
    later = tmp_path / "later.csv"
    later.write_text("variety;env;yield\nv0;env0;1,234\n")
    assert model.evaluate(later)["rmse"] < 1000


@pytest.mark.parametrize("form", ["long", "matrix", "index"])
def test_texts_in_memory_are_read_as_in_files(form):
    """Frames of texts, which pandas makes of such files unless it is told."""
    options = {"columns": {"user": "variety", "item": "env", "rating": "yield"}}
    text = long_table(comma)
    if form != "long":
        options = {"matrix": True}
        text = wide_table(comma)
    frame = pandas.read_csv(io.StringIO(text), sep=";")
    if form == "index":
        frame = frame.set_index("variety")
    model = BPMF(rank=1, iterations=4, burn_in=2, **options).fit(frame)
    with model.run_.open_ratings() as ratings:
        assert ratings.mean == pytest.approx(VALUES.mean(), rel=1e-6)
        assert sorted(model.users_) == sorted(NAMES)
    assert model.data_.summary.columns.endswith("decimals after a comma")


def test_numbers_in_memory_need_no_mark():
    """What is a number is one, whatever is said of texts."""
    frame = pandas.DataFrame(VALUES, index=NAMES, columns=HEAD)
    model = BPMF(rank=1, iterations=4, burn_in=2, decimal=",").fit(frame)
    with model.run_.open_ratings() as ratings:
        assert ratings.mean == pytest.approx(VALUES.mean(), rel=1e-6)


def test_features_with_commas_are_numbers(tmp_path):
    """They became categories."""
    lines = [
        "variety;height;group",
        *(f"{name};1{k % 10},5;a{k % 2}" for k, name in enumerate(NAMES)),
    ]
    features = tmp_path / "features.csv"
    features.write_text("\n".join(lines) + "\n")
    path = tmp_path / "r.csv"
    path.write_text(long_table(comma))
    said = typed(
        "prepare",
        path,
        tmp_path / "o.h5",
        "--columns",
        COLUMNS["columns"],
        "--user-features",
        features,
    ).expect(0)
    assert "height (number)" in said.out.replace("\n", " ")


SKIPPED = {
    "above": ("Trial 2024\nby somebody\n", "", "1-2"),
    "units": ("", "t;ha;;;;;\n", "2"),
    "both": ("Trial 2024\n", "t;ha;;;;;\n", "1,3"),
}


@pytest.mark.parametrize("kind", SKIPPED)
def test_lines_that_are_no_rows(tmp_path, kind):
    """Lines above the header and below it are left out where users say so."""
    above, below, numbers = SKIPPED[kind]
    head, rows = wide_table(comma).split("\n", 1)
    prepare(tmp_path, f"{above}{head}\n{below}{rows}", matrix=True, skip_rows=numbers)
    assert everything(tmp_path / "out.h5") == EXPECTED


def test_advice_on_lines_above_a_table_works(tmp_path):
    """A table below a title says which lines to leave out; rows below cannot be."""
    path = tmp_path / "m.csv"
    path.write_text("Trial 2024\nby somebody\n\n" + wide_table(comma))
    failed = typed("prepare", path, tmp_path / "o.h5", "--matrix").expect(2).err
    assert "--skip-rows 1-3" in failed.replace("\n", " ")
    typed("prepare", path, tmp_path / "o.h5", "--matrix", "--skip-rows", "1-3").expect(0)
    failed = typed("prepare", path, tmp_path / "p.h5", "--matrix", "--skip-rows", "1-3,7").expect(2)
    assert "line 7 of --skip-rows is below the first row, in line 5" in failed.err.replace(
        "\n", " "
    )
    failed = typed("prepare", path, tmp_path / "p.h5", "--matrix", "--skip-rows", "two").expect(2)
    assert "expected numbers of lines" in failed.err


def test_marks_of_texts():
    """What a text can be by either mark."""
    assert find_mark(["8,70", "9"]) == ",?"
    assert find_mark(["1.234,5"]) == ","
    assert find_mark(["1,234.5", "2"]) == "."
    assert find_mark(["1,234", "1.234", "8", None, "none"]) is None
    assert find_mark(["8,70", "8.70"]) is None
    assert with_point("-1.234,5e3", ",") == with_point("-1.234,5e3", ",?") == "-1234.5e3"
    assert with_point("1.234.567", ",?") == with_point("1 234 567", ",?") == "1234567"
    assert with_point("1.234", ",") == "1234"
    assert with_point("1.234", ",?") is None
    assert with_point("3.5", ",") is None
    assert with_point("n.a.", ",") == "n.a."

"""The first line of a matrix: names of items, or ratings, by what allows one reading alone."""

import itertools

import numpy as np
import pandas
import pytest
from ingest_cases import everything, prepare
from support import typed

from dsgmcmc.bpmf import BPMF
from dsgmcmc.errors import InputError

RNG = np.random.default_rng(12)
DECIMALS = np.round(20 + 3 * RNG.normal(size=(12, 1)) + RNG.normal(size=(12, 5)), 2)
STARS = RNG.integers(1, 6, (12, 5)).astype(float)
STARS[1:4] = [[1, 2, 5, 1, 5], [5, 1, 1, 5, 3], [2, 5, 3, 4, 1]]

#: Heads of numbers that are no ratings of these rows.
NAMES = {
    "years, newest first": (2024, 2023, 2022, 2021, 2020),
    "decades": (1980, 1990, 2000, 2010, 2020),
    "wavelengths": (2500, 2498.5, 2497, 2495.5, 2494),
    "unsorted ids": (4711, 815, 90210, 42, 1234),
}
FORMS = {"named": "country", "nameless": "", "usual": "user"}


def written(head, corner, values, names, delimiter=","):
    """Text of a matrix."""
    lines = [[corner, *head]] if head is not None else []
    lines += [
        [name, *map("{:g}".format, row)] for name, row in zip(names, values.tolist(), strict=True)
    ]
    return "".join(delimiter.join(map(str, line)) + "\n" for line in lines)


@pytest.mark.parametrize(
    ("kind", "form", "values"),
    [
        (kind, form, values)
        for (kind, form), values in zip(
            itertools.product(NAMES, FORMS), itertools.cycle([DECIMALS, STARS])
        )
    ],
)
def test_numbers_that_name_items(tmp_path, kind, form, values):
    """They are no ratings, in any order, whatever stands above the names of users."""
    names = [f"c{i}" for i in range(12)]
    text = written(NAMES[kind], FORMS[form], values, names, delimiter=";")
    prepare(tmp_path, text, matrix=True)
    expected = {
        (name, f"{item:g}"): np.float32(x)
        for name, row in zip(names, values.tolist(), strict=True)
        for item, x in zip(NAMES[kind], row, strict=True)
    }
    found = everything(tmp_path / "out.h5")
    assert {(user, str(item)): x for (user, item), x in found.items()} == expected


@pytest.mark.parametrize("values", [DECIMALS, STARS])
def test_ratings_of_the_first_user(tmp_path, values):
    """A first line like the others is a row, with and without names of users."""
    for names in ([f"c{i}" for i in range(12)], [str(70 - i) for i in range(12)]):
        summary = prepare(tmp_path, written(None, "", values, names), matrix=True, columns="user=1")
        assert (summary.users, summary.items) == (12, 5)


AMBIGUOUS = {
    "ratings in order": ("c99", (1, 2, 3, 4, 5), STARS),
    "other whole numbers": ("c99", (17, 4, 98, 12, 88), STARS),
    "equal numbers apart": ("hour", (0, 0, 72, 72, 72), DECIMALS),
}


@pytest.mark.parametrize("kind", AMBIGUOUS)
def test_a_line_that_may_be_either_is_asked(tmp_path, kind):
    """By command and in Python, and both answers are followed to the letter."""
    corner, head, values = AMBIGUOUS[kind]
    path = tmp_path / "m.csv"
    path.write_text(written(head, corner, values, [f"c{i}" for i in range(12)]))
    failed = typed("prepare", path, tmp_path / "out.h5", "--matrix").expect(2)
    assert "line 1" in failed.err
    with pytest.raises(InputError, match=r"line 1 .* first_line names or first_line ratings"):
        BPMF(rank=0, iterations=10, burn_in=5, matrix=True).fit(path)
    rows = prepare(tmp_path, path.read_bytes(), matrix=True, first_line="ratings")
    assert rows.users == 13
    if len(set(head)) < len(head):
        return
    names = prepare(tmp_path, path.read_bytes(), matrix=True, first_line="names")
    assert (names.users, names.items) == (12, 5)
    by_name = prepare(tmp_path, path.read_bytes(), matrix=True, columns=f"user={corner}")
    assert by_name.content_sha256 == names.content_sha256


def test_a_code_may_be_a_name(tmp_path):
    """A code for "not rated" in the first line does not make it a row."""
    text = written((98, 99, 100, 101, 102), "c", DECIMALS, [f"c{i}" for i in range(12)])
    assert prepare(tmp_path, text, matrix=True, missing=99).users == 12


def test_lines_of_single_ratings(tmp_path):
    """What users say of the first line holds for tables with a line for each rating, too."""
    text = "a,b,c\nu,v,w\n"
    prepare(tmp_path, text.replace("c", "3").replace("w", "4"), columns="user=1,item=2,rating=3")
    assert len(everything(tmp_path / "out.h5")) == 2
    with pytest.raises(InputError, match=r"line 1: the rating is missing or not a number"):
        prepare(tmp_path, "a,b,c\nu,v,4\n", first_line="ratings")


def test_there_is_no_first_line(tmp_path):
    """The option is refused where it would say nothing."""
    frame = pandas.DataFrame(DECIMALS)
    frame.columns = [f"q{j}" for j in range(5)]
    frame.to_parquet(tmp_path / "m.parquet")
    with pytest.raises(InputError, match=r"leave out .*first.line"):
        prepare(
            tmp_path,
            (tmp_path / "m.parquet").read_bytes(),
            "m.parquet",
            matrix=True,
            first_line="names",
        )
    with pytest.raises(InputError, match=r"leave out .*first.line"):
        BPMF(first_line="names").fit(frame)

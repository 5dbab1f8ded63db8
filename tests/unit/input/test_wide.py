"""Matrices with a row a user and a column an item: the same ratings as from one line for each
rating.
"""

import gzip
import re
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas
import pytest
from ingest_cases import case, everything, prepare, read_back
from support import typed

from dsgmcmc.bpmf import BPMF
from dsgmcmc.errors import AgreedError, InputError
from dsgmcmc.input.arrays import read_ratings
from dsgmcmc.ratings.reading import Reading

RNG = np.random.default_rng(6)
VALUES = np.round(RNG.normal(5, 2, (12, 6)), 2)
VALUES[RNG.random(VALUES.shape) < 0.4] = np.nan
CELLS = [(i, j) for i, j in np.argwhere(~np.isnan(VALUES)).tolist()]
USERS = [f"gene, {i}" for i in range(12)]
ITEMS = [f"day {j}" for j in range(6)]
FRAME = pandas.DataFrame(VALUES, USERS, ITEMS)
NAMED = {(USERS[i], ITEMS[j]): np.float32(VALUES[i, j]) for i, j in CELLS}
NUMBERED = {(i + 1, j + 1): np.float32(VALUES[i, j]) for i, j in CELLS}
FROM_0 = {(i - 1, j - 1): x for (i, j), x in NUMBERED.items()}


def lines(
    head: list | None, names: list | None, delimiter: str = ",", empty: str = "", values=VALUES
) -> str:
    """Write the matrix as text, with names in quotes."""
    text = [[empty if np.isnan(x) else repr(x) for x in row] for row in values.tolist()]
    rows = text
    if names is not None:
        rows = [[f'"{name}"', *row] for name, row in zip(names, text, strict=True)]
    return "".join(
        delimiter.join(row) + "\n"
        for row in ([[f'"{name}"' for name in head]] if head else []) + rows
    )


#: Matrices and their ratings.
FILES = {
    "pandas": case(FRAME.to_csv(), NAMED),
    "pandas, default names": case(pandas.DataFrame(VALUES).to_csv(), FROM_0),
    "tabs, NA, gzip": case(
        gzip.compress(FRAME.to_csv(sep="\t", na_rep="NA").encode()), NAMED, "m.tsv.gz"
    ),
    "write.csv of R": case(lines(["", *ITEMS], USERS, empty="NA"), NAMED),
    "write.table of R": case(lines(ITEMS, USERS, " ", "NA"), NAMED, "m.txt"),
    "named first column of text": case(lines(["gene", *ITEMS], USERS, ";", "."), NAMED),
    "no names": case(lines(None, None, empty="nan"), NUMBERED),
    "names of rows alone": case(
        lines(None, USERS), {(USERS[i - 1], j): x for (i, j), x in NUMBERED.items()}
    ),
    "numbers for names": case(
        lines(["user_id", *range(3, 9)], range(20, 32)),
        {(i + 19, j + 2): x for (i, j), x in NUMBERED.items()},
    ),
    "users in a named column": case(
        FRAME.assign(k=range(1, 13)).to_csv(index=False),
        {(i, ITEMS[j - 1]): x for (i, j), x in NUMBERED.items()},
        columns="user=k",
    ),
    "codes and text for cells that are not rated": case(
        lines(["", *ITEMS], USERS, empty="99.0").replace("99.0", "absent", 3),
        NAMED,
        missing="99,Absent",
    ),
    "a first column that counts the others": case(
        lines(
            None,
            None,
            empty="99",
            values=np.column_stack([(~np.isnan(VALUES)).sum(axis=1), VALUES]),
        ),
        NUMBERED,
        missing=99,
    ),
    "a name that is a placeholder in SQL": case(
        FRAME.rename(columns={"day 0": "{table}"}).to_csv(),
        {(user, item.replace("day 0", "{table}")): x for (user, item), x in NAMED.items()},
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_files(tmp_path, name):
    """Names and ratings of every cell that is filled."""
    content, expected, file, options = FILES[name]
    summary = prepare(tmp_path, content, file, matrix=True, **options)
    left_out = 0
    if "missing" in options:
        left_out = VALUES.size - len(CELLS)
    assert summary.missing == left_out
    assert everything(tmp_path / "out.h5") == expected


def test_binary_files(tmp_path):
    """Parquet with the index of pandas, and an array of NumPy."""
    FRAME.to_parquet(tmp_path / "m.parquet")
    prepare(tmp_path, (tmp_path / "m.parquet").read_bytes(), "m.parquet", matrix=True)
    assert everything(tmp_path / "out.h5") == NAMED
    np.savez(tmp_path / "m.npz", VALUES)
    prepare(tmp_path, (tmp_path / "m.npz").read_bytes(), "m.npz", matrix=True)
    assert everything(tmp_path / "out.h5") == FROM_0


def test_many_columns_in_little_memory(tmp_path):
    """A header longer than the sample, and rows that are read one by one; a test file has the same
    form.
    """
    values = np.arange(3 * 9000).reshape(3, 9000) % 7
    frame = pandas.DataFrame(values, ["a", "b", "c"], [f"column {j}" for j in range(9000)])
    frame.iloc[:2].to_csv(tmp_path / "test.csv")
    text = frame.rename({"a": "d", "b": "e"}).to_csv()
    stages = []
    summary = prepare(
        tmp_path,
        text,
        matrix=True,
        memory=4 * 10**8,
        test=tmp_path / "test.csv",
        report=stages.append,
    )
    assert (summary.users, summary.items, summary.train, summary.test) == (5, 9000, 27000, 18000)
    found = read_back(tmp_path / "out.h5")
    row = {"a": 0, "b": 1, "c": 2, "d": 0, "e": 1}
    for part, names in (("train", "dec"), ("test", "ab")):
        assert found[part] == {
            (u, f"column {j}"): values[row[u], j] for u in names for j in range(9000)
        }
    assert any(re.search("[0-9]+ rows", stage) for stage in stages)


#: Matrices, and a part of the message.
BAD = {
    "text in a cell": case(
        FRAME.to_csv(na_rep="x?"), r"cell\(s\) have no number.*\n  line 2, item day \d: 'x\?'"
    ),
    "1_0": case(FRAME.to_csv().replace(",,", ",1_0,", 1), "'1_0'"),
    "lines before the names": case(
        "made-up\n" + FRAME.to_csv(sep="\t"), "leave them out by --skip-rows 1$"
    ),
    "infinity": case(FRAME.to_csv().replace(",,", ",inf,", 1), "'inf'"),
    "no name of a user": case(
        FRAME.rename({USERS[3]: ""}).to_csv(), r"\n  line 5, item .*\(user \)"
    ),
    "numbers of users, or ratings": case(
        FRAME.to_csv(index_label="k").replace('"gene, ', '"'), "--columns user=k"
    ),
    "other roles": case(FRAME.to_csv(), "expected one or more of user=NAME", columns="item=day 1"),
    "times": case(FRAME.to_csv(), "a matrix has no timestamps", split="temporal"),
}


@pytest.mark.parametrize("name", BAD)
def test_refused(tmp_path, name):
    """What cannot be a rating, and a first column that may be names, are refused with a remedy."""
    text, message, _, options = BAD[name]
    with pytest.raises(InputError, match=message):
        prepare(tmp_path, text, matrix=True, **options)


def test_several_matrices_need_names(tmp_path):
    """Row 1 of two files is not the same user."""
    (tmp_path / "more.csv").write_text(lines(None, None))
    failed = typed(
        "prepare", tmp_path / "more.csv", tmp_path / "more.csv", tmp_path / "o.h5", "--matrix"
    ).expect(2)
    assert "several matrices need names of rows" in failed.err


def of_objects(kind) -> pandas.DataFrame:
    """The matrix with objects for numbers, and None for holes."""
    return FRAME.astype(object).map(lambda x: None if np.isnan(x) else kind(x))


#: What is given to `fit`, the parameters, and the ratings.
GIVEN = {
    "array with nan": (VALUES, {}, FROM_0),
    "data frame with an index": (FRAME, {}, NAMED),
    "range with a name": (
        pandas.DataFrame(VALUES, pandas.RangeIndex(1, 13, name="u"), range(1, 7)),
        {},
        NUMBERED,
    ),
    "first column of names": (FRAME.reset_index(), {"matrix": True}, NAMED),
    "nullable integers and a code": (
        (FRAME * 100).round().astype("Int64").fillna(-1),
        {"missing": ("-1",)},
        {pair: np.float32(round(x * 100)) for pair, x in NAMED.items()},
    ),
    "three columns": (
        FRAME.iloc[:, :3],
        {"matrix": True},
        {k: x for k, x in NAMED.items() if k[1] in ITEMS[:3]},
    ),
    "list": (VALUES.tolist(), {"matrix": True}, FROM_0),
    "decimals": (of_objects(lambda x: Decimal(repr(x))), {}, NAMED),
    "fractions": (of_objects(Fraction), {}, NAMED),
    "floats as objects": (of_objects(float), {}, NAMED),
    "texts": (of_objects(str), {"matrix": True}, NAMED),
    "labels of floats": (
        FRAME.set_axis([0.1, 0.3, 1.0, 3.0, 10.0, 30.0], axis=1),
        {},
        {
            (user, ["0.1", "0.3", "1.0", "3.0", "10.0", "30.0"][ITEMS.index(item)]): x
            for (user, item), x in NAMED.items()
        },
    ),
}


@pytest.mark.parametrize("name", GIVEN)
def test_in_memory(name):
    """Arrays and data frames that can be nothing else are matrices, others if `matrix` says so."""
    X, options, expected = GIVEN[name]
    found = read_ratings(X, form=Reading(**options))
    triples = zip(*(found[role].tolist() for role in ("user", "item", "rating")), strict=True)
    assert {(user, item): np.float32(x) for user, item, x in triples} == expected


NO_MATRIX = {
    "complete, four columns": (np.ones((5, 4)), {}, r"\(n, 3\).*found \(5, 4\).*matrix=True"),
    "a usual name of a column": (FRAME.assign(rating=1.0), {}, "cannot tell which column is user"),
    "text": (
        FRAME.assign(x="a"),
        {"matrix": True},
        r"leave out the column by ignore x; [\s\S]*row 0 .*, item x: 'a'",
    ),
    "numbers as texts": (of_objects(str), {}, r"cannot tell which column .*give BPMF\(matrix=True"),
    "four columns of objects": (
        np.array([[1, 1, 2.5, 10], [1, 2, None, 11], [2, 1, 3.5, 12]], object),
        {},
        r"\(n, 3\).*found \(3, 4\).*matrix=True",
    ),
    "counts first": (
        np.column_stack([(~np.isnan(VALUES)).sum(axis=1), VALUES]),
        {},
        "first column has the number of ratings of each row",
    ),
    "no columns": (np.zeros((5, 0)), {"matrix": True}, "the matrix has no column of an item"),
    "no columns in a frame": (
        FRAME[[]],
        {"matrix": True},
        "the data frame has no column of an item",
    ),
    "all columns ignored": (
        FRAME,
        {"matrix": True, "ignore": list(FRAME.columns)},
        "the data frame has no column of an item",
    ),
}


@pytest.mark.parametrize("name", NO_MATRIX)
def test_not_a_matrix(name):
    """What could mean two things is refused by an error that users can catch."""
    X, options, message = NO_MATRIX[name]
    with pytest.raises(InputError, match=message) as raised:
        BPMF(**options).fit(X)
    assert not isinstance(raised.value, AgreedError)


def test_names_of_rows_and_columns_in_a_model():
    """The names of the matrix are those of predictions and of new rows; a code is named once, where
    `fit` is called.
    """
    stars = pandas.DataFrame(
        RNG.integers(1, 6, (30, 8)), [f"s{i}" for i in range(30)], [f"q{j}" for j in range(8)]
    )
    coded = stars.mask(RNG.random(stars.shape) < 0.3, 99)
    model = BPMF(rank=2, iterations=60, burn_in=20, options={"grid": 1})
    with pytest.warns(
        UserWarning, match=r"are 99, apart from all others: .*; missing=99 leaves them out"
    ) as warned:
        model.fit(coded)
    assert warned[0].filename == __file__
    with warnings.catch_warnings(action="error"):
        model.set_params(missing=99).fit(coded)
    assert set(model.items_) == set(stars)
    assert 1 <= model.predict([["s3", "q7"]])[0] <= 5
    new = model.fold_in(coded.iloc[:2].rename({"s0": "new", "s1": "newer"}))
    with warnings.catch_warnings(action="error"):  # of unknown users
        assert 1 <= new.predict([["new", "q1"]])[0] <= 5


@pytest.mark.long
def test_the_hint_after_a_comparison(tmp_path):
    """`sample --model auto` repeats at its end that a value probably means "not rated"."""
    values = np.where(RNG.random((60, 40)) < 0.3, -1, RNG.integers(1, 6, (60, 40)))
    pandas.DataFrame(values, [f"s{i}" for i in range(60)]).to_csv(tmp_path / "m.csv")
    typed("prepare", tmp_path / "m.csv", tmp_path / "m.h5", "--matrix").expect(0)
    options = (
        "--model",
        "auto",
        "--likelihood",
        "gaussian",
        "--rank",
        "2",
        "--iterations",
        "40",
        "--burn-in",
        "20",
    )
    done = typed("sample", tmp_path / "m.h5", "--out", tmp_path / "run", *options).expect(0)
    assert "are -1, apart from all others" in done.err.strip().splitlines()[-1]


NOT_WIDE = {  # columns of 12 rows that are no matrix, though four numbers follow a first column
    "users recur": {"user": [1, 1, 2] * 4, **{f"x{k}": range(12) for k in range(4)}},
    "an item": {"user": range(12), "movie": range(12), **{f"x{k}": range(12) for k in range(3)}},
}


def test_a_frame_and_a_file_learn_of_matrices(tmp_path):
    """If a first column of names and numbers are all they have, and only then."""
    values = np.random.default_rng(0).normal(5, 1, (12, 5)).round(2)
    wide = pandas.DataFrame(values, columns=[f"g{k}" for k in range(5)])
    wide.insert(0, "compound", [f"c{k}" for k in range(12)])
    advice = "if each row is a user, and each column an item: "
    with pytest.raises(InputError, match=f"{advice}matrix="):
        BPMF().fit(wide)
    below_limit = wide.astype({"g1": object})
    below_limit.loc[2, "g1"] = "<0.1"
    below_limit.to_csv(tmp_path / "r.csv", index=False, na_rep="n/a")
    assert f"{advice}--matrix" in typed("prepare", tmp_path / "r.csv", tmp_path / "r.h5").err
    for columns in NOT_WIDE.values():
        frame = pandas.DataFrame(columns)
        frame.to_csv(tmp_path / "r.csv", index=False)
        for ratings in (frame, tmp_path / "r.csv"):
            with pytest.raises(InputError, match="cannot tell which column is") as error:
                BPMF().fit(ratings)
            assert "matrix" not in str(error.value)

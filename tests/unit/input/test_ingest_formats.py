"""Ratings in any format give the same ratings file."""

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import scipy.io
import scipy.sparse
from ingest_cases import RATINGS, everything, lines, prepare

from dsgmcmc.errors import InputError
from dsgmcmc.input.arrays import read_ratings
from dsgmcmc.prepare.prepare import prepare_ratings

PLAIN = {(user, item): rating for user, item, rating, _ in RATINGS}


def rows(form: str, end: str = "\n") -> str:
    """Write the ratings with a format of u, i, r and t."""
    return "".join(form.format(u=u, i=i, r=r, t=t) + end for u, i, r, t in RATINGS)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Digest of the ratings file that every format must give."""
    return prepare(tmp_path_factory.mktemp("expected"), lines(",", header=True)).content_sha256


TEXTS = {
    "csv without header": ("r.csv", lines(",")),
    "pandas.to_csv": (
        "r.csv",
        "".join(
            f"{k},{line}\n"
            for k, line in zip(["", *range(10)], lines(",", True).split(), strict=True)
        ),
    ),
    "write.csv of R": ("r.csv", '"","user","item","rating"\n' + rows('"{t}",{u},{i},{r}')),
    "write.table of R": ("r.txt", '"user" "item" "rating"\n' + rows('"{t}{u}" {u} {i} {r}')),
    "Excel": ("r.csv", "\ufeffuser;item;rating\r\n" + rows("{u};{i};{r}", "\r\n")),
    "mixed line ends": ("r.csv", lines(",", True).replace("\n", "\r\n", 4)),
    "mixed line ends after a blank line": ("r.csv", "\n" + lines(",", True).replace("\n", "\r\n")),
    "mixed line ends and a quoted name": (
        "r.csv",
        lines(",", True).replace("\n", "\r\n", 4).replace("7,4.0", '"7",4.0'),
    ),
    "pandas with a missing integer": ("r.csv", rows("{u}.0,{i}.0,{r}")),
    "byte order mark, quoted, Windows": (
        "r.csv",
        "\ufeff" + rows('"{u}","{i}","{r}","{t}"', "\r\n"),
    ),
    "no end of the last line": ("r.csv", lines(",", True).rstrip("\n")),
    "blank lines": ("r.csv", "\n" + lines(",", True, "\n\n")),
    "header that begins like a comment": ("r.csv", "#" + lines(",", True)),
    "comments": ("r.csv", "# made by a program\n#\n" + lines(",", True)),
    "comments without a header": (
        "r.txt",
        "# user item rating\n# 4 columns, 10 rows\n" + lines("\t"),
    ),
    "a header in a comment": ("r.txt", "# ratings\n# item user rating\n" + rows("{i} {u} {r}")),
    "a comment and a header of blanks": (
        "r.txt",
        "% x\nitem  user rating\n" + rows("{i} {u}\t {r} "),
    ),
    "spaces and tabs": ("r.txt", rows("{u} {i}\t{r} {t}")),
    "columns in line": ("r.txt", rows("{u:8} {i:8} {r:5}")),
    "KONECT": ("out.x", "% bip weighted\n% 10 5 4\n" + rows("{u}\t{i}\t{r}\t{t}\t")),
    "RecBole": ("r.inter", "item_id:token\tuser_id:token\trating:float\n" + rows("{i}\t{u}\t{r}")),
    "spaces around values": ("r.csv", "user, item, rating\n" + rows("{u} , {i}, {r} ")),
    "other order of columns": (
        "r.csv",
        "rating,Product_ID,time,User ID\n" + rows("{r},{i},{t},{u}"),
    ),
}


@pytest.mark.parametrize("case", TEXTS)
def test_text(tmp_path, expected, case):
    """Delimiters, headers, line ends, marks and quotes do not change what is read."""
    name, text = TEXTS[case]
    assert prepare(tmp_path, text, name).content_sha256 == expected
    assert everything(tmp_path / "out.h5") == PLAIN


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_json(tmp_path, expected, pack):
    """An array of objects, on one line or over many, or an object a line; other keys are passed
    over.
    """
    keys = ("reviewerID", "asin", "overall", "unixReviewTime")
    rows = [
        dict(zip(keys, rating, strict=True)) | {"text": '"b", {c' + "x" * 300_000}
        for rating in RATINGS
    ]
    for text in (
        json.dumps(rows),
        json.dumps(rows, indent=1),
        "".join(json.dumps(row) + "\n" for row in rows),
    ):
        assert prepare(tmp_path, pack(text.encode()), "r").content_sha256 == expected


def test_json_of_yes_and_no(tmp_path):
    """Booleans are 1 and 0."""
    rows = [
        {"user": user, "item": item, "rating": (user + item) % 2 == 0}
        for user in range(3)
        for item in range(4)
    ]
    prepare(tmp_path, json.dumps(rows), "r")
    assert everything(tmp_path / "out.h5") == {
        (row["user"], row["item"]): row["rating"] for row in rows
    }


@pytest.mark.parametrize("column_type", ["int", "text", "dictionary", "decimal"])
def test_parquet(tmp_path, expected, column_type):
    """Parquet's types of ids and ratings do not matter, nor do further columns."""
    users, items, ratings, times = (list(column) for column in zip(*RATINGS, strict=True))
    if column_type != "int":
        users = [str(user) for user in users]
    table = pyarrow.table({"extra": times, "user_id": users, "item_id": items, "rating": ratings})
    if column_type == "dictionary":
        table = table.set_column(1, "user_id", table["user_id"].dictionary_encode())
    if column_type == "decimal":
        table = table.set_column(3, "rating", table["rating"].cast(pyarrow.decimal128(4, 2)))
    path = tmp_path / "r.parquet"
    pyarrow.parquet.write_table(table, path)
    assert prepare_ratings([str(path)], tmp_path / "out.h5").content_sha256 == expected


@pytest.mark.parametrize("sparse_format", ["csr", "csc", "coo"])
def test_scipy(tmp_path, expected, sparse_format):
    """A sparse matrix' indices are the ids; explicit zeros are ratings."""
    path = tmp_path / "r.npz"
    users, items, ratings, _ = zip(*RATINGS, strict=True)
    matrix = scipy.sparse.coo_matrix((ratings, (users, items)), shape=(1000000, 1000000))
    small = scipy.sparse.coo_matrix(([0.0, 2.0, 3.5], ([0, 1, 2], [0, 1, 1])), shape=(3, 2))
    scipy.sparse.save_npz(path, matrix.asformat(sparse_format))
    assert prepare_ratings([str(path)], tmp_path / "out.h5").content_sha256 == expected
    scipy.io.mmwrite(tmp_path / "r.mtx", small)
    prepare_ratings([str(tmp_path / "r.mtx")], tmp_path / "out.h5", force=True)
    assert everything(tmp_path / "out.h5") == {(1, 1): 0.0, (2, 2): 2.0, (3, 2): 3.5}


@pytest.mark.parametrize("space", [" ", "\t", "  "])
def test_matrix_market(tmp_path, expected, space):
    """Indices are the ids, counted from 1; white space, comments and blank lines are allowed."""
    text = "%%MatrixMarket matrix coordinate real general\n% a comment\n%\n\n1000000 1000000 10\n"
    text += rows(space.join(("{u}", "{i}", "{r}"))) + "\n"
    assert prepare(tmp_path, text, "r.mtx").content_sha256 == expected
    assert prepare(tmp_path, gzip.compress(text.encode()), "r.mtx.gz").content_sha256 == expected


@pytest.mark.parametrize(
    ("banner", "body", "expected"),
    [
        (
            "coordinate real general",
            "2 2 2\r\n1 1 0.3000D+01\r\n2 2 -.5d0\r\n",
            {(1, 1): 3, (2, 2): -0.5},
        ),
        ("coordinate integer general", "2 3 2\n1 3 +4\n\n2 1 -1\n", {(1, 3): 4, (2, 1): -1}),
        (
            "Coordinate Real Symmetric",
            "2 2 2\n1 1 5.\n2 1 1e-1\n",
            {(1, 1): 5, (1, 2): 0.1, (2, 1): 0.1},
        ),
        ("coordinate real skew-symmetric", "2 2 1\n2 1 3\n", {(1, 2): -3, (2, 1): 3}),
        (
            "array real general",
            "%\xe9\n2 3\n1\n2\n3\n4\n5\n6\n",
            {(1 + k % 2, 1 + k // 2): k + 1 for k in range(6)},
        ),
    ],
)
def test_matrix_market_is_read_exactly(tmp_path, banner, body, expected):
    """Exponents of Fortran, signs, both sides of a diagonal and arrays by columns are read; line
    ends may be mixed.
    """
    prepare(tmp_path, f"%%MatrixMarket matrix {banner}\n{body}".encode("latin-1"), "r.mtx")
    assert everything(tmp_path / "out.h5") == pytest.approx(expected, rel=1e-7)


def test_several_files(tmp_path, expected, monkeypatch):
    """Several files may have different formats; paths may be relative to the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("1.csv").write_text(lines(",", True, ratings=RATINGS[:4]))
    Path("2.tsv").write_text(lines("\t", ratings=RATINGS[4:5]))
    Path("3.dat").write_text(lines("::", ratings=RATINGS[5:]))
    assert prepare_ratings(["1.csv", "2.tsv", "3.dat"], "out.h5").content_sha256 == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.csv", "2.tsv", "3.dat", "out.h5"]


@pytest.mark.parametrize(
    "name", ["a[1].csv", "b*?.csv", "quo'te\".csv", "with space.csv", "ünï.csv", "-.csv"]
)
def test_odd_file_names(tmp_path, expected, name):
    """The name of a file may be a pattern, or need quotes in SQL."""
    (tmp_path / "b1c.csv").write_text("1,1,1\n")
    assert prepare(tmp_path, lines(), name).content_sha256 == expected


@pytest.mark.parametrize("name", ["rowid", "filename", "file_row_number", "c0"])
def test_no_name_has_a_meaning(tmp_path, expected, name):
    """Neither a column nor a folder named like a column hides another one."""
    users, items, ratings, _ = (list(column) for column in zip(*RATINGS, strict=True))
    (folder := tmp_path / "user=9" / "c1=9").mkdir(parents=True)
    columns = {name: ratings, "userId": users, "item": items, "rating": ratings}
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "r.parquet")
    rows = zip(*columns.values(), strict=True)
    Path(folder / "r.csv").write_text(
        "\n".join(",".join(map(str, row)) for row in [columns, *rows])
    )
    Path(folder / "r.json").write_text(pyarrow.table(columns).to_pandas().to_json(orient="records"))
    for file in folder.iterdir():
        assert (
            prepare_ratings([file], tmp_path / "out.h5", force=True).content_sha256 == expected
        ), file


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ("user=buyer,item=sku,rating=stars", "stars,sku,buyer\n" + rows("{r},{i},{u}")),
        ("user=3,item=2,rating=1", rows("{r},{i},{u}")),
        (" user = 3 , rating=1, item=2", rows("{r},{i},{u}")),
        (
            "user=who,item=what,rating=rating",
            'rating,who,what,"odd ""name"""\n' + rows("{r},{u},{i},x"),
        ),
        ("item=sku", "stars,sku,userId\n" + rows("{r},{i},{u}")),
    ],
)
def test_named_columns(tmp_path, expected, columns, text):
    """``--columns`` names columns of the header, or positions from 1, in any order; what it leaves
    out is detected.
    """
    assert prepare(tmp_path, text, columns=columns).content_sha256 == expected


def test_ids_that_look_like_numbers(tmp_path):
    """Names become integers only if all are written as integers are; "007" is not 7, and 2**63 is
    no int64.
    """
    cases = {
        ("7", "-7", "0", "9223372036854775807"): int,
        ("007", "7", "8", "9"): str,
        ("7.0", "7", "8", "9"): str,
        ("+7", "7", "8", "9"): str,
        ("-0", "0", "8", "9"): str,
        ("1_0", "7", "8", "9"): str,
        (" 7", "7", "8", "9"): str,
        ("9223372036854775808", "7", "8", "9"): str,
        ("1e3", "1000", "8", "9"): str,
        ("NULL", "NA", "nan", "None"): str,
        ("Ünï", "ni\u200b", "七", "🎬"): str,
    }
    for names, name_type in cases.items():
        text = "".join(
            f"{name},{item},{k + item}\n" for k, name in enumerate(names) for item in (1, 2)
        )
        prepare(tmp_path, "u,i,r\n" + text, columns="user=u,item=i,rating=r")
        assert {user for user, _ in everything(tmp_path / "out.h5")} == {
            name_type(name) for name in names
        }
    pairs = np.array([[2**63 + 5, 1], [1, 2]], np.uint64)
    assert read_ratings(pairs, [1, 2])["user"].tolist() == ["9223372036854775813", "1"]


def test_quoted_names(tmp_path):
    """Delimiters, quotes and line ends inside quotes belong to the name; where '::' delimits a
    quote is a letter.
    """
    # the name has two delimiters, one of which cuts this line alone into as many columns
    name = "a::b::c,d"
    prepare(tmp_path, f'user,item,rating\n"{name}","say ""x""",1\n"{name}",y,2\n"two\nlines",y,3\n')
    assert everything(tmp_path / "out.h5") == {
        (name, 'say "x"'): 1,
        (name, "y"): 2,
        ("two\nlines", "y"): 3,
    }
    prepare(tmp_path, "user;item;rating\na,b;x,y;1\nc;d;2\n")
    assert set(everything(tmp_path / "out.h5")) == {("a,b", "x,y"), ("c", "d")}
    prepare(tmp_path, 'a"::x::1\nb::x::2\n\'c::"y"::3\n', "ratings.dat")
    assert set(everything(tmp_path / "out.h5")) == {('a"', "x"), ("b", "x"), ("'c", '"y"')}


def test_large_gaps_between_numbers(tmp_path):
    """The first quote may come after DuckDB's sample, and ids may grow longer."""
    head = "".join(f"{k},{k % 50},{k % 5}\n" for k in range(30000))
    prepare(tmp_path, "user,item,rating\n" + head + '"a ""late"" name",1,2.5\n')
    ratings = everything(tmp_path / "out.h5")
    assert len(ratings) == 30001
    assert ratings['a "late" name', 1] == 2.5


def test_ratings_become_float32(tmp_path):
    """Ratings are rounded once, to the nearest float32."""
    values = [0.1, 1 / 3, 1e-30, -2.7, 123456789.123, 3.4028234e14]
    prepare(tmp_path, "".join(f"{k},{k % 2},{value!r}\n" for k, value in enumerate(values)))
    ratings = everything(tmp_path / "out.h5")
    assert [ratings[k, k % 2] for k in range(6)] == [float(np.float32(value)) for value in values]


def test_header_is_not_mistaken(tmp_path):
    """The first line is a header only if nothing in it is a number: headless files lose no line."""
    assert prepare(tmp_path, "alice,x,1\nbob,y,2\ncarol,x,3\n").ratings == 3
    with pytest.raises(InputError, match=r"line 1: .* rating one"):
        prepare(tmp_path, "alice,x,one\nbob,y,2\ncarol,x,3\n")


def test_a_first_row_that_recurs_is_no_header(tmp_path: Path) -> None:
    """The names in a header do not occur in the rows below it, unless they are usual names, or
    given.
    """
    clicks = "ann\tx\nann\ty\nbob\tx\ncid\ty\n"
    for options in ({}, {"columns": "user=1,item=2"}):
        assert prepare(tmp_path, clicks, **options).ratings == 4
    for text, options in (
        ("user\ttag\n", {"columns": "item=tag"}),
        ("who\tx\n", {"columns": "user=who,item=x"}),
    ):
        assert prepare(tmp_path, text + clicks, **options).ratings == 4


def test_a_name_may_begin_like_a_comment(tmp_path: Path) -> None:
    """Lines that begin with % or # are rows below the first row or a header, or in quotes."""
    text = 'user,item,rating\n#1 fan,1,2\n%,2,3\n"#",1,4\n'
    prepare(tmp_path, text)
    assert {user for user, _ in everything(tmp_path / "out.h5")} == {"#1 fan", "%", "#"}


@pytest.mark.parametrize(
    ("name", "text", "options"),
    [
        ("r.csv", "user,item\n" + rows("{u},{i}"), {}),
        ("r.tsv", rows("{u}\t{i}"), {}),
        ("r.csv", "item,user,time\n" + rows("{i},{u},5"), {}),
        ("r.csv", ",user,item\n" + rows("{t},{u},{i}"), {}),
        ("r.csv", lines(",", True), {"columns": "user=userId,item=movieId,rating=none"}),
        ("r.csv", "user,sku\n" + rows("{u},{i}"), {"columns": "item=sku"}),
        (
            "r.mtx",
            "%%MatrixMarket matrix coordinate pattern general\n1000000 1000000 10\n"
            + rows("{u} {i}"),
            {},
        ),
    ],
    ids=["header", "no header", "times", "row names", "rating left out", "nothing left", "pattern"],
)
def test_clicks_have_a_rating_of_1(
    tmp_path: Path, name: str, text: str, options: dict[str, str]
) -> None:
    """Files may have users and items alone, or other columns that `--columns` leaves out."""
    summary = prepare(tmp_path, text, name, **options)
    assert everything(tmp_path / "out.h5") == dict.fromkeys(PLAIN, 1.0)
    assert name == "r.mtx" or summary.columns.endswith(": treated as clicks")

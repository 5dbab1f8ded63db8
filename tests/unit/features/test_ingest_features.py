"""Features of users and items: files become numbers, names and groups, and faults are reported."""

import gzip
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from ingest_cases import features_of, lines, prepare, read_back

from dsgmcmc.errors import InputError
from dsgmcmc.features.arrays import read_features
from dsgmcmc.features.described import Description
from dsgmcmc.features.encoding import Encoding
from dsgmcmc.input.arrays import ratings_source
from dsgmcmc.prepare.summary import Summary
from dsgmcmc.ratings.file import Ratings

USERS = """userId,age,job,likes,zip
100200,20,writer,jazz|rock,00123
3,30,nurse, rock ,00124
58,,writer,,00125
999999,40,NaN,folk|jazz|jazz,00126
41,30,nurse,pop,00127
7777,60,none,rock,00128
"""


def described(
    folder: Path, text: str | bytes, name: str = "users.csv", entity: str = "user", **more: object
) -> Summary:
    """Prepare the small set of ratings with a file of features."""
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    descriptions = {f"{entity}_features": Description(path, **more)}
    return prepare(folder, lines(header=True), test_fraction=0, **descriptions)


def test_columns_become_features(tmp_path):
    """Categories are one-hot, lists multi-hot, numbers standardised, empty cells unknown; ids
    without ratings count.
    """
    summary = described(tmp_path, USERS, kinds={"zip": "skip"})
    ages = np.array([20, 30, 40, 30, 60.0])
    z = ((ages - ages.mean()) / ages.std()).astype(np.float32).tolist()
    assert features_of(tmp_path / "out.h5") == {
        100200: {"age": z[0], "job=writer": 1, "likes=jazz": 1, "likes=rock": 1},
        3: {"age": z[1], "job=nurse": 1, "likes=rock": 1},
        58: {"job=writer": 1},
        999999: {"age": z[2], "likes=folk": 1, "likes=jazz": 1},
        41: {"age": z[3], "job=nurse": 1, "likes=pop": 1},
        7777: {"age": z[4], "job=none": 1, "likes=rock": 1},
    }
    assert (summary.users, summary.ratings) == (6, 10)
    assert summary.features["user"]["groups"] == {"age": 1, "job": 3, "likes": 4}
    assert (summary.features["user"]["unknown"], summary.features["user"]["unrated"]) == (0, 1)
    assert summary.features["user"]["notes"] == [
        "5 of 5 users with ratings have a row; 1 rows have no ratings",
        "users.csv: taken for missing values: job 'NaN' (1) (if it is a value, write it in another"
        " way, or in JSON or Parquet)",
    ]


def test_features_do_not_move_the_split(tmp_path):
    """The same pairs are held out with features, with people who rated nothing, and without:
    results compare.
    """
    held = []
    for descriptions in (None, Description(tmp_path / "users.csv", kinds={"zip": "skip"})):
        (tmp_path / "users.csv").write_text(USERS)
        prepare(tmp_path, lines(header=True), user_features=descriptions, test_fraction=0.4)
        held.append(read_back(tmp_path / "out.h5")["test"])
    assert held[0] == held[1]
    assert len(held[0]) == 4


def test_without_features_nothing_changes(tmp_path):
    """The digest of a ratings file without features does not depend on them."""
    summary = prepare(tmp_path, lines(header=True))
    assert (
        summary.content_sha256 == "3c35fe5ae30199e8b07a34718485568ec64ef5bd795e9c19cd3aad9e1c2ee9b7"
    )


def test_movielens_files_are_known(tmp_path):
    """MovieLens' files have no headers, one is in Latin-1, and ages are codes in one and numbers in
    another.
    """
    (tmp_path / "users.dat").write_text(
        "3::F::25::12::02139\n58::M::1::0::1234\n41::F::25::0::1234-55\n"
    )
    (tmp_path / "movies.dat").write_text(
        "7::Amélie (2001)::Comedy|Romance\n31::Heat (1995)::Action\n12::Jaws (1975)::(no genres"
        " listed)\n",
        "latin-1",
    )
    prepare(
        tmp_path,
        lines(header=True),
        user_features=tmp_path / "users.dat",
        item_features=tmp_path / "movies.dat",
    )
    assert features_of(tmp_path / "out.h5")[3] == {"gender=F": 1, "age=25": 1, "occupation=12": 1}
    assert features_of(tmp_path / "out.h5", "item")[7] == {
        "year=2000s": 1,
        "genres=Comedy": 1,
        "genres=Romance": 1,
    }
    assert features_of(tmp_path / "out.h5", "item")[12] == {"year=1970s": 1}
    text = "7|X (1995)|01-Jan-1995||url|0|1|0|0|0{0}\n31|Y (1986)||||0|0|1|0|0{0}\n".format(
        "|0" * 14
    )
    described(tmp_path, text, "u.item", "item")
    assert features_of(tmp_path / "out.h5", "item")[31] == {
        "year=1980s": 1,
        "genres=Action": 0,
        "genres=Adventure": 1,
    }


def test_parquet_and_matrix(tmp_path):
    """Parquet has types and lists of its own; the rows of a matrix are named by their numbers, from
    0 in .npz.
    """
    path = tmp_path / "u.parquet"
    duckdb.execute(
        "COPY (SELECT * FROM (VALUES (3.0::DOUBLE, 1.5, ['a', 'b']), (58.0, NULL, ['b']), (41.0,"
        f" 2.5, NULL)) AS t(user_id, x, tags)) TO '{path}' (FORMAT parquet)"
    )
    prepare(tmp_path, lines(header=True), user_features=path)
    features = features_of(tmp_path / "out.h5")
    assert (features[3], features[58]) == ({"x": -1, "tags=a": 1, "tags=b": 1}, {"tags=b": 1})
    sizes = (1000000).to_bytes(8, "little") + (2).to_bytes(8, "little") * 2
    entries = np.array([58, 999999, 1, 2], np.int32).tobytes() + np.array([0.5, 2.0]).tobytes()
    market = (
        b"%%MatrixMarket matrix coordinate real general\n1000000 2 2\n58 1 5D-1\n999999 2 2.0\n"
    )
    scipy.sparse.save_npz(
        tmp_path / "u.npz", scipy.sparse.coo_matrix(([0.5, 2.0], ([58, 999999], [0, 1])))
    )
    for name, content in (
        ("u.npz", None),
        ("u.mtx", market),
        ("u.sdm", sizes + entries),
        ("u", gzip.compress(market)),
    ):
        matrix = tmp_path / name
        if content:
            matrix.write_bytes(content)
        summary = prepare(tmp_path, lines(header=True), user_features=Description(matrix))
        features = features_of(tmp_path / "out.h5")
        assert (features[58], features[999999], features[3]) == ({"0": 0.5}, {"1": 2.0}, {})
        assert summary.features["user"]["unknown"] == 3


@pytest.mark.parametrize(
    ("text", "more", "message"),
    [
        (
            USERS,
            {"kinds": {"agee": "number"}},
            "names 'agee', but the columns are age, job, likes, zip",
        ),
        (
            USERS.replace("userId", "no").replace("zip", "userId"),
            {},
            "no user of the ratings: it has names such as 00",
        ),
        (
            USERS.replace("30,nurse, ", "3O,nurse, "),
            {},
            r"line 3: the number age is '3O'; correct it",
        ),
        (USERS + "3,31,nurse,rock,00124\n", {}, "in several ways: 3"),
        (
            USERS + "x9,31,nurse,rock,00124\n",
            {},
            "the users of the ratings are integers, unlike 'x9'",
        ),
        (USERS + ",31,nurse,rock,1\n", {}, "the user is missing, or a rounded float, in line 8"),
        (USERS.replace("30,nurse, ", "3_0,nurse, "), {}, "line 3: the number age is '3_0'"),
        (USERS.replace("age", "zip"), {}, "two columns have the same name"),
        ("3,20\n58,30\n", {}, "has no header"),
        ("userId\n3\n", {}, "has one column"),
        (",userId\n0,3\n", {}, "has one column"),
        ("userId,age\n", {}, "has no rows"),
        (
            "userId,age\n3,2\n58,2\n",
            {},
            "has no column that can be used\n  users.csv: age is left out: all its values",
        ),
        (USERS.replace("age", "x" * 1025), {}, "has a feature whose name begins with 'xxx"),
        (USERS, {"kinds": {"job": "number"}}, "the number job is 'writer', 'nurse'"),
    ],
)
def test_bad_files_are_refused(tmp_path, text, more, message):
    """One error names the fault, its place and a remedy; no file is written."""
    with pytest.raises(InputError) as caught:
        described(tmp_path, text, **more)
    assert message in str(caught.value)
    assert not (tmp_path / "out.h5").exists()


def test_row_names_of_pandas_and_r_are_no_feature(tmp_path):
    """A first column without a name is left out, or has the names if there is no other column of
    them.
    """
    with_rows = "".join(
        f"{k or ''},{line}" for k, line in enumerate(USERS.splitlines(keepends=True))
    )
    for text in (USERS.replace("userId", ""), with_rows):
        assert described(tmp_path, text).features["user"]["groups"].keys() == {
            "age",
            "job",
            "likes",
            "zip",
        }


@pytest.mark.parametrize("values", [[1e39, 1], [20000001, 20000002]])
def test_a_matrix_that_single_precision_cannot_hold(tmp_path, values):
    """Its features would be infinite, or equal."""
    matrix = scipy.sparse.coo_matrix((values, ([3, 41], [0, 0])))
    with pytest.raises(InputError, match="single precision"):
        prepare(tmp_path, lines(header=True), user_features=Description(matrix))


def test_odd_columns_are_reported(tmp_path):
    """Names that are no category, and constants, are left out and reported; the same line twice
    counts once.
    """
    ids = [100200, 3, 58, 999999, 41, *range(5000, 5200)]
    rows = [f"{user},name {k},same,{k % 2},{k % 7}" for k, user in enumerate(ids)]
    text = "\n".join(["user,name,constant,member,children", *rows, rows[-1]]) + "\n"
    summary = described(tmp_path, text)
    assert summary.features["user"]["groups"] == {"member": 1, "children": 1}
    notes = " / ".join(summary.features["user"]["notes"])
    assert "name is left out: 205 different values in 205 rows are too many for a category" in notes
    assert "constant is left out: all its values are the same" in notes
    assert summary.features["user"]["unrated"] == 200


def test_features_from_python(tmp_path):
    """Data frames by index or by a column of names, arrays, matrices: codes given as text are
    categories.
    """
    tastes = {"job": ["07", "1", "1"], "likes": [["a", "b"], ["b"], ["c"]]}
    descriptions = [
        (pd.DataFrame(tastes, index=[3, 58, 41]), {"job=07", "likes=a", "likes=b"}),
        (pd.DataFrame({"user_id": [3, 58, 41], "age": [20.0, 30.0, np.nan]}), {"age"}),
        (np.array([[3, 20], [58, 30], [41, 25]]), {"feature_1"}),
        (scipy.sparse.csr_matrix(([1.5, 2.0], ([3, 58], [0, 1])), shape=(60, 2)), {"0"}),
    ]
    for features, expected in descriptions:
        described = read_features(features, "user")
        prepare(tmp_path, lines(header=True), user_features=described)
        assert set(features_of(tmp_path / "out.h5")[3]) == expected
    with pytest.raises(InputError, match="leave out y and features"):
        ratings_source(str(tmp_path / "out.h5"), has_features=True)


def test_the_encoding_is_kept_and_checked(tmp_path):
    """The encoding is stored beside the features, has their names, and damage to it is encoding."""
    described(tmp_path, USERS, kinds={"zip": "skip"})
    with Ratings(tmp_path / "out.h5") as ratings:
        (stored,) = ratings.features.values()
    encoding = Encoding.parse(stored.encoding)
    assert (encoding.names, encoding.groups) == (list(stored.names), list(stored.groups))
    assert [code.kind for code in encoding.columns] == ["number", "category", "list", "skip"]
    assert Encoding.parse(encoding.dump()) == encoding
    lost = stored.encoding.replace("list", "lost")
    for wrong in ("", "[]", "[" * 100_000, lost, stored.encoding.replace('"sd":1.0', '"sd":0.0')):
        with pytest.raises(ValueError, match=r"^not a valid encoding of features .*$"):
            Encoding.parse(wrong)
    content = (tmp_path / "out.h5").read_bytes()
    (tmp_path / "out.h5").write_bytes(content.replace(b'"list"', b'"lost"'))
    with pytest.raises(InputError, match="cannot be read"):
        Ratings(tmp_path / "out.h5")


def test_an_encoding_of_an_earlier_version_is_read():
    """Runs keep the encoding of their features as it was written."""
    columns = '[{"name": "genres=Drama", "kind": "flag", "atoms": [], "mean": 0.0, "sd": 1.0}]'
    encoding = Encoding.parse(f'{{"columns": {columns}, "separator": ";", "width": 0}}')
    assert (encoding.names, encoding.groups, encoding.separator) == (
        ["genres=Drama"],
        ["genres"],
        ";",
    )

"""Bad input ends in one clear message that says what, where and what to do, and writes nothing."""

import gzip
import io
import os
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import scipy.sparse
from ingest_cases import case, lines, prepare

from dsgmcmc.errors import InputError
from dsgmcmc.prepare.prepare import prepare_ratings

GOOD = lines(header=True)
JSON = "".join(f'{{"user": {k}, "item": {k}, "rating": {k}}}\n' for k in (1, 2))
MTX = "%%MatrixMarket matrix coordinate real general\n"


def npz(**arrays: object) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def saved(matrix: object) -> bytes:
    buffer = io.BytesIO()
    scipy.sparse.save_npz(buffer, matrix)
    return buffer.getvalue()


def parquet(**columns: object) -> bytes:
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), buffer)
    return buffer.getvalue()


def spoil(*replacements: tuple[int, str]) -> str:
    """Replace lines of a good file, counted from 1."""
    changed = GOOD.splitlines()
    for number, text in replacements:
        changed[number - 1] = text
    return "\n".join(changed) + "\n"


BAD = {
    "empty": case(b"\xef\xbb\xbf", "r.csv is empty"),
    "header only": case("userId,movieId,rating\n", "r.csv has no ratings"),
    "missing user": case(spoil((3, " ,7,4,1")), "1 row has .*\n  line 3: the user is missing"),
    "text": case(
        spoil((11, "1,7,good,1")), r"1 row has .*\n  line 11: .* \(user 1, item 7, rating good\)"
    ),
    "decimal comma": case(
        '1;b;"3,5"\n2;d;4.5\n', "; say by --decimal , .*\n  line 1: .* rating 3,5"
    ),
    "1_0": case(GOOD + "1,9,1_0,1\n", "line 12: the rating is .* not a number .* rating 1_0"),
    "1_0 in JSON": case(
        JSON + '{"user": 2, "item": 1, "rating": "1_0"}', "row 3: the rating is missing", "r.json"
    ),
    "1_0 seconds": case(
        GOOD + "1,9,1,1_0\n", "line 12: the timestamp is missing", split="temporal"
    ),
    "1_0 in Parquet": case(
        parquet(user=[1, 2], item=[1, 2], rating=["1", "1_0"]), "row 2: the rating", "r.parquet"
    ),
    "too close": case(
        "1,1,20000001\n2,2,20000005\n", "20000001 to 20000005, .*: subtract 20000003"
    ),
    "too close, large": case(
        "1,1,1e8\n2,2,100000001\n", "100000000 to 100000001, .* subtract 100000000"
    ),
    "two ratings": case(
        "user,item,rating,Rating\n1,1,1,2\n2,2,3,4\n", "cannot tell which column is rating"
    ),
    "twice r": case(
        "u,item,r,r\n1,1,1,2\n", "several columns 'r' for rating", columns="user=u,rating=r"
    ),
    "unnamed last column": case("user,item,\n1,1,1\n2,2,3\n", "cannot tell which column is rating"),
    "JSON that begins without": case(
        '{"user": 1, "item": 2}' + JSON, "row 1: the rating is missing", "r.json"
    ),
    "not finite": case(
        spoil((4, "1,7,,1"), (5, "1,7,NaN,1"), (6, "1,7,1e400,1")),
        "line 4: the rating is missing.*\n  line 5: the rating is not finite.*\n  line 6: the"
        " rating is not finite",
    ),
    "ragged and bad": case(
        spoil((6, "1,7,3,4,5"), (8, "1,7,x,4"), (9, "1")),
        r"2 lines cannot .*\n  line 6: .*: 4 Found: 5 .*\n  line 9: .*: 4 Found: 1",
    ),
    "after blank lines": case(GOOD.replace("\n", "\n\n") + "1,7,x,1\n", "line 23: "),
    "very many bad lines": case(
        GOOD + "1\n" * 20_000, "or more lines .*\n  line 12: .*(\n.*){3}\n  line 16: "
    ),
    "colons, too few": case(
        lines("::") + "1::2\n", "line 11: Expected Number of Columns: 4 Found: 2", "r.dat"
    ),
    "mixed line ends and a surplus column": case(
        GOOD.replace("\n", "\r\n", 4) + "1,7,3,5,9\n",
        r"a line has more than \d columns, and begins with 1",
    ),
    "mixed line ends and a short line": case(
        GOOD.replace("\n", "\r\n", 4) + "1,7,3\n",
        "1 line cannot .*\n  line 12: Expected Number of Columns: 4 Found: 3",
    ),
    "not UTF-8, late": case(
        (GOOD + "".join(f"{k},1,1,1\n" for k in range(10**4)) + "\xe9,1,1,1\n").encode("latin-1"),
        "1 line cannot .*\n  line 10012: Invalid unicode",
    ),
    "not UTF-8": case(spoil((7, "Am\xe9lie,7,1,1")).encode("latin-1"), "neither UTF-8 .* iconv"),
    "open quote": case(
        spoil((6, '"1,7,3,4')), "1 line cannot .*\n  line 6: Value with unterminated quote"
    ),
    "no time": case(
        spoil((6, "1,7,3,soon")), "line 6: the timestamp is missing or not a time", split="temporal"
    ),
    "no time column": case(
        "1,2,3\n2,3,4\n", "cannot tell which column is timestamp", split="temporal"
    ),
    "Excel": case(b"PK\x03\x04" + bytes(100), "neither UTF-8 text .* data frame", "r.xlsx"),
    "gzip with a wrong checksum": case(
        gzip.compress(GOOD.encode())[:-8] + bytes(4) + gzip.compress(GOOD.encode())[-4:],
        "r.csv.gz cannot be read: CRC",
        "r.csv.gz",
    ),
    "NUL byte in a name, late": case(
        GOOD + "".join(f"{k},1,1,1\n" for k in range(10**4)) + "1\0,1,1,1\n",
        "1 row has .*\n  line 10012: a name contains a NUL byte",
    ),
    "long first line": case("user,item,rating,note\n1,1,1," + "x" * 3_000_000 + "\n", "r.csv"),
    "JSON with a missing rating": case(
        JSON + '{"user": 2, "item": 3}\n', "row 3: the rating is missing", "r.jsonl"
    ),
    "JSON cut": case(JSON + "{\n", "r.jsonl cannot be read: ", "r.jsonl"),
    "JSON of no objects": case("[1, 2]", "r.json", "r.json"),
    "deep JSON": case('{"user": ' + "[" * 3000, "r.jsonl cannot be read: ", "r.jsonl"),
    "very small": case("1,1,1e-30\n2,2,3e-30\n", r"multiply them by 1e\+30"),
    "very large": case("1,1,-2e38\n2,2,3e38\n", "multiply them by 1e-38"),
    "prose": case("Dear user,\nthank you\n", "cannot tell which column is item, rating", "r.txt"),
    "tags": case(
        "userId,movieId,tag,timestamp\n1,2,a,3\n",
        "cannot tell which column is rating .* clicks, give --columns rating=none",
    ),
    "a comment or a row": case(
        "#1 fan,7,4\nb,7,3\nc,8,5\n", "is '#1 fan,7,4' at its beginning a comment, or a row"
    ),
    "names in the third column": case(
        "".join(f"{k:x}\tb{k % 3}\tBand, The {k}\t{k}\n" for k in range(1, 9)),
        r"r.tsv has 4 columns without names \(1: 1; 2: b1; 3: Band, The 1; 4: 1\).*--columns"
        r" user=1,item=2,rating=4$",
        "r.tsv",
    ),
    "genres in the third column": case(
        "1::5::9::4::5::2001-01-01\n" * 3, "6 columns without .*rating=R$", "r.txt"
    ),
    "a matrix of numbers": case(
        "1,2,nan,4,5.5\n2,,4,5,6\n", "5 columns .*each column an item: --matrix$"
    ),
    "a matrix with a count and a code": case(
        "3,-1.5,99,2,3\n2,99,0,99,1\n",
        "5 columns .*: --matrix and --missing 99, without the first column, which counts the"
        " ratings",
    ),
    "a matrix with names": case(
        "gene,"
        + ",".join(f"s{k}" for k in range(40))
        + "\n"
        + "".join(f"g{k}{',NA' * 40}\n" for k in range(2)),
        r"cannot tell .*\(columns gene, s0, .*s6, ... \(41 columns\)\); .*each column an item:"
        r" --matrix$",
    ),
    "libFM with three features": case(
        "5 1:1 7:1 9:0.5\n4 2:1 8:1 9:1\n", "features .* cannot be read\n  line 1", "r.libfm"
    ),
    "LIBSVM with queries": case(
        "5 qid:1 7:1\n4 qid:2 8:1\n", "2 lines .* cannot be read\n  line 1: '5 qid:1 7:1'", "r.txt"
    ),
    "a name too few": case(
        "user,item\n1,7,5\n1,8,4\n2,7,3\n", "3 lines .*\n  line 2: .*: 2 Found: 3"
    ),
    "libFM without ranges": case(
        "5 1:1 7:1\n4 7:1 8:1\n", "in two ranges, but 7 is the lower .* and 7 the", "r.libfm"
    ),
    "Netflix with a strange line": case(
        "1:\n5,3,2005-01-01\n6,x,2005-01-02\n", "1 line .*\n  line 3: '6,x", "r.txt"
    ),
    "SMURFF beyond its sizes": case(
        np.array([2, 2, 1, 3 + (1 << 32)]).tobytes(),
        "2 rows and 2 columns, but entries in rows 3 to 3 and columns 1 to 1",
        "r.sbm",
    ),
    "constant": case("1,1,3\n1,2,3\n2,2,3.0\n", "all ratings are 3: .* for clicks"),
    "zeros alone": case("1,1,0\n1,2,0\n", "--missing=0 leaves no training ratings", missing="0"),
    "one user": case("1,1,1\n1,2,2\n", r"1 user\(s\): a matrix needs at least two"),
    "long name": case(f"{'x' * 1025},1,1\nb,2,2\n", "the user column has a name of 1025 bytes"),
    "duplicates": case(
        GOOD + "3,7,1,1\n58,12,2,2\n3,7,2,3\n",
        r"2 pair\(s\) .*--duplicates.*\n  user 3, item 7: rated 1, 2, 3.5\n  user 58, item 12:"
        r" rated 1, 2",
        duplicates="error",
    ),
    "all but none to train": case(GOOD, "leaves no training ratings", test_fraction=0.96),
    "fraction NaN": case(
        GOOD, "--test-fraction: must be a finite number", test_fraction=float("nan")
    ),
    "two ways of testing": case(
        GOOD, "--test gives the test ratings", test="r.csv", split="temporal"
    ),
    "memory": case(GOOD, "100 MB of memory are not enough: .*400 MB", memory=10**8),
    "columns syntax": case(GOOD, "--columns userId: .*user=NAME", columns="userId"),
    "columns name": case(GOOD, "no column 'film'", columns="user=userId,item=film,rating=rating"),
    "columns twice": case(
        lines(), "one column serves for two of", columns="user=1,item=1,rating=3"
    ),
    "parquet nulls": case(
        parquet(user=[1, None, 2], item=[1, 2, 2], rating=[1.0, 2.0, float("nan")]),
        "2 rows have .*\n  row 2: the user is missing.*\n  row 3: the rating is not finite",
        "r.parquet",
    ),
    "matrix complex": case(
        MTX.replace("real", "complex") + "2 2 1\n1 1 1 1\n", "line 1: .* found .* complex", "r.mtx"
    ),
    "matrix of a triangle": case(
        MTX.replace("coordinate real general", "array real symmetric"), "line 1: ", "r.mtx"
    ),
    "matrix of huge sizes": case(
        MTX + "9" * 5000 + " 2 1\n1 1 1\n", "line 2: .* numbers of rows, columns", "r.mtx"
    ),
    "matrix without sizes": case(
        MTX + "% a comment\n", "numbers of rows, columns and entries", "r.mtx"
    ),
    "matrix cut": case(MTX + "2 2 3\n1 1 1\n2 2 2\n", "it has 2 entries instead of 3", "r.mtx"),
    "matrix too long": case(
        MTX + "2 2 1\n1 1 1\n2 2 2\n", "it has 2 entries instead of 1", "r.mtx"
    ),
    "array cut": case(
        MTX.replace("coordinate", "array") + "2 2\n1\n2\n3\n",
        "it has 3 entries instead of 4",
        "r.mtx",
    ),
    "matrix from 0": case(
        MTX + "2 2 2\n\n1 1 1\n0 1 2\n", "1 line .* a row from 1 to 2.*\n  line 5: '0 1 2'", "r.mtx"
    ),
    "matrix beyond its columns": case(
        MTX + "2 2 2\n1 1 1\n1 3 2\n", "column from 1 to 2.*\n  line 4: '1 3", "r.mtx"
    ),
    "matrix with half a token": case(
        MTX + "2 2 2\n1 1 1x\n2 2 2\n", "1 line .*\n  line 3: '1 1 1x'", "r.mtx"
    ),
    "matrix with a fourth value": case(
        MTX + "2 2 2\n1 1 1 7\n2 2 2 8\n", "2 lines .*\n  line 3: '1 1 1 7'", "r.mtx"
    ),
    "matrix with half an integer": case(
        MTX.replace("real", "integer") + "2 2 2\n1 1 2\n2 2 2.5\n",
        "an integer .*\n  line 4: '2 2 2.5'",
        "r.mtx",
    ),
    "matrix of a pattern with values": case(
        MTX.replace("real", "pattern") + "2 2 2\n1 1\n2 2 5\n",
        "nothing else .*\n  line 4: '2 2 5'",
        "r.mtx",
    ),
    "matrix temporal": case(MTX + "2 2 1\n1 1 1\n", "is a matrix", "r.mtx", split="temporal"),
    "npz text": case(GOOD, "is not a sparse matrix .*: File is not a zip file", "r.npz"),
    "npz pickled": case(
        npz(format=np.array([{}], dtype=object)), "is not a sparse matrix", "r.npz"
    ),
    "npz of diagonals": case(
        saved(scipy.sparse.eye(4, format="dia")), "its format is dia", "r.npz"
    ),
    "npz empty": case(saved(scipy.sparse.csr_matrix((3, 3))), "has no ratings", "r.npz"),
    "npz nan": case(
        saved(scipy.sparse.csr_matrix(np.diag([1, np.nan]))),
        "1 row has .*\n  entry 2: .*user 1, item 1",
        "r.npz",
    ),
    "npz bomb": case(
        saved(
            scipy.sparse.csr_matrix(
                (np.zeros(4 * 10**6), np.zeros(4 * 10**6, np.int32), [0, 4 * 10**6]), (1, 1)
            )
        ),
        r"\(48 MB\) needs .*--memory",
        "r.npz",
        memory=400_000_000,
    ),
    "npz lying pointer": case(
        npz(
            format=b"csr",
            shape=[3, 3],
            indptr=[0, 10**6, -5, 3],
            indices=[0, 1, 2],
            data=np.ones(3),
        ),
        "is not a sparse matrix",
        "r.npz",
    ),
}


@pytest.mark.parametrize("fault", BAD)
def test_bad_file(tmp_path, fault):
    """A bad file is refused with a message that names its fault, and nothing is left behind."""
    content, message, name, options = BAD[fault]
    with pytest.raises(InputError, match=message) as caught:
        prepare(tmp_path, content, name, **options)
    assert str(caught.value).count("\n") <= 5
    assert len(str(caught.value)) < 1000
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_what_stands_in_the_way_is_named(tmp_path, monkeypatch):
    """Inputs that cannot be read and outputs that may not be written are named, and existing files
    stay as they are.
    """
    monkeypatch.chdir(tmp_path)
    Path("r.csv").write_text(GOOD)
    Path("bad.csv").write_text("1,2,3\n1,3,x\n")
    os.mkfifo("pipe")
    prepare_ratings(["r.csv"], "there.h5")
    before = Path("there.h5").read_bytes()
    for inputs, out, message in (
        (["none.csv"], "out.h5", "none.csv does not exist"),
        (["pipe"], "out.h5", "pipe is not a file"),
        (["r.csv", "bad.csv"], "out.h5", r"bad.csv: 1 row has .*\n  line 2: "),
        (["r.csv"], "./r.csv", "r.csv is one of the inputs"),
        (["r.csv"], "none/out.h5", "none does not exist"),
        (["r.csv"], ".", "exists"),
        (["r.csv"], "/proc/out.h5", "/proc"),
        (["r.csv"], "there.h5", r"there.h5 exists; .*--force"),
        (["r.csv"], "./pipe", "pipe exists; give another name$"),
    ):
        with pytest.raises(InputError, match=message):
            prepare_ratings(inputs, out, force=out.startswith("./"))
    with pytest.raises(InputError, match="1 row has"):
        prepare_ratings(["bad.csv"], "there.h5", force=True)
    assert Path("there.h5").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "bad.csv",
        "pipe",
        "r.csv",
        "there.h5",
    ]

"""Bad input ends in one clear message that says what, where and what to do, and writes nothing."""

from __future__ import annotations

import gzip
import io
import os
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import scipy.sparse
from ingest_cases import lines, prepare

from dsgmcmc.data.arrange import check_entities
from dsgmcmc.data.prepare import prepare_ratings
from dsgmcmc.data.session import default_memory, parse_bytes
from dsgmcmc.errors import InputError

GOOD = lines(header=True)
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


LINES = lines(header=True).splitlines()


def spoil(*replacements: tuple[int, str]) -> str:
    """Replace lines of a good file, counted from 1."""
    changed = list(LINES)
    for number, text in replacements:
        changed[number - 1] = text
    return "\n".join(changed) + "\n"


# name: (file name, content, options, parts of the message)
BAD = {
    "empty": ("r.csv", "", {}, ["r.csv is empty"]),
    "byte order mark alone": ("r.csv", b"\xef\xbb\xbf", {}, ["r.csv is empty"]),
    "empty gzip": ("r.csv", gzip.compress(b""), {}, ["r.csv is empty"]),
    "header only": ("r.csv", "userId,movieId,rating\n", {}, ["r.csv has a header but no ratings"]),
    "missing user": ("r.csv", spoil((3, ",7,4,1")), {}, ["1 row has", "line 3: the user is missing"]),
    "missing rating": ("r.csv", spoil((4, "1,7,,1")), {}, ["line 4: the rating is missing"]),
    "text": (
        "r.csv",
        spoil((11, "1,7,good,1")),
        {},
        ["1 line cannot be read", "line 11: ", 'column "rating"', '"good"', "1,7,good,1"],
    ),
    "decimal comma": (
        "r.csv",
        '1;b;"3,5"\n2;d;4.5\n',
        {},
        ["line 1: ", "(a decimal comma: write a point)"],
    ),
    "nan": ("r.csv", spoil((5, "1,7,NaN,1")), {}, ["line 5: the rating is not finite"]),
    "beyond float32": ("r.csv", spoil((5, "1,7,1e39,1")), {}, ["line 5: the rating is not finite"]),
    "too few columns": (
        "r.csv",
        spoil((6, "1,7")),
        {},
        ["1 line cannot", "line 6: Expected Number of Columns: 4 Found: 2"],
    ),
    "too many columns": (
        "r.csv",
        spoil((6, "1,7,3,4,5")),
        {},
        ["line 6: Expected Number of Columns: 4 Found: 5 ('1,7,3,4,5')"],
    ),
    "ragged and bad": (
        "r.csv",
        spoil((6, "1,7,3,4,5"), (8, "1,7,x,4"), (9, "1")),
        {},
        ["3 lines cannot", "line 6: ", "line 8: ", "line 9: "],
    ),
    "after blank lines": ("r.csv", GOOD.replace("\n", "\n\n") + "1,7,x,1\n", {}, ["line 23: "]),
    "very many bad lines": (
        "r.csv",
        GOOD + "1\n" * 20_000,
        {},
        ["or more lines cannot be read", "line 12: ", "line 16: "],
    ),
    "Windows": ("r.csv", spoil((7, "1,7,x,1")).replace("\n", "\r\n"), {}, ["line 7: "]),
    "colons, too few": ("r.dat", lines("::") + "1::2\n", {}, ["line 11: Expected Number of Columns: 4 Found: 2"]),
    "not UTF-8": ("r.csv", spoil((7, "Am\xe9lie,7,1,1")).encode("latin-1"), {}, ["line 7: neither UTF-8", "iconv"]),
    "not UTF-8, late": (
        "r.csv",
        (GOOD + "".join(f"{k},1,1,1\n" for k in range(10**4)) + "\xe9,1,1,1\n").encode("latin-1"),
        {},
        ["1 line cannot", "line 10012: Invalid unicode"],
    ),
    "UTF-16": ("r.csv", GOOD.encode("utf-16"), {}, ["UTF-16", "iconv"]),
    "open quote": (
        "r.csv",
        spoil((6, '"1,7,3,4')),
        {},
        ["1 line cannot", "line 6: Value with unterminated quote"],
    ),
    "no time": (
        "r.csv",
        spoil((6, "1,7,3,soon")),
        {"split": "temporal"},
        ["line 6: the timestamp is missing, or no time"],
    ),
    "no time column": ("r.csv", "1,2,3\n2,3,4\n", {"split": "temporal"}, ["cannot tell which column is timestamp"]),
    "Excel": ("r.xlsx", b"PK\x03\x04" + bytes(100), {}, ["r.xlsx is neither text", "data frame"]),
    "cut gzip": ("r.csv.gz", gzip.compress(GOOD.encode())[:-20], {}, ["r.csv.gz is not a whole gzip file"]),
    "gzip with a wrong checksum": (
        "r.csv.gz",
        gzip.compress(GOOD.encode())[:-8] + bytes(4) + gzip.compress(GOOD.encode())[-4:],
        {},
        ["r.csv.gz is not a whole gzip file: CRC"],
    ),
    "zero bytes in a name, late": (
        "r.csv",
        GOOD + "".join(f"{k},1,1,1\n" for k in range(10**4)) + "1\0,1,1,1\n",
        {},
        ["1 row has", "line 10012: a name has zero bytes"],
    ),
    "long first line": ("r.csv", "user,item," + "x" * 70_000, {}, ["r.csv is no table", "65,536"]),
    "deep JSON": ("r.jsonl", '{"user": ' + "[" * 3000, {}, ["r.jsonl cannot be read: "]),
    "very small": ("r.csv", "1,1,1e-30\n2,2,3e-30\n", {}, ["multiply them by 1e+30"]),
    "very large": ("r.csv", "1,1,-2e38\n2,2,3e38\n", {}, ["multiply them by 1e-38"]),
    "prose": ("r.txt", "Dear user,\nthank you\n", {}, ["cannot tell which column is user, item, rating"]),
    "tags": (
        "r.csv",
        "userId,movieId,tag,timestamp\n1,2,a,3\n",
        {},
        ["no rating column (columns userId, movieId, tag, timestamp)", "for clicks", "--columns user=NAME,item=NAME"],
    ),
    "constant": ("r.csv", "1,1,3\n1,2,3\n2,2,3.0\n", {}, ["all ratings are 3", "for clicks"]),
    "one user": ("r.csv", "1,1,1\n1,2,2\n", {}, ["only one user"]),
    "long name": ("r.csv", f"{'x' * 1025},1,1\nb,2,2\n", {}, ["a name of 1025 bytes in the user column"]),
    "duplicates": (
        "r.csv",
        GOOD + "3,7,1,1\n58,12,2,2\n3,7,2,3\n",
        {"duplicates": "error"},
        ["2 pairs", "--duplicates", "user 3, item 7: rated 1, 2, 3.5", "user 58, item 12: rated 1, 2"],
    ),
    "all but none to train": ("r.csv", GOOD, {"test_fraction": 0.96}, ["leaves none to train on"]),
    "fraction NaN": ("r.csv", GOOD, {"test_fraction": float("nan")}, ["--test-fraction nan"]),
    "memory": ("r.csv", GOOD, {"memory": 10**8}, ["100 MB of memory are not enough", "400 MB"]),
    "columns syntax": ("r.csv", GOOD, {"columns": "userId"}, ["--columns userId", "user=NAME"]),
    "some columns": (
        "r.csv",
        "who,what,rating\n1,2,3\n",
        {"columns": "item=what"},
        ["cannot tell which column is user (columns who, what, rating)", "--columns user=NAME"],
    ),
    "columns role twice": ("r.csv", GOOD, {"columns": "user=a,item=b,rating=c,user=d"}, ["--columns"]),
    "columns name": (
        "r.csv",
        GOOD,
        {"columns": "user=userId,item=film,rating=rating"},
        ["no 'film'", "columns userId, movieId, rating, timestamp"],
    ),
    "columns twice": ("r.csv", lines(), {"columns": "user=1,item=1,rating=3"}, ["one column twice"]),
    "columns of a matrix": ("r.mtx", MTX + "1 1 1\n1 1 1\n", {"columns": "user=1,item=2,rating=3"}, ["--columns"]),
    "parquet cut": (
        "r.parquet",
        parquet(user=[1, 2], item=[1, 2], rating=[1, 2])[:-9],
        {},
        ["r.parquet cannot be read: "],
    ),
    "parquet nulls": (
        "r.parquet",
        parquet(user=[1, None, 2], item=[1, 2, 2], rating=[1.0, 2.0, float("nan")]),
        {},
        ["2 rows have", "row 2: the user is missing", "row 3: the rating is not finite"],
    ),
    "parquet empty": ("r.parquet", parquet(user=[], item=[], rating=[]), {}, ["has no ratings"]),
    "matrix dense": ("r.mtx", "%%MatrixMarket matrix array real general\n1 1\n1\n", {}, ["it is array general"]),
    "matrix complex": (
        "r.mtx",
        "%%MatrixMarket matrix coordinate complex general\n2 2 1\n1 1 1 1\n",
        {},
        ["its values are complex"],
    ),
    "matrix symmetric": (
        "r.mtx",
        "%%MatrixMarket matrix coordinate real symmetric\n2 2 1\n1 1 1\n",
        {},
        ["coordinate symmetric"],
    ),
    "matrix of huge sizes": ("r.mtx", MTX + "9" * 5000 + " 2 1\n1 1 1\n", {}, ["is not a sparse matrix: "]),
    "matrix cut": ("r.mtx", MTX + "2 2 3\n1 1 1\n2 2 2\n", {}, ["Truncated file"]),
    "matrix from 0": ("r.mtx", MTX + "2 2 2\n1 1 1\n0 1 2\n", {}, ["Line 4: Row index out of bounds"]),
    "matrix too few": ("r.mtx", MTX + "2 2 2\n1 1 1\n2 1\n", {}, ["Line 4: "]),
    "matrix temporal": ("r.mtx", MTX + "2 2 1\n1 1 1\n", {"split": "temporal"}, ["without the times"]),
    "npz text": ("r.npz", GOOD, {}, ["is not a sparse matrix: File is not a zip file"]),
    "npz pickled": ("r.npz", npz(format=np.array([{}], dtype=object)), {}, ["is not a sparse matrix"]),
    "npz diagonal": ("r.npz", saved(scipy.sparse.eye(4, format="dia")), {}, ["its format is dia"]),
    "npz empty": ("r.npz", saved(scipy.sparse.csr_matrix((3, 3))), {}, ["has no ratings"]),
    "npz nan": (
        "r.npz",
        saved(scipy.sparse.csr_matrix(np.diag([1, np.nan]))),
        {},
        ["1 row has", "entry 2: the rating is missing, or no number (user 1, item 1"],
    ),
    "npz bomb": (
        "r.npz",
        saved(scipy.sparse.csr_matrix((np.zeros(4 * 10**6), np.zeros(4 * 10**6, np.int32), [0, 4 * 10**6]), (1, 1))),
        {"memory": 400_000_000},
        ["r.npz declares 48 MB of entries", "--memory"],
    ),
    "npz lying pointer": (
        "r.npz",
        npz(
            format=np.array(b"csr"),
            shape=np.array([3, 3]),
            indptr=np.array([0, 10**6, -5, 3]),
            indices=np.array([0, 1, 2]),
            data=np.ones(3),
        ),
        {},
        ["is not a sparse matrix"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_file(tmp_path, case):
    """Each kind of bad file is refused with a message that names the file's fault; nothing is left behind."""
    name, content, options, parts = BAD[case]
    with pytest.raises(InputError) as caught:
        prepare(tmp_path, content, name, **options)
    for part in parts:
        assert part in str(caught.value)
    assert str(caught.value).count("\n") <= 5
    assert len(str(caught.value)) < 1000
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_only_the_first_five_are_shown(tmp_path):
    """A million bad rows give five lines."""
    with pytest.raises(InputError) as caught:
        prepare(tmp_path, GOOD + "".join(f"{k},1,x,0\n" for k in range(10**5)))
    assert "1000 or more lines cannot be read" in str(caught.value)
    assert [line.split(":")[0] for line in str(caught.value).splitlines()[1:]] == [f"  line {k}" for k in range(12, 17)]
    with pytest.raises(InputError) as caught:
        prepare(tmp_path, "".join(f"{k},{k % 2},{k % 3}\n" * 7 for k in range(10**5)), duplicates="error")
    assert "100000 pairs" in str(caught.value)
    assert str(caught.value).splitlines()[2:3] == ["  user 1, item 1: rated 1, 1, 1, 1, 1 ... (7 times)"]
    assert len(str(caught.value).splitlines()) == 6


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (["none.csv"], "none.csv does not exist"),
        (["none*.csv"], "no file matches none*.csv"),
        (["empty"], "empty holds no rating files"),
        (["r.csv", "r.csv"], "r.csv is given twice"),
        (["r.csv", "./link.csv"], "link.csv is given twice"),
        (["/dev/null"], "/dev/null"),
    ],
)
def test_missing_input(tmp_path, monkeypatch, inputs, message):
    """What is not there, or is there twice, is named."""
    monkeypatch.chdir(tmp_path)
    Path("r.csv").write_text(GOOD)
    Path("link.csv").symlink_to("r.csv")
    Path("empty").mkdir()
    Path("empty/README.md").write_text("nothing")
    with pytest.raises(InputError, match=message.replace("*", r"\*")):
        prepare_ratings(inputs, "out.h5")
    assert not Path("out.h5").exists()


def test_second_file_is_bad(tmp_path):
    """With several files the message names the bad one and its own line numbers."""
    for name, text in (("a.csv", GOOD), ("b.csv", "1,2,3\n1,3,x\n")):
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=r"b.csv: 1 line cannot .*\n  line 2: "):
        prepare_ratings([str(tmp_path)], tmp_path / "out.h5")


def test_output_exists(tmp_path):
    """An existing file is kept unless --force says otherwise, and also when preparing again fails."""
    out = tmp_path / "out.h5"
    prepare(tmp_path, GOOD)
    before = out.read_bytes()
    with pytest.raises(InputError, match=r"out.h5 exists; .*--force"):
        prepare_ratings([str(tmp_path / "ratings.csv")], out)
    with pytest.raises(InputError, match="is empty"):
        prepare(tmp_path, "", "bad.csv")
    assert out.read_bytes() == before


def test_output_is_an_input(tmp_path):
    """The ratings themselves are never overwritten, not even with --force."""
    path = tmp_path / "r.csv"
    path.write_text(GOOD)
    with pytest.raises(InputError, match=r"r.csv is one of the inputs"):
        prepare_ratings([str(path)], tmp_path / "." / "r.csv", force=True)
    assert path.read_text() == GOOD


def test_output_folder(tmp_path):
    """A folder that is not there, is a file, or cannot be written is named before any work is done."""
    path = tmp_path / "r.csv"
    path.write_text(GOOD)
    with pytest.raises(InputError, match=r"none does not exist"):
        prepare_ratings([str(path)], tmp_path / "none" / "out.h5")
    with pytest.raises(InputError, match="is a directory"):
        prepare_ratings([str(path)], tmp_path)
    with pytest.raises(InputError, match=r"cannot write in the folder .*r.csv"):
        prepare_ratings([str(path)], path / "out.h5")
    with pytest.raises(InputError, match="cannot write in the folder"):
        prepare_ratings([str(path)], tmp_path / "out.h5", temp_dir="/proc")
    with pytest.raises(InputError, match=r"/proc/out.h5 cannot be written"):
        prepare_ratings([str(path)], "/proc/out.h5", temp_dir=tmp_path)
    with pytest.raises(InputError, match=r"/none does not exist"):
        prepare_ratings([str(path)], tmp_path / "none" / "out.h5", temp_dir=tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_permissions(tmp_path):
    """Files that may not be read and folders that may not be written are named with the reason."""
    path = tmp_path / "r.csv"
    path.write_text(GOOD)
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(InputError, match="Permission denied"):
            prepare_ratings([str(path)], tmp_path / "out.h5")
    finally:
        tmp_path.chmod(0o700)
    path.chmod(0)
    with pytest.raises(InputError, match=r"r.csv cannot be read: Permission denied"):
        prepare_ratings([str(path)], tmp_path / "out.h5")


@pytest.mark.parametrize("options", [{"test_fraction": 0.2}, {"split": "temporal"}])
def test_test_file_excludes_a_split(tmp_path, options):
    """Two ways of choosing test ratings at once are a contradiction."""
    (tmp_path / "test.csv").write_text("3,31,1\n")
    with pytest.raises(InputError, match="--test has the test ratings"):
        prepare(tmp_path, GOOD, test=str(tmp_path / "test.csv"), **options)
    with pytest.raises(InputError, match="one of the training files"):
        prepare(tmp_path, GOOD, test=str(tmp_path / "ratings.csv"))


def test_limits_of_indices():
    """More users or items than int32 can number are refused."""
    check_entities("user", 2**31 - 1, 10)
    with pytest.raises(InputError, match="2147483648 items"):
        check_entities("item", 2**31, 10)


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GB", 2 * 10**9), ("512 MiB", 512 * 2**20), ("1.5g", 1500000000), ("1e9", 10**9), ("800m", 8 * 10**8)],
)
def test_sizes(text, size):
    """Sizes are written as people write them."""
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GB", "two GB", "-1GB", "1.2.3GB", "5%"])
def test_wrong_sizes(text):
    """Anything that is not a size is refused with an example."""
    with pytest.raises(InputError, match="for example, 2GB"):
        parse_bytes(text)


def test_default_memory():
    """The default stays below what the machine has."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < default_memory() <= 0.6 * physical


def test_a_pipe_is_told_what_to_do(tmp_path: Path) -> None:
    """It cannot be looked at twice: of `prepare <(...)` the shell makes one."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="write what comes through it to a file first"):
        prepare_ratings([str(tmp_path / "pipe")], tmp_path / "out.h5")

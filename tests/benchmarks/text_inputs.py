"""Inputs of `readings.py`: formats, texts, and what is refused."""

import bz2
import gzip
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bench  # noqa: F401  # finds the helpers of tests
import numpy as np
import pandas as pd
import scipy.sparse
from cases import RATED, ROWS, STARS, write_cases
from reading_inputs import (
    BIG,
    COLUMNS,
    FRAME,
    GOOD,
    PLAIN,
    RATINGS,
    Input,
    file,
    in_forms,
    rows,
)
from support import ROOT


def formats() -> Iterator[Input]:
    """Yield the files of the page on formats, plain and packed, and the same ratings in memory."""
    page = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
    for command in re.findall(r"\| `dsgmcmc prepare ([^`]* out\.h5[^`]*)` \|", page):
        path, _, *options = shlex.split(command)
        settings: dict[str, Any] = {}
        while options:
            option, _, value = options.pop(0).removeprefix("--").partition("=")
            if not value and options and not options[0].startswith("--"):
                value = options.pop(0)
            settings[option.replace("-", "_")] = value or True

        def write(place: Path, name: str = path) -> None:
            folder = place.parent / "all"
            folder.mkdir()
            write_cases(folder)
            (folder / name).rename(place)

        def pack(place: Path, name: str = path) -> None:
            folder = place.parent / "all"
            folder.mkdir()
            write_cases(folder)
            if (folder / name).is_file():
                place.write_bytes(gzip.compress((folder / name).read_bytes(), mtime=0))
            else:
                place.write_bytes(gzip.compress(b"", mtime=0))

        yield file(f"format {command}", write, settings, path=path)
        yield file(f"format {command}, packed", pack, settings, path="packed")
    table = pd.DataFrame(ROWS, columns=COLUMNS)
    yield from in_forms("format stars", table, every=True)
    wide = pd.DataFrame(np.where(RATED, STARS, np.nan), [f"u{u}" for u in range(len(STARS))])
    yield from in_forms("format matrix", wide.add_prefix("i"), {"matrix": True}, every=True)


TEXTS = {
    "without header": PLAIN,
    "pandas": "".join(
        f"{k},{line}\n" for k, line in zip(["", *range(10)], GOOD.splitlines(), strict=True)
    ),
    "R": '"","user","item","rating"\n' + rows('"{t}",{u},{i},{r}'),
    "write.table of R": '"user" "item" "rating"\n' + rows('"{t}{u}" {u} {i} {r}'),
    "Excel": "\ufeffuser;item;rating\r\n" + rows("{u};{i};{r}", "\r\n"),
    "mixed line ends": GOOD.replace("\n", "\r\n", 4),
    "mixed line ends, a blank line": "\n" + GOOD.replace("\n", "\r\n"),
    "mixed line ends, a quoted name": GOOD.replace("\n", "\r\n", 4).replace("7,4.0", '"7",4.0'),
    "float ids": rows("{u}.0,{i}.0,{r}"),
    "byte order mark": "\ufeff" + rows('"{u}","{i}","{r}","{t}"', "\r\n"),
    "no last end": GOOD.rstrip("\n"),
    "blank lines": "\n" + GOOD.replace("\n", "\n\n"),
    "header like a comment": "#" + GOOD,
    "comments": "# made by a program\n#\n" + GOOD,
    "header in a comment": "# ratings\n# item user rating\n" + rows("{i} {u} {r}"),
    "comment and header": "% x\nitem  user rating\n" + rows("{i} {u}\t {r} "),
    "spaces and tabs": rows("{u} {i}\t{r} {t}"),
    "columns in line": rows("{u:8} {i:8} {r:5}"),
    "KONECT": "% bip weighted\n% 10 5 4\n" + rows("{u}\t{i}\t{r}\t{t}\t"),
    "RecBole": "item_id:token\tuser_id:token\trating:float\n" + rows("{i}\t{u}\t{r}"),
    "colons": rows("{u}::{i}::{r}::{t}"),
    "spaces around values": "user, item, rating\n" + rows("{u} , {i}, {r} "),
    "other order": "rating,Product_ID,time,User ID\n" + rows("{r},{i},{t},{u}"),
    "JSON array": json.dumps([dict(zip(COLUMNS, row, strict=True)) for row in RATINGS], indent=1),
    "JSON of yes and no": json.dumps(
        [{"user": u, "item": i, "rating": (u + i) % 2 == 0} for u in range(3) for i in range(4)]
    ),
    "quoted names": 'user,item,rating\n"a::b::c,d","say ""x""",1\n"two\nlines",y,3\n',
    "quotes among colons": 'a"::x::1\nb::x::2\n\'c::"y"::3\n',
    "a late name": "user,item,rating\n"
    + "".join(f"{k},{k % 50},{k % 5}\n" for k in range(30_000))
    + '"a ""late"" name",1,2.5\n',
    "float32": "".join(
        f"{k},{k % 2},{value!r}\n"
        for k, value in enumerate([0.1, 1 / 3, 1e-30, -2.7, 123456789.123, 3.4028234e14])
    ),
    "header of names": "alice,x,1\nbob,y,2\ncarol,x,3\n",
    "clicks, recurring first row": "ann\tx\nann\ty\nbob\tx\ncid\ty\n",
    "a name like a comment": 'user,item,rating\n#1 fan,1,2\n%,2,3\n"#",1,4\n',
    "clicks": "user,item\n" + rows("{u},{i}"),
    "clicks without header": rows("{u}\t{i}"),
    "clicks with times": "item,user,time\n" + rows("{i},{u},5"),
    "clicks with row names": ",user,item\n" + rows("{t},{u},{i}"),
    "a column called rating": "user,item,weight,rating,count\n1,1,9,1,7\n1,2,8,2,7\n2,1,7,4,6\n",
    "a column called weight": "user,item,weight\n1,1,9\n1,2,8\n2,1,7\n",
    "two columns may be ratings": "user,item,label,weight\n1,1,0,3\n1,2,1,40\n2,1,0,5\n3,2,1,7\n",
    "odd names": "user,item,rating\nÜnï,1,2\nni\u200b,1,3\n七,2,4\n🎬,2,5\nNULL,3,1\nnan,3,2\n",
    "long ids": f"user,item,rating\n{2**63},1,2\n{2**63 + 1},1,3\n{BIG},2,4\n",
    "rounded names": "user,item,rating\n7.656119797626573e+16,2,3\n5,3,4\n6,2,5\n",
    "hexadecimal names": "user,item,rating\n12e3,2,3\n5,3,4\n6,2,5\n",
    "plus and zeros": "user,item,rating\n+7,1,2\n007,1,3\n7,2,4\n-0,2,5\n",
    "line numbers for users": "".join(f"{k},{k % 7},{k % 9},{k % 5 + 1}\n" for k in range(108)),
    "times for ratings": "".join(
        f"{k // 9},{k % 9},{800_000_000 + 3_000_000 * k},{k % 5}\n" for k in range(108)
    ),
    "ids of reviews": "".join(f"{k // 9},{k % 9},{k},{k % 5}\n" for k in range(108)),
    "close times for ratings": "".join(
        f"{k // 9},{k % 9},{1_300_000_000 + k},{k % 5}\n" for k in range(108)
    ),
}

MTX = "%%MatrixMarket matrix {}\n"
MARKETS = {
    "Fortran": MTX.format("coordinate real general") + "2 2 2\r\n1 1 0.3D+01\r\n2 2 -.5d0\r\n",
    "integers": MTX.format("coordinate integer general") + "2 3 2\n1 3 +4\n\n2 1 -1\n",
    "symmetric": MTX.format("Coordinate Real Symmetric") + "2 2 2\n1 1 5.\n2 1 1e-1\n",
    "skew": MTX.format("coordinate real skew-symmetric") + "2 2 1\n2 1 3\n",
    "array": MTX.format("array real general") + "%x\n2 3\n1\n2\n3\n4\n5\n6\n",
    "pattern": MTX.format("coordinate pattern general") + "999999 900001 3\n1 2\n2 7\n3 2\n",
    "complex": MTX.format("coordinate complex general") + "2 2 1\n1 1 1 1\n",
    "huge": MTX.format("coordinate real general") + "9" * 5000 + " 2 1\n1 1 1\n",
    "no sizes": MTX.format("coordinate real general") + "% a comment\n",
    "cut": MTX.format("coordinate real general") + "2 2 3\n1 1 1\n2 2 2\n",
    "too long": MTX.format("coordinate real general") + "2 2 1\n1 1 1\n2 2 2\n",
    "from 0": MTX.format("coordinate real general") + "2 2 2\n\n1 1 1\n0 1 2\n",
    "beyond": MTX.format("coordinate real general") + "2 2 2\n1 1 1\n1 3 2\n",
    "half a token": MTX.format("coordinate real general") + "2 2 2\n1 1 1x\n2 2 2\n",
    "four values": MTX.format("coordinate real general") + "2 2 2\n1 1 1 7\n2 2 2 8\n",
    "half an integer": MTX.format("coordinate integer general") + "2 2 2\n1 1 2\n2 2 2.5\n",
}


def texts() -> Iterator[Input]:
    """Yield files of text that are read, and matrices in Matrix Market's format."""
    for name, content in TEXTS.items():
        yield file(f"text {name}", content)
    yield file("text bz2", bz2.compress(GOOD.encode()), path="r.bz2")
    for name, content in MARKETS.items():
        yield file(f"market {name}", content, path="r.mtx")
    yield file("market timed", MARKETS["cut"], {"split": "temporal"}, path="r.mtx")
    yield file("market unstored", MARKETS["integers"], {"unstored": "zero"}, path="r.mtx")
    stored = scipy.sparse.coo_matrix(([0.0, 2.0, 3.5], ([0, 1, 2], [0, 1, 1])), shape=(3, 2))
    for form in ("csr", "csc", "coo", "bsr"):
        matrix = stored.asformat(form)

        def save(path: Path, matrix: Any = matrix) -> None:
            scipy.sparse.save_npz(path, matrix)

        yield file(f"sparse {form}", save, path="r.npz")
        yield Input(f"sparse {form}", matrix)
        yield Input(f"sparse {form}, zeros", matrix, {"unstored": "zero"})
    for columns, content in (
        ("user=buyer,item=sku,rating=stars", "stars,sku,buyer\n" + rows("{r},{i},{u}")),
        ("user=3,item=2,rating=1", rows("{r},{i},{u}")),
        (
            "user=who,item=what,rating=rating",
            'rating,who,what,"odd ""x"""\n' + rows("{r},{u},{i},x"),
        ),
        ("item=sku", "stars,sku,userId\n" + rows("{r},{i},{u}")),
        ("rating=none", GOOD),
        ("userId", GOOD),
        ("user=userId,item=film,rating=rating", GOOD),
        ("user=1,item=1,rating=3", PLAIN),
        ("user=u,rating=r", "u,item,r,r\n1,1,1,2\n"),
        ("timestamp=rating", GOOD),
        ("user=a+b,item=c,rating=d", "a+b,a,b,c,d\n1,2,3,4,5\n"),
        ("user=a+b,item=c,rating=d", "a+b,c,d\n1,4,5\n2,4,3\n"),
    ):
        yield file(f"columns {columns} of {content[:20]!r}", content, {"columns": columns})


BAD = {
    "empty": "\ufeff",
    "header only": "userId,movieId,rating\n",
    "missing user": GOOD.replace("100200,31", " ,31"),
    "text": GOOD + "1,7,good,1\n",
    "decimal comma": '1;b;"3,5"\n2;d;4.5\n',
    "1_0": GOOD + "1,9,1_0,1\n",
    "1_0 in JSON": '{"user": 1, "item": 1, "rating": 2}\n{"user": 2, "item": 1, "rating": "1_0"}\n',
    "JSON without a rating": '{"user": 1, "item": 1, "rating": 2}\n{"user": 2, "item": 3}\n',
    "JSON cut": '{"user": 1, "item": 1, "rating": 2}\n{\n',
    "JSON of no objects": "[1, 2]",
    "deep JSON": '{"user": ' + "[" * 3000,
    "too close": "1,1,20000001\n2,2,20000005\n",
    "too close, large": "1,1,1e8\n2,2,100000001\n",
    "two ratings": "user,item,rating,Rating\n1,1,1,2\n2,2,3,4\n",
    "unnamed last column": "user,item,\n1,1,1\n2,2,3\n",
    "not finite": GOOD + "1,7,,1\n1,7,NaN,1\n1,7,1e400,1\n",
    "ragged": GOOD + "1,7,3,4,5\n1,7,x,4\n1\n",
    "after blank lines": GOOD.replace("\n", "\n\n") + "1,7,x,1\n",
    "very many bad lines": GOOD + "1\n" * 20_000,
    "colons, too few": rows("{u}::{i}::{r}::{t}") + "1::2\n",
    "mixed ends, a surplus column": GOOD.replace("\n", "\r\n", 4) + "1,7,3,5,9\n",
    "mixed ends, a short line": GOOD.replace("\n", "\r\n", 4) + "1,7,3\n",
    "not UTF-8": (GOOD + "Am\xe9lie,7,1,1\n").encode("latin-1"),
    "not UTF-8, late": (
        GOOD + "".join(f"{k},1,1,1\n" for k in range(10**4)) + "\xe9,1,1,1\n"
    ).encode("latin-1"),
    "UTF-16": GOOD.encode("utf-16"),
    "UTF-16 without a mark": GOOD.encode("utf-16-be"),
    "open quote": GOOD + '"1,7,3,4\n',
    "Excel": b"PK\x03\x04" + bytes(100),
    "gzip cut": gzip.compress(GOOD.encode(), mtime=0)[:-8],
    "NUL in a name": GOOD + "1\0,1,1,1\n",
    "long first line": "user,item,rating,note\n1,1,1," + "x" * 3_000_000 + "\n",
    "very small": "1,1,1e-30\n2,2,3e-30\n",
    "very large": "1,1,-2e38\n2,2,3e38\n",
    "prose": "Dear user,\nthank you\n",
    "tags": "userId,movieId,tag,timestamp\n1,2,a,3\n",
    "a comment or a row": "#1 fan,7,4\nb,7,3\nc,8,5\n",
    "names in the third column": "".join(
        f"{k:x}\tb{k % 3}\tBand, The {k}\t{k}\n" for k in range(1, 9)
    ),
    "six columns": "1::5::9::4::5::2001-01-01\n" * 3,
    "a matrix of numbers": "1,2,nan,4,5.5\n2,,4,5,6\n",
    "a matrix with a count": "3,-1.5,99,2,3\n2,99,0,99,1\n",
    "libFM with three features": "5 1:1 7:1 9:0.5\n4 2:1 8:1 9:1\n",
    "LIBSVM with queries": "5 qid:1 7:1\n4 qid:2 8:1\n",
    "a name too few": "user,item\n1,7,5\n1,8,4\n2,7,3\n",
    "libFM without ranges": "5 1:1 7:1\n4 7:1 8:1\n",
    "Netflix with a strange line": "1:\n5,3,2005-01-01\n6,x,2005-01-02\n",
    "constant": "1,1,3\n1,2,3\n2,2,3.0\n",
    "one user": "1,1,1\n1,2,2\n",
    "long name": f"{'x' * 1025},1,1\nb,2,2\n",
    "a header that is a row": "alice,x,one\nbob,y,2\ncarol,x,3\n",
    "other tools": b"\0" * 12 + b"\xc2\xea\x81\x60" + b"\0" * 300,
}
REFUSED = {
    "all but none": (GOOD, {"test_fraction": 0.96}),
    "fraction NaN": (GOOD, {"test_fraction": float("nan")}),
    "two ways of testing": (GOOD, {"test": "r.csv", "split": "temporal"}),
    "memory": (GOOD, {"memory": "100MB"}),
    "duplicates": (GOOD + "3,7,1,1\n58,12,2,2\n3,7,2,3\n", {"duplicates": "error"}),
    "zeros alone": ("1,1,0\n1,2,0\n", {"missing": "0"}),
    "no time": (GOOD + "1,7,3,soon\n", {"split": "temporal"}),
    "no column of times": ("1,2,3\n2,3,4\n", {"split": "temporal"}),
    "no variable": (GOOD, {"variable": "x"}),
    "all are stored": (GOOD, {"unstored": "zero"}),
    "no features": (GOOD, {"feature_kinds": {"job": "category"}}),
    "no such file": (GOOD, {"test": "none.csv"}),
}


def refusals() -> Iterator[Input]:
    """Yield files and calls that are refused."""
    for name, content in BAD.items():
        yield file(f"bad {name}", content)
    for name, (content, settings) in REFUSED.items():
        yield file(f"refused {name}", content, settings)
    yield Input("refused no file", ("none.csv",))
    yield Input("refused a folder", ("empty/..",), {}, {"empty/x": ""})
    yield Input("bad second file", ("r.csv", "bad.csv"), {}, {"r.csv": GOOD, "bad.csv": "1,3,x\n"})
    for name, given in {
        "one column": [[1], [2]],
        "text": np.array([["a", "b", "c"]]),
        "three dimensions": np.zeros((2, 3, 4)),
        "nothing": [],
        "None": None,
        "two columns": np.array([[1, 2], [2, 3]]),
        "complete, four columns": np.ones((5, 4)),
        "complex": np.ones((5, 6), complex),
        "rounded floats": FRAME.assign(user=float(BIG) + FRAME.user).to_numpy(),
        "float32 ids": FRAME.assign(user=np.float32(2**24) + FRAME.user.astype(np.float32)),
        "half ids": FRAME.assign(user=FRAME.user + 0.5),
        "truth for users": FRAME.assign(user=FRAME.user > 50),
        "dates for ratings": FRAME.assign(rating=pd.to_datetime(FRAME.timestamp, unit="s")),
        "no user": FRAME.drop(columns="user"),
        "an index of users": FRAME.set_index("user"),
        "repeated columns": pd.concat([FRAME, FRAME[["rating"]]], axis=1),
    }.items():
        yield Input(f"object {name}", given)
    yield Input("object y too short", FRAME[["user", "item"]], y=[1.0, 2.0])
    yield Input("object y of texts", FRAME[["user", "item"]], y=["a"] * 10)
    yield Input("object masked", np.ma.masked_array(STARS, ~RATED))
    indexed = FRAME.set_index(["user", "item"]).rating
    for name, given in {
        "series": indexed,
        "without names": indexed.rename_axis([None, None]),
    }.items():
        yield Input(f"object {name}", given)


def inputs() -> Iterator[Input]:
    """Yield all of them."""
    yield from formats()
    yield from texts()
    yield from refusals()

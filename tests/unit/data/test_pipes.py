"""Ratings that come through pipes: `prepare -`, `<(...)` and named pipes read as the same files do."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest
from ingest_cases import RATINGS, everything, lines
from support import dsgmcmc

from dsgmcmc.data.ingest.pipes import at_rest
from dsgmcmc.errors import InputError

TEXT = lines(header=True).encode()
OBJECTS = "".join(json.dumps(dict(zip(("user", "item", "rating"), each, strict=False))) + "\n" for each in RATINGS)
MATRIX = b"%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 3.5\n2 2 4.5\n"


def prepare(folder: Path, *arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """`dsgmcmc prepare ... out.h5` in a folder, with this standard input."""
    command = dsgmcmc("prepare", *arguments, "out.h5", "--force", "--json")
    return subprocess.run(command, cwd=folder, input=given, capture_output=True, timeout=200)


@contextmanager
def pipe(path: Path, content: bytes) -> Iterator[Path]:
    """A named pipe that somebody writes to."""
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(content,), daemon=True)
    writer.start()
    yield path
    writer.join(60)


def parquet(folder: Path) -> bytes:
    """The small set of ratings as Parquet."""
    (folder / "p.csv").write_bytes(TEXT)
    duckdb.sql(f"COPY (SELECT * FROM read_csv('{folder}/p.csv')) TO '{folder}/p.parquet'")
    return (folder / "p.parquet").read_bytes()


def test_standard_input_is_read_as_a_file_is(tmp_path: Path) -> None:
    """Text, compressed text, JSON lines and Parquet, each recognised by what it begins with; nothing stays behind."""
    expected = {(user, item): rating for user, item, rating, _ in RATINGS}
    for content in (TEXT, gzip.compress(TEXT), OBJECTS.encode(), parquet(tmp_path)):
        done = prepare(tmp_path, "-", given=content)
        assert done.returncode == 0, done.stderr
        assert everything(tmp_path / "out.h5") == expected
    assert {path.name for path in tmp_path.iterdir()} == {"out.h5", "p.csv", "p.parquet"}
    assert prepare(tmp_path, "/dev/stdin", given=MATRIX).returncode == 0
    assert everything(tmp_path / "out.h5") == {(1, 1): 3.5, (2, 2): 4.5}


def test_errors_name_what_was_given(tmp_path: Path) -> None:
    """Standard input or the pipe, with the line, and not a copy that nobody knows of."""
    said = prepare(tmp_path, "-", given=b"user,item,rating\n1,2,3\n1,4,x\n").stderr.decode()
    assert said.startswith("dsgmcmc: standard input: 1 row has")
    assert "line 3" in said
    assert prepare(tmp_path, "-").stderr.decode() == "dsgmcmc: standard input is empty\n"
    assert "given twice" in prepare(tmp_path, "-", "--test", "/dev/stdin").stderr.decode()
    with pipe(tmp_path / "ratings", b"user,item,rating\n1,2\n") as path:
        assert prepare(tmp_path, str(path)).stderr.decode().startswith(f"dsgmcmc: {path}: 1 row has")


def test_files_stay_where_they_are(tmp_path: Path) -> None:
    """What is no pipe is not copied; what is one is gone with the context, also where there is an error."""
    (file := tmp_path / "r.csv").write_bytes(TEXT)
    with at_rest([file, None]) as copies:
        assert copies.of(file) == file
    seen = []

    def read(path: Path) -> None:
        with at_rest([path], tmp_path) as copies:
            seen.append(copies.of(path))
            assert seen[0].read_bytes() == TEXT
            raise InputError(f"{seen[0]} has no meaning")

    with pipe(tmp_path / "fifo", TEXT) as path, pytest.raises(InputError, match=f"{path} has no"):
        read(path)
    assert not seen[0].exists()

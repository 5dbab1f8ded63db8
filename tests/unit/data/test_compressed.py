"""Files of pairs and of features that are compressed are read as those that are not."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from dsgmcmc.data.features import Description, read_description
from dsgmcmc.data.pairs import load_pairs
from dsgmcmc.data.session import default_memory, open_session
from dsgmcmc.errors import InputError

CONTENT = b"user,item,job\n1,2,writer\n3,4,nurse\n"
PACKED = {"x.csv": CONTENT, "x.csv.gz": gzip.compress(CONTENT)}


@pytest.mark.parametrize("name", PACKED)
def test_any_compression(tmp_path: Path, name: str) -> None:
    """By its content."""
    (path := tmp_path / name).write_bytes(PACKED[name])
    with open_session(tmp_path, default_memory()) as (db, _):
        load_pairs(db, path, {})
        assert db.execute("SELECT user, item FROM pairs").fetchall() == [("1", "2"), ("3", "4")]
        table = read_description(db, "user", Description(path))
        assert db.execute(f"SELECT id, {table.columns['job']} FROM {table.name}").fetchall() == [
            ("1", "writer"),
            ("3", "nurse"),
        ]


def test_half_a_file_is_refused(tmp_path: Path) -> None:
    """One that was cut short says so, whatever it is of."""
    (path := tmp_path / "x.csv.gz").write_bytes(gzip.compress(CONTENT)[:-8])
    with open_session(tmp_path, default_memory()) as (db, _):
        for read in (
            lambda: load_pairs(db, path, {}),
            lambda: read_description(db, "user", Description(path)),
        ):
            with pytest.raises(InputError, match=r"x\.csv\.gz"):
                read()

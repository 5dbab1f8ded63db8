"""Which columns of a file of pairs are users and items."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from dsgmcmc.data.columns import parse_columns
from dsgmcmc.data.pairs import ROLES, PairsTable, load_pairs
from dsgmcmc.errors import InputError


def load(tmp_path: Path, text: str, columns: str | None = None) -> PairsTable:
    """Read a file with this text."""
    (path := tmp_path / "pairs.csv").write_text(text)
    with duckdb.connect() as db:
        return load_pairs(db, path, parse_columns(columns, ROLES))


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("a,b\nc,d\n", None, ("user", "item", 1)),
        ("movie,userId\na,b\n", None, ("userId", "movie", 2)),
        ("sku,userId\na,b\n", "item=sku", ("userId", "sku", 2)),
        ("7,8\n3,4\n", "user=2,item=1", ("item", "user", 1)),
    ],
)
def test_columns_of_pairs(tmp_path, text, columns, expected):
    """Columns that are named come first, then known names, and without a header the first two."""
    table = load(tmp_path, text, columns)
    assert (table.user, table.item, table.file.first_line) == expected


def test_a_header_with_one_known_name_is_no_pair(tmp_path):
    """If it were read as a pair, nobody would see that the columns may be in another order."""
    with pytest.raises(InputError, match=r"cannot tell which column is item \(columns sku, userId\); name them with"):
        load(tmp_path, "sku,userId\na,b\n")

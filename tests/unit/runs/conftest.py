"""Ratings for the tests of runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import write_planted


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """29 rows, 17 columns, about 250 ratings, 50 of them for testing."""
    return write_planted(tmp_path_factory.mktemp("data") / "r.h5")

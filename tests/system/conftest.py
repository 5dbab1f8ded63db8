"""Fixtures of tests that start whole commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import run, write_planted
from tiny import command


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small ratings file."""
    return write_planted(tmp_path_factory.mktemp("data") / "r.h5")


@pytest.fixture(scope="module")
def finished(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run of two processes that ended well."""
    out = tmp_path_factory.mktemp("run") / "run"
    run(*command(data, out, 2, iterations=40, noise_precision="sampled")).expect(0)
    return out

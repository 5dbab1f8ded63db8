"""Fixtures of tests that start whole commands."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support import run
from tiny import command


@pytest.fixture(scope="session")
def finished(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run of two processes that ended well, which no test changes."""
    out = tmp_path_factory.mktemp("run") / "run"
    run(*command(data, out, 2, iterations=40, noise_precision="sampled")).expect(0)
    return out


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Pairs to predict."""
    path = tmp_path / "pairs.csv"
    path.write_text("user,item\n0,1\n")
    return path


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """File system of its own with 1.5 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    if (mounted := run("mount", "-t", "tmpfs", "-o", "size=1500k", "tmpfs", place)).code:
        pytest.skip(f"mounting needs root: {mounted.err.strip()}")
    yield place
    run("umount", place).expect()

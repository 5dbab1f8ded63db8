"""HDF5 files that are written: no failed write is missed, and HDF5 closes cleanly whatever comes in between."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support import injected

from dsgmcmc.storage.hdf5 import new_hdf5


def fill(path: Path, sets: int = 40) -> None:
    """Write data sets of 8 bytes to 400 kB."""
    with new_hdf5(path) as (file, check):
        for number in range(sets):
            file.create_dataset(f"a/{number}", data=np.arange(1 + 50_000 * (number % 2), dtype=np.float64))
            check()


def is_open(path: Path) -> bool:
    """Whether this process has the file open."""
    return str(path) in {str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()}


@pytest.fixture
def limit() -> Iterator[None]:
    """Files of this process can have 100,000 bytes, as on a disk that is full then."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, ignored)


@pytest.mark.usefixtures("limit")
@pytest.mark.parametrize("sets", [1, 2, 40])
def test_a_full_disk_is_an_error_with_the_name(tmp_path: Path, sets: int) -> None:
    """A part of a large data set is written, which the system calls success; small ones wait for the file's end."""
    path = tmp_path / "a.h5"
    if sets == 1:
        fill(path, sets)
        return
    with pytest.raises(OSError, match=r"a\.h5") as caught:
        fill(path, sets)
    assert caught.value.errno == errno.EFBIG
    assert not is_open(path)


INTERRUPTED = """
import sys
from pathlib import Path
from dsgmcmc.storage.hdf5 import new_hdf5
try:
    with new_hdf5(Path(sys.argv[1])) as (file, check):
        for number in range(40):
            file[f"a/{number}"] = [1.0] * (1 + 50_000 * (number % 2))
            check()
except KeyboardInterrupt:
    print("interrupted after", number)
"""


@pytest.mark.parametrize(("at", "after"), [(1, 0), (2, 1), (20, 19), (45, 39)])
def test_an_interrupt_while_hdf5_writes(tmp_path: Path, at: int, after: int) -> None:
    """It ends the writing at the next look, or at the file's end; HDF5 is not told, which would not close it then."""
    command = [sys.executable, "-c", INTERRUPTED, tmp_path / "a.h5"]
    environment = {**os.environ, **injected(f"write=int,at={at}")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"interrupted after {after}\n", "")

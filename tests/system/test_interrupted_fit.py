"""Ctrl-C while `BPMF.fit` samples: a checkpoint is written, and `fit` goes on from there."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from support import planted

FIT_TWICE = """
import sys
from pathlib import Path
import numpy as np
from dsgmcmc import BPMF
from dsgmcmc.storage.series import steps
X, jobs, verbose = np.load("x.npy"), int(sys.argv[1]), {"quiet": False, "": None}[sys.argv[2]]
model = BPMF(rank=2, iterations=10**7, burn_in=20, out="run", options={"grid": 4}, n_jobs=jobs, verbose=verbose)
try:
    model.fit(X)
except KeyboardInterrupt as error:
    print(*error.__notes__)
reached = steps(Path("run/checkpoints/chain-0"))[-1]
model.set_params(warm_start=True, iterations=reached + 200).fit(X)
print(model.run_.traces[0]["iteration"][-1, 0] > reached)
"""


def fitting(folder: Path, n_jobs: int, how: str = "") -> subprocess.Popen[str]:
    """Start `FIT_TWICE` in a folder, with its temporary files in ``scratch`` there; wait until it samples."""
    np.save(folder / "x.npy", np.column_stack(planted()))
    (folder / "scratch").mkdir()
    environment = {**os.environ, "TMPDIR": str(folder / "scratch")}
    command = [sys.executable, "-c", FIT_TWICE, str(n_jobs), how]
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    end = time.monotonic() + 100
    while not any(path.stat().st_size > 1000 for path in (folder / "run").glob("metrics*")):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.05)
    return process


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_interrupted_fit_goes_on(tmp_path: Path, n_jobs: int) -> None:
    """In a terminal Ctrl-C goes to all processes, in a notebook to one: nothing is lost, and no temporary file left."""
    with fitting(tmp_path, n_jobs) as process:
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=200)
    assert "warm_start=True goes on" in output
    assert output.splitlines()[-1] == "True"
    assert not [path for path in (tmp_path / "scratch").iterdir() if not path.name.startswith("ompi")]


@pytest.mark.parametrize(("n_jobs", "how"), [(1, ""), pytest.param(1, "quiet", marks=pytest.mark.long), (2, "")])
def test_a_killed_fit_leaves_no_process(tmp_path: Path, n_jobs: int, how: str) -> None:
    """As when a notebook's kernel is restarted: they would sample on for ever, whether or not they say how far."""
    with fitting(tmp_path, n_jobs, how) as process:
        assert sampling(tmp_path)
        process.kill()
    end = time.monotonic() + 60
    while sampling(tmp_path):
        assert time.monotonic() < end
        time.sleep(0.1)


def sampling(folder: Path) -> list[str]:
    """Processes whose command names a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if str(folder) in path.read_text(errors="replace"):
                found.append(path.parent.name)
    return found

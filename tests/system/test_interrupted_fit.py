"""Ctrl-C while `BPMF.fit` samples in processes of their own: a checkpoint is written, and `fit` goes on from there."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
from support import planted, wait_until

FIT_TWICE = """
from pathlib import Path
import numpy as np
from dsgmcmc import BPMF
from dsgmcmc.storage.store import steps
X = np.load("x.npy")
model = BPMF(rank=2, iterations=10**7, burn_in=20, out="run", options={"grid": 4}, n_jobs=2)
try:
    model.fit(X)
except KeyboardInterrupt as error:
    print(*error.__notes__)
reached = steps(Path("run/checkpoints/chain-0"))[-1]
model.set_params(warm_start=True, iterations=reached + 200).fit(X)
print(model.run_.traces[0]["iteration"][-1, 0] > reached)
"""


def fitting(folder: Path) -> subprocess.Popen[str]:
    """Start `FIT_TWICE` in a folder, with its temporary files in ``scratch`` there; wait until it samples."""
    np.save(folder / "x.npy", np.column_stack(planted()))
    (folder / "scratch").mkdir()
    environment = {**os.environ, "TMPDIR": str(folder / "scratch")}
    process = subprocess.Popen(
        [sys.executable, "-c", FIT_TWICE], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    )

    def samples() -> bool:
        assert process.poll() is None
        return any(path.stat().st_size > 1000 for path in (folder / "run").glob("metrics*"))

    wait_until(samples, lambda: "no metrics")
    return process


def test_an_interrupted_fit_goes_on(tmp_path: Path) -> None:
    """In a terminal Ctrl-C goes to all processes, in a notebook to one: nothing is lost, and no temporary file left."""
    with fitting(tmp_path) as process:
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=200)
    assert "warm_start=True goes on" in output
    assert output.splitlines()[-1] == "True"
    assert not [path for path in (tmp_path / "scratch").iterdir() if not path.name.startswith("ompi")]


def test_a_killed_fit_leaves_no_process(tmp_path: Path) -> None:
    """As when a notebook's kernel is restarted: those that it had started would sample on for ever."""
    with fitting(tmp_path) as process:
        assert sampling(tmp_path)
        process.kill()
    wait_until(lambda: not sampling(tmp_path), lambda: f"still sampling: {sampling(tmp_path)}")


def sampling(folder: Path) -> list[str]:
    """Processes whose command names a folder."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # the process has ended
            if str(folder) in path.read_text(errors="replace"):
                pids.append(path.parent.name)
    return pids

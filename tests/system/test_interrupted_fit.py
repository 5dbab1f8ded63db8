"""Ctrl-C while `BPMF.fit` samples in processes of their own: a checkpoint is written, and `fit`
goes on from there.
"""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support import Running, planted, processes, wait_until

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


@pytest.fixture
def fitting(tmp_path: Path) -> Iterator[Running]:
    """`FIT_TWICE`, with its temporary files in a folder ``scratch``, when it samples."""
    np.save(tmp_path / "x.npy", np.column_stack(planted()))
    (tmp_path / "scratch").mkdir()
    scratch = {"TMPDIR": str(tmp_path / "scratch")}
    with Running([sys.executable, "-c", FIT_TWICE], scratch, tmp_path) as running:
        logs = (tmp_path / "run").glob
        running.until(
            lambda: any(path.stat().st_size > 1000 for path in logs("metrics*")), "sampling"
        )
        yield running


def test_an_interrupted_fit_goes_on(fitting: Running, tmp_path: Path) -> None:
    """In a terminal Ctrl-C goes to all processes, in a notebook to one: nothing is lost, and no
    temporary file left.
    """
    fitting.signal(signal.SIGINT)
    output = fitting.wait().expect().out
    assert "warm_start=True continues" in output
    assert output.splitlines()[-1] == "True"
    assert not [
        path for path in (tmp_path / "scratch").iterdir() if not path.name.startswith("ompi")
    ]


def test_a_killed_fit_leaves_no_process(fitting: Running, tmp_path: Path) -> None:
    """As when a notebook's kernel is restarted: those that it had started would sample on for
    ever.
    """
    place = f"TMPDIR={tmp_path / 'scratch'}".encode()

    def left() -> list[int]:
        return [pid for pid, _, variables in processes() if place in variables]

    assert len(left()) > 2
    fitting.signal(signal.SIGKILL)
    wait_until(lambda: not left(), left, 60)

"""Progress of `fit` where there is no terminal: in a notebook one line, which changes; else plain
lines.
"""

import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from support import TIMEOUT, planted, run, wait_until, write_planted

from dsgmcmc.errors import InputError
from dsgmcmc.parallel.mpirun import run_sample

CELLS = [
    """
import numpy as np
from dsgmcmc import BPMF
X = np.load("x.npy")
settings = dict(rank=2, iterations=600, burn_in=20, test_fraction=0.1)
model = BPMF(**settings).fit(X)""",
    "BPMF(verbose=False, **settings).fit(X);",
    "BPMF(**settings, n_jobs=2, options={'grid': 3}).fit(X);",
    "BPMF(**settings, options={'grid': 1000}).fit(X)",
]


def test_lines_come_without_control_characters(tmp_path: Path, capsys, monkeypatch) -> None:
    """Kernels of notebooks set FORCE_COLOR, as if there was a terminal: what comes is text, and
    warnings apart.
    """
    monkeypatch.setenv("FORCE_COLOR", "1")
    settings = {"rank": 2, "iterations": 600, "burn_in": 20, "grid": 3}
    run_sample(
        write_planted(tmp_path / "r.h5"), tmp_path / "run", settings, processes=2, verbose=True
    )
    shown = capsys.readouterr().err.splitlines()
    assert all(line.isprintable() for line in shown)
    assert any("iteration 600/600" in line for line in shown)


def test_an_error_is_said_once_and_whole(tmp_path: Path, capsys) -> None:
    """The exception has all its lines, and nothing else prints them."""
    data = write_planted(tmp_path / "r.h5")
    run_sample(data, tmp_path / "run", {"rank": 2, "iterations": 30, "burn_in": 5})
    changed = {"rank": 3, "iterations": 60}
    with pytest.raises(
        InputError, match=r"other settings.*\n  rank: 2 in the run, 3 requested\n  Leave"
    ):
        run_sample(data, tmp_path / "run", changed, options=["--resume"], verbose=True)
    assert "rank: 2" not in capsys.readouterr().err


def test_a_notebook_shows_one_line_that_changes(tmp_path: Path) -> None:
    """A real kernel runs the cells: one line that changes, nothing, lines of several processes."""
    pytest.importorskip("nbclient", reason="pip install nbclient ipykernel")
    pytest.importorskip("ipykernel")
    import nbformat

    np.save(tmp_path / "x.npy", np.column_stack(planted()))
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    book = tmp_path / "book.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), book)
    environment = {"IPYTHONDIR": str(tmp_path), "JUPYTER_RUNTIME_DIR": str(tmp_path)}
    execute = Path(sys.executable).with_name("jupyter-execute")
    run(
        execute,
        "--kernel_name=python3",
        "--allow-errors",
        "--inplace",
        book,
        env=environment,
        cwd=tmp_path,
    ).expect()
    outputs = [cell["outputs"] for cell in nbformat.read(book, 4)["cells"]]
    text = "".join(output["text"] for output in outputs[0])
    assert "\n" not in text
    assert re.fullmatch(r"chain 0  iteration 600/600  RMSE: .* left", text.rpartition("\r")[2])
    assert outputs[1] == []
    assert "iteration 600/600" in "".join(output["text"] for output in outputs[2])
    assert "grid 1000" in outputs[3][-1]["evalue"]


def test_an_interrupted_cell_ends_by_ctrl_c(tmp_path: Path) -> None:
    """A notebook's button sends SIGINT: the cell ends with `KeyboardInterrupt` after a checkpoint,
    and the kernel goes on.
    """
    pytest.importorskip("ipykernel", reason="pip install nbclient ipykernel")
    from jupyter_client.manager import start_new_kernel

    np.save(tmp_path / "x.npy", np.column_stack(planted()))
    environment = {**os.environ, "IPYTHONDIR": str(tmp_path), "JUPYTER_RUNTIME_DIR": str(tmp_path)}
    manager, client = start_new_kernel(cwd=str(tmp_path), env=environment)
    try:
        cell = CELLS[0].replace("iterations=600", "iterations=10**7, out='run'")
        number = client.execute(cell)
        wait_until(lambda: list(tmp_path.glob("run/metrics*")), lambda: "nothing is sampled")
        manager.interrupt_kernel()
        reply = client.get_shell_msg(timeout=TIMEOUT)
        while reply["parent_header"]["msg_id"] != number:  # those of the kernel's start
            reply = client.get_shell_msg(timeout=TIMEOUT)
        assert reply["content"]["ename"] == "KeyboardInterrupt"
        following = client.execute("assert np.load('x.npy').size", reply=True, timeout=TIMEOUT)
        assert following["content"]["status"] == "ok"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert list(tmp_path.glob("run/checkpoints/chain-0/step-*"))

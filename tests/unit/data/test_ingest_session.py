"""The DuckDB session: used from any thread, it reports progress and leaves the process as it was."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from ingest_cases import everything, lines, prepare

from dsgmcmc.data.session import MINIMUM, open_session
from dsgmcmc.errors import InputError


def test_progress_rises(tmp_path):
    """Stages come in order, and the fraction done goes from 0 towards 1 and never back."""
    seen: list[tuple[str, float]] = []
    prepare(tmp_path, lines(), report=lambda stage, fraction: seen.append((stage, fraction)))
    fractions = [fraction for _, fraction in seen]
    assert fractions == sorted(fractions)
    assert fractions[0] == 0
    assert 0.8 <= fractions[-1] <= 1
    stages = list(dict.fromkeys(stage for stage, _ in seen))
    assert [stage.split()[0] for stage in stages] == [
        "reading",
        "numbering",
        "matching",
        "splitting",
        "sorting",
        "writing",
    ]


def test_in_another_thread(tmp_path):
    """A program may prepare in a thread, where signals cannot be handled."""
    errors: list[BaseException] = []

    def work() -> None:
        try:
            prepare(tmp_path, lines())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert errors == []
    assert len(everything(tmp_path / "out.h5")) == 10


def test_signals_are_given_back(tmp_path):
    """Afterwards the program's own way of waking up at signals, and its threads, are as before."""
    threads = threading.active_count()
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    prepare(tmp_path, lines())
    with pytest.raises(InputError):
        prepare(tmp_path, "1,1,x\n")
    assert signal.set_wakeup_fd(-1) == -1
    assert threading.active_count() == threads
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers


def execute(folder: Path, *queries: str) -> None:
    with open_session(folder, MINIMUM, 1) as (db, _):
        for query in queries:
            db.execute(query)


def test_too_little_memory_is_said(tmp_path):
    """A query that needs more than the limit and the disk ends in advice, and the folder is empty again."""
    query = "CREATE TABLE t AS SELECT md5(range::VARCHAR) AS a FROM range(10000000)"
    with pytest.raises(InputError, match=r"--memory or set --temp-dir"):
        execute(tmp_path, "SET max_temp_directory_size = '1MB'", query)
    assert list(tmp_path.iterdir()) == []


def test_a_signal_ends_a_query(tmp_path):
    """Ctrl-C in the middle of a query that would take hours ends it as KeyboardInterrupt."""
    timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        execute(tmp_path, "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range % 7 = 3")
    timer.join()
    assert list(tmp_path.iterdir()) == []


#: What DuckDB takes for the kernel of a notebook, in which ipywidgets are not installed.
NOTEBOOK = """
import sys, types
kernel = types.SimpleNamespace(config={"IPKernelApp": {}})
sys.modules["IPython"] = types.ModuleType("IPython")
sys.modules["IPython"].get_ipython = lambda: kernel
sys.modules["ipywidgets"] = None
from pathlib import Path
from dsgmcmc.data.session import MINIMUM, open_session
with open_session(Path("."), MINIMUM) as (connection, _):
    print(connection.execute("SELECT 1").fetchall())
"""


def test_a_notebook_without_widgets(tmp_path):
    """There DuckDB refuses to count, for want of a bar to show it in: `fit` failed in every plain notebook."""
    done = subprocess.run([sys.executable, "-c", NOTEBOOK], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "[(1,)]\n", done.stderr

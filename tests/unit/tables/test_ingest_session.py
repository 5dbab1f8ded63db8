"""The DuckDB session: limits of memory, signals, and notebooks."""

import signal
import sys
import threading
from pathlib import Path

import pytest
from support import run

from dsgmcmc.errors import InputError
from dsgmcmc.tables.session import MIN_MEMORY, interruptible, open_session, parse_bytes

QUERY = (  # takes hours
    "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range % 7 = 3"
)


def test_too_little_memory_is_said(tmp_path):
    """A query that needs more than the memory and the disk ends with advice, and the folder is
    empty again.
    """
    query = (
        "SET max_temp_directory_size = '1MB'; CREATE TABLE t AS SELECT md5(range::VARCHAR) FROM"
        " range(10000000)"
    )
    with (
        pytest.raises(InputError, match="raise --memory"),
        open_session(tmp_path, MIN_MEMORY) as db,
    ):
        db.execute(query)
    assert list(tmp_path.iterdir()) == []


def test_a_signal_ends_a_query(tmp_path):
    """Ctrl-C in a query ends it as KeyboardInterrupt, and the process is as before."""
    threads = threading.active_count()
    timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt), open_session(tmp_path, MIN_MEMORY) as db:
        interruptible(db, lambda: db.execute(QUERY))
    timer.join()
    assert list(tmp_path.iterdir()) == []
    assert threading.active_count() == threads


def test_sizes():
    """Sizes are written as people write them; anything else is refused with an example."""
    sizes = {"2GB": 2 * 10**9, "512 MiB": 512 * 2**20, "1.5g": 15 * 10**8, "800000000": 8 * 10**8}
    assert {text: parse_bytes(text) for text in sizes} == sizes
    for text in ("", "GB", "two GB", "-1GB"):
        with pytest.raises(InputError, match="for example, 2GB"):
            parse_bytes(text)


#: A program that DuckDB takes for the kernel of a notebook without ipywidgets.
NOTEBOOK = """
import sys, types
kernel = types.SimpleNamespace(config={"IPKernelApp": {}})
sys.modules["IPython"] = types.ModuleType("IPython")
sys.modules["IPython"].get_ipython = lambda: kernel
sys.modules["ipywidgets"] = None
from pathlib import Path
from dsgmcmc.tables.session import open_session
with open_session(Path(".")) as connection:
    print(connection.execute("SELECT 1").fetchall())
"""


def test_a_notebook_without_widgets(tmp_path: Path) -> None:
    """A query runs in a notebook in which DuckDB cannot show its progress bar."""
    assert run(sys.executable, "-c", NOTEBOOK, cwd=tmp_path).expect().out == "[(1,)]\n"

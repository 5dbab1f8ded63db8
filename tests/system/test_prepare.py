"""``dsgmcmc prepare`` as users run it: a process, its output, its exit code, its memory, its files."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time

import pytest
from support import typed, write_synthetic

from dsgmcmc.data.ratings import open_ratings

COMMAND = [sys.executable, "-m", "dsgmcmc", "prepare"]
TIMEOUT = 120


def prepare(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=TIMEOUT, **options)


def test_movielens_1m(datasets, tmp_path):
    """MovieLens 1M comes out with its published sizes, half of the users' ratings in any half of the rows."""
    out = tmp_path / "ml-1m.h5"
    run = prepare(datasets / "ml-1m" / "ratings.dat", out)
    assert (run.returncode, run.stderr) == (0, "")
    for text in ("6,040", "3,706", "1,000,209", "900,188", "100,021", "3.58", str(out)):
        assert text in run.stdout
    with open_ratings(out) as ratings:
        ratings.verify()
        assert (ratings.n_rows, ratings.n_cols, ratings.nnz, ratings.nnz_test) == (6040, 3706, 900188, 100021)
        assert (ratings.minimum, ratings.maximum, ratings.transposed) == (1, 5, False)
        assert sorted(ratings.row_ids()) == list(range(1, 6041))
        assert abs(ratings.row_indptr[3020] - ratings.nnz / 2) < 0.05 * ratings.nnz
        assert ratings.source == "ratings.dat"


def test_published_split_of_movielens_100k(datasets, tmp_path):
    """The published split comes out as published, with the items that only its test part has."""
    base, test = datasets / "ml-100k" / "u1.base", datasets / "ml-100k" / "u1.test"
    run = prepare(base, tmp_path / "u1.h5", "--test", test, "--json")
    found = json.loads(run.stdout)
    assert (found["train"], found["test"], found["items"]) == (80000, 20000, 1682)
    overlap = prepare(datasets / "ml-100k" / "u.data", tmp_path / "x.h5", "--test", test)
    assert overlap.returncode == 2
    assert "20000 pairs of a user and an item are in both" in overlap.stderr
    assert not (tmp_path / "x.h5").exists()


def test_every_option(tmp_path):
    """All options at once reach their place."""
    (tmp_path / "r.unknown").write_text("who;what;stars;when\n1;1;2;5\n1;2;3;6\n2;1;4;7\n1;1;4;8\n")
    run = prepare(
        *(tmp_path / "r.unknown", tmp_path / "out.h5", "--split", "temporal"),
        *("--columns", "user=who,item=what,rating=stars,timestamp=when", "--test-fraction", "0.34", "--seed", "3"),
        *("--duplicates", "mean", "--memory", "500MB", "--temp-dir", tmp_path, "--threads", "1", "--force", "--json"),
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert (found["ratings"], found["test"], found["mean"]) == (3, 1, 3.5)
    with open_ratings(tmp_path / "out.h5") as ratings:
        assert ratings.seed == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.h5", "r.unknown"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.csv", "out.h5"], "none.csv does not exist"),
        (["bad.csv", "out.h5"], "bad.csv: 1 line cannot be read"),
        (["good.csv", "there.h5"], "there.h5 exists"),
        (["good.csv", "out.h5", "--split", "sideways"], "sideways"),
    ],
)
def test_wrong_use(tmp_path, monkeypatch, arguments, message):
    """Exit status 2, one message without a traceback, and nothing written."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.csv").write_text("1,1,2\n1,2,3\n2,1,4\n")
    (tmp_path / "bad.csv").write_text("1,1,2\n1,2,three\n2,1,4\n")
    (tmp_path / "there.h5").write_text("something")
    run = typed("prepare", *arguments).expect(2)
    assert message in run.err
    assert run.out == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.csv", "good.csv", "there.h5"]
    assert (tmp_path / "there.h5").read_text() == "something"


def test_progress_on_a_terminal_only(tmp_path):
    """A bar moves on a terminal; a log file gets the summary alone."""
    (tmp_path / "r.csv").write_text("1,1,2\n1,2,3\n2,1,4\n")
    reader, terminal = os.openpty()
    try:
        run = subprocess.run(
            [*COMMAND, str(tmp_path / "r.csv"), str(tmp_path / "out.h5")],
            stdout=subprocess.PIPE,
            stderr=terminal,
            env={**os.environ, "TERM": "xterm"},
            timeout=TIMEOUT,
        )
        shown = os.read(reader, 1 << 16).decode()
    finally:
        os.close(terminal)
        os.close(reader)
    assert run.returncode == 0
    assert "━" in shown
    assert "━" not in run.stdout.decode()
    assert "\x1b" not in run.stdout.decode()


def test_without_pandas_and_pyarrow(tmp_path):
    """Neither is a dependency, so every format must be read without them."""
    import scipy.sparse

    scipy.sparse.save_npz(tmp_path / "r.npz", scipy.sparse.random(50, 40, 0.2, random_state=0))
    block = "import sys; sys.modules.update(pandas=None, pyarrow=None); from dsgmcmc.cli.app import main; main()"
    run = subprocess.run(
        [sys.executable, "-c", block, "prepare", str(tmp_path / "r.npz"), str(tmp_path / "out.h5")],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert run.returncode == 0, run.stderr
    assert "400" in run.stdout


@pytest.mark.parametrize("limit", [3_000_000, 8_000_000])
def test_full_disk(tmp_path, limit):
    """A disk too small for the result or for spilled data: one message, exit 1, nothing left."""
    write_synthetic(tmp_path / "r.csv", 5000, 5000, 1_000_000)
    run = prepare(
        tmp_path / "r.csv",
        tmp_path / "out.h5",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert run.returncode == 1
    assert "File too large" in run.stderr
    assert "Traceback" not in run.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["r.csv"]


@pytest.mark.parametrize(("number", "delay"), [(signal.SIGINT, 0.7), (signal.SIGTERM, 0.0)])
def test_interrupted(tmp_path, number, delay):
    """Ctrl-C and SIGTERM in the middle end the run soon, with its own exit status and nothing left."""
    write_synthetic(tmp_path / "r.csv", 40_000, 20_000, 4_000_000)
    with subprocess.Popen(
        [*COMMAND, str(tmp_path / "r.csv"), str(tmp_path / "out.h5")], stderr=subprocess.PIPE, text=True
    ) as process:
        while not any(path.name.startswith(".dsgmcmc-prepare") for path in tmp_path.iterdir()):
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(delay)
        process.send_signal(number)
        _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130
    assert "interrupted" in errors
    assert "Traceback" not in errors
    assert [path.name for path in tmp_path.iterdir()] == ["r.csv"]

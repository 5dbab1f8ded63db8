"""Files with random damage, each opened in a process of its own with limits of memory and time.

A reader gives what was written or says what is wrong; it never crashes, hangs, fills the memory or gives anything
else. One process loads the libraries and forks once for every damaged file.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from support import csr, planted

from dsgmcmc.data.ratings import write_ratings
from dsgmcmc.storage.manifest import Key, SmallArray
from dsgmcmc.storage.writer import write_snapshot

FORKER = r"""
import hashlib, json, os, pathlib, random, resource, shutil, signal, sys
import numpy as np
from dsgmcmc.errors import InputError
from dsgmcmc.data.ratings import open_ratings
from dsgmcmc.storage.snapshot import Snapshot

kind, source, place, count, seed = sys.argv[1:]
source, place, choice = pathlib.Path(source), pathlib.Path(place), random.Random(int(seed))
MEMORY, SECONDS = 256 << 20, 20


def content_of_ratings(path):
    with open_ratings(path) as ratings:
        parts = [ratings.slab(part, 0, ratings.n_rows) for part in ("train", "test")]
        ids = [ratings.row_ids(), ratings.col_ids()]
        facts = [ratings.n_rows, ratings.n_cols, ratings.transposed, ratings.mean, ratings.digest]
    return repr(facts) + "".join(a.tobytes().hex() for part in parts for a in part) + repr([i.tolist() for i in ids])


def content_of_snapshot(path):
    snapshot = Snapshot(path)
    snapshot.verify()
    return "".join(repr(key) + snapshot.read(key).tobytes().hex() for key in sorted(snapshot.names()))


def mutate(data):
    data = bytearray(data)
    how = choice.choice(("bit", "bit", "byte", "bytes", "word", "cut", "copy", "zero", "insert"))
    at = choice.randrange(len(data))
    if how == "bit":
        data[at] ^= 1 << choice.randrange(8)
    elif how == "byte":
        data[at] = choice.choice((0, 1, 127, 128, 255))
    elif how == "bytes":
        for _ in range(choice.randrange(2, 30)):
            data[choice.randrange(len(data))] = choice.randrange(256)
    elif how == "word":
        value = choice.choice((0, 1, 1 << 31, 1 << 40, (1 << 63) - 1, (1 << 64) - 1, len(data)))
        data[at : at + 8] = value.to_bytes(8, "little")[: len(data) - at]
    elif how == "cut":
        del data[at:]
    elif how == "copy":
        chunk = data[at : at + choice.randrange(1, 600)]
        to = choice.randrange(len(data))
        data[to : to + len(chunk)] = chunk
    elif how == "zero":
        data[at : at + 512] = bytes(len(data[at : at + 512]))
    else:
        data[at:at] = choice.randbytes(choice.randrange(1, 9))
    return how, bytes(data)


def attempt(target, expected):
    pages = int(open("/proc/self/statm").read().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    signal.alarm(3 * SECONDS)
    try:
        found = content(target)
    except InputError as error:
        return 10 if str(error) else 12
    return 11 if found == expected else 13


content = content_of_ratings if kind == "ratings" else content_of_snapshot
expected = content(source)
results = {}
wrong = []
for number in range(int(count)):
    if kind == "ratings":
        target = place / "r.h5"
        how, data = mutate(source.read_bytes())
        target.write_bytes(data)
    else:
        target = place / "snapshot"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
        victim = choice.choice(sorted(target.iterdir()))
        how, data = mutate(victim.read_bytes())
        victim.write_bytes(data)
    child = os.fork()
    if not child:
        try:
            code = attempt(target, expected)
        except BaseException as error:
            print(f"{number} {how}: {error!r}", file=sys.stderr)
            code = 14
        sys.stderr.flush()
        os._exit(code)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    results[str(code)] = results.get(str(code), 0) + 1
    if code not in (10, 11):
        wrong.append([number, how, code])
print(json.dumps({"results": results, "wrong": wrong}))
"""


def fuzz(kind: str, source: Path, place: Path, count: int, seed: int) -> dict[str, int]:
    """Damage and open a file `count` times; how many attempts were refused (10) and harmless (11)."""
    command = [sys.executable, "-c", FORKER, kind, str(source), str(place), str(count), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["wrong"] == [], (report, done.stderr[-3000:])
    assert sum(report["results"].values()) == count
    return {code: int(number) for code, number in report["results"].items()}


@pytest.mark.parametrize("names", ["integers", "text"])
def test_damaged_ratings_files(tmp_path: Path, names: str) -> None:
    """A thousand in all; the checksums tell every change of what is read, as it is read."""
    i, j, x = planted(29, 17)
    held = np.arange(len(i)) % 5 == 0
    parts = [csr(29, i[part], j[part], x[part]) for part in (~held, held)]
    ids = [np.arange(n) for n in (29, 17)]
    if names == "text":
        ids = [np.array([f"{n}-ä" for n in column], dtype=object) for column in ids]
        ids = [np.array([name.encode() for name in column]) for column in ids]
    write_ratings(tmp_path / "whole.h5", *parts, *ids, seed=0, source="planted")
    found = fuzz("ratings", tmp_path / "whole.h5", tmp_path, 500, 1 + (names == "text"))
    assert found["10"] > 100


def test_damaged_snapshots(tmp_path: Path) -> None:
    """Shard or manifest; only what nobody reads may change unseen, and of a snapshot that is nothing."""
    blocks = {Key("state", f, b, "theta"): np.full((7, 3), b, np.float32) for f in "WH" for b in range(2)}
    blocks[Key("test", "W", 0, "mean")] = np.arange(11.0)
    header = {
        "kind": "checkpoint",
        "chain": 0,
        "iteration": 7,
        "grid": 2,
        "config_hash": "0" * 64,
        "data_hash": "f" * 64,
        "state": {"tau": SmallArray.of([1 / 3])},
        "about": {},
    }
    path = write_snapshot(tmp_path, "step-000000000007", blocks, lambda: header, MPI.COMM_SELF)
    found = fuzz("snapshot", path, tmp_path, 500, 3)
    assert found["10"] > 450  # the others put there what was there before

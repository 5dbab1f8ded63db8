"""Temporary folders: gone with their owner, and, of a process that was killed, with the next one that is made."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from dsgmcmc.storage.scratch import PREFIX, Scratch


def test_a_folder_goes_with_its_owner_and_the_left_with_the_next(tmp_path, monkeypatch):
    """Of a killed process it is removed; of a living one, and what is not ours, it stays."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = (
        "import sys, tempfile; tempfile.tempdir = sys.argv[1]\n"
        "from dsgmcmc.storage.scratch import Scratch\nmine = Scratch(); print(mine.path, flush=True); input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        theirs = tmp_path / os.path.basename(other.stdout.readline().strip())  # noqa: PTH119
        foreign = tmp_path / f"{PREFIX}without-a-lock"
        foreign.mkdir()
        first = Scratch()
        assert theirs.is_dir()
        os.kill(other.pid, signal.SIGKILL)
        other.wait()
    second = Scratch()
    assert not theirs.exists()
    assert foreign.is_dir()
    assert first.path.is_dir()
    path = first.path
    del first
    assert not path.exists()
    assert second.path.is_dir()

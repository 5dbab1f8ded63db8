"""The lock of a run directory: one run at a time, and none that waits for a dead one.

The lock is a file made with O_EXCL that says who holds it and is touched every 30 s. Another run takes it over when

- its process is dead on this host (no process of that number, or one that began at another time),
- or it is of the same batch job on another host: a job that was requeued or restarted itself,
- or it is of another host, or does not say whose it is, and was not touched while the other run watched it for 120 s.

A lock's time is compared with its own time before, never with a clock: clocks of hosts differ, and are set.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from dsgmcmc.errors import EXIT_ABORT, InputError, naming
from dsgmcmc.parallel.faults import fault
from dsgmcmc.storage.files import open_plain
from dsgmcmc.terminal import plain, say

TOUCH_SECONDS = 30.0
STALE_SECONDS = 120.0  # several touches, and what a network file system may be late with them
LOOK_SECONDS = 1.0
MAX_BYTES = 1 << 12
_JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "JOB_ID")

log = logging.getLogger(__name__)

#: What tells that a lock is the one that it was, and was not touched: its file and time.
Stamp = tuple[int, int]


class Lock:
    """Claim on a directory by a lock file in it.

    `lost` is told, by a thread, why the directory is this run's no more, which must then write nothing more there; by
    default the process says it and ends.
    """

    def __init__(self, path: Path, lost: Callable[[str], None] | None = None) -> None:
        self._path, self._lost = path, lost or _end_process
        self._token = secrets.token_hex(8)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="lock", daemon=True)

    def acquire(self) -> str:
        """Claim the directory for this process.

        Raises InputError if another run works in the directory, and OSError if the lock cannot be written; none is
        left.

        Returns
        -------
        str
            Why another run's lock was taken over; empty if there was none.
        """
        reason = ""
        for _ in range(3):
            try:
                handle = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            except FileExistsError:
                reason = self._take_away()
                continue
            try:
                with naming(self._path), os.fdopen(handle, "w", encoding="utf-8") as file:
                    fault("lock.write")
                    json.dump({**_self(), "token": self._token}, file)
            except BaseException:  # a lock of nobody would have the next run wait
                self._path.unlink(missing_ok=True)
                raise
            self._thread.start()
            return reason
        raise InputError(f"{self._path.parent} is in use by another run that started at the same moment")

    def release(self) -> None:
        """Give the directory free, if it is still ours."""
        self._end.set()
        if self._owner().get("token") == self._token:
            with suppress(OSError):  # it is that of a dead process then
                self._path.unlink()

    def _owner(self) -> dict[str, Any]:
        try:
            with open_plain(self._path, MAX_BYTES) as file:
                owner = json.loads(file.read(MAX_BYTES))
        except (OSError, ValueError, RecursionError):
            return {}
        return owner if isinstance(owner, dict) else {}

    def _take_away(self) -> str:
        """Remove a stale lock and say why it is stale; refuse a held one, and anything that is not a file."""
        if self._path.exists() and not self._path.is_file():
            raise InputError(f"{self._path} is a directory, a pipe or a device: a lock is a file. Remove it")
        try:
            stamp = _stamp(self._path)
            dead, reason = self._judge(stamp)
            if not dead:
                raise InputError(f"{self._path.parent} is in use: {reason}")
            aside = self._path.with_name(f"{self._path.name}.stale-{self._token}")
            self._path.rename(aside)  # of several runs that found it stale, one gets it
        except FileNotFoundError:
            return ""  # its run has ended, or another one took it
        if _stamp(aside) != stamp:  # the new lock of another run that found it stale
            with suppress(OSError):
                os.link(aside, self._path)
            aside.unlink()
            raise InputError(f"{self._path.parent} is in use by another run, which took it over at the same moment")
        aside.unlink()
        return reason

    def _judge(self, stamp: Stamp) -> tuple[bool, str]:
        """Whether the holder of the lock is gone, and why one thinks so; raises FileNotFoundError once it ends."""
        owner, here = self._owner(), _self()
        who = plain(f"process {owner['pid']} on {owner['host']}") if {"pid", "host"} <= owner.keys() else "its holder"
        if owner.get("host") == here["host"] and isinstance(owner.get("pid"), int):
            if _began(owner["pid"]) != owner.get("began"):
                return True, f"{who} is dead"
            return False, f"{who} (this host) is alive. Wait for it, or stop it with `kill -USR1 {owner['pid']}`"
        if owner.get("job") and owner["job"] == here["job"]:
            return True, f"{who} was of this batch job ({here['job']})"
        log.warning(
            f"{self._path} is of another run, and {who} cannot be asked from {here['host']}: watching it for "
            f"{STALE_SECONDS:g} s; if it is not touched, this run takes it over"
        )
        end = monotonic() + STALE_SECONDS
        while monotonic() < end:
            sleep(LOOK_SECONDS)
            if _stamp(self._path) != stamp:
                return False, f"{who} touches its lock, so it is alive. Wait for that run, or stop it on its host"
        return True, f"{who} has not touched its lock for {STALE_SECONDS:g} s"

    def _beat(self) -> None:
        while not self._end.wait(TOUCH_SECONDS):
            try:
                lost = self._owner().get("token") not in (self._token, None)
                os.utime(self._path)
            except FileNotFoundError:
                lost = True
            except OSError:
                continue  # a disk that is away for a while; the lock is ours until somebody takes it
            if lost:
                self._lost(
                    f"{self._path} was removed or taken over by another run, after this one had not touched it for "
                    f"{STALE_SECONDS:g} s; ending this one"
                )
                return


def _end_process(reason: str) -> None:
    say(f"dsgmcmc: {reason}", file=sys.stderr)
    os._exit(EXIT_ABORT)


def is_held(path: Path) -> bool:
    """Whether a process works under a lock, as far as can be told from here; nothing is written or taken over.

    Of a process of this host it is known. Another one is alive as long as it touches its lock.
    """
    owner = Lock(path)._owner()
    if owner.get("host") == socket.gethostname() and isinstance(owner.get("pid"), int):
        began = _began(owner["pid"])
        return began is not None and began == owner.get("began")
    try:
        return path.is_file() and abs(time.time() - path.stat().st_mtime) < STALE_SECONDS
    except OSError:
        return False  # it was given free meanwhile


def _self() -> dict[str, Any]:
    job = next((f"{name}={os.environ[name]}" for name in _JOBS if os.environ.get(name)), None)
    return {"host": socket.gethostname(), "pid": os.getpid(), "began": _began(os.getpid()), "job": job}


def _began(pid: int) -> int | None:
    """When a process of this host began, in ticks since boot; None if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _stamp(path: Path) -> Stamp:
    """Identity of a lock, which changes when it is touched or replaced; raises FileNotFoundError if there is none."""
    with suppress(PermissionError):
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))  # has a network file system look afresh
    status = path.stat()
    return status.st_ino, status.st_mtime_ns

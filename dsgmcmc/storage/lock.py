"""The lock of a run directory: one run at a time, and none that waits for a dead one.

The lock is a file made with O_EXCL that says who holds it and is touched every 30 s. Another run takes it over when

- its process is dead on this host (no process of that number, or one that began at another time),
- or it is of the same batch job on another host: a job that was requeued or restarted itself,
- or it has not been touched for 120 s, by the clock of the file system, and is not of a living process of this host.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from dsgmcmc.errors import EXIT_ABORT, InputError
from dsgmcmc.storage.files import open_plain

TOUCH_SECONDS = 30.0
STALE_SECONDS = 120.0
MAX_BYTES = 1 << 12
_JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "JOB_ID")


class Lock:
    """Claim on a directory.

    Parameters
    ----------
    path : Path
        The lock file, in an existing directory.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token = secrets.token_hex(8)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="lock", daemon=True)

    def acquire(self) -> str:
        """Claim the directory for this process.

        Returns
        -------
        str
            Why another run's lock was taken over; empty if there was none.

        Raises
        ------
        InputError
            If another run works in the directory.
        """
        reason = ""
        for _ in range(3):
            try:
                handle = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            except FileExistsError:
                reason = self._take_away()
                continue
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump({**_self(), "token": self._token}, file)
            self._thread.start()
            return reason
        raise InputError(f"{self._path.parent} is in use by another run that started at the same moment")

    def release(self) -> None:
        """Give the directory free, if it is still ours."""
        self._end.set()
        if self._owner().get("token") == self._token:
            self._path.unlink(missing_ok=True)

    def _owner(self) -> dict[str, Any]:
        try:
            with open_plain(self._path, MAX_BYTES) as file:
                owner = json.loads(file.read(MAX_BYTES))
        except (OSError, ValueError, RecursionError, InputError):
            return {}
        return owner if isinstance(owner, dict) else {}

    def _take_away(self) -> str:
        """Remove a stale lock and say why it is; refuse a living one, and what is no file."""
        if self._path.exists() and not self._path.is_file():
            raise InputError(f"{self._path} is a directory, a pipe or a device: a lock is a file. Remove it")
        owner = self._owner()
        dead, reason = _judge(owner, self._age())
        if not dead:
            raise InputError(f"{self._path.parent} is in use: {reason}")
        aside = self._path.with_name(f"{self._path.name}.stale-{self._token}")
        try:
            self._path.rename(aside)  # of several runs that found it stale, one gets it
        except FileNotFoundError:
            return reason
        aside.unlink()
        return reason

    def _age(self) -> float:
        """Seconds since the lock was touched, by the clock of its file system."""
        probe = self._path.with_name(f"{self._path.name}.clock-{self._token}")
        try:
            probe.touch()
            now = probe.stat().st_mtime
            probe.unlink()
            return now - self._path.stat().st_mtime
        except OSError:
            return 0.0

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
                print(
                    f"dsgmcmc: {self._path} was removed or taken over by another run, after this one had not touched "
                    f"it for {STALE_SECONDS:g} s; ending this one",
                    file=sys.stderr,
                    flush=True,
                )
                os._exit(EXIT_ABORT)


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


def _judge(owner: dict[str, Any], age: float) -> tuple[bool, str]:
    """Whether the holder of a lock that was touched `age` seconds ago is gone, and why one thinks so."""
    here = _self()
    who = f"process {owner.get('pid')} on {owner.get('host')}"
    if owner.get("host") == here["host"] and isinstance(owner.get("pid"), int):
        if _began(owner["pid"]) != owner.get("began"):
            return True, f"{who} is dead"
        return False, f"{who} (this host) is alive. Wait for it, or stop it with `kill -USR1 {owner['pid']}`"
    if owner.get("job") and owner["job"] == here["job"]:
        return True, f"{who} was of this batch job ({here['job']})"
    if age > STALE_SECONDS:
        return True, f"{who} has not touched its lock for {age:.0f} s"
    return False, (
        f"{who} touched its lock {age:.0f} s ago and cannot be asked from {here['host']}. Wait for that run; if it is "
        f"dead, its lock counts no more {STALE_SECONDS:g} s after the last touch: try again then"
    )

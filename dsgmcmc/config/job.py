"""What a job does when time runs out or something goes wrong; no part of the chain's configuration."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from dsgmcmc.errors import InputError

OnCheckpointError = Literal["stop", "continue"]
OnDivergence = Literal["stop", "halve"]
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)")
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|h|d)")
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class Policy:
    """How a job behaves.

    Attributes
    ----------
    max_walltime : str or None
        Time from the program's start after which it must have ended: ``1h``, ``HH:MM:SS``, ``D-HH:MM:SS``, or
        ``auto`` for the end of the Slurm job.
    watchdog : float
        Seconds without progress after which the job is ended; 0 never.
    on_checkpoint_error : {"stop", "continue"}
        Whether the chain goes on when a checkpoint cannot be written.
    on_divergence : {"stop", "halve"}
        Whether a chain that diverges goes back to its last checkpoint and on with half the step.
    override : bool
        Whether a resumed run may change the settings in `dsgmcmc.config.run.OVERRIDABLE`.
    log_dir : Path or None
        Where every process keeps a log.
    log_level : {"debug", "info", "warning"}
        The least that is logged.
    """

    max_walltime: str | None = None
    watchdog: float = 600.0
    on_checkpoint_error: str = "stop"
    on_divergence: str = "stop"
    override: bool = False
    log_dir: Path | None = None
    log_level: str = "info"

    def __post_init__(self) -> None:
        for name, given, known in (
            ("--on-checkpoint-error", self.on_checkpoint_error, get_args(OnCheckpointError)),
            ("--on-divergence", self.on_divergence, get_args(OnDivergence)),
            ("--log-level", self.log_level, ("debug", "info", "warning")),
        ):
            if given not in known:
                raise InputError(f"{name} {given}: expected one of {', '.join(known)}")
        if not 0 <= self.watchdog < float("inf"):
            raise InputError(f"--watchdog {self.watchdog}: expected seconds, or 0 for none")

    def deadline(self, since_start: float) -> float | None:
        """When the job must have ended, on the clock of `time.monotonic`.

        Parameters
        ----------
        since_start : float
            Seconds since the program began.

        Raises
        ------
        InputError
            If the time is not one, or ``auto`` finds no Slurm job.
        """
        if self.max_walltime is None:
            return None
        if self.max_walltime == "auto":
            end = os.environ.get("SLURM_JOB_END_TIME", "")
            if not end.isdigit():
                raise InputError(
                    "--max-walltime auto: SLURM_JOB_END_TIME is not set; give a time such as 1h or 23:50:00, or export "
                    "it in the job script"
                )
            return time.monotonic() + int(end) - time.time()
        return time.monotonic() - since_start + parse_walltime(self.max_walltime)


def parse_walltime(text: str, option: str = "--max-walltime") -> float:
    """Seconds of ``90s``, ``10min``, ``1h``, ``2d``, ``HH:MM:SS`` or ``D-HH:MM:SS``.

    Raises
    ------
    InputError
        If it is none of them, or nothing.
    """
    seconds = 0.0
    if match := _CLOCK.fullmatch(text):
        days, hours, minutes, rest = (int(part or 0) for part in match.groups())
        if minutes < 60 and rest < 60:
            seconds = 86400.0 * days + 3600 * hours + 60 * minutes + rest
    elif match := _SPAN.fullmatch(text):
        seconds = float(match[1]) * _SECONDS[match[2]]
    if seconds <= 0:
        more = ", or auto" if option == "--max-walltime" else ""
        raise InputError(f"{option} {text}: expected a time like 90s, 10min, 1h, 23:50:00{more}")
    return seconds

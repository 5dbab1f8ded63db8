"""What a job does when time runs out or something goes wrong; no part of the chain's configuration."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from dsgmcmc.config.units import seconds_of
from dsgmcmc.errors import InputError

OnCheckpointError = Literal["stop", "continue"]
OnDivergence = Literal["stop", "halve"]
LogLevel = Literal["debug", "info", "warning"]


@dataclass(frozen=True, kw_only=True)
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
    on_checkpoint_error: OnCheckpointError = "stop"
    on_divergence: OnDivergence = "stop"
    override: bool = False
    log_dir: Path | None = None
    log_level: LogLevel = "info"

    def __post_init__(self) -> None:
        for name, given, known in (
            ("--on-checkpoint-error", self.on_checkpoint_error, get_args(OnCheckpointError)),
            ("--on-divergence", self.on_divergence, get_args(OnDivergence)),
            ("--log-level", self.log_level, get_args(LogLevel)),
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
        return time.monotonic() - since_start + seconds_of("--max-walltime", self.max_walltime, ", or auto")

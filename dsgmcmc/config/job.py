"""What a job does when time runs out or something goes wrong; not part of the chain's configuration."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from dsgmcmc.config.units import seconds_of
from dsgmcmc.errors import InputError
from dsgmcmc.settings import named, setting

OnDivergence = Literal["recover", "stop"]


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How a job behaves; ``dsgmcmc sample --help`` and docs/settings.md describe each attribute."""

    max_walltime: Annotated[
        str | None,
        setting(
            "Write a checkpoint and end (status 75) within this time; auto: within the Slurm job's limit.",
            metavar="1h|HH:MM:SS|auto",
        ),
    ] = None
    watchdog: Annotated[
        float, setting("Abort (status 70) after this many seconds without progress; 0: never.", metavar="SECONDS")
    ] = 600.0
    on_divergence: Annotated[
        OnDivergence,
        setting("If a chain diverges: begin it again with a smaller step, then with a safer sampler, or stop."),
    ] = "recover"

    only_warnings: bool = False  # whether lesser messages are left out, as for a caller that shows its own line

    def __post_init__(self) -> None:
        if self.on_divergence not in get_args(OnDivergence):
            known = ", ".join(get_args(OnDivergence))
            raise InputError(f"{named('on_divergence')} {self.on_divergence}: expected one of {known}")
        if not 0 <= self.watchdog < float("inf"):
            raise InputError(f"{named('watchdog')} {self.watchdog}: expected seconds, or 0 for none")

    def deadline(self, since_start: float) -> float | None:
        """Time at which the job must have ended, on the clock of `time.monotonic`.

        Parameters
        ----------
        since_start : float
            Seconds since the program began.

        Raises
        ------
        InputError
            If the time is malformed, or ``auto`` finds no Slurm job.
        """
        if self.max_walltime is None:
            return None
        if self.max_walltime == "auto":
            end = os.environ.get("SLURM_JOB_END_TIME", "")
            if not end.isdigit():
                raise InputError(
                    f"{named('max_walltime')} auto: SLURM_JOB_END_TIME is not set; give a time such as 1h or "
                    "23:50:00, or export it in the job script"
                )
            return time.monotonic() + int(end) - time.time()
        return time.monotonic() - since_start + seconds_of(named("max_walltime"), self.max_walltime, ", or auto")

"""Settings of a job: its time limits, and its response to divergence.

These settings are not part of a chain's configuration. The draws do not depend on them, except that
`on_divergence` decides how a chain continues after divergence.
"""

from __future__ import annotations

import os
import time
from typing import Literal

from dsgmcmc.config.units import parse_time
from dsgmcmc.errors import InputError
from dsgmcmc.settings import Checked, named, setting


class Policy(Checked):
    """Settings of a job; ``dsgmcmc sample --help`` and docs/settings.md describe them."""

    max_walltime: str | None = setting(
        "Write a checkpoint and end (status 75) within this time; auto: within the time limit of"
        " the Slurm job.",
        None,
        metavar="1h|HH:MM:SS|auto",
    )
    watchdog: float = setting(
        "Abort (status 70) after this many seconds without progress; 0: never.",
        600.0,
        metavar="SECONDS",
        ge=0,
        le=10**9,
    )
    on_divergence: Literal["recover", "stop"] = setting(
        "After divergence: restart the chain with a smaller step, then with a safer sampler; or"
        " stop.",
        "recover",
    )

    def deadline(self, since_start: float) -> float | None:
        """Return the time at which the job must have ended; None without a limit.

        Parameters
        ----------
        since_start : float
            Seconds since the program started.

        Returns
        -------
        float or None
            On the clock of `time.monotonic`.

        Raises
        ------
        InputError
            If the time is malformed, or ``auto`` is given outside a Slurm job.
        """
        if self.max_walltime is None:
            return None
        if self.max_walltime == "auto":
            end = os.environ.get("SLURM_JOB_END_TIME", "")
            if not end.isdigit():
                raise InputError(
                    f"{named('max_walltime')} auto: SLURM_JOB_END_TIME is not set; give a time such"
                    " as 1h or 23:50:00, or export this variable in the job script"
                )
            return time.monotonic() + int(end) - time.time()
        seconds = parse_time(self.max_walltime)
        if not seconds:
            option = f"{named('max_walltime')} {self.max_walltime}"
            raise InputError(f"{option}: expected a time like 90s, 10min, 1h, 23:50:00, or auto")
        return time.monotonic() - since_start + seconds

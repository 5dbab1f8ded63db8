"""Points at which tests make a process fail for real; without ``DSGMCMC_FAULT`` nothing happens there.

``DSGMCMC_FAULT`` holds faults separated by ``;``, each ``POINT=ACTION[,rank=R][,at=N]``: process R (by default all)
does ACTION when it passes POINT for the N-th time (by default the first; ``at=*`` every time). Actions:

``raise``       an unexpected exception
``kill``        SIGKILL to itself
``stop``        SIGSTOP to itself
``usr1``        SIGUSR1 to itself, and continues (also ``term``, ``int``)
``sleep:S``     S seconds of sleep
``ENOSPC``      the `OSError` of that name (any name of `errno`)
"""

from __future__ import annotations

import errno
import os
import signal
import time

_SIGNALS = {
    "kill": signal.SIGKILL,
    "stop": signal.SIGSTOP,
    "usr1": signal.SIGUSR1,
    "term": signal.SIGTERM,
    "int": signal.SIGINT,
}


class _Fault:
    def __init__(self, text: str) -> None:
        first, *options = text.split(",")
        self.point, self.action = first.split("=")
        given = dict(option.split("=") for option in options)
        self.rank, self.at = given.get("rank", "*"), given.get("at", "1")
        self.passed = 0

    def meet(self) -> None:
        rank = os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0"))
        if self.rank not in ("*", rank):
            return
        self.passed += 1
        if self.at not in ("*", str(self.passed)):
            return
        if self.action in _SIGNALS:
            os.kill(os.getpid(), _SIGNALS[self.action])
        elif self.action.startswith("sleep:"):
            time.sleep(float(self.action[6:]))
        elif self.action == "raise":
            raise RuntimeError(f"fault injected at {self.point}")
        else:
            number = getattr(errno, self.action)
            raise OSError(number, os.strerror(number))


_FAULTS: tuple[_Fault, ...] = tuple(_Fault(text) for text in os.environ.get("DSGMCMC_FAULT", "").split(";") if text)


def fault(point: str) -> None:
    """Fail here if ``DSGMCMC_FAULT`` says so."""
    for one in _FAULTS:
        if one.point == point:
            one.meet()

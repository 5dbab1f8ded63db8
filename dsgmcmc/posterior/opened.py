"""A run directory, opened for use: what `dsgmcmc.open_run` gives."""

from __future__ import annotations

from os import PathLike
from typing import Any

from dsgmcmc.posterior.fitted import FittedModel
from dsgmcmc.posterior.new_ratings import PendingRatings
from dsgmcmc.posterior.portable import Packed, unpack
from dsgmcmc.posterior.run import Run
from dsgmcmc.storage.scratch import Scratch


class FittedRun(FittedModel, Run):
    """A run directory that predicts; see `dsgmcmc.open_run`. All of `Run` besides: moments, draws and traces."""

    clip = True
    unknown = "prior"

    def __init__(self, path: str | PathLike[str], data: str | PathLike[str] | None = None) -> None:
        Run.__init__(self, path)
        self._adopt(self, data)

    def __reduce__(self) -> Any:
        return _unpacked, (self._packed(), self._told)


def _unpacked(packed: Packed, told: PendingRatings | None) -> FittedRun:
    """Make a pickled run again."""
    scratch = Scratch()
    run = FittedRun(*unpack(packed, scratch.path))
    run._scratch = scratch
    run._take_in(told)
    return run


def open_run(path: str | PathLike[str], *, data: str | PathLike[str] | None = None) -> FittedRun:
    """Open a run directory, whoever sampled it: ``dsgmcmc sample``, or `BPMF.fit` with `out`.

    Of a run that is being sampled, or was killed, the draws saved by its newest checkpoint serve; moments, and
    predictions that were followed, are there when it has ended.

    Parameters
    ----------
    path : path of a run directory
    data : path, optional
        Its ratings file, if that was moved; only `FittedModel.recommend` and new ratings of known users need it.

    Returns
    -------
    FittedRun
        What `BPMF.load` gives can do, and moments, draws and traces, read when they are first used.

    Raises
    ------
    InputError
        If it is not a run, or has no draws yet, or is damaged.
    """
    return FittedRun(path, data)

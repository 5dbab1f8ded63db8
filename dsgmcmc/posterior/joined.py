"""Runs of the same ratings with other seeds, as one run with the chains of all."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from typing_extensions import override

from dsgmcmc.errors import InputError
from dsgmcmc.posterior.run import Run
from dsgmcmc.storage.rundir import SavedDraws


class JoinedRun(Run):
    """The chains of several runs, numbered from 0 in the order of the runs.

    Names, settings and the ratings file are those of the first run, whose directory keeps what is
    computed of all. All chains have the same weight.

    Raises InputError if the runs have other ratings or settings, or the same seed twice.
    """

    def __init__(self, paths: Sequence[str | PathLike[str]]) -> None:
        runs = [Run(path) for path in paths]
        _refuse_unlike(runs)
        super().__init__(paths[0])
        self.paths = tuple(run.path for run in runs)
        self.states = [state for run in runs for state in run.states]
        self.unfinished = any(run.unfinished for run in runs)
        self.traces = [trace for run in runs for trace in run.traces]
        for run in runs:
            for chain in run.chains:
                self._saved[len(self._saved)] = SavedDraws(run.directory, chain, run.facts)

    @property
    @override
    def chains(self) -> list[int]:
        return list(range(len(self.states)))


def open_runs(paths: Sequence[str | PathLike[str]]) -> Run:
    """Open a run directory, or several as one run.

    Raises InputError as `Run` and `JoinedRun`, and without a path.
    """
    if not paths:
        raise InputError("there is no run to open: give the path of a run directory")
    if len(paths) == 1:
        return Run(Path(paths[0]))
    return JoinedRun(paths)


def _refuse_unlike(runs: Sequence[Run]) -> None:
    """Raise InputError unless the runs sampled one posterior, each with a seed of its own."""
    first = runs[0]
    for run in runs[1:]:
        if run.facts.get("data_hash") != first.facts.get("data_hash"):
            raise InputError(f"{run.path} has other ratings than {first.path}: use it alone")
        different = _different_settings(first, run)
        if different:
            raise InputError(
                f"{run.path} has other settings than {first.path} ({', '.join(different)}): use it"
                " alone"
            )
    seeds = {run.config.seed for run in runs}
    if len(seeds) < len(runs):
        raise InputError(
            "two of the runs have the same seed, and so the same draws: sample with another --seed"
        )


def _different_settings(first: Run, second: Run) -> list[str]:
    """Return the names of settings of the model and the sampler in which runs differ."""
    one, other = (run.config.model_dump(exclude={"seed", "chains"}) for run in (first, second))
    return [name for name, value in one.items() if other.get(name) != value]

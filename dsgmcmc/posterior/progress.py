"""How far a run has come, and the snapshots of a run that can be used before it has ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dsgmcmc.config.chain import ResolvedChain
from dsgmcmc.settings import named
from dsgmcmc.storage.lock import is_held, last_holder
from dsgmcmc.storage.log import Line
from dsgmcmc.storage.rundir import Facts, RunDirectory
from dsgmcmc.storage.store import Snapshot, steps

#: Metrics from which the speed is computed.
LATELY = 10


def newest_states(run: RunDirectory, facts: Facts) -> list[Snapshot]:
    """Return the newest posterior or checkpoint of every chain with draws.

    It is the posterior unless a later checkpoint has saved draws. Raises InputError if a snapshot
    is damaged, or was not made with the settings in ``run.toml``.
    """
    states = []
    for chain in run.chains():
        posterior = steps(run.series("posterior", chain))[-1:]
        checkpoint = steps(run.series("checkpoints", chain))[-1:]
        if checkpoint > posterior:
            snapshot = run.open_snapshot("checkpoints", chain, checkpoint[0], facts)
            if snapshot.manifest.saved_draws:
                states.append(snapshot)
                continue
        if posterior:
            states.append(run.open_snapshot("posterior", chain, posterior[0], facts))
    return states


def unfinished(snapshots: Iterable[Snapshot]) -> bool:
    """Whether any chain has a checkpoint in place of a posterior."""
    return any(snapshot.manifest.kind == "checkpoint" for snapshot in snapshots)


class LiveProgress(NamedTuple):
    """Progress of a run that has not ended.

    Attributes
    ----------
    running : bool
        Whether a job is sampling the run.
    iteration : int
        Last iteration of the slowest chain, according to its metrics and checkpoints.
    saved : int
        Iteration of that chain's newest checkpoint, from which it goes on; 0 without one.
    iterations, first_draw : int
        Iteration at which the run ends, and iteration of its first draw.
    rmse_mean : float or None
        RMSE of the slowest chain's posterior mean on the test ratings; None until it is in the
        metrics.
    draws : int
        Number of usable draws of all chains.
    speed : float or None
        Iterations a second of that chain lately; None before it is known.
    until : str or None
        Accuracy at which the run may end earlier.
    job : dict or None
        The last job that worked on the run (`RunDirectory.jobs`).
    holder : str
        Process that samples the run, or sampled it last, with its host and batch job.
    """

    running: bool
    iteration: int
    saved: int
    iterations: int
    first_draw: int
    rmse_mean: float | None
    draws: int
    speed: float | None
    until: str | None
    job: Line | None
    holder: str

    @classmethod
    def read(cls, run: RunDirectory, config: ResolvedChain, draws: int) -> LiveProgress:
        """Read the progress of a run with `draws` usable draws."""
        by_chain: dict[int, list[Line]] = {chain: [] for chain in range(config.chains)}
        for line in run.metrics():
            by_chain.setdefault(line["chain"], []).append(line)
        last = {chain: lines[-1] for chain, lines in by_chain.items() if lines}
        saved = run.reached(config.chains)
        reached = []
        for chain in range(config.chains):
            measured = last.get(chain, {}).get("iteration", 0)
            reached.append(max(saved[chain], measured))
        slowest = reached.index(min(reached))
        return cls(
            running=is_held(run.lock_file),
            iteration=reached[slowest],
            saved=saved[slowest],
            iterations=config.iterations,
            first_draw=config.first_draw,
            rmse_mean=last.get(slowest, {}).get("rmse_mean"),
            draws=draws,
            speed=_speed(by_chain[slowest][-LATELY:]),
            until=config.until,
            job=next(reversed(run.jobs()), None),
            holder=last_holder(run.lock_file),
        )

    def lines(self) -> list[str]:
        """Say how far the run has come, how fast it goes, and what a stop would lose."""
        if not self.running:
            return [str(self), self.usable()]
        lines = [str(self)]
        if self.speed:
            left = (self.iterations - self.iteration) / self.speed
            rest = f"the rest takes {_about(left)}"
            if self.until:
                rest += f", less if {self.until} is reached before"
            lines.append(f"{self.speed:.3g} iterations a second: {rest}")
        if self.job:
            processes = self.job["processes"]
            lines.append(f"since {self.job['time']} by {processes} process(es): {self.holder}")
        if self.saved:
            ahead = self.iteration - self.saved
            lines.append(
                f"last checkpoint at iteration {self.saved:,}: a job that is killed now has to"
                f" repeat {ahead:,} iterations"
            )
        else:
            lines.append("no checkpoint yet: a job that is killed now begins again")
        return [*lines, self.usable()]

    def __str__(self) -> str:
        position = f"at iteration {self.iteration:,} of {self.iterations:,}"
        if self.running:
            return f"being sampled: {position}"
        if self.first_draw > self.iterations:
            return (
                f"without draws: it ends {position}; continue it with {named('resume')} and more"
                f" {named('iterations')}"
            )
        text = (
            f"not finished: its last job ended {position}; continue it with the same command and"
            f" {named('resume')}"
        )
        lost = self.iteration - self.saved
        if lost and self.saved:
            text += f", from its checkpoint at {self.saved:,}: {lost:,} iterations are lost"
        elif lost:
            text += f", from the start: there is no checkpoint, and {lost:,} iterations are lost"
        return text

    def usable(self) -> str:
        """Describe how many draws can be used, or when the first draw can be used."""
        if self.draws == 1:
            return "1 draw so far can be used"
        if self.draws:
            return f"{self.draws:,} draws so far can be used"
        return (
            f"the first draw is made at iteration {self.first_draw:,}, and can be used from the"
            f" next checkpoint on (with {named('save_draws')} 0, when the run ends)"
        )


def _speed(lines: list[Line]) -> float | None:
    """Return the iterations a second between the first and the last line; None if unknown."""
    if len(lines) < 2:
        return None
    seconds = lines[-1]["time_s"] - lines[0]["time_s"]
    iterations = lines[-1]["iteration"] - lines[0]["iteration"]
    if seconds <= 0 or iterations <= 0:
        return None
    return float(iterations / seconds)


def _about(seconds: float) -> str:
    """Write a time that is not known better than that."""
    if seconds < 90:
        return f"about {max(seconds, 1):.0f} s"
    if seconds < 90 * 60:
        return f"about {seconds / 60:.0f} min"
    return f"about {seconds / 3600:.1f} h"


def progress(
    run: RunDirectory, config: ResolvedChain, states: list[Snapshot]
) -> LiveProgress | None:
    """Return a run's progress from its `newest_states`; None if it has ended.

    Raises InputError if a log is damaged.
    """
    if not unfinished(states) and not is_held(run.lock_file):
        return None
    return LiveProgress.read(run, config, sum(len(state.manifest.saved_draws) for state in states))

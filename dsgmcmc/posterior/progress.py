"""How far a run has come, and the snapshots of a run that can be used before it has ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dsgmcmc.config.chain import ResolvedChain
from dsgmcmc.settings import named
from dsgmcmc.storage.lock import is_held
from dsgmcmc.storage.log import Line
from dsgmcmc.storage.rundir import Facts, RunDirectory
from dsgmcmc.storage.store import Snapshot, steps


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
    """

    running: bool
    iteration: int
    saved: int
    iterations: int
    first_draw: int
    rmse_mean: float | None
    draws: int

    @classmethod
    def read(cls, run: RunDirectory, config: ResolvedChain, draws: int) -> LiveProgress:
        """Read the progress of a run with `draws` usable draws."""
        last: dict[int, Line] = {line["chain"]: line for line in run.metrics()}
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
        )

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


def progress(
    run: RunDirectory, config: ResolvedChain, states: list[Snapshot]
) -> LiveProgress | None:
    """Return a run's progress from its `newest_states`; None if it has ended.

    Raises InputError if a log is damaged.
    """
    if not unfinished(states) and not is_held(run.lock_file):
        return None
    return LiveProgress.read(run, config, sum(len(state.manifest.saved_draws) for state in states))

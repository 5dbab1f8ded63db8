"""Results so far, and progress, of a run that has not ended because it is being sampled or was killed.

A posterior is written when a job ends or is stopped. Until then, the newest checkpoint has the traces of the shared
parameters, and lists the saved draws that belong to it; its moments cannot be used.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dsgmcmc.config.chain import ResolvedChain
from dsgmcmc.errors import InputError
from dsgmcmc.storage.facts import Facts
from dsgmcmc.storage.lock import is_held
from dsgmcmc.storage.logs import Line
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.storage.series import steps
from dsgmcmc.storage.snapshot import Snapshot


def newest_states(run: RunDirectory, facts: Facts) -> list[Snapshot]:
    """Return for every chain with draws its posterior, or its newest checkpoint if this has later draws.

    Checkpoints without saved draws are skipped. Raises InputError if a snapshot is damaged, or was not made with the
    settings in ``run.toml``.
    """
    states = []
    for chain in run.chains():
        done, made = (steps(run.series(kind, chain))[-1:] for kind in ("posterior", "checkpoints"))
        if made > done:
            snapshot = run.open_snapshot("checkpoints", chain, made[0], facts)
            if snapshot.manifest.saved_draws:
                states.append(snapshot)
                continue
        states += [run.open_snapshot("posterior", chain, iteration, facts) for iteration in done]
    return states


def unfinished(snapshots: Iterable[Snapshot]) -> bool:
    """Whether any chain has a checkpoint in place of a posterior."""
    return any(snapshot.manifest.kind == "checkpoint" for snapshot in snapshots)


@dataclass(frozen=True)
class LiveProgress:
    """Progress of a run that has not ended.

    Attributes
    ----------
    running : bool
        Whether a job is sampling the run.
    iteration : int
        Last iteration of the slowest chain, according to its metrics and checkpoints.
    iterations, first_draw : int
        Iteration at which the run ends, and iteration of its first draw.
    rmse_mean : float or None
        RMSE of that chain's posterior mean on the test ratings; None until it is in the metrics.
    draws : int
        Number of usable draws of all chains.
    """

    running: bool
    iteration: int
    iterations: int
    first_draw: int
    rmse_mean: float | None
    draws: int

    @classmethod
    def of(cls, run: RunDirectory, config: ResolvedChain, draws: int) -> LiveProgress:
        """Read the progress of a run with `draws` usable draws."""
        last: dict[int, Line] = {line["chain"]: line for line in run.metrics()}
        lines = [last.get(chain, {}) for chain in range(config.chains)]
        saved = run.reached(config.chains)
        reached, behind = min((max(saved[chain], line.get("iteration", 0)), chain) for chain, line in enumerate(lines))
        error = lines[behind].get("rmse_mean")
        return cls(is_held(run.lock_file), reached, config.iterations, config.first_draw, error, draws)

    def __str__(self) -> str:
        at = f"at iteration {self.iteration:,} of {self.iterations:,}"
        if self.running:
            return f"being sampled: {at}"
        return f"not finished: its last job ended {at}; continue it with the same command and --resume"

    def usable(self) -> str:
        """Describe which draws can be used, or when draws can be used."""
        if self.draws:
            return f"{self.draws:,} draw{'s' * (self.draws > 1)} so far can be used"
        return (
            f"the first draw is made at iteration {self.first_draw:,}, and can be used from the next checkpoint on "
            "(with --save-draws 0, when the run ends)"
        )


def progress(run: RunDirectory, config: ResolvedChain, facts: Facts) -> LiveProgress | None:
    """Return the progress of a run; None if it has ended. Raises InputError as `newest_states` and `read_log`."""
    states = newest_states(run, facts)
    if not (unfinished(states) or is_held(run.lock_file)):
        return None
    return LiveProgress.of(run, config, sum(len(state.manifest.saved_draws) for state in states))


def no_posterior(run: RunDirectory, config: ResolvedChain) -> InputError:
    """Return the error for a run that has neither a posterior nor saved draws yet."""
    now = LiveProgress.of(run, config, draws=0)
    return InputError(f"{run.path} has no posterior yet: it is {now}; {now.usable()}")


def no_moments(run: RunDirectory) -> InputError:
    """Return the error for a request of moments from a run that has not ended."""
    return InputError(
        f"{run.path} has no moments yet: it has them when its job ends, or is stopped with SIGUSR1. Its saved draws "
        "can be used now (export: --draws)"
    )

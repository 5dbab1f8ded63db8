"""Results so far, and progress, of a run that has not ended because it is being sampled or was killed.

A posterior is written when a job ends or is stopped. Until then, the newest checkpoint has the traces of the shared
parameters, and lists the saved draws that belong to it; its moments cannot be used.
"""

from __future__ import annotations

from collections import deque
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

WHEN_IT_HAS_MOMENTS = "when its job ends, or is stopped with SIGUSR1"
GO_ON = "once a job has resumed it (--resume), and ended or was stopped with SIGUSR1"
UNITS = ((3600, "h"), (60, "min"), (1, "s"))
LINES = 10  # last lines of metrics from which the rate is estimated


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


def progress(run: RunDirectory, config: ResolvedChain, facts: Facts) -> LiveProgress | None:
    """Return the progress of a run; None if it has ended. Raises InputError as `newest_states` and `read_log`."""
    states = newest_states(run, facts)
    if not (unfinished(states) or is_held(run.lock_file)):
        return None
    return LiveProgress.of(run, config, sum(len(state.manifest.saved_draws) for state in states))


def unfinished(snapshots: Iterable[Snapshot]) -> bool:
    """Whether any chain has a checkpoint in place of a posterior."""
    return any(snapshot.manifest.kind == "checkpoint" for snapshot in snapshots)


@dataclass(frozen=True)
class LiveProgress:
    """Progress of a run.

    Attributes
    ----------
    running : bool
        Whether a job is sampling the run.
    since : str
        Time at which the last job began, in UTC; empty if unknown.
    iteration : int
        Last iteration of the slowest chain, according to its metrics and checkpoints.
    iterations, first_draw : int
        Iteration at which the run ends, and iteration of its first draw.
    rate : float or None
        Iterations per second of the slowest chain; None until the metrics allow an estimate.
    rmse_mean : float or None
        RMSE of that chain's posterior mean on the test ratings; None until it is in the metrics.
    draws : int
        Number of usable draws of all chains.
    saves : bool
        Whether draws are saved, so that they can be used before the run ends.
    """

    running: bool
    since: str
    iteration: int
    iterations: int
    first_draw: int
    rate: float | None
    rmse_mean: float | None
    draws: int
    saves: bool

    @classmethod
    def of(cls, run: RunDirectory, config: ResolvedChain, draws: int = 0) -> LiveProgress:
        """Read the progress of a run with `draws` usable draws; raises InputError if a log is damaged."""
        last: dict[int, deque[Line]] = {chain: deque(maxlen=LINES) for chain in range(config.chains)}
        for line in run.metrics():
            last.setdefault(line["chain"], deque(maxlen=LINES)).append(line)
        reached = [
            max(saved, max((line["iteration"] for line in last[chain]), default=0))
            for chain, saved in enumerate(run.reached(config.chains))
        ]
        behind = min(range(config.chains), key=reached.__getitem__)
        jobs, lines = run.jobs(), list(last[behind])
        return cls(
            running=is_held(run.lock_file),
            since=jobs[-1]["time"] if jobs else "",
            iteration=reached[behind],
            iterations=config.iterations,
            first_draw=config.first_draw,
            rate=_rate(lines),
            rmse_mean=lines[-1].get("rmse_mean") if lines else None,
            draws=draws,
            saves=config.save_draws > 0,
        )

    def seconds_to(self, iteration: int) -> float | None:
        """Seconds until `iteration`; None if they cannot be estimated."""
        return max(iteration - self.iteration, 0) / self.rate if self.running and self.rate else None

    def __str__(self) -> str:
        at = f"at iteration {self.iteration:,} of {self.iterations:,}"
        if not self.running:
            return f"not finished: its last job ended {at}; continue it with the same command and --resume"
        since = f" since {self.since}" if self.since else ""
        return f"being sampled{since}: {at}{_in(self.seconds_to(self.iterations), ', done')}"

    def usable(self) -> str:
        """Describe which draws can be used, or when the first draw can be used."""
        if self.draws:
            return f"{self.draws:,} draw{'s' * (self.draws > 1)} so far can be used"
        if self.first_draw > self.iterations:
            return f"it ends before its first draw, at iteration {self.first_draw:,}: it needs more --iterations"
        if not self.running:
            return "no draw can be used yet"
        if not self.saves:
            return f"it saves no draws (--save-draws 0): it can be used {WHEN_IT_HAS_MOMENTS}"
        if self.iteration >= self.first_draw:
            return "its draws can be used from its next checkpoint on"
        when = _in(self.seconds_to(self.first_draw), ",")
        return f"the first draw is at iteration {self.first_draw:,}{when}; it can be used from the next checkpoint on"


def _rate(lines: list[Line]) -> float | None:
    """Iterations per second between the first and the last line; None if they cannot be estimated."""
    if len(lines) < 2 or lines[-1]["time_s"] <= lines[0]["time_s"]:
        return None
    return float((lines[-1]["iteration"] - lines[0]["iteration"]) / (lines[-1]["time_s"] - lines[0]["time_s"]))


def _in(seconds: float | None, before: str) -> str:
    if seconds is None or seconds < 1:
        return ""
    size, unit = next((size, unit) for size, unit in UNITS if seconds >= 2 * size or size == 1)
    return f"{before} in about {seconds / size:,.0f} {unit}"


def no_posterior(run: RunDirectory, config: ResolvedChain) -> InputError:
    """Return the error for a run that has neither a posterior nor saved draws yet."""
    now = LiveProgress.of(run, config)
    return InputError(f"{run.path} has no posterior yet: it is {now}; {now.usable()}")


def no_moments(run: RunDirectory) -> InputError:
    """Return the error for a request of moments from a run that has not ended."""
    when = WHEN_IT_HAS_MOMENTS if is_held(run.lock_file) else GO_ON
    return InputError(
        f"{run.path} has no moments yet: it has them {when}. Its saved draws can be used now (export: --draws)"
    )

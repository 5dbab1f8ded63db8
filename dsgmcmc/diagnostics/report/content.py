"""The numbers of a report, which `dsgmcmc.diagnostics.report.page` draws."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from dsgmcmc.diagnostics.calibration import calibration
from dsgmcmc.diagnostics.convergence import diagnose
from dsgmcmc.diagnostics.summary import read_summary
from dsgmcmc.diagnostics.verdict import doubts, ending
from dsgmcmc.errors import InputError
from dsgmcmc.model.predictive.base import Predictive
from dsgmcmc.posterior.effects import EffectImportance, importance_of_effects
from dsgmcmc.posterior.features import FeatureImportance, importance
from dsgmcmc.posterior.live import LiveProgress
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.traces import scalar_traces
from dsgmcmc.types import Float64

#: Metrics of a run that are drawn.
METRICS = ("iteration", "time_s", "rmse", "rmse_mean")


@dataclass(frozen=True)
class Content:
    """A run's report as numbers.

    Attributes
    ----------
    ending : str
        How it ended, or its progress.
    summary : dict
        ``summary.json``, or a substitute until the run has ended.
    metrics : dict of int to dict of str to array
        By chain, the columns of ``metrics.jsonl``; null is NaN.
    traces : dict of str to (chains, draws) array
    calibration, forecast : dict and Predictive, or None
        Scores and predictive distributions of the test ratings; None without any, and for clicks.
    features : dict of str to FeatureImportance
        Importance of features, by "user" and "item" if they have any.
    effects : list of EffectImportance
        Importance of the effects of groups of ratings.
    """

    name: str
    run: Run
    ending: str
    summary: dict[str, Any]
    metrics: dict[int, dict[str, Float64]]
    traces: dict[str, Float64]
    convergence: dict[str, Any]
    calibration: dict[str, Any] | None
    forecast: Predictive | None
    features: dict[str, FeatureImportance]
    effects: list[EffectImportance]

    @property
    def of_clicks(self) -> bool:
        """Whether the run is of clicks, which have rankings instead of errors."""
        return not self.run.config.law.can_be_evaluated()

    @property
    def advice(self) -> list[str]:
        """Warnings about this run."""
        advice = [*self.run.facts.get("cautions", []), *doubts(self.summary), *self.convergence["warnings"]]
        if self.calibration is None and not self.of_clicks:
            return [*advice, "no test ratings: accuracy and calibration are unknown (prepare --test-fraction)"]
        phases = self.summary.get("phases", {})
        total = sum(entry["mean"] for entry in phases.values())
        waiting = sum(phases[name]["mean"] for name in ("exchange", "reduce") if name in phases)
        if total and waiting > 0.3 * total:
            advice.append(
                f"{waiting / total:.0%} of the time was exchange and reduction: fewer processes would be as fast"
            )
        return advice


def gather(run: Run, name: str) -> Content:
    """Read the content of a report. Raises InputError if a file of the run is missing or cannot be read."""
    progress = LiveProgress.of(run.directory, run.config, len(run.draws)) if run.unfinished else None
    summary = _unfinished(run) if progress else _summary(run)
    settings = run.config
    summary |= {"reached": run.directory.reached(settings.chains), "iterations": settings.iterations}
    metrics: dict[int, dict[str, Float64]] = {}
    for chain, own in groupby(run.directory.metrics(), itemgetter("chain")):
        rows = (tuple(np.nan if line.get(name) is None else line[name] for name in METRICS) for line in own)
        table = np.fromiter(rows, dtype=(np.float64, len(METRICS)))
        metrics[chain] = dict(zip(METRICS, table.T, strict=True))
    has_test = len(run.test_pairs()[0]) > 0 and settings.law.can_be_evaluated()
    return Content(
        name=name,
        run=run,
        ending=f"{progress}; {progress.usable()}" if progress else ending(summary),
        summary=summary,
        metrics=metrics,
        traces=scalar_traces(run),
        convergence=diagnose(run),
        calibration=calibration(run) if has_test else None,
        forecast=run.test.predictive(settings.law, run.levels) if has_test else None,
        features=importance(run),
        effects=importance_of_effects(run),
    )


def _summary(run: Run) -> dict[str, Any]:
    path = run.directory.summary_file
    try:
        return read_summary(path)
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing: the run ended before it could write it") from error


def _unfinished(run: Run) -> dict[str, Any]:
    """Entries of the summary that are known before the run has ended."""
    seconds = [line["time_s"] for line in run.directory.metrics()]
    processes = [job.get("processes", 1) for job in run.directory.jobs()]
    return {
        "draws": sum(len(trace["weight"]) for trace in run.traces),
        "baselines": run.facts.get("baselines"),
        "seconds_sampling": max(seconds, default=0.0),
        "processes": processes[-1] if processes else 1,
    }


def names_of(paths: list[Path]) -> list[str]:
    """Short names of runs, all different."""
    short = [path.resolve().name for path in paths]
    return [str(path) if short.count(name) > 1 else name for path, name in zip(paths, short, strict=True)]

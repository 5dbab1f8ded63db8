"""A run whose model is left to a comparison: that is made once, kept in the run, and not made again to resume it.

If the recommended model diverges even with the samplers that chains fall back to, the next one of the table is sampled.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from dsgmcmc.config.job import Policy
from dsgmcmc.config.layers import Layers
from dsgmcmc.diagnostics.comparison import Comparison
from dsgmcmc.errors import DivergenceError, InputError
from dsgmcmc.parallel.comm import agree
from dsgmcmc.parallel.signals import Signals
from dsgmcmc.runs.compare.compare import Comparing
from dsgmcmc.runs.resolve import refuse_taken
from dsgmcmc.runs.source import RatingsSource
from dsgmcmc.settings import named
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.terminal import say
from dsgmcmc.types import Comm

#: Where in a run's directory the candidates lie while they are compared.
FOLDER = "compare"

T = TypeVar("T")

log = logging.getLogger(__name__)


def with_best_model(
    comm: Comm,
    source: RatingsSource,
    out: Path,
    layers: Layers,
    resume: bool,
    policy: Policy,
    dry_run: bool = False,
    signals: Signals | None = None,
    quiet: bool = False,
) -> Layers:
    """Settings of a run whose model is compared for, unless the run has one; it is then to be resumed. Collective.

    Parameters are those of `dsgmcmc.runs.job.Job`, and `dry_run`: whether nothing may be sampled.

    Raises
    ------
    InputError
        If settings, ratings or run directory are wrong.
    Stopped
        If the comparison was stopped: the same again, with `resume`, goes on.
    """
    run = RunDirectory(out)

    def known() -> Comparison | None:
        if comm.rank != 0:
            return None
        refuse_taken(run, resume)
        if source.start is not None:
            raise InputError(f"{named('from')} takes the model of the run to start from: leave out {named('model')}")
        comparison = read_comparison(run, source)
        if comparison is None and dry_run:
            raise InputError("--dry-run samples nothing, and --model auto compares: `dsgmcmc compare` writes settings")
        return comparison

    comparison = comm.bcast(agree(comm, known))
    if comparison is None:
        comparison = Comparing(comm, source, out / FOLDER, layers, policy=policy, signals=signals, quiet=quiet).run()
        agree(
            comm, partial(comparison.save, run.comparison_file) if comm.rank == 0 else lambda: None, "comparing models"
        )
        if comm.rank == 0 and not quiet:
            say(comparison.sentence(), file=sys.stderr)
    return layers._replace(below=comparison.settings)


def sample_recommended(
    sample: Callable[[Layers], T], comm: Comm, source: RatingsSource, out: Path, layers: Layers, policy: Policy
) -> T:
    """Sample the recommended model, or else the next that does not diverge. Collective.

    A job that is killed between two models finds the comparison as it was, and no run: it samples the first again.

    Parameters
    ----------
    sample : callable
        Runs a job with these settings.
    comm, source, out
        As in `with_best_model`.
    layers : Layers
        What `with_best_model` has returned.
    policy : Policy
        Whether another model may be sampled.

    Raises
    ------
    DivergenceError
        If all models that were compared diverge, or the first one that may not be replaced.
    """
    run = RunDirectory(out)

    def next_settings() -> Mapping[str, Any] | None:
        comparison = read_comparison(run, source)
        following = None if comparison is None else comparison.without_recommended()
        if following is None:
            return None
        run.forget()
        following.save(run.comparison_file)
        log.warning("%s", following.sentence())
        return following.settings

    while True:
        try:
            return sample(layers)
        except DivergenceError:
            if policy.on_divergence == "stop":
                raise
            settings = comm.bcast(agree(comm, next_settings if comm.rank == 0 else lambda: None, "choosing a model"))
            if settings is None:
                raise
            layers = layers._replace(below=settings)


def read_comparison(run: RunDirectory, source: RatingsSource) -> Comparison | None:
    """Read what a run's model was chosen from; None if there is none. Raises InputError if it is of other ratings."""
    try:
        comparison = Comparison.read(run.comparison_file)
    except FileNotFoundError:
        if run.settings_file.exists():
            raise InputError(f"{run.path} was started with a model of its own: leave out {named('model')}") from None
        return None
    if comparison.data_hash != source.digest():
        raise InputError(f"{run.comparison_file} is of other ratings than {source.path}: start another run")
    return comparison

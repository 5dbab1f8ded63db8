"""A run whose model is left to a comparison: that is made once, kept in the run, and not made again to resume it."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from dsgmcmc.config.job import Policy
from dsgmcmc.config.layers import Layers
from dsgmcmc.diagnostics.comparison import Comparison
from dsgmcmc.errors import InputError
from dsgmcmc.parallel.agreement import agree
from dsgmcmc.parallel.signals import Signals
from dsgmcmc.runs.compare.compare import Comparing
from dsgmcmc.runs.resolve import refuse_taken
from dsgmcmc.runs.sources.ratings import RatingsSource
from dsgmcmc.settings import named
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.terminal import say
from dsgmcmc.types import Comm

#: Where in a run's directory the candidates lie while they are compared.
FOLDER = "compare"


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


def read_comparison(run: RunDirectory, source: RatingsSource) -> Comparison | None:
    """Read what a run's model was chosen from; None if it has not begun. Raises InputError if it is of others."""
    try:
        comparison = Comparison.read(run.comparison_file)
    except FileNotFoundError:
        if run.settings_file.exists():
            raise InputError(f"{run.path} was started with a model of its own: leave out {named('model')}") from None
        return None
    if comparison.data_hash != source.digest():
        raise InputError(f"{run.comparison_file} is of other ratings than {source.name}: start another run")
    return comparison

"""Samples the model that a comparison recommends or, if it diverges, the next best model."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from dsgmcmc.diagnostics.comparison import Comparison
from dsgmcmc.errors import DivergenceError, InputError, StoppedError
from dsgmcmc.parallel.comm import on_root
from dsgmcmc.parallel.signals import Signals
from dsgmcmc.ratings.directions import Arrangement, arrangement_of
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.runs.compare import Comparing, remove_candidates
from dsgmcmc.runs.job import Job
from dsgmcmc.runs.opening import refuse_taken
from dsgmcmc.runs.source import RatingsSource
from dsgmcmc.settings import named
from dsgmcmc.terminal import say


def sample_recommended(job: Job, signals: Signals | None = None, dry_run: bool = False) -> int:
    """Compare models unless the run has a comparison, and sample the recommended model. Collective.

    If the model diverges, the next best model is sampled in its place. If a job is killed between
    two models, the comparison is unchanged and the run of the first model is gone; the next job
    samples the first model again.

    Parameters
    ----------
    job : Job
        Makes or continues the run; its settings leave the choice of the model open.
    signals : Signals, optional
        As for `Job.run`.
    dry_run : bool
        Whether the job may only describe the run.

    Returns
    -------
    int
        Exit status. After a stop, an identical job with `resume` continues the comparison or the
        run.

    Raises
    ------
    InputError
        If settings, ratings or run directory are wrong.
    DivergenceError
        If all compared models diverge, or if the recommended model diverges and ``on_divergence``
        is ``stop``.
    """
    at_root = job.comm.rank == 0
    comparison = on_root(job.comm, partial(known_comparison, job, dry_run))
    if comparison is None:
        try:
            comparison = _compare(job, signals)
        except StoppedError as stopped:
            return stopped.status
    if at_root and not dry_run:
        remove_candidates(job.run_directory.candidates)  # an earlier job may have left them
    while True:
        chosen = job.with_model(comparison.settings, _source_for(job, comparison))
        try:
            status = chosen.describe() if dry_run else chosen.run(signals)
        except DivergenceError:
            following = _next_model(job, comparison)
            if following is None:
                raise
            comparison = following
        else:
            if comparison.note and at_root and not job.quiet:
                say(comparison.note, file=sys.stderr)
            return status


def _source_for(job: Job, comparison: Comparison) -> RatingsSource:
    """Return the ratings in the arrangement of the recommended model. Collective.

    The ratings of a table of three directions are written into the run directory.
    """
    directions = job.source.ratings.open_directions
    if directions is None:
        return job.source
    arrangement = comparison.arrangement(directions)
    file = job.run_directory.ratings_file
    on_root(job.comm, partial(_arrange, job.source.ratings, arrangement, file))
    return RatingsSource(file)


def _arrange(ratings: Ratings, arrangement: Arrangement, file: Path) -> None:
    """Write ratings in an arrangement, unless the file has it; another model had another one."""
    if file.exists():
        with Ratings(file) as written:
            if arrangement_of(written) == arrangement:
                return
    from dsgmcmc.prepare.three_way import arrange_ratings  # a database: slow to import

    arrange_ratings(ratings, arrangement, file)


def known_comparison(job: Job, dry_run: bool) -> Comparison | None:
    """Return the comparison that chose a run's model; None for a new run without a comparison.

    Raises
    ------
    InputError
        If the directory is taken, if the run starts from another run or has a model but no
        comparison, if the comparison is of other ratings, or if `dry_run` excludes a new
        comparison.
    """
    run = job.run_directory
    source = job.source
    refuse_taken(run, job.resume)
    if source.start is not None:
        raise InputError(
            f"{named('from')} uses the model of the earlier run: leave out {named('model')}"
        )
    try:
        comparison = Comparison.read(run.comparison_file)
    except FileNotFoundError:
        comparison = None
    if comparison is None:
        _refuse_comparing(job, dry_run)
        return None
    if comparison.data_hash != source.ratings.digest:
        raise InputError(
            f"{run.comparison_file} is for other ratings than {source.path}: start another run"
        )
    return comparison


def _refuse_comparing(job: Job, dry_run: bool) -> None:
    """Raise InputError if no comparison may be made for the run."""
    run = job.run_directory
    if run.settings_file.exists():
        raise InputError(f"{run.path} was started without {named('model')}: leave it out")
    if dry_run:
        raise InputError(
            f"{named('dry_run')} and {named('model')} auto exclude each other: choose by"
            " `dsgmcmc compare`"
        )


def _compare(job: Job, signals: Signals | None) -> Comparison:
    """Compare models for a run, and save the comparison in its directory. Collective."""
    run = job.run_directory
    comparing = Comparing(
        job.comm,
        job.source,
        run.candidates,
        job.settings,
        policy=job.policy,
        signals=signals,
        quiet=job.quiet,
    )
    comparison = comparing.run()
    on_root(job.comm, partial(comparison.save, run.comparison_file), "comparing models")
    if job.comm.rank == 0 and not job.quiet:
        say(comparison.sentence(), file=sys.stderr)
    return comparison


def _next_model(job: Job, comparison: Comparison) -> Comparison | None:
    """Recommend the next best model after the recommended one diverged. Collective.

    None without another model, or if the job must stop after divergence.
    """
    if job.policy.on_divergence == "stop":
        return None
    work = partial(forget_recommended, job, comparison)
    return on_root(job.comm, work, "choosing a model")


def forget_recommended(job: Job, comparison: Comparison) -> Comparison | None:
    """Remove the run of the recommended model, and recommend the next best; None without one."""
    following = comparison.without_recommended()
    if following is not None:
        job.run_directory.forget()
        following.save(job.run_directory.comparison_file)
        say(following.sentence(), file=sys.stderr)
    return following

"""Runs of a factorisation: its ratings file as the source of a job."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dsgmcmc.config.layers import build
from dsgmcmc.config.run import ResolvedConfig, RunConfig
from dsgmcmc.data.ratings import open_ratings
from dsgmcmc.diagnostics.calibration import held_out_scores
from dsgmcmc.errors import InputError
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.parallel.schedule import Schedule
from dsgmcmc.posterior.heldout import posteriors, test_predictions
from dsgmcmc.posterior.names import write_index
from dsgmcmc.runs.plan import Costs, check_messages
from dsgmcmc.runs.sources.base import MakeTarget
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.storage.manifest import Key
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.targets.factorisation.blocks import RatingBlocks
from dsgmcmc.targets.factorisation.hyperparameters import HyperparameterModel
from dsgmcmc.targets.factorisation.noise import heteroscedastic_factors
from dsgmcmc.targets.factorisation.target import FactorTarget
from dsgmcmc.targets.state import Stream
from dsgmcmc.types import Comm

#: Numbers of the factors for a rating above which exact Gibbs, too, was seen to take noise for structure.
MAX_NUMBERS_PER_RATING = 3

log = logging.getLogger(__name__)


class RatingsSource:
    """A ratings file; a `dsgmcmc.runs.sources.base.Source`.

    Parameters
    ----------
    path : Path
        The file.
    """

    unit = "ratings"

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def name(self) -> str:
        """See `Source.name`."""
        return str(self.path)

    def digest(self) -> str:
        """See `Source.digest`."""
        with open_ratings(self.path) as ratings:
            return str(ratings.digest)

    def build(self, *layers: Mapping[str, Any]) -> RunConfig:
        """See `Source.build`."""
        return build(*layers)

    def read(self, settings: Mapping[str, Any]) -> ResolvedConfig:
        """See `Source.read`."""
        return ResolvedConfig.of(settings)

    def check(self, config: ResolvedConfig, processes: int) -> None:
        """See `Source.check`."""
        with open_ratings(self.path) as ratings:
            if config.grid > ratings.n_cols:
                raise InputError(f"--grid {config.grid} is more than the {ratings.n_cols} columns of {self.path}")
            check_messages(config, ratings.column_counts)
            rows_and_columns = ratings.n_rows + ratings.n_cols
            numbers = config.rank * rows_and_columns
            if numbers > MAX_NUMBERS_PER_RATING * ratings.nnz:
                log.warning(
                    "%s numbers of the factors for %s training ratings: the data hardly tell noise from factors, so "
                    "tau may be far too large; try --rank %d",
                    f"{numbers:,}",
                    f"{ratings.nnz:,}",
                    max(1, ratings.nnz // rows_and_columns),
                )
        if processes > config.grid:
            raise InputError(
                f"{processes} processes cannot share a grid of {config.grid} blocks: start at most {config.grid} "
                f"for every chain, or a new run with --grid {2 * processes}"
            )

    def prepare(self, run: RunDirectory, config: ResolvedConfig, comm: Comm) -> dict[str, Any]:
        """See `Source.prepare`: writes the names of users and items."""
        with open_ratings(self.path) as ratings:
            write_index(run, ratings, config.hash(), comm)
            return {
                "data": str(self.path.absolute()),
                "mean": ratings.mean if config.center else 0.0,
                "minimum": ratings.minimum,
                "maximum": ratings.maximum,
                "transposed": ratings.transposed,
            }

    def open(self, config: ResolvedConfig, ring: Ring) -> tuple[MakeTarget, int]:
        """See `Source.open`. Collective."""
        log.info("grid %d x %d", config.grid, config.grid)
        data = ring.agree(partial(open_ratings, self.path), "sample")
        blocks = RatingBlocks(data, ring, data.mean if config.center else 0.0)
        return partial(make_factorisation, config, blocks, ring, data.transposed), data.nnz

    def costs(self, config: ResolvedConfig, processes: int) -> dict[str, Any]:
        """See `Source.costs`."""
        with open_ratings(self.path) as ratings:
            return Costs.of(config, ratings, processes).table()

    def results(self, run: RunDirectory, config: ResolvedConfig) -> dict[str, Any]:
        """What a run has found.

        Returns
        -------
        dict
            ``tau`` (posterior mean), ``rank``, ``rmse_mean``, ``mae_mean`` and the other scores of the test ratings'
            posterior predictions (`dsgmcmc.diagnostics.calibration.held_out_scores`); the scores are null without test
            ratings.
        """
        taus = [snapshot.read(Key("trace", "run", 0, "tau")) for snapshot in posteriors(run)]
        tau = float(np.concatenate(taus).mean()) if taus else None
        test = test_predictions(run)
        if test is None:
            return {"rmse_mean": None, "mae_mean": None, "tau": tau, "rank": config.rank}
        found = held_out_scores(test, config.law)
        found["coverage"] = {str(level): share for level, share in found["coverage"].items()}
        return {"rmse_mean": found.pop("rmse"), "mae_mean": found.pop("mae"), **found, "tau": tau, "rank": config.rank}

    def headline(self, summary: Mapping[str, Any]) -> list[str]:
        """See `Source.headline`."""
        if summary["rmse_mean"] is None:
            return ["no RMSE (no test ratings or no draws)"]
        inside = ", ".join(f"{float(level):.0%}: {share:.1%}" for level, share in summary["coverage"].items())
        return [
            f"RMSE of the posterior mean {summary['rmse_mean']:.4f}, MAE {summary['mae_mean']:.4f}, "
            f"tau {summary['tau']:.3f}",
            f"ratings inside their predictive intervals: {inside}",
        ]


def make_factorisation(
    config: ResolvedConfig, ratings: RatingBlocks, ring: Ring, transposed: bool, chain: int, sampler: Sampler[Any]
) -> FactorTarget:
    """Make the target of a chain, as it is before the first iteration.

    Parameters
    ----------
    config : ResolvedConfig
        Settings of the run.
    ratings : RatingBlocks
        This process's ratings.
    ring : Ring
        The processes of the chain.
    transposed : bool
        Whether the rows of W are items.
    chain : int
        Number of the chain.
    sampler : Sampler
        Says what is kept, and whether an iteration uses a part of the data or all.
    """
    model = HyperparameterModel(
        rank=config.rank,
        biases=config.biases,
        prior=config.prior,
        prior_precision=config.prior_precision,
        noise_precision=None if config.noise_precision == "sampled" else float(config.noise_precision),
        heteroscedastic=heteroscedastic_factors(config.noise, transposed),
        first=config.hyper_start,
        every=config.hyper_every,
    )
    by_parts = sampler.gradient.by_parts
    return FactorTarget(
        ring,
        ratings,
        Schedule(config.schedule, ratings.part_sizes.tolist(), config.seed, chain) if by_parts else None,
        model,
        config.law(config.rank, config.biases, config.noise != "shared"),
        fields=sampler.kept,
        scratch=sampler.scratch,
        positions=sampler.positions,
        stream=Stream(config.seed, chain),
    )

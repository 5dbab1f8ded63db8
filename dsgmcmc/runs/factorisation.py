"""The factorisation that a configuration describes."""

from __future__ import annotations

from typing import Any

from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.parallel.schedule import Schedule
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.targets.factorisation.blocks import RatingBlocks
from dsgmcmc.targets.factorisation.hyperparameters import HyperparameterModel
from dsgmcmc.targets.factorisation.noise import heteroscedastic_factors
from dsgmcmc.targets.factorisation.target import FactorTarget
from dsgmcmc.targets.state import Stream


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

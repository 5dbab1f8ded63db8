"""Whether a model is fit for its ratings: what is refused, or warned of, before anything is sampled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from dsgmcmc.config.run import ResolvedConfig, automatic_rank
from dsgmcmc.data.ratings import Ratings
from dsgmcmc.data.ratings.format import find_bad_scale, row_slabs
from dsgmcmc.errors import InputError
from dsgmcmc.model.blocks import SLAB
from dsgmcmc.model.likelihoods import LIKELIHOODS
from dsgmcmc.model.likelihoods.base import Law
from dsgmcmc.model.likelihoods.gaps import LEAST_LEVELS
from dsgmcmc.model.likelihoods.gaussian import Gaussian
from dsgmcmc.model.likelihoods.ordinal import MAX_LEVELS
from dsgmcmc.settings import named
from dsgmcmc.types import Int64

#: Numbers of the factors for a rating above which exact Gibbs, too, was seen to take noise for structure.
MAX_NUMBERS_PER_RATING = 3


def cautions(config: ResolvedConfig, ratings: Ratings) -> list[str]:
    """Say what may be wrong with a run on these ratings, though it is no error; nothing, mostly."""
    return [*_of_small_data(config, ratings), *_of_values(config, ratings)]


def _of_small_data(config: ResolvedConfig, ratings: Ratings) -> Iterator[str]:
    """Of a rank with which tau says little, and the published priors less."""
    rows_and_columns = ratings.n_rows + ratings.n_cols
    numbers = config.rank * rows_and_columns
    if not config.law.all_cells and numbers > MAX_NUMBERS_PER_RATING * ratings.nnz:
        published = (
            "" if config.standardise else ", and leave out --standardise: the published priors are too wide here"
        )
        yield (
            f"{numbers:,} numbers of the factors for {ratings.nnz:,} training ratings: the data hardly tell noise from "
            f"factors, so tau means little; leave out --rank, or try --rank "
            f"{automatic_rank(ratings.nnz, rows_and_columns)}{published}"
        )


def _of_values(config: ResolvedConfig, ratings: Ratings) -> Iterator[str]:
    """Of ratings 0 and 1 under a law of real numbers, the first of them standing for all; and of clicks."""
    if config.law.all_cells and (ratings.minimum, ratings.maximum) != (1.0, 1.0):
        yield (
            f"ratings are from {ratings.minimum:g} to {ratings.maximum:g}, and --likelihood {config.likelihood} takes "
            "every one for a click: prepare those alone that are"
        )
    if not config.law.all_cells and ratings.minimum == ratings.maximum:
        yield (
            f"all ratings are {ratings.minimum:g}, so their values say nothing: where it counts who has one, try "
            "--likelihood all-cells"
        )
    if config.law.has_levels and levels_of_scale(ratings, Gaussian) is None:
        yield (
            f"most training ratings occur once, and --likelihood {config.likelihood} takes each for a level: if they "
            "are measurements, use --likelihood gaussian"
        )
    if not config.law.has_noise or (ratings.minimum, ratings.maximum) != (0.0, 1.0):
        return
    start, stop = next(row_slabs(ratings.row_indptr, SLAB))
    if np.isin(ratings.slab("train", start, stop)[2], (0.0, 1.0)).all():
        others = [name for name, law in LIKELIHOODS.items() if law.has_levels]
        advice = (
            f"try --likelihood {' or '.join(others)}" if others else "docs/own-likelihood.md says how to write another"
        )
        yield (
            f"the ratings are 0 and 1, and --likelihood {config.likelihood} is a law of real numbers: its intervals "
            f"are wrong; {advice}"
        )


def check_values(ratings: Ratings, config: ResolvedConfig) -> None:
    """Refuse ratings that the likelihood does not take, and those whose squares or variances leave float32."""
    if config.law.has_levels:
        check_levels(ratings, config)
    if config.law.of_counts:
        check_counts(ratings, config.likelihood)
    low, high = ratings.minimum, ratings.maximum
    for start, stop in row_slabs(ratings.test_indptr, SLAB):
        x = ratings.slab("test", start, stop)[2]
        if len(x):
            low, high = min(low, float(x.min())), max(high, float(x.max()))
    if bad := find_bad_scale(low, high):
        raise InputError(f"{ratings.path}: {bad}")


def check_counts(ratings: Ratings, likelihood: str) -> None:
    """Refuse ratings that are not whole numbers from 0 on, or are all 0."""
    parts: tuple[tuple[Literal["train", "test"], Int64], ...]
    parts = (("train", ratings.row_indptr), ("test", ratings.test_indptr))
    for part, indptr in parts:
        for start, stop in row_slabs(indptr, SLAB):
            x = ratings.slab(part, start, stop)[2]
            wrong = x[(x < 0) | (x != np.floor(x))]
            if len(wrong):
                raise InputError(
                    f"{ratings.path} has a {part} rating of {wrong[0]:g}, and {likelihood} is of counts, whole numbers "
                    f"from 0 on: use {named('likelihood')} gaussian or ordinal-logit, or prepare counts"
                )
    if ratings.maximum == 0:
        raise InputError(f"{ratings.path}: all training ratings are 0, and {likelihood} has nothing to count")


def levels_of_scale(ratings: Ratings, law: type[Law]) -> list[float] | None:
    """What training ratings there are, in order, if these are the levels of a scale; None if they are measurements.

    They are levels where the likelihood says so; else unless there are more than `MAX_LEVELS`, or most of them occur
    once and not all are whole or half numbers.
    """
    found = ratings.levels(MAX_LEVELS)
    if found is None or not (law.has_levels or 2 * len(found) <= ratings.nnz or np.all(2 * found % 1 == 0)):
        return None
    return [float(level) for level in found]


def check_levels(ratings: Ratings, config: ResolvedConfig) -> None:
    """Refuse ratings of one level, or of so many that they are none; and of two, where their gaps are to differ."""
    levels, likelihood = ratings.levels(MAX_LEVELS), config.likelihood
    if levels is None:
        raise InputError(
            f"{ratings.path} has more than {MAX_LEVELS} different training ratings, which {likelihood} would take for "
            f"as many levels: use {named('likelihood')} gaussian, or round the ratings and prepare them again"
        )
    if len(levels) < 2:
        raise InputError(f"{ratings.path}: all training ratings are {levels[0]:g}, and {likelihood} compares levels")
    if config.thresholds != "shared" and len(levels) < LEAST_LEVELS:
        raise InputError(
            f"{ratings.path} has ratings {levels[0]:g} and {levels[1]:g} alone, with one threshold between them, and a "
            "user's bias moves it already: leave out thresholds"
        )

"""Checks of a configuration against the ratings, before sampling.

A warning is given if the model hardly suits the ratings. An error is raised if the likelihood does not accept them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dsgmcmc.config.run import ResolvedConfig, automatic_rank
from dsgmcmc.data.ratings import Ratings, find_bad_scale, row_slabs
from dsgmcmc.errors import InputError
from dsgmcmc.model.blocks import SLAB
from dsgmcmc.model.likelihoods import Law
from dsgmcmc.model.likelihoods.ordinal import scale_of
from dsgmcmc.parallel.partition import block_bounds
from dsgmcmc.settings import named

#: Elements of the factors per rating above which even exact Gibbs sampling mistook noise for structure.
MAX_NUMBERS_PER_RATING = 3


def warnings_for_data(config: ResolvedConfig, ratings: Ratings) -> list[str]:
    """Return warnings about a run on these ratings: doubtful, but not an error."""
    return [*_of_small_data(config, ratings), *config.law.warnings_for_data(ratings, config.likelihood)]


def _of_small_data(config: ResolvedConfig, ratings: Ratings) -> Iterator[str]:
    """Warn if the rank is so large that the ratings hardly determine tau."""
    rows_and_columns = ratings.n_rows + ratings.n_cols
    numbers = config.rank * rows_and_columns
    if config.law.is_sum_over_ratings and numbers > MAX_NUMBERS_PER_RATING * ratings.nnz:
        published = "" if config.standardise else ", and leave out standardise: the published priors are too wide here"
        yield (
            f"{numbers:,} numbers in the factors for {ratings.nnz:,} training ratings: the data hardly tell noise from "
            f"factors, so tau means little; leave out --rank, or try --rank "
            f"{automatic_rank(ratings.nnz, rows_and_columns)}{published}"
        )


def check_values(ratings: Ratings, config: ResolvedConfig) -> None:
    """Refuse ratings that the likelihood does not accept, or whose squares or variances exceed float32."""
    config.law.check_ratings(config, ratings)
    low, high = ratings.minimum, ratings.maximum
    for start, stop in row_slabs(ratings.test_indptr, SLAB):
        x = ratings.slab("test", start, stop)[2]
        if len(x):
            low, high = min(low, float(x.min())), max(high, float(x.max()))
    if bad := find_bad_scale(low, high):
        raise InputError(f"{ratings.path}: {bad}")


def levels_of_scale(ratings: Ratings, law: type[Law]) -> list[float] | None:
    """Return the distinct training ratings, sorted, if they are levels of the likelihood or of a scale; else None."""
    levels = law.levels_of(ratings)
    levels = scale_of(ratings) if levels is None else levels
    return None if levels is None else levels.tolist()


def check_limits(config: ResolvedConfig, ratings: Ratings) -> None:
    """Refuse more test ratings in a block of rows than positions of 32 bits can count."""
    tested = int(np.diff(ratings.test_indptr[block_bounds(ratings.row_indptr, config.grid)]).max())
    if tested >= 2**31:
        raise InputError(f"a block of rows would have {tested:,} test ratings, too many: use a larger {named('grid')}")

"""Whether a model suits its ratings: checks and warnings before anything is sampled."""

from __future__ import annotations

from collections.abc import Iterator

from dsgmcmc.config.run import ResolvedConfig, automatic_rank
from dsgmcmc.data.ratings import Ratings
from dsgmcmc.data.ratings.format import find_bad_scale, row_slabs
from dsgmcmc.errors import InputError
from dsgmcmc.model.blocks import SLAB
from dsgmcmc.model.likelihoods import Law
from dsgmcmc.model.likelihoods.ordinal import scale_of

#: Numbers in the factors per rating above which even exact Gibbs was seen to mistake noise for structure.
MAX_NUMBERS_PER_RATING = 3


def warnings_for_data(config: ResolvedConfig, ratings: Ratings) -> list[str]:
    """Warnings about a run on these ratings that is doubtful, though not an error."""
    return [*_of_small_data(config, ratings), *config.law.warnings_for_data(ratings, config.likelihood)]


def _of_small_data(config: ResolvedConfig, ratings: Ratings) -> Iterator[str]:
    """Warn of a rank so large that tau means little, and the published priors fit badly."""
    rows_and_columns = ratings.n_rows + ratings.n_cols
    numbers = config.rank * rows_and_columns
    if config.law.is_sum_over_ratings() and numbers > MAX_NUMBERS_PER_RATING * ratings.nnz:
        published = (
            "" if config.standardise else ", and leave out --standardise: the published priors are too wide here"
        )
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
    """Distinct training ratings, in order, if these are levels of the likelihood or of a scale; else None."""
    levels = law.levels_of(ratings)
    levels = scale_of(ratings) if levels is None else levels
    return None if levels is None else levels.tolist()

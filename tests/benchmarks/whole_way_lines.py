"""Write made-up lines of ratings, many of which repeat a user and item, to a Parquet file.

    python tests/benchmarks/whole_way_lines.py MILLIONS lines.parquet

There are 4,800 users a million lines, and up to 17,770 items. Shares of lines of users are
quantiles of Gamma(0.6), those of items of Gamma(0.5), in random order. A sixth of the lines or more
repeat the user and item of another line: 14 % by intent, the others by chance. Ratings are a mean,
biases and a product of 8 factors, with noise, rounded to half stars. Names are integers with gaps.
Lines are drawn in parts of a million, so memory does not grow with their number. Not part of the
tests.
"""

import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.special import gammaincinv

PART = 1_000_000
REPEATED = PART * 14 // 100
SCHEMA = pa.schema([("user", pa.int64()), ("item", pa.int64()), ("rating", pa.float64())])


def cumulated_shares(rng: np.random.Generator, number: int, shape: float) -> np.ndarray:
    """Cumulated shares of lines, (number,): quantiles of Gamma(shape) in random order."""
    shares = gammaincinv(shape, (np.arange(number) + 0.5) / number) + 0.02
    rng.shuffle(shares)
    cumulated = np.cumsum(shares)
    return cumulated / cumulated[-1]


class Lines:
    """The distribution of made-up lines."""

    def __init__(self, millions: int) -> None:
        rng = np.random.default_rng(0)
        users = 4_800 * millions
        items = min(17_770, int(5_600 * millions**0.25))
        self.users = cumulated_shares(rng, users, 0.6)
        self.items = cumulated_shares(rng, items, 0.5)
        self.user_bias = rng.normal(0, 0.4, users)
        self.item_bias = rng.normal(0, 0.5, items)
        self.user_factors = rng.normal(0, 0.42, (users, 8)).astype(np.float32)
        self.item_factors = rng.normal(0, 0.42, (items, 8)).astype(np.float32)

    def pairs(self, part: int) -> np.ndarray:
        """Users and items of a part before any is repeated, (2, PART)."""
        rng = np.random.default_rng((1, part))
        users = np.searchsorted(self.users, rng.random(PART))
        items = np.searchsorted(self.items, rng.random(PART))
        return np.stack([users, items])

    def table(self, part: int) -> pa.Table:
        """Lines of a part; some have the pairs of an earlier part, or of this one."""
        rng = np.random.default_rng((2, part))
        pairs = self.pairs(part)
        earlier = self.pairs(int(rng.integers(part))) if part else pairs
        pairs[:, :REPEATED] = earlier[:, rng.integers(REPEATED, PART, REPEATED)]
        users, items = pairs[:, rng.permutation(PART)]
        product = np.einsum("nk,nk->n", self.user_factors[users], self.item_factors[items])
        expected = 3.5 + self.user_bias[users] + self.item_bias[items] + product
        ratings = np.round(2 * (expected + rng.normal(0, 0.8, PART))) / 2
        columns = [11 + 7 * users, 5 + 3 * items, np.clip(ratings, 0.5, 5)]
        return pa.table(columns, schema=SCHEMA)


def main() -> None:
    """Write the file."""
    millions = int(sys.argv[1])
    lines = Lines(millions)
    with pq.ParquetWriter(sys.argv[2], SCHEMA) as writer:
        for part in range(millions):
            writer.write_table(lines.table(part))


if __name__ == "__main__":
    main()

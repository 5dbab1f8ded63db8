"""Do one step of the whole way with another package, as its user would.

    python whole_way_peers.py prepare lines.parquet ratings.parquet
    python whole_way_peers.py read ratings.parquet matrix.npz
    python whole_way_peers.py fit matrix.npz factors.npz ITERATIONS
    python whole_way_peers.py recommend matrix.npz factors.npz lists.npy

`prepare` is polars: it numbers users and items, keeps the last line of every pair, and writes
ratings sorted by user and item. `read` makes the sparse matrix that implicit needs, `fit` is
implicit's alternating least squares with 32 factors, and `recommend` finds the ten best items of
every user, without rated ones. Runs in an environment of its own, without dsgmcmc. Not part of the
tests.
"""

import sys

import numpy as np
from scipy import sparse


def prepare(lines, ratings):
    """Number, keep the last line of every pair, sort and write."""
    import polars as pl

    table = pl.read_parquet(lines)
    for side in ("user", "item"):
        names = table.select(pl.col(side).unique().sort()).with_row_index(f"{side}_number")
        table = table.join(names, on=side, maintain_order="left").drop(side)
    pair = ["user_number", "item_number"]
    table = table.unique(pair, keep="last", maintain_order=False).sort(pair)
    table.write_parquet(ratings)


def read(ratings, matrix):
    """Make a sparse matrix of users and items."""
    import polars as pl

    table = pl.read_parquet(ratings)
    users = table["user_number"].to_numpy()
    items = table["item_number"].to_numpy()
    values = table["rating"].to_numpy().astype(np.float32)
    found = sparse.csr_matrix((values, (users, items)))
    sparse.save_npz(matrix, found, compressed=False)


def fit(matrix, factors, iterations):
    """Fit by alternating least squares."""
    from implicit.cpu.als import AlternatingLeastSquares

    model = AlternatingLeastSquares(factors=32, iterations=int(iterations), random_state=0)
    model.fit(sparse.load_npz(matrix), show_progress=False)
    model.save(factors)


def recommend(matrix, factors, lists):
    """Find the ten best items of every user."""
    from implicit.cpu.als import AlternatingLeastSquares

    model = AlternatingLeastSquares.load(factors)
    rated = sparse.load_npz(matrix)
    items, _ = model.recommend(np.arange(rated.shape[0]), rated, N=10)
    np.save(lists, items)


STEPS = {"prepare": prepare, "read": read, "fit": fit, "recommend": recommend}

if __name__ == "__main__":
    STEPS[sys.argv[1]](*sys.argv[2:])

"""Latency of a server's day: first lists of new users, new ratings of known ones, and posts.

    dsgmcmc prepare ml-1m/ratings.dat ml1m.h5
    dsgmcmc sample ml1m.h5 --out auto --model auto --seed 1
    python tests/benchmarks/new_users.py auto --users 1200

New users give 20 ratings of the most rated items. Times are processor milliseconds of one process,
medians of `--repeats` users; the run has been read, and its exposure written, before. The last
column is the effective number of the 8 proposals from which a row is chosen, where rows are drawn:
its mean over draws, and the share of draws that are moved on by slices.
"""

from itertools import islice
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from bench import arguments, say, say_head

from dsgmcmc import open_run
from dsgmcmc.posterior.rows import added, drawn_rows
from dsgmcmc.posterior.rows.drawn_rows import RatedRows

FIRST_NEW = 10**9
RATINGS = 20


class Watched:
    """Rows that were drawn, which are drawn again to measure how well they were proposed."""

    def __init__(self) -> None:
        self.rated: list[RatedRows] = []
        draw_rows = added.draw_rows

        def watched(rated: RatedRows, rng: np.random.Generator) -> Any:
            self.rated.append(rated)
            return draw_rows(rated, rng)

        added.draw_rows = watched

    def described(self) -> str:
        """Mean effective number of proposals, and the share of draws that need slices."""
        effective = []
        for rated in self.rated:
            weight = proposal_weights(rated)
            effective.append(weight.sum(axis=1) ** 2 / (weight**2).sum(axis=1))
        self.rated.clear()
        if not effective:
            return "-"
        numbers = np.concatenate(effective)
        share = np.mean(numbers < drawn_rows.LEAST_EFFECTIVE)
        return f"{numbers.mean():.2f}; {100 * share:.1f}%"


def proposal_weights(rated: RatedRows) -> np.ndarray:
    """Weights of proposals of every row, (rows, proposals)."""
    rng = np.random.default_rng(0)
    mode, lower = drawn_rows.laplace(rated)
    logs = []
    for _ in range(drawn_rows.PROPOSALS):
        u = rng.standard_normal(mode.shape)
        moved = np.linalg.solve(lower.transpose(0, 2, 1), u[..., np.newaxis])[..., 0]
        logs.append((u**2).sum(axis=1) / 2 - rated.energy(mode + moved))
    weights = np.array(logs).T
    return np.exp(weights - weights.max(axis=1, keepdims=True))


def main() -> None:
    """Measure one run."""
    parser = arguments(__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--users", type=int, default=200, help="new users between two measurements")
    parser.add_argument("--repeats", type=int, default=9)
    options = parser.parse_args()
    watched = Watched()
    model = open_run(options.run)
    counts = model.run_.counts("item")
    popular = model.items_[np.argsort(-counts)[: max(2 * RATINGS, len(counts) // 2)]]
    levels = model.levels_
    rng = np.random.default_rng(0)

    def milliseconds(act: Any) -> float:
        start = process_time()
        act()
        return 1e3 * (process_time() - start)

    def ratings_of(user: int, n: int) -> np.ndarray:
        chosen = rng.choice(popular, n, replace=False)
        return np.column_stack([np.full(n, user), chosen, rng.choice(levels, n)])

    def measure(name: str, users: list[int], n: int) -> None:
        """Post n ratings of every user, and ask for the user's list twice."""
        times = []
        for user in users:
            new = ratings_of(user, n)
            post = milliseconds(lambda new=new: model.update(new))
            first = milliseconds(lambda user=user: model.recommend([user]))
            again = milliseconds(lambda user=user: model.recommend([user]))
            times.append((post, first, again))
        post, first, again = np.median(times, axis=0)
        say(name, f"{post:.1f}", f"{first:.1f}", f"{again:.1f}", watched.described())

    model.recommend([model.users_[0]])
    model.update(ratings_of(FIRST_NEW - 1, RATINGS))
    model.recommend([FIRST_NEW - 1, model.users_[0]])
    watched.rated.clear()
    say_head("ms of the processor", "post", "first list", "again", "effective; by slices")
    new_users = iter(range(FIRST_NEW, 2 * FIRST_NEW))
    measure(f"new user, {RATINGS} ratings", list(islice(new_users, options.repeats)), RATINGS)
    for user in islice(new_users, options.users):
        model.update(ratings_of(user, RATINGS))
    measure(f"after {options.users} more", list(islice(new_users, options.repeats)), RATINGS)
    of_users = model.run_.counts("user")
    for wanted in (20, 200, 2000):
        nearest = np.argsort(np.abs(of_users - wanted))[:3]
        measured = int(of_users[nearest[0]])
        measure(f"known user, {measured} and 1", model.users_[nearest[:1]].tolist(), 1)


if __name__ == "__main__":
    main()

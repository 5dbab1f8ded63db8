"""Levels of time: names, groups from timestamps, what is refused, and predictions of ratings of an
unknown time.
"""

from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from dsgmcmc import BPMF
from dsgmcmc.config.run import build
from dsgmcmc.errors import InputError
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.likelihoods import LIKELIHOODS, Law
from dsgmcmc.model.likelihoods.gaussian import GaussianRatings
from dsgmcmc.model.parts.time_groups import read_groups, time_levels_of
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.prepare.prepare import prepare_ratings
from dsgmcmc.ratings.file import Ratings

#: User, item, rating, time: user a rates in three seconds, five ratings in all; b in one.
LINES = [
    "a,p,1,10.2",
    "a,q,2,10.9",
    "a,r,3,5",
    "a,s,4,77",
    "a,t,5,77",
    "b,p,2,3",
    "b,q,4,3",
    "b,r,3,3",
]


def groups_of(path: Path, name: str) -> dict[tuple[str, str], int]:
    """Group of every rating at one level, by user and item, on one process; of a block's groups the
    first is 0.
    """
    by_pair = {}
    ring = Ring(MPI.COMM_SELF, 1)
    with Ratings(path) as ratings:
        blocks = RatingBlocks(ratings, ring, 0.0)
        groups = read_groups(time_levels_of([name], ratings.orientation), ratings, blocks, ring)
        rows = ratings.ids("rows")
        cols = ratings.ids("cols")
        for part, members in (("train", groups.train[0][0, 0]), ("test", groups.test[0][0])):
            indptr, j = ratings.slab(part, 0, ratings.n_rows)[:2]
            for i, column, group in zip(
                np.repeat(np.arange(len(rows)), np.diff(indptr)), j, members, strict=True
            ):
                pair = (rows[i], cols[column])
                by_pair[pair[::-1] if ratings.orientation.transposed else pair] = int(group)
    return by_pair


@pytest.mark.parametrize("fraction", [0.0, 0.4])
@pytest.mark.parametrize(
    ("level", "together"),
    [
        ("user:page", ["ar", "ap aq", "as at", "bp bq br"]),
        ("item:page", ["bp", "ap", "bq", "aq", "br", "ar", "as", "at"]),
        ("user:3", ["ar ap aq", "as at", "bp bq br"]),
        ("item:2", ["ap bp", "aq bq", "ar br", "as", "at"]),
    ],
)
def test_groups_follow_from_timestamps(tmp_path, fraction, level, together):
    """Seconds and runs of each user and item, training and test ratings alike, whichever side the
    rows are.
    """
    (tmp_path / "r.csv").write_text("\n".join(["user,item,rating,timestamp", *LINES]))
    prepare_ratings(
        [str(tmp_path / "r.csv")], tmp_path / "r.h5", timestamps=True, test_fraction=fraction
    )
    by_pair = groups_of(tmp_path / "r.h5", level)
    sets = {
        frozenset(pair for pair, other in by_pair.items() if other == group)
        for group in by_pair.values()
    }
    assert sets == {frozenset((pair[0], pair[1]) for pair in group.split()) for group in together}


def test_a_law_with_a_gradient_of_its_own_has_to_give_its_score(monkeypatch):
    """A law without its score is refused: effects would be drawn from another law than the rest."""

    class Own(GaussianRatings):
        statistics = Law.statistics

        def add_gradient(self, *arguments, **options):
            return super().add_gradient(*arguments, **options)

    monkeypatch.setitem(LIKELIHOODS, "own", Own)
    with pytest.raises(InputError, match=r"need Own\.scores"):
        build({"time_levels": "user", "likelihood": "own"}).resolved()


def test_predictions_of_an_unknown_time_are_wider(tmp_path):
    """The predictive variance of a pair has that of the noise and of the effects of all levels,
    besides the draws'.

    Timestamps come as a column of an array; whoever leaves it out is told so.
    """
    rng = np.random.default_rng(1)
    pairs = np.unique(rng.integers(0, 25, (400, 2)), axis=0)
    x = 3 + rng.normal(0, 1, len(pairs))
    times = rng.uniform(0, 30, len(pairs))
    options = {"grid": 2, "save_draws": 20}
    model = BPMF(rank=2, iterations=60, burn_in=20, time_levels="user:page,item:4", options=options)
    run = model.fit(np.column_stack([pairs, x, times])).run_
    user, item = (
        run.vocabulary(entity).index_of(pairs[:9, k]) for k, entity in enumerate(("user", "item"))
    )
    draws = [run.draw(number) for number in range(len(run.draws))]
    w, h = (
        np.array([d.theta[entity][index] for d in draws])
        for entity, index in (("user", user), ("item", item))
    )
    eta = (w[..., :2] * h[..., :2]).sum(axis=-1) + w[..., 2] + h[..., 2]
    variances = np.array([1 / d.tau + d.of_ratings(*np.zeros((2, 0), np.int32))[1] for d in draws])
    share = run.draw_weights
    assert all(draw.of_ratings(*np.zeros((2, 0), np.int32))[1] > 0 for draw in draws)
    _, sd = model.predict(pairs[:9], return_std=True)
    assert sd**2 == pytest.approx(share @ variances + share @ (eta - share @ eta) ** 2, rel=1e-3)
    with pytest.raises(InputError, match="expected an array of shape"):
        model.fit(np.column_stack([pairs, x]))

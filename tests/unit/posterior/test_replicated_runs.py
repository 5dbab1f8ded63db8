"""What a run says of users and items if pairs have several measurements."""

from pathlib import Path

import numpy as np
import pytest
from measurements import write_measured

from dsgmcmc.config.run import build
from dsgmcmc.errors import InputError
from dsgmcmc.parallel.alone import Alone
from dsgmcmc.posterior.lists.exposure_of_run import exposure_of
from dsgmcmc.posterior.matrix.known import KnownCells
from dsgmcmc.posterior.rated import read_rated
from dsgmcmc.posterior.rows.added import fold_in
from dsgmcmc.posterior.rows.new_ratings import NewRatings
from dsgmcmc.posterior.run import Run
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.format import SPLITS
from dsgmcmc.runs.job import Job
from dsgmcmc.runs.source import RatingsSource


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of Gibbs sampling on measurements of which pairs have one to three."""
    folder = tmp_path_factory.mktemp("replicates")
    path = write_measured(folder / "r.h5", replicated=True)
    settings = {
        "rank": 2,
        "sampler": "gibbs",
        "iterations": 30,
        "burn_in": 10,
        "save_draws": 10,
        "noise_precision": 4.0,
    }
    Job(Alone(), RatingsSource(path), folder / "run", settings, quiet=True).run()
    return Run(folder / "run")


def new_ratings(values: list[float]) -> NewRatings:
    """A new user's measurements of item 3."""
    n = len(values)
    return NewRatings("user", np.full(n, 1000), np.full(n, 3), np.array(values), np.ones(n), {})


def test_a_new_user_has_all_measurements_of_a_pair(run: Run) -> None:
    """Two measurements say more than one, and they count both: the order does not matter."""
    biases = []
    spreads = []
    for values in ([9.0], [1.0, 9.0], [9.0, 1.0]):
        folded, notes = fold_in(run, new_ratings(values))
        assert not [note for note in notes if "left out" in note]
        rows = folded.rows(0, np.array([0]))
        biases.append(float(rows.mean[0, -1]))
        spreads.append(float(np.linalg.slogdet(rows.covariance[0])[1]))
    assert biases[1] == pytest.approx(biases[2])
    assert biases[1] < biases[0]
    assert spreads[1] < spreads[0]


def test_a_pair_is_seen_once(run: Run) -> None:
    """Recommendations leave out an item once, and shares of users are shares."""
    rated = read_rated(run)
    assert rated.pattern.max() == 1
    for user in range(len(run.users)):
        items = rated.items_of(user)
        assert len(set(items.tolist())) == len(items)
    assert exposure_of(run).shares.max() <= 1


def test_clicks_are_refused(run: Run, tmp_path: Path) -> None:
    """The likelihood of clicks has one term for every pair; the message says what to do."""
    config = build({"likelihood": "all-cells"}).resolved()
    path = write_measured(tmp_path / "r.h5", replicated=True)
    with Ratings(path) as ratings, pytest.raises(InputError, match="--duplicates last"):
        config.check_ratings(ratings)


def test_a_known_cell_is_the_mean_of_its_measurements(run: Run) -> None:
    """Of training and of test ratings."""
    cells = KnownCells(run).of(np.arange(29, dtype=np.int32), np.arange(17, dtype=np.int32))
    expected = np.full((29, 17), np.nan)
    with Ratings(Path(run.facts["data"])) as ratings:
        for split in SPLITS:
            slab = ratings.slab(split, 0, ratings.n_rows)
            for i, j in set(zip(slab.rows.tolist(), slab.indices.tolist(), strict=True)):
                chosen = (slab.rows == i) & (slab.indices == j)
                expected[i, j] = slab.values[chosen].mean()
    np.testing.assert_allclose(cells, expected, rtol=1e-5)

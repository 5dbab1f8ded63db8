"""The end of a run: test ratings are scored once, for all results in the summary."""

import json
from pathlib import Path

import pytest
from support import write_planted

from dsgmcmc.parallel.alone import Alone
from dsgmcmc.posterior import heldout
from dsgmcmc.runs.job import Job
from dsgmcmc.runs.source import RatingsSource

SETTINGS = {"rank": 2, "iterations": 4, "burn_in": 2}


@pytest.mark.parametrize("rank", [0, 2])
def test_every_test_rating_is_predicted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    """Scores and the comparison with biases only share the distributions, which take most of the
    time of the end of a large run.
    """
    predicted = []
    predictive = heldout.TestPredictions.predictive

    def counted(test, *arguments):
        predicted.append(len(test.rating))
        return predictive(test, *arguments)

    monkeypatch.setattr(heldout.TestPredictions, "predictive", counted)
    path = write_planted(tmp_path / "r.h5", stars=True)
    source = RatingsSource(path)
    settings = {**SETTINGS, "rank": rank}
    Job(Alone(), source, tmp_path / "run", settings, quiet=True).run()
    assert sum(predicted) == source.ratings.nnz_test > 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["over_biases"] is None) == (rank == 0)

"""Scores of held-out ratings."""

import numpy as np
import pytest
from runs import make_run

from dsgmcmc.diagnostics import scores
from dsgmcmc.posterior import heldout
from dsgmcmc.posterior.heldout import predict_test


def test_scores_do_not_depend_on_how_many_ratings_are_scored_at_a_time(tmp_path, monkeypatch):
    """Protects runs with hundreds of millions of test ratings, which no process may hold at once."""
    opened = make_run(tmp_path).open()
    whole = scores.held_out_scores([predict_test(opened)], opened.config.law, opened.levels)
    monkeypatch.setattr(heldout, "PART", 7)
    parts = list(heldout.test_parts(opened.directory))
    assert len(parts) > 2
    assert max(len(part.rating) for part in parts) <= 7
    np.testing.assert_array_equal(np.concatenate([part.mean for part in parts]), predict_test(opened).mean)
    scored = scores.held_out_scores(parts, opened.config.law, opened.levels)
    assert scored.pop("coverage") == pytest.approx(whole.pop("coverage"))
    assert scored == pytest.approx(whole)

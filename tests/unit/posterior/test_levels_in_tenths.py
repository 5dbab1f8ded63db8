"""Bounds that are levels of decimals, which float32 stores a little below or above."""

import csv
import io

import numpy as np
import pytest
from support import typed

from dsgmcmc.bpmf import BPMF
from dsgmcmc.diagnostics.ranking import evaluate
from dsgmcmc.model.predictive.base import reaches
from dsgmcmc.model.predictive.levels import LevelDistribution

GRADES = np.array([0.7, 0.9, 1.0, 1.3, 1.7, 2.0, 2.3, 2.7, 3.3, 4.0, 5.0])
STORED = GRADES.astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("k", range(len(GRADES)))
def test_a_level_reaches_itself(k):
    """And no level below it does."""
    assert np.flatnonzero(reaches(STORED, GRADES[k])).tolist() == list(range(k, len(GRADES)))
    law = LevelDistribution(np.full((1, len(GRADES)), 1 / len(GRADES)), STORED)
    assert law.at_least(GRADES[k])[0] == pytest.approx(1 - k / len(GRADES))


def test_in_python_and_by_command(tmp_path):
    """Probabilities of reaching a level are those of all levels from it on; liked ones reach it."""
    rng = np.random.default_rng(3)
    pairs = np.array([(i, j) for i in range(30) for j in range(8)])
    ratings = rng.choice(GRADES, len(pairs))
    path = tmp_path / "pairs.csv"
    path.write_text("user,item\n0,3\n")
    for likelihood in ("ordinal-logit", "gaussian"):
        out = tmp_path / likelihood
        model = BPMF(
            rank=1,
            iterations=60,
            burn_in=20,
            test_fraction=0.2,
            out=out,
            options={"likelihood": likelihood},
        ).fit(pairs, ratings)
        assert model.levels_.tolist() == GRADES.tolist()
        by_level = model.predict_proba(pairs)
        for k, bound in enumerate(GRADES):
            np.testing.assert_allclose(
                model.predict(pairs, at_least=bound), by_level[:, k:].sum(axis=1), atol=1e-5
            )
        assert evaluate(model.run_, liked=3.3) == {
            **evaluate(model.run_, liked=3.29999),
            "liked": 3.3,
        }
        text = typed("predict", out, path, "--at-least", "3.3", "--probabilities").expect(0).out
        row = next(csv.DictReader(io.StringIO(text)))
        above = sum(float(row[f"p_{level:g}"]) for level in GRADES if level >= 3.3)
        assert float(row["at_least_3.3"]) == pytest.approx(above, abs=1e-3)

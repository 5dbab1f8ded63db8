"""The unit of ratings, which users say, stands beside numbers and pictures."""

import numpy as np
import pytest
from support import typed

from dsgmcmc import BPMF, open_run
from dsgmcmc.plots.heldout import observed_and_predicted

pytest.importorskip("matplotlib")

VALUES = 20 + np.random.default_rng(4).normal(size=(30, 8)).cumsum(axis=1)


def test_the_unit_is_kept_and_shown(tmp_path):
    """It is stored with the run of a matrix in memory, and named by `info` and on axes."""
    unit = "US$/kg$"  # dollars would begin a formula on axes
    model = BPMF(
        rank=1, iterations=20, burn_in=5, test_fraction=0.2, unit=unit, out=tmp_path / "run"
    ).fit(VALUES)
    shown = typed("info", tmp_path / "run").expect(0).out
    assert f" {unit} (biases only" in shown.splitlines()[1]
    assert f"--unit {unit}" in typed("info", tmp_path / "run", "--settings").expect(0).out
    run = open_run(tmp_path / "run").run_
    axes = observed_and_predicted(run)
    assert axes.get_xlabel() == r"predicted (US\$/kg\$)"
    axes.figure.canvas.draw()
    assert model.run_.reading.unit == unit

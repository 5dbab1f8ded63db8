"""Ratings of nasty shapes: a run ends well whatever they are.

`tests/benchmarks/robust.py` has more of each.
"""

import numpy as np
import pytest
from shapes import SHAPES
from support import typed

from dsgmcmc import open_run
from dsgmcmc.posterior.heldout import predict_test

BOTH = ("--noise", "both")
COUNTS = ("--likelihood", "negative-binomial")
LEVELS = ("--likelihood", "ordinal-logit", *BOTH)
THRESHOLDS = ("--likelihood", "ordinal-logit", "--noise", "by-item", "--thresholds", "user")
AUTO = ("--model", "auto")
SMALL = ("--rank", "3")  # of most other tests, whose kernels are compiled

#: Shapes and options: the nastiest for steps, noise, scales and thresholds. The quick ones have
#: every option once.
NASTY = [
    ("check-ins", (*COUNTS, *SMALL)),
    ("large counts", (*BOTH, *SMALL)),
    ("book ratings", (*THRESHOLDS, *SMALL)),
    ("nearly all alike", (*LEVELS, *SMALL)),
    *(
        pytest.param(*case, marks=pytest.mark.long)
        for case in (
            ("check-ins", ()),
            ("book ratings", BOTH),
            ("half stars", THRESHOLDS),
            ("two blocks", BOTH),
            ("constant users", LEVELS),
            ("values of 1e-6", BOTH),
            ("few", AUTO),
            ("check-ins", AUTO),
            ("book ratings", AUTO),
        )
    ),
]


@pytest.mark.parametrize(("shape", "options"), NASTY)
def test_runs_end_well_and_predict_numbers(shape, options, tmp_path):
    """Heavy tails, masses of one value, levels that hardly occur: status 0, no warning of NumPy,
    finite predictions.
    """
    data = SHAPES[shape].make(0).prepare(tmp_path / "r.h5")
    out = tmp_path / "run"
    done = typed("sample", data, "--out", out, "--iterations", "150sweeps", *options).expect(0)
    assert "RuntimeWarning" not in done.err
    model = open_run(out)
    pairs = np.column_stack(
        [np.append(np.resize(model.users_, 200), -1), np.append(-1, np.resize(model.items_, 200))]
    )
    predicted = *model.predict(pairs, return_std=True), *model.predict_interval(pairs)
    for numbers in (*predicted, predict_test(model.run_).mean):
        assert np.isfinite(numbers).all()


@pytest.mark.parametrize(
    ("shape", "seed", "sweeps", "options"),
    [
        pytest.param("check-ins", 9, 150, LEVELS, marks=pytest.mark.long),
        ("check-ins", 9, 150, THRESHOLDS),
        ("two camps", 0, 600, LEVELS),
        ("two camps", 1, 600, THRESHOLDS),
    ],
)
def test_thresholds_do_not_run_away(shape, seed, sweeps, options, tmp_path):
    """The first try holds, with levels that hardly occur, and where gaps are large because ratings
    are separable.
    """
    data = SHAPES[shape].make(seed).prepare(tmp_path / "r.h5")
    done = typed(
        "sample", data, "--out", tmp_path / "run", "--iterations", f"{sweeps}sweeps", *options
    )
    assert "diverged" not in done.expect(0).err

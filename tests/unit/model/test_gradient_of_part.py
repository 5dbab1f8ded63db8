"""The stochastic gradient of a part: its mean over the parts, weighted by how often each is
visited, is the gradient.

`test_likelihoods.py` compares the full gradient with the model's definition,
`kernels/test_gradient.py` with weights.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI
from support import MODEL, factor_target, rows_of, write_planted

from dsgmcmc.model.target import FactorTarget
from dsgmcmc.types import Factor, ScheduleName

SHAPE = (61, 37)
TAU = 2.5


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_planted(tmp_path_factory.mktemp("data") / "r.h5", *SHAPE, share=0.6)


def make(path: Path, schedule: ScheduleName, biases: bool, heteroscedastic: bool) -> FactorTarget:
    """Make a target of three latent dimensions."""
    model = replace(
        MODEL, rank=3, biases=biases, heteroscedastic=tuple(Factor) if heteroscedastic else ()
    )
    return factor_target(MPI.COMM_SELF, path, 5, schedule, model)


def put(target: FactorTarget, dense: bool) -> None:
    """Set a target to a random state, always the same, with a random prior."""
    rng = np.random.default_rng(7)
    prior = target.row_priors.parameters
    d = target.dimension
    target.noise.parameters.tau[...] = TAU
    for factor, n in zip(Factor, SHAPE, strict=True):
        theta = rng.normal(0, 1, (n, d))
        weight = rng.gamma(3, 1 / 3, (n, 1))
        root = rng.normal(0, 1, (d, d))
        prior.mean[factor] = rng.normal(0, 1, d)
        prior.precision[factor] = (root @ root.T + np.eye(d)) if dense else rng.gamma(2, 1, d)
        for block in target.blocks():
            rows = slice(block.start, block.start + len(block.counts))
            if block.factor == factor:
                block["theta"][:] = theta[rows]
                if target.likelihood.heteroscedastic:
                    block["weight"][:] = weight[rows]


def parts(target: FactorTarget) -> Iterator[int]:
    """Iterate until the target has been at every part; yield each when it is first there."""
    seen: set[int] = set()
    for iteration in range(1000):
        target.begin(iteration)
        if target.circulation.part not in seen:
            seen.add(target.circulation.part)
            yield target.circulation.part
        for _ in target.visit(send=True):
            pass
        if len(seen) == target.grid:
            return
    raise AssertionError("a part is never visited")


@pytest.mark.parametrize(
    ("schedule", "biases", "heteroscedastic", "prior"),
    [
        ("shuffled", True, False, "diagonal"),
        ("cyclic", False, True, "dense"),
        ("random", True, True, "dense"),
        ("random", False, False, "without"),
    ],
)
def test_the_mean_over_parts_is_the_full_gradient(
    path: Path, *, schedule: ScheduleName, biases: bool, heteroscedastic: bool, prior: str
) -> None:
    """With biases and without, with noise scales of users and items, with each kind of prior and
    without it.

    An element agrees to 1e-5 of the sum of the parts' absolute values, as float32 rounds every
    term.
    """
    dense = prior == "dense"
    target = make(path, schedule, biases, heteroscedastic)
    put(target, dense)
    target.noise.squared_error[:] = 0.0
    target.full_gradient("theta", "g")
    full = {f: TAU * rows_of(target, f, "g") for f in Factor}
    parameters = target.row_priors.parameters
    if prior != "without":
        for f in Factor:
            offset = rows_of(target, f) - parameters.mean[f]
            precision = parameters.precision[f]
            full[f] += offset @ (precision if dense else np.diag(precision))
    squared_error = target.noise.squared_error.sum()
    mean = {f: np.zeros_like(full[f]) for f in Factor}
    size = {f: np.zeros_like(full[f]) for f in Factor}
    mean_error = 0.0
    for part in parts(target):
        put(target, dense)
        target.noise.squared_error[:] = 0.0
        probability = target.circulation.part_probability
        assert probability == target.circulation.schedule.probability[part]
        for cell in target.visit():
            cell.gradient("theta", "g", prior=prior != "without")
            for block in cell.blocks:
                rows = slice(block.start, block.start + len(block.counts))
                mean[block.factor][rows] += probability * block["g"]
                size[block.factor][rows] += probability * np.abs(block["g"])
        mean_error += probability * target.noise.squared_error.sum()
    for f in Factor:
        assert np.abs(full[f]).max() > 1
        assert (np.abs(mean[f] - full[f]) <= 1e-5 * size[f]).all()
    # over a sweep each part's errors count 1 / (B p_t), so that their sum estimates that over all
    # ratings
    assert mean_error * target.grid == pytest.approx(squared_error, rel=1e-5)


def test_errors_count_for_the_sweep_in_which_they_were_made(path: Path) -> None:
    """Begun anew with every sweep, not with every iteration, of all ratings and of every row; or
    not at all.
    """
    target = make(path, "cyclic", True, True)
    put(target, dense=False)
    totals = []
    for iteration in range(10):
        target.begin(iteration)
        for cell in target.visit(send=True):
            cell.gradient("theta", "g", errors=iteration != 7)
        rows = sum(
            float((block["weight"] * block["row_error"]).sum())
            for block in target.blocks()
            if not block.factor
        )
        totals.append(float(target.noise.squared_error.sum()))
        assert rows == pytest.approx(totals[-1], rel=1e-5)
    assert (np.diff(totals[:5]) > 0).all()
    assert totals[5:7] == totals[:2]
    assert totals[7] == totals[6]
    assert totals[9] == pytest.approx(totals[4] - (totals[2] - totals[1]), rel=1e-12)

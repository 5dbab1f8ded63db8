"""Likeness of items and of users: against correlations of predictions."""

from __future__ import annotations

import numpy as np
import pytest
from runs import Made, make_run

from dsgmcmc.errors import InputError
from dsgmcmc.posterior.rank import similar, similarities


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Made:
    return make_run(tmp_path_factory.mktemp("run"))


@pytest.mark.parametrize(("kind", "other"), [("item", "user"), ("user", "item")])
def test_it_is_the_correlation_of_predictions(made, kind, other):
    """Of W_i . H_j and W_i . H_k over the users i, at every draw; summarised over draws, best first, without itself."""
    run, row = made.open(), 4
    found = similarities(run, kind, row)
    for number in (0, len(run.draws) - 1):
        theta = run.draw(number).theta
        predicted = theta[other][:, :3].astype(float) @ theta[kind][:, :3].T.astype(float)
        np.testing.assert_allclose(found[number], np.corrcoef(predicted, rowvar=False)[row], atol=1e-4)
    best = similar(run, kind, run.vocabulary(kind).ids[row], n=5)
    mean = run.draw_weights @ found
    mean[row] = -np.inf
    order = np.argsort(-mean)[:5]
    assert best[f"{kind}_id"].tolist() == run.vocabulary(kind).ids[order].tolist()
    np.testing.assert_allclose(best["sd"], found[:, order].std(axis=0), atol=1e-5)
    assert best["ratings"].tolist() == run.counts(kind)[order].tolist()


def test_biases_only_have_no_similarity(tmp_path):
    """It is of factors, which a run of rank 0 has not: a sentence says so."""
    run = make_run(tmp_path, rank=0, iterations=50).open()
    with pytest.raises(InputError, match=r"biases only \(--rank 0\).* sample with --rank 1 or more"):
        similar(run, "item", run.items.ids[0])

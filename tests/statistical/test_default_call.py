"""`sample_density` with nothing set, on the posteriors of `data/posteriors.py`, against references
of others.
"""

import numpy as np
import pytest
from posteriors import POSTERIORS, REFERENCES

from dsgmcmc.densities import sample, sample_density
from dsgmcmc.errors import SamplingWarning

pytestmark = pytest.mark.statistical
SLOW = {"garch", "mixture", "vote"}  # the others would most likely fail with them


# on funnels some trajectories diverge even in a good run, and that is said
@pytest.mark.filterwarnings("ignore:.*divergent trajectories:dsgmcmc.errors.SamplingWarning")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] if name in SLOW else [])
        for name in sorted(REFERENCES.keys() - {"centred"})
    ],
)
def test_means_and_standard_deviations_are_right(name: str) -> None:
    """Means within 0.1 standard deviations and their Monte Carlo error, standard deviations from
    0.93 to 1.07.
    """
    mean = np.array(REFERENCES[name]["mean"])
    sd = np.array(REFERENCES[name]["sd"])
    draws = sample_density(POSTERIORS[name], seed=2)
    assert (
        np.abs(draws.theta.mean(axis=(0, 1)) - mean) / sd < 0.1 + 2 / np.sqrt(draws.mixing.ess)
    ).all()
    np.testing.assert_allclose(draws.theta.std(axis=(0, 1)) / sd, 1.0, atol=0.07)


@pytest.mark.long
def test_what_cannot_be_sampled_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight schools in centred form, where NUTS has divergences, too; the length is doubled once,
    not three times.
    """
    monkeypatch.setattr(sample, "DOUBLINGS", 1)
    with pytest.warns(SamplingWarning):
        draws = sample_density(POSTERIORS["centred"], seed=2)
    assert "divergent trajectories" in draws.warnings[0]

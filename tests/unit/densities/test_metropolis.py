"""Metropolis kernels accept at rates that keep the posterior, however few data they evaluate."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from dsgmcmc.config.chain import GRADIENTS_OF_DENSITIES, SAMPLERS_OF_DENSITIES
from dsgmcmc.config.run import build
from dsgmcmc.densities.metropolis import Metropolis
from dsgmcmc.densities.mh import Austerity, AusterityConfig
from dsgmcmc.densities.models.regression import LOGISTIC, Link, Regression, student
from dsgmcmc.densities.models.sums import SumDensity
from dsgmcmc.densities.registry import SAMPLERS, SAMPLERS_OF_RATINGS
from dsgmcmc.densities.sample import vector_target
from dsgmcmc.densities.vector import VectorTarget
from dsgmcmc.errors import InputError
from dsgmcmc.samplers.gradients import GRADIENTS

METROPOLIS = [
    name for name, sampler_type in SAMPLERS.items() if issubclass(sampler_type, Metropolis)
]
LINKS = {"logistic": LOGISTIC, "student": student(4.0)}
BOUNDS = ["published", "whitened"]


def regression(
    n: int, d: int, link: Link = LOGISTIC, prior: float = 1.0, seed: int = 7
) -> Regression:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    predictor = x.sum(axis=1)
    if link is LOGISTIC:
        y = rng.random(n) < 1 / (1 + np.exp(-predictor))
    else:
        y = predictor + rng.standard_t(4, n)
    return Regression(x, y, link, prior_precision=prior)


def prepare(
    name: str, density: Any, rows: int = 1, burn_in: int = 0, **settings: Any
) -> tuple[Any, VectorTarget]:
    """Sampler and target at its start."""
    sampler = SAMPLERS[name](SAMPLERS[name].Config(**settings), burn_in)
    target = vector_target(density, sampler, rows=rows, seed=11)
    sampler.start(target, 1.0)
    return sampler, target


def rates_of(kernel: Any, theta: np.ndarray, proposed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rates at which every datum has candidates, and rejects, by the definitions."""
    t = kernel.tables
    k = kernel.order
    v = theta - t.anchor
    w = proposed - t.anchor

    def norm(x: np.ndarray) -> float:
        return float(np.linalg.norm(t.white @ x, 2 if kernel.euclidean else 1))

    def remainders(x: np.ndarray) -> np.ndarray:
        d = t.features @ x
        eta, value, slope, curvature = t.taylor.T
        return kernel.value(eta + d, t.responses, kernel.shape) - sum(
            term
            for order, term in enumerate((value, slope * d, 0.5 * curvature * d**2))
            if order <= k
        )

    phi = norm(v) ** (k + 1) + norm(w) ** (k + 1)
    return phi * t.psi, np.maximum(remainders(w) - remainders(v), 0)


@pytest.mark.parametrize(("name", "wanted"), [("hmc", 0.8), ("mala", 0.574)])
def test_steps_are_adapted_in_burn_in_and_then_fixed(name: str, wanted: float) -> None:
    """The acceptance rate is as requested, to 0.1, for a density whose curvature is a hundred times
    too small.
    """
    density = regression(300, 5)
    density.curvature = density.curvature / 100
    sampler, target = prepare(name, density, rows=20, burn_in=1000)
    sampler.advance(target, 0, 1000)
    steps = sampler.adapted.eps(False).copy()
    assert len(np.unique(steps)) == 20, "every row has its own"
    sampler.advance(target, 1000, 400)
    np.testing.assert_array_equal(sampler.adapted.eps(False), steps)
    assert sampler.metrics()["acceptance"] == pytest.approx(wanted, abs=0.1)


# ---------------------------------------------------------------------- thinning


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("name", ["smh1", "smh2"])
def test_no_datum_rejects_faster_than_its_bound(name: str, link: str, bound: str) -> None:
    """lambda_i <= phi psi_i at random points near and far: else a candidate's chance is above 1,
    and the law wrong.
    """
    density = regression(30, 2, LINKS[link])
    sampler, target = prepare(name, density, bound=bound)
    kernel, law = sampler.prepared(target)
    rng = np.random.default_rng(8)
    tightest = 0.0
    for _ in range(300):
        theta, proposed = (
            law.mean + 10 ** rng.uniform(-2, 1.5) * law.root @ rng.normal(size=2) for _ in range(2)
        )
        most, rates = rates_of(kernel, theta, proposed)
        assert (rates <= most * (1 + 1e-9) + 1e-12).all()
        tightest = max(tightest, (rates / most).max())
    assert tightest > 0.05


# ---------------------------------------------------------------------- chains


def test_a_reference_point_at_the_end_of_burn_in_is_counted() -> None:
    """Its N evaluations belong to the iterations after burn-in; a decision at the first test has
    two of each datum.
    """
    sampler, target = prepare(
        "modified_stochastic_mh", regression(300, 3), burn_in=10, refresh=10, risk=0.49, batch=20
    )
    sampler.advance(target, 0, 11)
    assert sampler.counts[0, 1] == 300 + 2 * 20


@pytest.mark.parametrize("name", METROPOLIS)
def test_many_at_once_are_as_many_one_by_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of iterations made in one call must not show."""
    density = regression(300, 3)
    states = []
    for sizes in ([40], [1] * 40, [7, 3, 30]):
        sampler, target = prepare(name, density, rows=2, burn_in=10)
        first = 0
        for size in sizes:
            sampler.advance(target, first, size)
            first += size
        states.append([target.block["theta"].copy(), sampler.counts, sampler.energies])
        assert target.stream.iteration == 39
        assert sampler.counts[:, 3].tolist() == [30, 30]
        assert sampler.metrics()["evaluations"] >= 0
    for other in states[1:]:
        for one, two in zip(states[0], other, strict=True):
            np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("name", ["austerity", "stochastic_mh", "modified_stochastic_mh"])
def test_without_risk_it_is_metropolis_hastings(name: str) -> None:
    """The same proposals, decided from all data: the same states, bit for bit."""
    density = regression(60, 2)
    found = {}
    for each in ("mh", name):
        settings = {} if each == "mh" else {"risk": 0.0, "batch": 13}
        sampler, target = prepare(each, density, rows=3, scale=1.5, **settings)
        sampler.advance(target, 0, 200)
        found[each] = target.block["theta"].copy()
        assert 0.2 < sampler.metrics()["acceptance"] < 0.9
    np.testing.assert_array_equal(found["mh"], found[name])


def own_value(eta: Any, y: Any, shape: float) -> Any:
    """That of `LOGISTIC`, of an eta that is multiplied by the shape."""
    return np.logaddexp(0.0, shape * eta) - y * shape * eta


def own_third(eta: Any, y: Any, shape: float) -> Any:
    """Third derivative."""
    half = np.tanh(0.5 * shape * eta)
    return -0.25 * shape**3 * (1.0 - half * half) * half


def test_a_link_of_your_own_is_compiled() -> None:
    """With the shape that it has; of what has no source it is said what to do."""
    plain = regression(300, 2)
    own = regression(300, 2)
    own.link = LOGISTIC._replace(name="own", value=own_value, third=own_third, shape=1.0)
    found = []
    for density in (plain, own):
        sampler, target = prepare("smh2", density, bound="published")
        sampler.advance(target, 0, 300)
        found.append(target.block["theta"].copy())
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)
    own.link = own.link._replace(value=lambda eta, y, shape: own_value(eta, y, shape))
    sampler, target = prepare("smh2", own)
    with pytest.raises(InputError, match="by def, in a file"):
        sampler.advance(target, 0, 1)


# --------------------------------------------------------- austerity, over all orders of a few data

N_DATA = 6
BATCH = 2


class Fixed(SumDensity):
    """A density whose energies rise by these numbers when theta goes from 0 to 1."""

    n_data = N_DATA

    def __init__(self, rises: np.ndarray) -> None:
        self.rises = rises

    def energies(self, theta, index=slice(None)):
        """See `SumDensity.energies`."""
        return theta * self.rises[index]

    def gradients(self, theta, index=slice(None)):
        """Not needed."""
        raise NotImplementedError


def orders() -> np.ndarray:
    """All orders of the data that differ in who is in which batch, each once."""
    every = [
        np.sort(np.reshape(order, (-1, BATCH)), axis=1).ravel()
        for order in permutations(range(N_DATA))
    ]
    return np.unique(every, axis=0)


def wrong(rises: np.ndarray, bars: np.ndarray, risk: float) -> np.ndarray:
    """Probability of a wrong decision against each bar, (len(bars),), the data being in random
    order.
    """
    kernel = Austerity(AusterityConfig(risk=risk, batch=BATCH), 0)
    density = Fixed(rises)
    pair = np.array([[0.0], [1.0]])
    found = [
        [
            kernel.rises_by_no_more(density, pair, bar, order)[0] != (rises.sum() <= bar)
            for order in orders()
        ]
        for bar in bars
    ]
    return np.mean(found, axis=1)


def test_even_data_are_decided_as_rarely_wrongly_as_promised() -> None:
    """Over the law of -log u: at most `risk` a test, of which there are two before all data are
    seen; never at 0.
    """
    rises = np.array([-1.2, -0.4, 0.1, 0.5, 0.9, 1.6])
    bars = -np.log((np.arange(20) + 0.5) / 20)
    assert len(orders()) == 90
    for risk in (0.05, 0.2):
        assert wrong(rises, bars, risk).mean() <= 2 * risk
    assert wrong(rises, bars, 0.2).max() > 0.1  # so the bound is not idle
    assert not wrong(rises, bars, 0.0).any()


# ---------------------------------------------------------------------- what is offered where


def test_a_factorisation_is_not_offered_them() -> None:
    """Neither by its list of samplers nor by their names; in one line."""
    with pytest.raises(
        InputError, match="'smh2' samples only densities; choose one of auto, sgld, "
    ) as error:
        build({"sampler": {"name": "smh2"}})
    assert "smh1" not in str(error.value)


def test_messages_know_the_names_that_only_densities_have() -> None:
    """They say so also where nothing of densities is imported."""
    assert set(SAMPLERS_OF_DENSITIES) == SAMPLERS.keys() - SAMPLERS_OF_RATINGS.keys()
    drawing = {name for name, estimator in GRADIENTS.items() if estimator.draws_data}
    assert set(GRADIENTS_OF_DENSITIES) == drawing


def test_a_precision_that_is_not_positive_definite_is_refused() -> None:
    """Proposals rest on a precision that is positive definite."""
    with pytest.raises(InputError, match="not positive definite"):
        prepare("smh2", Regression(np.ones((5, 2)), np.array([0, 1, 0, 1, 1]), prior_precision=0.0))
    sampler, target = prepare("mh", regression(20, 2, prior=0.0), proposal="pcn")
    with pytest.raises(InputError, match="prior's precision is not positive definite"):
        sampler.advance(target, 0, 1)

"""`sample_density`: draws, energies and weights of chains; errors that a program can catch;
computed curvature.
"""

from typing import Any

import numpy as np
import pytest
from densities import D, Logistic, N, Slip

from dsgmcmc import sample_density
from dsgmcmc.densities.curvature import complete
from dsgmcmc.densities.density import ALL, Gaussian, prior_energy
from dsgmcmc.densities.sample import DensityConfig, sample, vector_target
from dsgmcmc.diagnostics.mixing import rhat
from dsgmcmc.errors import DivergenceError, InputError, SamplingWarning

#: Chains that are too short to mix: what they draw is tested, not how well.
SHORT = pytest.mark.filterwarnings("ignore::dsgmcmc.errors.SamplingWarning")
SETTINGS: dict[str, Any] = {
    "chains": 2,
    "iterations": 150,
    "burn_in": 50,
    "thin": 5,
    "grid": 4,
    "seed": 3,
}


@SHORT
@pytest.mark.parametrize("name", ["sgld", "hmc", "hamcmc", "smh2"])
def test_draws_are_the_states_of_the_chain(name: str, regression: Any) -> None:
    """Every fifth state after burn-in, bit for bit, with its weight and iteration; with energies if
    all data count.
    """
    draws = sample_density(regression, sampler=name, **SETTINGS)
    assert draws.theta.shape == (2, 20, D)
    assert draws.iteration.tolist() == [list(range(55, 151, 5))] * 2
    config = DensityConfig.build({**SETTINGS, "sampler": name}).resolved()
    for chain in range(2):
        sampler = config.make_sampler()
        settings = {
            "seed": config.seed,
            "chain": chain,
            "grid": config.grid,
            "schedule": config.schedule,
        }
        target = vector_target(regression, sampler, **settings)
        states = [state[0].copy() for state in sample(target, sampler, 150, config.initial_sd)]
        np.testing.assert_array_equal(draws.theta[chain], states[54::5])
        assert draws.weight[chain].tolist() == [
            sampler.weight(target, number) for number in range(54, 150, 5)
        ]
    energy = regression.energy(draws.theta[0]) + prior_energy(regression, draws.theta[0])
    expected = energy if config.sweep_length == 1 else np.full(20, np.nan)
    np.testing.assert_allclose(draws.energy[0], expected)


@pytest.fixture(scope="module")
def regression() -> Any:
    """The logistic regression of the tests as a class that every sampler takes."""
    from dsgmcmc.densities.models.regression import Regression

    plain = Logistic()
    return complete(Regression(plain.features, plain.labels, prior_precision=0.5))


def test_mixing_is_reported() -> None:
    """R-hat and ESS of every element, the worst of them in its repr; ArviZ has the draws."""
    draws = sample_density(Logistic(), sampler="hmc", chains=3, iterations=1200, burn_in=200)
    np.testing.assert_array_equal(draws.mixing.rhat, rhat(draws.theta))
    assert draws.mixing.ess.min() > 1000
    text = repr(draws)
    assert text.startswith(
        "3 chain(s) of 1,000 draws of 3 elements of theta by hmc: R-hat at most 1.00"
    )
    assert f"ESS at least {draws.mixing.ess.min():,.0f}" in text
    assert 0.5 < draws.statistics[0]["acceptance"] <= 1
    pytest.importorskip("arviz_base")
    tree = draws.to_arviz()
    np.testing.assert_array_equal(tree["posterior"]["theta"], draws.theta)
    np.testing.assert_array_equal(tree["sample_stats"]["lp"], -draws.energy)


# ---------------------------------------------------------------------- errors


def test_errors_are_exceptions() -> None:
    """Settings that cannot be are exceptions, not an end of the program, and are named as in
    Python.
    """
    with pytest.raises(InputError, match=r"sgnht needs .* Use schedule=random"):
        sample_density(Logistic(), sampler="sgnht", schedule="shuffled")
    for name, words in (
        ("sgnht", "take matrix_sgnht up to D = 50, else sghmc"),
        ("psgld", "give it a step_size"),
    ):
        with pytest.raises(InputError, match=words):
            sample_density(Logistic(), sampler=name)
    with pytest.raises(
        DivergenceError, match=r"over 1,000,000 units .* or a start nearer to its bulk"
    ):
        sample_density(
            Gaussian(np.zeros(1), np.eye(1)),
            sampler={"name": "sgld", "step_size": 2.1},
            grid=1,
            thin=1,
        )
    with pytest.raises(InputError, match="before the first draw"):
        sample_density(Logistic(), sampler="mala", iterations=100, burn_in=100)
    with pytest.raises(InputError, match="until is a setting of runs, and not of sample_density"):
        sample_density(Logistic(), until="ess=100")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"dimension": 0}, r"Slip.dimension must be a positive integer: found 0"),
        ({"n_data": 10.0}, r"Slip.n_data .* found 10.0"),
        ({"prior_mean": 0.0}, r"prior_mean must be an array of numbers, \(3,\): found 0.0"),
        (
            {"prior_precision": np.ones((2, 2))},
            r"prior_precision .* \(3,\) or \(3, 3\): found float64 \(2, 2\)",
        ),
        ({"curvature": np.full(D, np.nan)}, r"curvature must be finite"),
        (
            {"energy": lambda theta, data=ALL: np.ones((1, N))},
            r"Slip.energy must be \(n,\) for .* found \(1, 53\)",
        ),
        (
            {"energy": lambda theta, data=ALL: np.full(1, np.nan)},
            r"Slip.energy is NaN at 8 points drawn like",
        ),
        (
            {"gradient": lambda theta, data=ALL: np.ones((1, D + 1))},
            r"Slip.gradient .* \(1, 3\): found \(1, 4\)",
        ),
    ],
)
def test_slips_of_a_density_are_named_before_it_is_sampled(
    wrong: dict[str, Any], said: str
) -> None:
    """A slip of the user is one sentence, not a traceback from inside the first iteration."""
    with pytest.raises(InputError, match=said):
        sample_density(Slip(**wrong), sampler="sgld", grid=1)


class Flat:
    """A density that is no sum."""

    n_data = 1
    dimension = 2
    curvature = np.ones(2)
    prior_mean = np.zeros(2)
    prior_precision = np.ones(2)

    def energy(self, theta: np.ndarray, data: Any = None) -> np.ndarray:
        return np.zeros(len(theta))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("smh1", "sampler smh1 samples a Regression, which this Flat is not"),
        ("austerity", "sampler austerity samples a SumDensity"),
        ("gibbs", "which a density does not give"),
    ],
)
def test_a_sampler_of_other_targets_is_refused(name: str, words: str) -> None:
    """With the class that it needs."""
    with pytest.raises(InputError, match=words):
        sample_density(Flat(), sampler=name)


def test_the_default_grid_is_no_finer_than_the_data() -> None:
    """A law without data, such as a normal one, is sampled by any sampler with nothing set."""
    with pytest.warns(SamplingWarning, match=r"disagree about element \d \(R-hat 1") as issued:
        draws = sample_density(
            Gaussian(np.zeros(2), np.eye(2)), sampler="sgld", iterations=150, thin=1
        )
    assert [str(warning.message) for warning in issued] == draws.warnings
    assert draws.theta.shape == (4, 50, 2)
    with pytest.raises(InputError, match="grid 4: 1 data cannot be cut into so many parts"):
        sample_density(Gaussian(np.zeros(2), np.eye(2)), sampler="sgld", grid=4)


# ---------------------------------------------------------------------- computed curvature


def test_a_missing_curvature_is_computed() -> None:
    """For a correlated normal distribution: the diagonal times the largest eigenvalue in its
    metric, to 0.1 %.
    """
    covariance = np.array([[4.0, 0.9], [0.9, 0.25]])
    law = Gaussian(np.array([3.0, -1.0]), covariance)
    del law.curvature
    found = complete(law).curvature
    diagonal = np.diag(law.precision)
    largest = np.linalg.eigvalsh(law.precision / np.sqrt(np.outer(diagonal, diagonal))).max()
    np.testing.assert_allclose(found, largest * diagonal, rtol=1e-3)
    np.testing.assert_allclose(complete(law).start, law.mean, rtol=1e-4)

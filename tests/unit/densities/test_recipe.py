"""Drifts against the complete recipe [Ma 2015, eq.

3]: a wrong sign or a forgotten term shows without simulation.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from densities import D, Logistic
from recipe import Dynamics, drift, euler, residual
from support import normals_of

from dsgmcmc.densities.registry import SAMPLERS
from dsgmcmc.densities.sample import vector_target
from dsgmcmc.densities.vector import VectorTarget
from dsgmcmc.samplers.base import Sampler
from dsgmcmc.samplers.step_size import StepSize
from dsgmcmc.types import Factor, Purpose

FRICTION = 0.7


class Curved(Logistic):
    """With a metric whose root is neither diagonal nor symmetric."""

    def metric(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """S_jk = d_jk + sin(theta_j + 2 theta_k) / 5, and sum_j d S_ji / d theta_j."""
        angle = theta[:, :, None] + 2 * theta[:, None, :]
        root = np.eye(D) + np.sin(angle) / 5
        slope = np.cos(angle) / 5
        return root, slope.sum(axis=1) + 2 * np.diagonal(slope, axis1=1, axis2=2)


class Stretched(Logistic):
    """With a metric that is diagonal."""

    def metric(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """S_j = 1 + sin(theta_j) / 5, and d S_j / d theta_j."""
        return 1 + np.sin(theta) / 5, np.cos(theta) / 5


DENSITY = Curved()
#: Roots of the times of the steps that a sampler's drift is taken from, as fractions of the
#: largest: Chebyshev's nodes.
NODES = 0.525 - 0.475 * np.cos((np.arange(60) + 0.5) * np.pi / 60)
TERMS = 13
START = 1  # the iteration in which the step is made: PSGLD's v is fixed from there on


def energy_gradient(theta: np.ndarray) -> np.ndarray:
    return DENSITY.gradient(theta) + DENSITY.prior_precision * (theta - DENSITY.prior_mean)


def diagonal(values: np.ndarray) -> np.ndarray:
    """(n, m, m) of (n, m)."""
    return values[:, :, None] * np.eye(values.shape[1])


def overdamped(s: np.ndarray) -> Dynamics:
    """Z = theta, D = S S for the root S of the inverse metric."""
    return Dynamics(energy_gradient, lambda z: diagonal(0 * z + s**2), lambda z: diagonal(0 * z))


def stretched() -> Dynamics:
    """Z = theta, D = S S, which depends on theta."""
    return Dynamics(
        energy_gradient,
        lambda z: diagonal(Stretched().metric(z)[0] ** 2),
        lambda z: diagonal(0 * z),
    )


def underdamped(s: np.ndarray, friction: np.ndarray) -> Dynamics:
    """Z = (theta, r), H = U + r.r / 2."""
    zeros = np.zeros((D, D))
    curl = np.block([[zeros, -np.diag(s)], [np.diag(s), zeros]])
    diffusion = np.diag(np.concatenate([np.zeros(D), friction]))

    def gradient(z: np.ndarray) -> np.ndarray:
        return np.hstack([energy_gradient(z[:, :D]), z[:, D : 2 * D]])

    return Dynamics(
        gradient,
        lambda z: np.tile(diffusion, (len(z), 1, 1)),
        lambda z: np.tile(curl, (len(z), 1, 1)),
    )


def riemannian() -> Dynamics:
    """Z = (theta, r), D = S^T S and Q made of S, which depends on theta."""

    def root(z: np.ndarray) -> np.ndarray:
        return DENSITY.metric(z[:, :D])[0]

    def diffusion(z: np.ndarray) -> np.ndarray:
        return np.pad(root(z).swapaxes(1, 2) @ root(z), ((0, 0), (D, 0), (D, 0)))

    def curl(z: np.ndarray) -> np.ndarray:
        s = root(z)
        zeros = np.zeros((len(z), D, D))
        return np.block([[zeros, -s], [s.swapaxes(1, 2), zeros]])

    return Dynamics(underdamped(np.ones(D), np.ones(D)).gradient, diffusion, curl)


def thermostats(s: np.ndarray, number: int) -> Dynamics:
    """Z = (theta, r, xi), H = U + r.r / 2 + (d / 2) sum (xi - A)^2, d = D / number."""
    plain = underdamped(s, np.full(D, FRICTION))
    d = D // number

    def gradient(z: np.ndarray) -> np.ndarray:
        return np.hstack([plain.gradient(z), d * (z[:, 2 * D :] - FRICTION)])

    def grown(small: np.ndarray) -> np.ndarray:
        return np.pad(small, ((0, 0), (0, number), (0, number)))

    def curl(z: np.ndarray) -> np.ndarray:
        extended = grown(plain.curl(z))
        for k in range(D):
            extended[:, D + k, 2 * D + k // d] = z[:, D + k] / d
            extended[:, 2 * D + k // d, D + k] = -z[:, D + k] / d
        return extended

    return Dynamics(gradient, lambda z: grown(plain.diffusion(z)), curl)


LOWER = np.tril_indices(D)


def matrix_of_frictions(s: np.ndarray) -> Dynamics:
    """Z = (theta, r, lower half of Xi), H = U + r.r / 2 + (mu / 2) |Xi - A|^2 over all elements, mu
    = D.
    """
    plain = underdamped(s, np.full(D, FRICTION))
    size = len(LOWER[0])
    counted = np.where(LOWER[0] == LOWER[1], 1, 2)

    def gradient(z: np.ndarray) -> np.ndarray:
        return np.hstack(
            [plain.gradient(z), D * counted * (z[:, 2 * D :] - FRICTION * (counted == 1))]
        )

    def grown(small: np.ndarray) -> np.ndarray:
        return np.pad(small, ((0, 0), (0, size), (0, size)))

    def curl(z: np.ndarray) -> np.ndarray:
        extended = grown(plain.curl(z))
        for column, (i, j) in enumerate(zip(*LOWER, strict=True), 2 * D):
            for one, other in ((i, j), (j, i)):
                extended[:, D + one, column] = z[:, D + other] / (D if i == j else 2 * D)
                extended[:, column, D + one] = -extended[:, D + one, column]
        return extended

    return Dynamics(gradient, lambda z: grown(plain.diffusion(z)), curl)


OVERDAMPED = {"sgld", "psgld", "sgrld", "gsgrld"}


@dataclass
class Case:
    """A sampler, its settings, what it claims to be given S, and how its step follows from the time
    of the dynamics.
    """

    name: str
    section: dict[str, Any]
    dynamics: Callable[[np.ndarray], Dynamics]

    @property
    def fields(self) -> list[str]:
        """What z is made of."""
        return [
            "theta",
            *([] if self.name in OVERDAMPED else ["r"]),
            *(["xi"] if "sgnht" in self.name else []),
        ]

    def sampler(self, time: float) -> Sampler[Any, Any]:
        """With steps of this time."""
        section = dict(self.section)
        section["step_size"] = time if self.name in OVERDAMPED | {"gsgrhmc"} else time**2 / 2
        if self.name == "psgld":
            section["step_size"] *= DENSITY.n_data
        if self.name == "baoab":
            section["friction"] = np.exp(-FRICTION * time)
        sampler_type = SAMPLERS[self.name]
        if "warm_up" in sampler_type.Config.model_fields:
            section["warm_up"] = 0
        return sampler_type(sampler_type.Config(**section), START)

    @functools.cached_property
    def made(self) -> dict[float, tuple[Sampler[Any, Any], VectorTarget]]:
        """Samplers of all the times that were asked for, and their targets."""
        return {}

    def step(self, z: np.ndarray, time: float) -> np.ndarray:
        """Where a step of this time leads from z (m,)."""
        if time not in self.made:
            sampler = self.sampler(time)
            target = vector_target(Stretched() if self.name == "gsgrld" else DENSITY, sampler)
            sampler.start(target, 1.0)
            sampler.advance(target, 0, START)  # takes the metric
            target.begin(START)
            self.made[time] = sampler, target
        sampler, target = self.made[time]
        fields = {
            name: target.block[name][0] for name in self.fields if name in target.block.arrays
        }
        scalar = "xi" in self.fields and "xi" not in fields
        values = dict(zip(self.fields, self.split(z), strict=True))
        for name, array in fields.items():
            array[:] = values[name]
        if self.name == "matrix_sgnht":
            sampler.frictions[0][LOWER] = sampler.frictions[0].T[LOWER] = values["xi"]
        elif scalar:
            sampler.shared.xi = values["xi"]
        if self.name == "psgld":
            target.block["v"][:] = V
        sampler.step(target, START)
        if self.name == "matrix_sgnht":
            return np.concatenate([*fields.values(), sampler.frictions[0][LOWER]])
        return np.concatenate([*fields.values(), *([sampler.shared.xi] if scalar else [])])

    def split(self, z: np.ndarray) -> list[np.ndarray]:
        """Fields of z."""
        return np.split(z, [D, 2 * D][: len(self.fields) - 1])

    def root(self) -> np.ndarray:
        """S (D,), the root of the inverse metric."""
        if self.name == "psgld":
            return np.sqrt(DENSITY.n_data / (9.0 + DENSITY.n_data * np.sqrt(V)))
        target = vector_target(DENSITY, self.sampler(1.0))
        if self.name == "sgld" or self.section.get("metric") == "identity":
            return np.full(D, target.curvature_bound**-0.5)
        bound = float(target.information("theta", True, {}).bound[target.block][0])
        return 1 / np.sqrt(bound * (DENSITY.curvature + DENSITY.prior_precision))

    def parts(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What a step from z adds per root of its time, and per time, as the time goes to 0; each
        (m,).

        A step is smooth in the root s of its time: noise times s, drift times s^2, and so on. The
        polynomial is fitted to more nodes than it has terms, because every step is rounded.
        """
        roots = NODES * (0.2 if "sgnht" in self.name else 0.4)
        slopes = np.array([(self.step(z, s**2) - z) / s for s in roots])
        fitted = np.linalg.lstsq(np.vander(NODES, TERMS, increasing=True), slopes)[0]
        return fitted[0], fitted[1] * NODES[0] / roots[0]


V = np.array([0.5, 1.0, 2.0])  # PSGLD's mean squared gradients


def constant(s: np.ndarray) -> Dynamics:
    return underdamped(s, np.full(D, FRICTION))


CASES = [
    Case("sgld", {"gradient": "full"}, overdamped),
    Case("psgld", {"gradient": "full"}, overdamped),
    Case("sgrld", {"gradient": "full"}, overdamped),
    Case("baoab", {}, constant),
    Case("sghmc", {"gamma": FRICTION}, constant),
    Case("sghmc", {"gamma": FRICTION, "metric": "identity", "splitting": "published"}, constant),
    Case("sgnht", {"diffusion": FRICTION, "thermostat": "row"}, lambda s: thermostats(s, 1)),
    Case("sgnht", {"diffusion": FRICTION, "thermostat": "scalar"}, lambda s: thermostats(s, 1)),
    Case("sgnht", {"diffusion": FRICTION, "thermostat": "element"}, lambda s: thermostats(s, D)),
    Case("matrix_sgnht", {"diffusion": FRICTION}, matrix_of_frictions),
    Case("gsgrhmc", {}, lambda s: riemannian()),
    Case("gsgrld", {"gradient": "full"}, lambda s: stretched()),
]
#: One adapts to its own past, and its law has no exact diffusion; the other has no exact gradient
#: to step along.
OTHERS = {"hamcmc", "adjusted_sgld"}


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case.name} {' '.join(map(str, case.section.values()))}"
)
def test_drift_and_noise_are_those_of_the_recipe(case: Case) -> None:
    """Drift to 1e-10 of the recipe's with Gamma by differences, noise of covariance 2 D,
    Fokker-Planck 1e-6.
    """
    dynamics = case.dynamics(case.root())
    thermostats = {"element": D}.get(case.section.get("thermostat", ""), len(case.fields) == 3)
    size = D * min(len(case.fields), 2) + (
        len(LOWER[0]) if case.name == "matrix_sgnht" else thermostats
    )
    z = np.random.default_rng(4).uniform(0.5, 1.5, (1, size))
    noise, found = case.parts(z[0])
    np.testing.assert_allclose(
        found, drift(dynamics, z)[0], rtol=0, atol=1e-10 * np.abs(found).max()
    )
    standard = normals_of(D, purpose=Purpose.STEP, iteration=START, factor=Factor.W)
    moved = slice(0, D) if len(case.fields) == 1 else slice(D, 2 * D)
    expected = np.zeros(size)
    if case.name == "gsgrhmc":
        expected[moved] = np.sqrt(2) * DENSITY.metric(z[:, :D])[0][0].T @ standard
    else:
        expected[moved] = np.sqrt(2 * np.diagonal(dynamics.diffusion(z)[0])[moved]) * standard
    np.testing.assert_allclose(noise, expected, rtol=0, atol=1e-10)
    assert (
        abs(residual(dynamics, z, lambda y: np.array([case.parts(each)[1] for each in y]))[0])
        < 1e-6
    )


def state_dependent(sign: float = 1.0) -> Dynamics:
    """D = .5 + 1 / (1 + x^2) on N(0, 1), with Gamma times a sign."""

    def slope(z: np.ndarray) -> np.ndarray:
        return -2 * sign * z / (1 + z**2) ** 2

    return Dynamics(
        lambda z: z, lambda z: diagonal(0.5 + 1 / (1 + z**2)), lambda z: diagonal(0 * z), slope
    )


@pytest.mark.parametrize("sign", [0.0, -1.0])
def test_the_residual_shows_a_correction_that_is_missing_or_has_the_wrong_sign(sign: float) -> None:
    """[Ma 2015, eq.

    6 and 14] print the latter; Gamma by differences is the one that is right, to 1e-10.
    """
    z = np.linspace(-2, 2, 9)[:, None]
    right = state_dependent()
    by_differences = Dynamics(right.gradient, right.diffusion, right.curl)
    np.testing.assert_allclose(drift(by_differences, z), drift(right, z), rtol=0, atol=1e-10)
    assert np.abs(residual(right, z)).max() < 1e-6
    assert np.abs(residual(state_dependent(sign), z)).max() > 0.3


def test_what_no_law_admits_is_refused() -> None:
    """Q that is not skew-symmetric, and gradients noisier than what is to be added."""
    right = state_dependent()
    z = np.ones((1, 1))
    with pytest.raises(ValueError, match="skew"):
        drift(Dynamics(right.gradient, right.diffusion, right.diffusion), z)
    with pytest.raises(ValueError, match="smaller step"):
        euler(right, z, 0.1, z, noise=np.full((1, 1, 1), 30.0))


def test_every_sampler_is_held_to_it() -> None:
    """But those that cannot be, and those that take no step."""
    steps = {name for name, sampler in SAMPLERS.items() if issubclass(sampler.Config, StepSize)}
    assert {case.name for case in CASES} | OTHERS == steps

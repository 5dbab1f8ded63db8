"""Drifts against the complete recipe [Ma 2015, eq. 3]: a wrong sign or a forgotten term shows without any simulation.

A sampler of exp(-H(z)) drifts by -(D + Q) grad H + Gamma, Gamma_i = sum_j d (D_ij + Q_ij) / d z_j, with D positive
semidefinite and Q skew-symmetric; that is sufficient for its law.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
import pytest
from densities import D, Logistic

from dsgmcmc.kernels.philox import normals
from dsgmcmc.samplers import SAMPLERS
from dsgmcmc.samplers.sample import vector_target
from dsgmcmc.types import Factor, Purpose

TIME, FRICTION = 1e-8, 0.7
OVERDAMPED = ("sgld", "sgrld")


class Dynamics(NamedTuple):
    """What a sampler claims to be: grad H, D and Q at z, given the root S of the inverse metric and grad U."""

    gradient: Callable[[np.ndarray, np.ndarray], np.ndarray]
    diffusion: Callable[[np.ndarray, np.ndarray], np.ndarray]
    curl: Callable[[np.ndarray, np.ndarray], np.ndarray]


def overdamped() -> Dynamics:
    """Z = theta, D = S S."""
    return Dynamics(lambda z, g: g, lambda z, s: np.diag(s**2), lambda z, s: np.zeros((D, D)))


def underdamped(friction: Callable[[np.ndarray], np.ndarray]) -> Dynamics:
    """Z = (theta, r), H = U + r.r / 2."""

    def curl(z: np.ndarray, s: np.ndarray) -> np.ndarray:
        return np.block([[np.zeros((D, D)), -np.diag(s)], [np.diag(s), np.zeros((D, D))]])

    def diffusion(z: np.ndarray, s: np.ndarray) -> np.ndarray:
        return np.diag(np.concatenate([np.zeros(D), friction(s)]))

    return Dynamics(lambda z, g: np.concatenate([g, z[D:]]), diffusion, curl)


def thermostats(number: int) -> Dynamics:
    """Z = (theta, r, xi), H = U + r.r / 2 + (d / 2) sum (xi - A)^2, d = D / number."""
    plain, d = underdamped(lambda s: np.full(D, FRICTION)), D // number

    def gradient(z: np.ndarray, g: np.ndarray) -> np.ndarray:
        return np.concatenate([plain.gradient(z[: 2 * D], g), d * (z[2 * D :] - FRICTION)])

    def grown(small: np.ndarray) -> np.ndarray:
        whole = np.zeros((2 * D + number,) * 2)
        whole[: 2 * D, : 2 * D] = small
        return whole

    def curl(z: np.ndarray, s: np.ndarray) -> np.ndarray:
        whole = grown(plain.curl(z, s))
        for k in range(D):
            whole[D + k, 2 * D + k // d] = z[D + k] / d
            whole[2 * D + k // d, D + k] = -z[D + k] / d
        return whole

    return Dynamics(gradient, lambda z, s: grown(plain.diffusion(z, s)), curl)


def constant(s: np.ndarray) -> np.ndarray:
    return np.full(D, FRICTION)


def prior_share(s: np.ndarray) -> np.ndarray:
    """Gamma times lambda / P; s^2 is 1 / P, up to the bound on the curvature."""
    density = Logistic()
    return FRICTION * density.prior_precision / (density.curvature + density.prior_precision)


CASES: list[tuple[str, dict[str, Any], Dynamics]] = [
    ("sgld", {"gradient": "full"}, overdamped()),
    ("sgrld", {"gradient": "full"}, overdamped()),
    ("baoab", {"friction": np.exp(-FRICTION * TIME)}, underdamped(constant)),
    ("sghmc", {"gamma": FRICTION}, underdamped(constant)),
    ("sghmc", {"gamma": FRICTION, "metric": "identity", "splitting": "published"}, underdamped(constant)),
    ("sghmc", {"gamma": FRICTION, "friction": "metric"}, underdamped(prior_share)),
    ("sghmc", {"gamma": FRICTION, "friction": "metric", "splitting": "published"}, underdamped(prior_share)),
    ("sgnht", {"diffusion": FRICTION, "thermostat": "row"}, thermostats(1)),
    ("sgnht", {"diffusion": FRICTION, "thermostat": "element"}, thermostats(D)),
]
#: Their law has no exact diffusion: they adapt to their own past.
ADAPTIVE = {"psgld", "hamcmc"}


def recipe(dynamics: Dynamics, z: np.ndarray, s: np.ndarray, g: np.ndarray) -> np.ndarray:
    """The drift that it should have; Gamma by central differences, where D and Q are at most linear in z."""
    both = [lambda y, part=part: part(y, s) for part in (dynamics.diffusion, dynamics.curl)]
    d, q = (part(z) for part in both)
    assert np.linalg.eigvalsh(d).min() >= 0
    np.testing.assert_array_equal(q, -q.T)
    shift = 0.5 * np.eye(len(z))
    gamma = sum(part(z + e)[:, j] - part(z - e)[:, j] for part in both for j, e in enumerate(shift))
    return -(d + q) @ dynamics.gradient(z, g) + gamma


@pytest.mark.parametrize(("name", "section", "dynamics"), CASES)
def test_drift(name: str, section: dict[str, Any], dynamics: Dynamics) -> None:
    """A step so short that only the drift is left when its noise is taken away; to 0.1 %."""
    density, lone = Logistic(), name in OVERDAMPED
    step = TIME if lone else TIME**2 / 2
    section = {"step_size": step, "burn_in_step_size": None, **({} if name == "sgld" else {"warm_up": 0}), **section}
    sampler = SAMPLERS[name](SAMPLERS[name].Config(**section), 0)
    target = vector_target(density, sampler)
    block, rng = target.block, np.random.default_rng(4)
    sampler.start(target, 1.0)
    fields = ["theta", *(["r"] if not lone else []), *(["xi"] if name == "sgnht" else [])]
    for field in fields:
        block[field][:] = rng.uniform(0.5, 1.5, block[field].shape)
    before = np.concatenate([block[field][0] for field in fields])
    theta = block["theta"].copy()
    g = (density.gradient(theta) + density.prior_precision * (theta - density.prior_mean))[0]
    target.begin(0)
    sampler.step(target, 0)
    z = np.empty(D, np.float32)
    normals(z, 0, 0, 0, Purpose.STEP, 0, Factor.W)
    if name == "sgld" or section.get("metric") == "identity":
        s = np.full(D, 1 / sqrt(target.curvature_bound))
    else:
        s = float(block["h"][0, 0]) / np.sqrt(density.curvature + density.prior_precision)
    noise = np.zeros_like(before)
    moved = slice(0, D) if lone else slice(D, 2 * D)
    noise[moved] = np.sqrt(2 * TIME * np.diag(dynamics.diffusion(before, s))[moved]) * z
    after = np.concatenate([block[field][0] for field in fields])
    np.testing.assert_allclose((after - before - noise) / TIME, recipe(dynamics, before, s, g), rtol=1e-3, atol=1e-3)


def test_every_sampler_is_held_to_it() -> None:
    """But those whose metric follows their own past, and those that take no step."""
    steps = {name for name, sampler in SAMPLERS.items() if not sampler.draws_conditionals}
    assert {name for name, _, _ in CASES} | ADAPTIVE == steps

"""Densities from JAX and PyTorch: gradients of others, parameters with names; skipped where there are none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from densities import D, Logistic

from dsgmcmc.densities import KERNELS, Density, sample_density
from dsgmcmc.densities.targets.density import ALL, fingerprint
from dsgmcmc.errors import InputError

REFERENCE = Logistic()
X, Y = REFERENCE.features, REFERENCE.labels


def with_jax(**more: Any) -> Any:
    """The regression of `Logistic`, its prior a log density, its coefficients in a tree."""
    jnp = pytest.importorskip("jax.numpy", reason="JAX is not installed: pip install jax")
    precision = REFERENCE.prior_precision.copy()  # JAX mixes up constants of one array in two precisions

    def log_likelihood(params: Any, data: Any) -> Any:
        x, y = data
        eta = x[:, 0] * params["one"] + x[:, 1:] @ params["others"]["b"]
        return y * eta - jnp.logaddexp(0.0, eta)

    def log_prior(params: Any) -> Any:
        b = jnp.concatenate([params["one"][None], params["others"]["b"]])
        return -0.5 * jnp.sum(precision * (b - 0.5) ** 2)

    params = {"one": np.zeros(()), "others": {"b": np.zeros(2)}}
    return Density.from_jax(log_likelihood, (X, Y), params, log_prior=log_prior, **more)


def with_torch(**more: Any) -> Any:
    """The same in PyTorch."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

    def log_likelihood(params: Any, data: Any) -> Any:
        x, y = data
        eta = x[:, 0] * params["one"] + x[:, 1:] @ params["others.b"]
        return y * eta - torch.nn.functional.softplus(eta)

    def log_prior(params: Any) -> Any:
        b = torch.cat([params["one"][None], params["others.b"]])
        return -0.5 * (torch.as_tensor(REFERENCE.prior_precision, dtype=b.dtype) * (b - 0.5) ** 2).sum()

    params = {"one": torch.zeros(()), "others.b": torch.zeros(2)}
    return Density.from_torch(
        log_likelihood, (torch.as_tensor(X), torch.as_tensor(Y)), params, log_prior=log_prior, **more
    )


MADE = pytest.mark.parametrize("make", [with_jax, with_torch], ids=["jax", "torch"])


@MADE
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-5)])
@pytest.mark.parametrize("rows", [1, 3])
def test_energies_and_gradients_are_those_written_by_hand(
    make: Callable[..., Any], dtype: str, tolerance: float, rows: int
) -> None:
    """Of all data, of parts and of any data, with the prior's share; in both precisions, of one row and of several."""
    density, theta = make(dtype=dtype), np.random.default_rng(1).normal(size=(rows, D))
    offset = theta - REFERENCE.prior_mean
    for data in (ALL, slice(2, None, 7), slice(6, None, 7), np.array([0, 5, 5, 52])):
        share = len(Y[data]) / len(Y)
        energy = REFERENCE.energy(theta, data) + share * 0.5 * (offset**2 * REFERENCE.prior_precision).sum(axis=1)
        gradient = REFERENCE.gradient(theta, data) + share * offset * REFERENCE.prior_precision
        scale = np.abs(gradient).max()
        np.testing.assert_allclose(density.energy(theta, data), energy, rtol=tolerance * 10)
        np.testing.assert_allclose(density.gradient(theta, data), gradient, atol=tolerance * scale)
        assert density.gradient(theta, data).dtype == np.float64


@MADE
def test_draws_come_back_by_name(make: Callable[..., Any], tmp_path: Path) -> None:
    """The posterior is that by hand, with no curvature given; stopped and gone on with, the bits are the same."""
    settings = {"sampler": "hmc", "chains": 2, "iterations": 800, "burn_in": 300, "seed": 1}
    draws, exact = sample_density(make(), **settings), sample_density(Logistic(), **settings)
    offset = draws.theta.mean(axis=(0, 1)) - exact.theta.mean(axis=(0, 1))
    assert (abs(offset) < 0.15 * exact.theta.std(axis=(0, 1))).all()
    assert {name: array.shape for name, array in draws.named.items()} == {"one": (2, 500), "others.b": (2, 500, 2)}
    np.testing.assert_array_equal(draws.named["others.b"], draws.theta[..., 1:])
    for iterations in (330, 420):
        run = sample_density(make(), tmp_path / "run", **{**settings, "iterations": iterations})
    np.testing.assert_array_equal(run.theta, draws.theta[:, :120])


@MADE
def test_minibatches_are_sampled(make: Callable[..., Any]) -> None:
    """By a sampler of stochastic gradients, with the posterior's mean to .3 of its sd."""
    draws = sample_density(make(), sampler="sghmc", grid=5, iterations=3000, burn_in=500, thin=5, seed=1)
    exact = sample_density(Logistic(), sampler="hmc", iterations=1500, burn_in=300)
    offset = draws.theta.mean(axis=(0, 1)) - exact.theta.mean(axis=(0, 1))
    assert (abs(offset) < 0.3 * exact.theta.std(axis=(0, 1))).all()


@MADE
def test_other_data_or_functions_are_another_target(make: Callable[..., Any]) -> None:
    """A run must not be gone on with on these."""
    assert fingerprint(make()) == fingerprint(make())
    assert fingerprint(make()) != fingerprint(make(dtype="float32"))
    before = fingerprint(make())
    Y[0] = 1 - Y[0]
    try:
        assert fingerprint(make()) != before
    finally:
        Y[0] = 1 - Y[0]


def test_each_size_of_a_part_is_compiled_once() -> None:
    """Of 53 data in 7 parts there are two."""
    density = with_jax()
    for _ in range(3):
        for part in range(7):
            density.gradient(np.zeros((1, D)), slice(part, None, 7))
    assert density._gradient[0]._cache_size() == 2


def test_trees_come_back() -> None:
    """Leaves with the axes of theta before their own."""
    density = with_jax()
    tree = density.tree(np.arange(24.0).reshape(2, 4, 3))
    assert tree["one"].shape == (2, 4)
    np.testing.assert_array_equal(tree["others"]["b"][1, 3], [22.0, 23.0])


def test_a_module_of_pytorch() -> None:
    """Its parameters by their names, by functional_call."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()

    def log_likelihood(params: Any, data: Any) -> Any:
        x, y = data
        return -0.5 * (torch.func.functional_call(net, params, (x,))[:, 0] - y) ** 2

    data = (torch.as_tensor(X), torch.as_tensor(Y))
    density = Density.from_torch(log_likelihood, data, net, log_prior=lambda p: -sum((v**2).sum() for v in p.values()))
    theta = density.start[None]
    exact = 0.5 * ((net(data[0])[:, 0] - data[1]) ** 2).sum().item() + (theta**2).sum()
    assert density.energy(theta)[0] == pytest.approx(exact)
    draws = sample_density(density, sampler="sgld", grid=4, iterations=50, burn_in=0)
    assert draws.named["0.weight"].shape == (*draws.theta.shape[:2], 4, 3)


def test_a_model_of_numpyro() -> None:
    """By the potential energy that it gives for unconstrained parameters: y ~ N(mu, sigma), exact by conjugacy."""
    numpyro = pytest.importorskip("numpyro", reason="NumPyro is not installed: pip install numpyro")
    import jax
    from numpyro.infer.util import initialize_model

    y = np.random.default_rng(0).normal(1.0, 2.0, 40)

    def model(y: Any) -> None:
        mu = numpyro.sample("mu", numpyro.distributions.Normal(0.0, 10.0))
        numpyro.sample("y", numpyro.distributions.Normal(mu, 2.0), obs=y)

    info = initialize_model(jax.random.PRNGKey(0), model, model_args=(y,))
    density = Density.from_jax(lambda params, _: -info.potential_fn(params), None, info.param_info.z)
    draws = sample_density(density, sampler="hmc", chains=2, iterations=1500, burn_in=300)
    precision = 1 / 100 + 40 / 4
    assert draws.named["mu"].mean() == pytest.approx(y.sum() / 4 / precision, abs=0.05)
    assert draws.named["mu"].std() == pytest.approx(precision**-0.5, rel=0.08)


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to install."""
    monkeypatch.setitem(__import__("sys").modules, "jax", None)
    with pytest.raises(InputError, match=r"JAX is not installed .* pip install jax"):
        Density.from_jax(lambda params, data: 0.0, None, np.zeros(2))


def test_the_front_door_has_every_kernel() -> None:
    """By name, with its settings; but Gibbs, which no density can be sampled by."""
    assert {"sgld", "hmc", "matrix_sgnht", "smh2"} < set(KERNELS)
    assert "gibbs" not in KERNELS
    assert KERNELS["hmc"].Config().acceptance == 0.8

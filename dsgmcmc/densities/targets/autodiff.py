"""Densities whose gradients JAX or PyTorch take, of parameters that are trees or have names.

Neither is needed, and none is imported before such a density is made. theta is the parameters one after another, in
float64 as everywhere on a vector; they are evaluated in `dtype`. A prior that is given as a log density counts with the
data: of a part of them with their share.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, Literal

import numpy as np

from dsgmcmc.densities.targets.density import ALL, Data
from dsgmcmc.errors import InputError
from dsgmcmc.types import Array, Float64

DType = Literal["float32", "float64"]
LogDensity = Callable[[Any, Any], Any]


class TreeDensity(ABC):
    """A density of parameters with names, its prior part of the log density.

    Attributes
    ----------
    start : (D,) float64
        The parameters that were given: chains start about them.
    curvature : (D,) float64
        Not there until it is set, or found by a run.
    law, data_digest, dtype : str
        Which functions and data, and the type in which they are evaluated: what tells one density from another.
    """

    curvature: Float64

    def __init__(self, functions: tuple[Any, ...], leaves: list[Array], start: Float64, dtype: str) -> None:
        sizes = {len(np.atleast_1d(leaf)) for leaf in leaves}
        if len(sizes) > 1:
            raise InputError(f"all arrays of data must have one row a datum: found {sorted(sizes)} rows")
        if dtype not in ("float32", "float64"):
            raise InputError(f"dtype {dtype!r}: expected float32 or float64")
        self.n_data, self.dimension = sizes.pop() if sizes else 1, len(start)
        self.start, self.dtype = start, dtype
        self.prior_mean, self.prior_precision = np.zeros(len(start)), np.zeros(len(start))
        self.law = " ".join(_name(each) for each in functions if each is not None)
        digest = hashlib.sha256()
        for leaf in leaves:
            digest.update(f"{leaf.dtype.str} {leaf.shape}\n".encode() + leaf.tobytes())
        self.data_digest = digest.hexdigest()

    def part(self, data: Data) -> tuple[Data, float]:
        """Data of a part, and their share."""
        if isinstance(data, slice):
            return data, len(range(*data.indices(self.n_data))) / self.n_data
        return data, len(data) / self.n_data

    @abstractmethod
    def energy(self, theta: Float64, data: Data = ALL) -> Float64:
        """Minus the log likelihood of some of the data, (n,) for theta (n, D)."""

    @abstractmethod
    def gradient(self, theta: Float64, data: Data = ALL) -> Float64:
        """Gradient of `energy`, (n, D)."""

    @abstractmethod
    def named(self, theta: Float64) -> dict[str, Array]:
        """Parameters by their names, each (..., its shape), of theta (..., D)."""


def _module(name: str, called: str) -> Any:
    """Import a package that need not be there."""
    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(f"{called} is not installed ({error}): pip install {name}") from error


def _name(function: Any) -> str:
    """What a function is called, with its code: it tells functions apart."""
    code = getattr(getattr(function, "__code__", None), "co_code", b"")
    name = ".".join(getattr(function, each, "") for each in ("__module__", "__qualname__"))
    return f"{name} {hashlib.sha256(code).hexdigest()}"


def _pieces(theta: Float64, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[str, Array]]:
    """Names and arrays (..., shape) of theta (..., D)."""
    begin = 0
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        yield name, theta[..., begin : begin + size].reshape((*theta.shape[:-1], *shape))
        begin += size


class JaxDensity(TreeDensity):
    """A density whose log likelihood JAX differentiates; `Density.from_jax` makes one."""

    def __init__(
        self, log_likelihood: LogDensity, data: Any, params: Any, log_prior: Callable[[Any], Any] | None, dtype: DType
    ) -> None:
        self._jax = jax = _module("jax", "JAX")
        ravel_pytree = import_module("jax.flatten_util").ravel_pytree
        with self._precision(dtype):
            params = jax.tree_util.tree_map(lambda leaf: jax.numpy.asarray(leaf, dtype), params)
            flat, self._unravel = ravel_pytree(params)
            self._data = jax.tree_util.tree_map(lambda leaf: _typed(jax.numpy, leaf, dtype), data)
        leaves = [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(data)]
        super().__init__((log_likelihood, log_prior), leaves, np.asarray(flat, np.float64), dtype)
        paths = jax.tree_util.tree_flatten_with_path(params)[0]
        self._shapes = {_path(jax, path): leaf.shape for path, leaf in paths}

        def energy(theta: Any, data: Any, share: float) -> Any:
            tree = self._unravel(theta)
            found = -jax.numpy.sum(log_likelihood(tree, data))
            return found if log_prior is None else found - share * jax.numpy.sum(log_prior(tree))

        def of_part(function: Any) -> Any:
            every = jax.vmap(function, (0, None, None))
            take = jax.tree_util.tree_map

            def found(theta: Any, data: Any, index: Any, share: Any) -> Any:
                return every(theta, take(lambda leaf: leaf[index], data), share)

            return jax.jit(found), jax.jit(every)

        self._energy, self._gradient = of_part(energy), of_part(jax.grad(energy))

    def _precision(self, dtype: str) -> Any:
        """Context in which numbers are of this type."""
        home = self._jax if hasattr(self._jax, "enable_x64") else import_module("jax.experimental")
        return home.enable_x64(dtype == "float64")

    def _call(self, functions: tuple[Any, Any], theta: Float64, data: Data) -> Float64:
        """Call what is compiled: of rows, whose number is made a power of two, so that few numbers are compiled."""
        of_part, of_all = functions
        n = len(theta)
        rows = np.resize(theta, (1 << (n - 1).bit_length(), theta.shape[1])).astype(self.dtype)
        chosen, share = self.part(data)
        with self._precision(self.dtype):
            if isinstance(chosen, slice) and chosen == ALL:
                found = of_all(rows, self._data, 1.0)
            else:
                index = np.arange(*chosen.indices(self.n_data)) if isinstance(chosen, slice) else chosen
                found = of_part(rows, self._data, index, share)
        return np.asarray(found, np.float64)[:n]

    def energy(self, theta: Float64, data: Data = ALL) -> Float64:
        """Minus the log likelihood of some of the data, (n,) for theta (n, D)."""
        return self._call(self._energy, theta, data)

    def gradient(self, theta: Float64, data: Data = ALL) -> Float64:
        """Gradient of `energy`, (n, D)."""
        return self._call(self._gradient, theta, data)

    def named(self, theta: Float64) -> dict[str, Array]:
        """Parameters by their names, each (..., its shape), of theta (..., D): the path of every leaf is its name."""
        return dict(_pieces(theta, self._shapes))

    def tree(self, theta: Float64) -> Any:
        """Parameters as the tree that they were, of theta (..., D): its leaves have the axes of theta before."""
        structure = self._jax.tree_util.tree_structure(self._unravel(self.start.astype(self.dtype)))
        return self._jax.tree_util.tree_unflatten(structure, list(self.named(theta).values()))


def _typed(numpy: Any, leaf: Any, dtype: str) -> Any:
    """Data as an array of JAX; numbers that are not whole in this type."""
    array = np.asarray(leaf)
    return numpy.asarray(array, dtype if array.dtype.kind == "f" else None)


def _path(jax: Any, path: Any) -> str:
    """Name of a leaf, such as layers.0.w."""
    return ".".join(str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path) or "theta"


class TorchDensity(TreeDensity):
    """A density whose log likelihood PyTorch differentiates; `Density.from_torch` makes one."""

    def __init__(
        self, log_likelihood: LogDensity, data: Any, params: Any, log_prior: Callable[[Any], Any] | None, dtype: DType
    ) -> None:
        torch = _module("torch", "PyTorch")
        given = dict(params.named_parameters()) if isinstance(params, torch.nn.Module) else dict(params)
        self._torch, kind = torch, getattr(torch, dtype, torch.float64)
        tensors = {name: torch.as_tensor(value).detach().to(kind) for name, value in given.items()}
        self._device = next(iter(tensors.values())).device
        self._shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        self._single = not isinstance(data, tuple | list)
        parts = [] if data is None else [data] if self._single else list(data)
        self._data = [torch.as_tensor(each, device=self._device) for each in parts]
        self._data = [each.to(kind) if each.is_floating_point() else each for each in self._data]
        flat = np.concatenate([tensor.cpu().numpy().ravel() for tensor in tensors.values()]).astype(np.float64)
        leaves = [each.cpu().numpy() for each in self._data]
        super().__init__((log_likelihood, log_prior), leaves, flat, dtype)

        def energy(theta: Any, data: Any, share: float) -> Any:
            named = dict(_pieces(theta, self._shapes))
            found = -log_likelihood(named, data).sum()
            return found if log_prior is None else found - share * log_prior(named).sum()

        self._energy, self._gradient = (
            torch.func.vmap(function, (0, None, None)) for function in (energy, torch.func.grad(energy))
        )

    def _call(self, function: Any, theta: Float64, data: Data) -> Float64:
        torch, (chosen, share) = self._torch, self.part(data)
        rows = torch.as_tensor(theta, dtype=getattr(torch, self.dtype), device=self._device)
        chosen = chosen if isinstance(chosen, slice) else torch.as_tensor(chosen, device=self._device)
        parts = tuple(each[chosen] for each in self._data)
        found = function(rows, None if not parts else parts[0] if self._single else parts, share)
        return np.asarray(found.detach().cpu().numpy(), np.float64)

    def energy(self, theta: Float64, data: Data = ALL) -> Float64:
        """Minus the log likelihood of some of the data, (n,) for theta (n, D)."""
        return self._call(self._energy, theta, data)

    def gradient(self, theta: Float64, data: Data = ALL) -> Float64:
        """Gradient of `energy`, (n, D)."""
        return self._call(self._gradient, theta, data)

    def named(self, theta: Float64) -> dict[str, Array]:
        """Parameters by their names, each (..., its shape), of theta (..., D)."""
        return dict(_pieces(theta, self._shapes))

r"""A network with one hidden layer that tells K classes apart, its gradient by backpropagation in NumPy.

    p(y_i = k) = softmax(h_i A + a)_k,          h_i = f(x_i B + b),          U_i = -log p(y_i)

with f a softmax over the H hidden units, as [Nemeth 2021, section 6.2] prints it, or a sigmoid, as [Chen 2014] has it
to whose set-up they refer. With e_i = softmax(h_i A + a) - onehot(y_i) and d_i = f'(x_i B + b) applied to A e_i, the
gradient of a datum is x_i d_i^T by B, d_i by b, h_i e_i^T by A and e_i by a. The first direction is known, so that
estimators with tables keep H + H K + K numbers a datum, and not D = J H + H + H K + K.

Features stay as they are given, also as bytes: a few thousand at a time are made float64, so that a memory map of more
than fits is fine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from dsgmcmc.densities.density import ALL, Data
from dsgmcmc.densities.sums import SumDensity
from dsgmcmc.types import Float64, Int64

#: Data that are worked on at once, and those from which the unit of steps is taken.
CHUNK, FEW = 2048, 1000


class NetworkLayers(NamedTuple):
    """Weights and biases of both layers, in the order in which theta has them: (J, H), (H,), (H, K) and (K,)."""

    inner: Float64
    inner_bias: Float64
    outer: Float64
    outer_bias: Float64


class Activation(NamedTuple):
    """What hidden units make of their inputs (S, H), and its derivative at its values applied to (S, H)."""

    value: Callable[[Float64], Float64]
    pull: Callable[[Float64, Float64], Float64]


def softmax(inputs: Float64) -> Float64:
    """exp(x_k) / sum_l exp(x_l) along the last axis."""
    raised = np.exp(inputs - inputs.max(axis=-1, keepdims=True))
    found: Float64 = raised / raised.sum(axis=-1, keepdims=True)
    return found


ACTIVATIONS = {
    "softmax": Activation(softmax, lambda h, up: h * (up - (h * up).sum(axis=-1, keepdims=True))),
    "sigmoid": Activation(lambda x: 0.5 + 0.5 * np.tanh(0.5 * x), lambda h, up: h * (1 - h) * up),
}


class Network(SumDensity):
    """Weights of a network of one hidden layer, normal before the data.

    Parameters
    ----------
    features : (N, J) array
        Inputs x_i of any real type, such as bytes; not copied.
    labels : (N,) array of int
        Classes y_i, 0 to K - 1.
    hidden : int
        Number H of hidden units.
    activation : {"softmax", "sigmoid"}
        What they compute.
    scale : float
        What features are multiplied by: 1 / 255 where bytes stand for 0 to 1.
    classes : int, optional
        K, where not all classes are among the labels.
    prior_precision : float or (D,) array
        Of the normal prior around 0; `groups` says where weights and biases lie in theta.

    Attributes
    ----------
    features, labels : (N, J) and (N,) int64
        The data.
    groups : dict of str to slice
        Elements of theta by name: ``inner``, ``inner_bias``, ``outer``, ``outer_bias``.
    curvature : (D,) float64
        `fisher` at one draw of weights as wide as networks usually start.
    """

    def __init__(
        self,
        features: npt.ArrayLike,
        labels: npt.ArrayLike,
        hidden: int,
        *,
        activation: Literal["softmax", "sigmoid"] = "softmax",
        scale: float = 1.0,
        classes: int | None = None,
        prior_precision: npt.ArrayLike = 1.0,
    ) -> None:
        self.features, self.labels = np.asarray(features), np.asarray(labels).astype(np.int64)
        self.classes = int(self.labels.max()) + 1 if classes is None else classes
        self.hidden, self.activation, self.scale = hidden, activation, float(scale)
        self.n_data, self.inputs = (int(size) for size in self.features.shape)
        sizes: list[int] = [self.inputs * hidden, hidden, hidden * self.classes, self.classes]
        ends = np.cumsum(sizes).tolist()
        names = zip(NetworkLayers._fields, sizes, ends, strict=True)
        self.groups = {name: slice(end - size, end) for name, size, end in names}
        self.dimension = sum(sizes)
        self.squares = np.concatenate([(x**2).sum(axis=1) for _, x, _ in self._chunks(ALL)])
        self.prior_mean = np.zeros(self.dimension)
        self.prior_precision = np.broadcast_to(np.asarray(prior_precision, np.float64), (self.dimension,)).copy()
        start = np.random.default_rng(0).normal(size=self.dimension)
        start[self.groups["inner"]] /= self.inputs**0.5
        start[self.groups["outer"]] /= hidden**0.5
        few = slice(None, None, max(1, self.n_data // FEW))
        self.curvature = self.fisher(start, few) * self.n_data / len(self.labels[few])

    # ------------------------------------------------------------------ forwards and backwards

    def layers(self, theta: Float64) -> NetworkLayers:
        """Views of one theta (D,)."""
        parts = [theta[place] for place in self.groups.values()]
        parts[0], parts[2] = parts[0].reshape(self.inputs, -1), parts[2].reshape(-1, self.classes)
        return NetworkLayers(*parts)

    def _chunks(self, index: Data) -> Iterator[tuple[slice, Float64, Int64]]:
        """Where in `index`, features as float64, and labels."""
        features, labels = self.features[index], self.labels[index]
        for first in range(0, len(labels), CHUNK):
            place = slice(first, first + CHUNK)
            chunk: Any = features[place]
            yield place, np.multiply(chunk, self.scale, dtype=np.float64), labels[place]

    def _forward(self, layers: NetworkLayers, x: Float64) -> tuple[Float64, Float64]:
        """Hidden units (S, H), and log odds of the classes up to a constant (S, K)."""
        hidden = ACTIVATIONS[self.activation].value(x @ layers.inner + layers.inner_bias)
        return hidden, hidden @ layers.outer + layers.outer_bias

    def _backward(self, layers: NetworkLayers, x: Float64, labels: Int64) -> tuple[Float64, Float64, Float64]:
        """h_i, e_i and d_i: (S, H), (S, K) and (S, H)."""
        hidden, odds = self._forward(layers, x)
        errors = softmax(odds)
        errors[np.arange(len(labels)), labels] -= 1
        return hidden, errors, ACTIVATIONS[self.activation].pull(hidden, errors @ layers.outer.T)

    def probabilities(self, theta: Float64, features: npt.ArrayLike) -> Float64:
        """Probabilities of the classes of any features (S, J), in the units of this network's: (n, S, K)."""
        x = np.multiply(features, self.scale, dtype=np.float64)
        return np.array([softmax(self._forward(self.layers(row), x)[1]) for row in theta])

    # ------------------------------------------------------------------ a sum over data

    def energies(self, theta: Float64, index: Data = ALL) -> Float64:
        """See `SumDensity.energies`."""
        found = np.empty((len(theta), len(self.labels[index])))
        for place, x, labels in self._chunks(index):
            for row, layers in enumerate(map(self.layers, theta)):
                odds = self._forward(layers, x)[1]
                found[row, place] = np.logaddexp.reduce(odds, axis=1) - odds[np.arange(len(labels)), labels]
        return found

    def gradient(self, theta: Float64, data: Data = ALL) -> Float64:
        """See `dsgmcmc.densities.density.Density.gradient`; no gradient of a datum is formed."""
        found = np.zeros_like(theta)
        for _, x, labels in self._chunks(data):
            for row, layers in enumerate(map(self.layers, theta)):
                hidden, errors, back = self._backward(layers, x, labels)
                inner, inner_bias, outer, outer_bias = self.layers(found[row])
                inner += x.T @ back
                inner_bias += back.sum(axis=0)
                outer += hidden.T @ errors
                outer_bias += errors.sum(axis=0)
        return found

    def gradients(self, theta: Float64, index: Data = ALL) -> Float64:
        """See `SumDensity.gradients`."""
        return self.spread(self.slopes(theta, index), index)

    @property
    def width(self) -> int:
        """See `SumDensity.width`: d_i, h_i e_i^T and e_i."""
        return self.dimension - self.inputs * self.hidden

    def slopes(self, theta: Float64, index: Data = ALL) -> Float64:
        """See `SumDensity.slopes`."""
        found = np.empty((len(theta), len(self.labels[index]), self.width))
        for place, x, labels in self._chunks(index):
            for row, layers in enumerate(map(self.layers, theta)):
                hidden, errors, back = self._backward(layers, x, labels)
                outer = hidden[:, :, None] * errors[:, None, :]
                found[row, place] = np.concatenate([back, outer.reshape(len(x), -1), errors], axis=1)
        return found

    def spread(self, slopes: Float64, index: Data = ALL) -> Float64:
        """See `SumDensity.spread`."""
        found = np.empty((*slopes.shape[:2], self.dimension))
        first = self.inputs * self.hidden
        found[:, :, first:] = slopes
        for place, x, _ in self._chunks(index):
            inner = x[:, :, None] * slopes[:, place, None, : self.hidden]
            found[:, place, :first] = inner.reshape(*inner.shape[:2], first)
        return found

    def weighted(self, slopes: Float64, index: Data, p: Float64) -> Float64:
        """See `SumDensity.weighted`; no gradient of a datum is formed."""
        scaled = slopes[0] / p[:, None]
        inner = np.zeros((self.inputs, self.hidden))
        for place, x, _ in self._chunks(index):
            inner += x.T @ scaled[place, : self.hidden]
        return np.concatenate([inner.ravel(), scaled.sum(axis=0)])

    def total(self, slopes: Float64) -> Float64:
        """See `SumDensity.total`."""
        return np.array([self.weighted(row[None], ALL, np.ones(self.n_data)) for row in slopes])

    def lengths(self, slopes: Float64, index: Data = ALL) -> Float64:
        """See `SumDensity.lengths`."""
        inner = (slopes[:, :, : self.hidden] ** 2).sum(axis=2) * self.squares[index]
        found: Float64 = np.sqrt(inner + (slopes**2).sum(axis=2))
        return found

    # ------------------------------------------------------------------ how curved it is

    def _jacobian(self, layers: NetworkLayers, hidden: Float64) -> Float64:
        """Derivatives of the log odds by the inputs of the hidden units, (K, S, H)."""
        pull = ACTIVATIONS[self.activation].pull
        return np.array([pull(hidden, weights[None, :]) for weights in layers.outer.T])

    def fisher(self, theta: Float64, index: Data = ALL) -> Float64:
        """Diagonal of the Fisher information of some of the data at one theta (D,), without the prior: (D,)."""
        found = np.zeros(self.dimension)
        layers, (inner, inner_bias, outer, outer_bias) = self.layers(theta), self.layers(found)
        for _, x, _ in self._chunks(index):
            hidden, odds = self._forward(layers, x)
            p, jacobian = softmax(odds), self._jacobian(layers, hidden)
            curved = np.einsum("sk,ksh->sh", p, jacobian**2) - np.einsum("sk,ksh->sh", p, jacobian) ** 2
            inner += (x**2).T @ curved
            inner_bias += curved.sum(axis=0)
            outer += (hidden**2).T @ (p * (1 - p))
            outer_bias += (p * (1 - p)).sum(axis=0)
        return found

    def stiffness(self, theta: Float64, index: Data = ALL) -> Float64:
        """See `SumDensity.stiffness`: a bound of the largest eigenvalue of each datum's Fisher information at theta.

        That is the second derivative without the part that vanishes where a datum is fitted.
        """
        found, squares = np.empty((len(theta), len(self.labels[index]))), self.squares[index]
        for place, x, _ in self._chunks(index):
            for row, layers in enumerate(map(self.layers, theta)):
                hidden, odds = self._forward(layers, x)
                steep = (self._jacobian(layers, hidden) ** 2).sum(axis=(0, 2)) * (squares[place] + 1)
                spread = 1 - (softmax(odds) ** 2).sum(axis=1)
                found[row, place] = spread * ((hidden**2).sum(axis=1) + 1 + steep)
        return found

    @property
    def smoothness(self) -> Float64:
        """Weights for importance sampling, |x_i|^2 + 1: a network's gradients have no Lipschitz constants."""
        return self.squares + 1

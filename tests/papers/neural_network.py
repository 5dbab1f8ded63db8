r"""A network with one hidden layer that tells K classes apart, its gradient by backpropagation in
NumPy.

    p(y_i = k) = softmax(h_i A + a)_k,          h_i = f(x_i B + b),          U_i = -log p(y_i)

with f a softmax over the H hidden units, as [Nemeth 2021, section 6.2] prints it, or a sigmoid, as
[Chen 2014] has it to whose set-up they refer. With e_i = softmax(h_i A + a) - onehot(y_i) and d_i =
f'(x_i B + b) applied to A e_i, the gradient of a datum is x_i d_i^T by B, d_i by b, h_i e_i^T by A
and e_i by a.

Features stay as they are given, also as bytes: a few thousand at a time are made float64, so that a
memory map of more than fits is fine.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from dsgmcmc.densities.density import ALL, Data
from dsgmcmc.types import Float64, Int64

#: Data that are worked on at once.
CHUNK = 2048


class NetworkLayers(NamedTuple):
    """Weights and biases of both layers, in the order in which theta has them: (J, H), (H,), (H, K)
    and (K,).
    """

    inner: Float64
    inner_bias: Float64
    outer: Float64
    outer_bias: Float64


class Activation(NamedTuple):
    """What hidden units make of their inputs (S, H), and its derivative at its values applied to
    (S, H).
    """

    value: Callable[[Float64], Float64]
    pull: Callable[[Float64, Float64], Float64]


ACTIVATIONS = {
    "softmax": Activation(
        partial(softmax, axis=-1), lambda h, up: h * (up - (h * up).sum(axis=-1, keepdims=True))
    ),
    "sigmoid": Activation(lambda x: 0.5 + 0.5 * np.tanh(0.5 * x), lambda h, up: h * (1 - h) * up),
}


class Network:
    """Weights of a network of one hidden layer, normal before the data; a `Density`; steps are in
    the time of SGLD.

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

    Attributes
    ----------
    groups : dict of str to slice
        Elements of theta by name: ``inner``, ``inner_bias``, ``outer``, ``outer_bias``.
    """

    def __init__(
        self,
        features: npt.ArrayLike,
        labels: npt.ArrayLike,
        hidden: int,
        activation: Literal["softmax", "sigmoid"] = "softmax",
        scale: float = 1.0,
    ) -> None:
        self.features = np.asarray(features)
        self.labels = np.asarray(labels).astype(np.int64)
        self.classes = int(self.labels.max()) + 1
        self.activation = ACTIVATIONS[activation]
        self.scale = scale
        self.n_data, self.inputs = (int(size) for size in self.features.shape)
        sizes = [self.inputs * hidden, hidden, hidden * self.classes, self.classes]
        ends = np.cumsum(sizes).tolist()
        names = zip(NetworkLayers._fields, sizes, ends, strict=True)
        self.groups = {name: slice(end - size, end) for name, size, end in names}
        self.dimension = sum(sizes)
        self.prior_mean = np.zeros(self.dimension)
        self.prior_precision = np.ones(self.dimension)
        self.curvature = np.ones(self.dimension)

    def layers(self, theta: Float64) -> NetworkLayers:
        """Views of one theta (D,)."""
        parts = [theta[part] for part in self.groups.values()]
        parts[0] = parts[0].reshape(self.inputs, -1)
        parts[2] = parts[2].reshape(-1, self.classes)
        return NetworkLayers(*parts)

    def _chunks(self, index: Data) -> Iterator[tuple[Float64, Int64]]:
        """Features as float64, and labels."""
        features = self.features[index]
        labels = self.labels[index]
        for first in range(0, len(labels), CHUNK):
            part = slice(first, first + CHUNK)
            yield np.multiply(features[part], self.scale, dtype=np.float64), labels[part]

    def _forward(self, layers: NetworkLayers, x: Float64) -> tuple[Float64, Float64]:
        """Hidden units (S, H), and log odds of the classes up to a constant (S, K)."""
        hidden = self.activation.value(x @ layers.inner + layers.inner_bias)
        return hidden, hidden @ layers.outer + layers.outer_bias

    def probabilities(self, theta: Float64, features: npt.ArrayLike) -> Float64:
        """Probabilities of the classes of any features (S, J), in the units of this network's: (n,
        S, K).
        """
        x = np.multiply(features, self.scale, dtype=np.float64)
        return softmax([self._forward(self.layers(row), x)[1] for row in theta], axis=-1)

    def energy(self, theta: Float64, data: Data = ALL) -> Float64:
        """Minus the log likelihood of some of the data, (n,)."""
        found = np.zeros(len(theta))
        for x, labels in self._chunks(data):
            for row, layers in enumerate(map(self.layers, theta)):
                odds = self._forward(layers, x)[1]
                found[row] += (
                    np.logaddexp.reduce(odds, axis=1) - odds[np.arange(len(labels)), labels]
                ).sum()
        return found

    def gradient(self, theta: Float64, data: Data = ALL) -> Float64:
        """Gradient of `energy`; no gradient of a datum is formed."""
        found = np.zeros_like(theta)
        for x, labels in self._chunks(data):
            for row, layers in enumerate(map(self.layers, theta)):
                hidden, odds = self._forward(layers, x)
                errors = softmax(odds, axis=-1)
                errors[np.arange(len(labels)), labels] -= 1
                back = self.activation.pull(hidden, errors @ layers.outer.T)
                inner, inner_bias, outer, outer_bias = self.layers(found[row])
                inner += x.T @ back
                inner_bias += back.sum(axis=0)
                outer += hidden.T @ errors
                outer_bias += errors.sum(axis=0)
        return found

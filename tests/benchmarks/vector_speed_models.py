"""The network that `vector_speed.py` times, without any package but NumPy: where its weights start."""

from __future__ import annotations

import numpy as np

HIDDEN, CLASSES = 20, 5


def network_start(inputs):
    """Weights and biases by their names."""
    rng = np.random.default_rng(0)
    return {
        "inner": rng.normal(size=(inputs, HIDDEN)) / inputs**0.5,
        "inner_bias": np.zeros(HIDDEN),
        "outer": rng.normal(size=(HIDDEN, CLASSES)) / HIDDEN**0.5,
        "outer_bias": np.zeros(CLASSES),
    }

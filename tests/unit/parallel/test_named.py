"""Named arrays as one vector: what is joined comes apart again, and nothing else is taken for it."""

from __future__ import annotations

import numpy as np

from dsgmcmc.parallel.named import pack, shapes_of, size_of, unpack

SHAPES = {"matrix": (2, 3), "scalar": (), "none": (0, 4), "vector": (5,)}


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: np.asarray(rng.standard_normal(shape)) for name, shape in SHAPES.items()}


def test_what_is_packed_is_unpacked() -> None:
    """Bit for bit, by name, in whatever order the names were given: processes agree on that of the shapes."""
    given = arrays()
    assert shapes_of(given) == SHAPES
    vector = pack(dict(reversed(given.items())), SHAPES)
    assert vector.shape == (size_of(SHAPES),) == (12,)
    assert vector.tobytes() == pack(given, SHAPES).tobytes()
    found = unpack(vector, SHAPES)
    assert shapes_of(found) == SHAPES
    assert all(found[name].tobytes() == array.tobytes() for name, array in given.items())

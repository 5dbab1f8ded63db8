"""Named arrays as one vector: what is joined comes apart again, and nothing else is taken for it."""

from __future__ import annotations

import numpy as np
import pytest

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


def test_sums_are_taken_in_double_precision() -> None:
    """Whatever the arrays are kept in: float32 sums would depend on how many there are."""
    assert pack({"a": np.ones(3, np.float32), "b": np.ones(1, int)}, {"a": (3,), "b": (1,)}).dtype == np.float64


@pytest.mark.parametrize("change", [{"vector": np.zeros(4)}, {"more": np.zeros(1)}, {"matrix": np.zeros((3, 2))}])
def test_other_names_and_shapes_are_refused(change: dict[str, np.ndarray]) -> None:
    """They would be added to something else on the other processes."""
    with pytest.raises(ValueError, match="are expected"):
        pack(arrays() | change, SHAPES)


def test_a_missing_name_is_refused() -> None:
    """Likewise."""
    given = arrays()
    del given["none"]
    with pytest.raises(ValueError, match="are expected"):
        pack(given, SHAPES)

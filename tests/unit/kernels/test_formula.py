"""Fused formulas against the same arithmetic in NumPy, feature by feature."""

from __future__ import annotations

import numpy as np
import pytest

from dsgmcmc.kernels.formula import Formula
from dsgmcmc.kernels.philox import NoiseKey, normals

KEY = NoiseKey(first=37, seed=3, chain=1, purpose=2, iteration=9, factor=1)

EVERYTHING = Formula(
    """
    gm = g * c - 1 / 3
    v = alpha * v + (1 - alpha) * gm ** 2
    d = 1 / (0.25 + sqrt(v))
    theta = theta - eps * d * (g + prior) * by_row + sqrt(2 * eps * d) * z * by_column
    size = theta * theta
    low = minimum(theta, 0.5)
    high = maximum(-theta, abs(g))
    """,
    fields=("theta", "g", "v"),
    scalars=("alpha", "eps", "c"),
    columns=("by_column",),
    rows=("by_row",),
    sums=("size", "v"),
    column_sums=("low",),
    row_sums=("theta",),
    row_max=("high",),
    prior_of="theta",
)


def noise(n: int, D: int) -> np.ndarray:
    z = np.empty(n * D, np.float32)
    normals(z, *KEY)
    return z.reshape(n, D)


def inputs(n: int, D: int, dtype=np.float32, dense: bool = False):
    rng = np.random.default_rng(n + D)
    fields = {name: rng.standard_normal((n, D)).astype(dtype) for name in ("theta", "g", "v")}
    fields["v"] **= 2
    precision = rng.gamma(2, 1, D)
    if dense:
        factor = rng.standard_normal((D, D)) / np.sqrt(D)
        precision = factor @ factor.T
    return fields, {
        "scalars": {"alpha": 0.9, "eps": 0.01, "c": 0.5},
        "columns": {"by_column": rng.standard_normal(D).astype(dtype)},
        "rows": {"by_row": rng.random(n).astype(dtype)},
        "noise": KEY,
        "prior": (rng.standard_normal(D).astype(dtype), precision.astype(dtype)),
    }


def in_numpy(fields, scalars, columns, rows, noise, prior):
    """EVERYTHING in float64."""
    theta, g, v = (fields[name].astype(float) for name in ("theta", "g", "v"))
    mean, precision = prior
    z = globals()["noise"](*theta.shape)
    dense = precision.ndim == 2
    pull = (theta - mean) @ precision.astype(float) if dense else precision * (theta - mean)
    gm = g * scalars["c"] - 1 / 3
    v = scalars["alpha"] * v + (1 - scalars["alpha"]) * gm**2
    d = 1 / (0.25 + np.sqrt(v))
    eps = scalars["eps"]
    theta = theta - eps * d * (g + pull) * rows["by_row"][:, None] + np.sqrt(2 * eps * d) * z * columns["by_column"]
    return {"theta": theta, "v": v, "g": g}, {
        "size": (theta**2).sum(),
        "v": v.sum(),
        "low": np.minimum(theta, 0.5).sum(0),
        "theta": theta.sum(1),
        "high": np.maximum(-theta, abs(g)).max(1),
    }


# Less than a chunk, exactly one, several with a part at the end, one row longer than a chunk, single columns.
SHAPES = [(5, 3), (64, 32), (201, 33), (2, 3000), (5000, 1), (1, 1)]


@pytest.mark.parametrize(
    ("n", "D", "dense"),
    [(*shape, dense) for shape in SHAPES for dense in (False, True) if shape[1] < 1000 or not dense],
)
def test_equals_numpy(n, D, dense):
    """Protects every feature at once: noise, both priors, row and column vectors, literals, all totals."""
    fields, arguments = inputs(n, D, dense=dense)
    want, want_totals = in_numpy(fields, **arguments)
    totals = EVERYTHING.apply(fields, **arguments)
    for name, value in want.items():
        np.testing.assert_allclose(fields[name], value, rtol=2e-5, atol=2e-5)
    assert set(totals) == set(want_totals)
    for name, value in want_totals.items():
        np.testing.assert_allclose(totals[name], value, rtol=1e-5, atol=1e-5 * max(n, D))
        assert np.asarray(totals[name]).dtype == np.float64


def test_double_precision():
    """Protects generic targets in float64: nothing on the way is rounded to float32 but the noise."""
    fields, arguments = inputs(40, 7, np.float64)
    want, _ = in_numpy(fields, **arguments)
    EVERYTHING.apply(fields, **arguments)
    for name, value in want.items():
        np.testing.assert_allclose(fields[name], value, rtol=1e-13, atol=1e-13)


def test_exp_and_log():
    """Protects the functions that take longer, and their values where they are not finite."""
    formula = Formula("y = exp(x)\nx = log(x)", fields=("x", "y"))
    values = np.array([[0.5, 3.0, 80.0, 1e-30], [-1.0, 0.0, np.inf, np.nan]], np.float32)
    fields = {"x": values.copy(), "y": np.zeros_like(values)}
    formula.apply(fields)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(fields["y"], np.exp(values), rtol=3e-7)
        np.testing.assert_allclose(fields["x"], np.log(values), rtol=3e-7)


def test_division_and_roots_are_exact():
    """Protects extreme values: no estimates of reciprocals and roots, which differ between processors."""
    x = np.resize(np.array([0, 4, np.inf, -0.0, 0.25, 3e38, 1e-38, 7], np.float32), (30, 8))
    fields = {"x": x.copy(), "y": np.zeros_like(x)}
    Formula("y = 1 / sqrt(x)\nx = 3 / x", fields=("x", "y")).apply(fields)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(fields["y"], np.float32(1) / np.sqrt(x))
        np.testing.assert_array_equal(fields["x"], np.float32(3) / x)


def test_single_precision_is_kept():
    """Protects speed and bits: literals and scalars take the arrays' dtype instead of promoting them."""
    x = np.full((1, 4), 1 + 2.0**-12, np.float32)  # its square needs 25 bits
    formula = Formula("a = 0.5 * x * x\nb = half * x * x", fields=("x",), scalars=("half",), sums=("a", "b"))
    totals = formula.apply({"x": x}, scalars={"half": 0.5})
    assert totals == {"a": 2 * (1 + 2.0**-11), "b": 2 * (1 + 2.0**-11)}


def test_noise_is_that_of_the_generator():
    """Protects the invariant: inside a formula the normals have the bits that `normals` gives, by element."""
    formula = Formula("x = z", fields=("x",))
    n, D = 211, 33
    x = np.empty((n, D), np.float32)
    formula.apply({"x": x}, noise=KEY)
    assert np.array_equal(x, noise(n, D))
    part = np.empty((n - 100, D), np.float32)
    formula.apply({"x": part}, noise=KEY._replace(first=KEY.first + 100 * D))
    assert np.array_equal(part, x[100:])


@pytest.mark.parametrize("dense", [False, True])
def test_bits_do_not_depend_on_place_in_memory(dense):
    """Protects the invariant: same arrays and shape, same bits, wherever they lie and whatever lies beside."""
    n, D = 150, 33
    fields, arguments = inputs(n, D, dense=dense)
    buffer = np.full(3 * n * D + 16, np.nan, np.float32)
    moved = {}
    for position, name in enumerate(("g", "theta", "v")):  # fields of one buffer, one after the other
        moved[name] = buffer[5 + position * n * D :][: n * D].reshape(n, D)
        moved[name][:] = fields[name]
    totals = EVERYTHING.apply(fields, **arguments)
    again = EVERYTHING.apply(moved, **arguments)
    for name in fields:
        assert np.array_equal(fields[name], moved[name])
    for name in totals:
        assert np.array_equal(totals[name], again[name])


def test_divergence_shows():
    """Protects the detection of divergence: NaN and infinity survive into values and totals."""
    formula = Formula(
        "x = minimum(x, 2)\ny = maximum(1, y)\nt = x", fields=("x", "y"), sums=("t",), row_sums=("x",), row_max=("y",)
    )
    x = np.ones((40, 5), np.float32)
    x[7, 2] = np.nan
    totals = formula.apply({"x": x, "y": x.copy()})
    assert np.isnan(totals["t"])
    assert np.flatnonzero(np.isnan(totals["x"])).tolist() == [7]
    assert np.flatnonzero(np.isnan(totals["y"])).tolist() == [7]


def test_no_rows():
    """Protects blocks without rows: nothing happens, totals are zero."""
    formula = Formula("x = x + 1\ny = x", fields=("x",), sums=("x",), column_sums=("y",))
    totals = formula.apply({"x": np.zeros((0, 3), np.float32)})
    assert totals["x"] == 0
    assert np.array_equal(totals["y"], np.zeros(3))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "empty"),
        ("x = x +", "line 1"),
        ("x += 1", "only `name = expression`"),
        ("x[0] = 1", "only `name = expression`"),
        ("x = y = 1", "only `name = expression`"),
        ("import os", "only `name = expression`"),
        ("x = unknown", "unknown"),
        ("x = later\nlater = 1", "later"),
        ("x = __import__('os')", "not allowed"),
        ("x = sin(x)", "not allowed"),
        ("x = sqrt(x, x)", "not allowed"),
        ("x = x ** 0.5", "not allowed"),
        ("x = x ** -1", "not allowed"),
        ("x = x ** x", "not allowed"),
        ("x = x if x else 1", "not allowed"),
        ("x = x < 1", "not allowed"),
        ("x = True", "not allowed"),
        ("x = 'a'", "not allowed"),
        ("x = x % 2", "not allowed"),
        ("eps = x", "cannot be assigned"),
        ("z = x", "cannot be assigned"),
        ("sqrt = x", "cannot be assigned"),
        ("range = x", "cannot be assigned"),
        ("_x = x", "cannot be assigned"),
        ("x = prior", "prior"),
    ],
)
def test_refuses_other_language(source, message):
    """Protects the generated code: only the small language gets into it."""
    with pytest.raises(ValueError, match=message):
        Formula(source, fields=("x",), scalars=("eps",))


@pytest.mark.parametrize(
    "declared",
    [
        {"fields": ()},
        {"fields": ("x", "x")},
        {"fields": ("x",), "scalars": ("x",)},
        {"fields": ("x",), "scalars": ("z",)},
        {"fields": ("x",), "scalars": ("a b",)},
        {"fields": ("x",), "sums": ("other",)},
        {"fields": ("x",), "sums": ("x",), "row_sums": ("x",)},
        {"fields": ("x",), "prior_of": "x"},
    ],
)
def test_refuses_wrong_declarations(declared):
    """Protects against formulas that mean something else than they say."""
    with pytest.raises(ValueError, match=r".+"):
        Formula("x = x + 1", **declared)


@pytest.mark.parametrize(
    "change",
    [
        {"fields": {"theta": np.zeros((4, 3), np.float32)}},
        {"fields": {"g": np.zeros((5, 3), np.float64)}},
        {"fields": {"g": np.zeros((3, 5), np.float32).T}},
        {"columns": {"by_column": np.zeros(5, np.float32)}},
        {"rows": {"by_row": np.zeros(3, np.float32)}},
        {"noise": None},
        {"prior": None},
        {"prior": (np.zeros(3, np.float32), np.zeros((3, 4), np.float32))},
        {"prior": (np.zeros(3, np.float32), np.zeros(3, np.float64))},
        {"noise": KEY._replace(iteration=-1)},
    ],
)
def test_refuses_wrong_arrays(change):
    """Protects memory: compiled loops do not check bounds, so shapes, dtypes and order are checked before."""
    fields, arguments = inputs(5, 3)
    fields |= change.pop("fields", {})
    before = fields["v"].copy()
    with pytest.raises(ValueError, match=r".+"):
        EVERYTHING.apply(fields, **(arguments | change))
    assert np.array_equal(fields["v"], before)


def test_refuses_integers():
    """Protects against compiling for dtypes in which a formula has no meaning."""
    with pytest.raises(ValueError, match="int64"):
        Formula("x = x + 1", fields=("x",)).apply({"x": np.zeros((2, 2), int)})

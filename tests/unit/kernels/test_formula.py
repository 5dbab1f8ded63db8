"""Fused formulas against the same arithmetic in NumPy, feature by feature."""

import re

import numpy as np
import pytest
from support import applied, normals_of

from dsgmcmc.kernels.formulas.formula import Batch, Formula, Gradient, RowPrior
from dsgmcmc.kernels.philox import NoiseKey

KEY = NoiseKey(first=37, seed=3, chain=1, purpose=2, iteration=9, factor=1)

EVERYTHING = Formula(
    """
    gm = g * c - 1 / 3
    v = alpha * v + (1 - alpha) * gm ** 2
    d = 1 / (0.25 + sqrt(v))
    theta = theta - eps * d * (g + grad_prior) * by_row + sqrt(2 * eps * d) * z * by_column
    size = theta * theta
    low = minimum(theta, 0.5)
    high = maximum(-theta, abs(g))
    """,
    columns=("by_column",),
    rows=("by_row",),
    sums=("size", "v"),
    column_sums=("low",),
    row_sums=("theta", "high"),
)


def inputs(n: int, D: int, dtype=np.float32, *, dense: bool = False, by_row: bool = False):
    rng = np.random.default_rng(n + D)
    fields = {name: rng.standard_normal((n, D)).astype(dtype) for name in ("theta", "g", "v")}
    fields["v"] **= 2
    precision = rng.gamma(2, 1, D)
    if dense:
        factor = rng.standard_normal((D, D)) / np.sqrt(D)
        precision = factor @ factor.T
    mean = rng.standard_normal(D).astype(dtype)
    shift = rng.standard_normal((n, D)).astype(dtype)
    prior = RowPrior(mean, precision.astype(dtype))
    if by_row:
        scale = rng.gamma(2, 0.5, (n, 1)).astype(dtype)
        prior = prior._replace(shift=shift, scale=scale)
    given = {"alpha": 0.9, "eps": 0.01, "c": 0.5}
    given |= {
        "by_column": rng.standard_normal(D).astype(dtype),
        "by_row": rng.random(n).astype(dtype),
    }
    return fields, {"given": given, "noise": lambda: KEY, "prior": lambda: prior}


def in_numpy(fields, given, noise, prior):
    """EVERYTHING in float64."""
    theta, g, v = (fields[name].astype(float) for name in ("theta", "g", "v"))
    mean, precision, shift, scale = prior()
    z = normals_of(theta.size, **KEY._asdict()).reshape(theta.shape)
    dense = precision.ndim == 2
    deviation = theta - mean - (0 if shift is None else shift)
    pull = deviation @ precision.astype(float) if dense else precision * deviation
    pull = pull * (1 if scale is None else scale)
    gm = g * given["c"] - 1 / 3
    v = given["alpha"] * v + (1 - given["alpha"]) * gm**2
    d = 1 / (0.25 + np.sqrt(v))
    eps = given["eps"]
    theta = (
        theta
        - eps * d * (g + pull) * given["by_row"][:, None]
        + np.sqrt(2 * eps * d) * z * given["by_column"]
    )
    return {"theta": theta, "v": v, "g": g}, {
        "size": (theta**2).sum(),
        "v": v.sum(),
        "low": np.minimum(theta, 0.5).sum(0),
        "theta": theta.sum(1),
        "high": np.maximum(-theta, abs(g)).sum(1),
    }


# Less than a chunk, exactly one, several with a part at the end, one row longer than a chunk,
# single columns.
SHAPES = [
    (5, 3, True),
    (64, 32, False),
    (201, 33, True),
    (201, 33, False),
    (2, 3000, False),
    (5000, 1, True),
]


@pytest.mark.parametrize(("n", "D", "dense"), SHAPES)
@pytest.mark.parametrize(
    ("by_row", "dtype"), [(False, np.float32), (True, np.float32), (False, np.float64)]
)
def test_equals_numpy(n, D, dense, by_row, dtype):
    """Protects every feature at once: noise, priors, row and column vectors, literals, totals.

    In float64 nothing but the noise is rounded to float32.
    """
    fields, arguments = inputs(n, D, dtype, dense=dense, by_row=by_row)
    expected, expected_totals = in_numpy(fields, **arguments)
    totals = applied(EVERYTHING, fields, **arguments)
    precision = 2e-5 if dtype == np.float32 else 1e-12
    for name, value in expected.items():
        np.testing.assert_allclose(fields[name], value, rtol=precision, atol=precision)
    assert set(totals) == set(expected_totals)
    for name, value in expected_totals.items():
        np.testing.assert_allclose(totals[name], value, rtol=1e-5, atol=1e-5 * max(n, D))
        assert np.asarray(totals[name]).dtype == np.float64


def test_functions_at_extreme_values():
    """Protects values that are not finite, and exact roots and divisions: estimates differ between
    processors.
    """
    x = np.resize(
        np.array([0, 4, np.inf, -0.0, 0.25, 3e38, 1e-38, 7, 80, -1, np.nan], np.float32), (30, 11)
    )
    fields = {
        "x": x.copy(),
        **{name: np.zeros_like(x) for name in ("root", "power", "logarithm", "side", "cut")},
    }
    source = (
        "root = 1 / sqrt(x)\npower = exp(x)\nlogarithm = log(x)\nside = sign(x)\ncut = where(x <="
        " 4, x, -1)"
    )
    applied(Formula(f"{source}\nx = 3 / x"), fields)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(fields["root"], np.float32(1) / np.sqrt(x))
        np.testing.assert_array_equal(fields["x"], np.float32(3) / x)
        np.testing.assert_array_equal(fields["side"], np.sign(x))
        np.testing.assert_array_equal(fields["cut"], np.where(x <= 4, x, -1))
        np.testing.assert_allclose(fields["power"], np.exp(x), rtol=3e-7)
        np.testing.assert_allclose(fields["logarithm"], np.log(x), rtol=3e-7)


@pytest.mark.parametrize(("dense", "by_row"), [(False, True), (True, False)])
def test_a_block_has_the_same_bits_alone_and_among_others(dense, by_row):
    """Protects the invariant: how many blocks of a factor a process holds, and updates in one call,
    changes nothing.
    """
    D = 33
    lengths = (150, 0, 7, 64)
    starts = (10, 160, 160, 167)
    each = [inputs(n, D, dense=dense, by_row=by_row) for n in lengths]
    given = each[0][1]["given"]
    prior = each[0][1]["prior"]()
    of_each = [own["prior"]() for _, own in each]
    priors = [prior._replace(shift=own.shift, scale=own.scale) for own in of_each]
    vectors = [own["given"]["by_row"] for _, own in each]
    alone = []
    for (fields, _), start, own, vector in zip(each, starts, priors, vectors, strict=True):
        block = {name: array.copy() for name, array in fields.items()}
        key = KEY._replace(first=KEY.first + start * D)
        totals = applied(
            EVERYTHING,
            block,
            given | {"by_row": vector},
            noise=lambda key=key: key,
            prior=lambda own=own: own,
        )
        alone.append((block, totals))
    together = [dict(fields) for fields, _ in each]
    totals = EVERYTHING.apply(
        Batch(together, starts),
        given | {"by_row": np.concatenate(vectors)},
        noise=lambda: KEY,
        prior=lambda: priors if by_row else priors[:1],
        stride=D,
    )
    for block, (expected, _) in zip(together, alone, strict=True):
        assert all(np.array_equal(block[name], array) for name, array in expected.items())
    for name in ("size", "v", "low"):
        assert np.array_equal(totals[name], [expected[name] for _, expected in alone])
    for name in ("theta", "high"):
        assert np.array_equal(
            totals[name], np.concatenate([expected[name] for _, expected in alone])
        )


def test_arrays_may_be_replaced_between_calls():
    """Protects memory: the addresses of an array that is gone must not be used again."""
    formula = Formula("x = x + 1")
    blocks = [{"x": np.zeros((2, 3))}, {"x": np.zeros((4, 3))}]
    batch = Batch(blocks, (0, 2))
    formula.apply(batch)
    before = blocks[1]["x"]
    blocks[1]["x"] = np.full((5, 3), 7.0)
    formula.apply(batch)
    assert (before == 1).all()
    assert (blocks[0]["x"] == 2).all()
    assert (blocks[1]["x"] == 8).all()
    blocks[0]["x"] = np.zeros((2, 4))
    with pytest.raises(ValueError, match="shape"):
        formula.apply(batch)


def test_divergence_shows():
    """Protects the detection of divergence: NaN and infinity survive into values and totals."""
    formula = Formula(
        "x = minimum(x, 2)\ny = maximum(1, y)\nt = x", sums=("t",), row_sums=("x", "y")
    )
    x = np.ones((40, 5), np.float32)
    x[7, 2] = np.nan
    totals = applied(formula, {"x": x, "y": x.copy()})
    assert np.isnan(totals["t"])
    assert np.flatnonzero(np.isnan(totals["x"])).tolist() == [7]
    assert np.flatnonzero(np.isnan(totals["y"])).tolist() == [7]


# ---------------------------------------------------------------------- what names mean


def test_a_name_is_what_it_is_where_the_formula_is_applied():
    """Protects one formula for all targets: a field here is a number there, and neither is taken
    for the other.
    """
    formula = Formula("x = x + shift", sums=("x",))
    for shift in (
        np.full((2, 3), 10.0, np.float32),
        100.0,
        1000.0,
        np.full((2, 3), 20.0, np.float32),
    ):
        x = np.ones((2, 3), np.float32)
        if isinstance(shift, float):
            applied(formula, {"x": x}, {"shift": shift})
        else:
            applied(formula, {"x": x, "shift": shift})
        assert (x == 1 + np.max(shift)).all()


@pytest.mark.parametrize("dense", [False, True])
def test_the_gradient_means_what_was_taken(dense):
    """Protects samplers from how gradients are taken: at once with the prior, or scaled and
    completed when read.
    """
    fields, arguments = inputs(70, 5, np.float64, dense=dense)
    mean, precision, *_ = arguments["prior"]()
    theta = fields["theta"].copy()
    g = fields["g"]
    prior = (theta - mean) @ precision if dense else (theta - mean) * precision
    formula = Formula(
        "theta = theta + 1\nmean_gradient = grad_likelihood / 7\nall_of_it = grad\nagain = grad"
    )
    for gradient, likelihood in (
        (Gradient("g + grad_prior", "g"), g),
        (Gradient("tau * g + grad_prior", "tau * g", {"tau": 2.5}), 2.5 * g),
        (Gradient("tau * g + grad_prior", "tau * g", {"tau": 0.5}), 0.5 * g),
    ):
        arrays = {"theta": theta.copy(), "g": g} | {
            name: np.zeros_like(g) for name in ("mean_gradient", "all_of_it", "again")
        }
        applied(formula, arrays, prior=arguments["prior"], gradient=gradient)
        np.testing.assert_allclose(arrays["mean_gradient"], likelihood / 7, rtol=1e-12)
        np.testing.assert_allclose(
            arrays["all_of_it"], likelihood + prior, rtol=1e-12, err_msg="before this pass"
        )
        np.testing.assert_array_equal(arrays["again"], arrays["all_of_it"])


def test_numbers_of_the_gradient_are_not_taken_for_the_samplers():
    """Protects samplers with a scalar of that name: by parts it would be theirs, by full gradients
    silently not.
    """
    arrays = {"theta": np.ones((2, 2)), "g": np.ones((2, 2))}
    formula = Formula("theta = theta - tau * grad")
    with pytest.raises(ValueError, match="tau"):
        applied(
            formula, arrays, {"tau": 0.5}, gradient=Gradient("tau * g", "tau * g", {"tau": 4.0})
        )


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = x +", "line 1"),
        ("x += 1", "only `name = expression`"),
        ("x = __import__('os')", "not allowed"),
        ("x = sin(x)", "not allowed"),
        ("x = x ** 0.5", "not allowed"),
        ("x = where(x, g, 1)", "not allowed"),
        ("x = x < g", "not allowed"),
        ("u = x", "cannot be assigned"),
        ("x = _x", "not allowed"),
        ("z = x", "cannot be assigned"),
        ("grad = x", "cannot be assigned"),
        ("_x = x", "cannot be assigned"),
        ("x = unknown", "'unknown' is not a field of x, g, and is not given"),
        ("eps = x", "'eps' cannot be assigned: it is given as a number"),
        ("x = grad_likelihood", "'grad_likelihood', which was not computed"),
        ("g = x\nx = grad", "assigns 'g' before grad = g reads it"),
    ],
)
def test_refuses_other_language_and_unknown_names(source, message):
    """Protects the generated code, and against typing errors that would mean something else."""
    arrays = {name: np.ones((2, 2), np.float32) for name in ("x", "g")}
    with pytest.raises(ValueError, match=re.escape(message)):
        applied(Formula(source), arrays, {"eps": 0.1}, gradient=Gradient("g"))
    assert (arrays["x"] == 1).all()


@pytest.mark.parametrize(
    "change",
    [
        {"fields": {"theta": np.zeros((4, 3), np.float32)}},
        {"fields": {"g": np.zeros((5, 3), np.float64)}},
        {"fields": {"g": np.zeros((3, 5), np.float32).T}},
        {"fields": {name: np.zeros((5, 3), int) for name in ("theta", "g", "v")}},
        {"fields": {"g": np.frombuffer(bytes(60), np.float32).reshape(5, 3)}},
        {"given": {"by_column": np.zeros(5, np.float32)}},
        {"given": {"by_row": np.zeros(3, np.float32)}},
        {"given": {"by_row": "v"}},
        {"given": {"eps": np.zeros(3, np.float32)}},
        {"noise": None},
        {"prior": None},
        {"prior": lambda: (np.zeros(3, np.float32), np.zeros((3, 4), np.float32))},
    ],
)
def test_refuses_wrong_arrays(change):
    """Protects memory: compiled loops do not check bounds, so shapes, dtypes and order are checked
    before.
    """
    fields, arguments = inputs(5, 3)
    fields |= change.get("fields", {})
    given = arguments["given"] | change.get("given", {})
    others = {name: value for name, value in change.items() if name in ("noise", "prior")}
    before = fields["v"].copy()
    with pytest.raises(ValueError, match=r".+"):
        applied(EVERYTHING, fields, **(arguments | {"given": given} | others))
    assert np.array_equal(fields["v"], before)

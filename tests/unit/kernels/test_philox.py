"""The generator's words, the layout of its counters, and the transform to normals."""

import numpy as np
import pytest
from support import normals_of

from dsgmcmc.kernels import philox
from dsgmcmc.kernels.compiling import jit
from dsgmcmc.kernels.formulas.formula import Batch, Formula
from dsgmcmc.kernels.philox import NoiseKey
from dsgmcmc.types import Factor

# Random123 1.14, tests/kat_vectors: counter, key and result of philox4x32 with 10 rounds.
KNOWN = [
    (
        "00000000 00000000 00000000 00000000",
        "00000000 00000000",
        "6627e8d5 e169c58d bc57ac4c 9b00dbd8",
    ),
    (
        "ffffffff ffffffff ffffffff ffffffff",
        "ffffffff ffffffff",
        "408f276d 41c83b0e a20bc7c6 6d5451fd",
    ),
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


MASK = 0xFFFFFFFF


def philox4x32(counter: list[int], key: list[int]) -> list[int]:
    """Philox 4x32-10 [Salmon 2011] as it is written there."""
    (x0, x1, x2, x3) = counter
    (k0, k1) = key
    for _ in range(10):
        p0 = 0xD2511F53 * x0
        p1 = 0xCD9E8D57 * x2
        x0 = p1 >> 32 ^ x1 ^ k0
        x1 = p1 & MASK
        x2 = p0 >> 32 ^ x3 ^ k1
        x3 = p0 & MASK
        k0 = k0 + 0x9E3779B9 & MASK
        k1 = k1 + 0xBB67AE85 & MASK
    return [x0, x1, x2, x3]


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN)
def test_known_answers(counter, key, result):
    """Protects the reference of the next test: the published vectors of Random123."""
    assert philox4x32(words(counter), words(key)) == words(result)


def expected(first, n, seed, chain, purpose, iteration, factor) -> np.ndarray:
    """The documented layout and Box-Muller, in plain Python and float64."""
    values = []
    for e in range(first, first + n):
        c = ((e >> 6) << 4) + (e & 15)
        word = (e >> 4) & 3
        fixed = iteration & MASK, iteration >> 32 | chain << 16
        counter = [c & MASK, c >> 32 | purpose << 16 | factor << 24, *fixed]
        x = philox4x32(counter, [seed & MASK, seed >> 32])
        pair = word & 2
        radius = np.sqrt(-2 * np.log((x[pair] + 0.5) / 2**32))
        angle = 2 * np.pi * (x[pair + 1] + 0.5) / 2**32
        values.append(radius * (np.cos(angle) if word & 1 else np.sin(angle)))
    return np.array(values)


@pytest.mark.parametrize(
    "name",
    [
        {"first": 0, "seed": 1, "chain": 0, "purpose": 0, "iteration": 0, "factor": 0},
        {
            "first": 37,
            "seed": 2**64 - 3,
            "chain": 513,
            "purpose": 200,
            "iteration": 2**40 + 7,
            "factor": 255,
        },
        {
            "first": 2**34 - 70,
            "seed": 5,
            "chain": 65535,
            "purpose": 255,
            "iteration": 2**48 - 1,
            "factor": 1,
        },
        {"first": 2**49 - 200, "seed": 5, "chain": 1, "purpose": 1, "iteration": 1, "factor": 1},
    ],
)
def test_layout(name):
    """Protects the promise of the chain: which counter makes which element; also across 2^32
    counters.
    """
    np.testing.assert_allclose(
        normals_of(200, **name), expected(n=200, **name), rtol=1e-6, atol=1e-6
    )


def test_numbers_of_formulas_have_counters_that_no_other_draw_has():
    """Protects their independence: `z2` and `u` have bits of the factor that no factor has, `u` is
    a word.
    """
    name = {"first": 37, "seed": 3, "chain": 1, "purpose": 2, "iteration": 9, "factor": 1}
    fields = {each: np.zeros((70, 3), np.float32) for each in ("a", "b", "c")}
    Formula("a = z\nb = z2\nc = u").apply(Batch([fields]), noise=lambda: NoiseKey(**name))
    a, b, c = (fields[each].ravel() for each in fields)
    assert a.tobytes() == normals_of(210, **name).tobytes()
    assert b.tobytes() == normals_of(210, **(name | {"factor": 1 | 2})).tobytes()
    for e in range(37, 247):
        counter = [((e >> 6) << 4) + (e & 15), 2 << 16 | (1 | 4) << 24, 9, 1 << 16]
        assert c[e - 37] == ((philox4x32(counter, [3, 0])[(e >> 4) & 3] >> 9) + 0.5) / 2**23
    assert max(Factor) < 2


def test_slices_agree():
    """Protects the invariant: any process makes any slice with the same bits."""
    all_numbers = normals_of(1000, first=7)
    for start, size in (
        (0, 1),
        (57, 64),
        (56, 65),
        (58, 3),
        (1, 500),
        (130, 0),
        (999, 1),
        (121, 128),
    ):
        assert np.array_equal(normals_of(size, first=7 + start), all_numbers[start : start + size])


def test_no_collisions():
    """Protects independence by construction: no two names share a counter, nor do neighbouring
    bits.
    """
    seen = {}
    for member, bits in (
        ("seed", 64),
        ("chain", 16),
        ("purpose", 8),
        ("iteration", 48),
        ("factor", 8),
    ):
        for bit in range(bits):
            seen[member, bit] = normals_of(64, **{"seed": 0, member: 1 << bit}).tobytes()
    for bit in range(6, 49):
        seen["first", bit] = normals_of(64, first=1 << bit, seed=0).tobytes()
    seen["none"] = normals_of(64, seed=0).tobytes()
    assert len(set(seen.values())) == len(seen)
    # of 2^32 radii and angles few coincide in float32
    assert len(np.unique(normals_of(50_000))) > 49_900


@pytest.mark.parametrize(
    ("member", "value"), [("first", 2**49), ("seed", 2**64), ("chain", 2**16), ("iteration", 2**48)]
)
def test_out_of_range(member, value):
    """Protects against names that would silently share their noise with others."""
    with pytest.raises(ValueError, match=f"{member} = {value} is outside"):
        normals_of(1, **{member: value})


def test_wide_vectors_change_no_bit(monkeypatch, tmp_path):
    """Protects the bits on unlike processors, and the speed: the kernel asks for wide vectors, and
    needs none.
    """
    # what comes from the cache cannot be inspected
    monkeypatch.setattr(jit, "cache_directory", lambda: tmp_path)
    source = philox.transform() + philox._GROUPS
    found = {}
    for text in (source.replace("    wide_vectors()\n", ""), source):
        kernel = jit.compile_source("groups_test", text).normal_groups
        wide = 'prefer-vector-width"="512' in kernel.inspect_llvm(kernel.signatures[0])
        found[wide] = np.empty(64 * 1001, np.float32)
        kernel(found[wide], 2**28 - 500, 1001, 3 << 16, 5, 7, 11, 13)
    assert set(found) == {False, True}
    assert found[True].tobytes() == found[False].tobytes()
    assert abs(found[True].std() - 1) < 0.02

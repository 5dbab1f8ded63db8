"""Exposure, against regressions that are solved one by one; and what is kept of it beside the run."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from runs import Made, make_run

from dsgmcmc.diagnostics.audit import audit
from dsgmcmc.errors import InputError
from dsgmcmc.parallel.comm import Alone
from dsgmcmc.posterior import exposure
from dsgmcmc.posterior.exposure import FLOOR, PENALTY, POWER, Exposure
from dsgmcmc.posterior.kept import RECIPE, keep_exposure, read_exposure
from dsgmcmc.posterior.run import Run
from dsgmcmc.storage.manifest import Key
from dsgmcmc.storage.rundir import EXPOSURE, RunDirectory
from dsgmcmc.storage.series import remove
from dsgmcmc.storage.snapshot import row_hashes
from dsgmcmc.storage.writer import write_snapshot

SHAPES = pytest.mark.parametrize(("users", "items"), [(60, 25), (25, 60)], ids=["primal", "dual"])


def two_tastes(users: int, items: int, seed: int = 0) -> np.ndarray:
    """A pattern: users of each taste rate half of what belongs to it, and seldom the rest."""
    rng = np.random.default_rng(seed)
    taste = np.arange(users)[:, None] % 2 == np.arange(items) % 2
    return (rng.random((users, items)) < np.where(taste, 0.5, 0.05)).astype(float)


def rows_of(pattern: np.ndarray) -> list[np.ndarray]:
    return [np.flatnonzero(row).astype(np.int32) for row in pattern]


def regressed(pattern: np.ndarray, rows: np.ndarray, penalty: float) -> np.ndarray:
    """Scores of rows by the ridge regression of every column of a pattern on all others."""
    scores = np.zeros_like(rows)
    for j in range(pattern.shape[1]):
        others = np.delete(np.arange(pattern.shape[1]), j)
        x = pattern[:, others]
        weights = np.linalg.solve(x.T @ x + penalty * np.eye(len(others)), x.T @ pattern[:, j])
        scores[:, j] = rows[:, others] @ weights
    return scores


@SHAPES
def test_every_item_is_regressed_on_all_others(users, items):
    """In closed form from the singular vectors, by whichever side is shorter; what nobody rated has no score."""
    pattern = two_tastes(users, items)
    pattern[:, 3] = 0
    found = Exposure.of_pattern(scipy.sparse.csr_matrix(pattern))
    expected = regressed(pattern, pattern, found.penalty)
    np.testing.assert_allclose(found.scores(rows_of(pattern)), expected, atol=1e-5)
    shares = FLOOR * pattern.mean(axis=0)
    np.testing.assert_allclose(found.of(rows_of(pattern)), np.maximum(expected, shares) ** POWER, atol=1e-5)
    nobody = found.of([np.zeros(0, np.int32)])[0]
    np.testing.assert_allclose(nobody, shares**POWER, rtol=1e-5)


@SHAPES
def test_users_are_left_out_of_the_regressions_exactly(users, items):
    """Else the penalty would be judged by ratings that the regressions have seen."""
    pattern = two_tastes(users, items)
    found = Exposure.of_pattern(scipy.sparse.csr_matrix(pattern))
    known = pattern * (np.random.default_rng(1).random(pattern.shape) < 0.8)
    scores = found.left_out(pattern.astype(np.float32), known.astype(np.float32))
    for user in (0, 7):
        expected = regressed(np.delete(pattern, user, axis=0), known[[user]], found.penalty)[0]
        unknown = known[user] == 0
        np.testing.assert_allclose(scores[user, unknown], expected[unknown], atol=1e-4)


def test_the_penalty_follows_from_the_ratings():
    """Where users have tastes it is small; where they rate at random what is popular it is large."""
    rng = np.random.default_rng(0)
    popular = (rng.random((300, 80)) < np.linspace(0.02, 0.4, 80)).astype(float)
    tastes, none = (
        Exposure.of_pattern(scipy.sparse.csr_matrix(each)).penalty for each in (two_tastes(300, 80), popular)
    )
    assert tastes < none
    assert Exposure.of_pattern(scipy.sparse.csr_matrix((5, 4))).penalty == PENALTY, "nothing was rated"


def test_leading_singular_vectors_of_large_patterns(monkeypatch):
    """Those of NumPy's decomposition, and the penalty that is not chosen."""
    pattern = two_tastes(200, 90)
    monkeypatch.setattr(exposure, "EXACT", 50)
    monkeypatch.setattr(exposure, "WIDTH", 2)
    found = Exposure.of_pattern(scipy.sparse.csr_matrix(pattern))
    v = np.linalg.svd(pattern)[2][:2]
    squares = np.linalg.svd(pattern)[1][:2] ** 2
    ridge = v.T @ np.diag(squares / (squares + PENALTY)) @ v
    own = np.diag(ridge)
    expected = (pattern @ ridge - own * pattern) / (1 - own)
    np.testing.assert_allclose(found.scores(rows_of(pattern)), expected, atol=1e-5)


def every(found: Exposure) -> np.ndarray:
    """All items."""
    return np.arange(len(found.own), dtype=np.int32)


def rewritten(run: Run, blocks: dict[str, np.ndarray], recipe: float = RECIPE) -> None:
    """What is kept, with other blocks."""
    header = run.directory.open_exposure(run.facts).manifest.model_dump(exclude={"shards", "blocks"})
    header["state"]["recipe"] = {"shape": [1], "values": [recipe]}
    remove(run.path / EXPOSURE)
    keys = {Key(EXPOSURE, "items", 0, name): np.ascontiguousarray(block) for name, block in blocks.items()}
    write_snapshot(run.path, EXPOSURE, keys, lambda: header, Alone())


@pytest.fixture
def made(tmp_path) -> Made:
    return make_run(tmp_path, users=30, items=20, iterations=60)


def test_it_is_kept_beside_the_run(made):
    """Worked out once: later the ratings file is not needed."""
    first = made.open().exposure
    made.data.rename(made.data.with_suffix(".away"))
    again = made.open().exposure
    rated = [np.int32([3, 1]), np.int32([]), np.int32([3, 17])]
    np.testing.assert_array_equal(again.of(rated), first.of(rated))
    np.testing.assert_array_equal(again.rows[every(first)], first.rows)
    assert again.penalty == first.penalty


def test_rows_are_sealed_one_by_one(made, caplog):
    """What is read is checked: a damaged row is not used, but all are replaced. Others can be used."""
    first = made.open().exposure
    (shard,) = (made.path / EXPOSURE).glob("*.h5")
    content = bytearray(shard.read_bytes())
    place = content.index(first.rows[5].tobytes())
    assert not [name for name in audit(RunDirectory(made.path)).unchecked if EXPOSURE in name]
    content[place] ^= 1
    shard.write_bytes(content)
    with pytest.raises(InputError, match="does not match its checksum"):
        audit(RunDirectory(made.path))
    opened = made.open().exposure
    with caplog.at_level(logging.WARNING):
        np.testing.assert_array_equal(opened.rows[np.int32([2, 4])], first.rows[[2, 4]])
        assert not caplog.text
        np.testing.assert_array_equal(opened.rows[np.int32([4, 5])], first.rows[[4, 5]])
    assert "does not match its checksum: it is worked out again" in caplog.text
    audit(RunDirectory(made.path))
    np.testing.assert_array_equal(made.open().exposure.rows[every(first)], first.rows)


def test_seals_are_of_their_block(made, caplog):
    """Also where the manifest, which holds no secret, was written to match."""
    first = made.open().exposure
    run = made.open()
    blocks = {"rows": first.rows, "own": first.own, "shares": first.shares, "seals": row_hashes(first.rows)[1:]}
    for name, block in (("seals", blocks["seals"]), ("rows", first.rows[:, 1:])):
        keep_exposure(run.directory, run.facts, first)
        rewritten(run, blocks | {"seals": row_hashes(first.rows), name: block})
        with caplog.at_level(logging.WARNING):
            assert read_exposure(run.directory, run.facts, len(run.items), lambda: first) is None
        assert "inconsistent" in caplog.text
        caplog.clear()


def test_what_an_older_version_kept_is_replaced_in_silence(made, caplog):
    """It has another recipe."""
    first = made.open().exposure
    run = made.open()
    rewritten(run, {"vectors": first.rows, "own": first.own, "shares": first.shares}, recipe=1.0)
    with caplog.at_level(logging.WARNING):
        np.testing.assert_array_equal(made.open().exposure.rows, first.rows)
    assert not caplog.text
    assert read_exposure(run.directory, run.facts, len(run.items), lambda: first) is not None


def test_that_of_another_run_is_not_used(made, tmp_path):
    """It would rank by what others rated, and look right."""
    other = make_run(tmp_path / "other", users=30, items=20, iterations=60, seed=9)
    right = made.open().exposure
    foreign = other.open()
    assert foreign.exposure is not None
    keep_exposure(made.open().directory, foreign.facts, foreign.exposure)
    run = made.open()
    with pytest.raises(InputError, match="of another run"):
        run.directory.open_exposure(run.facts)
    np.testing.assert_array_equal(run.exposure.rows, right.rows)


def test_a_run_that_cannot_be_written_is_used_all_the_same(made):
    """As where it was published read-only; nothing is kept then."""
    run = made.open()
    keep_exposure(RunDirectory(Path("/proc")), run.facts, run.exposure)
    assert not (Path("/proc") / EXPOSURE).exists()

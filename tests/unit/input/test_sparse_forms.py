"""The same ratings from every form of SciPy's sparse matrices, in memory and in files."""

import numpy as np
import pytest
import scipy.sparse
from ingest_cases import everything
from support import typed

from dsgmcmc.bpmf import BPMF
from dsgmcmc.input.arrays import read_ratings
from dsgmcmc.ratings.reading import Reading

RNG = np.random.default_rng(0)
CELLS = scipy.sparse.csr_array(np.where(RNG.random((20, 8)) < 0.3, 7 + RNG.random((20, 8)), 0))
FORMS = {
    "csr": CELLS,
    "csc": CELLS.tocsc(),
    "coo": CELLS.tocoo(),
    "lil": CELLS.tolil(),
    "dok": CELLS.todok(),
    "dok_matrix": scipy.sparse.dok_matrix(CELLS),
    "dia": CELLS.todia(),
    "blocks of 2 x 2": CELLS.tobsr(blocksize=(2, 2)),
    "blocks of 4 x 2": scipy.sparse.bsr_matrix(CELLS, blocksize=(4, 2)),
}


@pytest.mark.parametrize("form", FORMS)
def test_in_memory(form):
    """What fills blocks is no rating; with unstored="zero", all cells are."""
    found = read_ratings(FORMS[form])
    triples = zip(*(found[role].tolist() for role in ("user", "item", "rating")), strict=True)
    assert {(u, i): x for u, i, x in triples} == {
        (u, i): CELLS[u, i] for u, i in np.argwhere(CELLS.toarray()).tolist()
    }
    filled = read_ratings(FORMS[form], form=Reading(unstored="zero"))
    assert len(filled["rating"]) == 160
    assert filled["rating"].sum() == pytest.approx(CELLS.sum())


def test_completed():
    """Cells that blocks do not store are completed."""
    rated = CELLS[CELLS.sum(axis=1) > 0][:12]
    expected = BPMF(rank=0, iterations=20, burn_in=10).fit(rated).complete()
    for found in (rated.tobsr(blocksize=(2, 2)), rated.todok()):
        found = BPMF(rank=0, iterations=20, burn_in=10).fit(found).complete()
        np.testing.assert_array_equal(found, expected)


def test_in_files(tmp_path):
    """Blocks are read; a form whose zeros may be ratings is refused with a way that works."""
    for name in ("csr", "blocks of 2 x 2"):
        scipy.sparse.save_npz(tmp_path / "m.npz", FORMS[name])
        typed("prepare", tmp_path / "m.npz", tmp_path / f"{name[:3]}.h5").expect(0)
    assert everything(tmp_path / "blo.h5") == everything(tmp_path / "csr.h5")
    scipy.sparse.save_npz(tmp_path / "m.npz", FORMS["dia"])
    failed = typed("prepare", tmp_path / "m.npz", tmp_path / "dia.h5").expect(2)
    assert "save matrix.tocsr()" in failed.err
    scipy.sparse.save_npz(tmp_path / "m.npz", FORMS["dia"].tocsr())
    typed("prepare", tmp_path / "m.npz", tmp_path / "dia.h5").expect(0)
    assert everything(tmp_path / "dia.h5") == everything(tmp_path / "csr.h5")

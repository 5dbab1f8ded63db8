"""The order, the heading and the empty rows of a matrix come back in what is written of it."""

import csv

import h5py
import numpy as np
import pytest
from support import typed

from dsgmcmc import BPMF, open_run

SHORT = ["--iterations", "60", "--burn-in", "20", "--rank", "0"]
GENES = ["zeta", "alpha", "none", "b10", "b9", "mu", "nu"]
SAMPLES = ["s10", "s2", "empty", "s9"]


def matrix() -> np.ndarray:
    """Seven rows, of which the third has no cells, and four columns, with the third empty."""
    values = np.random.default_rng(0).normal(size=(7, 4)).round(3)
    values[2] = np.nan
    values[:, 2] = np.nan
    values[0, 1] = np.nan
    return values


@pytest.fixture
def run(tmp_path):
    """A run of a file with this matrix."""
    with (tmp_path / "m.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["gene", *SAMPLES])
        for name, row in zip(GENES, matrix().tolist(), strict=True):
            lines.writerow([name, *("" if np.isnan(cell) else cell for cell in row)])
    made = typed("prepare", tmp_path / "m.csv", tmp_path / "m.h5", "--matrix")
    assert made.code == 0, made.err
    assert typed("sample", tmp_path / "m.h5", "--out", tmp_path / "run", *SHORT).code == 0
    return tmp_path / "run"


@pytest.mark.filterwarnings("ignore:one (user|item) is unknown")
def test_a_completed_file_has_the_rows_of_the_file_that_was_read(run, tmp_path):
    """Rows and columns keep their order, also those without cells, and the heading of the names."""
    done = typed("predict", run, "--matrix", "-o", tmp_path / "filled.csv")
    assert done.code == 0, done.err
    with (tmp_path / "filled.csv").open(newline="") as file:
        header, *rows = list(csv.reader(file))
    assert header == ["gene", *SAMPLES]
    assert [row[0] for row in rows] == GENES
    filled = np.array([row[1:] for row in rows], float)
    assert np.isfinite(filled).all()
    known = ~np.isnan(matrix())
    np.testing.assert_allclose(filled[known], matrix()[known], rtol=1e-5)
    (tmp_path / "m.h5").rename(tmp_path / "moved.h5")
    completed = open_run(run, data=tmp_path / "moved.h5").complete()
    assert list(completed) == header
    assert completed["gene"].tolist() == GENES


@pytest.mark.filterwarnings("ignore:one (user|item) is unknown")
def test_a_frame_in_memory_is_as_a_file(tmp_path):
    """A saved model has the order of its frame, with numbers as names, when it is opened again."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(matrix(), index=[12, 3, 7, 1, 100, 4, 5], columns=SAMPLES)
    BPMF(rank=0, iterations=60, burn_in=20, out=tmp_path / "run").fit(frame)
    completed = open_run(tmp_path / "run").complete()
    assert list(completed)[1:] == SAMPLES
    assert completed["user"].tolist() == frame.index.tolist()


def test_a_table_with_a_line_for_each_rating_keeps_the_order_of_names(tmp_path):
    """Its lines are no matrix, so that none of its users is without ratings."""
    lines = [f"{user},{item},{user + item}" for user in (5, 3, 9) for item in (2, 1)]
    (tmp_path / "long.csv").write_text("gene,sample,rating\n" + "\n".join(lines) + "\n")
    columns = ["--columns", "user=gene,item=sample"]
    assert typed("prepare", tmp_path / "long.csv", tmp_path / "d.h5", *columns).code == 0
    assert typed("sample", tmp_path / "d.h5", "--out", tmp_path / "run", *SHORT).code == 0
    completed = open_run(tmp_path / "run").complete()
    assert list(completed) == ["gene", "1", "2"]
    assert completed["gene"].tolist() == [3, 5, 9]


def made_annotated(path, names, genes):
    """Write an AnnData file with these names, a layer, and a column of obs."""
    with h5py.File(path, "w") as file:
        marked(file, "anndata")
        for group in ("layers", "obsm", "varm", "obsp", "varp", "uns"):
            marked(file.create_group(group), "dict")
        for axis, labels in (("obs", names), ("var", genes)):
            frame = marked(file.create_group(axis), "dataframe")
            frame.attrs["_index"] = "_index"
            index = frame.create_dataset("_index", data=labels, dtype=h5py.string_dtype())
            marked(index, "string-array")
        marked(file["obs"].create_dataset("age", data=np.arange(len(names))), "array")
        file["obs"].attrs.create("column-order", ["age"], dtype=h5py.string_dtype())
        file["var"].attrs.create("column-order", [], dtype=h5py.string_dtype())
        marked(file.create_dataset("X", data=matrix()), "array")
        marked(file["layers"].create_dataset("counts", data=np.arange(28.0).reshape(7, 4)), "array")


def marked(node, encoding):
    """Write the encoding of a node of AnnData, and return it."""
    node.attrs["encoding-type"] = encoding
    node.attrs["encoding-version"] = "0.1.0" if encoding in ("anndata", "dict") else "0.2.0"
    return node


@pytest.mark.filterwarnings("ignore:one (user|item) is unknown")
def test_layers_are_added_to_an_anndata_file(tmp_path):
    """They stand beside its own, in its order; a new file has the known cells, and both factors."""
    source = tmp_path / "cells.h5ad"
    made_annotated(source, GENES, SAMPLES)
    made = typed("prepare", source, tmp_path / "d.h5", "--variable", "X")
    assert made.code == 0, made.err
    of_rank_2 = [*SHORT[:-1], "2"]
    assert typed("sample", tmp_path / "d.h5", "--out", tmp_path / "run", *of_rank_2).code == 0
    new = tmp_path / "new.h5ad"
    for out in (source, new):
        options = ["--matrix", "--sd", "--interval", "0.9", "-o", out]
        done = typed("predict", tmp_path / "run", *options)
        assert done.code == 0, done.err
    known = ~np.isnan(matrix())
    for out in (source, new):
        with h5py.File(out) as file:
            index = file["obs"][file["obs"].attrs["_index"]]
            assert index.asstr()[()].tolist() == GENES
            np.testing.assert_allclose(file["X"][()], matrix(), rtol=1e-5)
            layers = {name: layer[()] for name, layer in file["layers"].items()}
            assert np.isfinite(layers["imputed"]).all()
            np.testing.assert_allclose(layers["imputed"][known], matrix()[known], rtol=1e-5)
            assert ((layers["sd"] == 0) == known).all()
            assert (layers["lower"] <= layers["upper"]).all()
            scores = file["obsm/X_dsgmcmc"][()]
            assert scores.shape == (7, file["varm/dsgmcmc_loadings"].shape[1])
            assert np.isnan(scores).any(axis=1).tolist() == [name == "none" for name in GENES]
            assert ("counts" in layers) == (out == source)
    made_annotated(source, GENES[::-1], SAMPLES)
    before = source.read_bytes()
    refused = typed("predict", tmp_path / "run", "--matrix", "-o", source)
    assert refused.code == 2
    assert "are not those of the matrix" in refused.err
    assert source.read_bytes() == before
    drawn = typed("predict", tmp_path / "run", "--matrix", "--draws", "2", "-o", new)
    assert "one matrix" in drawn.err


@pytest.mark.filterwarnings("ignore:one (user|item) is unknown")
def test_layers_that_a_run_has_read_are_not_replaced(tmp_path):
    """Limits may be in a layer of the name that results have; empty groups may be left out."""
    source = tmp_path / "cells.h5ad"
    made_annotated(source, GENES, SAMPLES)
    with h5py.File(source, "a") as file:
        file["layers/upper"] = np.full((7, 4), -1.0)
        for group in ("obsm", "varm", "uns"):
            del file[group]
    options = ["--columns", "upper=upper", "--unstored", "missing", "--variable", "X"]
    assert typed("prepare", source, tmp_path / "d.h5", *options).code == 0
    assert typed("sample", tmp_path / "d.h5", "--out", tmp_path / "run", *SHORT).code == 0
    before = source.read_bytes()
    command = ["predict", tmp_path / "run", "--matrix", "-o", source]
    refused = typed(*command, "--interval", "0.9")
    assert refused.code == 2
    assert "the run has read its layer upper" in " ".join(refused.err.split())
    assert source.read_bytes() == before
    done = typed(*command, "--sd")
    assert done.code == 0, done.err
    with h5py.File(source) as file:
        assert (file["layers/upper"][()] == -1).all()
        below = matrix() <= -1
        assert (file["layers/imputed"][()][below] <= -1).all()
        assert below.any()


@pytest.mark.filterwarnings("ignore:one (user|item) is unknown")
@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option")  # AnnData asks pandas for it
def test_anndata_reads_what_is_written(run, tmp_path):
    """Its own reader has names, layers and factors."""
    anndata = pytest.importorskip("anndata")
    done = typed("predict", run, "--matrix", "--sd", "-o", tmp_path / "new.h5ad")
    assert done.code == 0, done.err
    found = anndata.read_h5ad(tmp_path / "new.h5ad")
    assert found.obs_names.tolist() == GENES
    assert found.var_names.tolist() == SAMPLES
    assert set(found.layers) - {None} == {"imputed", "sd"}  # from 0.13 on, X is a layer, too

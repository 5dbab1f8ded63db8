"""Files and objects of AnnData: observations are users, variables are items."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.sparse
from ingest_cases import everything
from science_cases import read, refused
from science_files import write_h5ad, write_sparse, write_texts
from support import typed

from dsgmcmc.errors import InputError
from dsgmcmc.input.arrays import read_ratings
from dsgmcmc.input.detect import open_table
from dsgmcmc.input.sources.columns import MemoryTable
from dsgmcmc.ratings.reading import Reading
from dsgmcmc.tables.session import open_session

DENSE = np.array([[1.0, np.nan, 3.0], [np.nan, 5.0, 6.0]])
RATINGS = {("c1", "g1"): 1, ("c1", "g3"): 3, ("c2", "g2"): 5, ("c2", "g3"): 6}
ROWS = {"data": [4.0, 0.0, 6.0], "indices": [1, 0, 2], "indptr": [0, 1, 3]}
STORED = {("c1", "g2"): 4, ("c2", "g1"): 0, ("c2", "g3"): 6}


@pytest.mark.parametrize("nullable", [True, False], ids=["pandas 3", "pandas 2"])
@pytest.mark.parametrize("index", ["_index", "barcode"])
def test_names_are_in_the_column_that_the_attribute_names(
    tmp_path: Path, nullable: bool, index: str
) -> None:
    path = tmp_path / "x.h5ad"
    with write_h5ad(path, nullable=nullable, index=index) as file:
        file["X"] = DENSE
    typed("prepare", path, tmp_path / "out.h5").expect(0)
    assert everything(tmp_path / "out.h5") == RATINGS


def test_a_layer_is_chosen_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "x.h5ad"
    with write_h5ad(path) as file:
        file["X"] = DENSE
        file["layers/counts"] = DENSE + 1
    assert "'X' and 'counts': which of them" in refused(path)
    assert "has no 'raw'" in refused(path, "--variable", "raw")
    assert read(path, variable="X") == RATINGS
    assert read(path, variable="counts") == {pair: value + 1 for pair, value in RATINGS.items()}


def test_a_layer_alone_needs_no_name(tmp_path: Path) -> None:
    path = tmp_path / "x.h5ad"
    with write_h5ad(path) as file:
        file["layers/counts"] = DENSE
        file.create_dataset("X", data=h5py.Empty("f4")).attrs["encoding-type"] = "null"
    assert read(path) == RATINGS


@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_what_a_sparse_matrix_does_not_store_must_be_said(tmp_path: Path, kind: str) -> None:
    rows = scipy.sparse.csr_matrix((ROWS["data"], ROWS["indices"], ROWS["indptr"]), (2, 3))
    stored = rows if kind == "csr" else rows.tocsc()
    parts = {name: getattr(stored, name) for name in ROWS}
    path = tmp_path / "x.h5ad"
    with write_h5ad(path) as file:
        write_sparse(file, "X", parts, (2, 3), kind)
    message = refused(path)
    assert "2 x 3 cells, and does not store 3 of them" in message
    assert "--unstored missing or --unstored zero" in message
    assert read(path, unstored="missing") == STORED
    zeros = {(user, item): 0 for user in ("c1", "c2") for item in ("g1", "g2", "g3")}
    assert read(path, unstored="zero") == {**zeros, **STORED}
    shown = typed("prepare", path, tmp_path / "o.h5", "--unstored", "zero").expect(0)
    assert "not stored are ratings of 0" in " ".join(shown.out.split())


def test_cells_that_are_stored_twice_are_refused(tmp_path: Path) -> None:
    """AnnData reads [[3, 0], [0, 3]]."""
    path = tmp_path / "x.h5ad"
    with write_h5ad(path, items=("g1", "g2")) as file:
        parts = {"data": [1.0, 2.0, 3.0], "indices": [0, 0, 1], "indptr": [0, 2, 3]}
        write_sparse(file, "X", parts, (2, 2), "csr")
    for meaning in ("missing", "zero"):
        assert "1 cell(s) more than once" in refused(path, "--unstored", meaning)


def test_files_before_version_0_7_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x.h5ad"
    with h5py.File(path, "w") as file:
        node = file.create_group("X")
        for part, values in ROWS.items():
            node[part] = values
        node.attrs.update({"h5sparse_format": "csr", "h5sparse_shape": (2, 3)})
        file["obs"] = np.array([(b"c1", 1), (b"c2", 0)], [("index", "S2"), ("kind", "i1")])
        file["var"] = np.array([(b"g1",), (b"g2",), (b"g3",)], [("index", "S2")])
        file["uns/kind_categories"] = np.array([b"lo", b"hi"])
    assert read(path, unstored="missing") == STORED
    assert features(path, "user") == {"user": ["c1", "c2"], "kind": ["hi", "lo"]}


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("names", "name(s) of users recur (c1)"),
        ("columns", "is a matrix: leave out --columns"),
        ("objects", "not real numbers"),
        ("times", "is a matrix: leave out --timestamps"),
        ("dense", "has no sparse matrix: leave out --unstored"),
        ("pointer", "cannot be read"),
        ("size", "cells, which take"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, fault: str, message: str) -> None:
    path = tmp_path / "x.h5ad"
    options = {
        "columns": ["--columns", "user=obs"],
        "times": ["--timestamps"],
        "dense": ["--unstored", "zero"],
        "pointer": ["--unstored", "zero"],
    }
    with write_h5ad(path, users=("c1", "c1") if fault == "names" else ("c1", "c2")) as file:
        if fault == "objects":
            write_texts(file, "X", ["a", "b"], nullable=False)
        elif fault == "pointer":
            write_sparse(file, "X", {**ROWS, "indices": [1, 0, 7]}, (2, 3), "csr")
        elif fault == "size":
            file.create_dataset("X", shape=(1 << 20, 1 << 20), chunks=(1, 1 << 10), dtype="f4")
        else:
            file["X"] = DENSE
    assert message in refused(path, *options.get(fault, []))


def features(path: Path, entity: str) -> dict[str, list]:
    """Columns of the features in a file."""
    with open_session(path.parent) as db:
        table = open_table(db, path, lambda fields, rows: True, choice=Reading(entity=entity))
    assert isinstance(table, MemoryTable)
    return {name: column.tolist() for name, column in zip(table.names, table.arrays, strict=True)}


def test_observations_are_features_of_users(tmp_path: Path) -> None:
    """A masked number has some number under its mask: the second is missing, not 0."""
    path = tmp_path / "x.h5ad"
    with write_h5ad(path, users=("c1", "c2", "c3", "c4")) as file:
        node = file["obs"].create_group("dose")
        node.attrs["encoding-type"] = "nullable-integer"
        node["values"] = [1, 0, 3, 4]
        node["mask"] = [False, True, False, False]
        node = file["obs"].create_group("kind")
        node.attrs["encoding-type"] = "categorical"
        node["codes"] = np.array([0, 1, -1, 1], np.int8)
        write_texts(node, "categories", ["lo", "hi"], nullable=False)
    assert features(path, "user") == {
        "user": ["c1", "c2", "c3", "c4"],
        "dose": [1, None, 3, 4],
        "kind": ["lo", "hi", None, "hi"],
    }
    assert features(path, "item") == {"item": ["g1", "g2", "g3"]}
    (tmp_path / "r.csv").write_text("user,item,rating\nc1,1,4\nc2,2,3\nc3,1,3\nc4,2,1\n")
    command = ("prepare", tmp_path / "r.csv", tmp_path / "f.h5", "--user-features", path)
    assert "kind (category, 2)" in typed(*command).expect(0).out


# ------------------------------------------------------------------------------------------ objects


class Annotated:
    """What AnnData offers."""

    def __init__(self, X: object, **layers: object) -> None:
        self.X = X
        self.layers = layers
        self.obs_names = ["c1", "c2"]
        self.var_names = ["g1", "g2", "g3"]


def rated(X: object, **form: str) -> dict[tuple, float]:
    """Ratings of an object."""
    columns = read_ratings(X, None, Reading(**form))
    pairs = zip(columns["user"].tolist(), columns["item"].tolist(), strict=True)
    return dict(zip(pairs, columns["rating"].tolist(), strict=True))


def test_an_object_is_read_as_its_file_is() -> None:
    sparse = scipy.sparse.csr_matrix((ROWS["data"], ROWS["indices"], ROWS["indptr"]), (2, 3))
    assert rated(Annotated(DENSE)) == RATINGS
    assert rated(Annotated(None, counts=DENSE)) == RATINGS
    assert rated(Annotated(sparse, log=DENSE), variable="log") == RATINGS
    assert rated(Annotated(sparse), unstored="missing") == STORED
    assert len(rated(Annotated(sparse), unstored="zero")) == 6
    recent = Annotated(DENSE)
    recent.layers = {None: DENSE}  # AnnData 0.13 lists X among the layers
    assert rated(recent) == RATINGS
    with pytest.raises(InputError, match="does not store 3 of them"):
        rated(Annotated(sparse))
    with pytest.raises(InputError, match="'X' and 'counts': which of them"):
        rated(Annotated(DENSE, counts=DENSE))


# AnnData 0.13.4 sets an option that pandas 3.1 is about to drop
@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated")
def test_objects_of_anndata_and_their_files_agree(tmp_path: Path) -> None:
    anndata = pytest.importorskip("anndata", reason="AnnData needs Python 3.12 with pandas 3")
    pandas = pytest.importorskip("pandas")
    obs = pandas.DataFrame({"dose": [1.0, 2.0]}, index=["c1", "c2"])
    var = pandas.DataFrame(index=["g1", "g2", "g3"])
    for X, form in (
        (DENSE, {}),
        (scipy.sparse.csr_matrix([[0, 4.0, 0], [1, 0, 6]]), {"unstored": "missing"}),
    ):
        data = anndata.AnnData(X, obs=obs, var=var)
        data.write_h5ad(tmp_path / "x.h5ad")
        assert rated(data, **form) == read(tmp_path / "x.h5ad", **form)

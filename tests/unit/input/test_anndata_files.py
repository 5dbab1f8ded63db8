"""Files and objects of AnnData: observations are users, variables are items."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.sparse
from ingest_cases import bounds_in, everything
from science_cases import read, refused
from science_files import write_h5ad, write_sparse, write_texts
from support import typed

from dsgmcmc import BPMF
from dsgmcmc.errors import InputError
from dsgmcmc.input.arrays import read_ratings
from dsgmcmc.input.detect import open_table
from dsgmcmc.input.roles import parse_columns
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
    var["lod"] = pandas.array([2, None, 4], "Int64")  # masked
    texts = np.array([["<2", "", "<4"], ["", "5.0", "6.0"]], object)
    data = anndata.AnnData(DENSE, obs=obs, var=var, layers={"t": texts})
    data.write_h5ad(tmp_path / "x.h5ad")
    limits = {("c1", "g1"): (-np.inf, 2), ("c1", "g3"): (-np.inf, 4)}
    named = {"variable": "X", "columns": "upper=lod", "unstored": "missing"}
    for form in (named, {"variable": "t"}):
        found = read(tmp_path / "x.h5ad", **form)
        assert bounds_in(tmp_path / "out.h5") == limits
        form |= {"columns": parse_columns(form.get("columns"))}
        assert rated(data, **form) == found


# ------------------------------------------------------------------------------------------- limits

#: Two variables that differ in their limit; the last cell of each observation has no number.
MEASURED = np.array([[1.0, 5.0, np.nan], [3.0, 2.0, np.nan]])
LIMITS = {
    "layers/lod": [[2.0, 2.0, 4.0], [2.0, 2.0, np.nan]],
    "var/lod_of_gene": [2.0, 2.0, np.nan],
    "obs/lod_of_cell": [1.0, 2.0],
}
EXACT = {("c1", "g2"): 5, ("c2", "g1"): 3}
BELOW = {
    "upper=lod": {("c1", "g1"): 2, ("c1", "g3"): 4, ("c2", "g2"): 2},
    "upper=var/lod_of_gene": {("c1", "g1"): 2, ("c2", "g2"): 2},
    "upper=lod_of_cell": {("c1", "g1"): 1, ("c1", "g3"): 1, ("c2", "g2"): 2, ("c2", "g3"): 2},
    "upper=2": {("c1", "g1"): 2, ("c1", "g3"): 2, ("c2", "g2"): 2, ("c2", "g3"): 2},
}


def write_limited(path: Path, X: object = MEASURED) -> Path:
    """A file with limits in a layer, a column of var, and a column of obs."""
    with write_h5ad(path) as file:
        file["X"] = X
        for name, limits in LIMITS.items():
            file[name] = np.array(limits)
    return path


class Limited(Annotated):
    """An object with the same."""

    def __init__(self, X: object = MEASURED) -> None:
        pandas = pytest.importorskip("pandas")
        super().__init__(X, lod=np.array(LIMITS["layers/lod"]))
        self.var = pandas.DataFrame({"lod_of_gene": LIMITS["var/lod_of_gene"]})
        self.obs = pandas.DataFrame({"lod_of_cell": LIMITS["obs/lod_of_cell"]})


def uppers(path: Path) -> dict[tuple, float]:
    """Upper bounds in a ratings file; there are no lower ones."""
    found = bounds_in(path)
    assert all(lower == -np.inf for lower, _ in found.values())
    return {pair: upper for pair, (_, upper) in found.items()}


@pytest.mark.parametrize("unstored", ["limit", "missing"])
@pytest.mark.parametrize("columns", BELOW)
def test_numbers_within_a_limit_are_known_only_by_it(
    tmp_path: Path, columns: str, unstored: str
) -> None:
    """Numbers beyond it are exact; cells without a number are within it, or not rated."""
    expected = BELOW[columns]
    if unstored == "missing":
        expected = {pair: limit for pair, limit in expected.items() if pair[1] != "g3"}
    options = {"columns": columns, "unstored": unstored}
    found = read(write_limited(tmp_path / "x.h5ad"), variable="X", **options)
    assert uppers(tmp_path / "out.h5") == expected
    assert found == EXACT | expected
    form = Reading(columns=parse_columns(columns), variable="X", unstored=unstored)
    cells = read_ratings(Limited(), None, form)
    pairs = zip(cells["user"].tolist(), cells["item"].tolist(), strict=True)
    bounds = dict(zip(pairs, cells["upper"].tolist(), strict=True))
    assert {pair: upper for pair, upper in bounds.items() if not np.isnan(upper)} == expected
    assert len(bounds) == len(found)


def test_limits_on_both_sides_are_an_interval_or_the_ends_of_what_is_measured(
    tmp_path: Path,
) -> None:
    path = write_limited(tmp_path / "x.h5ad")
    with h5py.File(path, "a") as file:
        file["layers/low"] = [[0, np.nan, 2], [np.nan, 2, np.nan]]
        file["layers/high"] = [[1.5, np.nan, 6], [np.nan, np.nan, np.nan]]
    found = read(path, variable="X", columns="lower=low,upper=high", unstored="limit")
    assert found == {**EXACT, ("c1", "g1"): 0.75, ("c1", "g3"): 4, ("c2", "g2"): 2}
    assert bounds_in(tmp_path / "out.h5") == {
        ("c1", "g1"): (0, 1.5),
        ("c1", "g3"): (2, 6),
        ("c2", "g2"): (2, np.inf),
    }
    read(path, variable="X", columns="upper=1,lower=5", unstored="missing")
    assert bounds_in(tmp_path / "out.h5") == {
        ("c1", "g1"): (-np.inf, 1),
        ("c1", "g2"): (5, np.inf),
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--columns", "upper=var/lod_of_gene,weight=lod"], "leave out --columns weight=lod"),
        (["--columns", "upper=nothing"], "it has layers/lod, var/lod_of_gene, obs/lod_of_cell"),
        (["--columns", "upper=twice"], "upper=var/twice or --columns upper=obs/twice"),
        (["--columns", "upper=7"], "upper=obs/7 or --columns upper=07 (the number)"),
        (["--columns", "upper=word"], "not the numbers of limits"),
        (["--columns", "upper=2"], "2 cells have a limit, but no number"),
        (
            ["--columns", "lower=2,upper=4", "--unstored", "missing"],
            "2 cells have a number outside",
        ),
        (
            ["--columns", "lower=4,upper=2", "--unstored", "limit"],
            "is above the upper one in 2 cells",
        ),
        (["--unstored", "limit"], "has no limits that --unstored limit could mean"),
    ],
)
def test_limits_that_may_mean_two_things_are_refused(
    tmp_path: Path, options: list[str], message: str
) -> None:
    path = write_limited(tmp_path / "x.h5ad")
    more = {"var/twice": [1.0, 1, 1], "obs/twice": [1.0, 1], "obs/7": [1.0, 1]}
    if message.startswith("it has"):
        more = {}
    with h5py.File(path, "a") as file:
        for name, values in more.items():
            file[name] = values
        if more:
            write_texts(file["var"], "word", ["a", "b", "c"], nullable=False)
    assert message in " ".join(refused(path, "--variable", "X", *options).split())


def test_limits_of_single_precision_include_the_number_itself(tmp_path: Path) -> None:
    path = write_limited(tmp_path / "x.h5ad", np.array([[0.1, 1, 2], [0.3, 1, 2]], np.float32))
    read(path, variable="X", columns="upper=0.1")
    assert bounds_in(tmp_path / "out.h5") == {("c1", "g1"): (-np.inf, float(np.float32(0.1)))}


def test_codes_are_not_rated_though_they_are_within_a_limit(tmp_path: Path) -> None:
    path = write_limited(tmp_path / "x.h5ad", np.array([[0.0, 1, 5], [3, 0, 4]]))
    found = read(path, variable="X", columns="upper=2", missing="0")
    assert found == {("c1", "g2"): 2, ("c1", "g3"): 5, ("c2", "g1"): 3, ("c2", "g3"): 4}
    assert uppers(tmp_path / "out.h5") == {("c1", "g2"): 2}


@pytest.mark.parametrize("form", [Annotated, scipy.sparse.csr_matrix])
def test_codes_in_a_second_matrix_are_holes(form: type) -> None:
    """As those of the first are."""
    values = np.array([[1.0, 99, 3], [4, 5, 6]])
    model = BPMF(iterations=40, burn_in=20, rank=0, missing=99).fit(form(values))
    assert model.evaluate(form(values))["ratings"] == 5
    done = np.asarray(model.complete(form(values)))
    assert done[0, 1] < 20
    np.testing.assert_array_equal(done[values != 99], values[values != 99])


def test_counts_below_a_limit_may_be_zeros_that_are_not_stored(tmp_path: Path) -> None:
    path = tmp_path / "x.h5ad"
    with write_h5ad(path) as file:
        write_sparse(file, "X", ROWS, (2, 3), "csr")
    read(path, columns="upper=4", unstored="missing")
    assert uppers(tmp_path / "out.h5") == {("c1", "g2"): 4, ("c2", "g1"): 4}
    found = read(path, columns="upper=4", unstored="zero")
    assert len(found) == 6
    assert len(uppers(tmp_path / "out.h5")) == 5
    assert read(path, columns="upper=4", unstored="limit") == found
    assert len(uppers(tmp_path / "out.h5")) == 5


def test_limits_that_nobody_wrote_are_refused(tmp_path: Path) -> None:
    """HDF5 reads them as 0."""
    path = write_limited(tmp_path / "x.h5ad")
    with h5py.File(path, "a") as file:
        file["layers"].create_dataset("some", (2, 3), "f8", chunks=(1, 3))[0] = 2
    message = refused(path, "--variable", "X", "--columns", "upper=some")
    assert "nobody wrote 3 of the 6 values of /layers/some" in message


def test_texts_in_a_layer_may_be_bounds(tmp_path: Path) -> None:
    texts = np.array([["<645480", "5", ""], ["[2, 3]", "1.5", "ND"]], object)
    path = tmp_path / "x.h5ad"
    with write_h5ad(path) as file:
        file["X"] = DENSE
        file.create_dataset("layers/t", data=texts, dtype=h5py.string_dtype())
    assert "1 cell(s) have no number, such as 'ND' in row 2" in refused(path, "--variable", "t")
    expected = {("c1", "g1"): 645480, ("c1", "g2"): 5, ("c2", "g1"): 2.5, ("c2", "g2"): 1.5}
    assert read(path, variable="t", missing="ND") == expected
    bounds = {("c1", "g1"): (-np.inf, 645480), ("c2", "g1"): (2, 3)}
    assert bounds_in(tmp_path / "out.h5") == bounds
    assert rated(Annotated(None, t=texts), missing=("ND",)) == expected


def test_a_model_honours_the_limits_of_its_matrix_and_of_new_rows(tmp_path: Path) -> None:
    """Results are those of a frame with texts such as ``<4.5``; a loaded run knows the limits."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(3)
    values = 5 + np.outer(rng.normal(size=12), rng.normal(size=6)) + rng.normal(0, 0.1, (12, 6))
    values = values.round(2)
    limits = np.array([4.5, 4.6, np.nan, 4.8, 4.9, 5.0])
    frame = pandas.DataFrame(values, [f"c{k}" for k in range(12)], [f"g{k}" for k in range(6)])
    data = Annotated(values)
    data.obs_names = frame.index
    data.var_names = frame.columns
    data.var = pandas.DataFrame({"lod": limits}, frame.columns)
    below = values <= limits
    texts = frame.astype(object).mask(below, [[f"<{limit}" for limit in limits]] * 12)
    fit = {"iterations": 60, "burn_in": 20, "rank": 1, "random_state": 1}
    model = BPMF(**fit, columns="upper=lod", out=tmp_path / "run").fit(data)
    by_texts = BPMF(**fit).fit(texts)
    done = model.complete()
    np.testing.assert_array_equal(done, by_texts.complete().astype(float))
    assert (done.to_numpy() < limits)[below].all()
    np.testing.assert_array_equal(done.to_numpy()[~below], values[~below])
    assert not np.array_equal(done.to_numpy()[below], values[below])
    models = (model, BPMF.load(tmp_path / "run"))
    for fitted in models:
        assert fitted.evaluate(data)["bounded"] == below.sum()
    data.obs_names = texts.index = [f"new{k}" for k in range(12)]
    expected = by_texts.complete(texts).astype(float)
    for fitted in models:
        np.testing.assert_array_equal(fitted.complete(data), expected)


def test_a_file_of_new_ratings_has_the_limits_of_the_run(tmp_path: Path) -> None:
    """Also one with other limits, which are named, or a full matrix where the first was sparse."""
    path = write_limited(tmp_path / "x.h5ad")
    options = ["--variable", "X", "--columns", "upper=var/lod_of_gene", "--unstored", "missing"]
    typed("prepare", path, tmp_path / "d.h5", *options, "--test-fraction", "0").expect(0)
    sampled = ["--iterations", "40", "--burn-in", "20", "--rank", "0"]
    run = tmp_path / "run"
    typed("sample", tmp_path / "d.h5", "--out", run, *sampled).expect(0)
    assert BPMF.load(run).evaluate(path)["bounded"] == 2
    assert BPMF.load(run).evaluate(Limited())["bounded"] == 2
    scores = typed("evaluate", run, path, "--columns", "upper=4", "--json").expect(0)
    assert json.loads(scores.out)["bounded"] == 3
    with write_h5ad(tmp_path / "none.h5ad") as file:
        file["X"] = MEASURED
    assert (
        "has no 'var/lod_of_gene'" in typed("evaluate", run, tmp_path / "none.h5ad").expect(2).err
    )
    with write_h5ad(tmp_path / "sparse.h5ad") as file:
        write_sparse(file, "X", ROWS, (2, 3), "csr")
    options = ["--unstored", "zero", "--test-fraction", "0"]
    typed("prepare", tmp_path / "sparse.h5ad", tmp_path / "s.h5", *options).expect(0)
    typed("sample", tmp_path / "s.h5", "--out", tmp_path / "second", *sampled).expect(0)
    model = BPMF.load(tmp_path / "second")
    assert model.evaluate(tmp_path / "none.h5ad")["ratings"] == 4
    assert model.evaluate(Annotated(MEASURED))["ratings"] == 4
    assert not np.isnan(model.complete(Annotated(MEASURED))).any(axis=None)
    (tmp_path / "more.csv").write_text("user,item,rating\nc1,g1,<4\nc2,g3,5\n")
    for name in ("run", "second"):
        assert BPMF.load(tmp_path / name).evaluate(tmp_path / "more.csv")["ratings"] == 2


# AnnData 0.13.4 sets an option that pandas 3.1 is about to drop
@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option is deprecated")
@pytest.mark.filterwarnings("ignore:This setting will be removed in 0.14")
@pytest.mark.filterwarnings("ignore:zarr v3 will become the only option")
@pytest.mark.parametrize("version", [2, 3])
def test_stores_of_zarr_are_read_as_files_are(tmp_path: Path, version: int) -> None:
    anndata = pytest.importorskip("anndata", reason="AnnData needs Python 3.12 with pandas 3")
    pytest.importorskip("zarr")
    pandas = pytest.importorskip("pandas")
    obs = pandas.DataFrame({"kind": pandas.Categorical(["lo", None])}, index=["c1", "c2"])
    var = pandas.DataFrame({"lod": [2.0, np.nan, 4]}, index=["g1", "g2", "g3"])
    path = tmp_path / "x.zarr"
    with anndata.settings.override(zarr_write_format=version):
        anndata.AnnData(DENSE, obs=obs, var=var).write_zarr(path)
    assert read(path) == RATINGS
    found = read(path, columns="upper=lod", unstored="limit")
    assert found == RATINGS | {("c1", "g1"): 2, ("c1", "g3"): 4, ("c2", "g1"): 2}
    assert set(uppers(tmp_path / "out.h5")) == {("c1", "g1"), ("c1", "g3"), ("c2", "g1")}
    assert "it has var/lod, obs/kind" in refused(path, "--columns", "upper=nothing")
    assert features(path, "user") == {"user": ["c1", "c2"], "kind": ["lo", None]}


def test_a_store_of_zarr_says_what_reads_it(tmp_path: Path) -> None:
    """Also where its library is not installed."""
    path = tmp_path / "x.zarr"
    path.mkdir()
    (path / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group", "attributes": {}}')
    assert "none of AnnData: read it by xarray.open_zarr" in refused(path)
    (path / "zarr.json").write_text('{"attributes": {"encoding-type": "anndata"}}')
    assert str(path) in refused(path)
    (path / "zarr.json").write_text("{")
    assert "cannot be read" in refused(path)

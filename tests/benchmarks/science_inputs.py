"""Inputs of `readings.py`: files of the sciences, and objects that other packages read of them."""

import bz2
import gzip
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pyreadstat
import scipy.io
import scipy.sparse
import xarray
from reading_inputs import Input, file
from science_files import (
    NA_INT,
    NA_REAL,
    R,
    r_frame,
    r_matrix,
    r_sparse,
    write_h5ad,
    write_rda,
    write_rds,
    write_sparse,
    write_tenx,
    write_texts,
)

Settings = dict[str, Any]
#: What cells mean that are not stored: not said, and both meanings.
MEANINGS: tuple[Settings, ...] = ({}, {"unstored": "missing"}, {"unstored": "zero"})
DENSE = np.array([[1.0, np.nan, 3.0], [np.nan, 5.0, 6.0]])
STORED: dict[str, Sequence] = {"data": [4.0, 0.0, 6.0], "indices": [1, 0, 2], "indptr": [0, 1, 3]}


def each(
    name: str, write: Callable[[Path], object], path: str, choices: Sequence[Settings]
) -> Iterator[Input]:
    """Yield a file with each of some settings, or with none."""
    for settings in choices or ({},):
        yield file(f"{name} {settings}", write, settings, path=path)


# ---------------------------------------------------------------------------------------- AnnData


def dense(path: Path, values: Any = DENSE, **more: Any) -> None:
    """Write a file of AnnData with a full matrix."""
    with write_h5ad(path, **more) as written:
        written["X"] = values


def layered(path: Path, *, both: bool) -> None:
    """Write a file with a layer, beside a matrix or alone."""
    with write_h5ad(path) as written:
        written["layers/counts"] = DENSE + 1
        if both:
            written["X"] = DENSE


def stored(path: Path, kind: str = "csr", indices: Sequence = (1, 0, 2)) -> None:
    """Write a file with a sparse matrix."""
    matrix = scipy.sparse.csr_matrix(
        (STORED["data"], STORED["indices"], STORED["indptr"]), (2, 3)
    ).asformat(kind)
    parts = {name: getattr(matrix, name) for name in STORED}
    if kind == "csr":
        parts["indices"] = list(indices)
    with write_h5ad(path) as written:
        write_sparse(written, "X", parts, (2, 3), kind)


def old_annotated(path: Path) -> None:
    """Write a file as AnnData did before version 0.7."""
    with h5py.File(path, "w") as written:
        node = written.create_group("X")
        for part, values in STORED.items():
            node[part] = values
        node.attrs.update({"h5sparse_format": "csr", "h5sparse_shape": (2, 3)})
        written["obs"] = np.array([(b"c1", 1), (b"c2", 0)], [("index", "S2"), ("kind", "i1")])
        written["var"] = np.array([(b"g1",), (b"g2",), (b"g3",)], [("index", "S2")])
        written["uns/kind_categories"] = np.array([b"lo", b"hi"])


def texts(path: Path) -> None:
    """Write a file whose matrix has texts."""
    with write_h5ad(path) as written:
        write_texts(written, "X", ["a", "b"], nullable=False)


def huge(path: Path) -> None:
    """Write a file with a matrix that no memory has."""
    with write_h5ad(path) as written:
        shape = (1 << 20, 1 << 20)
        written.create_dataset("X", shape=shape, chunks=(1, 1 << 10), dtype="f4")


def in_part(path: Path, fill: float | None) -> None:
    """Write a file of whose cells a half was never written."""
    values = np.random.default_rng(0).integers(0, 6, (40, 30)).astype(float)
    users = [f"o{k}" for k in range(40)]
    items = [f"v{k}" for k in range(30)]
    with write_h5ad(path, users, items) as written:
        node = written.create_dataset("X", (40, 30), "f8", chunks=(10, 10), fillvalue=fill)
        node[:30, :20] = values[:30, :20]


def described(path: Path) -> None:
    """Write a file whose observations have a masked number and a category."""
    with write_h5ad(path, users=("c1", "c2", "c3", "c4")) as written:
        node = written["obs"].create_group("dose")
        node.attrs["encoding-type"] = "nullable-integer"
        node["values"] = [1, 0, 3, 4]
        node["mask"] = [False, True, False, False]
        node = written["obs"].create_group("kind")
        node.attrs["encoding-type"] = "categorical"
        node["codes"] = np.array([0, 1, -1, 1], np.int8)
        write_texts(node, "categories", ["lo", "hi"], nullable=False)


class Annotated:
    """What AnnData offers."""

    def __init__(self, X: object, **layers: object) -> None:
        self.X = X
        self.layers = layers
        self.obs_names = ["c1", "c2"]
        self.var_names = ["g1", "g2", "g3"]


def annotated() -> Iterator[Input]:
    """Yield files of AnnData, and objects that look like its own."""
    for name, write, choices in (
        ("dense", dense, [{}, {"unstored": "zero"}, {"columns": "user=obs"}, {"timestamps": True}]),
        ("pandas 2", partial(dense, nullable=False, index="barcode"), [{}]),
        ("recurring names", partial(dense, users=("c1", "c1")), [{}]),
        (
            "layers",
            partial(layered, both=True),
            [{}, *({"variable": x} for x in ("X", "counts", "raw"))],
        ),
        ("a layer", partial(layered, both=False), [{}]),
        ("csr", stored, MEANINGS),
        ("csc", partial(stored, kind="csc"), MEANINGS),
        ("a wrong pointer", partial(stored, indices=(1, 0, 7)), MEANINGS),
        ("old", old_annotated, MEANINGS),
        ("texts", texts, [{}]),
        ("huge", huge, [{}]),
        ("unwritten", partial(in_part, fill=None), MEANINGS),
        ("unwritten, -1", partial(in_part, fill=-1.0), MEANINGS),
        ("unwritten, NaN", partial(in_part, fill=np.nan), MEANINGS),
    ):
        yield from each(f"AnnData {name}", write, "x.h5ad", choices)
    rated = "user,item,rating\nc1,1,4\nc2,2,3\nc3,1,3\nc4,2,1\n"
    yield file("AnnData features", rated, {"user_features": "f.h5ad"}, **{"f.h5ad": described})
    sparse = scipy.sparse.csr_matrix((STORED["data"], STORED["indices"], STORED["indptr"]), (2, 3))
    for name, given in {
        "dense": Annotated(DENSE),
        "a layer": Annotated(None, counts=DENSE),
        "sparse": Annotated(sparse),
        "two": Annotated(DENSE, counts=DENSE + 1),
        "sparse and log": Annotated(sparse, log=DENSE),
    }.items():
        for settings in (*MEANINGS, {"variable": "X"}, {"variable": "log"}):
            yield Input(f"AnnData object {name} {settings}", given, settings)


# ------------------------------------------------------------------------------ MATLAB and netCDF


def matlab(path: Path, **variables: object) -> None:
    """Write variables as MATLAB did before version 7.3."""
    scipy.io.savemat(path, variables, do_compression=True)


def new_matlab(path: Path, **variables: np.ndarray) -> None:
    """Write full matrices as MATLAB does in version 7.3."""
    with h5py.File(path, "w", userblock_size=512) as written:
        for name, value in variables.items():
            written[name] = value.T
            written[name].attrs["MATLAB_class"] = np.bytes_("double")
    head = b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM"
    with path.open("r+b") as raw:
        raw.write(head.ljust(512, b"\0"))


WIDE = np.array([[1.0, 0.5, 3.0, 4.0, 2.0], [np.nan, 5.0, 6.0, 1.0, 3.0]])


def of_matlab() -> Iterator[Input]:
    """Yield files of MATLAB."""
    sparse = scipy.sparse.csc_matrix(([5.0, 7.0], ([0, 1], [0, 2])), (4, 3))
    triples = np.array([[7.0, 1, 4.5], [7, 2, 3], [9, 1, 2]])
    wide: Settings = {"matrix": True}
    several = {"A": WIDE, "B": sparse, "s": "text"}
    for name, variables, choices in (
        ("a matrix", {"R": WIDE, "name": "study", "n": 2.0}, [{}, wide]),
        ("triples", {"R": triples}, [{}]),
        ("sparse", {"R": sparse}, MEANINGS),
        ("sparse, empty", {"R": scipy.sparse.csc_matrix((4, 3))}, MEANINGS),
        ("several", several, [{}, {"variable": "A", **wide}, {"variable": "s"}]),
        ("several, sparse", several, [{"variable": "B", **more} for more in MEANINGS]),
        ("truth", {"R": np.array([[True, False], [True, True]])}, [wide]),
        ("text", {"R": "text"}, [{}]),
        ("cells", {"c": np.array([[1.0, "a"], [2.0, "b"]], object)}, [{}, {"variable": "c"}]),
        ("integers", {"R": np.array([[1, 2], [3, 4]], np.int16)}, [wide]),
        ("NaN", {"R": scipy.sparse.csc_matrix(([np.nan, 1.0], ([0, 1], [0, 2])))}, MEANINGS),
    ):
        yield from each(f"MATLAB {name}", partial(matlab, **variables), "x.mat", choices)
    for name, values, choices in (("a matrix", WIDE, [{}, wide]), ("triples", triples, [{}])):
        yield from each(f"MATLAB 7.3 {name}", partial(new_matlab, R=values), "x.mat", choices)


def dataset(dims: tuple[str, str] = ("user", "item"), **more: object) -> xarray.Dataset:
    """Make a dataset with ratings of two users and three items."""
    coords = {dims[0]: ["a", "b"], dims[1]: [10, 20, 30]}
    return xarray.Dataset(
        {"rating": (dims, np.array([[1, np.nan, 3], [4, 5, 6.0]])), **more}, coords
    )


def variable(values: np.ndarray, **attributes: object) -> xarray.Dataset:
    """Make a dataset with two rows of values and attributes."""
    table = np.array([values, np.array([1, 2, 3], values.dtype)])
    return xarray.Dataset(
        {"rating": xarray.Variable(("user", "item"), table, attributes, {"_FillValue": None})}
    )


def of_netcdf() -> Iterator[Input]:
    """Yield files of netCDF, and objects of xarray."""
    other = dataset(other=(("user", "item"), np.ones((2, 3)) * [[1], [2]]))
    days = np.array(["2020-01-01", "2020-01-02", "2020-01-03"], "datetime64[ns]")
    stations = dataset(("station", "day"))
    floats = np.array([1.0, -9, 99])
    made: dict[str, tuple[xarray.Dataset, Sequence[Settings]]] = {
        "usual": (dataset(), [{}]),
        "turned": (dataset(("item", "user")), [{}]),
        "stations": (
            stations,
            [{}, *({"columns": f"user={x}"} for x in ("station", "day", "place"))],
        ),
        "two variables": (other, [{}, {"variable": "other"}]),
        "days": (dataset().assign_coords(item=days), [{}, {"item_features": "names"}]),
        "three dimensions": (dataset().expand_dims("time"), [{}]),
        "fill f8": (variable(np.array([1, 9.969209968386869e36, 3], "f8")), [{}]),
        "fill i4": (variable(np.array([1, -2147483647, 3], "i4")), [{}]),
        "fill i2": (variable(np.array([1, -32767, 3], "i2")), [{}]),
        "bytes": (variable(np.array([1, -127, 3], "i1")), [{}]),
        "bytes with a fill": (variable(np.array([1, -127, 3], "i1"), _FillValue=np.int8(-1)), [{}]),
        "a code": (variable(np.array([1, -99.9, 3], "f4"), missing_value=-99.9), [{}]),
        "two codes": (variable(floats, missing_value=np.array([-9.0, 99.0])), [{}]),
        "a code as text": (variable(floats, missing_value="-9"), [{}]),
        "a range": (variable(floats, valid_range=np.array([0.0, 9.0])), [{}]),
        "packed": (variable(np.array([1, 2, 3], "i2"), scale_factor=0.5, add_offset=10.0), [{}]),
        "unsigned": (variable(np.array([1, -2, 3], "i1"), _Unsigned="true"), [{}]),
    }
    for name, (data, choices) in made.items():
        for engine in ("h5netcdf", "scipy"):
            if engine == "scipy" and name in ("days", "unsigned"):
                continue
            write = partial(data.to_netcdf, engine=engine)
            yield from each(f"netCDF {name} {engine}", write, "x.nc", choices)
        for settings in choices:
            yield Input(f"xarray {name} {settings}", data, settings)
    yield Input("xarray array", dataset().rating)
    cube = xarray.DataArray(
        np.arange(60.0).reshape(4, 3, 5) % 7, {"s": [*"abcd"]}, ("s", "h", "d"), name="rating"
    )
    yield Input("xarray cube", cube)
    yield Input("xarray cube, named", cube, {"user": "s", "item": "h", "context": "d"})
    for name in ("mod", "row_attrs", "observation"):

        def other_tool(path: Path, name: str = name) -> None:
            with h5py.File(path, "w") as written:
                written.create_group(name)

        yield file(f"HDF5 {name}", other_tool, path="x.h5x")


# ------------------------------------------------------------------------------------ R, surveys


LONG = r_frame({"user": R(["a", "a", "b"]), "item": R([10, 20, 10]), "rating": R([4.0, 3.5, 1.0])})
SYMMETRIC = {"uplo": R(["U"]), "factors": R([])}
SPARSE: dict[str, Mapping[str, Any]] = {
    "dgTMatrix": {"i": R([0, 0, 1]), "j": R([0, 0, 2]), "x": R([4.0, 5.0, 1.0]), "Dim": R([2, 3])},
    "dgRMatrix": {"j": R([2, 0]), "p": R([0, 1, 2]), "x": R([4.0, 5.0]), "Dim": R([2, 3])},
    "ngCMatrix": {"i": R([1, 0]), "p": R([0, 1, 2]), "Dim": R([2, 2])},
    "lgCMatrix": {"i": R([1, 0]), "p": R([0, 1, 2]), "x": R([True, False]), "Dim": R([2, 2])},
    "dsCMatrix": {
        "i": R([0, 0]), "p": R([0, 1, 2]), "x": R([4.0, 5.0]), "Dim": R([2, 2]), **SYMMETRIC
    },
    "ddiMatrix": {"diag": R(["U"]), "x": R([0.5]), "Dim": R([2, 2])},
}  # fmt: skip


def of_r() -> Iterator[Input]:
    """Yield files of R."""
    bits = [struct.pack(">q", number) for number in (7, 1234567890123, -(2**63))]
    labelled = R(["haven_labelled_spss", "haven_labelled", "vctrs_vctr", "double"])
    codes = R([1.0, 2.0, -9.0, 99.0], {"na_values": R([-9.0, 99.0]), "class": labelled})
    ranged = R([1.0, 2.0, 98.0, 99.0], {"na_range": R([98.0, 1e9]), "class": labelled})
    levels = R([2, 1, NA_INT], {"levels": R(["lo", "hi"]), "class": R(["factor"])})
    names = [R(["ann", "bob"]), R(["i1", "i2"])]
    wide: Settings = {"matrix": True}
    missing: Settings = {"missing": ""}
    three = {"item": R([1, 2, 3]), "rating": R([1.0, 2.0, 3.0])}
    day = R([19000.0, 18000.0, 18500.0], {"class": R(["Date"])})
    gaps = {"user": R([1, 2, 3]), "a": R([5, NA_INT, 3]), "b": R([True, False, True])}
    made: dict[str, tuple[Any, Sequence[Settings]]] = {
        "frame": (LONG, [{}]),
        "matrix": (r_matrix([[1.0, 2.0], [NA_REAL, 4.0]], names), [{}, wide]),
        "columns": (r_matrix([[1, 2], [7, 8], [5, 4]]), [{}]),
        "row names": (r_frame({"i1": R([1.0, 2.0]), "i2": R([3.0, 4.0])}, R([4, 2])), [wide]),
        "integer64": (
            r_frame({"user": R(bits, {"class": R(["integer64"])}), **three}),
            [{}, missing],
        ),
        "gaps": (r_frame(gaps), [wide]),
        "factor": (r_frame({"user": levels, **three}), [{}, missing]),
        "haven": (r_frame({"user": R([1, 2, 3, 4]), "a": codes, "b": ranged}), [wide]),
        "dates": (
            r_frame({"user": R([1, 1, 2]), **three, "item": R([1, 1, 2]), "date": day}),
            [{}],
        ),
        "texts": (r_matrix([["a", "b"], ["c", "d"]]), [{}]),
        "vector": (R([1.0, 2.0]), [{}]),
        "list": (R([R([1.0])]), [{}]),
        **{kind: (r_sparse(kind, **slots), MEANINGS) for kind, slots in SPARSE.items()},
    }
    for name, (value, choices) in made.items():
        yield from each(f"R {name}", partial(write_rds, value=value), "d.rds", choices)
    sparse = r_sparse("dgRMatrix", **SPARSE["dgRMatrix"])
    both = partial(write_rda, values={"d": LONG, "l": R([R([1.0])]), "s": sparse})
    chosen = [{"variable": name, **more} for name in ("d", "s", "x") for more in MEANINGS]
    yield from each("R two objects", both, "two.rda", [{}, *chosen])
    for pack in (gzip.compress, bz2.compress):

        def packed(path: Path, pack: Callable[[bytes], bytes] = pack) -> None:
            path.write_bytes(pack(write_rds(path, LONG).read_bytes()))

        yield file(f"R {pack.__module__}", packed, path="d.rds")

    def cut(path: Path) -> None:
        path.write_bytes(write_rds(path, LONG).read_bytes()[:-40])

    yield file("R cut", cut, path="d.rds")


def surveys() -> Iterator[Input]:
    """Yield files of SPSS and Stata."""
    people = [f"p{k}" for k in range(6)]
    asked = pd.DataFrame(
        {"user": people, "q1": [1.0, 2, -9, 99, 98, np.nan], "q2": [1.0, 2, 3, 1, 2, 3]}
    )
    lines = pd.DataFrame(
        {"who": ["a", "b", ""], "what": [1.0, 2, 3], "score": [4.5, np.nan, 2], "wave": [1.0] * 3}
    )
    wide: Settings = {"matrix": True}
    roles: Settings = {"columns": "user=who,item=what,rating=score"}
    for name, table, more, choices in (
        ("codes", asked, {"missing_ranges": {"q1": [-9, {"lo": 98, "hi": 99}]}}, [{}, wide]),
        ("codes in doubt", asked, {}, [wide, {**wide, "missing": [98, 99, -9]}]),
        ("lines", lines, {}, [{}, roles, {**roles, "missing": ""}]),
        ("labels", asked, {"variable_value_labels": {"q2": {1: "no", 3: "yes"}}}, [wide]),
    ):

        def save(path: Path, table: pd.DataFrame = table, more: Settings = more) -> None:
            pyreadstat.write_sav(table, str(path), **more)

        yield from each(f"SPSS {name}", save, "s.sav", choices)
    for version in (8, 12, 15):

        def save_stata(path: Path, version: int = version) -> None:
            pyreadstat.write_dta(asked, str(path), version=version)

        yield from each(f"Stata {version}", save_stata, "s.dta", [{}, wide, {"unstored": "zero"}])


# ------------------------------------------------------------------------------------------ genes


def genes() -> Iterator[Input]:
    """Yield files of GCT and folders of 10x."""
    heads = {
        "1.2": ["#1.2", "3\t2", "Name\tDescription\ts1\ts2"],
        "1.3": ["#1.3", "3\t2\t1\t1", "id\tsymbol\ts1\ts2", "dose\t-666\t1\t10"],
        "few rows": ["#1.2", "4\t2", "Name\tDescription\ts1\ts2"],
        "no sizes": ["#1.2", "3\tx", "Name\tDescription\ts1\ts2"],
        "huge": ["#1.2", "99999999\t99999999", "Name\tDescription\ts1\ts2"],
    }
    table = ["g1\tfirst\t123456789\t0.00004", "g2\t\t-666\tNaN", "g3\tlast\tNA\t2.5"]
    for name, head in heads.items():
        yield file(f"GCT {name}", "\n".join([*head, *table, ""]), path="x.gct")
    for name, line in {
        "a word": "g1\tfirst\tlow\t1",
        "short": "g1\tfirst\t1",
        "twice": table[2],
    }.items():
        lines = [*heads["1.2"], line, *table[1:], ""]
        yield file(f"GCT {name}", "\n".join(lines), path="x.gct")
    market = [
        "%%MatrixMarket matrix coordinate integer general",
        "3 2 3",
        "1 1 5",
        "3 1 1",
        "2 2 7",
    ]
    names = [f"ENSG{k}\tA{k}\tGene Expression" for k in (1, 2, 3)]
    mixed = [*names[:2], "CD3\tCD3\tAntibody Capture"]
    for name, lines, old in (("new", names, False), ("old", names, True), ("mixed", mixed, False)):
        write = partial(
            write_tenx, market=market, barcodes=["AAC-1", "CCA-1"], features=lines, old=old
        )
        chosen = [{"variable": "Gene Expression", **more} for more in MEANINGS]
        yield from each(f"10x {name}", write, "filtered", [*MEANINGS, *chosen])
    few = partial(write_tenx, market=market, barcodes=["AAC-1", "CCA-1"], features=names[:2])
    yield file("10x few features", few, path="filtered")


def inputs() -> Iterator[Input]:
    """Yield all of them."""
    yield from annotated()
    yield from of_matlab()
    yield from of_netcdf()
    yield from of_r()
    yield from surveys()
    yield from genes()

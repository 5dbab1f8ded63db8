"""Small files of the sciences, written as their formats say: AnnData, R, MATLAB, 10x and GCT."""

import gzip
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np

# ------------------------------------------------------------------------------------------- HDF5


def write_texts(group: h5py.Group, name: str, texts: Sequence[str], *, nullable: bool) -> None:
    """Texts as AnnData writes them with pandas 2 (a data set), and with pandas 3 (`nullable`)."""
    if not nullable:
        group.create_dataset(name, data=np.array(texts, object), dtype=h5py.string_dtype())
        group[name].attrs.update({"encoding-type": "string-array", "encoding-version": "0.2.0"})
        return
    node = group.create_group(name)
    node.attrs.update({"encoding-type": "nullable-string-array", "encoding-version": "0.1.0"})
    node.create_dataset("values", data=np.array(texts, object), dtype=h5py.string_dtype())
    node.create_dataset("mask", data=np.zeros(len(texts), bool))


def write_sparse(
    group: h5py.Group, name: str, parts: Mapping[str, Sequence], shape: tuple[int, int], kind: str
) -> None:
    """A sparse matrix as AnnData writes it; `kind` is "csr" or "csc"."""
    node = group.create_group(name)
    node.attrs.update({"encoding-type": f"{kind}_matrix", "encoding-version": "0.1.0"})
    node.attrs["shape"] = shape
    for part, values in parts.items():
        node.create_dataset(part, data=np.array(values))


def write_h5ad(
    path: Path,
    users: Sequence[str] = ("c1", "c2"),
    items: Sequence[str] = ("g1", "g2", "g3"),
    *,
    nullable: bool = True,
    index: str = "_index",
) -> h5py.File:
    """Open a new .h5ad file with names of observations and variables."""
    file = h5py.File(path, "w")
    file.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    for axis, names in (("obs", users), ("var", items)):
        node = file.create_group(axis)
        node.attrs.update({"encoding-type": "dataframe", "_index": index})
        node.attrs["column-order"] = np.array([], object).astype("S1")
        write_texts(node, index, names, nullable=nullable)
    return file


# ---------------------------------------------------------------------------------------------- R

NA_INT = -(2**31)
NA_REAL = struct.unpack(">d", b"\x7f\xf0\x00\x00\x00\x00\x07\xa2")[0]
_NIL = struct.pack(">i", 254)


class R(NamedTuple):
    """A vector of R: a list of bool (logical), int, float, str or R (list), and attributes.

    A dict is an S4 object with these slots.
    """

    values: list | dict
    attributes: Mapping[str, "R"] = {}

    def bytes(self) -> bytes:
        """The value as R serialises it (XDR)."""
        if isinstance(self.values, dict):
            slots = {**self.values, "class": R([self.attributes["class"]], _PACKAGE)}
            return _flags(25, is_object=True, attributed=True) + _pairs(slots)
        code, body = _body(self.values)
        is_object = "class" in self.attributes
        head = _flags(code, is_object=is_object, attributed=bool(self.attributes))
        written = head + struct.pack(">i", len(self.values)) + body
        return written + (_pairs(self.attributes) if self.attributes else b"")


def _flags(code: int, *, is_object: bool = False, attributed: bool = False, tag: bool = False):
    return struct.pack(">i", code | is_object << 8 | attributed << 9 | tag << 10)


def _char(text: str | None) -> bytes:
    if text is None:
        return struct.pack(">ii", 9, -1)
    encoded = text.encode()
    return struct.pack(">ii", 9 | 8 << 12, len(encoded)) + encoded


def _pairs(values: Mapping[str, R]) -> bytes:
    """A list of tagged values."""
    written = b""
    for name, value in values.items():
        written += _flags(2, tag=True) + struct.pack(">i", 1) + _char(name) + value.bytes()
    return written + _NIL


def _body(values: list) -> tuple[int, bytes]:
    """Type and content of a vector."""
    if values and isinstance(values[0], R):
        return 19, b"".join(value.bytes() for value in values)
    if any(isinstance(value, str) for value in values):
        return 16, b"".join(map(_char, values))
    if all(isinstance(value, bool) for value in values):
        return 10, struct.pack(f">{len(values)}i", *values)
    if all(isinstance(value, int) for value in values):
        return 13, struct.pack(f">{len(values)}i", *values)
    return 14, b"".join(_real(value) for value in values)


def _real(value: float | bytes) -> bytes:
    return value if isinstance(value, bytes) else struct.pack(">d", value)


_PACKAGE = {"package": R(["Matrix"])}
_HEAD = b"X\n" + struct.pack(">iii", 2, 0x00040301, 0x00020300)


def write_rds(path: Path, value: R) -> Path:
    """Write an .rds file of one object."""
    path.write_bytes(_HEAD + value.bytes())
    return path


def write_rda(path: Path, values: Mapping[str, R]) -> Path:
    """Write an .rda file of several objects."""
    path.write_bytes(b"RDX2\n" + _HEAD + _pairs(values))
    return path


def r_frame(columns: Mapping[str, R], rows: R | None = None) -> R:
    """A data frame; without `rows` its row names count from 1."""
    n = len(next(iter(columns.values())).values)
    attributes = {
        "names": R(list(columns)),
        "class": R(["data.frame"]),
        "row.names": rows or R([NA_INT, -n]),
    }
    return R(list(columns.values()), attributes)


def r_matrix(columns: Sequence[list], names: Sequence[R | None] = ()) -> R:
    """A matrix of numbers or texts, by columns, with names of rows and columns."""
    flat = [value for column in columns for value in column]
    attributes = {"dim": R([len(columns[0]), len(columns)])}
    if names:
        attributes["dimnames"] = _Names(list(names))
    return R(flat, attributes)


class _Names(NamedTuple):
    """A list of names, of which some may be NULL."""

    values: list

    def bytes(self) -> bytes:
        body = b"".join(_NIL if value is None else value.bytes() for value in self.values)
        return _flags(19) + struct.pack(">i", len(self.values)) + body


def r_sparse(kind: str, **slots: R) -> R:
    """An object of the package Matrix."""
    slots.setdefault("Dimnames", _Names([None, None]))
    return R(dict(slots), {"class": kind})


# ------------------------------------------------------------------------------------------- genes


def write_tenx(
    path: Path,
    market: Sequence[str],
    *,
    barcodes: Iterable[str],
    features: Iterable[str],
    old: bool = False,
) -> Path:
    """A folder as Cell Ranger writes it; before version 3 if `old`."""
    path.mkdir()
    files = {"matrix.mtx": market, "barcodes.tsv": barcodes}
    if old:
        files["genes.tsv"] = [line.rpartition("\t")[0] for line in features]
    else:
        files["features.tsv"] = features
    for name, lines in files.items():
        content = "".join(f"{line}\n" for line in lines).encode()
        if old:
            (path / name).write_bytes(content)
        else:
            (path / f"{name}.gz").write_bytes(gzip.compress(content))
    return path

"""Writes the completed training matrix to a file, a block of rows at a time.

Rows are users and columns are items, both in the order of their names. Known cells, test ratings
included, are as they were given. Imputations follow one another: CSV and Parquet have a first
column ``draw``, and arrays a first dimension.

========  =================================================================================
CSV       a column ``user``, and one for each item
Parquet   the same; DuckDB converts it from CSV, because it is slow with thousands of columns
npy       (users, items) or (draws, users, items) float32, without names
netCDF    the variable ``rating`` with the dimensions ``user`` and ``item``, and their names
========  =================================================================================
"""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dsgmcmc.errors import InputError, writing
from dsgmcmc.posterior.export import require
from dsgmcmc.posterior.index import Vocabulary
from dsgmcmc.posterior.matrix.complete import Block, Completion
from dsgmcmc.posterior.matrix.known import KnownCells
from dsgmcmc.posterior.run import Run
from dsgmcmc.storage.files import check_target, remove_folder, replacing, sync, write_file
from dsgmcmc.types import Array, Int32, Int64

SUFFIXES = (".csv", ".parquet", ".pq", ".npy", ".nc")
#: Type of text of any length in HDF5, as h5py describes it.
TEXT = np.dtype("O", metadata={"vlen": str})
#: Shows progress: passes on blocks, given their number.
Tracker = Callable[[Iterable[Block], int], Iterable[Block]]


@dataclass(frozen=True)
class MatrixFile:
    """The completed training matrix of a run.

    Parameters
    ----------
    run : Run
    data : Path, optional
        Path of the run's ratings file, if it was moved.
    imputations : int
        Number of matrices that are drawn; 0 for one with expected ratings.
    clip : bool
        Whether to clip predictions to the range of the levels, if any, and of counts at 0.
    """

    run: Run
    data: Path | None = None
    imputations: int = 0
    clip: bool = True

    @cached_property
    def users(self) -> Int32:
        """Rows of the users in the run, in the order of their names."""
        return np.argsort(self.run.users.ids, kind="stable").astype(np.int32)

    @cached_property
    def items(self) -> Int32:
        """Rows of the items in the run, in the order of their names."""
        return np.argsort(self.run.items.ids, kind="stable").astype(np.int32)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array of all matrices."""
        matrix = (len(self.users), len(self.items))
        if self.imputations:
            return (self.imputations, *matrix)
        return matrix

    @cached_property
    def _completion(self) -> Completion:
        return Completion(self.run, self.items, clip=self.clip)

    def write(self, out: Path, track: Tracker) -> dict[str, int]:
        """Write the file atomically; return the numbers of ``users``, ``items`` and known cells.

        Raises
        ------
        InputError
            If the suffix of `out` is unknown, two columns would have one name, the ratings file is
            missing, or ratings have no distribution to draw from; then no file is written.
        """
        suffix = out.suffix.lower()
        if suffix not in SUFFIXES:
            raise InputError(f"{out}: the suffix of a matrix must be one of {', '.join(SUFFIXES)}")
        check_target(out, force=True)
        if suffix not in (".npy", ".nc"):
            self._refuse_equal_names(ignores_case=suffix != ".csv")
        if suffix == ".nc":
            require("`dsgmcmc predict --matrix --out OUT.nc`", "h5netcdf")
        if self.imputations:
            self._completion.need_distribution()
        cells = KnownCells(self.run, self.data)
        blocks = track(self._blocks(cells), self._number_of_blocks)
        with writing(out):
            if suffix == ".csv":
                write_file(out, self._csv(blocks))
            elif suffix == ".npy":
                write_file(out, self._npy(blocks))
            elif suffix == ".nc":
                self._write_netcdf(out, blocks)
            else:
                self._write_parquet(out, blocks)
        return {
            "users": len(self.users),
            "items": len(self.items),
            "known": cells.number,
            "draws": self.imputations,
        }

    # ------------------------------------------------------------------ blocks

    @property
    def _number_of_blocks(self) -> int:
        blocks = self._completion.blocks(self.users, by_draws=self.imputations > 0)
        return sum(1 for _ in blocks) * max(self.imputations, 1)

    def _blocks(self, cells: KnownCells) -> Iterator[Block]:
        """Yield all blocks, matrix after matrix: known cells, and predictions in their holes."""
        bounded = cells.bounded(self.users, self.items)
        for block in self._completion.filled(self.users, bounded, draws=self.imputations):
            values = cells.of(self.users[block.rows], self.items)
            np.copyto(values, block.values, where=np.isnan(values), casting="same_kind")
            yield block._replace(values=values)

    # ------------------------------------------------------------------ formats

    @property
    def _header(self) -> list[str]:
        """Names of the columns of a table."""
        header = ["user", *map(str, _names(self.run.items, self.items).tolist())]
        if self.imputations:
            header.insert(0, "draw")
        return header

    def _refuse_equal_names(self, *, ignores_case: bool) -> None:
        """Raise InputError if two columns of a table have one name; DuckDB ignores its case."""
        earlier: dict[str, str] = {}
        for name in self._header:
            key = name.lower() if ignores_case else name
            if key in earlier:
                others = ".npy or .nc"
                if ignores_case:
                    others = ".csv, .npy or .nc"
                raise InputError(
                    f"columns {earlier[key]!r} and {name!r} of the table have one name: write"
                    f" {others}"
                )
            earlier[key] = name

    def _csv(self, blocks: Iterable[Block]) -> Iterator[bytes]:
        """Yield the lines of a CSV file, many at a time."""
        names = _names(self.run.users, self.users).tolist()
        yield _csv_lines([self._header])
        for block in blocks:
            lines = []
            for name, values in zip(names[block.rows], block.values, strict=True):
                line = [name, *values.astype(np.str_).tolist()]
                if self.imputations:
                    line.insert(0, block.number + 1)
                lines.append(line)
            yield _csv_lines(lines)

    def _npy(self, blocks: Iterable[Block]) -> Iterator[bytes]:
        """Yield the bytes of a file of NumPy."""
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            header, {"descr": "<f4", "fortran_order": False, "shape": self.shape}
        )
        yield header.getvalue()
        for block in blocks:
            yield block.values.astype("<f4", copy=False).tobytes()

    def _write_parquet(self, out: Path, blocks: Iterable[Block]) -> None:
        """Write a CSV file, and convert it."""
        from dsgmcmc.tables.written import convert_csv  # loads DuckDB

        folder = Path(tempfile.mkdtemp(prefix=".dsgmcmc-", dir=out.parent))
        try:
            lines = folder / "matrix.csv"
            write_file(lines, self._csv(blocks))
            types = {"user": "BIGINT" if self.run.users.integers else "VARCHAR"}
            if self.imputations:
                types = {"draw": "INTEGER", **types}
            for item in _names(self.run.items, self.items).tolist():
                types[str(item)] = "FLOAT"
            convert_csv(lines, types, out)
        finally:
            remove_folder(folder)

    def _write_netcdf(self, out: Path, blocks: Iterable[Block]) -> None:
        """Write a netCDF file."""
        import h5netcdf

        dimensions = ("draw", "user", "item")[-len(self.shape) :]
        with replacing(out) as temporary:
            with h5netcdf.File(temporary, "w") as file:
                file.dimensions = dict(zip(dimensions, self.shape, strict=True))
                _write_names(file, "user", _names(self.run.users, self.users))
                _write_names(file, "item", _names(self.run.items, self.items))
                rating = file.create_variable("rating", dimensions, np.float32)
                for block in blocks:
                    if self.imputations:
                        rating[block.number, block.rows] = block.values
                    else:
                        rating[block.rows] = block.values
            sync(temporary)


def _names(vocabulary: Vocabulary, rows: Int32) -> Array:
    """Return the names of rows; those of several parts as text: ``station=s3,day=d4``."""
    names = vocabulary.ids[rows]
    if not vocabulary.parts:
        return names
    texts = [
        ",".join(f"{label}={part}" for label, part in zip(vocabulary.parts, name, strict=True))
        for name in names.tolist()
    ]
    return np.array(texts, object)


def _csv_lines(lines: list[list[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue().encode()


def _write_names(file: Any, dimension: str, names: Int64 | Array) -> None:
    """Write the coordinates of a dimension of a netCDF file: integers or text."""
    if names.dtype == np.int64:
        file.create_variable(dimension, (dimension,), np.int64, data=names)
        return
    variable = file.create_variable(dimension, (dimension,), TEXT)
    variable[:] = names

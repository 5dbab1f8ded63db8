"""Writes the completed training matrix to files, a block of rows at a time.

Rows are users and columns are items, in the order of the matrix that was prepared, with those
without ratings; of other ratings, in the order of names. Known cells, test ratings
included, are as they were given, with an sd of 0; expected ratings are of all cells. Imputations
follow one another: CSV and Parquet have a first column ``draw``, and arrays a first dimension.

========  =================================================================================
CSV       a column with the names of users, and one for each item
Parquet   the same; DuckDB converts it from CSV, because it is slow with thousands of columns
npy       (users, items) or (draws, users, items) float32, without names
h5ad      layers (`dsgmcmc.posterior.matrix.annotated`): ``imputed``, or ``expected`` with expected
          ratings of all cells; ``sd``, ``lower`` and ``upper``; and the factors
netCDF    the variable ``rating`` with a dimension for users and one for items, and their names
========  =================================================================================

The column, or the dimension, of users is named as in the ratings of the run, or else ``user``.
Standard deviations and quantiles are variables of netCDF (``sd``, ``q05``, ``q95``), and elsewhere
files of their own beside the first: ``OUT.sd.csv``, ``OUT.q05.csv``.
"""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from dsgmcmc.errors import InputError, writing
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.draws import ENTITIES
from dsgmcmc.posterior.export import require
from dsgmcmc.posterior.index import Vocabulary, unknown_names
from dsgmcmc.posterior.matrix.annotated import AnnotatedMatrix
from dsgmcmc.posterior.matrix.axis import Axis, axis_of
from dsgmcmc.posterior.matrix.complete import Block, Completion
from dsgmcmc.posterior.matrix.known import KnownCells
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.settings import PredictOptions
from dsgmcmc.settings import named
from dsgmcmc.storage.files import check_target, remove_folder, replacing, sync
from dsgmcmc.terminal import warn
from dsgmcmc.types import Array, Float32, Int32, Int64

SUFFIXES = (".csv", ".parquet", ".pq", ".npy", ".nc", ".h5ad")
#: Formats with all matrices in one file, and with names of any kind.
LABELLED = (".nc", ".h5ad")
#: Type of text of any length in HDF5, as h5py describes it.
TEXT = np.dtype("O", metadata={"vlen": str})
#: Writes the values of a block of one matrix.
Sink = Callable[[Block, Array], Any]
#: Shows progress: passes on blocks, given their number.
Tracker = Callable[[Iterable[Block], int], Iterable[Block]]


@dataclass(frozen=True)
class MatrixFile:
    """The completed training matrix of a run.

    Parameters
    ----------
    run : Run
    imputations : int
        Number of matrices that are drawn, of expected ratings if these are predicted; 0 for one
        with means.
    options : PredictOptions
        What is predicted; quantiles are written if they have an interval.
    sd : bool
        Whether to write standard deviations.
    """

    run: Run
    imputations: int = 0
    options: PredictOptions = field(default_factory=partial(PredictOptions, clip=True))
    sd: bool = False

    @cached_property
    def axes(self) -> dict[str, Axis]:
        """Users and items of the matrix; names of several parts are texts: station=s3,day=d4."""
        axes = {}
        for entity in ENTITIES:
            axis = axis_of(self.run, entity)
            axes[entity] = axis._replace(names=_written(self.run.vocabulary(entity), axis.names))
        return axes

    @property
    def users(self) -> Int32:
        """Rows of the users in the run; -1 for those without ratings."""
        return self.axes["user"].rows

    @property
    def items(self) -> Int32:
        """Rows of the items in the run; -1 for those without ratings."""
        return self.axes["item"].rows

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array of all matrices."""
        matrix = (len(self.users), len(self.items))
        if self.imputations:
            return (self.imputations, *matrix)
        return matrix

    @cached_property
    def _completion(self) -> Completion:
        return Completion(Predictor(self.run, self.options), self.items)

    @cached_property
    def _others(self) -> list[str]:
        """Names of the predictions beside the first.

        Raises InputError if ratings have no standard deviation.
        """
        names = self._completion.predictor.names
        if self.sd and "sd" not in names:
            raise InputError(
                "under student-t, ratings on a log scale have no standard deviation: use --interval"
            )
        others = ["sd"] if self.sd else []
        if self.options.interval is not None:
            others += names[-2:]
        return others

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
        if suffix not in (".npy", *LABELLED):
            self._refuse_equal_names(ignores_case=suffix != ".csv")
        if suffix == ".nc":
            require("`dsgmcmc predict --matrix --out OUT.nc`", "h5netcdf")
        if self.imputations:
            self._need_draws(suffix)
        files = {"rating": out}
        if suffix not in LABELLED:
            files |= {name: out.with_name(f"{out.stem}.{name}{suffix}") for name in self._others}
        for file in files.values():
            check_target(file, force=True)
        cells = KnownCells(self.run)
        self._tell_unrated()
        blocks = self._completion.blocks(self.users, draws=self.imputations, others=self._others)
        with writing(out), ExitStack() as stack:
            if suffix == ".h5ad":
                write = stack.enter_context(self._annotated(out, cells))
            elif suffix == ".nc":
                write = stack.enter_context(self._netcdf(out))
            else:
                sinks = {
                    name: stack.enter_context(self._table(file)) for name, file in files.items()
                }
                write = partial(_to_each, sinks)
            for block in track(self._blocks(cells), len(blocks)):
                write(block)
        return {
            "users": len(self.users),
            "items": len(self.items),
            "known": cells.number,
            "draws": self.imputations,
        }

    def _need_draws(self, suffix: str) -> None:
        """Raise InputError if matrices cannot be drawn, or the format has one matrix."""
        if suffix == ".h5ad":
            raise InputError(f"a layer of AnnData has one matrix: write {named('draws')} to .nc")
        self._completion.need_draws(self.imputations, noise=not self.options.of_mean)

    def _tell_unrated(self) -> None:
        """Warn of rows and columns without ratings."""
        for entity, axis in self.axes.items():
            if (axis.rows < 0).any():
                unrated = unknown_names(entity, axis.names[axis.rows < 0].tolist())
                warn(f"{unrated}: predicted from the prior")

    # ------------------------------------------------------------------ blocks

    def _blocks(self, cells: KnownCells) -> Iterator[Block]:
        """Yield all blocks, matrix after matrix: known cells, and predictions in their holes."""
        of_mean = self.options.of_mean
        bounded = None if of_mean else cells.bounded(self.users, self.items)
        for block in self._completion.filled(
            self.users,
            bounded,
            draws=self.imputations,
            others=self._others,
            noise=not of_mean,
        ):
            if not of_mean:
                block = block.keeping(cells.of(self.users[block.rows], self.items))
                single = {name: cells.astype(np.float32) for name, cells in block.values.items()}
                block = block._replace(values=single)
            yield block

    # ------------------------------------------------------------------ formats

    @property
    def _header(self) -> list[str]:
        """Names of the columns of a table."""
        items = map(str, self.axes["item"].names.tolist())
        header = [self.axes["user"].heading, *items]
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

    @contextmanager
    def _table(self, out: Path) -> Iterator[Sink]:
        """Context with a function that writes the blocks of one matrix to a file of its own."""
        if out.suffix.lower() in (".csv", ".npy"):
            with self._lines(out) as sink:
                yield sink
            return
        from dsgmcmc.tables.written import convert_csv  # loads DuckDB

        folder = Path(tempfile.mkdtemp(prefix=".dsgmcmc-", dir=out.parent))
        try:
            lines = folder / "matrix.csv"
            with self._lines(lines) as sink:
                yield sink
            users = self.axes["user"]
            types = {users.heading: "BIGINT" if users.integers else "VARCHAR"}
            if self.imputations:
                types = {"draw": "INTEGER", **types}
            for item in self.axes["item"].names.tolist():
                types[str(item)] = "FLOAT"
            convert_csv(lines, types, out)
        finally:
            remove_folder(folder)

    @contextmanager
    def _lines(self, out: Path) -> Iterator[Sink]:
        """Context with a function that writes blocks to a CSV file or an array of NumPy."""
        with replacing(out) as temporary:
            with temporary.open("xb") as file:
                if out.suffix.lower() == ".npy":
                    shape: dict[str, Any] = {"descr": "<f4", "fortran_order": False}
                    shape["shape"] = self.shape
                    np.lib.format.write_array_header_1_0(file, shape)
                    yield lambda _, values: file.write(values.astype("<f4").tobytes())
                else:
                    names = self.axes["user"].names.tolist()
                    file.write(_csv_lines([self._header]))
                    yield lambda block, values: file.write(self._csv(names, block, values))
            sync(temporary)

    def _csv(self, names: list[Any], block: Block, values: Array) -> bytes:
        """Return the lines of a block in a CSV file."""
        lines = []
        for name, row in zip(names[block.rows], values, strict=True):
            line = [name, *row.astype(np.str_).tolist()]
            if self.imputations:
                line.insert(0, block.number + 1)
            lines.append(line)
        return _csv_lines(lines)

    @contextmanager
    def _annotated(self, out: Path, cells: KnownCells) -> Iterator[Callable[[Block], None]]:
        """Context with a function that writes blocks as layers of an AnnData file."""
        names = {"rating": "imputed", "sd": "sd"}
        if self.options.of_mean:
            names["rating"] = "expected"
        bounds = [name for name in self._others if name != "sd"]
        names |= dict(zip(bounds, ("lower", "upper"), strict=False))
        layers = [names[name] for name in ("rating", *self._others)]

        def known(rows: slice) -> Float32:
            return cells.of(self.users[rows], self.items)

        with AnnotatedMatrix(self.run, self.axes, layers, known).open(out) as sink:

            def write(block: Block) -> None:
                sink(block.rows, {names[name]: values for name, values in block.values.items()})

            yield write

    @contextmanager
    def _netcdf(self, out: Path) -> Iterator[Callable[[Block], None]]:
        """Context with a function that writes blocks to a netCDF file."""
        import h5netcdf

        axes = self.axes.values()
        dimensions = ("draw", *(axis.heading for axis in axes))[-len(self.shape) :]
        with replacing(out) as temporary:
            with h5netcdf.File(temporary, "w") as file:
                file.dimensions = dict(zip(dimensions, self.shape, strict=True))
                for axis in axes:
                    _write_names(file, axis.heading, axis.names)
                variables = {
                    name: file.create_variable(name, dimensions, np.float32)
                    for name in ("rating", *self._others)
                }

                def write(block: Block) -> None:
                    for name, values in block.values.items():
                        if self.imputations:
                            variables[name][block.number, block.rows] = values
                        else:
                            variables[name][block.rows] = values

                yield write
            sync(temporary)


def _to_each(sinks: Mapping[str, Sink], block: Block) -> None:
    """Write a block, each of its matrices to its own file."""
    for name, values in block.values.items():
        sinks[name](block, values)


def _written(vocabulary: Vocabulary, names: Array) -> Array:
    """Return names; those of several parts as text: ``station=s3,day=d4``."""
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

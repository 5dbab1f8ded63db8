"""Writes completed matrices as layers of an AnnData file (.h5ad), a block of rows at a time.

A new file has the known cells as ``X``, with NaN in the others. Layers are added to a file that is
there already, beside its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.errors import InputError
from dsgmcmc.input.sources.anndata import copy_annotated
from dsgmcmc.posterior.draws import ENTITIES
from dsgmcmc.posterior.loadings import loadings
from dsgmcmc.posterior.matrix.axis import Axis
from dsgmcmc.posterior.run import Run
from dsgmcmc.storage.annotated import add_array, add_groups, start_annotated
from dsgmcmc.storage.files import replacing, sync
from dsgmcmc.storage.hdf5 import new_hdf5
from dsgmcmc.types import Array, Float32

#: Axis of an entity, and the group and name of its factors, as scanpy names those of a PCA.
AXES = {"user": "obs", "item": "var"}
FACTORS = {"user": ("obsm", "X_dsgmcmc"), "item": ("varm", "dsgmcmc_loadings")}
#: Writes layers of a block of rows.
LayerSink = Callable[[slice, Mapping[str, Array]], None]


class AnnotatedMatrix(NamedTuple):
    """A matrix whose completed cells become layers.

    Attributes
    ----------
    run : Run
    axes : dict of str to Axis
        Its users and items.
    layers : sequence of str
    known : function
        Returns the known cells of a block of rows, for ``X`` of a new file.
    """

    run: Run
    axes: Mapping[str, Axis]
    layers: Sequence[str]
    known: Callable[[slice], Float32]

    @contextmanager
    def open(self, out: Path) -> Iterator[LayerSink]:
        """Context with a function that writes layers of blocks; the file is then replaced.

        Raises InputError if there is a file with other observations or variables, or with layers
        that the run has read and results would replace.
        """
        shape = tuple(len(axis.names) for axis in self.axes.values())
        names = {AXES[entity]: self._names(entity) for entity in ENTITIES}
        is_new = not out.exists()
        with replacing(out) as temporary:
            with new_hdf5(temporary) as (file, check):
                if is_new:
                    start_annotated(file, names)
                else:
                    self._refuse_read_layers(out)
                    copy_annotated(out, file, names)
                    add_groups(file)
                self._add_factors(file)
                for name in self.layers:
                    add_array(file["layers"], name, shape)

                def write(rows: slice, layers: Mapping[str, Array]) -> None:
                    for name, values in layers.items():
                        file["layers"][name][rows] = values
                    if is_new:
                        file["X"][rows] = self.known(rows)
                    check()

                yield write
            sync(temporary)

    def _refuse_read_layers(self, out: Path) -> None:
        """Raise InputError if a layer of results has the name of one that the run has read."""
        read = {f"layers/{self.run.reading.variable}", *self.run.columns.values()}
        for name in self.layers:
            if f"layers/{name}" in read:
                raise InputError(
                    f"{out} exists, and the run has read its layer {name}, which the results would"
                    " replace: give another name"
                )

    def _names(self, entity: str) -> tuple[str, list[str]]:
        """Return the heading of users or items, and their names as texts."""
        axis = self.axes[entity]
        return axis.heading, list(map(str, axis.names.tolist()))

    def _add_factors(self, file: Any) -> None:
        """Write scores and loadings that hold 99 % of the variance, and their sds."""
        run = self.run
        if not run.config.rank:
            return
        found = loadings(run, items=run.items.ids, users=run.users.ids)
        for entity, table in (("user", found.users), ("item", found.items)):
            group, name = FACTORS[entity]
            rows = self.axes[entity].rows
            for ending in ("", "_sd"):
                columns = [table[f"factor_{k + 1}{ending}"] for k in range(found.n_factors)]
                of_run = np.stack(columns, axis=1).astype(np.float32)
                factors = add_array(file[group], f"{name}{ending}", (len(rows), len(columns)))
                factors[:] = np.where((rows >= 0)[:, None], of_run[rows], np.float32(np.nan))

"""Starting values from an earlier run, usually on fewer ratings.

Users and items that are in both runs start from the last state of the earlier run. The newest
checkpoint of every chain of the earlier run is read once, before the first iteration. Its values
are matched by the names of users and items, and written to ``RUN/start/chain-c`` in the blocks of
the new grid. `dsgmcmc.model.target.FactorTarget.take_start` reads them there. Chain c starts from
chain c modulo the number of earlier chains. The new chains depend only on the files in
``RUN/start``, so a resumed run does not need the earlier run. ``start`` in ``run.toml`` is the
digest of these files.

If ratings are standardised, the values are not rescaled to the standard deviation of the new
ratings. It changes little when data are added, and starting values need not be exact.
"""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.errors import InputError
from dsgmcmc.model.quantity import THETA
from dsgmcmc.model.target import KNOWN
from dsgmcmc.parallel.partition import block_bounds
from dsgmcmc.posterior.index import Index, Vocabulary
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.format import SIDES
from dsgmcmc.settings import named
from dsgmcmc.storage.files import remove_folder
from dsgmcmc.storage.rundir import Facts, RunDirectory, header
from dsgmcmc.storage.store import Key, Lazy, SmallArray, Snapshot, steps, write_snapshot
from dsgmcmc.storage.verify import snapshot_lines
from dsgmcmc.types import Array, Factor, Float64, Int32


class WarmStart:
    """The earlier run from which a new run starts.

    Parameters
    ----------
    path : Path
        Directory of the earlier run.

    Raises
    ------
    InputError
        If `path` is not a run on ratings, or has no checkpoint.
    """

    def __init__(self, path: Path) -> None:
        self.directory = RunDirectory(path)
        self.config, facts = ResolvedConfig.of_run(self.directory)
        self.n_levels = len(facts.get("levels", []))
        saved = {
            chain: steps(self.directory.series("checkpoints", chain))
            for chain in self.directory.chains()
        }
        self.checkpoints = [
            self.directory.open_snapshot("checkpoints", chain, iterations[-1], facts)
            for chain, iterations in saved.items()
            if iterations
        ]
        if not self.checkpoints:
            raise InputError(
                f"{path} has no checkpoint to start from: continue it first, or leave out"
                f" {named('from')}"
            )
        self.index = Index(self.directory, facts)
        self.index.lengths()  # raises an error if the names do not match the rows
        self.quantities = self.index.quantities(self.config, self.n_levels)

    def model(self) -> dict[str, Any]:
        """Return the earlier run's model settings as defaults.

        Hyperparameters are drawn from the first sweep on.
        """
        table = self.config.table()
        settings = {name: table[name] for name in self.config.model_settings if name in table}
        settings["hyper_start"] = 1
        return settings

    def check(self, config: ResolvedConfig, levels: Float64 | None) -> None:
        """Raise InputError if the new run has a different model.

        Parameters
        ----------
        config : ResolvedConfig
            Settings of the new run.
        levels : (R,) float64 or None
            Levels of the new run's training ratings, if the likelihood has thresholds between
            levels.
        """
        may_differ = ["hyper_start"]  # affects when parameters are drawn, but not the posterior
        if config.prior != "fixed":
            may_differ.append("prior_precision")
        for name in config.model_settings:
            earlier = getattr(self.config, name)
            requested = getattr(config, name)
            if name not in may_differ and earlier != requested:
                raise InputError(
                    f"{self.directory.path} was sampled with {name} {earlier}, but {requested} is"
                    " requested: a run can start only from a run with the same model; leave out"
                    f" {named(name)} or {named('from')}"
                )
        if levels is not None and len(levels) != self.n_levels:
            raise InputError(
                f"{self.directory.path} was sampled on ratings with {self.n_levels} levels, but the"
                f" new ratings have {len(levels)} levels, so the thresholds between them differ;"
                f" leave out {named('from')}"
            )

    # ------------------------------------------------------------------ starting values

    def match_rows(self, ratings: Ratings) -> dict[str, Int32]:
        """Return, for each row of W and of H, the earlier run's row with the same name.

        Returns
        -------
        dict of str to (n,) int32
            By factor; -1 if there is no such row.

        Raises
        ------
        InputError
            If the two runs share no user and no item.
        """
        rows = {}
        for factor, entity, side in zip("WH", ratings.entities, SIDES, strict=True):
            rows[factor] = _match(self.index.vocabulary(entity), ratings.ids(side))
        if all((earlier < 0).all() for earlier in rows.values()):
            raise InputError(
                f"{self.directory.path} and {ratings.path} have no user and no item in common"
            )
        return rows

    def write(
        self, run: RunDirectory, ratings: Ratings, config: ResolvedConfig, recorded: Facts
    ) -> str:
        """Write ``RUN/start``, and return the digest of its content.

        Parameters
        ----------
        run : RunDirectory
            The new run; locked by this process.
        ratings : Ratings
            Ratings of the new run.
        config : ResolvedConfig
            Settings of the new run.
        recorded : dict
            Facts that the new run's snapshots record (`dsgmcmc.storage.rundir`).
        """
        matches = self.match_rows(ratings)
        facts = {**recorded, "config_hash": config.hash(), "data_hash": ratings.digest}
        remove_folder(run.start())  # left by a job that was killed before sampling
        run.start().mkdir()
        earlier_factors = self._earlier_factors(ratings)
        matches_of_blocks = _split_blocks(matches, ratings, config.grid)
        for chain, checkpoint in enumerate(self.checkpoints):
            blocks = self._blocks(checkpoint, earlier_factors, matches_of_blocks)
            small = self._small(checkpoint, earlier_factors)
            head = header("start", facts, chain=chain, grid=config.grid, state=small)
            write_snapshot(run.start(), run.start(chain).name, blocks, head)
        known = {
            f"known_{entity}s": int((matches[factor] >= 0).sum())
            for factor, entity in zip("WH", ratings.entities, strict=True)
        }
        run.note(
            "started from a run",
            run=str(self.directory.path),
            iterations=[checkpoint.manifest.iteration for checkpoint in self.checkpoints],
            **known,
        )
        return start_digest(run)

    def _earlier_factors(self, ratings: Ratings) -> dict[str, str]:
        """Return, for each new factor, the earlier factor with the same users or items."""
        earlier_factors = {}
        for factor in Factor:
            entity = ratings.orientation.entity_of(factor)
            earlier_factors[factor.name] = self.index.factors[entity]
        return earlier_factors

    def _blocks(
        self,
        checkpoint: Snapshot,
        earlier_factors: dict[str, str],
        matches_of_blocks: dict[str, list[Int32]],
    ) -> dict[Key, Lazy]:
        """Return the rows with starting values, in the blocks of the new grid.

        ``known`` tells for each row whether it has starting values.
        """
        blocks: dict[Key, Lazy] = {}
        for factor, earlier in earlier_factors.items():
            fields = self._fields(checkpoint, earlier)
            for b, matches in enumerate(matches_of_blocks[factor]):
                blocks[Key("start", factor, b, KNOWN)] = (matches >= 0).astype(np.uint8)
                for name, values in fields.items():
                    blocks[Key("start", factor, b, name)] = partial(_take_rows, values, matches)
        return blocks

    def _last_state(self, checkpoint: Snapshot) -> tuple[int, str]:
        """Return the number of the state that moved last, and the field with its factors."""
        sampler = self.config.make_sampler()
        name = sampler.position(max(checkpoint.manifest.iteration - 1, 0))
        return sampler.positions.index(name), name

    def _fields(self, checkpoint: Snapshot, factor: str) -> dict[str, Array]:
        """Return an earlier factor's fields with starting values, by name of the quantity.

        Each is (n, width), for all rows.
        """
        n_rows = self.index.lengths()[0][factor]
        fields = {}
        for quantity in (THETA, *self.quantities.of_rows):
            if not quantity.started:
                continue
            name = quantity.name
            if quantity == THETA:
                _, name = self._last_state(checkpoint)
            values = checkpoint.read_field("state", factor, name)
            if values.shape != (n_rows, quantity.width(self.quantities.sizes)):
                raise InputError(
                    f"{checkpoint.path} is inconsistent: {name} of {factor} is {values.shape}"
                )
            fields[quantity.name] = values
        return fields

    def _small(
        self, checkpoint: Snapshot, earlier_factors: dict[str, str]
    ) -> dict[str, SmallArray]:
        """Return the small arrays with starting values, those of the state that moved last.

        `earlier_factors` maps each factor of the new run to the factor of the earlier run with the
        same users or items.
        """
        saved = checkpoint.manifest.state
        last, _ = self._last_state(checkpoint)
        new_factors = {
            Factor[earlier]: Factor[factor] for factor, earlier in earlier_factors.items()
        }
        arrays = {}
        for quantity in self.quantities.all:
            if not quantity.started or quantity.of_rows:
                continue
            renamed = quantity
            if quantity.factor is not None:
                renamed = quantity.for_factor(new_factors[quantity.factor])
            array = saved[quantity.name].array()
            if quantity.per_state:
                array = array[[last]]
            arrays[renamed.name] = SmallArray.from_array(array)
        return arrays


def start_digest(run: RunDirectory) -> str:
    """Return the SHA-256 of a run's starting values; raise InputError if a file is damaged."""
    lines = []
    for snapshot in map(Snapshot, run.starts()):
        snapshot.verify()
        lines += snapshot_lines(snapshot, "start")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _split_blocks(matches: dict[str, Int32], ratings: Ratings, grid: int) -> dict[str, list[Int32]]:
    """Split the matches of all rows into the blocks of a grid, by factor."""
    indptrs = {
        "W": ratings.row_indptr,
        "H": np.concatenate([[0], np.cumsum(ratings.column_counts)]),
    }
    blocks = {}
    for factor, indptr in indptrs.items():
        bounds = block_bounds(indptr, grid)
        blocks[factor] = np.split(matches[factor], bounds[1:-1])
    return blocks


def _match(known: Vocabulary, ids: Array) -> Int32:
    """Return the row in `known` for each of `ids`, or -1.

    If only one of the two has integers, they are compared as text. Names of another number of parts
    match no row.
    """
    n_parts = len(ids[0]) if isinstance(ids[0], tuple) else 0
    if n_parts != len(known.parts):
        return np.full(len(ids), -1, np.int32)
    if n_parts:
        return known.index_of(ids)
    if known.integers != (ids.dtype == np.int64):
        known = Vocabulary(known.entity, known.ids.astype(str).astype(object))
        ids = ids.astype(str).astype(object)
    return known.index_of(ids)


def _take_rows(values: Array, rows: Int32) -> Array:
    """Return rows of an array; a row of zeros for -1."""
    chosen: Array = values[np.maximum(rows, 0)]
    chosen[rows < 0] = 0
    return chosen

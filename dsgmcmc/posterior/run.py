"""Opens a run for use, whether it has ended or not.

Names, draws and moments are read when first needed. A posterior is written when a job ends or is
stopped. Until then, the newest checkpoint has the traces of the shared parameters, and lists the
saved draws that belong to it; its moments cannot be used.

Before arrays are read, the manifests of snapshots are checked (`dsgmcmc.posterior.shapes`). The
values of a block are checked by its hash when it is read.

`Run` has users and items; only `Index` knows whether the rows of W are users or items.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.errors import InputError
from dsgmcmc.model.likelihoods.limits import limits_from
from dsgmcmc.model.limits import Limits
from dsgmcmc.model.parts import PARTS
from dsgmcmc.model.parts.base import FileFacts
from dsgmcmc.posterior.draw_batch import DrawBatch
from dsgmcmc.posterior.draws import ENTITIES, OTHER, Draw, PosteriorMoments
from dsgmcmc.posterior.index import Index, Vocabulary
from dsgmcmc.posterior.progress import LiveProgress, newest_states, unfinished
from dsgmcmc.posterior.shapes import Shape, Shapes
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.ratings.reading import Reading
from dsgmcmc.settings import named
from dsgmcmc.storage.rundir import RunDirectory, SavedDraws, StoredDraw
from dsgmcmc.storage.store import Key, Snapshot
from dsgmcmc.types import Factor, Float32, Float64, Int32, Int64

T = TypeVar("T")

KEPT_BYTES = 1 << 30  # bytes of draws that stay in memory after they were read


class _OtherDraw(NamedTuple):
    """A draw that is in memory until another one is read, by its position in `Run.draws`."""

    position: int
    batch: DrawBatch
    draw: Draw


class Run:
    """A run directory, opened for reading: names, draws, moments and traces.

    If the run is still being sampled, or was killed, its draws are the draws of its newest
    checkpoint.

    Attributes
    ----------
    path : Path
    paths : tuple of Path
        This path; of runs that are joined (`dsgmcmc.posterior.joined`), all.
    directory : RunDirectory
    facts : dict
        Section ``[run]`` of ``run.toml``.
    data : Path or None
        Ratings file of the run, if it was moved; whoever opens the run sets it.
    mean : float
        Constant that was subtracted from the ratings, on the scale of the likelihood.
    config : ResolvedConfig
    index : Index
        Names of users, items and features, and the pairs of the test ratings.
    quantities : Quantities
        All quantities of the model.
    states : list of Snapshot
        For every chain with draws, its posterior, or its newest checkpoint if this is later and has
        draws.
    unfinished : bool
        Whether the run has not ended: its job is running or was killed. The draws saved so far are
        then available, but no moments.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.directory = RunDirectory(Path(path))
        self.path = self.directory.path
        self.paths: tuple[Path, ...] = (self.path,)
        self.config, self.facts = ResolvedConfig.of_run(self.directory)
        self.mean = float(self.facts["mean"])
        self.index = Index(self.directory, self.facts)
        self.quantities = self.index.quantities(self.config, len(self.facts.get("levels", [])))
        self._shapes = Shapes(self.config, self.quantities, *self.index.lengths())
        self.data: Path | None = None
        self.states = newest_states(self.directory, self.facts)
        for state in self.states:
            self._shapes.check_state(state)
        if not self.states:
            status = LiveProgress.read(self.directory, self.config, draws=0)
            raise InputError(f"{self.path} has no posterior yet: it is {status}; {status.usable()}")
        self.unfinished = unfinished(self.states)
        if self.unfinished:
            _ = self.traces  # read now, before a later checkpoint replaces this one
        self._saved: dict[int, SavedDraws] = {}
        self._checked: set[Path] = set()  # snapshots of draws whose shapes have been checked
        self._kept: dict[int, Draw] = {}  # draws that `_stack` has, by position in `draws`
        self._last: _OtherDraw | None = None  # a draw that it has not
        self._counts: dict[str, Int64] = {}
        #: What was computed of the run and may be asked for again, by what it is (`once`).
        self.kept: dict[Any, Any] = {}

    def __repr__(self) -> str:
        config = self.config
        return (
            f"<Run {str(self.path)!r}: {config.sampler.name}, rank {config.rank},"
            f" {len(self.chains)} chain(s), {len(self.draws)} saved draws, {len(self.users):,}"
            f" users, {len(self.items):,} items>"
        )

    @cached_property
    def users(self) -> Vocabulary:
        """Original names of the users."""
        return self.index.vocabulary("user")

    @cached_property
    def items(self) -> Vocabulary:
        """Original names of the items."""
        return self.index.vocabulary("item")

    def vocabulary(self, entity: str) -> Vocabulary:
        """Names of the users or of the items."""
        if entity not in ENTITIES:
            raise InputError(f"kind {entity!r}: expected user or item")
        if entity == "user":
            return self.users
        return self.items

    def feature_names(self, entity: str) -> list[str]:
        """Names of the features of the users or of the items; empty if the model has none."""
        if f"{entity}.features.strength" not in self.traces[0]:
            return []
        return self.index.features(entity)[0]

    def counts(self, entity: str) -> Int64:
        """Return the number of training ratings of every user or item, (n,) int64."""
        if entity not in self._counts:
            self._counts[entity] = self.index.counts(entity)
        return self._counts[entity]

    def test_pairs(self) -> tuple[Int32, Int32]:
        """Return the rows of users and items of the test ratings, (q,) int32 each."""
        return self.index.test_pairs()

    @cached_property
    def levels(self) -> Float64 | None:
        """Distinct training ratings, (R,) float64, ascending; None if too many to be levels."""
        if "levels" not in self.facts:
            return None
        return np.array(self.facts["levels"], np.float64)

    @property
    def columns(self) -> dict[str, str]:
        """Columns of the ratings by role, as `dsgmcmc.ratings.format.NAMED`, if known."""
        return dict(self.facts.get("columns", {}))

    @property
    def reading(self) -> Reading:
        """What users have said of the ratings, which holds for later ones."""
        return Reading.parse(self.facts.get("reading", {}))._replace(remembered=True)

    @property
    def labels(self) -> dict[str, tuple[str, ...]]:
        """Columns of the names of users and of items, one a part, as far as they are known."""
        return {entity: self.vocabulary(entity).labels for entity in ENTITIES}

    @property
    def directions(self) -> tuple[str, ...]:
        """Columns of users, items and context of a table of three directions; else empty."""
        return tuple(self.facts.get("directions", ()))

    @cached_property
    def limits(self) -> Limits:
        """Range to which predictions are clipped: that of the levels, if ratings have levels."""
        return limits_from(self.facts)

    # ------------------------------------------------------------------ the posterior

    @property
    def chains(self) -> list[int]:
        """Chains that have made draws."""
        return [snapshot.manifest.chain for snapshot in self.states]

    @cached_property
    def traces(self) -> list[dict[str, Float64]]:
        """Iteration, weight and hyperparameters of all draws of every chain.

        Arrays are (draws, width) float64 by name. Names are ``iteration``, ``weight``, ``tau``;
        ``user.mean``, ``user.precision`` (only the diagonal if dense) and ``user.nu``, with the
        corresponding names for items; ``thresholds`` if ratings are ordinal.
        """
        result = []
        for snapshot in self.states:
            keys = [key for key in snapshot.block_keys() if key[:2] == ("trace", "run")]
            result.append({self.name_of(key.field): snapshot.read(key) for key in keys})
        return result

    @cached_property
    def has_effects(self) -> bool:
        """Whether a part of the model adds effects to the predictors of ratings."""
        facts = self.config.facts
        file = FileFacts(self.index.orientation, self.index.feature_sizes())
        return any(
            part.has_effects and part.quantities_of(self.config, facts, file)
            for part in PARTS.values()
        )

    @cached_property
    def parameter_owner(self) -> str | None:
        """The entity whose rows have parameters of the likelihood of their own: user or item.

        None if all ratings share them.
        """
        for entity, shapes in self._row_shapes.items():
            if self.config.law.row_parameters in shapes:
                return entity
        return None

    def entity_of(self, factor: Factor) -> str:
        """Return what the rows of a factor stand for, "user" or "item"."""
        return self.index.orientation.entity_of(factor)

    def name_of(self, quantity: str) -> str:
        """Return a quantity's name on disk, with ``user`` or ``item`` in place of the factor."""
        factor, dot, rest = quantity.partition(".")
        if dot and factor in Factor.__members__:
            return f"{self.entity_of(Factor[factor])}.{rest}"
        return quantity

    def monitored(self) -> tuple[Int64, list[Float32], list[Float64]]:
        """Return predictions of the monitored test ratings at every draw.

        There are none if the run has not ended.

        Returns
        -------
        index : (m,) int64
            Positions among the test ratings, in the order of `test_pairs`.
        predictions : list of (draws, m) float32, by chain
        log_likelihood : list of (draws,) float64, by chain
            Log likelihood of all test ratings; empty if the run has not ended.
        """
        if self.unfinished:
            none = [np.zeros((len(trace["weight"]), 0), np.float32) for trace in self.traces]
            return np.zeros(0, np.int64), none, []
        predictions = []
        log_likelihoods = []
        blocks = range(self.config.grid)
        for snapshot in self.states:
            of_blocks = [snapshot.read(Key("trace", "W", b, "prediction")) for b in blocks]
            predictions.append(np.concatenate(of_blocks, axis=1))
            of_blocks = [snapshot.read(Key("trace", "W", b, "log_likelihood")) for b in blocks]
            log_likelihoods.append(np.sum(of_blocks, axis=0))
        index = []
        start = 0
        for b in blocks:
            index.append(self.states[0].read(Key("trace", "W", b, "followed")) + start)
            start += len(self.states[0].read(Key("test", "W", b, "rating")))
        return np.concatenate(index), predictions, log_likelihoods

    @cached_property
    def moments(self) -> list[PosteriorMoments]:
        """Moments of every chain.

        Factors must not be averaged over chains, because chains differ by rotations.

        Raises InputError if the run has not ended.
        """
        if self.unfinished:
            raise InputError(
                f"{self.path} has no moments yet: they are written when its job ends or is stopped"
                " with SIGUSR1. Saved draws can be exported before (export --draws)"
            )
        moments = []
        for state in self.states:
            mean = {}
            variance = {}
            for entity, factor in self.index.factors.items():
                mean[entity] = state.read_field("moments", factor, "mean")
                variance[entity] = state.read_field("moments", factor, "variance")
            moments.append(PosteriorMoments(mean, variance))
        return moments

    # ------------------------------------------------------------------ draws

    @cached_property
    def draws(self) -> list[tuple[int, int]]:
        """Chain and iteration of every saved draw."""
        draws = []
        for chain, state, trace in zip(self.chains, self.states, self.traces, strict=True):
            traced = set(trace["iteration"][:, 0].astype(np.int64).tolist())
            for iteration in state.manifest.saved_draws:
                if iteration in traced:
                    draws.append((chain, iteration))
        return draws

    @cached_property
    def draw_weights(self) -> Float64:
        """Weights of the saved draws in averages, (draws,) float64.

        They sum to 1, and chains have equal sums.
        """
        weights = []
        for number, trace in zip(self.chains, self.traces, strict=True):
            iterations = trace["iteration"][:, 0].tolist()
            weight_at = dict(zip(iterations, trace["weight"][:, 0].tolist(), strict=True))
            of_chain = [weight_at[iteration] for chain, iteration in self.draws if chain == number]
            weights += [weight / sum(of_chain) for weight in of_chain]
        total: Float64 = np.array(weights) / max(sum(weights), np.finfo(np.float64).tiny)
        return total

    def draw(self, position: int) -> Draw:
        """Read a saved draw.

        Draws stay in memory up to `KEPT_BYTES`; beyond that, each draw replaces the last one.

        Parameters
        ----------
        position : int
            Position in `draws`.

        Raises
        ------
        InputError
            If the draw is damaged or gone.
        """
        if position >= self._n_kept:
            return self._other(position).draw
        if position not in self._kept:
            self._keep(position)
        return self._kept[position]

    def batches(self, positions: Sequence[int]) -> Iterator[DrawBatch]:
        """Yield draws side by side, in the order of `positions`: those in memory together."""
        start = 0
        while start < len(positions):
            first = positions[start]
            if first >= self._n_kept:
                yield self._other(first).batch
                start += 1
                continue
            stop = start + 1
            while stop < len(positions) and positions[stop] == first + stop - start < self._n_kept:
                stop += 1
            number = stop - start
            for position in range(first, first + number):
                if position not in self._kept:
                    self._keep(position)
            if number == self._n_kept:
                yield self._stack
            else:
                yield self._stack.at(slice(first, first + number))
            start = stop

    @cached_property
    def _n_kept(self) -> int:
        """Number of draws that stay in memory."""
        shapes = [shape for shapes in self._row_shapes.values() for shape in shapes.values()]
        n_bytes = sum(4 * math.prod(shape) for shape in shapes)
        n_bytes += sum(4 * n for n in self._shapes.rows.values())  # noise scales
        return min(len(self.draws), KEPT_BYTES // n_bytes)

    @cached_property
    def _stack(self) -> DrawBatch:
        """The first draws, which stay in memory; `_kept` has those that have been read."""
        return self._allocate(self._n_kept)

    def _allocate(self, draws: int) -> DrawBatch:
        """Allocate memory for draws."""
        shapes = {
            self.name_of(quantity.name): quantity.shape(self.quantities.sizes)
            for quantity in self.quantities.shared
        }
        return DrawBatch.allocate(draws, shapes, self._row_shapes, self.config.couples_noise)

    @cached_property
    def _row_shapes(self) -> dict[str, dict[str, Shape]]:
        """Shapes of the quantities of users and items in a draw, by their names."""
        return {
            self.entity_of(Factor[factor]): self._shapes.of_rows(factor)
            for factor in self._shapes.rows
        }

    @cached_property
    def _position_of(self) -> dict[tuple[int, int], int]:
        """Positions in `draws` by chain and iteration."""
        return {draw: position for position, draw in enumerate(self.draws)}

    def _keep(self, position: int) -> None:
        """Read all draws that share a snapshot with this one, and stay in memory."""
        snapshot, _ = self.open_draw(position)
        chain, _ = self.draws[position]
        numbers = {}
        for number, iteration in enumerate(snapshot.manifest.saved_draws):
            other = self._position_of.get((chain, iteration))
            if other is not None and other < self._n_kept:
                numbers[number] = other
        self._read_draws(snapshot, numbers, self._stack)
        for kept in numbers.values():
            self._kept[kept] = self._stack.draw(kept, *self.draws[kept])

    def _other(self, position: int) -> _OtherDraw:
        """Return a draw that does not stay in memory when another one is read."""
        last = self._last  # which other threads may replace
        if last is None or last.position != position:
            last = None  # its memory is freed before this one is read
            self._last = None
            batch = self._allocate(1)
            snapshot, number = self.open_draw(position)
            self._read_draws(snapshot, {number: 0}, batch)
            last = _OtherDraw(position, batch, batch.draw(0, *self.draws[position]))
            self._last = last
        return last

    def _read_draws(self, snapshot: Snapshot, numbers: dict[int, int], batch: DrawBatch) -> None:
        """Read draws of a snapshot into a batch, whose numbers are given by those in the snapshot.

        Raises InputError if the snapshot is damaged or gone.
        """
        keys = [Key("draw", "run", 0, quantity.name) for quantity in self.quantities.shared]
        for key, array in zip(keys, snapshot.read_all(keys), strict=True):
            for number, target in numbers.items():
                batch.shared[self.name_of(key.field)][target] = array[number]
        targets = {}
        for entity, arrays in batch.rows.items():
            for name, array in arrays.items():
                start = 0
                for key, length in self._row_blocks(snapshot, self.index.factors[entity], name):
                    rows = slice(start, start + length)
                    targets[key] = {
                        number: array[target, rows] for number, target in numbers.items()
                    }
                    start += length
        snapshot.read_entries(targets)
        batch.set_inverse_scales(list(numbers.values()))

    def _row_blocks(self, snapshot: Snapshot, factor: str, name: str) -> list[tuple[Key, int]]:
        """Return the blocks of a quantity of rows in a snapshot of draws, and their lengths."""
        blocks = [
            (entry.key, entry.shape[1])
            for entry in snapshot.manifest.blocks
            if (entry.key.object, entry.key.factor, entry.key.field) == ("draw", factor, name)
        ]
        return sorted(blocks)

    def open_draw(self, position: int) -> StoredDraw:
        """Find a saved draw by its position in `draws`, and check that its snapshot is complete."""
        chain, iteration = self.draws[position]
        if chain not in self._saved:
            self._saved[chain] = SavedDraws(self.directory, chain, self.facts)
        draw = self._saved[chain].find(iteration)
        if draw.snapshot.path not in self._checked:
            self._shapes.check_draws(draw.snapshot)
            self._checked.add(draw.snapshot.path)
        return draw

    def effects(self, entity: str) -> Float64:
        """Return the effects of features on mean ratings at all saved draws, (draws, F).

        The mean is that of an average row of the other side: a feature moves biases, and factors
        whose average on the other side is not 0. The model has biases; factors are not read.
        """
        effects_key = Key("draw", "run", 0, f"{self.index.factors[entity]}.features.effects")
        mean_key = Key("draw", "run", 0, f"{self.index.factors[OTHER[entity]]}.mean")
        effects = []
        for position in range(len(self.draws)):
            snapshot, index = self.open_draw(position)
            of_features, mean = snapshot.read_all([effects_key, mean_key], index)
            effects.append(of_features[:, :-1] @ mean[:-1] + of_features[:, -1])
        return np.array(effects)

    # ------------------------------------------------------------------ what others ask

    def need_draws(self, number: int = 1) -> None:
        """Raise InputError unless so many saved draws are there, which predictions need."""
        if not self.draws:
            raise InputError(
                f"{self.path} has no saved draws to predict from: sample it again without"
                f" {named('save_draws')} 0"
            )
        if not 0 < number <= len(self.draws):
            raise InputError(
                f"{named('draws')} {number}: {self.path} has {len(self.draws)} saved draws, each of"
                f" which is used once: ask for 1 to {len(self.draws)}, or sample with a larger"
                f" {named('save_draws')}"
            )

    def open_ratings(self) -> Ratings:
        """Open the ratings file from which the run was sampled: `data`, or where it may be.

        Raises InputError if the file is missing, or has other ratings.
        """
        file = self.data
        if file is None:
            file = Path(str(self.facts.get("data", "")))
            beside = self.path.with_name(f"{self.path.name}.ratings.h5")
            inside = self.directory.ratings_file
            if not file.is_file() and inside.is_file():  # of a run that was saved or moved
                file = inside
            if not file.is_file() and beside.is_file():
                file = beside
            if not file.is_file():
                raise InputError(
                    f"{file}, the ratings file of {self.path}, is not there: give its path (--data,"
                    " or data= of BPMF.load)"
                )
        ratings = Ratings(file)
        if ratings.digest != self.facts.get("data_hash"):
            ratings.close()
            raise InputError(
                f"{file} does not have the ratings that {self.path} was sampled from (its hash"
                " differs)"
            )
        return ratings


def integer_parts(run: Run) -> dict[str, list[bool]]:
    """Return which parts of the names of users, and of items, are integers."""
    return {entity: run.vocabulary(entity).integer_parts for entity in ENTITIES}


def once(run: Run, key: type | tuple[object, ...], make: Callable[[], T]) -> T:
    """Return what `make` makes of a run, which keeps it by its key."""
    if key not in run.kept:
        run.kept[key] = make()
    made: T = run.kept[key]
    return made

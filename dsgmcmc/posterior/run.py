"""A run opened for use: names, draws and moments, read when first needed, without MPI.

This module speaks of users and items; only `Index` knows whether the rows of W are users or items.
"""

from __future__ import annotations

from copy import copy
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from dsgmcmc.config.run import ResolvedConfig
from dsgmcmc.data.ratings import Ratings, open_ratings
from dsgmcmc.errors import InputError
from dsgmcmc.model.parts import PARTS
from dsgmcmc.model.quantity import Quantities
from dsgmcmc.posterior.draws import (
    KINDS,
    MOMENTS,
    Draw,
    KeptDraws,
    PosteriorMoments,
)
from dsgmcmc.posterior.exposure import Exposure, Rated
from dsgmcmc.posterior.layout import Expected, check_draws, check_posteriors, read_shared
from dsgmcmc.posterior.live import newest_states, no_moments, no_posterior, unfinished
from dsgmcmc.posterior.names import Index, Vocabulary
from dsgmcmc.storage.draws import DrawPlace, SavedDraws
from dsgmcmc.storage.manifest import Key
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.types import Factor, Float32, Float64


class Run:
    """A run directory, opened for reading: names, draws, moments and traces.

    If the run is still being sampled, or was killed, its draws are those of its newest checkpoint.

    Attributes
    ----------
    path : Path
    mean : float
        Constant that was subtracted from the ratings.
    config : ResolvedConfig
    index : Index
        Names of users, items and features, and the pairs of the test ratings.
    states : list of Snapshot
        For every chain with draws, its posterior, or its newest checkpoint if this has later draws.
    unfinished : bool
        Whether the job is running or was killed. The draws saved so far are then available, but no moments.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.directory = RunDirectory(Path(path))
        self.path = self.directory.path
        self.config, self.facts = ResolvedConfig.of_run(self.directory)
        self.index = Index(self.directory, self.facts)
        self.mean = float(self.facts["mean"])
        self._expected = Expected.of(self.config, self.index, len(self.facts.get("levels", [])))
        self._factor = self.index.factors
        self._ratings_file: Path | None = None  # path at which the file was last opened
        self.states = newest_states(self.directory, self.facts)
        check_posteriors(self.states, self._expected)
        if not self.states:
            raise no_posterior(self.directory, self.config)
        self.unfinished = unfinished(self.states)
        if self.unfinished:
            _ = self.traces  # read now, before a later checkpoint replaces this one
        self._saved: dict[int, SavedDraws] = {}
        self._checked: set[Path] = set()  # snapshots of draws that `check_draws` has passed
        self._kept = KeptDraws(self._read_draw)

    def __repr__(self) -> str:
        config = self.config
        return (
            f"<Run {str(self.path)!r}: {config.sampler.name}, rank {config.rank}, {len(self.chains)} chain(s), "
            f"{len(self.draws)} saved draws, {len(self.users):,} users, {len(self.items):,} items>"
        )

    @cached_property
    def users(self) -> Vocabulary:
        """Original names of the users."""
        return self.index.vocabulary("user")

    @cached_property
    def items(self) -> Vocabulary:
        """Original names of the items."""
        return self.index.vocabulary("item")

    def vocabulary(self, kind: str) -> Vocabulary:
        """Names of the users or of the items."""
        return self.users if kind == "user" else self.items

    def counts(self, kind: str) -> npt.NDArray[np.int64]:
        """(n,) int64: training ratings of every user or item."""
        return self.index.counts(kind)

    def test_pairs(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Rows of the users and the items of the test ratings, (q,) int32 each."""
        return self.index.test_pairs()

    @cached_property
    def levels(self) -> Float64 | None:
        """(R,) float64: distinct training ratings in ascending order; None if there are too many to be levels."""
        return np.array(self.facts["levels"], np.float64) if "levels" in self.facts else None

    # ------------------------------------------------------------------ the posterior

    @property
    def chains(self) -> list[int]:
        """Chains that have made draws."""
        return [snapshot.manifest.chain for snapshot in self.states]

    @cached_property
    def traces(self) -> list[dict[str, Float64]]:
        """Iteration, weight and hyperparameters of all draws, by chain: (draws, width) float64 by name.

        Names are ``iteration``, ``weight``, ``tau``; ``user.mean``, ``user.precision`` (only the diagonal if dense) and
        ``user.nu``, with the corresponding names for items; ``thresholds`` if ratings are ordinal.
        """
        result = []
        for snapshot in self.states:
            keys = [key for key in snapshot.names() if key[:2] == ("trace", "run")]
            result.append({self.name_of(key.field): snapshot.read(key) for key in keys})
        return result

    @property
    def quantities(self) -> Quantities:
        """All quantities of the model."""
        return self._expected.quantities

    @cached_property
    def has_effects(self) -> bool:
        """Whether a part of the model adds effects to the predictors of ratings."""
        given = self.config, self.index.transposed, self.index.feature_sizes()
        return any(part.has_effects and part.quantities_of(*given) for part in PARTS)

    def kind_of(self, factor: Factor) -> str:
        """Whether the rows of a factor are users or items."""
        return next(kind for kind, name in self._factor.items() if name == factor.name)

    def name_of(self, quantity: str) -> str:
        """Name of a quantity with ``user`` or ``item`` in place of the factor in its name on disk."""
        factor, dot, rest = quantity.partition(".")
        return f"{self.kind_of(Factor[factor])}.{rest}" if dot and factor in Factor.__members__ else quantity

    def followed(self) -> tuple[npt.NDArray[np.int64], list[Float32], list[Float64]]:
        """Predictions of the monitored test ratings at every draw; none if the run has not ended.

        Returns
        -------
        index : (m,) int64
            Positions among the test ratings, in the order of `test_pairs`.
        predictions : list of (draws, m) float32, by chain
        log_likelihood : list of (draws,) float64, by chain
            Log likelihood of all test ratings.
        """
        predictions, scores = list[Float32](), list[Float64]()
        if self.unfinished:
            none = [np.zeros((len(trace["weight"]), 0), np.float32) for trace in self.traces]
            return np.zeros(0, np.int64), none, scores
        blocks = range(self._expected.grid)
        for snapshot in self.states:
            parts = [snapshot.read(Key("trace", "W", b, "prediction")) for b in blocks]
            predictions.append(np.concatenate(parts, axis=1))
            scores.append(np.sum([snapshot.read(Key("trace", "W", b, "log_likelihood")) for b in blocks], axis=0))
        index, start = [], 0
        for b in blocks:
            index.append(self.states[0].read(Key("trace", "W", b, "followed")) + start)
            start += len(self.states[0].read(Key("test", "W", b, "rating")))
        return np.concatenate(index), predictions, scores

    @cached_property
    def moments(self) -> list[PosteriorMoments]:
        """Moments of every chain. Factors must not be averaged over chains, which differ by rotations.

        Raises InputError if the run has not ended.
        """
        if self.unfinished:
            raise no_moments(self.directory)
        return [
            PosteriorMoments(
                *({kind: state.read_field("moments", self._factor[kind], name) for kind in KINDS} for name in MOMENTS)
            )
            for state in self.states
        ]

    # ------------------------------------------------------------------ draws

    @cached_property
    def draws(self) -> list[tuple[int, int]]:
        """Chain and iteration of every saved draw."""
        draws = []
        for state, trace in zip(self.states, self.traces, strict=True):
            traced = set(trace["iteration"][:, 0].astype(np.int64).tolist())
            draws += [(state.manifest.chain, saved) for saved in state.manifest.saved_draws if saved in traced]
        return draws

    @cached_property
    def draw_weights(self) -> Float64:
        """(draws,) float64: weights of the saved draws in averages; they sum to 1."""
        weights = []
        for snapshot, trace in zip(self.states, self.traces, strict=True):
            by_iteration = dict(zip(trace["iteration"][:, 0].tolist(), trace["weight"][:, 0].tolist(), strict=True))
            of_chain = [by_iteration[iteration] for chain, iteration in self.draws if chain == snapshot.manifest.chain]
            weights += [weight / sum(of_chain) for weight in of_chain]
        total: Float64 = np.array(weights) / max(sum(weights), np.finfo(np.float64).tiny)
        return total

    def with_draws(self, part: slice) -> Self:
        """Return the run with only a part of its saved draws."""
        run = copy(self)
        run.draws = self.draws[part]
        vars(run).pop("draw_weights", None)
        run._kept = KeptDraws(run._read_draw)
        return run

    def draw(self, number: int) -> Draw:
        """Read a saved draw; draws that are read repeatedly stay in memory.

        Parameters
        ----------
        number : int
            Position in `draws`.

        Raises
        ------
        InputError
            If the draw is damaged or gone.
        """
        return self._kept.get(number)

    def open_draw(self, draw: int) -> DrawPlace:
        """Find a saved draw by its position in `draws`, and check that its snapshot is complete."""
        chain, iteration = self.draws[draw]
        if chain not in self._saved:
            self._saved[chain] = SavedDraws(self.directory, chain, self.facts)
        place = self._saved[chain].place(iteration)
        if place.snapshot.path not in self._checked:
            check_draws(place.snapshot, self._expected)
            self._checked.add(place.snapshot.path)
        return place

    def effects(self, kind: str) -> Float64:
        """Effects B of features at all saved draws, (draws, F, D); the factors are not read."""
        key = Key("draw", "run", 0, f"{self._factor[kind]}.features.effects")
        places = [self.open_draw(draw) for draw in range(len(self.draws))]
        return np.array([snapshot.read_all([key], number)[0] for snapshot, number in places])

    def _read_draw(self, draw: int) -> Draw:
        (snapshot, number), (chain, iteration) = self.open_draw(draw), self.draws[draw]
        shared = {self.name_of(name): array for name, array in read_shared(snapshot, number, self.quantities).items()}
        wanted = [
            (kind, factor, quantity.name)
            for kind, factor in self._factor.items()
            for quantity in self.quantities.drawn_of_rows
            if quantity.is_of(Factor[factor])
        ]
        rows: dict[str, dict[str, Float32]] = {kind: {} for kind in KINDS}
        arrays = snapshot.read_fields("draw", [(factor, name) for _, factor, name in wanted], number)
        for (kind, _, name), array in zip(wanted, arrays, strict=True):
            rows[kind][name] = array
        return Draw(chain, iteration, shared, rows)

    @property
    def exposure_file(self) -> Path:
        """File of the exposure; the first ranking writes it."""
        return self.directory.exposure_file(str(self.facts["data_hash"]))

    @cached_property
    def exposure(self) -> Exposure:
        """Exposure of users to items, read from `exposure_file`, or else estimated from the ratings and written there.

        Raises
        ------
        InputError
            As `open_ratings`, if there is no file.
        """
        shares = self.counts("item") / len(self.users)
        exposure = Exposure.read(self.exposure_file, shares)
        if exposure is None:
            with self.open_ratings() as ratings:
                exposure = Exposure.of_ratings(Rated(ratings), shares)
            exposure.write(self.exposure_file)
        return exposure

    def need_draws(self) -> None:
        """Raise InputError if there are no saved draws, which predictions need."""
        if not self.draws:
            raise InputError(f"{self.path} has no saved draws to predict from: sample it again without --save-draws 0")

    def open_ratings(self, path: Path | None = None) -> Ratings:
        """Open the ratings file that the run sampled.

        Parameters
        ----------
        path : Path, optional
            Path of the file, if it was moved.

        Raises
        ------
        InputError
            If the file is missing, or holds other ratings.
        """
        given = path or self._ratings_file or Path(str(self.facts.get("data", "")))
        if path is None and not given.is_file():
            raise InputError(
                f"{given}, which {self.path} was sampled from, is not there: say where it is (--data, or data= of "
                "BPMF.load)"
            )
        ratings = open_ratings(given)
        if ratings.digest != self.facts.get("data_hash"):
            ratings.close()
            raise InputError(f"{given} does not hold the ratings that {self.path} was sampled from (its hash differs)")
        self._ratings_file = given
        return ratings

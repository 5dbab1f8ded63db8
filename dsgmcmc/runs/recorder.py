"""What a chain accumulates besides its state: test predictions, moments of the factors, saved draws, traces.

All of it is part of every snapshot. Draws are weighted by their step [Simsekli 2016, eq. 12]; moments are updated by
West's weighted form of Welford's recursion. Which draws are saved follows from their number alone: every `spacing`-th,
and whenever twice `keep` are there, every other one is dropped and `spacing` doubles, so that between `keep` and
2 `keep` - 1 draws, evenly spread over the whole chain, stand for it at any time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dsgmcmc.kernels.formula import Formula
from dsgmcmc.storage.manifest import Key, SmallArray
from dsgmcmc.storage.snapshot import Lazy, Snapshot
from dsgmcmc.targets.factorisation.heldout import FOLLOWED, HeldOut
from dsgmcmc.targets.factorisation.target import FactorWorld

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

MOMENTS = Formula(
    """
delta = x - mean
mean = mean + share * delta
m2 = m2 + weight * delta * (x - mean)
""",
    fields=("x", "mean", "m2"),
    scalars=("share", "weight"),
)


PARAMETERS = ("tau", "W.mean", "W.precision", "H.mean", "H.precision", "W.nu", "H.nu")


class Draws:
    """Numbers of the draws that stand for a chain of `made` draws; see the module."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.made = 0
        self.spacing = 1
        self.kept: list[int] = []

    def offer(self, iteration: int) -> bool:
        """Count a draw; whether it is to be saved. `kept` then holds the iterations of the saved ones."""
        number = self.made
        self.made += 1
        if self.keep == 0 or number % self.spacing:
            return False
        if len(self.kept) == 2 * self.keep - 1:
            self.kept = self.kept[::2]
            self.spacing *= 2
            if number % self.spacing:
                return False
        self.kept.append(iteration)
        return True


class Observer:
    """Accumulators of one chain on this process.

    Parameters
    ----------
    world : FactorWorld
        The chain's world.
    rank : int
        Number K of latent dimensions.
    biases : bool
        Whether there is a bias column.
    save_draws : int
        Draws to keep at least.
    """

    def __init__(self, world: FactorWorld, rank: int, biases: bool, save_draws: int) -> None:
        self.world = world
        self.draws = Draws(save_draws)
        #: Saved draws that are not on disk yet: blocks and parameters, by iteration.
        self.pending: dict[int, tuple[dict[Key, Float32], dict[str, SmallArray]]] = {}
        self.weight = 0.0
        self.weighted = world.likelihood.weighted
        #: Of every draw: its number and weight and the hyperparameters; only on process 0 are they ever used.
        self.trace: dict[str, list[Float64]] = {}
        self._moments: dict[tuple[str, int], dict[str, Float32]] = {}
        follow = max(1, FOLLOWED // world.grid)
        self._test: dict[int, HeldOut] = {}
        for b in world.ring.blocks:
            self._test[b] = HeldOut(b, world.ratings.test[b], rank, biases, self.weighted, follow)
            for factor in ("W", "H"):
                start, stop = world.held.bounds(factor, b)
                widths = {"": world.dimension} | ({"weight_": 1} if self.weighted else {})
                self._moments[factor, b] = {
                    f"{prefix}{name}": np.zeros((stop - start, width), np.float32)
                    for prefix, width in widths.items()
                    for name in ("mean", "m2")
                }
        self.has_test = world.ratings.n_test > 0

    # ------------------------------------------------------------------ observing

    def look(self, position: str, iteration: int, weight: float | None) -> None:
        """Predict the test ratings at the current state; with a `weight`, count it as a draw. Collective."""
        share = 0.0
        saved = False
        if weight is not None:
            self.weight += weight
            share = weight / self.weight
            saved = self.draws.offer(iteration)
            self._note(iteration, weight)
        tau = float(self.world.state["tau"][self.world.subchain])
        names = {position: "theta"} | ({"weight": "weight"} if self.weighted else {})
        for number, (row, c, column) in enumerate(self.world.tour(tuple(names), steps=0 if self.has_test else 1)):
            if weight is not None and number < len(self.world.ring.blocks):  # all column blocks are at home
                for factor, index, arrays in (("W", row.index, row.arrays), ("H", c, column)):
                    for name, label in names.items():
                        self._accumulate(factor, index, label, arrays[name], share, weight)
                        if saved:
                            blocks, _ = self.pending.setdefault(iteration, ({}, self._parameters()))
                            blocks[Key("draw", factor, index, label)] = arrays[name].copy()
            self._test[row.index].look(position, row, c, column, tau)
        if weight is not None:
            for test in self._test.values():
                test.count(share, weight)
            self.pending = {number: draw for number, draw in self.pending.items() if number in self.draws.kept}

    def _accumulate(self, factor: str, block: int, label: str, x: Float32, share: float, weight: float) -> None:
        moments = self._moments[factor, block]
        prefix = "" if label == "theta" else f"{label}_"
        fields = {"x": x, "mean": moments[f"{prefix}mean"], "m2": moments[f"{prefix}m2"]}
        MOMENTS.apply(fields, scalars={"share": share, "weight": weight})

    def _note(self, iteration: int, weight: float) -> None:
        """Keep the hyperparameters of this draw."""
        self.trace.setdefault("iteration", []).append(np.array([iteration], np.float64))
        self.trace.setdefault("weight", []).append(np.array([weight]))
        for name in self._parameter_names():
            value = np.atleast_1d(self.world.state[name][self.world.subchain])
            self.trace.setdefault(name, []).append(np.diag(value).copy() if value.ndim == 2 else value.copy())

    def _parameter_names(self) -> list[str]:
        return [name for name in PARAMETERS if name in self.world.state]

    def _parameters(self) -> dict[str, SmallArray]:
        """Hyperparameters of the current state, for a saved draw."""
        return {name: SmallArray.of(self.world.state[name][self.world.subchain]) for name in self._parameter_names()}

    def errors(self) -> dict[str, float | None]:
        """RMSE of the current state and of the posterior mean prediction, null without test ratings. Collective."""
        n = self.world.ratings.n_test
        if not n:
            return {"rmse": None, "rmse_mean": None}
        partials = np.array([test.squared_errors() for test in self._test.values()])
        now, mean = np.sqrt(self.world.ring.total(partials) / n).tolist()
        return {"rmse": now, "rmse_mean": mean if self.weight else None}

    # ------------------------------------------------------------------ saving

    def small(self) -> dict[str, SmallArray]:
        """Replicated numbers, for the manifest."""
        numbers = [self.weight, self.draws.made, self.draws.spacing]
        return {
            "observer.numbers": SmallArray.of(numbers),
            "observer.kept": SmallArray.of(self.draws.kept),
        }

    def blocks(self) -> Iterator[tuple[Key, npt.NDArray[Any]]]:
        """Accumulators of this process, for a snapshot."""
        for (factor, b), moments in self._moments.items():
            for name, array in moments.items():
                yield Key("moments", factor, b, name), array
        for test in self._test.values():
            yield from test.blocks()
        yield from self._traces()

    def _traces(self) -> Iterator[tuple[Key, npt.NDArray[Any]]]:
        if self.world.ring.rank == 0:
            for name, draws in self.trace.items():
                yield Key("trace", "run", 0, name), np.array(draws)

    def load(self, snapshot: Snapshot) -> None:
        """Take the accumulators of a snapshot."""
        state = snapshot.manifest.state
        self.weight, made, spacing = state["observer.numbers"].array().tolist()
        self.draws.made, self.draws.spacing = int(made), int(spacing)
        self.draws.kept = [int(number) for number in state["observer.kept"].values]
        for (factor, b), moments in self._moments.items():
            for name in moments:
                moments[name] = snapshot.read(Key("moments", factor, b, name))
        for test in self._test.values():
            test.load(snapshot)
        if self.world.ring.rank == 0:
            traced = [key for key in snapshot.names() if key[:2] == ("trace", "run")]
            self.trace = {key.field: list(snapshot.read(key)) for key in traced}

    def posterior(self) -> Iterator[tuple[Key, Lazy]]:
        """Posterior mean and variance of the factors and of the test predictions of this process."""
        total = max(self.weight, np.finfo(np.float64).tiny)
        for (factor, b), moments in self._moments.items():
            for name, array in moments.items():
                if name.endswith("m2"):
                    yield (
                        Key("moments", factor, b, name.replace("m2", "variance")),
                        partial(np.divide, array, np.float32(total)),
                    )
                else:
                    yield Key("moments", factor, b, name), array
        for test in self._test.values():
            yield from test.posterior(self.world.ratings.centre, total)
        yield from self._traces()

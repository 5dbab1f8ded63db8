"""Tastes: every user has a weight for every feature of the items.

    x_ij   ~ N(eta_ij + u_i . z_j, 1 / tau)
    u_ik   ~ N(0, 1 / lambda)
    lambda ~ Gamma(1, rate 1)

eta_ij is the predictor without tastes, and z_j the F features of item j. With the residuals e_ij =
x_ij - eta_ij of the training ratings, every `EVERY` sweeps

    u_i | rest    ~ N(P^-1 tau sum_j e_ij z_j, P^-1),      P = tau sum_j z_j z_j^T + lambda I
    lambda | u    ~ Gamma(1 + n F / 2, rate 1 + sum u^2 / 2)

The other parts of the model are drawn from the ratings less u_i . z_j.

docs/own-part.md explains this file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import BaseModel

from dsgmcmc.errors import InputError
from dsgmcmc.kernels.effects import predictor_kernel
from dsgmcmc.kernels.philox import normals
from dsgmcmc.model.blocks import RatingBlocks
from dsgmcmc.model.parts.base import ChainFacts, DrawContext, FileFacts, ModelFacts, Part
from dsgmcmc.model.quantity import Quantity, Sampled, SavedDraw
from dsgmcmc.parallel.ring import Ring
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.settings import named, setting
from dsgmcmc.targets.state import ParameterBlock
from dsgmcmc.types import Factor, Float32, Float64, Int32, Named, Purpose

#: Number of sweeps between draws.
EVERY = 5

#: u, for the rows of W, in units of a rating; a warm start uses it.
TASTE = Quantity("taste", ("H.feature",), of_rows=True, rating=1, started=True).for_factor(Factor.W)
#: z, for the rows of H.
TRAITS = Quantity("traits", ("H.feature",), of_rows=True).for_factor(Factor.H)


@dataclass
class TastePrecision(Sampled):
    """lambda, (1,), the same on all processes."""

    quantities: ClassVar[dict[str, Quantity]] = {
        "precision": Quantity(
            "taste.precision", ("one",), rating=-2, positive=True, diagnosed="taste_precision"
        )
    }

    precision: Float64


class TasteSettings(BaseModel):
    """Settings of tastes."""

    tastes: Literal["no", "yes"] = setting(
        "Whether every user has a weight for every feature of the items.", "no"
    )


class Tastes(Part[TasteSettings]):
    """The tastes of all users."""

    Settings = TasteSettings
    has_effects = True
    parameters: TastePrecision

    def __init__(self, traits: Float32, chain: ChainFacts) -> None:
        self._traits = traits
        self._original = chain.ratings.train  # the training ratings with tastes
        self.ratings = copy(chain.ratings)  # its training ratings are those without tastes
        self.test = {}
        self._applied = False
        self.parameters = TastePrecision(np.ones(1))
        self.quantities = (TASTE, TRAITS, *TastePrecision.about(()))
        self._residuals = predictor_kernel(chain.model.rank, chain.model.biases, "-")

    # ------------------------------------------------------------------ settings and ratings files

    @classmethod
    def check(cls, settings: TasteSettings, model: ModelFacts) -> None:
        """Refuse likelihoods under which tastes are not normal given everything else."""
        is_suited = model.likelihood == "gaussian" and model.noise == "shared"
        if settings.tastes == "yes" and not is_suited:
            raise InputError(
                f"{named('tastes')} needs Gaussian ratings with one noise level for all"
            )

    @classmethod
    def check_ratings(cls, settings: TasteSettings, model: ModelFacts, ratings: Ratings) -> None:
        """Refuse a ratings file without features of the items."""
        has_features = ratings.entities[1] == "item" and "cols" in ratings.features
        if settings.tastes == "yes" and not has_features:
            raise InputError(
                f"{ratings.path}: tastes need features of items, and more users than items"
            )

    @classmethod
    def quantities_of(
        cls, settings: TasteSettings, model: ModelFacts, file: FileFacts
    ) -> tuple[Quantity, ...]:
        """All quantities, or none if a run has no tastes."""
        if settings.tastes == "no":
            return ()
        return (TASTE, TRAITS, *TastePrecision.about(()))

    @classmethod
    def read(
        cls, settings: TasteSettings, ratings: Ratings, blocks: RatingBlocks, ring: Ring
    ) -> Float32 | None:
        """Read z of all items, (J, F): F is small, so every process has all of it. Collective."""
        if settings.tastes == "no":
            return None
        stored = ring.agree(lambda: ratings.feature_slab("cols", 0, ratings.n_cols))
        z = np.zeros((ratings.n_cols, len(stored.names)), np.float32)
        items = np.repeat(np.arange(ratings.n_cols), np.diff(stored.indptr))
        z[items, stored.indices] = stored.values
        return z

    @classmethod
    def create(
        cls, settings: TasteSettings, chain: ChainFacts, data: Float32 | None
    ) -> Self | None:
        """Make a chain's instance."""
        if data is None:
            return None
        return cls(data, chain)

    # ------------------------------------------------------------------ the state of a chain

    def start(self, blocks: Iterable[ParameterBlock]) -> None:
        """Begin without tastes."""
        for block in blocks:
            block["taste"].fill(0.0)
            block["traits"].fill(0.0)
            if block.factor == Factor.H:
                block["traits"][:] = self._traits[block.start : block.start + len(block.counts)]
        self.parameters.precision = np.ones(1)
        self._applied = False

    def loaded(self) -> None:
        """Note that a checkpoint was read.

        Not collective, because one process may fail to read it.
        """
        self._applied = False

    def begin(self, blocks: Iterable[ParameterBlock], first: bool) -> None:
        """Subtract the tastes from the ratings at the start, and after a checkpoint was read."""
        if not self._applied:
            self._apply(blocks)

    def _apply(self, blocks: Iterable[ParameterBlock]) -> None:
        """Subtract u_i . z_j from the training ratings, and compute it for the test ratings."""
        first = self.ratings.column_bounds  # number of the first item of each column block
        tastes = {block.index: block["taste"] for block in blocks if block.factor == Factor.W}
        for b, u in tastes.items():
            rows = self.ratings.test[b]
            self.test[b] = np.zeros(len(rows.values), np.float32)
            for c, (chosen, i, j) in enumerate(rows.by_column):
                self.test[b][chosen] = (u[i] * self._traits[first[c] + j]).sum(axis=1)
        train = {}
        for (b, c), cell in self._original.items():
            u = tastes[b]
            i = np.repeat(np.arange(len(u)), np.diff(cell.indptr))
            effects = (u[i] * self._traits[first[c] + cell.indices]).sum(axis=1)
            train[b, c] = cell.with_values(cell.values - effects)
        self.ratings.train = train
        self._applied = True

    # ------------------------------------------------------------------ draws

    def renews_data(self, sweep: int) -> bool:
        """Whether tastes are drawn in this sweep: the ratings without tastes then change."""
        return sweep > 0 and sweep % EVERY == 1

    def draw(self, context: DrawContext) -> None:
        """Draw all tastes, then lambda. Collective."""
        if not context.is_due(EVERY):
            return
        squares = self._draw_tastes(context, self._moments(context))

        def finish(sums: Mapping[str, Float64]) -> Named:
            """Draw lambda at the root."""
            number, total = sums["squares"]
            rng = context.stream.generator(Purpose.OWN)
            return {"precision": np.array([rng.gamma(1 + number / 2) / (1 + total / 2)])}

        drawn = context.circulation.ring.sum({"squares": squares}, finish, {"precision": (1,)})
        self.parameters.take({"taste.precision": drawn["precision"]})
        self._apply(context.circulation.blocks())

    def _moments(self, context: DrawContext) -> dict[int, tuple[Float64, Float64]]:
        """For each row block, sum_j z_j z_j^T, (n, F, F), and sum_j e_ij z_j, (n, F).

        Collective.
        """
        size = self._traits.shape[1]
        sums: dict[int, tuple[Float64, Float64]] = {}
        # columns come in a fixed order, whatever the number of processes
        for row, column, _ in context.circulation.tour((context.position, "traits")):
            n = len(row.counts)
            cell = self._original[row.index, column.index]
            w = row[context.position]
            h = column[context.position]
            e = np.empty(len(cell.indices), np.float32)
            self._residuals(*cell.pattern, cell.values, w, h, e)
            z = column["traits"][cell.indices].astype(np.float64)
            if row.index not in sums:
                sums[row.index] = (np.zeros((n, size, size)), np.zeros((n, size)))
            gram, moment = sums[row.index]
            i = np.repeat(np.arange(n), np.diff(cell.indptr))
            np.add.at(gram, i, z[:, :, None] * z[:, None, :])
            np.add.at(moment, i, e[:, None] * z)
        return sums

    def _draw_tastes(
        self, context: DrawContext, moments: dict[int, tuple[Float64, Float64]]
    ) -> Float64:
        """Draw u of all row blocks; return the number and the sum of squares of each block's."""
        tau = context.tau()
        precision = float(self.parameters.precision[0])
        squares = []
        for row, _ in context.circulation.pairs():
            gram, moment = moments[row.index]
            size = moment.shape[1]
            noise = np.empty(moment.size, np.float32)
            normals(noise, context.stream.key(Purpose.OWN, Factor.W, row.start * size))
            p = tau * gram + precision * np.eye(size)
            mean = np.linalg.solve(p, tau * moment[:, :, None])
            lower_t = np.linalg.cholesky(p).transpose(0, 2, 1)
            deviation = np.linalg.solve(lower_t, noise.reshape(*moment.shape, 1))
            row["taste"][:] = (mean + deviation)[:, :, 0]
            squares.append([moment.size, np.square(row["taste"], dtype=np.float64).sum()])
        return np.array(squares)

    # ------------------------------------------------------------ ratings outside the training data

    @classmethod
    def of_ratings(
        cls, draw: SavedDraw, users: Int32, items: Int32
    ) -> tuple[Float32 | float, Float32 | float]:
        """Mean and variance of u_i . z_j; the tastes of an unknown user have their prior."""
        if "taste" not in draw.rows["user"]:
            return 0.0, 0.0
        u = draw.rows["user"]["taste"][users]
        z = draw.rows["item"]["traits"][items]
        mean = np.where((users >= 0) & (items >= 0), (u * z).sum(axis=1), 0.0)
        unknown = (z**2).sum(axis=1) / draw.shared["taste.precision"]
        return mean, np.where((users < 0) & (items >= 0), unknown, 0.0)

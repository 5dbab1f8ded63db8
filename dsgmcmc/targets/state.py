"""The state of a target: blocks of parameters, and the small state that all processes share.

The fields of a block are views of one contiguous buffer, which is sent as one message. A checkpoint
saves all fields of blocks, whatever the sampler.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
from typing_extensions import override

from dsgmcmc.kernels.formulas.formula import Batch, Formula, Gradient, RowPrior
from dsgmcmc.kernels.normal_draws import draw_normal_rows
from dsgmcmc.kernels.philox import NoiseKey
from dsgmcmc.parallel.ring import Phases
from dsgmcmc.types import Array, Factor, Float32, Float64, Int64, Purpose

PRIOR_GRADIENT = Formula("out = grad_prior")


class StateField(NamedTuple):
    """A named array of a block's state, with `width` columns; 0 stands for D."""

    name: str
    width: int = 0


class Conditional(NamedTuple):
    """Normal conditional distributions of rows, without the prior's contribution.

    Attributes
    ----------
    statistics : (n, (D + 1)(D + 2) / 2) float32
        Sufficient statistics of the rows' data, in the layout of `dsgmcmc.kernels.normal_rows`.
    scale : (n,) float64
        Number that multiplies the statistics: tau times the row's noise scale.
    """

    statistics: Float32
    scale: Float64


class BlockLayout:
    """Positions of a block's fields in its buffer, one after another, each (rows, width)."""

    def __init__(self, fields: Sequence[StateField], dimension: int) -> None:
        with_width = []
        for name, width in fields:
            if width == 0:
                width = dimension
            with_width.append(StateField(name, width))
        self.fields = tuple(with_width)
        self.names = tuple(field.name for field in self.fields)
        self.width = sum(field.width for field in self.fields)

    def views(self, buffer: Array, rows: int) -> dict[str, Array]:
        """Fields of a block of `rows` rows as views of its (rows * width,) buffer."""
        result = {}
        begin = 0
        for name, width in self.fields:
            result[name] = buffer[begin : begin + rows * width].reshape(rows, width)
            begin += rows * width
        return result


#: Largest number of chains in a run, and of iterations in a chain. Both must fit into the counters
#: of random numbers, together with the number of restarts of a chain.
MAX_CHAINS = 1 << 16
MAX_ITERATIONS = 1 << 44


def restarted_chain(chain: int, restarts: int) -> int:
    """Chain number for the random numbers of a chain that has been restarted `restarts` times."""
    return chain + restarts * MAX_CHAINS


@dataclass
class RandomStream:
    """Identifies the random numbers of a chain in an iteration.

    Every number is a function of this stream, the number's purpose and the position for which it is
    drawn. A restarted chain has a new chain number (`restarted_chain`), and thus different random
    numbers.
    """

    seed: int
    chain: int
    iteration: int = 0

    def key(self, purpose: Purpose, factor: Factor, first: int) -> NoiseKey:
        """Key of the random numbers of a factor's elements, starting with element `first`."""
        restarts, chain = divmod(self.chain, MAX_CHAINS)
        return NoiseKey(
            first=first,
            seed=self.seed,
            chain=chain,
            purpose=purpose,
            iteration=self.iteration + restarts * MAX_ITERATIONS,
            factor=factor,
        )

    def generator(self, purpose: Purpose, part: int = 0) -> np.random.Generator:
        """Generator for draws on the root in this iteration; `part` numbers those of a purpose."""
        counter = [0, part, self.iteration, self.chain]
        return np.random.Generator(np.random.Philox(_Key((self.seed, purpose)), counter=counter))


class _Key(tuple[int, int], np.random.bit_generator.ISeedSequence):
    """Key of a Philox generator.

    If it were passed as ``key``, NumPy would also ask the system for entropy, in vain.
    """

    def generate_state(self, n_words: int, dtype: object = np.uint64) -> Array:
        """Return the key."""
        return np.array(self, np.uint64)


class Rows:
    """Rows of one factor that are updated in one call: of one or more blocks with equal fields.

    Parameters
    ----------
    blocks : sequence of ParameterBlock
        Blocks of the same factor, at least one.
    """

    def __init__(self, blocks: Sequence[ParameterBlock]) -> None:
        self._blocks = blocks
        self.factor = blocks[0].factor
        self.dimension = blocks[0].dimension

    @property
    def blocks(self) -> Sequence[ParameterBlock]:
        """The blocks, in order."""
        return self._blocks

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the arrays."""
        return self.blocks[0].buffer.dtype

    def by_block(self, vector: Array) -> Iterator[tuple[ParameterBlock, Array]]:
        """Blocks, each with its slice of a vector or an array over all rows."""
        return zip(self.blocks, [vector[piece] for piece in self._slices], strict=True)

    @functools.cached_property
    def _slices(self) -> list[slice]:
        """The rows of every block among all rows."""
        ends = accumulate((len(block.counts) for block in self.blocks), initial=0)
        return [slice(begin, end) for begin, end in pairwise(ends)]

    def joined(self, name: str, dtype: Any) -> Array:
        """Field `name` of all rows, (n, width), converted to a dtype."""
        return np.concatenate([block.arrays[name] for block in self.blocks], dtype=dtype)

    def set(self, name: str, values: Array) -> None:
        """Set field `name` of all rows to `values`, (n, width)."""
        for block, of_block in self.by_block(values):
            block.arrays[name][:] = of_block

    @functools.cached_property
    def numbers(self) -> Float64:
        """Number of rows of every block, (blocks, 1); read only."""
        return np.array([[len(block.counts)] for block in self.blocks], np.float64)

    @functools.cached_property
    def ones(self) -> Float32:
        """A one for every row, (n,); read only."""
        return np.ones(len(self.n_data), np.float32)

    @functools.cached_property
    def n_data(self) -> Array:
        """Number of training data of every row, in the dtype of the arrays; read only."""
        return np.concatenate([block.counts for block in self.blocks]).astype(self.dtype)

    @functools.cached_property
    def _batch(self) -> Batch:
        return Batch(
            [block.arrays for block in self.blocks], [block.start for block in self.blocks]
        )

    @property
    def gradient(self) -> Gradient | None:
        """Meaning of `grad` in formulas."""
        return self.blocks[0].gradient

    @gradient.setter
    def gradient(self, gradient: Gradient | None) -> None:
        for block in self.blocks:
            block.gradient = gradient

    def update(
        self, formula: Formula, purpose: Purpose = Purpose.STEP, width: int = 0, /, **values: object
    ) -> dict[str, Any]:
        """Apply a formula to every element in one pass: drift, prior, preconditioner, noise.

        Parameters
        ----------
        formula : Formula
            What to compute. Its names are fields of the blocks, or keys of `values`.
        purpose : Purpose
            Purpose of the random numbers `z`, `z2` and `u`, which depend on (seed, chain, purpose,
            iteration, factor, row, k).
        width : int
            Number of columns of the fields, if it may exceed D.
        **values
            Values of names in the formula: scalars, (D,) columns, and (n,) vectors over the rows of
            all blocks in order. A str names the field to use; for a row vector, a field of width 1.

        Returns
        -------
        dict
            The formula's sums by name, float64: a number or (D,) for each block; row sums as one
            vector over all rows.
        """
        first = self.blocks[0]
        begin = first.timers.enter()
        sums = formula.apply(
            self._batch,
            values,
            noise=lambda: first.stream.key(purpose, first.factor, 0),
            prior=self._priors,
            gradient=first.gradient,
            stride=max(first.dimension, width),
        )
        first.timers.leave("update", begin)
        return sums

    def draw_normal(self, name: str, conditional: Conditional) -> None:
        """Replace field `name`, of standard normals, by draws from the rows' conditionals."""
        begin = self.blocks[0].timers.enter()
        priors = self._priors()
        prior = priors[0]
        if prior.shift is not None:
            shifts = [other.shift for other in priors if other.shift is not None]
            prior = prior._replace(shift=np.concatenate(shifts))
        if prior.scale is not None:
            scales = [other.scale for other in priors if other.scale is not None]
            prior = prior._replace(scale=np.concatenate(scales))
        theta = self.joined(name, np.float32)
        draw_normal_rows(theta, conditional.statistics, scale=conditional.scale, prior=prior)
        self.set(name, theta)
        self.blocks[0].timers.leave("update", begin)

    def _priors(self) -> list[RowPrior]:
        """Return one prior for all rows, or one per block if means or precisions differ."""
        first = self.blocks[0]
        prior = first.prior(first)
        if prior.shift is None and prior.scale is None:
            return [prior]
        return [block.prior(block) for block in self.blocks]


@dataclass(eq=False)
class ParameterBlock(Rows):
    """A block of rows of a factor: their arrays, and operations on them.

    Attributes
    ----------
    stream : RandomStream
        Identifies the block's random numbers.
    timers : Phases
        Measures the time of updates.
    prior : callable
        Returns a block's prior.
    factor : Factor
        The factor to which the rows belong.
    index : int
        Block number.
    start : int
        Number, within the factor, of the block's first row.
    dimension : int
        Columns D of the factor.
    counts : (n,) int64
        Number of training data of every row.
    arrays : dict of str to (n, width) array
        Fields (views of `buffer`) and temporary arrays; float32, or float64 for targets other than
        the factorisation. The width is D unless the field declares another.
    buffer : (n * width,) array
        All fields that are sent.
    origin : (D,) array or None
        Point about which initial rows are drawn; None for 0.
    spread : (D,) array or float
        Unit of the standard deviation of initial rows.
    gradient : Gradient or None
        Meaning of `grad` in formulas; set whenever a gradient is computed.
    """

    stream: RandomStream
    timers: Phases
    prior: Callable[[ParameterBlock], RowPrior]
    factor: Factor
    index: int
    start: int
    dimension: int
    counts: Int64
    arrays: dict[str, Array]
    buffer: Array = field(repr=False)
    origin: Array | None = None
    spread: Array | float = 1.0
    gradient: Gradient | None = None

    def row(self, name: str) -> Array:
        """Field `name` of width 1 as an (n,) view."""
        return self.arrays[name].reshape(-1)

    def __getitem__(self, name: str) -> Array:
        """Field or temporary array `name`, (n, width)."""
        return self.arrays[name]

    @property
    @override
    def blocks(self) -> Sequence[ParameterBlock]:
        """The block alone."""
        return (self,)

    @override
    def update(
        self, formula: Formula, purpose: Purpose = Purpose.STEP, width: int = 0, /, **values: object
    ) -> dict[str, Any]:
        """Apply a formula to every element, as `Rows.update` does; return sums of this block."""
        return formula.for_one_block(super().update(formula, purpose, width, **values))

    def begin_gradient(self, position: str, out: str, prior: bool) -> None:
        """Set `out` to the prior's gradient at field `position`, or to zero without `prior`."""
        if prior:
            self.update(PRIOR_GRADIENT, out=out, theta=position)
        else:
            self[out].fill(0.0)
        self.gradient = gradient_in(out, prior)


@functools.cache
def gradient_in(out: str, prior: bool) -> Gradient:
    """Meaning of `grad` if `out` has the likelihood's gradient, plus the prior's if `prior`."""
    if prior:
        return Gradient(out)
    return Gradient(f"{out} + grad_prior", likelihood=out)


@functools.cache
def _labels(name: str) -> dict[Factor, str]:
    """Name on disk of each factor's array: `name` with the factor in place of ``{}``."""
    return {factor: name.format(factor.name) for factor in Factor}


class Replicated:
    """Small float64 arrays that are equal on all processes; a base class of dataclasses.

    A field is an array, a dict of arrays by factor, or None if there is no array yet.
    """

    #: Names on disk of the fields; ``{}`` stands for the factor, if every factor has an array.
    saved_as: ClassVar[dict[str, str]] = {}

    def arrays(self) -> dict[str, Float64]:
        """All arrays, by their names on disk."""
        result: dict[str, Float64] = {}
        for attribute, name in self.saved_as.items():
            value = getattr(self, attribute)
            if isinstance(value, dict):
                labels = _labels(name)
                for factor, array in value.items():
                    result[labels[factor]] = array
            elif value is not None:
                result[name] = value
        return result

    def take(self, arrays: Mapping[str, Float64]) -> None:
        """Replace the arrays whose names are in `arrays`; other entries are ignored."""
        for attribute, name in self.saved_as.items():
            if "{}" in name:
                by_factor = dict(getattr(self, attribute))
                for factor, label in _labels(name).items():
                    if label in arrays:
                        by_factor[factor] = arrays[label]
                setattr(self, attribute, by_factor)
            elif name in arrays:
                setattr(self, attribute, arrays[name])


class Attributes(Replicated):
    """Attributes of an object that are arrays or numbers, such as counts of a sampler.

    Parameters
    ----------
    owner : object
        Has the attributes; those that are missing or None have no array yet.
    names : str
        Names of the attributes; on disk they have no leading underscore.
    """

    def __init__(self, owner: object, *names: str) -> None:
        self._owner = owner
        self._names = {name.lstrip("_"): name for name in names}

    @override
    def arrays(self) -> dict[str, Array]:
        values = {label: getattr(self._owner, name, None) for label, name in self._names.items()}
        return {label: np.atleast_1d(value) for label, value in values.items() if value is not None}

    @override
    def take(self, arrays: Mapping[str, Array]) -> None:
        for label in self._names.keys() & arrays.keys():
            name = self._names[label]
            value: Any = arrays[label]
            if isinstance(getattr(self._owner, name, None), int | float):
                value = value.item()
            setattr(self._owner, name, value)


def arrays_of(replicated: Iterable[Replicated]) -> dict[str, Float64]:
    """All arrays of several `Replicated`, by their names on disk."""
    return {name: array for shared in replicated for name, array in shared.arrays().items()}


def take_all(replicated: Iterable[Replicated], arrays: Mapping[str, Float64]) -> None:
    """Call `Replicated.take` with these arrays on each of several `Replicated`."""
    for shared in replicated:
        shared.take(arrays)

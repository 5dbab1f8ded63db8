"""Costs of sampling on a kind of machine, in a few measured numbers, and their file.

A *machine file* is TOML: `dsgmcmc bench machine` writes it, `dsgmcmc plan` reads it. The file beside this module has
what is taken without one; its first lines say where it was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from dsgmcmc.config.sampler import explain
from dsgmcmc.errors import InputError, writing
from dsgmcmc.storage.files import read_toml, write_whole
from dsgmcmc.types import NoiseName

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Work(_Table):
    """Seconds of the parts of a sweep of one sampler, on one core.

    Attributes
    ----------
    sampler : str
    noise : str
        As of a run.
    rank : int
        Number K of latent dimensions.
    column_bytes : list of float
        Bytes of a column block's positions and gradients, at which `rating` was measured: more do not fit the caches.
    rating : list of float
        A rating, in all passes of a sweep.
    member : float
        A row or a column of a cell, with ratings there or without: all of them times B in a sweep.
    visit : float
        A row of a cell that has ratings there, besides.
    update : float
        An update of a row of either factor.
    cell, block : float
        A call for a cell, and for the update of a block.
    iteration : float
        What an iteration costs besides, whatever the data: it is not shared among processes.
    tours : float
        Tours of the ring in a sweep; 0 where only parts are visited.
    sums, summed : list of float
        Ordered sums of each width: how many in a sweep, and float64 numbers of a block that go into one.
    """

    sampler: str
    noise: NoiseName
    rank: int = Field(ge=1, le=512)
    column_bytes: list[Positive] = Field(min_length=1)
    rating: list[Seconds] = Field(min_length=1)
    member: Seconds
    visit: Seconds
    update: Seconds
    cell: Seconds
    block: Seconds
    iteration: Seconds
    tours: Seconds
    sums: list[Positive]
    summed: list[Positive]

    @model_validator(mode="after")
    def _same_lengths(self) -> Work:
        if len(self.rating) != len(self.column_bytes) or sorted(self.column_bytes) != self.column_bytes:
            raise ValueError("rating has a number for every one of column_bytes, which ascend")
        if len(self.sums) != len(self.summed):
            raise ValueError("summed has a number for every one of sums")
        return self

    def seconds_per_rating(self, column_bytes: float) -> float:
        """`rating` where a column block has so many bytes: linear in their logarithm, constant outside."""
        return float(np.interp(np.log(column_bytes), np.log(self.column_bytes), self.rating))


class Exchange(_Table):
    """What several processes of one node need besides their work.

    Attributes
    ----------
    step, cell : float
        Seconds of a step in which blocks go on to the next process, and of each cell of it: calls, and messages of next
        to nothing.
    latency : float
        Seconds of a message of an ordered sum, of those that wait for each other, with its calls.
    bandwidth : float
        Bytes a second between two processes of a node, which all send and receive at once.
    message : float
        Seconds of one of many small messages that a process takes in.
    added : float
        Seconds in which process 0 adds one number to an ordered sum.
    """

    step: Seconds
    cell: Seconds
    latency: Seconds
    bandwidth: Positive
    message: Seconds
    added: Seconds


class Disk(_Table):
    """Where runs are written; `bandwidth` in bytes a second, all processes together."""

    bandwidth: Positive


class Machine(_Table):
    """A machine file.

    Attributes
    ----------
    format, version
        Say what the file is.
    cpu : str
        Name of the processor.
    processes : int
        How many measured at once: those of a node share caches and memory.
    about : str
        How it was measured.
    """

    format: Literal["dsgmcmc-machine"] = "dsgmcmc-machine"
    version: Literal[3] = 3
    cpu: str
    processes: int = Field(ge=1)
    about: str = ""
    exchange: Exchange
    disk: Disk
    work: list[Work] = Field(min_length=1)

    @field_validator("work")
    @classmethod
    def _in_order(cls, work: list[Work]) -> list[Work]:
        kinds: dict[tuple[str, str], list[float]] = {}
        for each in work:
            if kinds.setdefault((each.sampler, each.noise), each.sums) != each.sums:
                raise ValueError(f"{each.sampler} with --noise {each.noise} has the same sums at every rank")
        return sorted(work, key=lambda each: (each.sampler, each.noise, each.rank))

    def work_of(self, sampler: str, noise: str, rank: int) -> Work:
        """Costs of a sampler at a rank, interpolated or extrapolated linearly from the measured ranks.

        Raises InputError if this sampler was not measured.
        """
        known = [work for work in self.work if (work.sampler, work.noise) == (sampler, noise)]
        if not known:
            there = ", ".join(sorted({f"{work.sampler} with --noise {work.noise}" for work in self.work}))
            raise InputError(
                f"the machine file has no costs of {sampler} with --noise {noise} (it has {there}): measure them with "
                f"`dsgmcmc bench machine FILE --sampler {sampler} --noise {noise}`, and give --machine FILE"
            )
        return _between(known, sampler, noise, rank)


def _between(known: Sequence[Work], sampler: str, noise: str, rank: int) -> Work:
    """Interpolate between the two nearest ranks, or extrapolate from them; of one alone all is proportional to K."""
    if len(known) == 1:
        share, (low, high) = rank / known[0].rank, (known[0], known[0])
        scaled = {name: getattr(low, name) * share for name in ("member", "visit", "update")}
        return low.model_copy(update={"rank": rank, "rating": [each * share for each in low.rating], **scaled})
    place = min(max(int(np.searchsorted([work.rank for work in known], rank)), 1), len(known) - 1)
    low, high = known[place - 1], known[place]
    weight = (rank - low.rank) / (high.rank - low.rank)

    def mix(a: float, b: float) -> float:
        return max((1 - weight) * a + weight * b, 0.0)

    names = set(Work.model_fields) - {"sampler", "noise", "rank", "column_bytes", "rating", "sums", "summed"}
    return Work(
        sampler=sampler,
        noise=low.noise,
        rank=rank,
        column_bytes=low.column_bytes,
        rating=[mix(low.seconds_per_rating(each), high.seconds_per_rating(each)) for each in low.column_bytes],
        sums=low.sums,
        summed=[mix(a, b) for a, b in zip(low.summed, high.summed, strict=True)],
        **{name: mix(getattr(low, name), getattr(high, name)) for name in names},
    )


def builtin() -> Machine:
    """Return the constants that are used without a machine file."""
    with as_file(files("dsgmcmc.cluster") / "machine.toml") as path:
        return read_machine(path)


def read_machine(path: Path) -> Machine:
    """Read a machine file. Raises InputError if there is none, or it is damaged."""
    try:
        return Machine.model_validate(read_toml(path))
    except ValidationError as error:
        raise InputError(
            f"{path} is not a machine file of this version: {explain(error, Machine.model_fields)}"
        ) from error


def write_machine(path: Path, machine: Machine) -> None:
    """Write a machine file, in place of an older one. Raises InputError if it cannot be written."""
    with writing(path):
        write_whole(path, tomli_w.dumps(machine.model_dump()))

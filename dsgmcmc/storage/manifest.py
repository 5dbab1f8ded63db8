"""The manifest of a snapshot: its arrays, their files and hashes. Plain JSON, checked when read.

The last member, ``sha256``, is the hash of the preceding text, because the manifest holds part of the chain's state.
"""

from __future__ import annotations

import errno
import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from typing_extensions import TypedDict  # Pydantic needs it before Python 3.12

from dsgmcmc.errors import GoneError, InputError
from dsgmcmc.storage.files import open_plain
from dsgmcmc.types import Float64

T = TypeVar("T")

MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 1 << 28
#: Member of `state` that lists iterations of saved draws: the draws that a checkpoint or posterior refers to, or the
#: draws in a snapshot of draws.
SAVED_DRAWS = "observer.kept"
#: Member of a checkpoint's `state` that lists the iterations at which the chain has diverged; absent if there are none.
DIVERGED = "chain.diverged"

#: Version of the format of runs and their snapshots; other versions are refused.
VERSION = 2

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$")]
Size = Annotated[int, Field(ge=0)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Key(NamedTuple):
    """Name of a block: object, factor, block number and field."""

    object: Name
    factor: Name
    block: Size
    field: Name

    @property
    def path(self) -> str:
        """Name of the data set in the shard."""
        return f"{self.object}/{self.factor}/{self.block:06d}/{self.field}"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="constants")


class BlockEntry(_Strict):
    """An array of the snapshot."""

    key: Key
    shard: Annotated[str, Field(pattern=r"^shard-[0-9]{5,}\.h5$")]
    shape: tuple[Size, ...]
    dtype: Annotated[str, Field(pattern=r"^(<[fi][48]|\|u1)$")]
    sha256: Sha256


class SmallArray(_Strict):
    """A small replicated array; JSON keeps every bit of a float64."""

    shape: tuple[Size, ...]
    values: list[float]

    @model_validator(mode="after")
    def _check_shape(self) -> Self:
        if math.prod(self.shape) != len(self.values):
            raise ValueError(f"{len(self.values)} values do not have the shape {self.shape}")
        return self

    @classmethod
    def of(cls, array: npt.ArrayLike) -> SmallArray:
        """Convert from a float64 array."""
        data = np.asarray(array, dtype=np.float64)
        return cls(shape=data.shape, values=data.ravel().tolist())

    def array(self) -> Float64:
        """Convert to a float64 array."""
        return np.array(self.values, dtype=np.float64).reshape(self.shape)


class About(TypedDict, total=False):
    """Facts about a snapshot that are not in its digest."""

    versions: dict[str, str]
    processes: int
    seconds: float
    made_with: dict[str, Any]


class Manifest(_Strict):
    """Content of ``manifest.json``.

    Attributes
    ----------
    kind : {"checkpoint", "draws", "posterior", "index", "start"}
        Kind of the snapshot.
    chain, iteration, grid : int
        Chain, number of completed iterations, and grid size B of the run.
    config_hash, data_hash : str
        Hashes of the configuration and of the ratings.
    state : dict of str to SmallArray
        Small arrays that are equal on all processes; part of the content digest.
    about : About
        Facts outside the digest: versions, seconds, number of processes, and facts about the data
        (`dsgmcmc.storage.facts`).
    """

    format: Literal["dsgmcmc-snapshot"] = "dsgmcmc-snapshot"
    version: Literal[2] = 2
    kind: Literal["checkpoint", "draws", "posterior", "index", "start"]
    chain: int = Field(ge=0)
    iteration: int = Field(ge=0)
    grid: int = Field(ge=1)
    config_hash: Sha256
    data_hash: Sha256
    state: dict[str, SmallArray]
    about: About
    blocks: list[BlockEntry]

    @property
    def shards(self) -> list[str]:
        """Files that hold the blocks, in order."""
        return sorted({entry.shard for entry in self.blocks})

    @property
    def saved_draws(self) -> list[int]:
        """Iterations of the saved draws that the snapshot holds or refers to, in order."""
        kept = self.state.get(SAVED_DRAWS)
        return [int(number) for number in kept.values] if kept else []

    @property
    def diverged(self) -> tuple[int, ...]:
        """Iterations at which the chain diverged and was restarted."""
        diverged = self.state.get(DIVERGED)
        return tuple(map(int, diverged.values)) if diverged else ()

    @model_validator(mode="after")
    def _of_iterations(self) -> Self:
        _ = self.saved_draws, self.diverged
        return self


def seal(text: str) -> str:
    """Add to the text of a JSON object, as its last member, the hash of the preceding text."""
    body = text.rstrip().removesuffix("}").rstrip()
    return f'{body},\n "sha256": "{hashlib.sha256(body.encode()).hexdigest()}"\n}}\n'


def unseal(text: str, path: Path) -> str:
    """Return the JSON object that was sealed. Raises InputError if the text does not match its hash."""
    body = text[: text.rfind(',\n "sha256"')] + "}"
    if seal(body) != text:
        raise InputError(f"{path} is incomplete or damaged: it does not match its own checksum")
    return body


def read_part(path: Path, read: Callable[[], T]) -> T:
    """Read a file of a snapshot: all errors of missing and damaged files become an InputError that names the file.

    Raises GoneError if the whole snapshot is gone. As a snapshot is renamed before it is removed, a file that is
    missing in an existing directory means damage. If another host has just renamed the directory, a network file system
    may have cached that a name was missing or belonged to another file; listing the directory refreshes the cache.
    """
    try:
        try:
            return read()
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ESTALE):
                raise
            list(path.parent.iterdir())
            return read()
    except InputError:
        raise
    except (OSError, KeyError, RuntimeError, ValueError, TypeError) as error:  # of HDF5, h5py and Python
        if not path.parent.is_dir():
            raise GoneError(f"{path.parent} is gone: the run has removed it since. Open the run again") from error
        raise InputError(f"{path} is missing or damaged: {error}") from error


def read_manifest(directory: Path) -> Manifest:
    """Read and check the manifest of a snapshot directory; raises as `read_part`."""
    path = directory / MANIFEST

    def read() -> str:
        with open_plain(path, MAX_MANIFEST_BYTES) as file:
            return file.read().decode()

    text = unseal(read_part(path, read), path)
    try:
        return Manifest.model_validate_json(text)
    except (ValidationError, ArithmeticError) as error:
        why = str(error).replace("\n", " ")
        raise InputError(f"{path} is not a snapshot this version reads: {why[:200]}") from error

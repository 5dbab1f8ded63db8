"""The manifest of a snapshot: its arrays, their files and hashes. Plain JSON, checked when read.

The last member, ``sha256``, is the hash of the preceding text, because the manifest holds part of the chain's state.
"""

from __future__ import annotations

import errno
import hashlib
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

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

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_SHARD = re.compile(r"shard-[0-9]{5,}\.h5")
#: Version of the format of runs and their snapshots; other versions are refused.
VERSION = 2


class Key(NamedTuple):
    """Name of a block: object, factor, block number and field."""

    object: str
    factor: str
    block: int
    field: str

    @property
    def path(self) -> str:
        """Name of the data set in the shard."""
        return f"{self.object}/{self.factor}/{self.block:06d}/{self.field}"


def _check_key(key: Key) -> Key:
    if not all(_NAME.fullmatch(part) and part.strip(".") for part in (key.object, key.factor, key.field)):
        raise ValueError("not the name of a block")
    if key.block < 0:
        raise ValueError("negative block")
    return key


def _check_shard(name: str) -> str:
    if not _SHARD.fullmatch(name):
        raise ValueError("not the name of a shard")
    return name


Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
ShardName = Annotated[str, AfterValidator(_check_shard)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="constants")


class BlockEntry(_Strict):
    """An array of the snapshot."""

    key: Annotated[Key, AfterValidator(_check_key)]
    shard: ShardName
    shape: tuple[Annotated[int, Field(ge=0)], ...]
    dtype: Annotated[str, Field(pattern=r"^(<[fi][48]|\|u1)$")]
    sha256: Sha256


class SmallArray(_Strict):
    """A small replicated array; JSON keeps every bit of a float64."""

    shape: tuple[Annotated[int, Field(ge=0)], ...]
    values: list[float]

    @model_validator(mode="after")
    def _whole(self) -> Self:
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
    about : dict
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
    about: dict[str, Any]
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

    @field_validator("about")
    @classmethod
    def _readable(cls, about: dict[str, Any]) -> dict[str, Any]:
        for name in ("versions", "made_with"):
            if not isinstance(about.get(name, {}), dict):
                raise ValueError(f"{name} has no names")
        if not isinstance(about.get("seconds", 0.0), int | float):
            raise ValueError("seconds is not a number")
        return about

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len({entry.key for entry in self.blocks}) < len(self.blocks):
            raise ValueError("blocks has a key twice")
        for name in (SAVED_DRAWS, DIVERGED):
            numbers = self.state[name].values if name in self.state else []
            if not all(0 <= number < 1 << 53 and number.is_integer() for number in numbers):
                raise ValueError(f"{name} has numbers that are none of iterations")
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


def parse_manifest(text: str, path: Path) -> Manifest:
    """Parse the text of a manifest. Raises InputError if the text is invalid."""
    try:
        return Manifest.model_validate_json(unseal(text, path))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "its content"
        raise InputError(f"{path} is not a snapshot this version reads: {where}: {first['msg']}") from error


def seen_by_all(directory: Path, read: Callable[[], T]) -> T:
    """Read from a directory that another host may just have renamed.

    A network file system may cache for a while that a name was missing or belonged to another file; listing the
    directory refreshes the cache.
    """
    try:
        return read()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ESTALE):
            raise
        list(directory.iterdir())
        return read()


def lost(directory: Path, message: str) -> InputError:
    """Return the error for a part of a snapshot that cannot be read: GoneError if the snapshot is gone, or `message`.

    A snapshot is renamed before it is removed, so a part missing in an existing directory means damage.
    """
    if directory.is_dir():
        return InputError(message)
    return GoneError(f"{directory} is gone: the run has removed it since. Open the run again")


def read_text(directory: Path) -> str:
    """Read the text of the manifest of a snapshot directory.

    Raises InputError if the manifest is missing, too large or no text.
    """
    path = directory / MANIFEST

    def read() -> str:
        with open_plain(path, MAX_MANIFEST_BYTES) as file:
            return file.read().decode()

    try:
        return seen_by_all(directory, read)
    except (OSError, UnicodeDecodeError) as error:
        raise lost(directory, f"{directory} is not a complete snapshot: {error}") from error


def read_manifest(directory: Path) -> Manifest:
    """Read and check the manifest of a snapshot directory; raises as `read_text` and `parse_manifest`."""
    return parse_manifest(read_text(directory), directory / MANIFEST)

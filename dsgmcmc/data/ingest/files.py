"""Which files to read: files, folders and globs."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from pathlib import Path

from dsgmcmc.errors import InputError

SUFFIXES: dict[str, str] = {
    ".csv": "text",
    ".tsv": "text",
    ".txt": "text",
    ".dat": "text",
    ".data": "text",
    ".base": "text",
    ".test": "text",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".mtx": "mtx",
    ".npz": "npz",
}
# in a folder with one of these (MovieLens), the other files are not ratings
_RATING_FILES = ("ratings.csv", "ratings.dat", "u.data")


def find_files(inputs: Sequence[str]) -> list[Path]:
    """Turn files, folders and globs into a list of files.

    In a folder, a MovieLens rating file is taken alone; otherwise every file with a known suffix is. Raises InputError
    if something does not exist or holds no rating files, or a file is named twice.
    """
    files: list[Path] = []
    for name in inputs:
        path = Path(name)
        if path.is_dir():
            files += _files_of(path)
        elif path.exists():
            files.append(path)
        elif glob.has_magic(name):
            matches = sorted(Path(p) for p in glob.glob(name, recursive=True))  # noqa: PTH207 (absolute patterns)
            files += [p for p in matches if p.is_file()]
            if not files:
                raise InputError(f"no file matches {name}")
        else:
            raise InputError(f"{name} does not exist")
    seen: set[Path] = set()
    for path in files:
        if path.resolve() in seen:
            raise InputError(f"{path} is given twice")
        seen.add(path.resolve())
    return files


def _files_of(folder: Path) -> list[Path]:
    present = sorted(p for p in folder.iterdir() if p.is_file())
    for name in _RATING_FILES:
        match = [p for p in present if p.name in (name, name + ".gz")]
        if match:
            return match[:1]
    files = [p for p in present if suffix_of(p) in SUFFIXES and not p.name.startswith(".")]
    if not files:
        raise InputError(f"{folder} holds no rating files (known suffixes: {', '.join(SUFFIXES)})")
    return files


def suffix_of(path: Path) -> str:
    """Return the suffix in lower case, without ``.gz``."""
    name = path.name.lower().removesuffix(".gz")
    return Path(name).suffix

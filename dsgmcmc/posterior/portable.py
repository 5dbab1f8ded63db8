"""A run and its ratings as one value, for a model that is pickled and used where neither file is."""

from __future__ import annotations

from pathlib import Path

from dsgmcmc.posterior.run import Run

Packed = dict[str, bytes]  # content of files, by their path in the folder that they are unpacked into
RUN, RATINGS = "run", "ratings.h5"


def pack(run: Run, ratings: Path | None) -> Packed:
    """Read all files of a run, and its ratings file where there is one.

    Raises
    ------
    OSError
        If one cannot be read.
    """
    files = {
        f"{RUN}/{path.relative_to(run.path)}": path.read_bytes()
        for path in sorted(run.path.rglob("*"))
        if path.is_file() and path != run.directory.lock_file
    }
    if ratings is not None and ratings.is_file():
        files[RATINGS] = ratings.read_bytes()
    return files


def unpack(files: Packed, folder: Path) -> tuple[Path, Path | None]:
    """Write what was packed into a folder; return where the run and the ratings are."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder / RUN, folder / RATINGS if RATINGS in files else None

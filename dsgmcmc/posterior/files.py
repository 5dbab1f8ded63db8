"""The files of a fitted model: packed into a pickle, unpacked from it, and copied."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from dsgmcmc.errors import InputError, writing
from dsgmcmc.posterior.joined import open_runs
from dsgmcmc.posterior.run import Run
from dsgmcmc.storage.files import Scratch
from dsgmcmc.storage.rundir import RunDirectory

#: Names under which the files of a pickled model are unpacked.
RUN = "run"
RATINGS = "ratings.h5"


def files_of(run: Run) -> dict[str, Path]:
    """Return the files of a run and its ratings, by the names of their unpacked copies.

    Runs that are joined have a folder each.
    """
    files = {}
    for number, folder in enumerate(run.paths):
        lock_file = RunDirectory(folder).lock_file
        name = _folder_of(number)
        for path in sorted(folder.rglob("*")):
            can_be_computed = path.name.startswith("exposure-")
            if path.is_file() and path != lock_file and not can_be_computed:
                files[f"{name}/{path.relative_to(folder)}"] = path
    ratings = run.data or Path(str(run.facts.get("data", "")))
    if ratings.is_file():
        files[RATINGS] = ratings
    return files


def unpack(contents: Mapping[str, bytes]) -> tuple[Scratch, Run]:
    """Write the contents of files, by name, to a folder; return it and the run.

    The files are removed with the folder.
    """
    scratch = Scratch()
    for name, content in contents.items():
        file = scratch.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    number = len({name.split("/")[0] for name in contents} - {RATINGS})
    run = open_runs([scratch.path / _folder_of(k) for k in range(number)])
    if RATINGS in contents:
        run.data = scratch.path / RATINGS
    return scratch, run


def _folder_of(number: int) -> str:
    """Return the name of the folder of a run, by its number among runs that are joined."""
    if number == 0:
        return RUN
    return f"{RUN}-{number}"


def copy_files(files: Mapping[str, Path], folder: Path) -> None:
    """Copy the files of a run to a new folder, and its ratings beside it.

    Raises InputError if one of them exists or cannot be written, or if there are several runs.
    """
    if any(name.startswith(f"{_folder_of(1)}/") for name in files):
        raise InputError("a folder has one run: save each of the joined runs, or pickle the model")
    ratings = folder.with_name(f"{folder.name}.ratings.h5")
    for target in (folder, ratings):
        if target.exists():
            raise InputError(f"{target} exists: give another path")
    for name, source in files.items():
        target = ratings
        if name != RATINGS:
            target = folder / Path(name).relative_to(RUN)
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)

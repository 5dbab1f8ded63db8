"""Reading small files of the sciences, which `science_files` writes, by `prepare`."""

from pathlib import Path

from ingest_cases import everything
from support import typed

from dsgmcmc.prepare.prepare import prepare_ratings


def read(path: Path, **options: object) -> dict[tuple, float]:
    """Ratings by user and item that are read from a file."""
    out = path.parent / "out.h5"
    prepare_ratings([path], out, test_fraction=0, force=True, **options)
    return everything(out)


def refused(path: Path, *options: str) -> str:
    """Message with which ``dsgmcmc prepare`` refuses a file."""
    return typed("prepare", path, path.parent / "no.h5", *options).expect(2).err

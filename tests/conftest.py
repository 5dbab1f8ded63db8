"""Fixtures that every kind of test shares."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import ROOT, handlers_as_before, lacking, write_planted

from dsgmcmc.cli.app import with_settings
from dsgmcmc.cli.options import option_name
from dsgmcmc.errors import InputError, settings_written
from dsgmcmc.parallel.comm import world_comm

# some tests need no MPI; to the others it is loaded as to the command line
with contextlib.suppress(InputError):
    world_comm()

with_settings()  # tests look at the options of all commands at once


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore warnings of doubtful runs but where they are tested: most tests sample briefly."""
    for item in items:
        if item.path.name != "test_run_warnings.py":
            item.add_marker(pytest.mark.filterwarnings("ignore::dsgmcmc.errors.RunWarning"))


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """Signals have the handlers after a test that they had before it."""
    with handlers_as_before():
        yield


@pytest.fixture(autouse=True)
def messages_of_commands() -> Iterator[None]:
    """Functions write messages as for the command line, unless they are called through Python's
    front end, `BPMF`.
    """
    with settings_written(option_name):
        yield


@pytest.fixture(scope="session")
def datasets() -> Path:
    """Folder with ml-100k and ml-1m; the research licence forbids committing them."""
    folder = Path(os.environ.get("DSGMCMC_DATASETS", ROOT.parent / "shared" / "datasets"))
    if not (folder / "ml-100k" / "u.data").exists():
        lacking(f"no MovieLens data in {folder}; set DSGMCMC_DATASETS")
    return folder


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ratings file of 29 rows, 17 columns and about 250 ratings, 50 of them for testing, which no
    test changes.
    """
    return write_planted(tmp_path_factory.mktemp("data") / "r.h5")

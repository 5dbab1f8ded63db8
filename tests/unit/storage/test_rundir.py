"""Small files of a run: read only if they are files; damaged lines of logs are skipped."""

from pathlib import Path

import pytest

from dsgmcmc.diagnostics.comparison import Comparison
from dsgmcmc.diagnostics.summary import read_summary
from dsgmcmc.errors import InputError
from dsgmcmc.storage.files import read_toml
from dsgmcmc.storage.rundir import RunDirectory


def line(iteration: int) -> dict[str, object]:
    return {
        "chain": 0,
        "iteration": iteration,
        "sweep": 1.0,
        "time_s": 0.5,
        "rmse": 0.9,
        "rmse_mean": None,
    }


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run directory with logs of three lines."""
    run = RunDirectory(tmp_path)
    for iteration in (1, 2, 3):
        run.add_metrics(0, line(iteration))
        run.note("resumed", iteration=iteration)
    return run


@pytest.mark.parametrize("torn", [b'{"chain": 0, "iter', b"\0" * 700, b"\xff"])
def test_a_torn_last_line_is_left_out_and_cut_off(run: RunDirectory, torn: bytes) -> None:
    """A line that a kill or a full disk has torn is left out, and the next one is a line of its
    own.
    """
    written = run.metrics_file(0).read_bytes()
    with run.metrics_file(0).open("ab") as log:
        log.write(torn)
    assert run.metrics() == [line(1), line(2), line(3)]
    run.add_metrics(0, line(4))
    assert run.metrics_file(0).read_bytes().startswith(written + b'{"chain"')
    assert run.metrics()[3:] == [line(4)]


@pytest.mark.parametrize("damage", ["2x", "[[", '"many"', "null", "1, 2"])
def test_a_damaged_line_is_skipped(run: RunDirectory, damage: str) -> None:
    """A damaged line of a log is skipped, and no job ends for it."""
    for file in (run.metrics_file(0), run.path / "events.jsonl"):
        file.write_text(
            file.read_text(encoding="utf-8").replace('"iteration": 2', f'"iteration": {damage}')
        )
    assert run.metrics() == [line(1), line(3)]
    assert {1, 3} <= {event["iteration"] for event in run.events() if event["iteration"] != 2}
    run.cut_metrics(0, 1)
    assert run.metrics() == [line(1)]


def test_a_job_does_not_write_through_a_link(run: RunDirectory) -> None:
    """A log that is a symbolic link is not written to: it could be any file of the user."""
    (run.path / "events.jsonl").unlink()
    (run.path / "events.jsonl").symlink_to(run.path / "precious")
    with pytest.raises(OSError, match="symbolic"):
        run.note("resumed")


# ---------------------------------------------------------------------- files


@pytest.mark.parametrize("read", [read_toml, read_summary, Comparison.read])
def test_a_path_that_is_no_file_is_refused_in_one_line(tmp_path, read):
    """Readers that turn a parser's `ValueError` into one line leave an `InputError` as it is."""
    with pytest.raises(
        InputError, match=rf"^{tmp_path} is a directory, a pipe or a device: expected a file$"
    ):
        read(tmp_path)

"""Standard output or error that cannot be written: a full disk, a reader that has gone, a closed descriptor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import Result, digest, dsgmcmc, injected, run
from tiny import command

from dsgmcmc.storage.lock import is_held

FULL = "dsgmcmc: standard output cannot be written: No space left on device"


def redirected(where: str, *line: str) -> Result:
    """Run a command behind a redirection of the shell's."""
    return run("bash", "-c", f'"$@" {where}', "bash", *line)


@pytest.mark.parametrize("words", ["--help", "predict RUN PAIRS"])
def test_a_full_disk_under_standard_output(finished: Path, pairs: Path, words: str) -> None:
    """Status 1 and one line, whatever prints: print, rich, typer or the bytes of a table."""
    line = words.replace("RUN", str(finished)).replace("PAIRS", str(pairs)).split()
    result = redirected(">/dev/full", *dsgmcmc(*line)).expect(1)
    assert result.err.splitlines() == [FULL]


def test_a_closed_standard_output(finished: Path) -> None:
    """What cannot be printed there is missing, too."""
    result = redirected(">&-", *dsgmcmc("verify", finished)).expect(1)
    assert result.err == "dsgmcmc: standard output cannot be written: Bad file descriptor\n"


def test_a_run_whose_result_cannot_be_printed_is_complete(data: Path, tmp_path: Path) -> None:
    """Status 1 and one line; the summary has the result."""
    out = tmp_path / "run"
    result = redirected(">/dev/full", *command(data, out, iterations=20)).expect(1)
    assert result.err.splitlines()[-1] == FULL
    assert json.loads((out / "summary.json").read_text())["iterations"] == 20
    digest(out)


def test_a_run_goes_on_though_it_cannot_say_how(data: Path, tmp_path: Path) -> None:
    """Progress is no result: without standard error all else is as ever."""
    result = redirected("2>/dev/full", *command(data, tmp_path / "run", iterations=20)).expect(0)
    assert "finished: 20 iterations" in result.out


def test_no_file_takes_the_place_of_a_closed_stream(data: Path, tmp_path: Path) -> None:
    """Whoever prints then would write into the run."""
    out = tmp_path / "run"
    redirected(">&- 2>&- <&-", *command(data, out, iterations=20)).expect(1)
    digest(out)


def test_a_file_that_fails_is_said_in_one_line(data: Path, tmp_path: Path) -> None:
    """Of a command of one process: what is said of it; no traceback, and not the status of a job that was ended."""
    result = run(*command(data, tmp_path / "run", iterations=20), env=injected("reduce=EIO")).expect(1)
    assert [line for line in result.err.splitlines() if "dsgmcmc" in line] == ["dsgmcmc: [Errno 5] Input/output error"]
    assert "Traceback" not in result.err
    assert not is_held(tmp_path / "run" / "lock")

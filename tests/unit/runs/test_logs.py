"""Logs: what is said where."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dsgmcmc.runs.logs import start_logs, stop_logs


def test_logs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Process 0 on the terminal, each in its own file with times, nothing below the level."""
    logger = logging.getLogger("dsgmcmc.any")
    try:
        for rank in (0, 1):
            start_logs(rank, "info", tmp_path / "logs")
            logger.debug("details")
            logger.info("process %d", rank)
            logger.warning("careful")
    finally:
        stop_logs()
    assert capfd.readouterr().err == "process 0\nwarning: careful\n"
    for rank in (0, 1):
        lines = (tmp_path / "logs" / f"process-0000{rank}.log").read_text().splitlines()
        assert len(lines) == 2
        assert lines[0].endswith(f"dsgmcmc.any: process {rank}")
        assert lines[0][:2] == "20"


def test_a_log_that_cannot_be_written(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A full disk is said once, not at every line with a traceback; the terminal has all lines."""
    (tmp_path / "process-00000.log").symlink_to("/dev/full")
    try:
        start_logs(0, "info", tmp_path)
        for number in range(3):
            logging.getLogger("dsgmcmc.any").info("line %d", number)
    finally:
        stop_logs()
    warning = f"warning: {tmp_path}/process-00000.log cannot be written any more: No space left on device"
    assert sorted(capfd.readouterr().err.splitlines()) == ["line 0", "line 1", "line 2", warning]


def test_a_name_does_not_begin_a_record(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Nor steer the terminal: a message is one line, there and in the file."""
    try:
        start_logs(0, "info", tmp_path)
        logging.getLogger("dsgmcmc.any").warning("taking over %s", "run\x1b[2J\n2026 ERROR \udcff")
    finally:
        stop_logs()
    said = r"taking over run\x1b[2J\n2026 ERROR \udcff"
    assert capfd.readouterr().err == f"warning: {said}\n"
    (line,) = (tmp_path / "process-00000.log").read_text().splitlines()
    assert line.endswith(f"dsgmcmc.any: {said}")

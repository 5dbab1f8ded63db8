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

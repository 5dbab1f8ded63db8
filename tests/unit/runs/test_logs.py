"""Logs: what is said where."""

from __future__ import annotations

import logging

import pytest

from dsgmcmc.runs.progress import logs


def test_logs(capfd: pytest.CaptureFixture[str]) -> None:
    """Process 0 speaks, the others do not; nothing below the level; handlers are as before at the end."""
    logger = logging.getLogger("dsgmcmc.any")
    before = list(logging.getLogger("dsgmcmc").handlers)
    for rank in (0, 1):
        with logs(rank):
            logger.debug("details")
            logger.info("process %d", rank)
            logger.warning("careful")
    assert capfd.readouterr().err == "process 0\nwarning: careful\n"
    assert logging.getLogger("dsgmcmc").handlers == before


def test_a_name_does_not_begin_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    """Nor steer the terminal: a message is one line."""
    with logs(0):
        logging.getLogger("dsgmcmc.any").warning("taking over %s", "run\x1b[2J\n2026 ERROR \udcff")
    assert capfd.readouterr().err == "warning: taking over run\\x1b[2J\\n2026 ERROR \\udcff\n"

"""Environments of their own for other people's packages, and what processes that were started have used."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path


def python_with(folder: Path, *packages: str) -> Path:
    """Python of an environment in `folder` with these packages, installed from PyPI at the first call.

    Raises
    ------
    RuntimeError
        If one does not install, with what pip says.
    """
    python = folder.resolve() / "bin" / "python"
    if not (folder / "whole").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        command = [python, "-m", "pip", "install", "--quiet", *packages]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError("does not install: " + (done.stderr.strip().splitlines() or ["?"])[-1])
        (folder / "whole").touch()
    return python


def processor_seconds() -> float:
    """Processor seconds of all processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime

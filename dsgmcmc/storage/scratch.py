"""Temporary folders that are removed with their user."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path


class Scratch:
    """A temporary folder that is removed when this object is, or the process ends.

    Attributes
    ----------
    path : Path
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="dsgmcmc-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

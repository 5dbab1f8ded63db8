"""Compile generated source once per CPU, and load it from the cache afterwards.

The kernels are Python source, generated for a rank, a formula or a dtype. Numba's cache cannot store functions defined
by ``exec``, and its key contains neither SLP vectorisation nor the generated text. So the source is written to a folder

    CACHE / <SHA-256 of source, name, compiler flags, versions, CPU> / <module>.py

and imported from there, and Numba's ``cache=True`` keeps the machine code in the same folder. `kernels.cache` chooses
CACHE. A folder appears by an atomic rename and never changes, so many processes can start at once on a shared file
system; those that find no machine code compile it.

Numba is imported with the first kernel (`kernels.compiler`), so commands that compute nothing start without it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

from dsgmcmc.kernels.cache import cache_directory, publish

FAST = '{"contract", "reassoc", "nsz"}'
"""Fast-math flags of the kernels: sums may be reordered and products fused. NaN and infinity keep their meaning, so
divergence shows in sums. Divisions and roots are exact: the approximate instructions ("arcp", "afn") differ between
makers of processors, turn 1 / sqrt(0) into NaN, and save no time."""

_HEADER = """\
import math
from typing import Any
import numpy as np
from numba import njit
from dsgmcmc.kernels.compiler import compiled, wide_vectors
from numpy import float32, float64, int32, int64, uint32, uint64

"""


def compile_source(name: str, source: str) -> ModuleType:
    """Import generated source from the cache, after writing it there if it is new.

    Parameters
    ----------
    name : str
        Part of the module's name; shown in tracebacks and profiles.
    source : str
        Python source, which can use the names that `_HEADER` imports. It contains the text of `decorator`, so the
        compiler flags are part of the hash.

    Returns
    -------
    module
        The imported module, whose kernels are compiled or loaded.
    """
    from dsgmcmc.kernels.compiler import machine  # importing Numba takes longer than most commands

    source = _HEADER + source
    digest = hashlib.sha256("\0".join((machine(), name, source)).encode()).hexdigest()[:32]
    module_name = f"dsgmcmc_{name}_{digest}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    path = publish(cache_directory() / digest, f"{name}.py", source)
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # Numba looks up a cached function's globals by module name
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module_name]
        raise
    return module


def decorator(signature: str, fastmath: str = FAST) -> str:
    """Return the decorator of a kernel, with a single signature: all processes write the same cache entry."""
    return f'@compiled("{signature}", nogil=True, error_model="numpy", fastmath={fastmath})'


def helper(fastmath: str = FAST) -> str:
    """Return the decorator of a function that the kernels in its module call."""
    return f'@njit(nogil=True, error_model="numpy", fastmath={fastmath})'


def indented(text: str | Sequence[str], depth: int = 1) -> list[str]:
    """Indent lines of source by `depth` levels."""
    lines = text.splitlines() if isinstance(text, str) else text
    return ["    " * depth + line for line in lines]

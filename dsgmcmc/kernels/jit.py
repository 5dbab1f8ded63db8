"""Generated source, compiled once per CPU and found again at the next start.

The kernels are Python source generated for a rank, a formula or a dtype. Numba's own cache does not
serve functions made by ``exec``, and its key knows neither of SLP vectorisation nor of what the generator
would write today. So the source is written to a folder of its own

    CACHE / <SHA-256 of source, name, compiler flags, versions, CPU> / <module>.py

and imported from there; Numba's ``cache=True`` then keeps the machine code in that folder. A folder
appears by one atomic rename and is never changed afterwards, so any number of processes on a shared file
system may start at once. Where it has locks one of them compiles a kernel, and the others wait for it.

CACHE is found in `kernels.cache`.

``DSGMCMC_SHOW_KERNELS=1`` prints the source of every kernel to stderr as it is loaded.

Numba itself is imported with the first kernel that is asked for (`kernels.compiler`): commands that compute nothing do
without it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from dsgmcmc.kernels.cache import cache_directory, publish
from dsgmcmc.terminal import say

FAST = '{"contract", "reassoc", "nsz"}'
"""Fast-math flags of the kernels: sums may be reordered and products fused. There is no promise that NaN and
infinity do not occur, so that divergence shows in sums, and divisions and roots are exact: the processor's
estimates ("arcp", "afn") differ between makers, make NaN of 1 / sqrt(0), and gain nothing."""

_HEADER = """\
import math
from typing import Any
import numpy as np
from numba import njit
from dsgmcmc.kernels.compiler import compiled, wide_vectors
from numpy import float32, float64, int32, int64, uint32, uint64

"""


def compile_source(name: str, source: str) -> ModuleType:
    """Import generated source from the cache, writing it there first if need be.

    Parameters
    ----------
    name : str
        Part of the module's name; shown in tracebacks and profiles.
    source : str
        Python source. `math`, `np`, `njit`, `compiled` and Numba's scalar types are imported for it. Functions carry
        their decorator, made by `decorator`, so that the flags are part of the hash.

    Returns
    -------
    module
        The imported module. Functions with signatures are compiled, or loaded, when this returns.

    Raises
    ------
    InputError
        The cache folder is not safe to use.
    """
    from dsgmcmc.kernels.compiler import machine  # Numba takes longer to import than most commands take

    source = _HEADER + source
    digest = hashlib.sha256("\0".join((machine(), name, source)).encode()).hexdigest()[:32]
    module_name = f"dsgmcmc_{name}_{digest}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    if os.environ.get("DSGMCMC_SHOW_KERNELS") == "1":
        say(f"# {module_name}", *source.split("\n"), file=sys.stderr)
    path = publish(cache_directory(), digest, f"{name}.py", source)
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
    """The line above a kernel's ``def``: one signature, so that racing processes write the same entry."""
    return f'@compiled("{signature}", nogil=True, error_model="numpy", fastmath={fastmath})'


def helper(fastmath: str = FAST) -> str:
    """The line above a function that kernels of the same module call; it lives inside their code."""
    return f'@njit(nogil=True, error_model="numpy", fastmath={fastmath})'


def indented(text: str | Sequence[str], depth: int = 1) -> list[str]:
    """Lines of a source, so many steps to the right."""
    lines = text.splitlines() if isinstance(text, str) else text
    return ["    " * depth + line for line in lines]

"""Numba: a kernel's source compiled, or its machine code loaded from Numba's cache.

Importing this module imports Numba, and turns its SLP vectorisation on for the whole process: without it the unrolled
kernels run at a quarter of their speed, and their last bits differ. So the generated modules alone import it
(`kernels.jit`), which is when a kernel is needed.
"""

from __future__ import annotations

import functools
import inspect
import platform
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import llvmlite
import llvmlite.binding
import numba
import numpy as np
from numba import types
from numba.core.caching import FunctionCache
from numba.core.runtime.nrt import rtsys
from numba.core.typeinfer import register_dispatcher
from numba.extending import intrinsic

from dsgmcmc.kernels import vectors
from dsgmcmc.kernels.cache import wait_for_turn

numba.config.SLP_VECTORIZE = 1  # type: ignore[attr-defined]


def compiled(signature: str, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a kernel of generated source: ``numba.njit(signature, cache=True, **options)``, loaded in less time."""

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(**options)(function)
        dispatcher._cache = cache = _Cache(function)
        with register_dispatcher(dispatcher), cache.turn:
            dispatcher.compile(signature)
        dispatcher.disable_compile()
        return dispatcher

    return decorate


@intrinsic
def wide_vectors(typing_context: Any) -> Any:
    """In a kernel: have its vectors 512 bits wide where the processor has such; compilers take half of that by default.

    Sums whose order is free (`kernels.jit.FAST`) are added in another one then, so that last bits differ.
    """

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        attributes = builder.function.attributes
        set.add(attributes, '"prefer-vector-width"="512"')  # its own `add` knows none that has a value
        return context.get_dummy_value()

    return types.none(), lower


def vector_width() -> int:
    """float32 in a register of the processor that is compiled for, of those with whole vectors of them: 16 or 8."""
    features = numba.config.CPU_FEATURES  # type: ignore[attr-defined]
    if features is None:
        features = llvmlite.binding.get_host_cpu_features().flatten()
    return 16 if "+avx512f" in features else 8


class _Cache(FunctionCache):
    """Numba's cache, without the compiler where there is nothing to compile, or where somebody else compiles it.

    Numba's own first imports all that it knows of Python and NumPy, a third of a second, also for machine code that is
    in the cache and needs none of it. The compiler imports it for itself when it starts.

    Processes that find nothing take turns for each kernel, so that the first one compiles it and the others load it.
    `turn` ends the turn of this process. Where the file system has no locks all compile it, and write the same.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self.turn = ExitStack()

    def load_overload(self, sig: str, target_context: Any) -> Any:
        rtsys.initialize(target_context)  # all that machine code needs besides itself: memory of arrays
        found = self._load(sig, target_context)
        if found is None and wait_for_turn(self._py_func.__code__.co_filename, self.turn):
            found = self._load(sig, target_context)
        return found

    def _load(self, sig: str, target_context: Any) -> Any:
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)  # type: ignore[no-untyped-call]


@functools.cache
def machine() -> str:
    """Everything besides the source that decides the machine code."""
    flags = (
        "OPT",
        "LOOP_VECTORIZE",
        "SLP_VECTORIZE",
        "CPU_NAME",
        "CPU_FEATURES",
        "BOUNDSCHECK",
        "DEBUGINFO_DEFAULT",
    )
    return "\n".join(
        (
            platform.python_implementation() + sys.version,
            numba.__version__,
            llvmlite.__version__,
            np.__version__,
            llvmlite.binding.get_process_triple(),
            llvmlite.binding.get_host_cpu_name(),
            llvmlite.binding.get_host_cpu_features().flatten(),
            *(f"{flag}={getattr(numba.config, flag, None)}" for flag in flags),
            inspect.getsource(vectors),
        )
    )

"""Compiles kernels with Numba, or loads their machine code from Numba's cache.

Importing this module imports Numba and turns on its SLP vectorisation for the whole process.
Without it the unrolled kernels run at a quarter of their speed, and their last bits differ. Only
generated modules import this module (`kernels.jit`), so it is imported when the first kernel is
needed.
"""

from __future__ import annotations

import base64
import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding
import numba
from numba import types
from numba.core.caching import FunctionCache
from numba.core.runtime.nrt import rtsys
from numba.core.typeinfer import register_dispatcher
from numba.extending import intrinsic

from dsgmcmc.kernels.compiling import vectors
from dsgmcmc.kernels.compiling.native import Argument, MachineCode

numba.config.SLP_VECTORIZE = 1  # type: ignore[attr-defined]


#: Fast-math flags of kernels: sums may be reordered and products fused. NaN and infinity keep their
#: meaning, so divergence shows in sums. Divisions and roots are exact: the approximate instructions
#: ("arcp", "afn") differ between makers of processors, turn 1 / sqrt(0) into NaN, and save no time.
FAST = set(vectors.FAST)
#: Flags of kernels that must be computed as written: their bits do not depend on the surrounding
#: code.
EXACT = {"contract"}

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}

#: Options of kernels that are called without Numba: no wrapper for Python, no memory of its own.
_WITHOUT_NUMBA: dict[str, Any] = {"no_cpython_wrapper": True, "_nrt": False}

#: Options of functions that only kernels call: no wrapper for Python.
_INNER: dict[str, Any] = {**_OPTIONS, "no_cpython_wrapper": True}

#: Decorators of functions that the kernels in their module call.
helper = numba.njit(**_INNER, fastmath=FAST)
exact_helper = numba.njit(**_INNER, fastmath=EXACT)


def kernel(signature: str, fastmath: set[str] = FAST) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a kernel as ``numba.njit(signature, cache=True)`` does, but load cached code faster.

    A single signature lets all processes write the same cache entry.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(**_OPTIONS, fastmath=fastmath)(function)
        dispatcher._cache = _Cache(function)  # type: ignore[no-untyped-call]
        with register_dispatcher(dispatcher):
            dispatcher.compile(signature)
        dispatcher.disable_compile()
        return dispatcher

    return decorate


def exported(
    signature: str, fastmath: set[str] = FAST
) -> Callable[[Callable[..., Any]], MachineCode]:
    """Decorate a kernel that is called without Numba (`kernels.native`)."""

    def decorate(function: Callable[..., Any]) -> MachineCode:
        dispatcher = numba.njit(**_OPTIONS, **_WITHOUT_NUMBA, fastmath=fastmath)(function)
        dispatcher.compile(signature)
        (compiled,) = dispatcher.overloads.values()
        module = compiled.library._final_module
        missing = [name for name in _external(module) if not hasattr(_PROCESS, name)]
        if missing:
            raise TypeError(f"{function.__name__} needs {', '.join(missing)}, which C lacks")
        symbol = compiled.fndesc.llvm_func_name
        arguments = [_argument(argument) for argument in compiled.signature.args]
        _refuse_other_layout(module.get_function(symbol), arguments)
        code = compiled.library.codegen._tm.emit_object(module)
        return MachineCode(
            name=function.__name__,
            symbol=symbol,
            arguments=arguments,
            code=base64.b64encode(code).decode(),
        )

    return decorate


#: Functions that any machine code in this process can call.
_PROCESS = ctypes.CDLL(None)


def _external(module: Any) -> list[str]:
    """Return names of functions that a module of LLVM calls, and does not have."""
    names = [function.name for function in module.functions if function.is_declaration]
    return [name for name in names if not name.startswith("llvm.")]


def _argument(numba_type: Any) -> Argument:
    """Return the type of an argument of a kernel."""
    if isinstance(numba_type, types.Array):
        return Argument(str(numba_type.dtype).replace("boolean", "bool"), numba_type.ndim)
    return Argument(str(numba_type), 0)


_LLVM_TYPES = {
    ctypes.c_void_p: "ptr",
    ctypes.c_int64: "i64",
    ctypes.c_double: "double",
    ctypes.c_float: "float",
}


def _refuse_other_layout(function: Any, arguments: Sequence[Argument]) -> None:
    """Raise TypeError if a function of LLVM has other arguments than `kernels.native` hands over.

    How Numba hands over arrays is not part of its interface. Another layout would make a kernel
    write anywhere.
    """
    found = [str(argument.type) for argument in function.arguments]
    found = ["ptr" if name.endswith("*") else name for name in found]  # older releases of LLVM
    c_types = [c_type for argument in arguments for c_type in argument.c_types]
    expected = ["ptr", "ptr", *(_LLVM_TYPES[c_type] for c_type in c_types)]
    if found != expected:
        raise TypeError(
            f"Numba {numba.__version__} hands over arrays otherwise than dsgmcmc expects: install"
            " an earlier release of Numba"
        )


@intrinsic
def wide_vectors(typing_context: Any) -> Any:
    """Make the vectors of a kernel 512 bits wide if the processor supports it.

    The compiler's default is 256 bits. Sums may be reordered (`FAST`), so the last bits of results
    depend on the width.
    """

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        # `attributes.add` accepts no attribute with a value
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.none(), lower


def vector_width() -> int:
    """Return the number of float32 in a vector register of this processor: 16 or 8."""
    features = numba.config.CPU_FEATURES  # type: ignore[attr-defined]
    if features is None:
        features = llvmlite.binding.get_host_cpu_features().flatten()
    if "+avx512f" in features:
        return 16
    return 8


class _Cache(FunctionCache):
    """Numba's cache, which loads cached code without preparing the compiler.

    Numba's class first registers all of its typing rules, which takes a third of a second even if
    the machine code is in the cache. The compiler registers them anyway when it starts.
    """

    def load_overload(self, sig: str, target_context: Any) -> Any:
        # cached machine code needs only the memory manager of arrays
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)  # type: ignore[no-untyped-call]


def configuration(flags: Sequence[str]) -> str:
    """Describe these flags of Numba, which variables or a file of its own may have set."""
    return "\n".join(f"{flag}={getattr(numba.config, flag, None)}" for flag in flags)

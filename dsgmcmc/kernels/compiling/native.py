"""Kernels in machine code that is called without Numba, which takes a third of a second to import.

Questions to a run, such as a recommendation, need a few kernels, each for some milliseconds. Numba
compiles them once (`kernels.compiler.exported`), without its wrappers for Python. From then on LLVM
links their machine code, and ctypes calls it, without the GIL. Such a kernel returns nothing and
allocates nothing. It calls only functions of the C library. Its arguments are checked as Numba's
kernels check theirs, since a wrong type would make it write anywhere.
"""

from __future__ import annotations

import base64
import ctypes
from typing import Any, NamedTuple

import numpy as np

from dsgmcmc.types import Array

#: The place of a buffer; `ndarray.ctypes` takes four times as long.
_Start = ctypes.c_char * 0
_NUMBERS = {"float64": float, "float32": float}
_SCALARS = {"float64": ctypes.c_double, "float32": ctypes.c_float, "int64": ctypes.c_int64}


class Argument(NamedTuple):
    """Type of an argument of a kernel: of the entries of an array, or of a number.

    Attributes
    ----------
    dtype : str
    ndim : int
        Dimensions of the array; 0 for a number.
    """

    dtype: str
    ndim: int

    @property
    def c_types(self) -> list[Any]:
        """Types of the values that stand for the argument in C."""
        if self.ndim == 0:
            return [_SCALARS[self.dtype]]
        pointers = [ctypes.c_void_p, ctypes.c_void_p]
        sizes = [ctypes.c_int64, ctypes.c_int64]
        return [*pointers, *sizes, ctypes.c_void_p, *[ctypes.c_int64] * (2 * self.ndim)]


class MachineCode(NamedTuple):
    """A compiled kernel, in types that JSON has.

    Attributes
    ----------
    name : str
    symbol : str
        Name of the function in the machine code.
    arguments : list of Argument
    code : str
        Object file, in base64.
    """

    name: str
    symbol: str
    arguments: list[Argument]
    code: str


class Kernel:
    """A kernel in machine code.

    Parameters
    ----------
    compiled : MachineCode
    """

    def __init__(self, compiled: MachineCode) -> None:
        self._name = compiled.name
        self._arguments = [
            (np.dtype(dtype), ndim, _NUMBERS.get(dtype, int)) for dtype, ndim in compiled.arguments
        ]
        c_types = [c_type for argument in compiled.arguments for c_type in argument.c_types]
        self._engine = _linked(base64.b64decode(compiled.code))  # it owns the machine code
        address = self._engine.get_function_address(compiled.symbol)
        function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *c_types)
        self._function = function(address)
        # Numba's functions have two results, which stay empty: a value, and an exception
        self._results = (ctypes.c_void_p * 2)()
        first = ctypes.addressof(self._results)
        self._places = (first, first + ctypes.sizeof(ctypes.c_void_p))

    def __call__(self, *arguments: Array | float) -> None:
        """Call the kernel.

        Raises TypeError if an array has another type or shape, or is not contiguous and writable.
        """
        values: list[Any] = []
        for argument, (dtype, ndim, convert) in zip(arguments, self._arguments, strict=True):
            if ndim == 0:
                values.append(convert(argument))
                continue
            array = np.asarray(argument)
            if array.dtype != dtype or array.ndim != ndim or not array.flags.carray:
                raise TypeError(
                    f"{self._name}: {array.dtype} array of {array.ndim} dimensions, expected"
                    f" contiguous {dtype} of {ndim}, writable"
                )
            values += (None, None, array.size, array.itemsize, _Start.from_buffer(array.data))
            values += array.shape
            values += array.strides
        self._function(*self._places, *values)


def from_json(stored: list[Any]) -> MachineCode:
    """Return a compiled kernel that was stored as JSON."""
    name, symbol, arguments, code = stored
    return MachineCode(name, symbol, [Argument(*argument) for argument in arguments], code)


def _linked(code: bytes) -> Any:
    """Link an object file, and return the engine of LLVM that holds it."""
    from llvmlite import binding  # slow to import

    machine = _target_machine()
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), machine)
    engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


def _target_machine() -> Any:
    """Return LLVM's description of this processor."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding.Target.from_triple(binding.get_process_triple()).create_target_machine()

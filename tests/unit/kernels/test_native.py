"""Kernels that are loaded without Numba."""

import sys
from contextlib import ExitStack

import numba
import numpy as np
import pytest
from llvmlite import binding
from support import Running

from dsgmcmc.kernels.compiling import compiler, jit
from dsgmcmc.kernels.compiling.native import Argument

SOURCE = '''\
@helper
def twice(x):
    return x + x


@kernel("void(float64[:, ::1], int64, float64, float32[::1])")
def fill(table, row, added, out):
    """out = 2 table[row] + added."""
    for k in range(out.shape[0]):
        out[k] = twice(table[row, k]) + added
'''

SCRIPT = f"""
import sys
import numpy as np
from dsgmcmc.kernels.compiling import jit
out = np.empty(3, np.float32)
jit.native_kernels("fill", {SOURCE!r})["fill"](np.arange(6.0).reshape(2, 3), np.int64(1), 0.5, out)
print(*out.tolist(), "numba" in sys.modules)
"""


def test_only_one_process_compiles_and_the_next_one_needs_no_numba(tmp_path):
    environment = {"DSGMCMC_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", SCRIPT]
    with ExitStack() as stack:
        started = [stack.enter_context(Running(command, environment)) for _ in range(3)]
        together = [running.wait().expect().out.split() for running in started]
    with Running(command, environment) as running:
        after = running.wait().expect().out.split()
    assert [words[:3] for words in (*together, after)] == [["6.5", "8.5", "10.5"]] * 4
    assert sorted(words[3] for words in together) == ["False", "False", "True"]
    assert after[3] == "False"


@pytest.mark.parametrize(
    ("variable", "compiles"), [("NUMBA_NUM_THREADS", "False"), ("NUMBA_OPT", "True")]
)
def test_only_flags_that_matter_compile_again(tmp_path, variable, compiles):
    """Batch scripts set the number of threads, which machine code does not depend on."""
    environment = {"DSGMCMC_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", SCRIPT]
    for others in ({}, {variable: "1"}):
        with Running(command, environment | others) as running:
            words = running.wait().expect().out.split()
    assert words == ["6.5", "8.5", "10.5", compiles]


def test_a_kernel_in_machine_code_has_the_bits_of_numba():
    """Protects the bits of predictions, whose sums are reordered."""
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(40, 133)).astype(np.float32)
    rows = np.arange(-3, 37)
    ends = np.array([0, 3, 40])
    source = """\
@kernel("void(float32[:, ::1], int64[::1], int64[::1], float32[:, ::1])")
def dots(matrix, rows, ends, out):
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            total = float32(0)
            for k in range(matrix.shape[1]):
                total += matrix[i, k] * matrix[j, k]
            out[i, j] = math.exp(total / matrix.shape[1]) + math.erfc(total)
"""
    results = np.empty((2, 40, 40), np.float32)
    jit.native_kernels("dots", source)["dots"](matrix, rows, ends, results[0])
    jit.compile_source("dots", source).dots(matrix, rows, ends, results[1])
    np.testing.assert_array_equal(results[0], results[1])


@pytest.mark.parametrize(
    "table",
    [
        np.zeros((2, 3), np.float32),
        np.zeros(6),
        np.zeros((3, 2)).T,
        np.zeros((2, 6))[:, ::2],
        np.broadcast_to(0.0, (2, 3)),
    ],
    ids=["type", "dimensions", "order", "stride", "read-only"],
)
def test_rejects_arrays_that_the_machine_code_would_misread(table):
    fill = jit.native_kernels("fill", SOURCE)["fill"]
    with pytest.raises(TypeError, match="fill: "):
        fill(table, 1, 0.5, np.empty(3, np.float32))


def test_rejects_too_few_arguments():
    with pytest.raises(ValueError, match="zip"):
        jit.native_kernels("fill", SOURCE)["fill"](np.zeros((2, 3)))


def test_rejects_a_kernel_that_allocates():
    """Memory of Numba could not be freed without Numba."""
    source = '@kernel("void(float64[::1])")\ndef copy(x):\n    x[:] = np.empty(len(x))\n'
    with pytest.raises(Exception, match="function empty"):
        jit.native_kernels("copy", source)


def test_refuses_a_compiler_that_hands_over_arrays_otherwise():
    """Such a kernel would write anywhere."""
    module = binding.parse_assembly(
        "define i32 @first(ptr %result, ptr %error, double %x) { ret i32 0 }\n"
        "define i32 @last(double %x, ptr %result, ptr %error) { ret i32 0 }\n"
    )
    arguments = [Argument("float64", 0)]
    compiler._refuse_other_layout(module.get_function("first"), arguments)
    with pytest.raises(TypeError, match=f"Numba {numba.__version__} hands over"):
        compiler._refuse_other_layout(module.get_function("last"), arguments)

"""The cache of compiled kernels: found again, shared by processes."""

import errno
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from support import Result, Running

from dsgmcmc.kernels.compiling import jit
from dsgmcmc.kernels.compiling.jit import cache_directory

SCRIPT = """
import logging
import sys
from dsgmcmc.kernels.compiling import jit
logging.basicConfig(level=logging.INFO, stream=sys.stderr)
source = '@kernel("float64(float64)")\\ndef double(x):\\n    return x + x\\n'
if len(sys.argv) > 1:
    source = source.replace("x + x", sys.argv[1])
module = jit.compile_source("double", source)
stats = module.double.stats
hits = sum(stats.cache_hits.values())
misses = sum(stats.cache_misses.values())
print(module.double(21.0), hits, misses, module.__file__)
print("numba.np.arraymath" in sys.modules, file=sys.stderr)  # of what the compiler knows of NumPy
"""


def finished(done: Result) -> tuple[float, int, int, Path, str]:
    """Result, cache hits, cache misses, module file and stderr of a process that compiles, or
    loads, one kernel.
    """
    result, hits, misses, path = done.expect().out.split()
    return float(result), int(hits), int(misses), Path(path), done.err


def run(environment: dict[str, str], *arguments: str) -> tuple[float, int, int, Path, str]:
    with Running([sys.executable, "-c", SCRIPT, *arguments], environment) as running:
        return finished(running.wait())


def test_what_processes_compile_together_is_not_compiled_again(tmp_path):
    """Of three processes that start at once one compiles; its machine code serves the others, and
    the next one. Of the processes of a launcher only the first says so.
    """
    cache = tmp_path / "deep" / "cache"
    environment = {"DSGMCMC_CACHE_DIR": str(cache)}
    with ExitStack() as stack:
        started = [
            stack.enter_context(
                Running([sys.executable, "-c", SCRIPT], environment | {"PMIX_RANK": str(rank)})
            )
            for rank in range(3)
        ]
        results = [finished(running.wait()) for running in started]
    assert {result[0] for result in results} == {42.0}
    found = sorted((*result[1:3], result[4].split()[-1]) for result in results)
    assert found == [(0, 1, "True"), (1, 0, "False"), (1, 0, "False")]
    assert sum(result[4].count("compiling kernels") for result in results) <= 1
    assert "compiling kernels" not in results[1][4] + results[2][4]
    (module,) = {result[3] for result in results}
    assert {entry.name for entry in cache.iterdir()} == {module.parent.name, "seconds"}
    *loaded, _, compiler = run(environment)
    assert (loaded, compiler.strip()) == ([42.0, 1, 0], "False")


def test_other_source_or_flags_are_other_code(tmp_path):
    """Protects the bits: neither another source nor another setting of the compiler finds this
    entry.
    """
    environment = {"DSGMCMC_CACHE_DIR": str(tmp_path)}
    first = run(environment)
    other = run(environment, "x + 1")
    assert other[:3] == (22.0, 0, 1)
    slower = run(environment | {"NUMBA_LOOP_VECTORIZE": "0"})
    assert slower[1:3] == (0, 1)
    assert len({first[3], other[3], slower[3]}) == 3


def test_the_seconds_are_those_of_the_longest_compilation(tmp_path):
    """A process that compiles little does not make the next one promise as little."""
    environment = {"DSGMCMC_CACHE_DIR": str(tmp_path)}
    assert "it takes about 10 s" in run(environment)[4]
    seconds = tmp_path / "seconds"
    assert 0 < float(seconds.read_text()) < 60
    seconds.write_text("61.3")
    assert "it took 61 s of a processor at most so far" in run(environment, "x + 1")[4]
    assert seconds.read_text() == "61.3"


def test_a_failed_write_of_numba_names_the_file(tmp_path, monkeypatch):
    """Numba's own error has no name of a file."""
    monkeypatch.setattr(jit, "cache_directory", lambda: tmp_path)
    with pytest.raises(OSError, match=rf"File too large: '{tmp_path}/.*/full\.py'"):
        jit.compile_source("full", f"raise OSError({errno.EFBIG}, 'File too large')\n")


def test_where_the_cache_is(tmp_path, monkeypatch):
    """Protects the documented places: XDG_CACHE_HOME before ~/.cache, DSGMCMC_CACHE_DIR before
    both.
    """
    for variable in ("DSGMCMC_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    for variable, folder in (
        ("HOME", "home/.cache/dsgmcmc"),
        ("XDG_CACHE_HOME", "xdg/dsgmcmc"),
        ("DSGMCMC_CACHE_DIR", "own"),
    ):
        monkeypatch.setenv(variable, str(tmp_path / folder.partition("/")[0]))
        assert cache_directory.__wrapped__() == tmp_path / folder
        assert (tmp_path / folder).stat().st_mode & 0o777 == 0o700

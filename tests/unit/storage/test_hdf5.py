"""No failed write of an HDF5 file is missed, and HDF5 closes cleanly after a failure or an
interrupt.
"""

import sys
from pathlib import Path

import pytest
from support import injected, run

WRITING = """
import sys
from pathlib import Path
from dsgmcmc.storage.hdf5 import new_hdf5
try:
    with new_hdf5(Path(sys.argv[1])) as (file, check):
        for number in range(40):
            file[f"a/{number}"] = [1.0] * (1 + 50_000 * (number % 2))
            check()
except (KeyboardInterrupt, OSError) as error:
    print(type(error).__name__, getattr(error, "filename", None), number)
links = [link for link in Path("/proc/self/fd").iterdir() if link.exists()]
assert not [link for link in links if str(link.readlink()) == sys.argv[1]]
"""


@pytest.mark.parametrize(("at", "after"), [(1, 0), (20, 19), (45, 39)])
@pytest.mark.parametrize(("what", "error"), [("int", "KeyboardInterrupt"), ("ENOSPC", "OSError")])
def test_a_write_that_fails_or_is_interrupted(
    tmp_path: Path, what: str, error: str, at: int, after: int
) -> None:
    """A failed or interrupted write ends the writing at the next check, or at the file's end."""
    path = tmp_path / "a.h5"
    done = run(sys.executable, "-c", WRITING, path, env=injected(f"write={what},at={at}"))
    named = path if error == "OSError" else None
    assert (done.code, done.out, done.err) == (0, f"{error} {named} {after}\n", "")

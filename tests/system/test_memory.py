"""Memory of whole commands on 20 million ratings: a real file, real processes, the kernel's own
account.
"""

import json
import sys
from pathlib import Path

import pytest
from support import dsgmcmc, run, write_planted, write_synthetic

from dsgmcmc.ratings.file import Ratings

pytestmark = pytest.mark.long
RATINGS = 20_200_000
USERS = 100_000
ITEMS = 25_000
RANK = 32
#: Runs a command and prints its peak memory in KiB. To the kernel, a process begins with the peak
#: of the process that starts it, and the tests before this one may have needed gigabytes.
SMALL_PARENT = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The ratings file, what ``prepare`` said of it, its peak memory in bytes, and the exact number
    of ratings.
    """
    folder = tmp_path_factory.mktemp("big")
    raw = folder / "big.csv"
    out = folder / "big.h5"
    n = write_synthetic(raw, USERS, ITEMS, RATINGS)
    command = dsgmcmc("prepare", raw, out, "--memory", "2GB", "--json")
    done = run(sys.executable, "-c", SMALL_PARENT, *command, timeout=600).expect()
    raw.unlink()
    return out, json.loads(done.out), 1024 * int(done.err.splitlines()[-1]), n


def test_prepare_stays_below_2_gb(prepared):
    """20 million ratings are prepared in under 2 GB, and what is written is what was read."""
    out, sizes, peak, n = prepared
    assert n >= 20_000_000
    assert peak < 2e9
    assert (sizes["users"], sizes["items"], sizes["ratings"]) == (USERS, ITEMS, n)
    assert sizes["test"] == int(0.1 * n + 0.5)
    with Ratings(out) as ratings:
        assert ratings.column_counts.sum() == ratings.nnz == sizes["train"]
        ratings.slab("train", 0, 5000)


def peaks(data: Path, out: Path, processes: int, sampler: str) -> list[int]:
    """Peak memory of every process of a short run, bytes; its checkpoint included."""
    options = (
        "--sampler",
        sampler,
        "--rank",
        str(RANK),
        "--iterations",
        "8",
        "--burn-in",
        "4",
        "--save-draws",
        "0",
    )
    run(
        *dsgmcmc("sample", data, "--out", out, *options, "--grid", "4", processes=processes)
    ).expect()
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    return summary["peak_rss_bytes"]


@pytest.mark.parametrize("processes", [1, 2])
def test_sample_needs_little_more_than_its_ratings_and_factors(prepared, tmp_path, processes):
    """Peak RSS per process <= interpreter and libraries + 1.3 x (its ratings + its factor state) +
    two fields.

    The interpreter is measured with a trivial data set. A training rating takes 3 bytes: its column
    is one of fewer than 65,536 in a block, and its value one of ten. A test rating takes 28. Factor
    state, in float32: position, momentum, gradient and direction of the largest curvature, and the
    posterior's mean and variance. Where column blocks travel, there are besides, for each that is
    held, one that leaves and one that arrives: of position and gradient, and of what a tour for the
    curvature sends. The two fields are there while the curvature is estimated: the vectors that
    rows multiply others by, and the products.
    """
    out, sizes, _, _ = prepared
    trivial = max(peaks(write_planted(tmp_path / "tiny.h5"), tmp_path / "tiny", processes, "baoab"))
    travelling = 0 if processes == 1 else (2 + 3) * 2
    factors = ((sizes["users"] + sizes["items"]) * 6 + sizes["items"] * travelling) * (RANK + 1) * 4
    share = 1 / processes
    estimated = 2 * (sizes["users"] + sizes["items"]) * (RANK + 1) * 4
    for peak in peaks(out, tmp_path / "run", processes, "baoab"):
        assert (
            peak
            <= trivial
            + 1.3 * share * (3 * sizes["train"] + 28 * sizes["test"] + factors)
            + share * estimated
        )

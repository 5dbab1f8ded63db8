"""The whole way of made-up ratings, from lines in a Parquet file to lists for all users, step by
step, and beside it what polars and implicit need.

    python tests/benchmarks/whole_way.py 1 20 100 --out whole-way
    python tests/benchmarks/whole_way.py 20 --out whole-way --before ../before

Numbers are millions of lines; `whole_way_lines.py` says how they are made. Every step is a command
of its own, which starts, reads and writes. A short run compiles kernels first, and does not count.

- `prepare`, with 6 GB of memory, beside polars reading, numbering, removing repeated pairs, sorting
  and writing. It also checks names and values, holds out a tenth, and describes the table.
- `sample`: from two runs of 20 and 60 sweeps, a sweep, and start and end together. Beside: polars
  reading the sorted ratings, and making implicit's matrix; from two fits, an iteration of its
  alternating least squares. A sweep draws once, an iteration minimises.
- `evaluate`.
- `recommend --all --by mean` of the 5 to 10 saved draws, beside implicit's lists of one product.

`--before` is a checkout of an earlier version, which stands beside in place of other packages. A
table is printed for each number: seconds on the clock, processor seconds and the peak of memory,
first ours. Not part of the tests.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from bench import TESTS, arguments, python_with, run_program, say, say_head

ROOT = TESTS.parent
PACKAGES = ("polars==2.1.0", "implicit==0.7.3", "scipy==1.17.1")
#: Sweeps and iterations of the short and the long run.
SWEEPS = (20, 60)
ITERATIONS = (2, 6)


class Cost(NamedTuple):
    """Seconds on the clock, processor seconds, and the peak of memory in bytes."""

    clock: float
    processor: float
    memory: float


def split(short: Cost, long: Cost, numbers: tuple[int, int]) -> tuple[Cost, Cost]:
    """What two runs have in common, and what one of their sweeps needs."""
    more = numbers[1] - numbers[0]
    sweep = Cost(
        (long.clock - short.clock) / more, (long.processor - short.processor) / more, long.memory
    )
    common = Cost(
        short.clock - numbers[0] * sweep.clock,
        short.processor - numbers[0] * sweep.processor,
        short.memory,
    )
    return common, sweep


def cost_of(folder: Path, *command: object, checkout: Path = ROOT) -> Cost:
    """Run a command in `folder`. A command that fails ends the script with its messages."""
    begin = time.time()
    with (folder / "messages.txt").open("w+", encoding="utf-8") as messages:
        process = subprocess.Popen(
            [str(word) for word in command],
            cwd=folder,  # Python finds packages of this folder first
            env={**os.environ, "PYTHONPATH": str(checkout)},
            stdout=messages,
            stderr=messages,
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        clock = time.time() - begin
        if process.returncode:
            messages.seek(0)
            raise SystemExit(f"{' '.join(map(str, command))}\n{messages.read()}")
    return Cost(clock, used.ru_utime + used.ru_stime, 1024 * used.ru_maxrss)


def our_steps(folder: Path, lines: Path, checkout: Path) -> dict[str, Cost]:
    """Costs of the steps of a version, by their names."""

    def step(*words: object) -> Cost:
        return cost_of(folder, sys.executable, "-m", "dsgmcmc", *words, checkout=checkout)

    def sample(sweeps: int) -> Cost:
        shutil.rmtree(folder / "run", ignore_errors=True)
        length = (f"--iterations={sweeps}sweeps", "--burn-in=10sweeps", "--save-draws=5")
        return step("sample", "ratings.h5", "--out=run", "--sampler=baoab", "--rank=32", *length)

    folder.mkdir(exist_ok=True)
    prepared = step("prepare", lines, "ratings.h5", "--memory=6GB", "--force")
    sample(SWEEPS[0])  # compiles kernels
    common, sweep = split(*(sample(sweeps) for sweeps in SWEEPS), SWEEPS)
    listed = ("recommend", "run", "--all", "--by=mean", "-o=lists.parquet")
    return {
        "prepare": prepared,
        "start and end": common,
        "sweep": sweep,
        "evaluate": step("evaluate", "run"),
        "lists": step(*listed),
    }


def peer_steps(folder: Path, lines: Path, python: Path) -> dict[str, Cost]:
    """Costs of the steps of other packages, by the names of ours."""
    script = Path(__file__).with_name("whole_way_peers.py")

    def step(*words: object) -> Cost:
        return cost_of(folder, python, script, *words)

    folder.mkdir(exist_ok=True)
    prepared = step("prepare", lines, "ratings.parquet")
    read = step("read", "ratings.parquet", "matrix.npz")
    fits = [step("fit", "matrix.npz", "factors.npz", number) for number in ITERATIONS]
    return {
        "prepare": prepared,
        "start and end": read,
        "sweep": split(*fits, ITERATIONS)[1],
        "lists": step("recommend", "matrix.npz", "factors.npz", "lists.npy"),
    }


def cells(cost: Cost | None) -> tuple[str, ...]:
    """Cells of a table: seconds on the clock, processor seconds, GB."""
    if cost is None:
        return ("", "", "")
    return (f"{cost.clock:.3g}", f"{cost.processor:.3g}", f"{cost.memory / 1e9:.2f}")


def main() -> None:
    """Print a table for every number of lines."""
    parser = arguments(__doc__)
    parser.add_argument("millions", type=int, nargs="+", help="lines, in millions")
    parser.add_argument("--out", type=Path, default=Path("whole-way"), help="folder for all files")
    parser.add_argument("--before", type=Path, help="checkout of an earlier version")
    given = parser.parse_args()
    out = given.out.resolve()
    out.mkdir(exist_ok=True)
    python = None if given.before else python_with(out / "env", *PACKAGES)
    for millions in given.millions:
        lines = out / f"lines-{millions}.parquet"
        if not lines.exists():
            make = Path(__file__).with_name("whole_way_lines.py")
            run_program(sys.executable, make, millions, lines)
        if python is None:
            beside = our_steps(out / "before", lines, given.before.resolve())
        else:
            beside = peer_steps(out / "peers", lines, python)
        ours = our_steps(out / "ours", lines, ROOT)
        say_head(f"{millions} million", *2 * ("clock, s", "processor, s", "GB"))
        for name, cost in ours.items():
            say(name, *cells(cost), *cells(beside.get(name)))


if __name__ == "__main__":
    main()

"""Processor seconds of first commands, whose kernels are compiled, beside the same commands warm.

    python tests/benchmarks/cold.py DATASETS/ml-100k/u.data
    python tests/benchmarks/cold.py DATASETS/ml-100k/u.data --rounds 3 --auto

Cold is an empty ``DSGMCMC_CACHE_DIR`` for each command; it is followed by the same command with the
kernels that the cold one has compiled. Both are medians over rounds, user and system. The parts are
those of the cold command: Numba's import, its type inference, LLVM (optimisation, machine code and
linking) and the rest of Numba, which is mostly lowering. A part does not contain the others.
``--auto`` adds ``sample --model auto``. Not part of the tests.
"""

import json
import os
import runpy
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import arguments, processor_seconds, say, say_head

#: Parts of the compiler, by the events of Numba that they consist of.
LLVM = "LLVM"
TYPES = "types"
REST = "rest"
IMPORT = "import"
PARTS = (IMPORT, TYPES, REST, LLVM)
EVENTS = ("numba:compile", "numba:run_pass", "numba:llvm_lock")
#: File to which a command writes the seconds of the parts.
SECONDS = "DSGMCMC_COLD_SECONDS"


class Parts:
    """Listens to Numba, and charges processor time to the innermost part."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self._inside: list[str] = []
        self._since = 0.0

    def on_start(self, event: Any) -> None:
        """Begin a part."""
        self._charge()
        part = REST
        if event.kind == "numba:llvm_lock":
            part = LLVM
        elif event.kind == "numba:run_pass" and "type_inference" in event.data["name"]:
            part = TYPES
        self._inside.append(part)

    def on_end(self, event: Any) -> None:
        """Go back to the part around it."""
        self._charge()
        self._inside.pop()

    def _charge(self) -> None:
        now = time.process_time()
        if self._inside:
            self.seconds[self._inside[-1]] += now - self._since
        self._since = now


def run_inside(words: list[str]) -> None:
    """Run a command in this process, and write the seconds of the compiler's parts to a file."""
    begin = time.process_time()
    from numba.core import event

    listening = type("Listening", (Parts, event.Listener), {})
    parts = listening()
    parts.seconds[IMPORT] = time.process_time() - begin
    for kind in EVENTS:
        event.register(kind, parts)  # type: ignore[no-untyped-call]
    sys.argv = ["dsgmcmc", *words]
    try:
        runpy.run_module("dsgmcmc", run_name="__main__")
    finally:
        Path(os.environ[SECONDS]).write_text(json.dumps(parts.seconds))


def execute(cache: Path, words: tuple[str, ...], parts: Path | None = None) -> float:
    """Run ``dsgmcmc`` with this folder of kernels; its processor seconds."""
    program = ["-m", "dsgmcmc"]
    environment = {**os.environ, "DSGMCMC_CACHE_DIR": str(cache)}
    if parts is not None:
        program = [__file__, "--inside"]
        environment[SECONDS] = str(parts)
    if "--out" in words:
        out = Path(words[words.index("--out") + 1])
        if words[0] == "sample":
            shutil.rmtree(out, ignore_errors=True)
        else:
            out.unlink(missing_ok=True)
    before = processor_seconds()
    done = subprocess.run(
        [sys.executable, *program, *words],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stderr}")
    return processor_seconds() - before


def measure(words: tuple[str, ...], folder: Path, rounds: int) -> tuple[str, ...]:
    """Cells of a command: cold, warm, and the parts of a cold one."""
    cold = []
    warm = []
    for _ in range(rounds):
        cache = Path(tempfile.mkdtemp(dir=folder))
        cold.append(execute(cache, words))
        warm.append(execute(cache, words))
    parts = folder / "parts.json"
    execute(Path(tempfile.mkdtemp(dir=folder)), words, parts)
    seconds = json.loads(parts.read_text())
    figures = [statistics.median(cold), statistics.median(warm), *(seconds[p] for p in PARTS)]
    return tuple(f"{figure:.1f}" for figure in figures)


def main() -> None:
    """Print the table."""
    if sys.argv[1:2] == ["--inside"]:
        run_inside(sys.argv[2:])
        return
    parser = arguments(__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--auto", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ratings = str(folder / "ratings.h5")
        run = str(folder / "run")
        pairs = folder / "pairs.csv"
        execute(folder, ("prepare", str(options.table), ratings))
        lines = options.table.read_text().splitlines()[:18_000]
        pairs.write_text("\n".join(["user,item", *(",".join(x.split()[:2]) for x in lines)]))
        user = lines[0].split()[0]
        commands: list[tuple[str, ...]] = [("sample", ratings, "--out", run)]
        if options.auto:
            automatic = ("--model", "auto", "--out", str(folder / "auto"))
            commands.append(("sample", ratings, *automatic))
        commands += [
            ("predict", run, str(pairs), "--out", str(folder / "predictions.csv")),
            ("recommend", run, "--user", user),
            ("report", run, "--out", str(folder / "report.html")),
        ]
        say_head("command", "cold", "warm", "import", "types", "rest of Numba", "LLVM")
        for words in commands:
            shown = " ".join(
                word for word in words if not word.startswith(name) and word != "--out"
            )
            say(f"`{shown}`", *measure(words, folder, options.rounds))


if __name__ == "__main__":
    main()

"""From command to answer: what a person waits for, in one table, beside its aims and the rivals.

    python tests/benchmarks/answer.py ml-1m.h5 --out answer [--large ml-20m.h5] [--repeats 5]

- start-up and other commands: ``startup.py``, whose rows they are;
- a sweep on two processes over its gradient kernels, with one noise and with noise by user and item;
- the same sweeps on one process over those on two, also for the file that --large names;
- seconds of sampling to SMURFF's end on the same split, and those of SMURFF, myFM and LIBMF to theirs: ``rivals.py``,
  with Gibbs beside every time.

Repetitions take turns, medians count, and seconds mean something on a quiet machine only. Writes answer.json and prints
the table. Not part of the tests.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from startup import command, measure

SMURFF, ITS = "SMURFF's end", "its end"
HERE = Path(__file__).resolve().parent
NOISE = {"shared": (), "both": ("--noise", "both")}
RIVALS = "BAOAB / tau 1.6,BAOAB,BAOAB / own noise,smurff,myfm,libmf"
AIMS = {
    "sample, warm: until the first sweep is done": 1.0,
    "sample, cold: until the first sweep is done": 6.0,
    "predict: wall": 0.7,
    "recommend: wall": 0.8,
    "info: wall": 0.7,
    "--help: wall": 0.25,
    "sweep over its gradient kernels, shared": 1.25,
    "sweep over its gradient kernels, both": 1.35,
    "two processes against one, DATA": 1.85,
    "two processes against one, LARGE": 1.95,
    "to SMURFF's end, BAOAB, tau 1.6": 0.25,
    "to SMURFF's end, BAOAB, own noise": 0.15,
}
"""At most so many seconds, or so large a ratio; two processes at least."""


def sampled(data: Path, out: Path, processes: int, sweeps: int, *arguments: str) -> dict[str, Any]:
    """The summary of a run that evaluates, saves and stops for nothing on its way."""
    quiet = ("--evaluate-every", f"{sweeps}sweeps", "--save-draws", "0", "--grid", "4")
    length = ("--iterations", f"{sweeps}sweeps", "--burn-in", f"{sweeps // 2}sweeps")
    command("sample", data, "--out", out, *length, *quiet, *arguments, processes=processes)
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    return summary


def seconds(summary: dict[str, Any]) -> float:
    """Of its sweeps alone: no evaluation, no snapshot."""
    aside = (summary["phases"][phase]["mean"] for phase in ("evaluate", "checkpoint"))
    return float(summary["seconds_sampling"]) - sum(aside)


def sweeps(data: Path, label: str, repeats: int, number: int) -> dict[str, list[float]]:
    """Ratios of sweeps, `repeats` of each; those over kernels of the first file alone."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="dsgmcmc-bench-") as name:
        for turn in range(repeats):
            for noise, arguments in NOISE.items():
                two = sampled(data, Path(name) / f"{noise}-{turn}-2", 2, number, *arguments)
                if label == "DATA":
                    ratio = seconds(two) / two["phases"]["gradient"]["mean"]
                    found.setdefault(f"sweep over its gradient kernels, {noise}", []).append(ratio)
                if noise == "shared":
                    one = sampled(data, Path(name) / f"{turn}-1", 1, number)
                    ratio = seconds(one) / seconds(two)
                    found.setdefault(f"two processes against one, {label}", []).append(ratio)
    return found


def rivals(data: Path, out: Path, repeats: int) -> dict[str, list[float]]:
    """Seconds of sampling to SMURFF's end, and each rival's to its own, `repeats` of each."""
    found: dict[str, list[float]] = {}
    for turn in range(repeats):
        folder = out / f"rivals-{turn}"
        arguments = [data, "--out", folder, "--only", RIVALS, "--iterations", "100sweeps"]
        arguments += ["--environment", out / "environment"]  # installed once
        subprocess.run([sys.executable, HERE / "rivals.py", *arguments], check=True)
        table = json.loads((folder / "rivals.json").read_text(encoding="utf-8"))
        for label, line in table.items():
            ours = label.startswith("BAOAB")
            reached = line["seconds_to_target"] if ours else line["seconds"]
            if reached is not None:
                found.setdefault(f"to {SMURFF if ours else ITS}, {label}", []).append(reached)
            found.setdefault(f"RMSE at its end, {label}", []).append(line["rmse"])
    return found


def main() -> None:
    """Measure everything, print the table, write answer.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA.h5", help="ratings file, with test ratings")
    parser.add_argument("--large", type=Path, metavar="DATA.h5", help="one of some 20 million ratings")
    parser.add_argument("--out", type=Path, default=Path("answer"))
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    found = measure(given.data, 2, given.repeats)
    found |= sweeps(given.data, "DATA", given.repeats, 300)
    if given.large is not None:
        found |= sweeps(given.large, "LARGE", given.repeats, 20)
    found |= rivals(given.data, given.out, given.repeats)
    (given.out / "answer.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for name, values in found.items():
        aim = f"{AIMS[name]:6.2f}" if name in AIMS else "     -"
        digits = 4 if name.startswith("RMSE") else 2
        middle, low, high = (f"{f(values):.{digits}f}" for f in (statistics.median, min, max))
        print(f"{name:48} {middle:>7}  aim {aim}   ({low} to {high})")


if __name__ == "__main__":
    main()

"""The numbers of many small runs, as digests, before and after a change that must not move them.

    python tests/benchmarks/digests.py before.json        # before: writes the table
    python tests/benchmarks/digests.py before.json        # after: compares with it, status 1 where a number has moved
    python tests/benchmarks/digests.py before.json --only gibbs --processes 1

Every configuration is sampled whole by one process, whole by two, and on three processes in two goes, the second of
them on two; all must agree. What is digested are the numbers that a run exports: hyperparameters and predictions of
held-out ratings by draw (netCDF), and factors by draw and on average (Parquet). A digest is of little-endian bytes and
has the public name of the numbers. A name that has changed is said, and counts as no change where the numbers are still
there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pyarrow.parquet as parquet

sys.path.insert(0, str(Path(__file__).parents[1]))
from dataclasses import replace

from shapes import Ratings, counts, half_stars, normal
from support import dsgmcmc, run

Digests = dict[str, str]

LENGTH = ("--grid", "5", "--burn-in", "6", "--thin", "3", "--save-draws", "4", "--on-divergence", "stop")
STOP, END = 13, 29
ORDINAL = ("--likelihood", "ordinal-logit")
SMALL = ("--step-size", "0.05")

#: Options by configuration; the first word is the kind of ratings.
CONFIGURATIONS: dict[str, str] = {
    **{
        f"{name}": f"stars --sampler {name}" for name in ("baoab", "sgld", "psgld", "hamcmc", "gibbs", "sghmc", "sgrld")
    },
    "sgnht": "stars --sampler sgnht --set schedule=random",
    **{f"{name} by-user": f"stars --sampler {name} --noise by-user" for name in ("baoab", "gibbs", "psgld", "sghmc")},
    **{f"{name} both": f"stars --sampler {name} --noise both" for name in ("baoab", "gibbs", "hamcmc", "sgld")},
    **{f"{name} wishart": f"stars --sampler {name} --prior normal-wishart" for name in ("baoab", "gibbs", "psgld")},
    **{f"{name} fixed": f"stars --sampler {name} --prior fixed" for name in ("baoab", "gibbs", "sgld")},
    **{f"{name} rank 0": f"stars --sampler {name} --rank 0" for name in ("baoab", "gibbs", "sgld")},
    **{f"{name} implicit": f"stars --sampler {name} --implicit-features both" for name in ("baoab", "gibbs", "psgld")},
    **{f"{name} features": f"genres --sampler {name}" for name in ("baoab", "gibbs", "psgld")},
    **{
        f"{name} time": f"genres --sampler {name} --features no --time-levels user"
        for name in ("baoab", "gibbs", "psgld")
    },
    **{f"{name} kronecker": f"stars --sampler {name} --set sampler.metric=kronecker" for name in ("baoab", "sghmc")},
    "baoab two chains": "stars --chains 2",
    "baoab no biases": "stars --no-biases",
    "student-t": "normal --likelihood student-t",
    "student-t both": "normal --likelihood student-t --noise both",
    "student-t time": "genres --likelihood student-t --time-levels user",
    "ordinal-logit": "stars --likelihood ordinal-logit",
    "ordinal-logit both": "stars --likelihood ordinal-logit --noise both",
    "ordinal-logit psgld": "stars --likelihood ordinal-logit --sampler psgld",
    "ordinal-logit thresholds": "stars --likelihood ordinal-logit --noise by-item --thresholds user",
    "ordinal-logit all parts": "genres --likelihood ordinal-logit --noise by-item --thresholds user "
    "--implicit-features both --time-levels user",
    "negative-binomial": "counts --likelihood negative-binomial",
    "negative-binomial implicit": "counts --likelihood negative-binomial --implicit-features user",
    "all-cells": "clicks --likelihood all-cells",
    "all-cells gibbs": "clicks --likelihood all-cells --sampler gibbs",
}


def prepared(folder: Path) -> None:
    """Ratings files of every kind."""
    films = half_stars(0, 60, 200, 1500)
    kinds: dict[str, Ratings] = {"genres": films, "stars": replace(films, time=None, genres=None)}
    kinds["clicks"] = replace(kinds["stars"], value=np.ones_like(films.value))
    kinds |= {"normal": normal(0), "counts": counts(0)}
    for name, ratings in kinds.items():
        ratings.prepare(folder / f"{name}.h5")


def numbers(out: Path, folder: Path) -> Iterator[tuple[str, np.ndarray]]:
    """All numbers that a run exports, by their names."""
    for options in ((), ("--draws",)):
        run(*dsgmcmc("export", out, "--out", folder / "x.parquet", "--force", *options)).expect(0)
        table = parquet.read_table(folder / "x.parquet")
        for name in table.column_names:
            column = table.column(name).to_pylist()
            yield f"{'draws' if options else 'moments'}/{name}", np.array([str(each) for each in column], "S40")
    run(*dsgmcmc("export", out, "--out", folder / "x.nc", "--force")).expect(0)
    found: dict[str, np.ndarray] = {}
    with h5py.File(folder / "x.nc") as file:
        file.visititems(lambda name, each: found.update({name: each[()]}) if isinstance(each, h5py.Dataset) else None)
    yield from found.items()


def digests(out: Path, folder: Path) -> Digests:
    """Digests of all numbers that a run exports, by their names."""
    made = {}
    for name, values in numbers(out, folder):
        if values.dtype.kind in "fiuS":
            bytes_of = np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes()
            made[name] = hashlib.sha256(bytes_of).hexdigest()[:16]
    return made


def sampled(name: str, data: Path, folder: Path, processes: int) -> Digests:
    """Digests of a configuration; SystemExit where numbers of processes, or a stop, change them."""
    kind, *options = CONFIGURATIONS[name].split()
    if "--rank" not in options:
        options += ["--rank", "3"]
    if "sampler.metric=kronecker" in options or "--sampler" not in options or "baoab" in options:
        options += SMALL
    begin = ("sample", data / f"{kind}.h5", *options, *LENGTH)
    found: list[Digests] = []
    for number in range(1, processes + 1):
        out, more = folder / f"run-{number}", ("--resume", "--iterations", str(END))
        if number == 3:
            run(*dsgmcmc(*begin, "--out", out, "--iterations", str(STOP), processes=3)).expect(0)
            run(*dsgmcmc("sample", data / f"{kind}.h5", "--out", out, *more, processes=2)).expect(0)
        else:
            run(*dsgmcmc(*begin, "--out", out, "--iterations", str(END), processes=number)).expect(0)
        found.append(digests(out, folder))
        if found[-1] != found[0]:
            moved = ", ".join(sorted(key for key, value in found[0].items() if found[-1].get(key) != value))
            raise SystemExit(f"{name}: {number} processes have other numbers than one: {moved}")
    return found[0]


def changes(before: Digests, after: Digests) -> Iterator[str]:
    """What is said of a configuration: names that have changed, and, with a "!", numbers that have moved."""
    gone, new = set(before) - set(after), set(after) - set(before)
    for name in sorted(gone):
        same = sorted(other for other in new if after[other] == before[name])
        yield f"{name} is now {same[0]}" if same else f"! {name} is gone"
    yield from (f"! {name} has moved" for name in sorted(set(before) & set(after)) if before[name] != after[name])


def main() -> int:
    """Write the table, or compare with it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--only", default="", help="configurations whose names contain this")
    parser.add_argument("--processes", type=int, default=3, choices=(1, 2, 3), help="the most; default 3")
    arguments = parser.parse_args()
    before = json.loads(arguments.table.read_text(encoding="utf-8")) if arguments.table.exists() else {}
    after, moved = {}, 0
    with tempfile.TemporaryDirectory() as place:
        prepared(data := Path(place))
        for name in [name for name in CONFIGURATIONS if arguments.only in name]:
            with tempfile.TemporaryDirectory(dir=place) as folder:
                after[name] = sampled(name, data, Path(folder), arguments.processes)
            said = list(changes(before[name], after[name])) if name in before else [f"{len(after[name])} numbers"]
            moved += any(line.startswith("!") for line in said)
            print(f"{name}: {'; '.join(said) or 'as before'}", flush=True)
    if not before:
        arguments.table.write_text(json.dumps(after, indent=1) + "\n", encoding="utf-8")
    return int(moved > 0)


if __name__ == "__main__":
    sys.exit(main())

"""Digests of the numbers of many small runs, before and after a change that must not move them.

    python tests/benchmarks/digests.py before.json  # before: writes the table
    python tests/benchmarks/digests.py before.json  # after: compares; status 1 where one has moved
    python tests/benchmarks/digests.py before.json --only gibbs --processes 1

Every configuration is sampled by one process, by two, and by three that are stopped and resumed as
two; all must agree. The digests are those of the numbers that a run exports, as little-endian bytes
and under their public names: hyperparameters and predictions of held-out ratings by draw (netCDF),
and factors by draw and on average (Parquet). A changed name is printed, but is no failure if its
numbers are there under another name.
"""

import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pyarrow.parquet as parquet
from bench import arguments
from shapes import Ratings, counts, half_stars, normal
from support import dsgmcmc, run

Digests = dict[str, str]

LENGTH = (
    "--grid",
    "5",
    "--burn-in",
    "6",
    "--thin",
    "3",
    "--save-draws",
    "4",
    "--on-divergence",
    "stop",
)
STOP = 13
END = 29
SMALL = ("--step-size", "0.05")

#: Options by configuration; the first word is the kind of ratings.
CONFIGURATIONS: dict[str, str] = {
    **{
        f"{name}": f"stars --sampler {name}"
        for name in ("baoab", "sgld", "psgld", "hamcmc", "gibbs", "sghmc", "sgrld")
    },
    "sgnht": "stars --sampler sgnht --set schedule=random",
    **{
        f"{name} by-user": f"stars --sampler {name} --noise by-user"
        for name in ("baoab", "gibbs", "psgld", "sghmc")
    },
    **{
        f"{name} both": f"stars --sampler {name} --noise both"
        for name in ("baoab", "gibbs", "hamcmc", "sgld")
    },
    **{
        f"{name} wishart": f"stars --sampler {name} --prior normal-wishart"
        for name in ("baoab", "gibbs", "psgld")
    },
    **{
        f"{name} fixed": f"stars --sampler {name} --prior fixed"
        for name in ("baoab", "gibbs", "sgld")
    },
    **{f"{name} rank 0": f"stars --sampler {name} --rank 0" for name in ("baoab", "gibbs", "sgld")},
    **{
        f"{name} implicit": f"stars --sampler {name} --implicit-features both"
        for name in ("baoab", "gibbs", "psgld")
    },
    **{f"{name} features": f"genres --sampler {name}" for name in ("baoab", "gibbs", "psgld")},
    **{
        f"{name} time": f"genres --sampler {name} --features no --time-levels user"
        for name in ("baoab", "gibbs", "psgld")
    },
    **{
        f"{name} kronecker": f"stars --sampler {name} --set sampler.metric=kronecker"
        for name in ("baoab", "sghmc")
    },
    "baoab two chains": "stars --chains 2",
    "baoab no biases": "stars --no-biases",
    "student-t": "normal --likelihood student-t",
    "student-t both": "normal --likelihood student-t --noise both",
    "student-t time": "genres --likelihood student-t --time-levels user",
    "ordinal-logit": "stars --likelihood ordinal-logit",
    "ordinal-logit both": "stars --likelihood ordinal-logit --noise both",
    "ordinal-logit psgld": "stars --likelihood ordinal-logit --sampler psgld",
    "ordinal-logit thresholds": (
        "stars --likelihood ordinal-logit --noise by-item --thresholds user"
    ),
    "ordinal-logit all parts": (
        "genres --likelihood ordinal-logit --noise by-item --thresholds user "
        "--implicit-features both --time-levels user"
    ),
    "ordinal-logit two levels gibbs": "votes --likelihood ordinal-logit --sampler gibbs",
    "ordinal-logit two levels gibbs, all parts": (
        "liked --likelihood ordinal-logit --sampler gibbs --implicit-features both "
        "--time-levels user"
    ),
    "negative-binomial": "counts --likelihood negative-binomial",
    "negative-binomial implicit": "counts --likelihood negative-binomial --implicit-features user",
    "all-cells": "clicks --likelihood all-cells",
    "all-cells gibbs": "clicks --likelihood all-cells --sampler gibbs",
}


def prepare(folder: Path) -> None:
    """Write ratings files of every kind."""
    films = half_stars(0, 60, 200, 1500)
    kinds: dict[str, Ratings] = {"genres": films, "stars": replace(films, time=None, genres=None)}
    liked = (films.value > 3.5).astype(films.value.dtype)
    kinds["liked"] = replace(films, value=liked)
    kinds["votes"] = replace(kinds["stars"], value=liked)
    kinds["clicks"] = replace(kinds["stars"], value=np.ones_like(films.value))
    kinds |= {"normal": normal(0), "counts": counts(0)}
    for name, ratings in kinds.items():
        ratings.prepare(folder / f"{name}.h5")


def digests(out: Path, folder: Path) -> Digests:
    """Digests of all numbers that a run exports, by their names."""
    arrays: dict[str, np.ndarray] = {}
    for statistic, options in (("moments", ()), ("draws", ("--draws",))):
        run(*dsgmcmc("export", out, "--out", folder / "x.parquet", "--force", *options)).expect(0)
        table = parquet.read_table(folder / "x.parquet")
        for name in table.column_names:
            arrays[f"{statistic}/{name}"] = np.array(
                [str(value) for value in table.column(name).to_pylist()], "S40"
            )
    run(*dsgmcmc("export", out, "--out", folder / "x.nc", "--force")).expect(0)

    def take(name: str, item: h5py.Dataset | h5py.Group) -> None:
        if isinstance(item, h5py.Dataset) and item.dtype.kind in "fiuS":
            arrays[name] = item[()]

    with h5py.File(folder / "x.nc") as file:
        file.visititems(take)
    little_endian = {
        name: np.ascontiguousarray(a, a.dtype.newbyteorder("<")).tobytes()
        for name, a in arrays.items()
    }
    return {
        name: hashlib.sha256(content).hexdigest()[:16] for name, content in little_endian.items()
    }


def sampled(name: str, data: Path, folder: Path, processes: int) -> Digests:
    """Digests of a configuration; SystemExit if the number of processes, or a stop, changes
    them.
    """
    ratings_name, *options = CONFIGURATIONS[name].split()
    if "--rank" not in options:
        options += ["--rank", "3"]
    if "sampler.metric=kronecker" in options or "--sampler" not in options or "baoab" in options:
        options += SMALL
    begin = ("sample", data / f"{ratings_name}.h5", *options, *LENGTH)
    tables: list[Digests] = []
    for number in range(1, processes + 1):
        out = folder / f"run-{number}"
        more = ("--resume", "--iterations", str(END))
        if number == 3:
            run(*dsgmcmc(*begin, "--out", out, "--iterations", str(STOP), processes=3)).expect(0)
            run(
                *dsgmcmc("sample", data / f"{ratings_name}.h5", "--out", out, *more, processes=2)
            ).expect(0)
        else:
            run(*dsgmcmc(*begin, "--out", out, "--iterations", str(END), processes=number)).expect(
                0
            )
        tables.append(digests(out, folder))
        if tables[-1] != tables[0]:
            moved = ", ".join(
                sorted(key for key, value in tables[0].items() if tables[-1].get(key) != value)
            )
            raise SystemExit(f"{name}: {number} processes have other numbers than one: {moved}")
    return tables[0]


def changes(before: Digests, after: Digests) -> Iterator[str]:
    """Lines on a configuration: names that have changed, and, with a "!", numbers that have
    moved.
    """
    gone = set(before) - set(after)
    new = set(after) - set(before)
    for name in sorted(gone):
        same = sorted(other for other in new if after[other] == before[name])
        yield f"{name} is now {same[0]}" if same else f"! {name} is gone"
    yield from (
        f"! {name} has moved"
        for name in sorted(set(before) & set(after))
        if before[name] != after[name]
    )


def main() -> int:
    """Write the table, or compare with it."""
    parser = arguments(__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--only", default="", help="configurations whose names contain this")
    parser.add_argument(
        "--processes", type=int, default=3, choices=(1, 2, 3), help="the most; default 3"
    )
    parsed = parser.parse_args()
    before = json.loads(parsed.table.read_text(encoding="utf-8")) if parsed.table.exists() else {}
    after = {}
    moved = 0
    with tempfile.TemporaryDirectory() as place:
        prepare(data := Path(place))
        for name in [name for name in CONFIGURATIONS if parsed.only in name]:
            with tempfile.TemporaryDirectory(dir=place) as folder:
                after[name] = sampled(name, data, Path(folder), parsed.processes)
            if name in before:
                lines = list(changes(before[name], after[name]))
            else:
                lines = [f"{len(after[name])} numbers"]
            moved += any(line.startswith("!") for line in lines)
            print(f"{name}: {'; '.join(lines) or 'as before'}", flush=True)
    if not before:
        parsed.table.write_text(json.dumps(after, indent=1) + "\n", encoding="utf-8")
    return int(moved > 0)


if __name__ == "__main__":
    sys.exit(main())

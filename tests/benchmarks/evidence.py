"""Measure the figures of the documents, and write them into the pages.

    python tests/benchmarks/evidence.py DATASETS              # the parts that have no figures
    python tests/benchmarks/evidence.py DATASETS accuracy-1m  # one part, measured again
    python tests/benchmarks/evidence.py --fill                # only write figures into the pages

A part is a few commands of `PARTS`, which anybody can type. Those of one core are measured first,
two at a time; then those of `ALONE`, one after the other. If a part fails, the others are measured
all the same, and the exit status is 1. A part that is stopped begins anew, except that `robust`
keeps its finished runs; parts that have ended are kept. The tables that the commands print become
docs/evidence/PART.json, with commands, date, version, commit, processor, cores and seconds; the
pictures that they save become docs/figures.

Pages have marks, up to ``<!-- end -->``, whose content is written from these files:

    <!-- PART -->                 its first table
    <!-- PART 2 -->               its second table
    <!-- PART: ROW, COLUMN -->    the cell of the first table with these titles; COLUMN has no
                                  comma, or is a number: 1 for the column after the titles of rows
    <!-- PART 2: ROW, COLUMN -->  the cell of the second table
    <!-- PART: COLUMN; COLUMN -->  these columns of the first table, after the titles of rows;
                                  also of PART & PART
    <!-- PART & PART -->          the rows of the first tables of several parts
    <!-- PART & PART 2 -->        those of the second tables
    <!-- PART & PART: COLUMN -->  this column of the first tables of several parts; PART & PART 3:
                                  of the third ones; COLUMN / COLUMN: two columns, in one cell

What is between the marks of a part that has no file stays as it is.
"""

import datetime
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench import arguments, markdown

import dsgmcmc
from dsgmcmc.parallel.machine import cpu_name, usable_cores

ROOT = Path(__file__).resolve().parents[2]
EVIDENCE = ROOT / "docs" / "evidence"
FIGURES = ROOT / "docs" / "figures"
Table = list[list[str]]

ONE_MILLION = "dsgmcmc prepare DATASETS/ml-1m/ratings.dat ml-1m.h5"
HUNDRED_THOUSAND = (
    "dsgmcmc prepare DATASETS/ml-100k/u1.base ml-100k.h5 --test DATASETS/ml-100k/u1.test"
)
QUALITY = "tests/benchmarks/sampler_quality.py"
SHORT = "--rank 16 --iterations 400sweeps --burn-in 100sweeps --set evaluate_every=5sweeps"
SYNTHETIC = "data/synthetic.py ratings.parquet --rows 120800 --ratings 20000000"
DIGITS = "DATASETS/mnist/mnist.npz"
#: Commands of every part: those of dsgmcmc, and Python programs of the repository. The longest of
#: those that are measured two at a time is first.
PARTS = {
    "paper-review-figure-5": [
        f"tests/papers/review_figure5.py {DIGITS} --iterations 10000 --out figures"
    ],
    "accuracy-100k": ["tests/benchmarks/accuracy.py DATASETS --only u1,folds"],
    "accuracy-1m": ["tests/benchmarks/accuracy.py DATASETS --only 1m,splits"],
    "accuracy-latest": ["tests/benchmarks/accuracy.py DATASETS --only temporal"],
    "attack-calls": ["tests/benchmarks/attack.py calls"],
    "attack-disks": ["tests/benchmarks/attack.py disks"],
    "attack-files": ["tests/benchmarks/attack.py files numbers tests"],
    "attack-places": ["tests/benchmarks/attack.py places"],
    "attack-processes": ["tests/benchmarks/attack.py kills readers"],
    "attack-together": ["tests/benchmarks/attack.py together"],
    "calibration-100k": [
        HUNDRED_THOUSAND,
        f"{QUALITY} ml-100k.h5 --out quality --gibbs 1250 -- --rank 32",
    ],
    "calibration-1m": [ONE_MILLION, f"{QUALITY} ml-1m.h5 --out quality --gibbs 150 -- {SHORT}"],
    "calibration-prior": ["tests/benchmarks/sbc.py --replicates 100"],
    "calibration-prior-gibbs": ["tests/benchmarks/sbc.py --replicates 100 --sampler gibbs"],
    "densities": ["tests/benchmarks/oracle.py"],
    "densities-parts": ["tests/benchmarks/oracle.py --parts"],
    "kernels": ["tests/benchmarks/kernels.py"],
    "processes": [
        SYNTHETIC,
        "dsgmcmc prepare ratings.parquet ratings.h5",
        "mpirun -n 2 python tests/benchmarks/scaling.py ratings.h5",
    ],
    "comparison-100k": ["tests/benchmarks/comparison.py DATASETS ml-100k --out ../comparison"],
    "comparison-1m": ["tests/benchmarks/comparison.py DATASETS ml-1m --out ../comparison"],
    "comparison-lectures": ["tests/benchmarks/comparison.py DATASETS lectures --out ../comparison"],
    "comparison-half-stars": [
        "tests/benchmarks/comparison.py DATASETS half-stars --out ../comparison"
    ],
    "comparison-books": ["tests/benchmarks/comparison.py DATASETS books --out ../comparison"],
    "lists": ["tests/benchmarks/lists.py DATASETS --out ../lists"],
    "liked": ["tests/benchmarks/liked.py DATASETS"],
    "readme": ["tests/benchmarks/readme.py DATASETS/ml-100k/u.data"],
    "robust": [
        "tests/benchmarks/robust.py ../robust-COMMIT.jsonl --seeds 10",
        "tests/benchmarks/robust.py ../robust-COMMIT.jsonl --tables",
    ],
    "robust-amounts": [
        (
            "tests/benchmarks/robust.py ../amounts-COMMIT.jsonl --auto-seeds 10 --shapes log-normal"
            " log-Student-t gamma 'Pareto, cut' 'heavy counts' sums --models negative-binomial log"
            " 'log noise' 'log tails' auto"
        ),
        "tests/benchmarks/robust.py ../amounts-COMMIT.jsonl --tables",
    ],
    "three-way": ["tests/benchmarks/three_way.py --out ../three-way"],
    "robust-measured": ["tests/benchmarks/measured.py --out ../measured --seeds 1"],
    "paper-adaptive": [f"tests/papers/adaptive.py {DIGITS} --out figures"],
    "paper-errata": ["tests/papers/errata.py"],
    "paper-hamcmc-bias": ["tests/papers/hamcmc_bias.py"],
    "paper-hamcmc-linear-gaussian": ["tests/papers/hamcmc_linear_gaussian.py --out figures"],
    "paper-hamcmc-movielens": [
        ONE_MILLION,
        "tests/papers/hamcmc_movielens.py ml-1m.h5 --out figures",
    ],
    "paper-hamcmc-speech": ["tests/papers/hamcmc_speech.py --out figures"],
    "paper-recipe-figure-2": ["tests/papers/recipe_fig2.py --out figures"],
    "paper-recipe-figure-3": [
        "tests/papers/recipe_fig3.py --out figures",
        "tests/papers/recipe_fig3.py --grid",
    ],
    "paper-review-figures-1-3": [
        "tests/papers/review_figures_1_3.py --dimensions 10 50 100 --out figures"
    ],
    "paper-review-figure-6": [
        *(
            f"dsgmcmc prepare DATASETS/ml-100k/u{k}.base u{k}.h5 --test DATASETS/ml-100k/u{k}.test"
            for k in range(1, 6)
        ),
        "tests/papers/review_figure6.py u1.h5 u2.h5 u3.h5 u4.h5 u5.h5 --quick --out figures",
    ],
    "paper-scalable-mh": ["tests/papers/scalable_mh.py --out figures"],
    "paper-scalable-mh-robust": ["tests/papers/scalable_mh.py --model robust"],
    "paper-scalable-mh-wide": ["tests/papers/scalable_mh.py --model wide"],
}
#: How the names of parts begin that use all cores, or print seconds on the clock; CPU seconds may
#: be measured two at a time.
ALONE = (
    "attack",
    "calibration-1",
    "comparison",
    "kernels",
    "paper-hamcmc-movielens",
    "processes",
    "readme",
    "robust",
)
MARK = re.compile(
    r"(?P<head><!-- (?P<part>[a-z0-9-]+(?: & [a-z0-9-]+)*)(?: (?P<number>\d+))?(?::"
    r" (?P<place>[^>]+))? -->)"
    r"(?P<content>.*?)(?P<end><!-- end -->)",
    re.DOTALL,
)


# ---------------------------------------------------------------------- measuring


def measure_all(parts: list[str], datasets: Path, work: Path) -> list[str]:
    """Measure parts, two at a time with a core each, then one by one those of `ALONE`; return those
    that failed.
    """
    failed = []

    def attempt(part: str) -> None:
        try:
            measure(part, datasets, work)
        except Exception as error:  # the other parts are measured all the same
            print(f"{part}: {error}", file=sys.stderr, flush=True)
            failed.append(part)

    cores = sorted(os.sched_getaffinity(0))[:2]
    with ThreadPoolExecutor(
        len(cores), initializer=lambda: os.sched_setaffinity(0, {cores.pop()})
    ) as pool:
        list(pool.map(attempt, [part for part in parts if not part.startswith(ALONE)]))
    for part in parts:
        if part.startswith(ALONE):
            attempt(part)
    return failed


def measure(part: str, datasets: Path, work: Path) -> None:
    """Run the commands of a part, write its JSON file, and copy its pictures."""
    folder = work.resolve() / part
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    begin = time.monotonic()
    printed = ""
    for command in PARTS[part]:
        print(f"{part}: {command}", file=sys.stderr, flush=True)
        executed = words(command, datasets.resolve())
        printed += subprocess.run(
            executed, cwd=folder, check=True, stdout=subprocess.PIPE, text=True
        ).stdout
    facts = {
        "commands": [typed(command) for command in PARTS[part]],
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "version": dsgmcmc.__version__,
        "commit": commit(),
        "processor": cpu_name(),
        "cores": usable_cores(),
        "seconds": round(time.monotonic() - begin),
        "tables": tables(printed),
    }
    (EVIDENCE / f"{part}.json").write_text(
        json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
    for picture in (folder / "figures").glob("*.png"):
        shutil.copy(picture, FIGURES)


def words(command: str, datasets: Path) -> list[str]:
    """Words of a command as they are executed."""
    found = [
        word.replace("DATASETS", str(datasets))
        for word in shlex.split(command.replace("COMMIT", commit()))
    ]
    found = [str(ROOT / word) if word.startswith(("tests/", "data/")) else word for word in found]
    if found[0] == "dsgmcmc":
        return [sys.executable, "-m", *found]
    return found if found[0] == "mpirun" else [sys.executable, *found]


def typed(command: str) -> str:
    """Command as a reader types it."""
    return command if command.startswith(("dsgmcmc", "mpirun")) else f"python {command}"


def tables(printed: str) -> list[Table]:
    """Tables in Markdown, row by row; the first row has the titles."""
    found: list[Table] = []
    for lines in re.findall(r"(?:^\|.*\n)+", printed, re.MULTILINE):
        rows = [
            [cell.strip() for cell in line.strip()[1:-1].split("|")] for line in lines.splitlines()
        ]
        found.append([row for row in rows if set("".join(row)) != {"-"}])
    return found


def commit() -> str:
    """Newest commit that changed the package."""
    git = ["git", "-C", str(ROOT), "log", "-1", "--abbrev=8", "--format=%h", "--", "dsgmcmc"]
    return subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()


# ---------------------------------------------------------------------- pages


def measured() -> dict[str, Any]:
    """What the JSON files have, by part."""
    return {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(EVIDENCE.glob("*.json"))
    }


def pages() -> list[Path]:
    """Pages that may have marks."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]


def filled(text: str, facts: dict[str, Any]) -> str:
    """Text of a page with its marks filled."""
    return MARK.sub(lambda mark: mark["head"] + content(mark, facts) + mark["end"], text)


def content(mark: re.Match[str], facts: dict[str, Any]) -> str:
    """Text between a mark and its end: what is there, if a part has not been measured."""
    parts = mark["part"].split(" & ")
    selection = mark["place"]
    if {*parts} & PARTS.keys() - facts.keys():
        return mark["content"]
    tables = [facts[part]["tables"][int(mark["number"] or 1) - 1] for part in parts]
    below = [tables[0][0], *(row for table in tables for row in table[1:])]
    several = selection is not None and len(parts) > 1 and "; " not in selection
    titles, *rows = joined(parts, tables, selection) if several else below
    if selection is not None and ("; " in selection or (len(parts) == 1 and ", " not in selection)):
        titles, *rows = columns_of([titles, *rows], selection.split("; "))
        selection = None
    if selection is None or several:
        return f"\n{markdown(titles, rows)}\n"
    name, column = selection.rsplit(", ", 1)
    (row,) = (row for row in rows if row[0].replace("`", "") == name)
    return str(row[titles.index(column) if column in titles else int(column)])


def columns_of(table: Table, columns: list[str]) -> Table:
    """The titles of rows and some columns of a table."""
    titles = [title.replace("`", "") for title in table[0]]
    kept = [0, *(titles.index(column) for column in columns)]
    return [[row[index] for index in kept] for row in table]


def joined(parts: list[str], tables: list[Table], column: str) -> Table:
    """Table of one column of the tables of several parts, without rows that are empty."""
    found: dict[str, list[str]] = {}
    for column_number, (titles, *rows) in enumerate(tables):
        for row in rows:
            cells = [row[titles.index(name)] for name in column.split(" / ")]
            found.setdefault(row[0], [""] * len(parts))[column_number] = " / ".join(cells).strip()
    return [[column, *parts], *([name, *cells] for name, cells in found.items() if any(cells))]


def fill() -> None:
    """Write measured figures into all pages."""
    facts = measured()
    for page in pages():
        page.write_text(filled(page.read_text(encoding="utf-8"), facts), encoding="utf-8")


def main() -> None:
    """Measure what is asked for, and fill the pages."""
    parser = arguments(__doc__)
    parser.add_argument("datasets", type=Path, nargs="?", help="folder of ml-100k, ml-1m and mnist")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument(
        "--work", type=Path, default=Path("evidence"), help="folder for what the commands write"
    )
    parser.add_argument("--fill", action="store_true", help="measure nothing")
    options = parser.parse_args()
    if options.datasets is None and not options.fill:
        parser.error("DATASETS is missing")
    parts = options.parts or [part for part in PARTS if part not in measured()]
    failed = measure_all([] if options.fill else parts, options.datasets, options.work)
    fill()
    sys.exit(f"not measured: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()

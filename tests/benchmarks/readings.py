"""Ratings files, summaries and messages of many inputs, before and after a change of reading.

    python tests/benchmarks/readings.py before.json  # before: writes the table
    python tests/benchmarks/readings.py before.json  # after: compares; status 1 where one differs
    python tests/benchmarks/readings.py before.json --only bounds

Every input of `*_inputs.py` is read by ``dsgmcmc prepare``, if it is a file, and by `BPMF.fit`
from its path or from memory. The table has the digest of the ratings file, what `prepare` and
`info` say of it, warnings and refusals, word by word. The program uses the command line and the
names that `dsgmcmc` exports, so that modules inside the package may move. Where a message quotes
DuckDB, another version of it writes another table.
"""

import json
import logging
import os
import sys
import tempfile
import time
import warnings
import zlib
from collections.abc import Iterator
from contextlib import chdir
from itertools import chain
from pathlib import Path
from typing import Any

import feature_inputs
import science_inputs
import table_inputs
import text_inputs
from bench import arguments
from reading_inputs import Input, options_of
from support import typed

from dsgmcmc import BPMF, RunWarning

Record = dict[str, Any]

PARTS = (text_inputs, table_inputs, feature_inputs, science_inputs)

#: The shortest run: what is compared is what it read.
SHORT: dict[str, Any] = {"rank": 0, "iterations": 4, "burn_in": 2}
#: A run that does not exist, so that `fit` ends when it has read the ratings.
NO_RUN = "no-run"
#: Settings of both ways; others are those of `prepare` alone.
OF_BOTH = frozenset(BPMF().get_params())


def plain(text: str, folder: Path) -> str:
    """Words of a message without the path of the folder and the ends of lines."""
    return " ".join(text.replace(f"{folder}/", "").replace(str(folder), "FOLDER").split())


def facts_of(text: str, folder: Path) -> Any:
    """Content of a line of JSON without paths."""
    return json.loads(text.replace(f"{folder}/", ""))


def by_command(case: Input, folder: Path) -> Record:
    """Read files by ``dsgmcmc prepare``: as JSON, and in words."""
    words = ("prepare", *case.ratings, "out.h5", *options_of(case.settings))
    as_json = typed(*words, "--json")
    record: Record = {"code": as_json.code, "error": plain(as_json.err, folder)}
    if as_json.code:
        record["left behind"] = Path("out.h5").exists()
        return record
    record["summary"] = facts_of(as_json.out, folder)
    if is_read_in_every_way(case):
        in_words = typed(*words, "--force")
        record["said"] = plain(in_words.out, folder)
        record["noted"] = plain(in_words.err, folder)
        record["info"] = facts_of(typed("info", "out.h5", "--json").out, folder)
    return record


def is_read_in_every_way(case: Input) -> bool:
    """Whether an input is read in more ways than one: one in four is, to save time."""
    return zlib.crc32(case.name.encode()) % 4 == 0


class Messages(logging.Handler):
    """What is logged, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def in_python(case: Input, folder: Path) -> Record:
    """Read a path or an object by `BPMF.fit`; one in four is sampled, too."""
    ratings = case.ratings
    if case.of_files:
        ratings = case.ratings[0]
    settings = dict(case.settings)
    test = settings.pop("test", None)
    record: Record = {}
    messages = Messages()
    log = logging.getLogger("dsgmcmc")
    log.addHandler(messages)
    log.setLevel(logging.INFO)
    start = None if is_read_in_every_way(case) else NO_RUN
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = BPMF(**SHORT, **settings, out="run")
            model.fit(ratings, case.y, test=test, start=start)
        record["read"] = plain(repr(model.data_), folder)
    except Exception as error:
        record["error"] = f"{type(error).__name__}: {plain(str(error), folder)}"
        if NO_RUN in str(error):
            record["error"] = ""
    finally:
        log.removeHandler(messages)
    record["warned"] = [
        plain(str(each.message), folder)
        for each in caught
        if not issubclass(each.category, RunWarning | DeprecationWarning | FutureWarning)
    ]
    record["logged"] = [plain(line, folder) for line in messages.lines if start is not None]
    if Path("run.ratings.h5").exists():
        record["info"] = facts_of(typed("info", "run.ratings.h5", "--json").out, folder)
    return record


def read(case: Input) -> Iterator[tuple[str, Record]]:
    """Yield what comes of an input, by the way it is read; works in the current folder."""
    case.write()
    folder = Path.cwd()
    if case.of_files:
        yield f"{case.name} by command", by_command(case, folder)
        if len(case.ratings) > 1 or not is_read_in_every_way(case):
            return
    if case.settings.keys() <= OF_BOTH | {"test"}:
        yield f"{case.name} in Python", in_python(case, folder)


def differences(before: Any, after: Any, place: str = "") -> Iterator[str]:
    """Lines on what differs between two records."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            yield from differences(before.get(key), after.get(key), f"{place}/{key}")
    elif before != after:
        yield f"{place}\n    was {before!r}\n    is  {after!r}"


def main() -> int:
    """Write the table, or compare with it."""
    parser = arguments(__doc__)
    parser.add_argument("table", type=Path)
    parser.add_argument("--only", default="", help="inputs whose names contain this")
    parsed = parser.parse_args()
    os.environ["COLUMNS"] = "100"
    begin = time.process_time()
    table = parsed.table.resolve()
    before: dict[str, Record] = {}
    if table.exists():
        before = json.loads(table.read_text(encoding="utf-8"))
    after: dict[str, Record] = {}
    for case in chain.from_iterable(part.inputs() for part in PARTS):
        if parsed.only not in case.name:
            continue
        with tempfile.TemporaryDirectory() as place, chdir(place):
            after |= json.loads(json.dumps(dict(read(case))))
    differ = 0
    if before:
        chosen = {name for name in before if parsed.only in name}
        for name in sorted(chosen | after.keys()):
            lines = list(differences(before.get(name), after.get(name)))
            differ += bool(lines)
            for line in lines:
                print(f"{name}: {line}")
    else:
        table.write_text(json.dumps(after, indent=1) + "\n", encoding="utf-8")
    refused = sum(bool(record.get("error")) for record in after.values())
    seconds = time.process_time() - begin
    print(
        f"{len(after)} readings, {refused} of them refused, {differ} differ;"
        f" {seconds:.0f} processor seconds"
    )
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())

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
import re
import sys
import tempfile
import warnings
import zlib
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import feature_inputs
import science_inputs
import table_inputs
import text_inputs
from before_after import Record, plain, run
from bench import arguments
from reading_inputs import Input, options_of
from support import typed

from dsgmcmc import BPMF, RunWarning

PARTS = (text_inputs, table_inputs, feature_inputs, science_inputs)

#: A name of many, which the reader of names that are times takes in any order.
ANY_NAME = re.compile(r"(?<=names: times in the column )(.*?, such as) '[^']*'")
#: The shortest run: what is compared is what it read.
SHORT: dict[str, Any] = {"rank": 0, "iterations": 4, "burn_in": 2}
#: A run that does not exist, so that `fit` ends when it has read the ratings.
NO_RUN = "no-run"
#: Settings of both ways; others are those of `prepare` alone.
OF_BOTH = frozenset(BPMF().get_params())


def words_of(error: str, folder: Path) -> str:
    """Words of a refusal, without the name that it has for an example."""
    return ANY_NAME.sub(r"\1 any", plain(error, folder))


def facts_of(text: str, folder: Path) -> Any:
    """Content of a line of JSON without paths."""
    return json.loads(text.replace(f"{folder}/", ""))


def by_command(case: Input, folder: Path) -> Record:
    """Read files by ``dsgmcmc prepare``: as JSON, and in words."""
    words = ("prepare", *case.ratings, "out.h5", *options_of(case.settings))
    as_json = typed(*words, "--json")
    record: Record = {"code": as_json.code, "error": words_of(as_json.err, folder)}
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
    written = Path("run.ratings.h5")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = BPMF(**SHORT, **settings, out="run")
            model.fit(ratings, case.y, test=test, start=start)
        record["read"] = plain(repr(model.data_), folder)
    except Exception as error:
        record["error"] = f"{type(error).__name__}: {words_of(str(error), folder)}"
        if start is not None and written.exists():
            record["error"] = ""  # that there is no such run
    finally:
        log.removeHandler(messages)
    record["warned"] = [
        plain(str(each.message), folder)
        for each in caught
        if not issubclass(each.category, RunWarning | DeprecationWarning | FutureWarning)
    ]
    record["logged"] = [plain(line, folder) for line in messages.lines if start is not None]
    if written.exists():
        record["info"] = facts_of(typed("info", written, "--json").out, folder)
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


def records(only: str) -> Iterator[tuple[str, Record]]:
    """Yield what comes of inputs, each read in a folder of its own."""
    for part in PARTS:
        for case in part.inputs():
            if only in case.name:
                with tempfile.TemporaryDirectory() as place, chdir(place):
                    yield from read(case)


if __name__ == "__main__":
    sys.exit(run(arguments(__doc__), records))

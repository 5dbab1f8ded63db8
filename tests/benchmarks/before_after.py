"""Tables of records by name, which are written before a change and compared after it."""

import json
import math
import os
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

Record = dict[str, Any]
#: Yields names and records; the argument is a part of the names that are asked for.
Records = Callable[[str], Iterator[tuple[str, Record]]]


def plain(text: str, folder: Path) -> str:
    """Words of a message without the path of the folder and the ends of lines."""
    return " ".join(text.replace(f"{folder}/", "").replace(str(folder), "FOLDER").split())


def are_close(before: Sequence[float], after: Sequence[float], tolerance: float) -> bool:
    """Whether numbers are equal within a tolerance, relative to the largest of them."""
    if len(before) != len(after):
        return False
    largest = max((abs(x) for x in before if math.isfinite(x)), default=0.0)
    for old, new in zip(before, after, strict=True):
        if math.isnan(old) and math.isnan(new):
            continue
        if old != new and not abs(old - new) <= tolerance * largest:
            return False
    return True


def are_numbers(value: Any) -> bool:
    """Whether a value is a list of floats."""
    return isinstance(value, list) and all(type(x) is float for x in value)


def differences(before: Any, after: Any, tolerance: float, place: str = "") -> Iterator[str]:
    """Yield a line for each value that differs; floats may, within a tolerance."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            inner = f"{place}/{key}"
            yield from differences(before.get(key), after.get(key), tolerance, inner)
        return
    if type(before) is float and type(after) is float:
        before = [before]
        after = [after]
    if before == after:
        return
    if are_numbers(before) and are_numbers(after) and are_close(before, after, tolerance):
        return
    yield f"{place}\n    was {before!r:.300}\n    is  {after!r:.300}"


def run(parser: ArgumentParser, records: Records, tolerance: float = 0.0) -> int:
    """Write a table of records, or compare with it; the exit status is 1 where a record differs."""
    parser.add_argument("table", type=Path)
    parser.add_argument("--only", default="", help="names that contain this")
    parsed = parser.parse_args()
    os.environ["COLUMNS"] = "100"  # so that lines end at the same places in any terminal
    begin = time.process_time()
    table = parsed.table.resolve()
    before: dict[str, Record] = {}
    if table.exists():
        before = json.loads(table.read_text(encoding="utf-8"))
    after: dict[str, Record] = json.loads(json.dumps(dict(records(parsed.only))))
    differ = 0
    if before:
        wanted = {name for name in before if parsed.only in name}
        for name in sorted(wanted | after.keys()):
            lines = list(differences(before.get(name), after.get(name), tolerance))
            differ += bool(lines)
            for line in lines:
                print(f"{name}: {line}")
    else:
        table.write_text(json.dumps(after, indent=1) + "\n", encoding="utf-8")
    refused = sum(bool(record.get("error")) for record in after.values())
    seconds = time.process_time() - begin
    print(
        f"{len(after)} records, {refused} of them refusals, {differ} differ;"
        f" {seconds:.0f} processor seconds"
    )
    return int(differ > 0)

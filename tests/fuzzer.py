"""Damages files, and opens each in a separate process with limits of memory and time; also a
program.

One process loads the libraries and forks once for every damaged file. An attempt is refused with
one line (10), harmless (11), refused without a message or in several lines (12), gives other
content than was written (13), or crashes (14); the number of a signal is negative.
"""

import contextlib
import gzip
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tomllib
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import scipy.sparse
import tomli_w
import typer
from cases import rated_pairs

from dsgmcmc.cli.app import app
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.cells.predict import Predictor
from dsgmcmc.posterior.run import Run
from dsgmcmc.posterior.settings import PredictOptions
from dsgmcmc.prepare.prepare import prepare_ratings
from dsgmcmc.ratings.file import Ratings
from dsgmcmc.storage.rundir import RunDirectory
from dsgmcmc.storage.store import MANIFEST, seal

REFUSED = 10
HARMLESS = 11
WORDLESS = 12
WRONG = 13
CRASHED = 14
#: Address space in bytes beyond that of the libraries, and seconds.
LIMITS = {"table": (2 << 30, 20), "ratings": (256 << 20, 20), "run": (400 << 20, 20)}

#: Changes of a file or directory, by its name.
Changes = Iterator[tuple[str, Callable[[Path], Any]]]


# ---------------------------------------------------------------------- content of a file


def _ratings(path: Path) -> Any:
    with Ratings(path) as ratings:
        parts = [ratings.slab(part, 0, ratings.n_rows)[:3] for part in ("train", "test")]
        features = ratings.feature_slab("rows", 0, ratings.n_rows).datasets("rows")
        ids = [ratings.ids("rows").tolist(), ratings.ids("cols").tolist()]
        arrays = [array.tobytes() for part in (*parts, features.values()) for array in part]
        return [
            ratings.n_rows,
            ratings.n_cols,
            ratings.orientation.transposed,
            ratings.mean,
            ratings.digest,
            ids,
            arrays,
        ]


def _table(path: Path) -> dict[tuple[Any, Any], float]:
    """Ratings of both parts, by user and item, after ``dsgmcmc prepare``."""
    data = path.with_name("prepared.h5")
    prepare_ratings([str(path)], data, force=True)
    with Ratings(data) as ratings:
        return rated_pairs(ratings, "train") | rated_pairs(ratings, "test")


_INTEGER = "([1-9][0-9]?)"
_NAME = "([A-Za-z0-9_]{1,12})"
_NUMBER = r"(-?[0-9][0-9_]{0,5}(?:[.][0-9]{1,6})?)"
#: How text files of ratings begin, how their other lines are written, and the pattern of these.
TEXT_TABLES = {
    ".csv": ("user,item,rating\n", "{},{},{}", f"{_NAME},{_NAME},{_NUMBER}"),
    ".tsv": ("user\titem\trating\n", "{}\t{}\t{}", f"{_NAME}\t{_NAME}\t{_NUMBER}"),
    ".json": (
        "",
        '{{"user": {}, "item": {}, "rating": {}}}',
        rf'\{{"user": {_INTEGER}, "item": {_INTEGER}, "rating": ((?:0|[1-9][0-9]?)[.][0-9]+)\}}',
    ),
    ".mtx": (
        "%%MatrixMarket matrix coordinate real general\n99 99 500\n",
        "{} {} {}",
        f"{_INTEGER} {_INTEGER} {_NUMBER}",
    ),
}
TEXT_TABLES[".gz"] = TEXT_TABLES[".csv"]


def write_table(path: Path) -> Path:
    """Write 500 ratings in a format by its suffix."""
    rng = np.random.default_rng(0)
    cells = rng.choice(99 * 99, 500, replace=False)
    x = rng.integers(1, 11, 500) / 2
    user = 1 + cells // 99
    item = 1 + cells % 99
    table = pyarrow.table({"user": user, "item": item, "rating": x})
    if path.suffix == ".npz":
        scipy.sparse.save_npz(path, scipy.sparse.coo_matrix((x, (user, item))))
    elif path.suffix == ".parquet":
        pyarrow.parquet.write_table(
            table, path, compression=path.stem if path.stem == "zstd" else "snappy"
        )
    else:
        head, form = TEXT_TABLES[path.suffix][:2]
        text = head + "".join(form.format(*row) + "\n" for row in zip(user, item, x, strict=True))
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def as_integers(names: tuple[str, ...]) -> tuple[str, ...] | tuple[int, ...]:
    """Names as integers, if all of them are written as integers are."""
    if all(re.fullmatch("0|[1-9][0-9]*", name) for name in names):
        return tuple(map(int, names))
    return names


def parsed(path: Path) -> dict[str, Any] | None:
    """What `_table` must find in a text file, by Python's own parse; None where the text may mean
    something else.
    """
    try:
        head, _, pattern = TEXT_TABLES[path.suffix]
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("ascii")
    except (KeyError, ValueError, OSError, EOFError, zlib.error):  # binary, damaged or not ASCII
        return None
    lines = [
        re.fullmatch(pattern, line)
        for line in text.removeprefix(head).removesuffix("\n").split("\n")
    ]
    if not text.startswith(head) or not all(lines):
        return None
    users, items, ratings = zip(*(line.groups() for line in lines if line), strict=True)
    if path.suffix == ".mtx" and len(set(zip(users, items, strict=True))) != 500:
        return None
    users, items = map(as_integers, (users, items))
    # a number with _ must be refused, and NaN equals nothing
    values = np.array(
        ["nan" if "_" in rating else rating for rating in ratings], np.float32
    ).tolist()
    return {"_table": dict(zip(zip(users, items, strict=True), values, strict=True))}


def output_of(*arguments: str) -> str:
    """Output of a command."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        COMMAND.main(list(arguments), standalone_mode=False)
    return out.getvalue()


def _predictions(path: Path) -> Any:
    run = Run(path)
    both = np.arange(5, dtype=np.int32)
    variances = [float(m.variance["user"].sum()) for m in run.moments]
    return Predictor(run, PredictOptions(clip=True))(both, both).mean.tolist(), variances


def _ranking(path: Path) -> str:
    return output_of("recommend", str(path), "--user", "3", "--include-rated", "--json")


def _summary(path: Path) -> Any:
    output_of("info", str(path))
    facts = json.loads(output_of("info", str(path), "--json"))
    if facts["summary"] is None:
        raise InputError("no summary")
    return facts["summary"], facts["run"]["mean"], facts["settings"]["rank"]


def _log(path: Path) -> list[str]:
    return [repr(line) for line in RunDirectory(path).metrics()]


def _events(path: Path) -> list[str]:
    return [repr(line) for line in RunDirectory(path).events()]


def _page(path: Path) -> str:
    return output_of("report", str(path), "--out", f"{path}.html") and ""


def _verified(path: Path) -> str:
    return str(json.loads(output_of("verify", str(path), "--json"))["digest"])


def _prepared(path: Path) -> None:
    RunDirectory(path).cut_metrics(0, 10)  # a job does this before it goes on


#: Readers of a kind of target, or of one file of a run.
READERS: dict[str, tuple[Callable[[Path], Any], ...]] = {
    "table": (_table,),
    "ratings": (_ratings,),
    "run": (_predictions, _ranking, _summary, _log, _events, _page, _verified, _prepared),
    "run.toml": (_predictions, _summary, _verified),
    "summary.json": (_summary, _page, _verified),
    "metrics.jsonl": (_log, _page, _prepared),
    "events.jsonl": (_events, _summary),
}
FILES = ("run.toml", "summary.json", "metrics.jsonl", "events.jsonl")
COMMAND = typer.main.get_command(app)


def content(target_type: str, path: Path, name: str = "") -> dict[str, Any]:
    """Results of the readers of a target, or of its file `name`; errors of those that refuse it."""
    found: dict[str, Any] = {}
    for read in READERS.get(name, READERS[target_type]):
        try:
            found[read.__name__] = read(path)
        except InputError as error:
            found[read.__name__] = error
    return found


# ---------------------------------------------------------------------- damage


def mutate(data: bytes, choice: random.Random) -> tuple[str, bytes]:
    """Damage bytes at random; the name of the damage, and the bytes."""
    content = bytearray(data)
    how = choice.choice(("bit", "bit", "byte", "bytes", "word", "cut", "copy", "zero", "insert"))
    at = choice.randrange(len(content))
    if how == "bit":
        content[at] ^= 1 << choice.randrange(8)
    elif how == "byte":
        content[at] = choice.choice((0, 1, 127, 128, 255))
    elif how == "bytes":
        for _ in range(choice.randrange(2, 30)):
            content[choice.randrange(len(content))] = choice.randrange(256)
    elif how == "word":
        value = choice.choice((0, 1, 1 << 31, 1 << 40, (1 << 63) - 1, (1 << 64) - 1, len(content)))
        content[at : at + 8] = value.to_bytes(8, "little")[: len(content) - at]
    elif how == "cut":
        del content[at:]
    elif how == "copy":
        chunk = content[at : at + choice.randrange(1, 600)]
        to = choice.randrange(len(content))
        content[to : to + len(chunk)] = chunk
    elif how == "zero":
        content[at : at + 512] = bytes(len(content[at : at + 512]))
    else:
        content[at:at] = choice.randbytes(choice.randrange(1, 9))
    return how, bytes(content)


def retype(data: bytes, choice: random.Random) -> tuple[str, bytes]:
    """Type over a few characters of a text."""
    content = bytearray(data)
    for _ in range(choice.randrange(1, 4)):
        content[choice.randrange(len(content))] = choice.choice(
            b'012345678901234567890123456789.-_eE,\t\n" '
        )
    return "typed", bytes(content)


def at_random(names: list[str], count: int, seed: int, texts: bool = False) -> Changes:
    """Damage one of the named files, or the whole target if the name is empty; half of `texts` by
    `retype`.
    """
    choice = random.Random(seed)
    for _ in range(count):
        name = choice.choice(names)
        bits = random.Random(choice.random())

        def change(target: Path, name: str = name, bits: random.Random = bits) -> str:
            path = target / name if name else target
            how, data = (retype if texts and bits.random() < 0.5 else mutate)(
                path.read_bytes(), bits
            )
            path.write_bytes(data)
            return how

        yield name, change


#: Replacements of a value.
ODD = (-1, 0, 500, 1e308, True, "many", "[bold]x[/nothing]\x1b[2J", [], [1], {"a": 1}, 10**30)
TEXTS = {
    "empty": b"",
    "zeros": bytes(3000),
    "not UTF-8": b'{"chain": 0, "iteration": "\xff\xfe"}\n',
    "deep JSON": b'{"chain": 0, "x": ' + b"[" * 60_000 + b"\n",
    "deep TOML": b"x = " + b"[" * 60_000,
    "dotted": b".".join([b"a"] * 32_000) + b" = 1\n",
    "dotted tables": b"\n".join(b"[" + b".".join([b"a"] * 150) + b".b%d]" % i for i in range(200)),
    "list": b"[]\n",
    "text": b'"x"\n',
    "null": b"null\n",
    "digits": b'{"chain": 0, "iteration": ' + b"9" * 5000 + b"}\n",
    "TOML digits": b"[run]\nmean = " + b"9" * 5000,
    "hexadecimal": b"rank = 0x" + b"f" * 5000 + b"\n[run]\n",
    "old, wide JSON": (
        b'{"iterations": 1, "processes": 1, "seconds_sampling": 1.0, "x": ['
        + b"[]," * 1_350_000
        + b"1]}"
    ),
    "old, many lines": b'{"chain": 0, "iteration": 1, "sweep": 1, "time_s": 1}\n' * 200_000,
    "old, many events": b'{"time": "", "event": "", "x": [' + b"[]," * 20_000 + b"1]}\n",
}


def hostile(source: Path, seed: int) -> Changes:
    """Replace text files of a run: by other texts, by things that are no files, and by values of
    other types.
    """
    for name in FILES:
        for what, text in TEXTS.items():
            yield (
                f"{name}: {what}",
                lambda run, name=name, text=text: (run / name).write_bytes(text),
            )
        yield f"{name}: huge", lambda run, name=name: os.truncate(run / name, 1 << 40)
        for what, make in (
            ("directory", Path.mkdir),
            ("pipe", os.mkfifo),
            ("device", lambda path: path.symlink_to("/dev/zero")),
            ("loop", lambda path: path.symlink_to(path.name)),
            ("missing", lambda path: None),
        ):
            yield f"{name}: {what}", lambda run, name=name, make=make: _replace(run / name, make)
    choice = random.Random(seed)
    for path in sorted(source.rglob(MANIFEST)):
        tree = json.loads(path.read_text(encoding="utf-8"))
        del tree["sha256"]
        for place in _leaves(tree):
            text = seal(json.dumps(_with(tree, place, choice.choice(ODD)), indent=1)).encode()
            at = path.relative_to(source)
            yield (
                f"{at}: old, sealed {place}",
                lambda run, at=at, text=text: (run / at).write_bytes(text),
            )
    settings = tomllib.loads((source / "run.toml").read_text(encoding="utf-8"))
    for place in _leaves(settings):
        value = choice.choice(ODD)
        if choice.random() < 0.4:  # other places with another seed
            continue
        text = tomli_w.dumps(_with(settings, place, value)).encode()
        name = f"run.toml: old {place} = {str(value)[:30]}"
        yield name, lambda run, text=text: (run / "run.toml").write_bytes(text)
    line = {"chain": 0, "iteration": 1, "sweep": 1.0, "time_s": 0.0, "rmse": 1.0, "rmse_mean": None}
    for name in (*line, *line):
        value = choice.choice(ODD)
        text = json.dumps({**line, name: value}).encode() + b"\n"
        yield (
            f"metrics.jsonl: old {name} = {str(value)[:30]}",
            lambda run, text=text: _append(run, text),
        )


def _append(run: Path, text: bytes) -> None:
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(text)


def _replace(path: Path, make: Callable[[Path], Any]) -> None:
    path.unlink()
    make(path)


def _leaves(tree: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Places of all values of a table and of its tables."""
    for name, value in tree.items():
        yield (*keys, name)
        if isinstance(value, dict):
            yield from _leaves(value, (*keys, name))


def _with(tree: dict[str, Any], keys: tuple[str, ...], value: Any) -> dict[str, Any]:
    first, *rest = keys
    return {**tree, first: _with(tree[first], tuple(rest), value) if rest else value}


# ---------------------------------------------------------------------- attempts


def attempt(target_type: str, target: Path, name: str, expected: dict[str, Any] | None) -> int:
    """Read a damaged target within the limits; the way it ended."""
    memory, seconds = LIMITS[target_type]
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + memory
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    signal.alarm(5 * seconds)
    found = content(target_type, target, name)
    errors = [str(part) for part in found.values() if isinstance(part, InputError)]
    if any(
        not error or any(line[:2].strip() for line in error.split("\n")[1:]) for error in errors
    ):
        return WORDLESS
    unsealed = ("_log", "_events")  # logs have no checksum
    sealed = {reader: part for reader, part in found.items() if reader not in unsealed}
    if expected and any(
        part != expected[reader]
        for reader, part in sealed.items()
        if not isinstance(part, InputError)
    ):
        return WRONG
    return REFUSED if errors else HARMLESS


def _copied(source: Path, place: Path) -> Path:
    """Put a fresh copy of a file or directory there."""
    target = place / f"target{source.suffix}"
    if source.is_file():
        return Path(shutil.copy(source, target))
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(source, target))


def fuzzed(
    target_type: str, source: Path, place: Path, names: list[str], count: int, seed: int
) -> dict[str, Any]:
    """Damage and open one of the named files of a target `count` times; the numbers of outcomes,
    and what is wrong.
    """
    expected = content(target_type, _copied(source, place))
    if target_type == "run" and not count:
        changes = hostile(source, seed)
    else:
        changes = at_random(names, count, seed, target_type == "table")
    results: Counter[int] = Counter()
    wrong = []
    for number, (name, change) in enumerate(changes):
        target = _copied(source, place)
        how = change(target)
        child = os.fork()
        if not child:
            try:
                known = expected
                if target_type == "table":
                    known = parsed(target)
                elif "old" in name:
                    known = None
                code = attempt(target_type, target, name.split(":")[0], known)
            except BaseException as error:  # the reader did not expect it
                print(f"{number} {name} {how}: {error!r:.300}", file=sys.stderr)
                traceback.print_exc()
                code = CRASHED
            sys.stderr.flush()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        results[code] += 1
        if code not in (REFUSED, HARMLESS):
            wrong.append([number, name, how if isinstance(how, str) else "", code])
    return {"results": results, "wrong": wrong}


if __name__ == "__main__":
    target_type, source, place, names, count, seed = sys.argv[1:]
    print(
        json.dumps(
            fuzzed(target_type, Path(source), Path(place), names.split(","), int(count), int(seed))
        )
    )

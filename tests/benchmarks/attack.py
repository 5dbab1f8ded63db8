"""Attack runs and commands: calls that fail, full disks, kills, readers, damaged files, odd places, cut links.

    python tests/benchmarks/attack.py                     # all of `ATTACKS`: about 40 minutes on two cores, as root
    python tests/benchmarks/attack.py kills readers       # two of them
    python tests/benchmarks/attack.py --quick --seed 3    # every tenth attempt, at other places

An attempt held if a command was done with its usual result, or ended with one line and left nothing behind. A run must
then be resumed to the digest of a run that nothing disturbed. Says what was done in every attempt that failed, and
prints a table in Markdown. Not part of the tests.
"""

from __future__ import annotations

import errno
import gzip
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import scipy.sparse
from bench import TESTS, arguments, say, say_head

sys.path += [str(TESTS / "cluster")]
import fuzzer
from containers import Cluster, inspect, missing, readme_commands
from failing import ALWAYS, CALLS, WRITING, FailingDisk, expect_told, small_disk
from shapes import SHAPES
from support import Result, Running, digest, dsgmcmc, metrics, newest, planted, processes, rank_pid, run, wait_until

from dsgmcmc import open_run
from dsgmcmc.posterior.heldout import predict_test

#: Runs a command that works in a folder.
Way = Callable[[tuple[str, ...], Path], Result]
#: Row of the table, what is done, and the attempt; one that tries several times returns how often, and the failures.
Attempts = Iterator[tuple[str, object, Callable[[], tuple[int, list[str]] | None]]]

MODEL = "sample DATA --out OUT/run --rank 2 --burn-in 6 --thin 3 --set evaluate_every=10 --save-draws 2"
SAMPLE = f"{MODEL} --sampler psgld --grid 2 --checkpoint-every 20 --iterations 60"
FOREVER = f"{MODEL} --sampler psgld --grid 5 --checkpoint-every 15 --iterations 10000000 --step-size 0.02"
AUTO = "sample DATA --out OUT/run --model auto --iterations 60 --set rank=2"
COMPARE = "compare DATA -o OUT/best.toml --set rank=2"
SIMILAR = """
import sys, dsgmcmc
try:
    print(dict(dsgmcmc.open_run(sys.argv[1]).similar(3)))
except (dsgmcmc.InputError, OSError) as error:
    print("dsgmcmc:", error, file=sys.stderr)
    sys.exit(1)
"""
WRITERS = (
    "prepare IN/r.csv OUT/o.h5",
    "prepare IN/r.csv OUT/o.h5 --user-features IN/u.csv --timestamps",
    "export IN/run -o OUT/o.parquet",
    "export IN/run -o OUT/o.parquet --draws",
    "export IN/run -o OUT/o.nc",
    "predict IN/run IN/p.csv -o OUT/o.csv",
    "predict IN/run IN/p.csv -o OUT/o.parquet",
    "recommend IN/run --all -o OUT/o.csv",
    "report IN/run -o OUT/o.html",
)
READERS = ("evaluate IN/run --json", "info IN/run --json", "verify IN/run --json", "similar IN/run")
OPENING, READING, HALVED = "open,create", "read,pread,pread64", "write,pwrite,pwrite64"
#: Functions that fail, once or from a call on, and how. The first six are for every command, four for two processes.
KINDS: dict[str, dict[str, object]] = {
    "EIO": {"CALLS": CALLS, "ERRNO": errno.EIO},
    "full": {"CALLS": f"{WRITING},mkdir,create", "ERRNO": errno.ENOSPC, "ALSO": ALWAYS},
    "half a write": {"CALLS": HALVED, "SHORT": 1},
    "EIO of read": {"CALLS": READING, "ERRNO": errno.EIO},
    "EIO of close": {"CALLS": "close", "ERRNO": errno.EIO},
    "too many open files": {"CALLS": OPENING, "ERRNO": errno.EMFILE},
    "quota": {"CALLS": f"{WRITING},mkdir,create", "ERRNO": errno.EDQUOT, "ALSO": ALWAYS},
    "halves of writes": {"CALLS": HALVED, "SHORT": 1, "ALSO": ALWAYS},
    "EIO of open": {"CALLS": OPENING, "ERRNO": errno.EIO},
    "EIO of mmap": {"CALLS": "mmap,mmap64", "ERRNO": errno.EIO},
    "half a read": {"CALLS": READING, "SHORT": 1},
    "halves of reads": {"CALLS": READING, "SHORT": 1, "ALSO": ALWAYS},
    "read-only": {"CALLS": "create,mkdir,rename,unlink,unlinkat", "ERRNO": errno.EROFS, "ALSO": ALWAYS},
}
TOLD = (0, 1, 2)
ENDED = (*TOLD, 70, 127, 134, 137, 143, -signal.SIGKILL)  # also by a launcher, the system or the C library


class Attack:
    """Ratings, features, pairs and a run in the folder `source`; every attempt has a copy.

    Parameters
    ----------
    work : Path
        Empty folder, for everything.
    seed : int
        Of all places and moments.
    stack : ExitStack
        What is undone at the end.
    """

    def __init__(self, work: Path, seed: int, stack: ExitStack) -> None:
        self.work, self.seed, self.choice, self.stack = work, seed, random.Random(seed), stack
        self.disk, self.source = FailingDisk(self.new()), self.new()
        self.data, self.clicks = self.new() / "r.h5", self.new() / "c.h5"
        i, j, x = planted(40, 30)
        rated = [
            (u, v, round(min(max(r, 1), 5)), 900 + n // 7) for n, (u, v, r) in enumerate(zip(i, j, x, strict=True))
        ]
        for name, head, rows in (
            ("r", "user,item,rating,timestamp", rated),
            ("c", "user,item", [row[:2] for row in rated]),
            ("u", "user,age,job", [(u, 20 + u, "abc"[u % 3]) for u in range(40)]),
            ("p", "user,item", [(u, v) for u in range(20) for v in range(10)]),
        ):
            lines = [",".join(map(str, row)) for row in rows]
            (self.source / f"{name}.csv").write_text("\n".join([head, *lines, ""]))
        described = ("--user-features", self.source / "u.csv", "--timestamps")
        run(*dsgmcmc("prepare", self.source / "r.csv", self.data, *described)).expect(0)
        run(*dsgmcmc("prepare", self.source / "c.csv", self.clicks)).expect(0)
        place = self.new()
        run(*self.command(SAMPLE, place)).expect(0)
        self.run = Path(shutil.copytree(place / "run", self.source / "run"))
        self._usual: dict[str, dict[str, bytes | None]] = {}

    def new(self) -> Path:
        """Make an empty folder."""
        return Path(tempfile.mkdtemp(dir=self.work))

    def command(self, words: str, place: Path, processes: int | None = None) -> tuple[str, ...]:
        """Command line of words, with what it writes in a folder, or in ``out`` beside a copy of the source."""
        out = place / "out" if (place / "out").exists() else place
        names = {"DATA": self.data, "CLICKS": self.clicks, "IN": place / "in", "OUT": out}
        line = [re.sub("DATA|CLICKS|IN|OUT", lambda name: str(names[name[0]]), word) for word in words.split()]
        if line[0] == "similar":
            return (sys.executable, "-c", SIMILAR, line[1])
        return dsgmcmc(*line, processes=processes)

    def copied(self) -> Path:
        """Make a folder with a copy of the source, and an empty folder ``out``."""
        place = self.new()
        shutil.copytree(self.source, place / "in")
        (place / "out").mkdir()
        return place

    def usual(self, words: str) -> dict[str, bytes | None]:
        """Results of words when nothing happens; None for those that are not twice the same."""
        if words not in self._usual:
            first, second = (
                results(words, run(*self.command(words, place)).expect(0), place)
                for place in (self.copied(), self.copied())
            )
            self._usual[words] = {name: data if second[name] == data else None for name, data in first.items()}
        return self._usual[words]

    def attempt(self, words: str, way: Way, codes: Iterable[int] = TOLD, processes: int | None = None) -> None:
        """Run words in some way."""
        usual, place = self.usual(words), self.copied()
        result = way(self.command(words, place, processes), place)
        if result.code in TOLD and processes is None:
            expect_told(result, words, TOLD)
        assert result.code in codes, (result.code, result.err)
        assert "Traceback" not in result.err, result.err
        if words.startswith("sample"):
            self.expect_resumed(words, place)
            return
        there = results(words, result, place)
        if result.code:
            assert not set(there) - {"output"}, f"status {result.code}, but it left {sorted(there)}: {result.err}"
        else:
            assert set(there) == set(usual), sorted(there)
            other = [name for name, data in usual.items() if data and not data.startswith(there[name])]
            assert not other, f"another {other}"
        shutil.rmtree(place, ignore_errors=True)

    def expect_resumed(self, words: str, place: Path, processes: int | None = None) -> None:
        """Resume a run to its end: it is the undisturbed one, with nothing left over."""
        run(*self.command(f"{words} --resume", place, processes)).expect(0)
        assert results(words, Result((), 0, "", ""), place) == self.usual(words), "another digest, or something left"

    def each(
        self,
        title: str,
        ways: dict[str, Way],
        commands: Iterable[str],
        codes: Iterable[int] = TOLD,
        processes: int | None = None,
    ) -> Attempts:
        """Attempts of commands in all ways."""
        for what, way in ways.items():
            for words in commands:
                yield title, f"{what}: {words}", partial(self.attempt, words, way, codes, processes)


def results(words: str, result: Result, place: Path) -> dict[str, bytes]:
    """Content of all files of a command, and its output if that is the result; digest of a run, and what is left."""
    out = place / "out"
    if words.startswith("sample"):
        left = [
            path.name
            for path in out.rglob("*")
            if ".tmp" in path.name or ".trash" in path.name or path.name == "compare"
        ]
        return {"digest": digest(out / "run").encode(), "left": str(left).encode()}
    printed = {} if "OUT" in words else {"output": result.out.replace(str(place), "").encode()}
    return {path.name: b"" if path.is_dir() else path.read_bytes() for path in out.iterdir()} | printed


def shells(*scripts: str, **env: str) -> dict[str, Way]:
    """Run a command, ``"$@"``, in a shell."""
    return {
        script: lambda command, place, script=script: run("bash", "-c", script, place, *command, env=env)
        for script in scripts
    }  # type: ignore[misc]


# ---------------------------------------------------------------------- calls and disks


def calls(a: Attack) -> Attempts:
    """Calls on files that fail."""

    def failing(words: str, kind: str, number: int, ranks: Iterable[int | None] = (None,)) -> dict[str, Way]:
        ways: dict[str, Way] = {}
        processes, place = (2 if None not in ranks else None), a.copied()
        counts = a.new() / "count"
        a.disk.command(a.command(words, place, processes), UNDER=place, AT=0, COUNT=counts, **KINDS[kind]).expect(0)
        total = max(map(int, counts.read_text().split())) if counts.exists() else 0
        for rank in ranks:
            for at in sorted(a.choice.sample(range(1, total + 1), min(number, total))):
                told = KINDS[kind] | {"AT": at} | ({} if rank is None else {"RANK": rank})
                ways[f"{kind}, call {at} of {total}, process {rank}"] = lambda command, place, told=told: (
                    a.disk.command(command, UNDER=place, **told)
                )  # type: ignore[misc]
        return ways

    for kind in KINDS:
        yield from a.each("failing calls: `sample`, one process", failing(SAMPLE, kind, 36), [SAMPLE])
    for kind in list(KINDS)[:4]:
        yield from a.each(
            "failing calls: `sample`, two processes", failing(SAMPLE, kind, 7, (0, 1)), [SAMPLE], ENDED, 2
        )
    for words in (*WRITERS, *READERS):
        for kind in list(KINDS)[:6]:
            yield from a.each("failing calls: 13 other commands", failing(words, kind, 6), [words])
    for words in (AUTO, COMPARE):
        yield from a.each(
            "failing calls: `sample --model auto`, `compare`",
            failing(words, "EIO", 13) | failing(words, "full", 13),
            [words],
        )


def disks(a: Attack) -> Attempts:
    """Full disks of many sizes."""

    def full(size: int, folder: str) -> Way:
        def way(command: tuple[str, ...], place: Path) -> Result:
            disk = a.stack.enter_context(small_disk(place / folder, f"{size}k"))
            if folder == "full":
                run("cp", "-r", place / "in" / "run", disk)
                command = tuple(word.replace(str(place / "in/run"), str(disk / "run")) for word in command)
            result = run(*command)
            run("mount", "-o", "remount,size=64m", disk).expect(0)
            return result

        return way

    sizes = [round(4 * 1.35**k) for k in range(15)]
    yield from a.each("a full disk of 15 sizes: `sample`", {f"{k} kB": full(k, "out") for k in sizes}, [SAMPLE])
    yield from a.each("a full disk of 15 sizes: 9 commands", {f"{k} kB": full(k, "out") for k in sizes}, WRITERS)
    yield from a.each("a full disk: `compare`", {f"{k} kB": full(k, "out") for k in (0, 200)}, [COMPARE])
    yield from a.each(
        "a run copied onto a full disk, and read", {f"{k} kB": full(k, "full") for k in sizes[:7]}, READERS
    )
    read_only = shells(
        'mount --bind "$0/out" "$0/out" && mount -o remount,ro,bind "$0/out"; "$@"; s=$?; umount "$0/out"; exit $s'
    )
    yield from a.each("a read-only folder", read_only, (SAMPLE, *WRITERS))
    no_locks = {
        f"{name} of flock": partial(_without_locks, a, getattr(errno, name))
        for name in ("ENOLCK", "ENOSYS", "EOPNOTSUPP", "EINVAL")
    }
    yield from a.each("a file system without locks", no_locks, (SAMPLE, *READERS))


def _without_locks(a: Attack, code: int, command: tuple[str, ...], place: Path) -> Result:
    result = a.disk.command(command, UNDER=place, CALLS="flock", AT=1, ALSO=ALWAYS, ERRNO=code).expect(0)
    assert "sample" not in command or "has no locks" in result.err, result.err
    return result


# ---------------------------------------------------------------------- places and limits


def places(a: Attack) -> Attempts:
    """Standard streams, environments, limits, clocks."""
    streams = ('"$@" <&- >&- 2>&-', '"$@" >/dev/full', '"$@" 2>/dev/full', 'set -o pipefail; "$@" | head -1')
    yield from a.each("standard streams closed, full or cut", shells(*streams), (SAMPLE, *WRITERS, *READERS))
    environments = [
        f'export {one}; "$@"'
        for one in (
            "HOME=/none",
            "LC_ALL=C PYTHONUTF8=0",
            "TERM=dumb COLUMNS=1",
            "TMPDIR=/none",
            "DSGMCMC_CACHE_DIR=/proc/none",
        )
    ]
    environments += [f'ulimit -n {n}; "$@"' for n in (8, 16, 32, 64, 128)]
    environments += ['umask 0; "$@"', 'umask 277; "$@"', 'env -i "$@"', 'exec -a "" "$@"']
    yield from a.each(
        "environments, locales, few open files",
        shells(*environments),
        (SAMPLE, WRITERS[1], WRITERS[5], READERS[3]),
        ENDED,
    )
    limits = [f'ulimit -f {k}; "$@"' for k in (0, 8, 64, 256, 1024, 4096)]
    limits += [f'ulimit -v {k}00000; "$@"' for k in (1, 2, 4, 5, 6, 8, 12, 20)]
    yield from a.each(
        "limits of file size and address space", shells(*limits), (SAMPLE, WRITERS[0], WRITERS[5], READERS[1]), ENDED
    )
    group = Path("/sys/fs/cgroup/memory/dsgmcmc-attack")
    if group.parent.exists():
        group.mkdir(exist_ok=True)
        a.stack.callback(group.rmdir)
        cgroups = [
            f'echo {k}M >{group}/memory.limit_in_bytes; (echo $BASHPID >{group}/cgroup.procs; "$@")'
            for k in (60, 80, 100, 140, 200)
        ]
        for number in (None, 2):
            yield from a.each("little memory (killed by the system)", shells(*cgroups), [SAMPLE], ENDED, number)
    clock = {f"{years} years": partial(_with_clock, a, years) for years in (-47, -1, 1, 10, 47)}
    yield from a.each("a clock that jumps", clock, (SAMPLE, *READERS[:2]))
    yield from a.each("a clock that jumps", clock, [SAMPLE], processes=2)
    memory = [
        f'unshare -m bash -c \'mount -t tmpfs -o size={k} tmpfs /dev/shm; "$@"\' bash "$@"'
        for k in ("4k", "64k", "1m", "8m")
    ]
    for folder in ({}, {"OMPI_MCA_btl_sm_backing_directory": "/dev/shm"}):
        yield from a.each("`/dev/shm` full, two processes", shells(*memory, **folder), [SAMPLE], ENDED, 2)


def _with_clock(a: Attack, years: int, command: tuple[str, ...], place: Path) -> Result:
    return a.disk.command(command, CLOCK=years * 31_557_600)


# ---------------------------------------------------------------------- kills and readers


MODELS = {
    "baoab": "",
    "psgld": "--sampler psgld",
    "hamcmc": "--sampler hamcmc",
    "gibbs": "--sampler gibbs",
    "levels": "--likelihood ordinal-logit --noise both",
    "implicit": "--implicit-features both",
    "time": "--time-levels user,item",
    "clicks": "--likelihood all-cells",
    "two chains": "--chains 2 --sampler psgld",
}


def kills(a: Attack) -> Attempts:
    """Kills of a process, of all, of the launcher, at any moment; resumed on another number of processes."""
    for name, options in MODELS.items():
        words = f"{MODEL} --grid 5 --checkpoint-every 15 --until none --iterations 900 {options}"
        yield (
            "kills of `sample`",
            name,
            partial(_killed, a, words.replace("DATA", "CLICKS") if name == "clicks" else words, 9),
        )
    yield "kills of `sample --model auto`", "auto", partial(_killed, a, AUTO, 3)
    for words in (*WRITERS[:5], COMPARE):
        yield "kills of `prepare`, `export`, `compare`", words, partial(_killed, a, words, 6)


def _killed(a: Attack, words: str, number: int) -> tuple[int, list[str]]:
    choice, place, failures = random.Random(f"{a.seed} {words}"), a.copied(), []
    usual, sampling = a.usual(words), words.startswith("sample")
    for _ in range(number):
        count = choice.choice((None, 1, 2, 3)) if sampling else None
        with Running(a.command(words + " --resume" * sampling, place, count)) as running:
            victims = [running.process.pid] if count is None else [rank_pid(running, rank) for rank in range(count)]
            if sampling and words != AUTO and choice.random() < 0.8:
                begun = newest(place / "out/run")
                running.until(
                    lambda begun=begun: (
                        running.process.poll() is not None
                        or any(line["iteration"] > begun for line in metrics(place / "out/run"))
                    ),
                    "sampling",
                )
            time.sleep(choice.uniform(0, 0.3 if sampling and words != AUTO else 4))
            chosen = choice.choice((victims, [running.process.pid], [choice.choice(victims)]))
            for pid in chosen:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            running.wait()
            session = running.process.pid
            wait_until(
                lambda session=session: not [pid for pid, other, _ in processes() if other == session],
                lambda: "orphans",
                30,
            )
        if not sampling:
            there = {path.name: path.read_bytes() for path in (place / "out").iterdir() if path.name in usual}
            failures += [f"incomplete {name}" for name, data in there.items() if usual[name] not in (None, data)]
            for path in (place / "out").iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    if sampling:
        a.expect_resumed(words, place, 2)
    return number, failures


def readers(a: Attack) -> Attempts:
    """Commands on a run that is sampled."""
    for options in ("", "--chains 2"):
        yield "readers of a live run", options, partial(_read, a, f"{FOREVER} {options}", 75)


def _read(a: Attack, words: str, number: int) -> tuple[int, list[str]]:
    place, failures = a.new(), []
    with Running(a.command(words, place)) as running:
        running.wait_for(place / "run" / "metrics.jsonl", 40)
        for k in range(number):
            reader, out = (*WRITERS[2:], *READERS)[k % (len(WRITERS) + len(READERS) - 2)], a.copied()
            shutil.rmtree(out / "in" / "run")
            (out / "in" / "run").symlink_to(place / "run")
            try:
                expect_told(run(*a.command(reader, out)), reader, (0, 2))
            except AssertionError as error:
                failures.append(str(error))
        running.signal(signal.SIGUSR1)
        running.wait().expect(75)
    digest(place / "run")
    return number, failures


# ---------------------------------------------------------------------- files


def files(a: Attack) -> Attempts:
    """Damaged and hostile files."""
    folder, rng = a.new(), np.random.default_rng(a.seed)
    cells, x = rng.choice(99 * 99, 500, replace=False), rng.integers(1, 11, 500) / 2
    user, item = 1 + cells // 99, 1 + cells % 99
    rows = list(zip(user.tolist(), item.tolist(), x.tolist(), strict=True))
    for suffix, form in (
        (".csv", "{},{},{}"),
        (".tsv", "{}\t{}\t{}"),
        (".mtx", "{} {} {}"),
        (".json", '{{"user": {}, "item": {}, "rating": {}}}'),
    ):
        head = fuzzer.TEXT_TABLES[suffix][0]
        (folder / f"r{suffix}").write_text(head + "".join(form.format(*row) + "\n" for row in rows))
    (folder / "r.gz").write_bytes(gzip.compress((folder / "r.csv").read_bytes()))
    scipy.sparse.save_npz(folder / "r.npz", scipy.sparse.coo_matrix((x, (user, item))))
    table = pyarrow.table({"user": user, "item": item, "rating": x})
    pyarrow.parquet.write_table(table, folder / "r.parquet")
    pyarrow.parquet.write_table(table, folder / "zstd.parquet", compression="zstd")
    for path in sorted(folder.iterdir()):
        for part in range(5):
            yield (
                "damaged ratings: csv, tsv, mtx, json, gz, npz, parquet, zstd",
                path.name,
                partial(_damaged, a, "table", path, "", 50, part),
            )
    inside = ",".join(
        str(path.relative_to(a.run)) for path in sorted(a.run.rglob("*")) if path.is_file() and path.name != "lock"
    )
    for part in range(10):
        yield "damaged files of a run", part, partial(_damaged, a, "run", a.run, inside, 75, part)
        yield "damaged ratings files (HDF5)", part, partial(_damaged, a, "ratings", a.data, "", 25, part)
    yield "hostile texts, links, and manifests sealed again, of a run", "", partial(_damaged, a, "run", a.run, "", 0, 0)


def _damaged(a: Attack, kind: str, source: Path, names: str, count: int, part: int) -> tuple[int, list[str]]:
    seed = str(1000 * a.seed + part)
    done = run(sys.executable, fuzzer.__file__, kind, source, a.new(), names, str(count), seed, timeout=2400)
    report = json.loads(done.expect(0).out.splitlines()[-1])
    return sum(report["results"].values()), [f"{case} {done.err[-300:]}" for case in report["wrong"]]


def tests(a: Attack) -> Attempts:
    """Hostile inputs that the tests have: a try is a test."""
    for title, names in {
        "hostile tables, archives, headers, links, facts": "unit/data/test_hostile_files.py unit/data/test_ingest_errors.py unit/data/test_ratings.py unit/storage/test_rundir.py unit/posterior/test_trust.py",
        "names with control characters and markup, on a terminal and in the report": "system/test_strange_names.py system/test_report.py",
        "locks; runs of another user": "unit/storage/test_lock.py system/test_odd_places.py",
    }.items():
        for name in names.split():
            yield title, name, partial(_tested, TESTS / name)


def _tested(path: Path) -> tuple[int, list[str]]:
    done = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", path, cwd=TESTS.parent, timeout=1200)
    passed, failed = (sum(map(int, re.findall(rf"(\d+) {word}", done.out))) for word in ("passed", "failed|error"))
    return passed + failed, re.findall("^(?:FAILED|ERROR) .*", done.out, re.MULTILINE)


def numbers(a: Attack) -> Attempts:
    """Ratings of extreme numbers and shapes."""
    for shape in SHAPES:
        for options in ("", "--noise both", "--likelihood student-t"):
            yield "extreme numbers and shapes", (shape, options), partial(_finite, a.new(), a.seed, shape, options)


def _finite(place: Path, seed: int, shape: str, options: str) -> None:
    data = SHAPES[shape].make(seed).prepare(place / "r.h5")
    result = run(*dsgmcmc("sample", data, "--out", place / "run", "--iterations", "30sweeps", *options.split()))
    expect_told(result, shape, TOLD)
    assert result.code or np.isfinite(predict_test(open_run(place / "run").run_).mean).all(), (
        "predictions that are not finite"
    )


# ---------------------------------------------------------------------- others


def together(a: Attack) -> Attempts:
    """Commands that write the same files at the same time, and two users on one node."""
    for number in range(5):
        for words, count in ((SAMPLE, None), (SAMPLE, 2), (WRITERS[0], None), (WRITERS[4], None)):
            yield "three commands with one result, at once", (words, number), partial(_at_once, a, words, count)
    for number in range(4):
        yield "two users on one node: shared kernel cache, `/tmp`, two processes each", number, partial(_two_users, a)


def _at_once(a: Attack, words: str, count: int | None) -> None:
    place = a.copied()
    usual, more = a.usual(words), " --resume" if words == SAMPLE else " --force"
    with ExitStack() as stack:
        started = [stack.enter_context(Running(a.command(words + more, place, count))) for _ in range(3)]
        ended = [running.wait() for running in started]
    for result in ended:
        assert "Traceback" not in result.err, result.err
        assert result.code in TOLD, result.err
    assert any(result.code == 0 for result in ended)
    there = results(words, ended[0], place)
    assert all(there[name] == data for name, data in usual.items() if data), "another result"


def _two_users(a: Attack) -> None:
    other = Path(tempfile.mkdtemp())
    a.stack.callback(shutil.rmtree, other)
    (other / "cache").mkdir()
    for path in (other, other / "cache", shutil.copy(a.data, other)):
        os.chown(path, 65534, 65534)
    (other / "cache").chmod(0o1777)
    somebody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    env, place = {"DSGMCMC_CACHE_DIR": str(other / "cache"), "HOME": str(other)}, a.copied()
    theirs = [word.replace(str(a.data), str(other / a.data.name)) for word in a.command(SAMPLE, other, 2)]
    with Running((*somebody, *theirs), env) as they, Running(a.command(SAMPLE, place, 2), env) as we:
        they.wait().expect(0)
        we.wait().expect(0)
    assert digest(other / "run") == digest(place / "out" / "run") == a.usual(SAMPLE)["digest"].decode()  # type: ignore[union-attr]


def links(a: Attack) -> Attempts:
    """A cluster of containers, one of which is cut off for a while."""
    if reason := missing():
        print(f"links: not tried: {reason}", file=sys.stderr)
        return
    cluster = Cluster(a.new())
    a.stack.callback(cluster.close)
    cluster.work.parent.chmod(0o755)
    shutil.copy(a.data, cluster.work / "r.h5")
    cluster.type(readme_commands()[0]).expect(0)
    for seconds in LINKS:
        yield "a link between containers (TCP) cut", f"{seconds} s", partial(_cut, cluster, seconds)


#: Seconds for which a link is cut.
LINKS = [5, 30]


def _cut(cluster: Cluster, seconds: int) -> None:
    out, options = f"run-{seconds}", FOREVER.replace("DATA --out OUT/run", "r.h5").split()[1:]
    link = (
        "nsenter",
        "-t",
        str(inspect(cluster.containers("worker")[0])["State"]["Pid"]),
        "-n",
        "ip",
        "link",
        "set",
        "eth0",
    )
    with cluster.starting("cluster-run", "sample", *options, "--out", out, "--watchdog=120") as running:
        running.wait_for(cluster.work / out / "metrics.jsonl", 10)
        run(*link, "down").expect(0)
        time.sleep(seconds)
        run(*link, "up").expect(0)
        lines = len(metrics(cluster.work / out))
        running.until(
            lambda: running.process.poll() is not None or len(metrics(cluster.work / out)) > lines + 5, "going on", 300
        )
        said = f"ended with {running.process.poll()}"
        cluster.head("pkill", "-USR1", "-x", "prterun")
        result = running.wait(300)
    print(f"a link cut for {seconds} s: {said}, then {result.code}", file=sys.stderr)
    assert result.code in (70, 75), result.err
    end = ("--iterations", str(newest(cluster.work / out) + 50))
    cluster.head("dsgmcmc", "sample", *options, "--out", out, "--resume", *end).expect(0)
    cluster.head("dsgmcmc", "sample", *options, "--out", f"{out}-alone", *end).expect(0)
    assert digest(cluster.work / out) == digest(cluster.work / f"{out}-alone"), "another digest"


ATTACKS = {
    attack.__name__: attack for attack in (calls, disks, places, kills, readers, files, tests, numbers, together, links)
}


def main() -> None:
    """Attack, and print what held."""
    parser = arguments(__doc__)
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=", ".join(ATTACKS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="every tenth attempt")
    given = parser.parse_args()
    say_head("attack", "tried", "held", "failed")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        a = Attack(Path(folder), given.seed, stack)
        for name in given.attacks or ATTACKS:
            counts: dict[str, list[int]] = {}
            attempts = [
                (title, what, pool.submit(attempt))
                for k, (title, what, attempt) in enumerate(ATTACKS[name](a))
                if not given.quick or k % 10 == 0
            ]
            for title, what, attempt in attempts:
                try:
                    tried, failures = attempt.result() or (1, [])
                except Exception as error:  # whatever it is, the attempt failed
                    tried, failures = 1, [f"{type(error).__name__}: {error}"]
                for failure in failures:
                    print(f"{title}: {what}: {failure[:1500]}", file=sys.stderr, flush=True)
                row = counts.setdefault(title, [0, 0])
                row[0], row[1] = row[0] + tried, row[1] + len(failures)
            for title, (tried, failed) in counts.items():
                say(title, tried, tried - failed, failed)


if __name__ == "__main__":
    main()

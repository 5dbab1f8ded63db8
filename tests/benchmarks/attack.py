"""Attack runs and commands: calls that fail, full disks, kills, readers, damaged files, odd places,
cut links.

    python tests/benchmarks/attack.py                     # all of `ATTACKS`, as root
    python tests/benchmarks/attack.py kills readers       # two of them
    python tests/benchmarks/attack.py --quick --seed 3    # every tenth attempt, at other places

An attempt held if a command was done with its usual result, or ended with one line and left what
was there before. A run must then be resumed to the digest of a run that nothing disturbed. Says
what was done in every attempt that failed, and prints a table in Markdown. Not part of the tests.
"""

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
from bench import TESTS, arguments, say, say_head
from disguised_lines import __file__ as DISGUISED_LINES
from disguised_tables import __file__ as DISGUISED_TABLES
from failing import KINDS, MODEL, READERS, SAMPLE, WRITERS, Scene, expect_told, results
from fuzzer import __file__ as FUZZER
from fuzzer import write_table
from shapes import SHAPES
from support import Running, digest, dsgmcmc, metrics, newest, processes, rank_pid, run, wait_until
from valid_tables import __file__ as VALID_TABLES

from dsgmcmc import open_run
from dsgmcmc.posterior.heldout import predict_test

#: Row of the table, what is done, and the attempt; one that tries several times returns how often,
#: and the failures.
Attempts = Iterator[tuple[str, object, Callable[[], object]]]

AUTO = "sample DATA --out OUT/run --model auto --iterations 60 --set rank=2"
COMPARE = "compare DATA -o OUT/best.toml --set rank=2"
FOREVER = (
    f"{MODEL} --sampler psgld --grid 5 --checkpoint-every 15 --iterations 10000000 --step-size 0.02"
)
KILLED = f"{MODEL} --grid 5 --checkpoint-every 15 --until none --iterations 900"
MODELS = (
    *(
        "",
        "--sampler psgld",
        "--sampler gibbs",
        "--likelihood ordinal-logit --noise both",
        "--likelihood all-cells",
    ),
    *("--implicit-features both", "--time-levels user,item", "--chains 2 --sampler psgld"),
    "--sampler hamcmc --features no",
)


def each(
    scene: Scene,
    title: str,
    scripts: Iterable[str],
    commands: Iterable[str],
    processes: int | None = None,
) -> Attempts:
    """Attempts of all commands in all scripts of the shell."""
    for script in scripts:
        for words in commands:
            yield title, words, partial(scene.attempt, words, script, processes)


# ---------------------------------------------------------------------- what a line of shell can do


def calls(scene: Scene) -> Attempts:
    """Calls on files that fail."""
    for kind in KINDS:
        yield from each(
            scene, "failing calls: `sample`, one process", scene.failing(SAMPLE, kind, 18), [SAMPLE]
        )
    for kind in list(KINDS)[:4]:
        for rank in range(2):
            scripts = scene.failing(SAMPLE, kind, 7, rank)
            yield from each(scene, "failing calls: `sample`, two processes", scripts, [SAMPLE], 2)
    for words in (*WRITERS, *READERS):
        for kind in list(KINDS)[:6]:
            yield from each(
                scene, "failing calls: other commands", scene.failing(words, kind, 4), [words]
            )
    for words in (AUTO, COMPARE):
        scripts = [script for kind in ("EIO", "full") for script in scene.failing(words, kind, 13)]
        yield from each(scene, "failing calls: `sample --model auto`, `compare`", scripts, [words])


def disks(scene: Scene) -> Attempts:
    """Full disks, read-only folders, file systems without locks."""
    mount = 'mount -t tmpfs -o size={}k tmpfs "$0"/{}'
    then = '; "$@"; s=$?; mount -o remount,size=64m "$0"/{}; exit $s'
    sizes = [round(4 * 1.35**k) for k in range(15)]
    full = [mount.format(size, "out") + then.format("out") for size in sizes]
    yield from each(scene, "a full disk of 15 sizes: `sample`", full, [SAMPLE])
    yield from each(scene, "a full disk of 15 sizes: other commands", full, WRITERS[1:])
    yield from each(scene, "a full disk: `compare`", full[::14], [COMPARE])
    copy = (
        'mv "$0/in/run" "$0/whole"; mkdir "$0/in/run"; {}; cp -r "$0/whole/." "$0/in/run"'
        " 2>/dev/null{}"
    )
    copied = [copy.format(mount.format(k, "in/run"), then.format("in/run")) for k in sizes[:7]]
    yield from each(
        scene, "a run copied onto a full disk, and read", copied, ("info IN/run", *READERS)
    )
    read_only = (
        'mount --bind "$0/out" "$0/out"; mount -o remount,ro,bind "$0/out"; "$@"; s=$?; umount'
        ' "$0/out"; exit $s'
    )
    yield from each(scene, "a read-only folder", [read_only], (SAMPLE, *WRITERS))
    no_locks = (
        "env FAIL_UNDER=$0 FAIL_CALLS=flock FAIL_AT=1 FAIL_ALSO=999 FAIL_ERRNO={}"
        f' LD_PRELOAD={scene.library} "$@"'
    )
    no_locks = [no_locks.format(code) for code in (37, 38, 95)]  # ENOLCK, ENOSYS, EOPNOTSUPP
    yield from each(scene, "a file system without locks", no_locks, (SAMPLE, *READERS))
    yield from each(scene, "a file system without locks", no_locks, [SAMPLE], 2)


def places(scene: Scene) -> Attempts:
    """Standard streams, environments, limits, clocks, shared memory."""
    streams = (
        '"$@" <&- >&- 2>&-',
        '"$@" >/dev/full',
        '"$@" 2>/dev/full',
        '"$@" | head -1; exit ${PIPESTATUS[0]}',
    )
    yield from each(
        scene, "standard streams closed, full or cut", streams, (SAMPLE, *WRITERS, *READERS)
    )
    lines = (
        "export HOME=/none",
        "export LC_ALL=C PYTHONUTF8=0",
        "export TERM=dumb COLUMNS=1",
        "export TMPDIR=/none",
    )
    lines += (*(f"ulimit -n {n}" for n in (8, 16, 32, 64, 128)), "umask 0", "unset PATH HOME LANG")
    odd = [f'{line}; "$@"' for line in lines]
    chosen = (SAMPLE, WRITERS[1], WRITERS[5], READERS[2])
    yield from each(scene, "environments, locales, few open files", odd, chosen)
    limits = [f'ulimit -f {k}; "$@"' for k in (0, 8, 64, 256, 1024, 4096)]
    limits += [f'ulimit -v {k}00000; "$@"' for k in (1, 2, 4, 5, 6, 8, 12, 20)]
    yield from each(scene, "limits of file size and address space", limits, chosen)
    for count, group in ((None, "one"), (2, "two")):
        folder = f"/sys/fs/cgroup/memory/dsgmcmc-{group}-$$"
        little = f"mkdir {folder}; echo {{}}M >{folder}/memory.limit_in_bytes; "
        little += (
            f'(echo $BASHPID >{folder}/cgroup.procs; exec "$@"); s=$?; rmdir {folder}; exit $s'
        )
        scripts = [little.format(k) for k in (40, 60, 80, 100, 140, 200)]
        yield from each(scene, "little memory: processes are killed", scripts, [SAMPLE], count)
        clocks = [
            f'env FAIL_CLOCK={y * 31_557_600} LD_PRELOAD={scene.library} "$@"'
            for y in (-47, -1, 1, 10, 47)
        ]
        yield from each(scene, "a clock that jumps by 1 to 47 years", clocks, [SAMPLE], count)
    yield from each(scene, "a clock that jumps by 1 to 47 years", clocks, READERS)
    # without shared memory Open MPI uses TCP, which is told to stay on this node
    memory = (
        "export {}; exec unshare -m bash -c 'mount -t tmpfs -o size={} tmpfs /dev/shm; exec \"$@\"'"
        ' bash "$@"'
    )
    lines = ["OMPI_MCA_btl_tcp_if_include=lo"]
    lines += [f"{lines[0]} OMPI_MCA_btl_sm_backing_directory=/dev/shm"]
    scripts = [memory.format(line, size) for line in lines for size in ("4k", "64k", "1m", "20m")]
    yield from each(scene, "`/dev/shm` full, two processes", scripts, [SAMPLE], 2)


# ---------------------------------------------------------------------- kills, readers, two at once


def kills(scene: Scene) -> Attempts:
    """Kills of a process, of all, of the launcher, at any moment; resumed on another number of
    processes.
    """
    for options in MODELS:
        words = f"{KILLED} {options}".replace(
            "DATA", "CLICKS" if "all-cells" in options else "DATA"
        )
        yield "kills of `sample`", words, partial(_killed, scene, words, 9)
    yield "kills of `sample --model auto`", AUTO, partial(_killed, scene, AUTO, 3)
    for words in (*WRITERS[:5], COMPARE):
        yield "kills of `prepare`, `export`, `compare`", words, partial(_killed, scene, words, 6)


def _killed(scene: Scene, words: str, number: int) -> tuple[int, list[str]]:
    choice = random.Random(words)
    place = scene.copied(words)
    usual = scene.usual(words)
    sampling = words.startswith("sample")
    out = place / "out/run"
    failures = []
    for _ in range(number):
        has_ended = sampling and (out / "summary.json").exists()
        if has_ended:  # the next one begins anew
            shutil.rmtree(out)
        count = choice.choice((None, 1, 2, 3)) if sampling else None
        before = results(words, place)
        line = words + " --resume" if sampling else words
        with Running(scene.command(line, place, count)) as running:
            session = running.process.pid
            ranks = (
                [session] if count is None else [rank_pid(running, rank) for rank in range(count)]
            )
            # the others die as they start
            if KILLED in words.replace("CLICKS", "DATA") and choice.random() < 0.8:
                with suppress(AssertionError):  # it may end before
                    running.wait_for(out / "metrics.jsonl", len(metrics(out)) + 4)
            time.sleep(choice.uniform(0, 0.3 if "until" in words else 3))
            for pid in choice.choice((ranks, [session], [choice.choice(ranks)])):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            running.wait()

            def all_gone(leader: int = session) -> bool:
                return all(other != leader for _, other, _ in processes())

            wait_until(all_gone, lambda: "orphans", 30)
        if sampling:
            newest(out)
        elif results(words, place) not in (before, usual) and None not in usual.values():
            failures.append(str(list(results(words, place))))
    if sampling:
        run(*scene.command(f"{words} --resume", place, 2)).expect(0)
        assert results(words, place) == usual, "another digest, or something left"
    return number, failures


def readers(scene: Scene) -> Attempts:
    """Commands on a run that is sampled."""
    for options in ("", "--chains 2"):
        yield "readers of a live run", options, partial(_read, scene, f"{FOREVER} {options}")


def _read(scene: Scene, words: str) -> tuple[int, list[str]]:
    place = scene.copied()
    failures = []
    commands = (*WRITERS[2:], *READERS, "info IN/run --diagnostics") * 6
    with Running(scene.command(words, place)) as running:
        running.wait_for(place / "out/run/metrics.jsonl", 40)
        shutil.rmtree(place / "in/run")
        (place / "in/run").symlink_to(place / "out/run")
        for reader in commands:
            result = run(*scene.command(reader, place))
            try:
                expect_told(result, reader)
                assert result.code in (0, 2), result.err
            except AssertionError as error:
                failures.append(str(error))
            for path in (place / "out").glob("o.*"):
                path.unlink()
        running.signal(signal.SIGUSR1)
        running.wait().expect(75)
    digest(place / "out/run")
    return len(commands), failures


def together(scene: Scene) -> Attempts:
    """Commands with the same result at the same time, and two users on one node."""
    for _ in range(4):
        for words, count in (
            (SAMPLE, None),
            (SAMPLE, 2),
            (WRITERS[0], None),
            (WRITERS[2], None),
            (WRITERS[8], None),
        ):
            yield (
                "three commands with one result at once",
                words,
                partial(_at_once, scene, words, count),
            )
        yield (
            "two users: one kernel cache, one `/tmp`, two processes each",
            "",
            partial(_two_users, scene),
        )


def _at_once(scene: Scene, words: str, count: int | None) -> None:
    place = scene.copied(words)
    usual = scene.usual(words)
    again = ""
    if words == SAMPLE:
        again = " --resume"
    elif "export" in words:
        again = " --force"
    line = scene.command(words + again, place, count)
    with ExitStack() as stack:
        started = [stack.enter_context(Running(line)) for _ in range(3)]
        ended = [running.wait() for running in started]
    for result in ended:
        expect_told(result, words)
    assert any(result.code == 0 for result in ended), ended[0].err
    assert all(results(words, place)[name] == data for name, data in usual.items() if data), (
        "another result"
    )


def _two_users(scene: Scene) -> None:
    place = scene.copied()
    user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    with tempfile.TemporaryDirectory() as name:
        theirs = Path(name)
        (theirs / "cache").mkdir()
        shutil.copy(scene.work / "r.h5", theirs / "r.h5")
        run("chown", "-R", "65534:65534", theirs).expect()
        (theirs / "cache").chmod(0o1777)
        env = {"DSGMCMC_CACHE_DIR": f"{theirs}/cache", "HOME": name}
        words = SAMPLE.replace("DATA", f"{theirs}/r.h5").replace("OUT", name)
        with Running((*user, *scene.command(words, theirs, 2)), env) as other:
            run(*scene.command(SAMPLE, place, 2), env=env).expect(0)
            other.wait().expect(0)
        assert digest(theirs / "run") == digest(place / "out/run") == digest(scene.source / "run")


# ---------------------------------------------------------------------- files and numbers


def files(scene: Scene) -> Attempts:
    """Damaged and hostile files."""
    folder = scene.new()
    for name in ("t.csv", "t.tsv", "t.mtx", "t.json", "t.gz", "t.npz", "t.parquet", "zstd.parquet"):
        path = write_table(folder / name)
        for part in range(5):
            title = "damaged ratings: csv, tsv, mtx, json, gz, npz, parquet (snappy, zstd)"
            yield title, path.name, partial(_damaged, scene, "table", path, "", 50, part)
    undamaged = scene.source / "run"
    data = scene.work / "r.h5"
    inside = [
        path.relative_to(undamaged)
        for path in sorted(undamaged.rglob("*"))
        if path.is_file() and path.name != "lock"
    ]
    for part in range(10):
        names = ",".join(map(str, inside))
        yield (
            "damaged files of a run",
            part,
            partial(_damaged, scene, "run", undamaged, names, 75, part),
        )
        yield (
            "damaged ratings files (HDF5)",
            part,
            partial(_damaged, scene, "ratings", data, "", 50, part),
        )
    title = "hostile texts, links, and manifests that are sealed again, of a run"
    yield title, "", partial(_damaged, scene, "run", undamaged, "", 0, 0)


def _damaged(
    scene: Scene, kind: str, source: Path, names: str, count: int, part: int
) -> tuple[int, list[str]]:
    seed = scene.choice.randrange(10**6) + part
    done = run(
        sys.executable,
        FUZZER,
        kind,
        source,
        scene.new(),
        names,
        str(count),
        str(seed),
        timeout=2400,
    )
    report = json.loads(done.expect(0).out.splitlines()[-1])
    return sum(report["results"].values()), [f"seed {seed}: {case}" for case in report["wrong"]]


#: Files of tests, each of which is an attempt.
TESTS_OF = {
    "hostile tables, archives, headers, links, facts (tests)": (
        *(
            "unit/input/test_hostile_files.py",
            "unit/input/test_ingest_errors.py",
            "unit/ratings/test_ratings.py",
        ),
        *(
            "unit/storage/test_rundir.py",
            "unit/posterior/test_trust.py",
            "unit/storage/test_lock.py",
        ),
    ),
    "hostile names on a terminal and in the report (tests)": (
        "system/test_strange_names.py",
        "system/test_report.py",
    ),
    "runs of another user, caches without room (tests)": ("system/test_odd_places.py",),
    "a container cut off for 5 s, 30 s or for ever (tests)": ("cluster/test_docker.py -k cut",),
}


def tests(_: Scene) -> Attempts:
    """Hostile inputs and lost links that the tests have."""
    for title, names in TESTS_OF.items():
        for name in names:
            yield title, name, partial(_tested, name)


def _tested(name: str) -> tuple[int, list[str]]:
    done = run(sys.executable, "-m", "pytest", "-q", *name.split(), cwd=TESTS, timeout=2400)
    passed, failed = (
        sum(map(int, re.findall(rf"(\d+) (?:{word})", done.out)))
        for word in ("passed", "failed|error")
    )
    failures = [*re.findall("^(?:FAILED|ERROR).*", done.out, re.MULTILINE)]
    return (passed + failed, failures) if passed + failed else (1, [f"nothing ran: {done.out}"])


def numbers(scene: Scene) -> Attempts:
    """Ratings of extreme numbers and shapes."""
    for shape in SHAPES:
        for options in ("", "--noise both"):
            yield (
                "extreme numbers and shapes",
                (shape, options),
                partial(_finite, scene.new(), shape, options),
            )


def _finite(place: Path, shape: str, options: str) -> None:
    data = SHAPES[shape].make(0).prepare(place / "r.h5")
    result = run(
        *dsgmcmc("sample", data, "--out", place / "run", "--iterations", "100", *options.split())
    )
    expect_told(result, shape)
    assert result.code or np.isfinite(predict_test(open_run(place / "run").run_).mean).all(), (
        "not finite"
    )


#: Programs that read made-up tables, and how many.
VALID = {
    "valid tables: file, pandas, polars": (VALID_TABLES, 200),
    "disguised matrices: text, Parquet, pandas, polars": (DISGUISED_TABLES, 300),
    "disguised lines: text, Parquet, JSON, pandas, polars, sparse": (DISGUISED_LINES, 300),
}


def valid(scene: Scene) -> Attempts:
    """Valid tables, which commands and data frames read alike, and as people mean them."""
    start = scene.choice.randrange(10**6)
    for title, (program, number) in VALID.items():
        for first in range(start, start + number, 20):
            yield title, first, partial(_read_tables, program, scene.new(), first, 20)


def _read_tables(program: str, place: Path, first: int, number: int) -> tuple[int, list[str]]:
    done = run(sys.executable, program, place, first, first + number, timeout=2400)
    return number, json.loads(done.expect(0).out)


ATTACKS = {
    attack.__name__: attack
    for attack in (calls, disks, places, kills, readers, together, files, tests, numbers, valid)
}


def main() -> None:
    """Attack, and print what held."""
    parser = arguments(__doc__)
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=", ".join(ATTACKS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="every tenth attempt")
    parsed = parser.parse_args()
    say_head("attack", "tried", "held", "failed")
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        scene = Scene(Path(folder), parsed.seed)
        for name in parsed.attacks or ATTACKS:
            rows: dict[str, list[int]] = {}
            chosen = [
                one for k, one in enumerate(ATTACKS[name](scene)) if not parsed.quick or k % 10 == 0
            ]
            for (title, what, _), done in zip(
                chosen, [pool.submit(one[2]) for one in chosen], strict=True
            ):
                row = rows.setdefault(title, [0, 0])
                try:
                    result = done.result()
                    tried, failures = result if isinstance(result, tuple) else (1, [])
                except Exception as error:  # whatever it is, the attempt failed
                    tried = 1
                    failures = [f"{type(error).__name__}: {error}"]
                for failure in failures:
                    print(f"{title}: {what}: {failure[:1500]}", file=sys.stderr, flush=True)
                row[:] = row[0] + tried, row[1] + len(failures)
            for title, (tried, failed) in rows.items():
                say(title, tried, tried - failed, failed)
        run(
            "bash", "-c", "grep -o '$0[^ ]*' /proc/mounts | xargs -r umount".replace("$0", folder)
        ).expect(0)


if __name__ == "__main__":
    main()

"""Commands to which something happens: calls on files that fail, full disks, whatever a line of
shell can do.

`failing_disk.c` is preloaded into real commands, so that HDF5, DuckDB and Python fail alike.
"""

import errno
import random
import re
import shutil
import sys
import tempfile
from pathlib import Path

from support import Result, digest, dsgmcmc, lacking, planted, run

MODEL = (
    "sample DATA --out OUT/run --rank 2 --burn-in 6 --thin 3 --set evaluate_every=10 --save-draws 2"
)
SAMPLE = f"{MODEL} --sampler psgld --grid 2 --checkpoint-every 20 --iterations 60"
SIMILAR = """
import sys, dsgmcmc
from dsgmcmc.errors import InputError
try:
    print(dict(dsgmcmc.open_run(sys.argv[1]).similar(3)))
except (InputError, OSError) as error:
    print("dsgmcmc:", error, file=sys.stderr)
    sys.exit(1)
"""
#: Commands that write a file, and commands whose result is what they print. IN is a copy of
#: `Scene.source`.
WRITERS = (
    "prepare IN/r.csv OUT/o.h5 --force",
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

HALVED = "write,pwrite,pwrite64"
READING = "read,pread,pread64"
OPENING = "open,create"
WRITING = f"{HALVED},writev,fsync,ftruncate,ftruncate64"
CALLS = f"{WRITING},rename,unlink,unlinkat,mkdir"
#: Variables of `failing_disk.c`: calls that fail, how, and whether once or from then on.
KINDS = {
    "EIO": f"CALLS={CALLS} ERRNO={errno.EIO}",
    "full": f"CALLS={WRITING},mkdir,create ERRNO={errno.ENOSPC} ALSO=1000000000",
    "half a write": f"CALLS={HALVED} SHORT=1",
    "EIO of read": f"CALLS={READING} ERRNO={errno.EIO}",
    "EIO of close": f"CALLS=close ERRNO={errno.EIO}",
    "too many open files": f"CALLS={OPENING} ERRNO={errno.EMFILE}",
    "quota": f"CALLS={WRITING},mkdir,create ERRNO={errno.EDQUOT} ALSO=1000000000",
    "halves of writes": f"CALLS={HALVED} SHORT=1 ALSO=1000000000",
    "EIO of open": f"CALLS={OPENING} ERRNO={errno.EIO}",
    "EIO of mmap": f"CALLS=mmap,mmap64 ERRNO={errno.EIO}",
    "half a read": f"CALLS={READING} SHORT=1",
    "halves of reads": f"CALLS={READING} SHORT=1 ALSO=1000000000",
    "read-only": f"CALLS=create,mkdir,rename,unlink,unlinkat ERRNO={errno.EROFS} ALSO=1000000000",
}
#: Exit status of commands; 70 and more of a job, 127 and 134 where memory lacks for the C library,
#: 137 of a kill.
STATUS = (0, 1, 2, 70, 75, 127, 134, 137)


class Scene:
    """Ratings, features, pairs and a run in the folder `source`.

    Every attempt has a copy, and an empty folder.

    Parameters
    ----------
    work : Path
        Empty folder, for everything.
    seed : int
        Of the calls that fail.
    """

    def __init__(self, work: Path, seed: int = 0) -> None:
        self.work = work
        self.choice = random.Random(seed)
        compiler = shutil.which("gcc") or shutil.which("cc") or lacking("a C compiler is needed")
        self._usual: dict[str, dict[str, bytes | None]] = {}
        self.library = work / "failing_disk.so"
        self.source = self.new()
        code = Path(__file__).with_name("failing_disk.c")
        run(compiler, "-shared", "-fPIC", "-O2", "-o", self.library, code, "-ldl").expect()
        rated = [
            f"{u},{v},{min(max(x, 1), 5):.0f},{900 + u}"
            for u, v, x in zip(*planted(40, 30), strict=True)
        ]
        for name, head, lines in (
            ("r", "user,item,rating,timestamp", rated),
            ("c", "user,item", [line.rsplit(",", 2)[0] for line in rated]),
            ("u", "user,age,job", [f"{u},{20 + u},{'abc'[u % 3]}" for u in range(40)]),
            ("p", "user,item", [f"{u},{v}" for u in range(20) for v in range(10)]),
        ):
            (self.source / f"{name}.csv").write_text("\n".join([head, *lines, ""]))
        for name, words in (("r", WRITERS[1]), ("c", "prepare IN/c.csv OUT/o.h5")):
            folder = self.attempt(words)
            shutil.copy(folder / "out/o.h5", work / f"{name}.h5")
        folder = self.attempt(SAMPLE)
        shutil.copytree(folder / "out/run", self.source / "run")
        # the digest of a run is always the same
        self._usual[SAMPLE] = dict(results(SAMPLE, folder))

    def new(self) -> Path:
        """Make an empty folder."""
        return Path(tempfile.mkdtemp(dir=self.work))

    def command(self, words: str, folder: Path, processes: int | None = None) -> tuple[str, ...]:
        """Command line of words, in a folder of `copied`."""
        names = {"DATA": "../r.h5", "CLICKS": "../c.h5", "IN": "in", "OUT": "out"}
        line = [
            re.sub("|".join(names), lambda name: str(folder / names[name[0]]), word)
            for word in words.split()
        ]
        if line[0] == "similar":
            return (sys.executable, "-c", SIMILAR, line[1])
        return dsgmcmc(*line, processes=processes)

    def copied(self, words: str = "") -> Path:
        """Make a folder with a copy ``in`` of the source, and an empty ``out``; with --force there
        is a file.
        """
        folder = self.new()
        shutil.copytree(self.source, folder / "in")
        (folder / "out").mkdir()
        if "--force" in words:
            (folder / "out/o.h5").write_text("before")
        return folder

    def usual(self, words: str) -> dict[str, bytes | None]:
        """Results of words when nothing happens; None for those that are not twice the same."""
        if words not in self._usual:
            first, second = (results(words, self.attempt(words)) for _ in range(2))
            self._usual[words] = {
                name: data if second[name] == data else None for name, data in first.items()
            }
        return self._usual[words]

    def attempt(self, words: str, script: str = "", processes: int | None = None) -> Path:
        """Run words, in a script of the shell as ``"$@"``, in a new folder, which it knows as
        ``$0``.

        Without a script it must be done. Otherwise the result is the usual one, or the command says
        why not in one line, and leaves what was there before; a run is resumed, and is then the
        usual one.
        """
        folder = self.copied(words)
        command = self.command(words, folder, processes)
        if not script:
            (folder / "output").write_text(run(*command).expect(0).out)
            return folder
        usual = self.usual(words)
        before = results(words, folder)
        result = run("bash", "-c", script, str(folder), *command)
        (folder / "output").write_text(result.out)
        expect_told(result, script)
        if words.startswith("sample"):
            run(*self.command(f"{words} --resume", folder)).expect(0)
            assert results(words, folder) == usual, f"{script}: another digest, or something left"
            return folder
        there = results(words, folder)
        whole = set(there) == set(usual) and all(
            data is None or data.startswith(there[k]) for k, data in usual.items()
        )
        held = whole or (result.code and (there == before or "OUT" not in words))
        assert held, f"{script}: status {result.code}, and {[*there]} there: {result.err}"
        return folder

    def failing(self, words: str, kind: str, number: int, rank: int | None = None) -> list[str]:
        """Scripts in which some of the calls that a command makes fail."""
        counts = self.new() / "counts"
        processes = None if rank is None else 2
        base = f"FAIL_UNDER=$0 FAIL_{KINDS[kind].replace(' ', ' FAIL_')} LD_PRELOAD={self.library}"
        base += "" if rank is None else f" FAIL_RANK={rank}"
        self.attempt(words, f'env {base} FAIL_COUNT={counts} "$@"', processes)
        total = max(map(int, counts.read_text().split())) if counts.exists() else 0
        chosen = sorted(self.choice.sample(range(1, total + 1), min(number, total)))
        return [f'env {base} FAIL_AT={at} "$@"' for at in chosen]


def results(words: str, folder: Path) -> dict[str, bytes]:
    """Content of the files of a command, or what it printed; the digest of a run, and what should
    not be there.
    """
    out = folder / "out"
    if "OUT" not in words:
        output = folder / "output"
        if not output.exists():
            return {}
        return {"output": output.read_bytes().replace(str(folder).encode(), b"")}
    if words.startswith("sample"):
        left = [
            path.name for path in out.rglob("*") if re.search(r"\.tmp|\.trash|^compare$", path.name)
        ]
        begun = (out / "run/run.toml").exists()
        return {"left": str(left).encode(), "digest": digest(out / "run").encode()} if begun else {}
    # a comparison that ended keeps what it has made, to go on
    files = [path for path in out.iterdir() if path.is_file() or not any(path.iterdir())]
    return {path.name: path.read_bytes() if path.is_file() else b"" for path in files}


def expect_told(result: Result, at: object) -> None:
    """Done, or one message and a status of `STATUS`: no traceback, nothing of HDF5's own, no
    crash.
    """
    assert result.code in STATUS, (at, result.code, result.err)
    said = [line for line in result.err.splitlines() if line.startswith("dsgmcmc:")]
    assert len(said) == (result.code in (1, 2)) or result.code > 2 or "2>" in str(at), (
        at,
        result.code,
        result.err,
    )
    for word in ("Traceback", "HDF5", "Exception"):
        assert word not in result.err, (at, result.err)

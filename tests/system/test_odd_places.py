"""Places that cannot be written: a full or read-only disk, another user's folder, a full or closed
stream.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support import Result, digest, dsgmcmc, run, typed
from tiny import command, content

SOMEBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def test_a_cache_without_room(finished: Path, small_disk: Path, pairs: Path) -> None:
    """A quota that is used up: kernels are compiled into a temporary folder, as where the cache may
    not be written.
    """
    with suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))
    line = ("predict", finished, pairs)
    result = run(*dsgmcmc(*line), env={"DSGMCMC_CACHE_DIR": str(small_disk / "cache")}).expect(0)
    assert result.out == typed(*line).expect(0).out


@pytest.mark.parametrize("words", ["report RUN -o OUT.html", "predict RUN PAIRS -o OUT.csv"])
def test_a_read_only_file_system(finished: Path, small_disk: Path, pairs: Path, words: str) -> None:
    """One line with the reason, and nothing left behind."""
    run("mount", "-o", "remount,ro", small_disk).expect()
    line = (
        words.replace("RUN", str(finished))
        .replace("PAIRS", str(pairs))
        .replace("OUT", str(small_disk / "out"))
    )
    result = run(*dsgmcmc(*line.split())).expect(2)
    assert result.err.count("\n") == 1
    assert str(small_disk) in result.err
    assert "Read-only file system" in result.err
    assert not list(small_disk.iterdir())


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Folder that others may enter, which `tmp_path` is not, and a Python that they may run."""
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    if run(*SOMEBODY, sys.executable, "-c", "import dsgmcmc.cli.app, h5py").code:
        pytest.skip("others may not run this Python")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_run_of_another_user(open_folder: Path, finished: Path, data: Path) -> None:
    """Users who may read it can ask it everything; commands that would write there are refused in
    one line.
    """
    env = {"HOME": "/nonexistent", "DSGMCMC_CACHE_DIR": ""}
    out = shutil.copytree(finished, open_folder / "run")
    before = content(out)
    for words in ("info RUN", "verify RUN", "recommend RUN --user 3 --by mean --include-rated"):
        run(*SOMEBODY, *dsgmcmc(*words.replace("RUN", str(out)).split()), env=env).expect(0)
    shared = Path(shutil.copy(data, open_folder))
    for refused in (
        dsgmcmc("report", out, "-o", out / "page.html"),
        command(shared, out, None, "--resume", iterations=60),
    ):
        result = run(*SOMEBODY, *refused, env=env).expect(2)
        assert result.err.splitlines()[-1].endswith("Permission denied")
        assert "Traceback" not in result.err
    assert content(out) == before
    for shard in out.rglob("*.h5"):
        shard.chmod(0o600)
    result = run(*SOMEBODY, *dsgmcmc("verify", out), env=env).expect(2)
    assert "Permission denied" in result.err
    assert "damaged" not in result.err


# ---------------------------------------------------------------------- standard output and error


def redirected(where: str, *line: str) -> Result:
    """Run a command behind a redirection of the shell's."""
    return run("bash", "-c", f'"$@" {where}', "bash", *line)


@pytest.mark.parametrize("words", ["--help", "predict RUN PAIRS", "verify RUN"])
def test_standard_output_that_is_full_or_closed(finished: Path, pairs: Path, words: str) -> None:
    """Status 1 and one line, whatever prints: print, rich, typer or the bytes of a table."""
    line = words.replace("RUN", str(finished)).replace("PAIRS", str(pairs)).split()
    closed = words.startswith("verify")
    where, reason = (
        (">&-", "Bad file descriptor") if closed else (">/dev/full", "No space left on device")
    )
    result = redirected(where, *dsgmcmc(*line)).expect(1)
    assert result.err == f"dsgmcmc: standard output cannot be written: {reason}\n"


@pytest.mark.parametrize(
    ("where", "last"),
    [
        (">/dev/full", "dsgmcmc: standard output cannot be written: No space left on device\n"),
        (
            ">&- 2>&- <&-",
            "",
        ),  # no file of the run takes the place of a closed stream, to have what is printed in it
    ],
)
def test_a_run_whose_result_cannot_be_printed_is_complete(
    data: Path, tmp_path: Path, where: str, last: str
) -> None:
    """The command ends with status 1 and one line; the summary has the result, and all files are
    whole.
    """
    out = tmp_path / "run"
    result = redirected(where, *command(data, out, iterations=20)).expect(1)
    assert result.err.endswith(last)
    assert json.loads((out / "summary.json").read_text())["iterations"] == 20
    digest(out)


def test_a_run_goes_on_though_it_cannot_say_how(data: Path, tmp_path: Path) -> None:
    """Progress is no result: without standard error all else is as ever."""
    result = redirected("2>/dev/full", *command(data, tmp_path / "run", iterations=20)).expect(0)
    assert "finished: 20 iterations" in result.out


def test_an_address_space_that_is_too_small_is_refused(data: Path) -> None:
    """Libraries would abort the process."""
    result = run("bash", "-c", 'ulimit -v 800000; "$@"', "bash", *dsgmcmc("info", data)).expect(2)
    assert result.err.startswith("dsgmcmc: ulimit -v is 781 MiB")


def test_a_disk_that_may_fill_is_said_before_it_does(data: Path, small_disk: Path) -> None:
    """A run that fits only with luck warns of what it may take, and is not refused."""
    settings = {"iterations": 100_000, "thin": 1, "save_draws": 1000}
    line = command(data, small_disk / "run", None, "--dry-run", **settings)
    done = run(*line).expect(0)
    assert "the run may take up to" in done.err
    assert "if the disk fills, the run ends, and --resume goes on" in done.err

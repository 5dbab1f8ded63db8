"""The likeliest first mistakes: one line each, that leads on."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from dsgmcmc._version import __version__
from dsgmcmc.cli.app import app
from dsgmcmc.errors import EXIT_INTERRUPTED, InputError
from dsgmcmc.storage.rundir import RunDirectory


def test_the_version() -> None:
    """Asked for first, and in every report of a defect."""
    assert CliRunner().invoke(app, ["--version"]).output == f"dsgmcmc {__version__}\n"


def test_help_has_whole_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """On 80 columns, too: what is cut cannot be typed."""
    monkeypatch.setenv("COLUMNS", "80")
    for name, command in typer.main.get_command(app).commands.items():
        shown = CliRunner().invoke(app, [name, "--help"]).output
        options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
        assert all(re.search(rf"{option}\b", shown) for option in options), name
        assert "…" not in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["evaluate", "run", "--at", "abc"], "'--at': must be a whole number (found 'abc')"),
        (["prepare", "a", "b", "--seed", "-1"], "'--seed': must be at least 0 (found '-1')"),
        (["sample", "a", "--out", "b", "--step-size", "x"], "'--step-size': must be a number (found 'x')"),
        (["recommend", "run", "--by", "foo"], "'foo' is not one of 'likely', 'exposure'"),
    ],
)
def test_options_are_refused_in_our_words(arguments: list[str], words: str) -> None:
    """And not in those of the libraries that read them: "Input should be a valid integer, unable to parse ..."."""
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert words in done.output.replace("\n", " ")
    assert "Value error" not in done.output


def test_prepare_without_an_output(tmp_path: Path) -> None:
    """It is the output that is missing, not the ratings."""
    found = CliRunner().invoke(app, ["prepare", str(tmp_path / "ratings.csv")]).exception
    assert isinstance(found, InputError)
    assert "OUT.h5" in str(found)


def test_what_is_not_a_run(tmp_path: Path) -> None:
    """Why, without an errno."""
    (tmp_path / "file").touch()
    for name, why in (("none", "it does not exist"), ("", "there is no run.toml in it"), ("file", "it is a file")):
        with pytest.raises(InputError, match=why):
            RunDirectory(tmp_path / name).read_settings()


@pytest.mark.parametrize("module", ["dsgmcmc.parallel.signals", "dsgmcmc.parallel.machine", "typer", "duckdb"])
@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_while_libraries_load_is_no_traceback(module: str, times: int) -> None:
    """Nobody waits for imports to end before pressing Ctrl-C, and a launcher passes on what the terminal sent."""
    code = (
        "import sys, signal, dsgmcmc.__main__ as m\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *rest):\n"
        f"        for _ in range({times} * (name == '{module}')): signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "sys.argv[1:] = ['prepare', 'none.csv', 'none.h5']\n"
        "m.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    expected = (EXIT_INTERRUPTED, "dsgmcmc: interrupted\n"), (-signal.SIGINT, "")  # a shell shows 130 for both
    assert (done.returncode, done.stderr) == expected[module == "dsgmcmc.parallel.signals"]


def test_the_first_lines_of_a_command_load_next_to_nothing() -> None:
    """Until its own code runs, Python answers Ctrl-C with a traceback: that time is too short to be hit."""
    code = "import sys; before = set(sys.modules); import dsgmcmc.__main__; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"typing", "dsgmcmc.errors", "dsgmcmc.parallel"} & set(done.stdout.split())


def test_what_is_ignored_stays_ignored() -> None:
    """A command in the background of a script does not hear the Ctrl-C of what is in front."""
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "import atexit, dsgmcmc.__main__ as m\n"
        "sys.argv[1:] = ['--version']\n"
        "atexit.register(lambda: print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN))\n"
        "m.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "True"


def test_one_press_that_comes_twice_lets_a_command_tidy_up() -> None:
    """`timeout` and launchers signal the process and its group; a second press ends the process at once."""
    code = (
        "import os, signal, time\n"
        "from dsgmcmc.parallel.signals import interrupt\n"
        "signal.signal(signal.SIGINT, interrupt)\n"
        "try: os.kill(os.getpid(), signal.SIGINT); time.sleep(60)\n"
        "finally: time.sleep({}); os.kill(os.getpid(), signal.SIGINT); time.sleep(0.01); print('tidied', flush=True)\n"
    )
    for seconds, tidied in ((0, True), (0.5, False)):
        command = [sys.executable, "-c", code.format(seconds)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert ("tidied" in done.stdout) == tidied
        assert done.returncode == -signal.SIGINT

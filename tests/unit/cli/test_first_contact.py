"""The likeliest first mistakes: one line each, that leads on."""

import re
import signal
import sys

import pytest
import typer
from support import run
from typer.testing import CliRunner

from dsgmcmc.cli.app import app
from dsgmcmc.errors import Exit


def test_help_has_whole_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """On 80 columns, too: what is cut cannot be typed."""
    monkeypatch.setenv("COLUMNS", "80")
    for name, command in typer.main.get_command(app).commands.items():
        shown = CliRunner().invoke(app, [name, "--help"]).output
        options = {
            option
            for parameter in command.params
            for option in parameter.opts
            if option.startswith("--")
        }
        assert all(re.search(rf"{option}\b", shown) for option in options), name
        assert "…" not in shown


@pytest.mark.parametrize(
    "module", ["dsgmcmc.parallel.signals", "dsgmcmc.parallel.comm", "typer", "duckdb"]
)
@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_while_libraries_load_is_no_traceback(module: str, times: int) -> None:
    """Nobody waits for imports to end before pressing Ctrl-C, and a launcher passes on what the
    terminal sent.
    """
    code = (
        "import sys, signal, dsgmcmc.__main__ as m\nclass Interrupt:\n    def find_spec(self,"
        f" name, *rest):\n        for _ in range({times} * (name == '{module}')):"
        " signal.raise_signal(signal.SIGINT)\nsys.meta_path.insert(0, Interrupt())\nsys.argv[1:] ="
        " ['prepare', 'none.csv', 'none.h5']\nm.main()\n"
    )
    done = run(sys.executable, "-c", code)
    # a shell shows 130 for both
    expected = (
        (Exit.INTERRUPTED, "dsgmcmc: interrupted\n"),
        (-signal.SIGINT, ""),
    )
    assert (done.code, done.err) == expected[module == "dsgmcmc.parallel.signals"]


def test_what_is_ignored_stays_ignored() -> None:
    """A command in the background of a script does not hear the Ctrl-C of what is in front."""
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "import atexit, dsgmcmc.__main__ as m\n"
        "sys.argv[1:] = ['--version']\n"
        "atexit.register(lambda: print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN))\n"
        "m.main()\n"
    )
    assert run(sys.executable, "-c", code).expect().out.split()[-1] == "True"


def test_one_press_that_comes_twice_lets_a_command_tidy_up() -> None:
    """`timeout` and launchers signal the process and its group; a second press ends the process at
    once.
    """
    code = (
        "import os, signal, time\nfrom dsgmcmc.parallel.signals import"
        " interrupt\nsignal.signal(signal.SIGINT, interrupt)\ntry: os.kill(os.getpid(),"
        " signal.SIGINT); time.sleep(60)\nfinally: time.sleep({}); os.kill(os.getpid(),"
        " signal.SIGINT); time.sleep(0.01); print('tidied', flush=True)\n"
    )
    for seconds, tidied in ((0, True), (0.5, False)):
        done = run(sys.executable, "-c", code.format(seconds), timeout=60).expect(-signal.SIGINT)
        assert ("tidied" in done.out) == tidied

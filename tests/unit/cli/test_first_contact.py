"""The likeliest first mistakes: one line each, that leads on."""

from __future__ import annotations

import re
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


def test_an_interrupt_while_libraries_load_is_no_traceback() -> None:
    """Nobody waits for imports to end before pressing Ctrl-C."""
    code = (
        "import sys, signal, dsgmcmc.__main__ as m\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'typer': signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "m.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (EXIT_INTERRUPTED, "dsgmcmc: interrupted\n")

"""The pages under docs: their Python is executed, their commands and links exist, the reference is up to date."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from pathlib import Path

import pytest
import typer
from support import run

from dsgmcmc.cli.app import app

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(DOCS.glob("*.md"))
EXECUTED = ["own-likelihood.md", "own-sampler.md", "tutorial.md"]
ELSEWHERE = ["own-target.md"]  # in a test of its own, under mpirun


def blocks(page: Path, language: str) -> list[str]:
    """Fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("name", EXECUTED)
def test_examples_run(name, tmp_path):
    """A page's blocks, one after the other, in a process of their own: what readers paste works."""
    code = "\n".join(blocks(DOCS / name, "python"))
    assert "assert" in code
    script = tmp_path / "page.py"
    script.write_text(f"import os\nos.chdir({str(tmp_path)!r})\n{code}", encoding="utf-8")
    run(sys.executable, "-W", "error", script).expect(0)


def test_no_python_is_left_unexecuted():
    """A new page with code has to be listed."""
    assert [page.name for page in PAGES if blocks(page, "python")] == sorted(EXECUTED + ELSEWHERE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_exist(page):
    """Every line of a shell block that starts dsgmcmc names a command and options that there are."""
    group = typer.main.get_command(app)
    for line in "\n".join(blocks(page, "sh")).splitlines():
        words = shlex.split(line.split("|")[-1])
        if "dsgmcmc" not in words:
            continue
        name, *arguments = words[words.index("dsgmcmc") + 1 :]
        command = group.commands[name]
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        used = {word.split("=")[0] for word in arguments if re.match(r"--?[a-zA-Z]", word)}
        assert used <= known, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    """Between the pages, and to files of the repository."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert link.startswith("https://") or (page.parent / link).exists(), link
    for path in re.findall(r"`((?:dsgmcmc|tests|launch)/[\w./-]+)`", text):
        assert (DOCS.parent / path).exists(), path


def test_every_page_is_on_the_index():
    """A page that no page points to is not found."""
    linked = set(re.findall(r"\]\((\w[\w-]*\.md)\)", (DOCS / "index.md").read_text(encoding="utf-8")))
    assert linked == {page.name for page in PAGES} - {"index.md"}


def test_the_reference_is_that_of_the_docstrings():
    """Out of date? Run `python docs/reference.py`."""
    spec = importlib.util.spec_from_file_location("reference", DOCS / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.reference() == (DOCS / "api.md").read_text(encoding="utf-8")

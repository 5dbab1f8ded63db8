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
from typer.testing import CliRunner

from dsgmcmc.cli.app import app

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
#: Of the experiments of papers, the forms that take seconds.
QUICK = {
    script
    for page in DOCS.glob("papers/*.md")
    for script in re.findall(
        r"^    python (tests/benchmarks/\w+\.py) --quick", page.read_text(encoding="utf-8"), re.MULTILINE
    )
}
EXECUTED = ["features.md", "own-likelihood.md", "own-sampler.md", "serving.md", "tutorial.md"]
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


@pytest.mark.parametrize("script", sorted(QUICK))
def test_experiments_of_papers_run(script):
    """In their quick form, as the page has it: the figures can be made again."""
    assert "|" in run(sys.executable, DOCS.parent / script, "--quick").expect(0).out


def test_the_python_of_the_readme_runs(tmp_path):
    """On a file of ratings beside it, and a run."""
    lines = [f"{user},{item},{1 + (user * item) % 5}" for user in range(1, 20) for item in range(1, 21)]
    (tmp_path / "ratings.csv").write_text("user,item,rating\n" + "\n".join(lines), encoding="utf-8")
    (code,) = blocks(DOCS.parent / "README.md", "python")
    beforehand = 'from dsgmcmc import BPMF\nBPMF(rank=2, iterations=120, out="run").fit("ratings.csv")\n'
    run(sys.executable, "-c", f"import os\nos.chdir({str(tmp_path)!r})\n{beforehand}{code}").expect(0)


def test_the_commands_of_the_tutorial_run(tmp_path, monkeypatch):
    """One after the other, as they stand, on a small data set in the place of MovieLens 1M, which is so not fetched."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ml-1m").mkdir()
    users, items = [1, 2, *range(35, 51)], [*range(1, 14), 661, 1193]
    rated = [(u, i) for u in users for i in items if (u + i) % 3]
    movielens = "".join(f"{u}::{i}::{1 + (u * i) % 5}::0\n" for u, i in rated)
    (tmp_path / "ml-1m" / "ratings.dat").write_text(movielens, encoding="utf-8")
    (tmp_path / "ml-1m" / "movies.dat").write_text("1::One (1995)::Drama\n2::Two (1996)::Drama\n", encoding="latin-1")
    Path("new_users.csv").write_text("user,item,rating\n9001,1,5\n9001,2,3\n", encoding="utf-8")
    Path("pairs.csv").write_text("user,item\n1,2\n2,3\n", encoding="utf-8")
    for line in "\n".join(blocks(DOCS / "tutorial.md", "sh")).splitlines():
        given, _, command = line.rpartition(" | ")
        words = shlex.split(command, comments=True)
        if words[:1] == ["mpirun"]:
            run(*words[:3], sys.executable, "-m", *words[3:]).expect(0)
        elif words:
            piped = shlex.split(given)[1].encode().decode("unicode_escape") if given else None
            done = CliRunner().invoke(app, words[1:], input=piped)
            assert done.exit_code == 0, (line, done.output, done.exception)


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
    linked = set(re.findall(r"\]\((\w[\w/-]*\.md)\)", (DOCS / "index.md").read_text(encoding="utf-8")))
    pages = {str(page.relative_to(DOCS)) for page in PAGES}
    assert linked == pages - {"index.md"}
    nav = re.findall(r"^ +- ([\w/-]+\.md)$", (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(nav) == sorted(pages)


@pytest.mark.parametrize(("script", "page"), [("reference", "api.md"), ("settings", "settings.md")])
def test_generated_pages_are_up_to_date(script, page):
    """Out of date? Run `python docs/reference.py` and `python docs/settings.py`."""
    spec = importlib.util.spec_from_file_location(script, DOCS / f"{script}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert getattr(module, script)() == (DOCS / page).read_text(encoding="utf-8")

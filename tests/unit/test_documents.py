"""The pages that users read, against what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from dsgmcmc.cli.app import app
from dsgmcmc.samplers import SAMPLERS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("*/README.md"), *sorted(ROOT.glob("docs/**/*.md"))]


def test_every_command_and_sampler_is_documented():
    """A command that the README does not name, or a sampler that its page does not name, is not found."""
    readme, samplers = ((ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/samplers.md"))
    commands = set(typer.main.get_command(app).commands)
    assert commands <= set(re.findall(r"^\| `dsgmcmc ([a-z-]+)", readme, flags=re.MULTILINE))
    assert set(SAMPLERS) <= set(re.findall(r"^\| `([a-z]+)`", samplers, flags=re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_points_to_exists(page):
    """Links and paths in the text go stale when files move."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", text) if not link.startswith("https://")]
    paths = re.findall(r"`((?:dsgmcmc|launch|data|docker|tests)/[\w./-]*)`", text)
    missing = [link for link in links if not (page.parent / link).exists()]
    missing += [path for path in paths if not (ROOT / path).exists()]
    assert not missing


def test_the_tests_that_the_page_on_reliability_names_are_there():
    """It says of every fault which test holds what is promised; `::name` is of the file before."""
    page, here = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8"), ""
    files = {path.name: path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/test_*.py")}
    for file, name in re.findall(r"`(?:[\w/]*(test_\w+\.py))?(?:::(\w+))?`", page):
        here = file or here
        assert f"def {name}" in files[here], (here, name)

"""The pages that users read, against what is there."""

import re
from pathlib import Path

import pytest
import typer

from dsgmcmc.cli.app import app
from dsgmcmc.samplers import SAMPLERS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *ROOT.glob("*/README.md"),
    *sorted(ROOT.glob("docs/**/*.md")),
]


def test_every_command_and_sampler_is_documented():
    """A command that the README does not name, or a sampler that its page does not name, is not
    found.
    """
    readme, samplers = (
        (ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/samplers.md")
    )
    commands = set(typer.main.get_command(app).commands)
    assert commands <= set(re.findall(r"^\| `dsgmcmc ([a-z-]+)", readme, flags=re.MULTILINE))
    assert set(SAMPLERS) <= set(re.findall(r"^\| `([a-z]+)`", samplers, flags=re.MULTILINE))


def text_of(page: Path) -> str:
    """Text of a page without its blocks of code."""
    return re.sub(
        r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )


def anchors(page: Path) -> set[str]:
    """Anchors of the headings of a page, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.*)$", text_of(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_points_to_exists(page):
    """Links, their anchors, and paths in the text go stale when files move."""
    missing = []
    for link in re.findall(r"\]\(((?!https?:)[^)]+)\)", text_of(page)):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            missing.append(link)
    paths = re.findall(r"`((?:dsgmcmc|launch|data|docker|tests)/[\w./-]*)`", text_of(page))
    assert not missing + [path for path in paths if not (ROOT / path).exists()]

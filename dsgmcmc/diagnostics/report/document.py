"""The HTML page that reports and other pages of results are: one file with its style in it, and no script."""

from __future__ import annotations

import html
from collections.abc import Sequence
from importlib import resources

from dsgmcmc._version import __version__


def document(title: str, sections: Sequence[str]) -> str:
    """HTML of a page."""
    style = resources.files("dsgmcmc.diagnostics.report").joinpath("style.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>dsgmcmc: {html.escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f'<p class="sub">dsgmcmc {__version__}</p>\n' + "\n".join(sections) + "\n</main>\n</body>\n</html>\n"
    )


def section(title: str, content: str, note: str = "", charts: bool = True) -> str:
    """HTML of a section with its title, a note and its content."""
    inner = f'<div class="charts">{content}</div>' if charts else content
    note = f'<p class="sub">{html.escape(note)}</p>' if note else ""
    return f"<section><h2>{html.escape(title)}</h2>{note}{inner}</section>"


def tiles(shown: Sequence[tuple[str, str]]) -> str:
    """HTML of figures that stand out, each with its label."""
    inner = "".join(f'<div class="tile"><b>{value}</b><span>{label}</span></div>' for value, label in shown)
    return f'<div class="tiles">{inner}</div>'

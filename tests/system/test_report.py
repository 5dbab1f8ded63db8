"""The report: a page that needs nothing else, and that a browser shows readable."""

import html
import json
import re
import shutil
from pathlib import Path

import pytest
from runs import make_run
from support import lacking, run, typed

#: How a run ended, its sizes and the simplest predictors: what a reader looks for first.
HEAD = (
    "finished: 120 iterations",
    "training ratings, ",
    "(biases only ",
    ", mean only ",
    "@media print",
)

SECTIONS = (
    "What was observed, Observed and predicted, Calibration, Errors by group, Ranking, Rows"
    " and columns in one plane, Variance by factor, Convergence, Traces, Error while sampling,"
    " Time, Configuration, Glossary"
)

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")

#: Run inside the page: every text of every figure, what overlaps, what is too small, what lies
#: outside.
MEASURE = """<script>
const found = {texts: 0, overlapping: [], small: [], outside: [], sideways: 0};
for (const part of document.querySelectorAll('details')) part.open = true;
for (const svg of document.querySelectorAll('figure > svg')) {
  const texts = [...svg.querySelectorAll('text')], card = svg.getBoundingClientRect();
  const boxes = texts.map(t => t.getBoundingClientRect());
  const name = svg.closest('section').firstChild.textContent;
  found.texts += texts.length;
  texts.forEach((t, a) => {
    const box = boxes[a];
    const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
    const size = parseFloat(getComputedStyle(t).fontSize) * scale;
    if (size < 8.5) found.small.push([name, t.textContent, size]);
    const wide = box.left < card.left || box.right > card.right + 1;
    if (wide || box.top < card.top || box.bottom > card.bottom)
      found.outside.push([name, t.textContent]);
    for (let b = a + 1; b < boxes.length; b++) {
      const o = boxes[b];
      const beside = box.left + 1 < o.right && o.left + 1 < box.right;
      if (beside && box.top + 2 < o.bottom && o.top + 2 < box.bottom)
        found.overlapping.push([name, t.textContent, texts[b].textContent]);
    }
  });
}
found.cut = [...document.querySelectorAll('.scroll')]
  .filter(s => s.textContent.includes('R-hat') && s.scrollWidth > s.clientWidth)
  .map(s => s.textContent);
found.sideways = document.documentElement.scrollWidth - window.innerWidth;
found.requests = performance.getEntriesByType('resource').map(r => r.name);
const out = document.createElement('pre');
out.id = 'found';
out.textContent = JSON.stringify(found);
top.document.body.appendChild(out);
</script>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """Report of a run of four chains, sampled by the command."""
    sampled = make_run(tmp_path_factory.mktemp("run"), chains=4)
    out = tmp_path_factory.mktemp("report") / "report.html"
    typed("report", sampled.path.rename(sampled.path.with_name("a")), "--out", out).expect(0)
    return out


@pytest.fixture(scope="module")
def browser() -> str:
    """Path of a Chromium; CI installs one, so that there its absence is a failure."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    return path or lacking(
        f"no browser ({', '.join(BROWSERS)}): on Debian, apt-get install chromium"
    )


@pytest.mark.parametrize("width", [1240, 700, 375])
def test_a_browser_shows_readable_axes(browser, page, tmp_path, width):
    """On a wide and a narrow window, and a phone: labels of charts there, large enough, inside,
    none over another.
    """
    measured = tmp_path / "measured.html"
    inner = page.read_text(encoding="utf-8").replace("</body>", MEASURE + "</body>")
    frame = (
        f'<iframe width="{width}" height="900" style="border:0"'
        f' srcdoc="{html.escape(inner)}"></iframe>'
    )
    # no window is as narrow as a phone
    measured.write_text(f"<!doctype html><body>{frame}</body>", encoding="utf-8")
    options = (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
    )
    dom = (
        run(browser, *options, "--window-size=1300,900", "--dump-dom", measured.as_uri())
        .expect()
        .out
    )
    text = re.search(r'<pre id="found">(.*?)</pre>', dom, re.DOTALL)
    assert text, dom[-500:]
    figures = json.loads(text[1].replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">"))
    assert figures["texts"] > 100
    problems = ("overlapping", "small", "outside", "requests", "cut")
    assert {name: figures[name] for name in problems} == {name: [] for name in problems}
    assert figures["sideways"] <= 0


def test_the_page_has_what_it_promises_and_needs_nothing_else(page):
    """All sections, advice, how the run ended, and its settings; no scripts, links or pictures from
    elsewhere.
    """
    text = page.read_text(encoding="utf-8")
    titles = ", ".join(re.findall(r"<h2>(.*?)</h2>", text))
    assert re.sub(r", biases left out: \d of 3 factors hold 99% of it", "", titles) == SECTIONS
    assert text.count("<svg") == 7
    for needed in ("stochastic-gradient", "Probability integral transform", *HEAD):
        assert needed in text
    assert re.search(r"<td>sampler.name</td><td>[a-z]+</td>", text)
    assert re.search(r"<td>last result</td><td>\d{4}-\d\d-\d\dT\d\d:\d\d", text)
    # a line breaks before an option, not inside
    assert not re.findall(r'<p class="advice">[^<]*--', text)
    assert "nan" not in re.sub(r"<style>.*?</style>|<svg.*?</svg>", "", text, flags=re.DOTALL)
    text = re.sub(r'xmlns(:xlink)?="[^"]*"', "", text)
    assert not re.findall(r"<script|<link|<img|<iframe|@import|url\([^#]|https?://|src=", text)
    assert len(text) < 3_000_000

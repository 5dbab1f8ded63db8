"""The report: a page that needs nothing else, and that a browser shows readable."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from runs import Made, make_run
from support import typed

from dsgmcmc.diagnostics.report import write_report
from dsgmcmc.diagnostics.report.charts import Series, line_chart, number, ticks
from dsgmcmc.errors import InputError

#: How a run ended, its sizes and the simplest predictors: what a reader looks for first.
HEAD = ("finished: 120 iterations", "training ratings, ", "RMSE, biases only", "RMSE, mean only", "@media print")

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")

#: Run inside the page: every text of every chart, what overlaps, what is too small, what lies outside.
MEASURE = """<script>
const found = {texts: 0, overlapping: [], small: [], outside: [], hidden: [], sideways: 0};
for (const svg of document.querySelectorAll('figure > svg')) {
  const texts = [...svg.querySelectorAll('text')], card = svg.closest('figure').getBoundingClientRect();
  const boxes = texts.map(t => t.getBoundingClientRect());
  found.texts += texts.length;
  texts.forEach((t, a) => {
    const box = boxes[a], name = svg.getAttribute('aria-label');
    const size = parseFloat(getComputedStyle(t).fontSize) * svg.getBoundingClientRect().width / 560;
    if (size < 8.5) found.small.push([name, t.textContent, size]);
    if (box.left < card.left || box.right > card.right + 1 || box.top < card.top || box.bottom > card.bottom)
      found.outside.push([name, t.textContent]);
    for (let b = a + 1; b < boxes.length; b++) {
      const o = boxes[b];
      if (box.left + 1 < o.right && o.left + 1 < box.right && box.top + 2 < o.bottom && o.top + 2 < box.bottom)
        found.overlapping.push([name, t.textContent, texts[b].textContent]);
    }
  });
  if (!svg.querySelector('.label')) found.hidden.push(svg.getAttribute('aria-label'));
}
found.cut = [...document.querySelectorAll('.scroll')]
  .filter(s => s.textContent.includes('R-hat') && s.scrollWidth > s.clientWidth).map(s => s.textContent);
found.sideways = document.documentElement.scrollWidth - window.innerWidth;
found.requests = performance.getEntriesByType('resource').map(r => r.name);
const out = document.createElement('pre'); out.id = 'found'; out.textContent = JSON.stringify(found);
top.document.body.appendChild(out);
</script>"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> list[Made]:
    """Four chains, and one chain of another sampler."""
    folder = tmp_path_factory.mktemp("runs")
    psgld = {"sampler": {"name": "psgld"}, "iterations": 300, "burn_in": 90, "thin": 6}
    return [make_run(folder / "first", chains=4), make_run(folder / "second", **psgld)]


@pytest.fixture(scope="module")
def page(runs, tmp_path_factory) -> Path:
    """Report of both runs, made by the command."""
    out = tmp_path_factory.mktemp("report") / "report.html"
    first, second = (made.path.rename(made.path.with_name(name)) for made, name in zip(runs, ("a", "b"), strict=True))
    typed("report", first, second, "--out", out).expect(0)
    return out


@pytest.fixture(scope="module")
def browser() -> str:
    """Path of a Chromium; CI installs one, so that there its absence is a failure."""
    found = next((path for path in map(shutil.which, BROWSERS) if path), None)
    if found is None:
        reason = f"no browser ({', '.join(BROWSERS)}): on Debian, apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def chromium(browser: str, *arguments: str) -> str:
    """Output of a headless browser."""
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")
    done = subprocess.run([browser, *options, *arguments], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("width", [1240, 700, 375])
def test_a_browser_shows_readable_axes(browser, page, tmp_path, width):
    """On a wide and a narrow window, and a phone: labels of charts there, large enough, inside, none over another."""
    measured = tmp_path / "measured.html"
    inner = page.read_text(encoding="utf-8").replace("</body>", MEASURE + "</body>")
    frame = f'<iframe width="{width}" height="900" style="border:0" srcdoc="{html.escape(inner)}"></iframe>'
    measured.write_text(f"<!doctype html><body>{frame}</body>", encoding="utf-8")  # no window is as narrow as a phone
    dom = chromium(browser, "--window-size=1300,900", "--dump-dom", measured.as_uri())
    text = re.search(r'<pre id="found">(.*?)</pre>', dom, re.DOTALL)
    assert text, dom[-500:]
    found = json.loads(text[1].replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">"))
    assert found["texts"] > 150
    problems = ("overlapping", "small", "outside", "hidden", "requests", "cut")
    assert {name: found[name] for name in problems} == {name: [] for name in problems}
    assert found["sideways"] <= 0


def test_a_screenshot_has_ink_in_every_part(browser, page, tmp_path):
    """The page is drawn, not blank: every fifth of the picture has colours of lines and bars."""
    picture = tmp_path / "page.png"
    chromium(browser, "--window-size=1240,4500", f"--screenshot={picture}", page.as_uri())
    pixels = imread(picture)[..., :3]
    assert pixels.shape[:2] == (4500, 1240)
    colourful = (pixels.max(axis=2) - pixels.min(axis=2)) > 0.3
    assert all(part.sum() > 300 for part in np.array_split(colourful[:4000], 5))


def test_the_page_needs_nothing_else(page):
    """No scripts, no links, no pictures from elsewhere: it opens without a network and can be mailed."""
    text = page.read_text(encoding="utf-8")
    assert not re.findall(r"<script|<link|<img|<iframe|@import|url\(|https?://|src=", text)
    assert len(text) < 3_000_000


def test_the_page_has_what_it_promises(page):
    """All sections, all runs, advice, and the settings that differ."""
    text = page.read_text(encoding="utf-8")
    sections = re.findall(r"<h2>(.*?)</h2>", text)
    assert sections == [
        *(
            "Differences",
            "Error while sampling",
            "Traces",
            "Convergence",
            "Calibration",
            "Residuals",
            "Where the error is",
        ),
        *("Time and communication", "Configuration", "Words"),
    ]
    for needed in (
        "--chains</span> 4",
        "stochastic-gradient",
        "RMSE by time",
        "Probability integral transform",
        "process 0",
        *HEAD,
    ):
        assert needed in text
    row = re.search(r"<th>minus a</th>.*?<td>b</td>(.*?)</tr>", text, flags=re.DOTALL).group(1)
    cells = re.findall(r"<td>([+-][\d.]+) ± ([\d.]+)</td>", row)
    assert len(cells) >= 4
    rmse = [float(value) for value in re.findall(r"<b>([\d.]+)</b><span>RMSE of the posterior mean", text)]
    assert float(cells[0][0]) == pytest.approx(rmse[1] - rmse[0], abs=2e-4)
    assert all(0 < float(half) < 1 for _, half in cells)
    assert re.search(r'<td>sampler.name</td><td class="differs">baoab</td><td class="differs">psgld</td>', text)
    assert re.search(r"test ratings\. \d+ [A-Z][a-z]+ \d{4}, \d\d:\d\d UTC\.", text)
    assert not re.findall(r'<p class="advice">[^<]*--', text)  # a line breaks before an option, not inside
    assert "nan" not in re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL).replace("nand", "")


def test_one_run_reports_into_its_directory(tmp_path):
    """The default place; also without test ratings to show."""
    from dsgmcmc.data.ingest.prepare import prepare_ratings

    made = make_run(tmp_path, iterations=60)
    prepare_ratings([str(tmp_path / "ratings.tsv")], tmp_path / "all.h5", test_fraction=0.0)
    arguments = ("--rank=2", "--iterations=60", "--burn-in=20", "--sampler=baoab")
    typed("sample", tmp_path / "all.h5", "--out", tmp_path / "<run> & co", *arguments).expect(0)
    done = typed("report", tmp_path / "<run> & co").expect(0)
    assert done.out.strip() == str(tmp_path / "<run> & co" / "report.html")
    text = (tmp_path / "<run> & co" / "report.html").read_text(encoding="utf-8")
    assert "no test ratings" in text
    assert "<h1>&lt;run&gt; &amp; co</h1>" in text
    assert made.path.exists()


def test_wrong_arguments(tmp_path):
    """No half report."""
    for arguments, message in (
        ((tmp_path / "none",), "is not a run directory"),
        ((tmp_path, tmp_path), "--out"),
        ((tmp_path, "-o", tmp_path / "no" / "r.html"), "does not exist"),
    ):
        done = typed("report", *arguments).expect(2)
        assert message in done.err
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError):
        write_report([tmp_path], tmp_path / "r.html")


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (0.83, 0.97, [0.84, 0.86, 0.88, 0.9, 0.92, 0.94, 0.96]),
        (-13_800, -13_650, [-13_800, -13_750, -13_700, -13_650]),
        (1, 40_000, [10_000, 20_000, 30_000, 40_000]),
    ],
)
def test_ticks_are_round_and_cover(low, high, expected):
    """1, 2 or 5 times a power of ten; never outside."""
    assert ticks(low, high) == pytest.approx(expected)


def test_numbers_have_the_decimals_that_tell_ticks_apart():
    """Two ticks must never read the same."""
    assert [number(value, 0.02) for value in (0.84, 0.9)] == ["0.84", "0.90"]
    assert number(10_500, 500) != number(11_000, 500)
    assert number(-138_250.0, 250) != number(-138_000.0, 250)
    assert number(0.0) == "0"


def test_a_chart_of_nothing_and_of_a_constant():
    """No division by zero, no empty axes."""
    assert "nothing to show" in line_chart("t", [Series("a", [], [], "red")], "x", "y")
    assert "nothing to show" in line_chart("t", [Series("a", [1.0], [np.nan], "red")], "x", "y")
    assert "polyline" in line_chart("t", [Series("a", [1.0, 2.0], [3.0, 3.0], "red")], "x", "y")

"""The pages under docs: their Python is executed, their commands and links exist, the reference is
up to date.
"""

import json
import re
import runpy
import shlex
import shutil
import sys
from pathlib import Path
from pydoc import resolve
from typing import Any

import httpx
import numpy as np
import pytest
import typer
from mpi4py import MPI
from science_files import write_h5ad
from support import ROOT, Running, fenced, run, sample, typed

import dsgmcmc
from dsgmcmc.cli.app import app
from dsgmcmc.prepare.prepare import prepare_ratings

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
#: Of the experiments of papers, those with a form that takes seconds, and whether they are given
#: digits.
QUICK_COMMAND = re.compile(r"^ *python (tests/papers/\w+\.py)( mnist\.npz)? --quick", re.MULTILINE)
QUICK = {
    experiment
    for script in (ROOT / "tests" / "papers").glob("*.py")
    for experiment in QUICK_COMMAND.findall(script.read_text(encoding="utf-8"))
}
#: Pages whose Python is executed by tests of their own.
ELSEWHERE = {"evidence/comparison.md", "own-part.md", "own-target.md", "serving.md"}
#: Pages whose commands (`sh`) are not executed with those of other pages, and why.
NOT_HERE = {
    "installation.md": "installs packages from an index",
    "own-target.md": "runs in a test of its own, under mpirun",
    "tutorial.md": "runs in a test of its own, with MovieLens 100K",
}
#: Pages with further blocks, which are neither `python` nor `sh`, and where they are executed, or
#: why they are not.
OTHERS = {
    "README.md": "installs; system/test_launch_scripts.py runs the scripts",
    "docker/README.md": "cluster/containers.py",
    "docs/clusters.md": "cluster/test_wheelhouse.py; the rest needs a cluster",
    "docs/dev/releasing.md": "uploads to an index",
    "docs/dev/rooms.md": "a picture",
    "docs/dev/testing.md": "runs the tests",
    "docs/evidence/method.md": "takes hours",
    "docs/evidence/speed.md": "needs a cluster",
    "docs/own-part.md": "an excerpt, which system/test_own.py compares with its file",
    "docs/own-target.md": "needs JAX or PyTorch: system/test_own.py",
    "docs/ring.md": "a picture",
    "docs/three-way.md": "a picture",
    "launch/README.md": "system/test_launch_scripts.py",
}
LONG = {
    "../README.md",
    "check-a-run.md",
    "features.md",
    "likelihoods.md",
    "samplers.md",
    "three-way.md",
    "time.md",
    "which-model.md",
}
#: What `made` has, and a page does not take for given if one of its commands fits the pattern, and
#: makes it.
MADE_BY = {"ml-1m.h5": "dsgmcmc prepare ml-1m/", "run": r"--out run\s"}


def pages(language: str) -> set[str]:
    """Names of the pages that have blocks of a language."""
    return {str(page.relative_to(DOCS)) for page in PAGES if fenced(page, language)}


@pytest.mark.parametrize("name", sorted(pages("python") - ELSEWHERE))
def test_examples_run(name, tmp_path, monkeypatch):
    """A page's blocks, one after the other, and a warning is an error: what readers paste works."""
    monkeypatch.chdir(tmp_path)
    code = "\n".join(fenced(DOCS / name, "python"))
    assert "assert" in code
    if name.startswith("own"):  # it registers what it defines
        run(sys.executable, "-W", "error", "-c", code).expect(0)
    else:
        exec(code, {"__name__": "__main__"})


def test_the_server_answers(tmp_path):
    """The program of the page on serving, and the run before it, as `serve.py`, started as the page
    says.
    """
    (tmp_path / "serve.py").write_text(
        "\n".join(fenced(DOCS / "serving.md", "python")), encoding="utf-8"
    )
    with Running(
        [sys.executable, "-m", "uvicorn", "serve:app", "--port", "0"], cwd=tmp_path
    ) as running:
        address = next(filter(None, map(re.compile(r"http://\S+").search, running.process.stderr)))[
            0
        ]
        with httpx.Client(base_url=address, timeout=60) as client:
            shown = client.get("/recommend/3").json()["item_id"]
            assert client.get("/recommend/99").status_code == 404
            assert client.post(
                "/ratings", json=[[3, item, 1] for item in shown] + [[99, 4, 5]]
            ).is_success
            assert not {*shown} & {*client.get("/recommend/3").json()["item_id"]}
            assert len(client.get("/recommend/99").json()["item_id"]) == 5
            for refused in ([], [[99, 4, 7]], [[99, 12345, 5]]):
                assert client.post("/ratings", json=refused).status_code == 422


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> Path:
    """Images of ten kinds in the shape of MNIST's: 12,000, each a pattern of its kind and noise."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("digits") / "mnist.npz"
    labels = rng.integers(0, 10, 12_000)
    images = rng.integers(0, 120, (10, 784))[labels] + rng.integers(0, 120, (12_000, 784))
    np.savez(path, images=images.astype(np.uint8), labels=labels)
    return path


@pytest.mark.long
@pytest.mark.parametrize(("script", "needs_digits"), sorted(QUICK))
def test_experiments_of_papers_run(script, needs_digits, digits):
    """In their quick form, as their docstrings have it: the figures can be made again."""
    assert (
        "|"
        in run(sys.executable, ROOT / script, *([digits] if needs_digits else []), "--quick")
        .expect(0)
        .out
    )


@pytest.mark.parametrize(
    "model", ["rank=2, iterations=120", pytest.param('model="auto"', marks=pytest.mark.long)]
)
def test_the_python_of_the_readme_runs(tmp_path, monkeypatch, model):
    """On a file of ratings beside it, and a run; by default with a model that takes less time to
    choose.
    """
    monkeypatch.chdir(tmp_path)
    lines = [
        f"{user},{item},{1 + (user * item) % 5}"
        for user in range(1, 20)
        for item in [*range(1, 21), 50]
    ]
    (tmp_path / "ratings.csv").write_text("user,item,rating\n" + "\n".join(lines), encoding="utf-8")
    rng = np.random.default_rng(0)
    rows = [
        f"V{row}," + ",".join(rng.choice(["", "<0.5", f"{row % 4}.7", "1.2"], 6))
        for row in range(20)
    ]
    table = "variety,A,B,C,D,E,F\n" + "\n".join(rows)
    (tmp_path / "trials.csv").write_text(table, encoding="utf-8")
    first, second = fenced(ROOT / "README.md", "python")
    dsgmcmc.BPMF(rank=2, iterations=120, out="run").fit("ratings.csv")
    assert first.count('model="auto"') == 1
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(first.replace('model="auto"', model), names)
    exec(second, names)
    assert len(names["imputations"]) == 20
    varieties = next(iter(names["filled"].values()))
    assert set(varieties.tolist()) == {f"V{row}" for row in range(20)}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Small data sets in place of MovieLens 100K and 1M, so that these are not fetched, and files
    made from them.
    """
    folder = tmp_path_factory.mktemp("made")
    users = [1, 2, *range(35, 51)]
    items = [*range(1, 14), 661, 1193]
    rng = np.random.default_rng(0)
    # users like one of two kinds of items
    kind = dict(zip(items, (np.arange(len(items)) % 2).tolist(), strict=True))
    liked = [
        (u, i, 0.95 if u % 2 == kind[i] else 0.05) for u in users for i in items if (u + i) % 3
    ]
    rated = [(u, i, 1 + int(rng.binomial(4, share))) for u, i, share in liked]
    hours = [(day, hour) for day in range(1, 17) for hour in range(0, 24, 6)]
    files = {
        "ml-1m/ratings.dat": "".join(f"{u}::{i}::{r}::0\n" for u, i, r in rated),
        "ml-1m/movies.dat": "1::One (1995)::Drama\n2::Two (1996)::Drama\n3::Three (1997)::Comedy\n",
        "ml-1m/users.dat": "".join(f"{u}::{'FM'[u % 2]}::25::{u % 3}::12345\n" for u in users),
        "ml-100k/u.data": "".join(f"{u}\t{i}\t{r}\t0\n" for u, i, r in rated),
        "ml-100k/u.item": "1|One (1995)|01-Jan-1995||\n2|Two (1996)|01-Jan-1996||\n",
        "pairs.csv": "user,item\n1,2\n2,3\n",
        "ratings.csv": "user,item,rating\n" + "".join(f"{u},{i},{r}\n" for u, i, r in rated),
        "grown.csv": (
            "user,item,rating\n"
            + "".join(f"{u},{i},{r}\n" for u, i, r in [*rated, (60, 1, 3), (60, 2, 4)])
        ),
        "clicks.csv": "user,item\n" + "".join(f"{u},{i}\n" for u, i, r in rated if r > 2),
        "plays.csv": "user,item,plays\n" + "".join(f"{u},{i},{r**2}\n" for u, i, r in rated),
        "prices.csv": (
            "user,item,price\n"
            + "".join(f"{u},{i},{r + (u * i % 100) / 100}\n" for u, i, r in rated)
        ),
        "assays.csv": (
            "user,item,rating\n"
            + "".join(f"{u},{i},{r + 0.1}\n{u},{i},{r + 0.2}\n" for u, i, r in rated)
        ),
        "plots.csv": (
            "variety,environment,yield\n"
            + "".join(f"v{u},e{i},{r + (u * i % 100) / 100}\n" for u, i, r in rated)
        ),
        "trips.csv": (
            "station,day,hour,passengers\n"
            + "".join(f"s{u % 4},d{u // 4},h{i},{r * 10.5}\n" for u, i, r in rated)
        ),
        "passengers.csv": (
            ",".join(["station", *(f"2021-03-{d:02d} {h:02d}:00" for d, h in hours)])
            + "\n"
            + "".join(
                ",".join([f"s{s}", *(str(s + h + d % 7) for d, h in hours)]) + "\n"
                for s in range(4)
            )
        ),
        "new.csv": "station,day,hour\ns1,d9,h3\ns2,d10,h4\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    with write_h5ad(folder / "proteins.h5ad", [f"s{k}" for k in range(20)], list("abcde")) as file:
        file["X"] = np.random.default_rng(0).normal(size=(20, 5))
        file["var/lod"] = np.full(5, -1.0)
    prepare_ratings([folder / "ml-1m" / "ratings.dat"], folder / "ml-1m.h5", test_fraction=0.1)
    assert (
        sample(
            MPI.COMM_SELF, folder / "ml-1m.h5", folder / "run", rank=2, iterations=60, burn_in=20
        )
        == 0
    )
    return folder


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] if name in LONG else [])
        for name in sorted({"../README.md", *pages(" *sh")} - {*NOT_HERE})
    ],
)
def test_commands_run(name, made, tmp_path, monkeypatch):
    """A page's, one after the other, as they stand, where there is what the page takes for
    given.
    """
    monkeypatch.chdir(tmp_path)
    commands = "\n".join(fenced(DOCS / name, "sh"))
    for file in made.iterdir():
        if file.name not in MADE_BY or not re.search(MADE_BY[file.name], commands):
            (shutil.copytree if file.is_dir() else shutil.copy)(file, tmp_path / file.name)
    for line in commands.splitlines():
        execute(line)


def execute(line: str) -> str:
    """Run a line of commands as it stands, and return what it prints."""
    words = shlex.split(line, comments=True)
    if words[:1] == ["dsgmcmc"]:
        done = typed(*words[1:])
    elif words[:1] == ["python"]:
        done = run(sys.executable, *words[1:])
    else:
        done = run("bash", "-ec", line)
    done.expect(0)
    return done.out + done.err


def tokens(text: str) -> list[float | str]:
    """Numbers and words of a text, without times."""
    found = re.findall(
        r"(-?\d+(?:,\d{3}(?!\d))*(?:\.\d+)?)|([^\W\d]+)", re.sub(r"[\d.]+ s\b", "", text)
    )
    return [float(number.replace(",", "")) if number else word for number, word in found]


@pytest.mark.long
def test_the_tutorial_and_the_readme_show_what_is_printed(datasets, tmp_path, monkeypatch):
    """Lines below commands are those of today's program; the ten lines of the README fit the run of
    the tutorial.
    """
    monkeypatch.chdir(tmp_path)
    shutil.copytree(datasets / "ml-100k", "ml-100k")
    text = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    for commands, shown in re.findall(
        r"^```sh\n(.*?)^```\n((?:\n|    [^\n]*\n)*)", text, re.DOTALL | re.MULTILINE
    ):
        printed = tokens("\n".join(map(execute, commands.splitlines())))
        for piece in re.split(r"\.\.\.|\n", shown):  # other processors may give other numbers
            wanted = [
                pytest.approx(x, rel=0.05, abs=0.01) if isinstance(x, float) else x
                for x in tokens(piece)
            ]
            assert any(
                printed[start : start + len(wanted)] == wanted for start in range(len(printed) + 1)
            ), piece
        if "sample ml-100k.h5 --out run --config" in commands:
            readme = (ROOT / "README.md").read_text(encoding="utf-8")
            (pairs,) = re.findall(r"^pairs = (\S.*?\]\])", readme, re.MULTILINE)
            names = {"model": dsgmcmc.BPMF.load("run"), "pairs": json.loads(pairs)}
            for code, value in re.findall(r"^\| `(model.*)` \| `(.*)` \|$", readme, re.MULTILINE):
                assert np.allclose(eval(code, names), json.loads(value), rtol=0.05), code


def test_blocks_that_are_not_executed_here_are_listed():
    """So that a page cannot show a command that nobody has tried."""
    fences = re.compile(r"^ *```(\S*)\n.*?^ *```", re.DOTALL | re.MULTILINE)
    every = [ROOT / "README.md", *ROOT.glob("*/README.md"), *PAGES]
    others = {
        page
        for page in every
        if {*fences.findall(page.read_text(encoding="utf-8"))} - {"python", "sh"}
    }
    assert {str(page.relative_to(ROOT)) for page in others} == OTHERS.keys()


@pytest.mark.long
def test_the_notebook_runs(tmp_path):
    """Its code as a script, and what it shows is short."""
    cells = json.loads((DOCS / "first-hour.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert (
        sum(
            len(line)
            for cell in cells
            for output in cell.get("outputs", [])
            for line in str(output)
        )
        < 8000
    )
    (script := tmp_path / "notebook.py").write_text("\n".join(code), encoding="utf-8")
    assert "RMSE" in run(sys.executable, "-W", "error", script).expect(0).out


def check_options(line: str) -> None:
    """Raise AssertionError if a line starts dsgmcmc with an option that its command lacks."""
    words = shlex.split(line.split(" | ")[-1], comments=True)
    if "dsgmcmc" not in words:
        return
    name, *arguments = words[words.index("dsgmcmc") + 1 :]
    command = typer.main.get_command(app).commands[name]
    known = {
        option
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    used = {word.split("=")[0] for word in arguments if re.match(r"--?[a-zA-Z]", word)}
    assert used <= known, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_exist(page):
    """Every line of a block that starts dsgmcmc names a command and options that there are."""
    for line in "\n".join([*fenced(page, "sh"), *fenced(page, "text")]).splitlines():
        check_options(line)


COMMANDS = typer.main.get_command(app).commands


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_of_the_help_have_options_that_exist(command):
    """What a user copies from the help of a command is understood."""
    _, _, examples = COMMANDS[command].help.partition("Examples:\n")
    for line in examples.splitlines():
        check_options(line)


def test_the_help_of_most_commands_has_examples():
    """The README says so, and the tests above would pass without any."""
    with_examples = [name for name, command in COMMANDS.items() if "Examples:" in command.help]
    assert 2 * len(with_examples) > len(COMMANDS)


def test_every_page_is_on_the_index():
    """A page that no page points to is not found."""
    linked = set(
        re.findall(r"\]\((\w[\w/-]*\.md)\)", (DOCS / "index.md").read_text(encoding="utf-8"))
    )
    pages = {str(page.relative_to(DOCS)) for page in PAGES}
    assert linked == pages - {"index.md"}
    nav = re.findall(
        r"^ +- ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(nav) == sorted(pages)


@pytest.mark.parametrize("page", ["settings", "cli"])
def test_generated_pages_are_up_to_date(page):
    """Out of date? Run `python docs/reference.py`."""
    assert runpy.run_path(str(DOCS / "reference.py"))["PAGES"][page]() == (
        DOCS / f"{page}.md"
    ).read_text("utf-8")


def test_figures_are_those_that_were_measured(monkeypatch):
    """Nobody writes a figure by hand.

    Out of date? Run `python tests/benchmarks/evidence.py --fill`.
    """
    monkeypatch.syspath_prepend(ROOT / "tests" / "benchmarks")
    evidence = runpy.run_path(str(ROOT / "tests" / "benchmarks" / "evidence.py"))
    facts = evidence["measured"]()
    stale = [
        page
        for page in evidence["pages"]()
        if evidence["filled"](text := page.read_text("utf-8"), facts) != text
    ]
    assert not stale


def test_no_attack_failed():
    """The page on reliability says so of every attempt, and has no figures of them."""
    tables = [
        table
        for path in sorted((DOCS / "evidence").glob("attack-*.json"))
        for table in json.loads(path.read_text("utf-8"))["tables"]
    ]
    failed = [row[table[0].index("failed")] for table in tables for row in table[1:]]
    assert failed
    assert set(failed) == {"0"}


def test_what_the_reference_names_is_there():
    """Each with a docstring, from which its entry is made; what the package itself exports is among
    them.
    """
    named = re.findall(
        r"^::: ([\w.]+)$", (DOCS / "api.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    for name in named:
        assert resolve(name)[0].__doc__, name
    assert {name for name in dsgmcmc.__all__ if not name.startswith("_")} <= {
        name.split(".")[-1] for name in named
    }

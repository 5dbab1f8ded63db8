"""Parts and targets of one's own, added as their pages say: all commands and processes work with them."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from support import ROOT, Result, fenced, run, write_planted

import dsgmcmc

PART_PAGE, TARGET_PAGE = ROOT / "docs" / "own-part.md", ROOT / "docs" / "own-target.md"
PART = ROOT / "docs" / "examples" / "taste.py"

# ---------------------------------------------------------------------- a part of the model


def test_the_page_on_parts_shows_what_the_example_has() -> None:
    """Line by line, so that an excerpt does not go stale."""
    (excerpt,) = fenced(PART_PAGE, "py")
    assert set(excerpt.splitlines()) <= set(PART.read_text(encoding="utf-8").splitlines())


SETTINGS = ["--rank", "2", "--grid", "2", "--tastes", "yes", "--features", "no", "--iterations", "60sweeps"]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package with the example's part, added as the page says."""
    root = tmp_path_factory.mktemp("tree")
    package = root / "dsgmcmc"
    shutil.copytree(Path(dsgmcmc.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (usage,) = fenced(PART_PAGE, "python")
    shutil.copy(PART, package / "model" / "parts")
    names = package / "model" / "parts" / "__init__.py"
    text = names.read_text(encoding="utf-8")
    for before, after in (
        ("\n#: The parts", "from dsgmcmc.model.parts.taste import Tastes, TasteSettings\n\n#: The parts"),
        ("TimeEffects)\n", "TimeEffects, Tastes)\n"),
        ("class PartSettings(", "class PartSettings(TasteSettings, "),
    ):
        assert text.count(before) == 1
        text = text.replace(before, after)
    names.write_text(text, encoding="utf-8")
    (root / "docs").mkdir()
    shutil.copy(PART_PAGE.parent / "reference.py", root / "docs")
    (root / "usage.py").write_text(usage, encoding="utf-8")
    with_part(root, "docs/reference.py")
    return root


#: What one process does with the part: costs, all in one go, predictions, fold-in, a warm start, exports.
SCRIPT = """
import math, sys
from dsgmcmc import BPMF, open_run
from dsgmcmc.cli.app import main
def typed(*words):
    sys.argv = ["dsgmcmc", *words]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, words
typed("sample", "r.h5", "--out", "planned", *{settings}, "--dry-run")
typed("sample", "r.h5", "--out", "whole", *{settings})
typed("predict", "whole", "pairs.csv", "--out", "predicted.csv", "--unknown", "prior")
(mean,) = open_run("whole").fold_in([[99, 1, 4], [99, 2, 1]]).predict([[99, 3]])
assert math.isfinite(mean)
typed("sample", "r.h5", "--out", "next", "--from", "whole", "--iterations", "20sweeps")
typed("export", "whole", "--out", "whole.parquet")
typed("info", "whole", "--diagnostics")
assert "taste_precision" in BPMF.load("whole").to_arviz().posterior
"""


def with_part(tree: Path, *arguments: str | Path, processes: int = 1) -> str:
    """Output of Python with the changed package first on its path."""
    launcher = ["mpirun", "-n", str(processes)] if processes > 1 else []
    command = (*launcher, sys.executable, "-W", "error", *arguments)
    return run(*command, env={"PYTHONPATH": str(tree)}, cwd=tree).expect().out


@pytest.mark.long
def test_it_finds_what_was_planted(tree: Path) -> None:
    """The page's example: predictions of new ratings have it."""
    with_part(tree, "usage.py")


@pytest.mark.long
def test_everything_works_on_it(tree: Path) -> None:
    """One process in one go, and two that were stopped, make the same draws; all else is done with them."""
    write_planted(tree / "r.h5", features=(2, 3))
    (tree / "pairs.csv").write_text("user,item\n0,1\n99,1\n")
    said = with_part(tree, "-c", SCRIPT.replace("{settings}", str(SETTINGS)))
    assert "tastes" in said
    assert len((tree / "predicted.csv").read_text().splitlines()) == 3
    for length, more in (("30sweeps", []), ("60sweeps", ["--resume"])):
        options = ["r.h5", "--out", "parts", *SETTINGS[:-1], length, *more]
        with_part(tree, "-m", "dsgmcmc", "sample", *options, processes=2)
    digests = {with_part(tree, "-m", "dsgmcmc", "verify", name).split()[-1] for name in ("whole", "parts")}
    assert len(digests) == 1


# ---------------------------------------------------------------------- a target

BLOCKS = fenced(TARGET_PAGE, "python")
#: Gradients by packages that dsgmcmc does not need, by package.
BY_OTHERS = {re.search(r"^import (\w+)", block, re.MULTILINE)[1]: block for block in fenced(TARGET_PAGE, "py")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the page's script, which one process has run."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "logistic.py").write_text(BLOCKS[0], encoding="utf-8")
    launch(folder).expect(0)
    return folder


def launch(folder: Path, processes: int | None = None) -> Result:
    """Run the script, without a launcher or with so many processes."""
    launcher = ["mpirun", "-n", str(processes)] if processes else []
    return run(*launcher, sys.executable, "logistic.py", cwd=folder)


@pytest.mark.long
def test_the_page_runs(folder: Path) -> None:
    """R-hat, moments and the samplers, block after block, warnings as errors."""
    rest = "from logistic import Logistic\nimport numpy as np\n" + "\n".join(BLOCKS[1:])
    assert "assert" in rest
    run(sys.executable, "-W", "error", "-c", rest, cwd=folder).expect(0)


@pytest.mark.parametrize("package", ["jax", "torch"])
def test_gradients_by_others_are_those_written_by_hand(folder: Path, package: str) -> None:
    """In double precision; the page shows them, and they are skipped where the package is not installed."""
    pytest.importorskip(package, reason=f"{package} is not installed: pip install {package}")
    check = """
theta = np.random.default_rng(1).normal(size=(4, 3))
for data in (slice(None), slice(2, None, 7), np.array([0, 5, 5, 52])):
    np.testing.assert_allclose(density.gradient(theta, data), Logistic().gradient(theta, data), rtol=1e-10, atol=1e-10)
"""
    script = "from logistic import Logistic\nimport numpy as np\n" + BY_OTHERS[package] + check
    run(sys.executable, "-c", script, cwd=folder).expect(0)


@pytest.mark.parametrize("processes", [2, pytest.param(5, marks=pytest.mark.long)])
def test_chains_are_shared_with_the_same_draws(folder: Path, tmp_path: Path, processes: int) -> None:
    """The promise of the page: four chains on two processes, and on more than there are chains."""
    (tmp_path / "logistic.py").write_text(BLOCKS[0], encoding="utf-8")
    launch(tmp_path, processes).expect(0)
    np.testing.assert_array_equal(np.load(tmp_path / "theta.npy"), np.load(folder / "theta.npy"))


def test_all_processes_raise_the_same_error_and_go_on(tmp_path: Path) -> None:
    """A chain that diverges on one process ends the others, with an exception; so does a wrong setting."""
    tail = """
    for wrong in ({"name": "sgld", "step_size": 1e4}, "mola"):
        try:
            sample_density(Logistic(), comm=MPI.COMM_WORLD, sampler=wrong, chains=3, iterations=500, burn_in=0)
        except (DivergenceError, InputError) as error:
            print("caught", error, flush=True)
"""
    imports = "from dsgmcmc.errors import DivergenceError, InputError\n"
    (tmp_path / "logistic.py").write_text(imports + BLOCKS[0] + tail, encoding="utf-8")
    result = launch(tmp_path, 2).expect(0)
    assert result.out.count("caught chain 0 diverged") == 2
    assert "Use a smaller step_size of the sampler, or a larger curvature of the density" in result.out
    assert result.out.count("caught sampler 'mola' is not known") == 2

"""A part of the model that is one file, two names and a page: everything that a run is for works with it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import write_planted

import dsgmcmc

PAGE = Path(__file__).parents[2] / "docs" / "own-part.md"
SETTINGS = ["--rank", "2", "--grid", "2", "--tastes", "yes", "--features", "no", "--iterations", "60sweeps"]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package with the page's part, added as the page says."""
    root = tmp_path_factory.mktemp("tree")
    package = root / "dsgmcmc"
    shutil.copytree(Path(dsgmcmc.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    part, usage = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    (package / "model" / "parts" / "taste.py").write_text(part, encoding="utf-8")
    names = package / "model" / "parts" / "__init__.py"
    text = names.read_text(encoding="utf-8")
    for before, after in (
        ("\n#: In the order", "from dsgmcmc.model.parts.taste import Tastes, TasteSettings\n\n#: In the order"),
        ("TimeEffects)\n", "TimeEffects, Tastes)\n"),
        ("class PartSettings(", "class PartSettings(TasteSettings, "),
    ):
        assert text.count(before) == 1
        text = text.replace(before, after)
    names.write_text(text, encoding="utf-8")
    (root / "docs").mkdir()
    shutil.copy(PAGE.parent / "settings.py", root / "docs")
    (root / "usage.py").write_text(usage, encoding="utf-8")
    run(root, "docs/settings.py")
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


def run(tree: Path, *arguments: str | Path, processes: int = 1) -> str:
    """What Python prints, with the changed package first on its path."""
    launcher = ["mpirun", "-n", str(processes)] if processes > 1 else []
    command = [*launcher, sys.executable, "-W", "error", *arguments]
    path = os.environ | {"PYTHONPATH": str(tree)}
    done = subprocess.run(command, cwd=tree, env=path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
def test_it_finds_what_was_planted(tree: Path) -> None:
    """The page's example: predictions of new ratings have it."""
    run(tree, "usage.py")


@pytest.mark.long
def test_everything_works_on_it(tree: Path) -> None:
    """One process in one go, and two that were stopped, make the same draws; all else is done with them."""
    write_planted(tree / "r.h5", features=(2, 3))
    (tree / "pairs.csv").write_text("user,item\n0,1\n99,1\n")
    said = run(tree, "-c", SCRIPT.replace("{settings}", str(SETTINGS)))
    assert "tastes" in said
    assert len((tree / "predicted.csv").read_text().splitlines()) == 3
    for length, more in (("30sweeps", []), ("60sweeps", ["--resume"])):
        options = ["r.h5", "--out", "parts", *SETTINGS[:-1], length, *more]
        run(tree, "-m", "dsgmcmc", "sample", *options, processes=2)
    digests = {run(tree, "-m", "dsgmcmc", "verify", name).split()[-1] for name in ("whole", "parts")}
    assert len(digests) == 1

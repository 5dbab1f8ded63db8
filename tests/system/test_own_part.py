"""A part of the model that is one file, two names and a page: everything that a run is for works with it."""

from __future__ import annotations

import math
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


def run(tree: Path, *arguments: str | Path, processes: int = 1) -> str:
    """What Python prints, with the changed package first on its path."""
    command = [sys.executable, "-W", "error", *map(str, arguments)]
    if processes > 1:
        command = ["mpirun", "-n", str(processes), *command]
    found = subprocess.run(
        command, cwd=tree, env=os.environ | {"PYTHONPATH": str(tree)}, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


@pytest.mark.long
def test_it_finds_what_was_planted(tree: Path) -> None:
    """The page's example: predictions of new ratings have it."""
    run(tree, "usage.py")


def test_everything_works_on_it(tree: Path) -> None:
    """Costs, sampling on two processes and on one, resuming, predictions, fold-in, a warm start, exports."""
    data = write_planted(tree / "r.h5", features=(2, 3))
    command = ("-m", "dsgmcmc")
    assert "--tastes" in run(tree, *command, "sample", "--help")
    assert "tastes" in run(tree, *command, "sample", data, "--out", "planned", *SETTINGS, "--dry-run")
    for name, processes, stops in (("whole", 1, ["60sweeps"]), ("parts", 2, ["30sweeps", "60sweeps"])):
        for length in stops:
            more = ["--resume"] if length != stops[0] else []
            run(tree, *command, "sample", data, "--out", name, *SETTINGS[:-1], length, *more, processes=processes)
    assert digest(tree, "whole") == digest(tree, "parts")
    (tree / "pairs.csv").write_text("user,item\n0,1\n99,1\n")
    predicted = run(tree, *command, "predict", "whole", "pairs.csv", "--unknown", "prior")
    assert len(predicted.splitlines()) == 3
    code = (
        "from dsgmcmc import open_run; print(*open_run('whole').fold_in([[99, 1, 4], [99, 2, 1]]).predict([[99, 3]]))"
    )
    assert math.isfinite(float(run(tree, "-c", code)))
    run(tree, *command, "sample", data, "--out", "next", "--from", "whole", "--iterations", "20sweeps")
    run(tree, *command, "export", "whole", "--out", "whole.parquet")
    assert "taste" in run(tree, *command, "info", "whole", "--diagnostics")
    code = "from dsgmcmc import BPMF; print(*BPMF.load('whole').to_arviz().posterior)"
    assert "taste_precision" in run(tree, "-c", code).split()


def digest(tree: Path, name: str) -> str:
    """Of a run."""
    return run(tree, "-m", "dsgmcmc", "verify", name).split()[-1]

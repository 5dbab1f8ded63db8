"""The page on targets of one's own, typed as it stands, by one process and by several."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from support import run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "own-target.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
#: Gradients by packages that dsgmcmc does not need, by package.
BY_OTHERS = {
    re.search(r"^import (\w+)", block, re.MULTILINE)[1]: block
    for block in re.findall(r"^```py\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the page's script, which one process has run."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "logistic.py").write_text(BLOCKS[0], encoding="utf-8")
    launch(folder).expect(0)
    return folder


def launch(folder: Path, processes: int | None = None):
    """Run the script, without a launcher or with so many processes."""
    launcher = ["mpirun", "-n", str(processes)] if processes else []
    return run("env", f"--chdir={folder}", *launcher, sys.executable, "logistic.py")


@pytest.mark.long
def test_the_page_runs(folder: Path) -> None:
    """R-hat, moments and the samplers, block after block, warnings as errors."""
    rest = "from logistic import Logistic\nimport numpy as np\n" + "\n".join(BLOCKS[1:])
    assert "assert" in rest
    run("env", f"--chdir={folder}", sys.executable, "-W", "error", "-c", rest).expect(0)


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
    run("env", f"--chdir={folder}", sys.executable, "-c", script).expect(0)


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

"""Parts and targets of one's own, used as their pages say: all commands and processes work with
them.
"""

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from support import ROOT, Result, dsgmcmc, fenced, run, write_planted

PART_PAGE = ROOT / "docs" / "own-part.md"
TARGET_PAGE = ROOT / "docs" / "own-target.md"
PART = ROOT / "docs" / "examples" / "taste.py"

# ---------------------------------------------------------------------- a part of the model


def test_the_page_on_parts_shows_what_the_example_has() -> None:
    """Line by line, so that an excerpt does not go stale."""
    (excerpt,) = fenced(PART_PAGE, "py")
    assert set(excerpt.splitlines()) <= set(PART.read_text(encoding="utf-8").splitlines())


SETTINGS = [
    "--rank",
    "2",
    "--grid",
    "2",
    "--set",
    "tastes=yes",
    "--features",
    "no",
    "--iterations",
    "60sweeps",
]
#: A script with the part, and the command ``dsgmcmc`` with it.
REGISTERED, *USAGE = fenced(PART_PAGE, "python")
COMMAND = f"{REGISTERED}\nfrom dsgmcmc.cli.app import main\nmain()"


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the example's part, and scripts that register it as the page says."""
    root = tmp_path_factory.mktemp("own")
    shutil.copy(PART, root)
    (root / "usage.py").write_text("\n".join((REGISTERED, *USAGE)), encoding="utf-8")
    (root / "command.py").write_text(COMMAND, encoding="utf-8")
    return root


#: What one process does with the part: costs, all in one go, predictions, fold-in, a warm start,
#: exports.
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


def with_part(own: Path, *arguments: str | Path, processes: int = 1) -> str:
    """Output of Python in the folder with the part."""
    launcher = ["mpirun", "-n", str(processes)] if processes > 1 else []
    return run(*launcher, sys.executable, "-W", "error", *arguments, cwd=own).expect().out


@pytest.mark.long
def test_it_finds_what_was_planted(own: Path) -> None:
    """The page's example: predictions of new ratings have it."""
    with_part(own, "usage.py")


@pytest.mark.long
def test_everything_works_on_it(own: Path) -> None:
    """One process in one go, and two that were stopped, make the same draws; all else is done with
    them.
    """
    write_planted(own / "r.h5", features=(2, 3))
    (own / "pairs.csv").write_text("user,item\n0,1\n99,1\n")
    said = with_part(own, "-c", REGISTERED + SCRIPT.replace("{settings}", str(SETTINGS)))
    assert "tastes" in said
    assert len((own / "predicted.csv").read_text().splitlines()) == 3
    for length, more in (("30sweeps", []), ("60sweeps", ["--resume"])):
        options = ["r.h5", "--out", "parts", *SETTINGS[:-1], length, *more]
        with_part(own, "command.py", "sample", *options, processes=2)
    digests = {
        with_part(own, "command.py", "verify", name).split()[-1] for name in ("whole", "parts")
    }
    assert len(digests) == 1


def test_a_run_says_which_classes_a_script_must_register(own: Path) -> None:
    """With a part, and without it; a run that does not use the part is the run of a program that
    has none.
    """
    write_planted(own / "small.h5", features=(2, 3))
    short = [
        "--rank",
        "2",
        "--features",
        "no",
        "--iterations",
        "6",
        "--burn-in",
        "2",
        "--thin",
        "2",
    ]
    hashes = []
    for out, more in (("used", ["--set", "tastes=yes"]), ("unused", [])):
        with_part(own, "command.py", "sample", "small.h5", "--out", out, *short, *more)
    with_part(own, "-m", "dsgmcmc", "sample", "small.h5", "--out", "plain", *short)
    for out in ("unused", "plain"):
        hashes.append(with_part(own, "-m", "dsgmcmc", "verify", out).split()[-1])
    assert hashes[0] == hashes[1]
    refused = run(*dsgmcmc("info", own / "used")).expect(2)
    assert 'PARTS["tastes"] = Tastes' in refused.err


# ---------------------------------------------------------------------- a target

BLOCKS = fenced(TARGET_PAGE, "python")
#: What the page says of PyTorch in a sentence, written out.
BY_TORCH = """
import torch


class ByTorch(Logistic):
    def gradient(self, theta, data=slice(None)):
        theta = torch.tensor(theta, requires_grad=True)
        eta = theta @ torch.tensor(self.features[data]).T
        labels = torch.tensor(self.labels[data])
        energies = torch.logaddexp(torch.zeros_like(eta), eta) - labels * eta
        return torch.autograd.grad(energies.sum(), theta)[0].numpy()


density = ByTorch()
"""
#: Gradients by packages that dsgmcmc does not need, by package.
BY_OTHERS = {"jax": fenced(TARGET_PAGE, "py")[0], "torch": BY_TORCH}


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
    """In double precision, as the page says; skipped where the package is not installed."""
    pytest.importorskip(package, reason=f"{package} is not installed: pip install {package}")
    check = """
theta = np.random.default_rng(1).normal(size=(4, 3))
for data in (slice(None), slice(2, None, 7), np.array([0, 5, 5, 52])):
    expected = Logistic().gradient(theta, data)
    np.testing.assert_allclose(density.gradient(theta, data), expected, rtol=1e-10, atol=1e-10)
"""
    script = "from logistic import Logistic\nimport numpy as np\n" + BY_OTHERS[package] + check
    run(sys.executable, "-c", script, cwd=folder).expect(0)


@pytest.mark.parametrize("processes", [2, pytest.param(5, marks=pytest.mark.long)])
def test_chains_are_shared_with_the_same_draws(
    folder: Path, tmp_path: Path, processes: int
) -> None:
    """The promise of the page: four chains on two processes, and on more than there are chains."""
    (tmp_path / "logistic.py").write_text(BLOCKS[0], encoding="utf-8")
    launch(tmp_path, processes).expect(0)
    np.testing.assert_array_equal(np.load(tmp_path / "theta.npy"), np.load(folder / "theta.npy"))


def test_all_processes_raise_the_same_error_and_go_on(tmp_path: Path) -> None:
    """A chain that diverges on one process ends the others, with an exception; so does a wrong
    setting.
    """
    tail = """
    for wrong in ({"name": "sgld", "step_size": 1e4}, "mola"):
        try:
            settings = dict(chains=3, iterations=500, burn_in=0)
            sample_density(Logistic(), comm=MPI.COMM_WORLD, sampler=wrong, **settings)
        except (DivergenceError, InputError) as error:
            print(f"caught {error}", flush=True)
"""
    imports = "from dsgmcmc.errors import DivergenceError, InputError\n"
    (tmp_path / "logistic.py").write_text(imports + BLOCKS[0] + tail, encoding="utf-8")
    result = launch(tmp_path, 2).expect(0)
    assert result.out.count("caught chain 0 diverged") == 2
    assert (
        "Use a smaller step_size of the sampler, or a larger curvature of the density" in result.out
    )
    assert result.out.count("caught sampler 'mola' is not known") == 2

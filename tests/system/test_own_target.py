"""The page on targets of one's own, typed as it stands: a run of a density is a run like any other."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from support import Running, digest, run

from dsgmcmc import DensityRun
from dsgmcmc.errors import InputError
from dsgmcmc.storage.rundir import RunDirectory

PAGE = Path(__file__).resolve().parents[2] / "docs" / "own-target.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the page's script, and its run, never stopped, by one process."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "logistic.py").write_text(BLOCKS[0], encoding="utf-8")
    launch(folder).expect(0)
    return folder


def launch(folder: Path, processes: int | None = None):
    launcher = ["mpirun", "-n", str(processes)] if processes else []
    return run("env", f"--chdir={folder}", *launcher, sys.executable, "logistic.py")


@pytest.mark.long
def test_the_page_runs(whole: Path) -> None:
    """R-hat, moments and the samplers in memory, block after block, warnings as errors."""
    rest = "from logistic import Logistic\nimport numpy as np\n" + "\n".join(BLOCKS[1:])
    assert "assert" in rest
    run("env", f"--chdir={whole}", sys.executable, "-W", "error", "-c", rest).expect(0)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGUSR1])
def test_killed_and_resumed_on_other_processes_it_has_the_same_digest(
    whole: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """The promise of the page: four chains on three processes, killed or asked to stop, go on on two."""
    script = BLOCKS[0].replace("seed=1)", "seed=1, checkpoint_every=200)")
    (tmp_path / "logistic.py").write_text(script, encoding="utf-8")
    command = ["env", f"--chdir={tmp_path}", "mpirun", "-n", "3", sys.executable, "logistic.py"]
    with Running(command) as job:
        end = time.monotonic() + 120
        while time.monotonic() < end and not list(tmp_path.glob("run/checkpoints/chain-0/step-*00")):
            time.sleep(0.01)
        if number == signal.SIGKILL:
            os.killpg(job.process.pid, number)
        else:
            job.process.send_signal(number)
        job.process.wait(120)
    made = {line["iteration"] for line in RunDirectory(tmp_path / "run").metrics()}
    assert max(made) < 6000, "it was stopped on its way"
    launch(tmp_path, 2).expect(0)
    assert digest(tmp_path / "run") == digest(whole / "run")


def test_a_run_that_has_not_ended_has_its_draws(whole: Path, tmp_path: Path) -> None:
    """Those up to its newest checkpoint; moments are there in the end, and it says so."""
    shutil.copytree(whole / "run", tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "posterior")
    ended, found = DensityRun(whole / "run"), DensityRun(tmp_path / "run")
    assert (ended.unfinished, found.unfinished) == (False, True)
    for name in ("theta", "energy", "weight", "elements"):
        assert np.array_equal(getattr(found, name), getattr(ended, name))
    with pytest.raises(InputError, match="no moments yet"):
        found.moments()


def test_a_program_goes_on_behind_a_run_that_is_whole(tmp_path: Path) -> None:
    """Several in one program, on all processes; one that diverges is an exception, in words of Python."""
    more = (
        '\n    sample_density(Logistic(), "two", sampler="mala", chains=2, iterations=50, burn_in=0, seed=1)\n'
        '    print("behind it", flush=True)\n'
        '    far = {"name": "sgld", "step_size": 1e4}\n'
        "    try:\n"
        '        sample_density(Logistic(), "three", sampler=far, chains=2, iterations=500, burn_in=0, seed=1)\n'
        "    except DivergenceError as error:\n"
        '        print("caught", error, flush=True)\n'
    )
    script = BLOCKS[0].replace("chains=4, iterations=6000, burn_in=500", "chains=2, iterations=60, burn_in=0")
    script = script.replace("import numpy", "from dsgmcmc.errors import DivergenceError\nimport numpy", 1)
    (tmp_path / "logistic.py").write_text(script + more, encoding="utf-8")
    result = launch(tmp_path, 2).expect(0)
    assert result.out.count("behind it") == 2
    assert result.out.count("caught chain 0 diverged") == 2
    assert "Use a smaller step_size of the sampler, or a larger curvature of the density" in result.out
    assert " --" not in result.out
    for command in ("info", "verify"):  # of a sampler of densities alone, which no command imports
        run("dsgmcmc", command, tmp_path / "two").expect(0)


def test_what_cannot_be_sampled_is_refused(whole: Path, tmp_path: Path) -> None:
    """More processes than chains, and other data than those that the run was started with."""
    (tmp_path / "logistic.py").write_text(BLOCKS[0].replace("chains=4", "chains=1"), encoding="utf-8")
    result = launch(tmp_path, 2).expect(1)
    assert "2 processes cannot share a chain of a density" in result.err
    (whole / "logistic.py").write_text(BLOCKS[0].replace("default_rng(0)", "default_rng(1)"), encoding="utf-8")
    for processes in (2, 1):
        result = launch(whole, processes).expect(1)
        assert "InputError" in result.err
        assert "other data than" in result.err
    (whole / "logistic.py").write_text(BLOCKS[0], encoding="utf-8")


def test_runs_of_densities_and_of_factorisations_are_not_mixed_up(whole: Path) -> None:
    """Each reader says which one is needed; info and verify take both."""
    result = run("dsgmcmc", "recommend", whole / "run", "--user", "1").expect(2)
    assert "dsgmcmc.DensityRun" in result.err
    run("dsgmcmc", "info", whole / "run").expect(0)
    with pytest.raises(InputError, match="no posterior yet: it was stopped at iteration 0, before its first draw"):
        DensityRun(Path(copy_settings(whole / "run", whole / "empty")))


def copy_settings(source: Path, target: Path) -> Path:
    """A run that has its settings and nothing else."""
    target.mkdir()
    (target / "run.toml").write_bytes((source / "run.toml").read_bytes())
    return target

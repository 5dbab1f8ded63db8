"""What is missing is said before it is needed, with a command that brings it."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from support import write_planted

from dsgmcmc.posterior.extras import NEEDS, PACKAGES

ROOT = Path(__file__).parents[2]
SMALL = ["--rank=2", "--grid=2", "--iterations=20", "--burn-in=4", "--thin=4"]


@pytest.mark.parametrize(
    ("missing", "said", "by_export", "by_arviz"),
    [
        ((), "", "", ""),
        (("h5netcdf",), "export --out RUN.nc` needs h5netcdf, which is", "pip install h5netcdf", ""),
        (
            ("arviz_base", "h5netcdf"),
            "export --out RUN.nc` and `to_arviz` need arviz-base and h5netcdf, which are",
            "pip install arviz-base h5netcdf",
            "pip install arviz-base",
        ),
    ],
)
def test_what_later_commands_lack_is_said_before_sampling(
    tmp_path: Path, missing: tuple[str, ...], said: str, by_export: str, by_arviz: str
) -> None:
    """One line, the first, and none where nothing is missing; then by the commands themselves, in the same words."""
    write_planted(tmp_path / "r.h5")
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({missing!r}))\n")
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))

    def python(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        environment = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert "dsgmcmc:" in done.stderr or "InputError" in done.stderr or not done.returncode, done.stderr
        return done.stderr

    lines = python("-m", "dsgmcmc", "sample", "r.h5", "--out=run", *SMALL).splitlines()
    told = [line for line in lines if "pip install" in line]
    assert len(told) == bool(said)
    if said:
        assert said in told[0]
        assert lines.index(told[0]) < lines.index("grid 2 x 2")
    for words, arguments in (
        (by_export, ("-m", "dsgmcmc", "export", "run", "--out=run.nc")),
        (by_arviz, ("-c", "import dsgmcmc; dsgmcmc.open_run('run').to_arviz()")),
    ):
        errors = python(*arguments)
        assert errors.rstrip().endswith(words)
        assert bool(errors) == bool(words)


def test_the_extra_has_the_packages() -> None:
    """Whoever installs the extra `report` lacks nothing."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extra = {text.split(">")[0] for text in project["optional-dependencies"]["report"]}
    assert set(PACKAGES.values()) <= extra
    assert {module for modules in NEEDS.values() for module in modules} == set(PACKAGES)

"""What is missing is said before it is needed, with a command that brings it."""

from __future__ import annotations

import sys
import tomllib
from contextlib import nullcontext
from pathlib import Path

import pytest
from support import typed, write_planted

from dsgmcmc import open_run
from dsgmcmc.errors import InputError
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
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    missing: tuple[str, ...],
    said: str,
    by_export: str,
    by_arviz: str,
) -> None:
    """One line, the first, and none where nothing is missing; then by the commands themselves, in the same words."""
    for module in missing:
        monkeypatch.setitem(sys.modules, module, None)  # importing it fails
    data = write_planted(tmp_path / "r.h5")
    lines = typed("sample", data, "--out", tmp_path / "run", *SMALL).expect().err.splitlines()
    told = [line for line in lines if "pip install" in line]
    assert len(told) == bool(said)
    if said:
        assert said in told[0]
        assert lines.index(told[0]) < lines.index("grid 2 x 2")
    exported = typed("export", tmp_path / "run", "--out", tmp_path / "run.nc").expect(2 if by_export else 0)
    assert exported.err.rstrip().endswith(by_export)
    assert bool(exported.err) == bool(by_export)
    with pytest.raises(InputError, match=f"{by_arviz}$") if by_arviz else nullcontext():
        open_run(tmp_path / "run").to_arviz()


def test_the_extra_has_the_packages() -> None:
    """Whoever installs the extra `report` lacks nothing."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extra = {text.split(">")[0] for text in project["optional-dependencies"]["report"]}
    assert set(PACKAGES.values()) <= extra
    assert {module for modules in NEEDS.values() for module in modules} == set(PACKAGES)

"""What is missing is said by the command that needs it, with a command that brings it; others need nothing."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest
from support import typed, write_planted

from dsgmcmc import open_run
from dsgmcmc.errors import InputError
from dsgmcmc.posterior.extras import NEEDS, PACKAGES

ROOT = Path(__file__).parents[2]
SMALL = ["--rank=2", "--grid=2", "--iterations=20", "--burn-in=4", "--thin=4"]


def test_what_is_lacking_is_said_where_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the export and by Python, in the same words; not by `sample`, whose run can be exported later."""
    for module in PACKAGES:
        monkeypatch.setitem(sys.modules, module, None)  # importing it fails
    data = write_planted(tmp_path / "r.h5")
    assert "install" not in typed("sample", data, "--out", tmp_path / "run", *SMALL).expect().err
    exported = typed("export", tmp_path / "run", "--out", tmp_path / "run.nc").expect(2)
    assert "needs arviz-base and h5netcdf, which are not installed: pip install arviz-base h5netcdf," in exported.err
    with pytest.raises(InputError, match="`to_arviz` needs arviz-base, which is not installed: pip install arviz-base"):
        open_run(tmp_path / "run").to_arviz()


def test_the_extra_has_the_packages() -> None:
    """Whoever installs the extra `report` lacks nothing."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extra = {text.split(">")[0] for text in project["optional-dependencies"]["report"]}
    assert set(PACKAGES.values()) <= extra
    assert {module for modules in NEEDS.values() for module in modules} == set(PACKAGES)

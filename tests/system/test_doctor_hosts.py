"""``dsgmcmc doctor`` under a launcher: processes that differ, in namespaces that make one machine look like two."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from support import Result, run

import dsgmcmc
from dsgmcmc.parallel.mpirun import find_mpirun

DOCTOR = (sys.executable, "-m", "dsgmcmc", "doctor", "--json")


def doctor(*second: str, out: Path, **environment: str) -> tuple[Result, dict[str, dict[str, Any]]]:
    """Run it on two processes, the second of which is started by `second`; the result and the findings by name."""
    both = [["-n", "1", *before, *DOCTOR, "--out", str(out)] for before in ((), second)]
    result = run(find_mpirun() or "mpirun", *both[0], ":", *both[1], env=environment)
    answer = json.loads(result.out)
    assert answer["can_sample"] == (result.code == 0)
    return result, {finding["name"]: finding for finding in answer["findings"]}


def test_processes_that_fit_together_pass(tmp_path: Path) -> None:
    """One answer for all processes, about each host and about what they share; nothing is left in the folder."""
    result, findings = doctor(out=tmp_path / "not" / "yet")
    assert result.code == 0, result.err
    assert findings["Hosts"]["found"].endswith("(2)")
    assert findings["Run directory"]["level"] == "ok"
    assert {finding["level"] for finding in findings.values()} == {"ok"}
    assert {"Python", "HDF5", "Kernels"} <= set(findings)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make namespaces")
def test_a_folder_that_is_not_shared_is_an_error(tmp_path: Path) -> None:
    """Every host would write its shards into a folder of its own, and the run could not be read afterwards."""
    script = f'hostname elsewhere && mount -t tmpfs none {tmp_path} && exec "$@"'
    result, findings = doctor("unshare", "--uts", "--mount", "sh", "-c", script, "sh", out=tmp_path)
    assert result.code == 1
    assert findings["Run directory"]["level"] == "error"
    assert "elsewhere" in findings["Run directory"]["found"]
    assert "elsewhere (1)" in findings["Hosts"]["found"]


def test_another_version_on_a_host_is_an_error(tmp_path: Path) -> None:
    """The bits of a draw would depend on which host held the block."""
    shutil.copytree(Path(dsgmcmc.__file__).parent, tmp_path / "dsgmcmc")
    module = tmp_path / "dsgmcmc" / "_version.py"
    version = next(line for line in module.read_text().splitlines() if line.startswith("__version__"))
    module.write_text(module.read_text().replace(version, '__version__ = "9.9.9"'))
    result, findings = doctor("env", f"--chdir={tmp_path}", out=tmp_path)
    assert result.code == 1
    assert findings["dsgmcmc version"]["level"] == "error"
    assert "9.9.9" in findings["dsgmcmc version"]["found"]


def test_singletons_are_refused() -> None:
    """Processes that do not know of each other cannot compare anything; each says so."""
    result = run(*DOCTOR, env={"PMI_SIZE": "2", "PMI_RANK": "0"}).expect(2)
    assert "PMI_SIZE=2" in result.err
    assert "different MPIs" in result.err

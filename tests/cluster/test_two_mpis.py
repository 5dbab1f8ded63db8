"""Open MPI and MPICH as packages of Debian, side by side, as on machines whose users load one.

`mpirun` is then Open MPI's, and MPICH's `mpiexec.hydra` stands beside it. dsgmcmc runs in the
tests' own environment with the wheel of mpi4py, which loads the library that variables name.
"""

import json
import os
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import MPI_ENVIRONMENT, ROOT, Running, digest, lacking, run, write_planted

from dsgmcmc.parallel.machine import usable_cores

pytestmark = pytest.mark.long
MPIRUN = ROOT / "launch" / "mpirun.sh"
FOLDER = Path("/usr/bin")
LAUNCHERS = {"Open MPI": "mpirun.openmpi", "MPICH": "mpirun.mpich"}
SETTINGS = ("--rank=2", "--grid=16")


@dataclass(frozen=True)
class Machine:
    """A machine with both packages, seen by a user of one library.

    Attributes
    ----------
    library : str
        The one that mpi4py loads.
    environment : dict of str to str
        Variables, among them a PATH with `dsgmcmc` and without the tests' own launcher.
    """

    library: str
    environment: dict[str, str]

    @property
    def right(self) -> dict[str, str]:
        """Variables for the launcher of the library."""
        return self.environment | {"MPIRUN": LAUNCHERS[self.library]}

    @property
    def wrong(self) -> dict[str, str]:
        """Variables for the launcher of the other library."""
        (other,) = LAUNCHERS.keys() - {self.library}
        return self.environment | {"MPIRUN": LAUNCHERS[other]}


@pytest.fixture(params=LAUNCHERS)
def machine(request, tmp_path) -> Machine:
    missing = [name for name in LAUNCHERS.values() if not (FOLDER / name).exists()]
    if missing:
        lacking(f"no {', '.join(missing)}: on Debian, apt-get install openmpi-bin mpich")
    scripts = tmp_path / "bin"
    scripts.mkdir()
    for name, call in (("python", ""), ("dsgmcmc", "-m dsgmcmc")):
        (scripts / name).write_text(f'#!/bin/sh\nexec {sys.executable} {call} "$@"\n')
        (scripts / name).chmod(0o755)
    environment = {"PATH": os.pathsep.join((str(scripts), str(FOLDER), "/bin"))}
    libraries = Path("/usr/lib", sysconfig.get_config_var("MULTIARCH"))
    if request.param == "Open MPI":
        environment["MPI4PY_LIBMPI"] = str(libraries / "libmpi.so.40")
    else:  # the wheel of mpi4py looks for MPICH's library by another name than Debian's
        links = tmp_path / "lib"
        links.mkdir()
        for name in ("libmpi.so", "libmpi.so.12"):
            (links / name).symlink_to(libraries / "libmpich.so.12")
        environment |= {"MPI4PY_LIBMPI": str(links / "libmpi.so"), "LD_LIBRARY_PATH": str(links)}
    return Machine(request.param, environment)


def test_more_processes_than_cores_draw_the_same(machine, tmp_path):
    """launch/mpirun.sh starts the launcher of the library, and lets processes share cores."""
    data = write_planted(tmp_path / "data.h5")
    options = ("sample", data, *SETTINGS, "--iterations=60", "--burn-in=20")
    processes = usable_cores() + 1
    variables = machine.right
    if machine.library == "Open MPI":  # its mpirun is found although MPICH's Hydra is beside it
        variables = machine.environment
    launch = (MPIRUN, "-n", str(processes), *options, "--out", tmp_path / "run")
    done = run(*launch, env=variables).expect(0)
    assert f"on {processes} process(es)" in done.out
    run(sys.executable, "-m", "dsgmcmc", *options, "--out", tmp_path / "alone").expect(0)
    assert digest(tmp_path / "run") == digest(tmp_path / "alone")


def test_the_launcher_of_the_other_library_is_refused_once(machine, tmp_path):
    """Each process would be alone, and write the files of the others."""
    data = write_planted(tmp_path / "data.h5")
    options = ("sample", data, *SETTINGS, "--iterations=60", "--out", tmp_path / "run")
    done = run(MPIRUN, "-n", "2", "--retries", "2", *options, env=machine.wrong).expect(2)
    assert done.err.count("belong to different MPI installations") == 1
    assert "lost" not in done.err
    assert not (tmp_path / "run").exists()


def test_an_orderly_stop_ends_with_what_to_do(machine, tmp_path):
    """Not with what the launcher says of the status, which is up to twenty lines."""
    data = write_planted(tmp_path / "data.h5")
    out = tmp_path / "run"
    command = [MPIRUN, "-n", "2", "sample", data, *SETTINGS, "--iterations=1000000", "--out", out]
    with Running(command, machine.right) as running:
        running.wait_for(out / "metrics.jsonl", 2)
        running.signal(15)
        done = running.wait().expect(75)
    assert "continue with the same command and --resume" in done.out
    assert all(line.startswith(("chain 0 ", "  ")) for line in done.err.splitlines()), done.err


def test_doctor_names_the_launcher_of_the_library(machine):
    """By default and under each launcher it says which launcher fits, and whether sampling can
    work.
    """

    def found(environment, *launcher):
        done = run(*launcher, "dsgmcmc", "doctor", "--json", env=environment)
        answer = json.loads(done.out)
        findings = {finding["name"]: finding for finding in answer["findings"]}
        assert machine.library in findings["MPI library"]["found"]
        return answer["can_sample"], findings["MPI start"], findings.get("MPI launcher")

    for environment, works in ((machine.right, True), (machine.wrong, False)):
        can_sample, start, launcher = found(environment)
        assert (can_sample, start["level"] == "ok", launcher["level"] == "ok") == (works,) * 3
    assert f"set MPIRUN={LAUNCHERS[machine.library]}, or" in launcher["advice"]
    assert "pip install --no-cache-dir --no-binary=mpi4py" in launcher["advice"]
    for environment, works in ((machine.right, True), (machine.wrong, False)):
        launcher = (environment["MPIRUN"], "-n", "2")
        can_sample, start, _ = found(environment | MPI_ENVIRONMENT, *launcher)
        assert can_sample == works
        assert ("started 2 processes" in start["found"]) == works
        assert ("sees only itself" in start["found"]) != works

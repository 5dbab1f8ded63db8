"""Installation on nodes without a network: the commands of docs/clusters.md, with the network
really cut.
"""

import os
import shlex
import shutil
import sysconfig
from pathlib import Path

import pytest
from support import ROOT, fenced, lacking, run, write_planted

SCRIPTS = Path(sysconfig.get_path("scripts"))
TIMEOUT = 600


def shell(script: str, folder: Path, *before: str, **environment: str) -> str:
    """Run lines as their reader would, up to the first that fails; their output."""
    lines = f"exec 2>&1; cd {shlex.quote(str(folder))}\n{script}"
    return (
        run(*before, "bash", "-euo", "pipefail", "-c", lines, env=environment, timeout=TIMEOUT)
        .expect(0)
        .out
    )


def _left_out(folder: str, names: list[str]) -> set[str]:
    """Names at the top of the repository that a copy leaves out: environments, and files that are
    made there.
    """
    left_out = shutil.ignore_patterns(".venv*", ".git", "runs", "downloads")
    return left_out(folder, names) if folder == str(ROOT) else set()


@pytest.mark.long
@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can cut the network of a process (unshare --net)"
)
@pytest.mark.timeout(2 * TIMEOUT)
def test_the_wheelhouse_is_all_that_a_node_needs(tmp_path: Path) -> None:
    """All wheels are there, and mpi4py is built with the MPI of the module."""
    missing = [name for name in ("gcc", "unshare") if shutil.which(name) is None]
    if missing:
        lacking(f"not installed: {missing}")
    install, _, collect = fenced(ROOT / "docs" / "clusters.md", "bash")
    install = install.replace(
        "/path/to/this/repository",
        "--no-cache-dir --no-binary=mpi4py --no-index --find-links=wheelhouse dsgmcmc",
    )
    source = tmp_path / "source"
    shutil.copytree(ROOT, source, ignore=_left_out)
    shell(collect, source)

    # the module: an MPI in a folder of its own, as far from the environment as a cluster's
    module = tmp_path / "module"
    module.mkdir()
    for tool in ("mpicc", "mpirun", "opal_wrapper"):
        if (SCRIPTS / tool).exists():
            module.joinpath(tool).symlink_to(SCRIPTS / tool)
    home = tmp_path / "home"
    home.mkdir()
    loaded = f"module() {{ export PATH={module}:$PATH; }}\n"
    offline = ("unshare", "--net")
    clean = {"HOME": str(home), "PIP_CACHE_DIR": str(tmp_path / "none"), "PIP_FIND_LINKS": ""}
    # unoptimised, because the compiler would take minutes over the layer between Python and MPI
    output = shell(loaded + install, source, *offline, **clean, CFLAGS="-O0 -g0")
    assert "Sampling can work here" in output

    python = home / "dsgmcmc" / "bin" / "python"
    libraries = (home / "dsgmcmc").glob("lib/python3*/site-packages/mpi4py/MPI*.so")
    assert [path.name.count(".") for path in libraries] == [2], (
        "a wheel's, which has one for every kind of MPI"
    )
    data = write_planted(tmp_path / "r.h5")
    up = f"ip link set lo up 2>/dev/null || true; {module}/mpirun -n 2 {python.parent}/dsgmcmc"
    output = shell(
        f"{up} sample {data} --out run --rank 2 --iterations 8 --grid 2",
        tmp_path,
        *offline,
        HOME=str(home),
    )
    assert "on 2 process(es)" in output

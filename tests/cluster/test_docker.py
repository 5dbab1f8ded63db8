"""The cluster of docker/compose.yaml and the image of docker/Dockerfile, built and run for real."""

from __future__ import annotations

import json
import os
import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from containers import BUILD_TIMEOUT, UID, WORKERS, Cluster, docker, no_base_image, readme_commands, what_is_missing
from support import Running, digest, metrics, options_of, run, write_planted

from dsgmcmc.storage.series import step_name, steps
from dsgmcmc.storage.snapshot import Snapshot

#: The first test waits for the base image, and for the image.
pytestmark = [pytest.mark.long, pytest.mark.timeout(2 * BUILD_TIMEOUT)]
SETTINGS = {"rank": 3, "grid": 5, "step_size": 0.02, "burn_in": 20, "thin": 10, "evaluate_every": 20, "save_draws": 3}
OPTIONS = ["--sampler=psgld", *options_of(SETTINGS)]
FOREVER = 10_000_000
#: Seconds in which a job whose worker is gone has to end; without anybody who notices it would never.
NOTICED = 120.0


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster as the first command of the README starts it, with the base image made if it cannot be pulled."""
    reason = what_is_missing() or no_base_image()
    if reason:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    cluster = Cluster(tmp_path_factory.mktemp("work"))
    try:
        write_planted(cluster.work / "planted.h5")
        cluster.type(readme_commands()[0]).expect(0)
        # compiles the kernels that the tests share: for the watchdog of a hurried user a first start is a hang
        cluster.head("dsgmcmc", "sample", "planted.h5", "--out", "first", "--iterations=40", *OPTIONS).expect(0)
        yield cluster
    finally:
        cluster.close()
    assert cluster.left() == ""


@pytest.fixture
def cluster(started: Cluster) -> Cluster:
    """The cluster with all its workers, whatever the test before has done to them."""
    started.up()
    assert len(started.containers("worker")) == WORKERS
    return started


@pytest.fixture(scope="module")
def on_host(started: Cluster, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Command line of dsgmcmc on this machine, without a container, with the very libraries of the image."""
    folder = tmp_path_factory.mktemp("host")
    container = docker("create", started.image).strip()
    try:
        docker("cp", f"{container}:/opt/dsgmcmc", str(folder))
    finally:
        docker("rm", container)
    python = folder / "dsgmcmc" / "bin" / "python3"
    ask = "import platform; print(platform.python_version())"
    wanted = docker("run", "--rm", started.image, "python3", "-c", ask)
    if not python.exists() or run(python, "-c", ask).out != wanted:
        reason = f"{python.resolve()} is not the image's Python, {wanted.strip()}"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    return (str(python), "-m", "dsgmcmc")


def forever(out: str, *more: str) -> tuple[str, ...]:
    """Command line, in the head, of a run that does not end by itself."""
    return ("cluster-run", "sample", "planted.h5", "--out", out, f"--iterations={FOREVER}", *OPTIONS, *more)


def sampling(running: Running, out: Path) -> None:
    """Wait until a run is well on its way."""
    running.wait_for(out / "metrics.jsonl", 10)


def sampling_in_each(cluster: Cluster) -> list[int]:
    """How many processes of a run there are in each container, fewest first."""
    return sorted(
        sum("python" in command and " sample planted.h5 " in command for _, command in rows)
        for rows in cluster.processes().values()
    )


def newest(out: Path) -> int:
    """Iteration of the newest checkpoint, all of which are whole."""
    parent = out / "checkpoints" / "chain-0"
    for iteration in steps(parent):
        Snapshot(parent / step_name(iteration)).verify()
    return max(steps(parent))


def expect_same(cluster: Cluster, out: str, containers: int) -> None:
    """Finish a run on so many containers, a little after where it is; compare it with one that was never stopped."""
    alone, finish = f"{out}-alone", f"--iterations={newest(cluster.work / out) + 50}"
    resumed = cluster.head("cluster-run", "sample", "planted.h5", "--out", out, "--resume", finish).expect(0)
    assert f"{containers} process(es) on up to {containers} container(s)" in resumed.err
    cluster.head("dsgmcmc", "sample", "planted.h5", "--out", alone, finish, *OPTIONS).expect(0)
    assert digest(cluster.work / out) == digest(cluster.work / alone)


# ---------------------------------------------------------------------- sampling


def test_the_commands_of_the_readme_sample_on_four_containers(started: Cluster, on_host: tuple[str, ...]) -> None:
    """What a reader types ends in a posterior: that of one process on the host, without containers."""
    for line in readme_commands()[1:]:
        result = started.type(line).expect(0)
    assert "4 process(es) on up to 4 container(s)" in result.err
    summary = json.loads((started.work / "run" / "summary.json").read_text())
    assert summary["processes"] == 4
    run(*on_host, "sample", started.work / "ratings.h5", "--out", started.work / "host").expect(0)
    assert digest(started.work / "run") == digest(started.work / "host")


def test_more_processes_than_containers_and_a_signal(cluster: Cluster) -> None:
    """They are spread evenly; SIGUSR1 to mpirun, from another terminal, is a checkpoint everywhere and status 75."""
    with cluster.starting("cluster-run", "-n", "5", *forever("five")[1:]) as running:
        sampling(running, cluster.work / "five")
        assert sampling_in_each(cluster) == [1, 1, 1, 2]
        cluster.head("pkill", "-USR1", "-x", "prterun").expect(0)
        assert "5 process(es) on up to 4 container(s)" in running.wait().expect(75).err
    expect_same(cluster, "five", 1 + WORKERS)


def test_one_machine(cluster: Cluster) -> None:
    """The image alone: no privileges, no network; `docker stop` writes a checkpoint, and the run goes on elsewhere."""
    name, out = f"{cluster.name}-alone", cluster.work / "one"
    locked_up = ("--cap-drop=ALL", "--security-opt=no-new-privileges", "--network=none")
    mounted = ("--user", str(UID), "--volume", f"{cluster.work}:/work")
    sample = ("dsgmcmc", "sample", "planted.h5", "--out", "one", f"--iterations={FOREVER}", *OPTIONS)
    command = ("docker", "run", "--rm", "--name", name, *locked_up, *mounted, cluster.image)
    try:
        with Running((*command, "mpirun", "-n", "2", "--oversubscribe", *sample)) as running:
            sampling(running, out)
            docker("stop", "--time", "60", name)
            running.wait().expect(75)
    finally:
        run("docker", "rm", "--force", name)
    expect_same(cluster, "one", 1 + WORKERS)


# ---------------------------------------------------------------------- stops and losses


def test_stopping_the_cluster_writes_a_checkpoint(cluster: Cluster) -> None:
    """`docker compose stop` loses nothing of a run: the head goes first, while the workers still answer."""
    with cluster.starting(*forever("stopped")) as running:
        sampling(running, cluster.work / "stopped")
        before = metrics(cluster.work / "stopped")[-1]["iteration"]
        cluster.compose("stop").expect(0)
        running.wait()
    assert not cluster.containers()
    assert newest(cluster.work / "stopped") > before
    cluster.up()
    expect_same(cluster, "stopped", 1 + WORKERS)


#: Seconds; a busy machine may take ten for one iteration of four containers.
WATCHDOG = 30
#: How a worker is lost: its machine dies, hangs, or is cut off without a word to anybody.
LOSSES: dict[str, Callable[[Cluster, str], object]] = {
    "killed": lambda cluster, worker: docker("kill", worker),
    "frozen": lambda cluster, worker: docker("pause", worker),
    "cut": lambda cluster, worker: cluster.disconnect(worker),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_lost_worker_is_dropped_and_the_run_goes_on_by_itself(cluster: Cluster, loss: str) -> None:
    """`--retries`: the newest snapshot is intact, two workers go on where three were, and it is said who is gone."""
    worker, out = cluster.containers("worker")[1], cluster.work / loss
    (network,) = cluster.inspect(worker)["NetworkSettings"]["Networks"].values()
    command = ("--checkpoint-every=100", f"--watchdog={WATCHDOG}")
    try:
        with cluster.starting("cluster-run", "--retries", "1", *forever(loss, *command)[1:]) as running:
            sampling(running, out)
            LOSSES[loss](cluster, worker)
            running.wait_for(out / "events.jsonl", 3, timeout=NOTICED)  # a job, another one, and what it goes on from
            running.wait_for(out / "metrics.jsonl", len(metrics(out)) + 2)
            cluster.head("pkill", "-USR1", "-x", "prterun").expect(0)
            result = running.wait(NOTICED).expect(75)
    finally:
        run("docker", "rm", "--force", worker)
    assert f"the job was lost; no answer from {network['IPAddress']}. Going on from the newest checkpoint" in result.err
    expect_same(cluster, loss, WORKERS)


def test_a_lost_worker_ends_the_run(cluster: Cluster) -> None:
    """Without `--retries` with status 70, whatever mpirun makes of it, and with who is gone."""
    worker = cluster.containers("worker")[0]
    (network,) = cluster.inspect(worker)["NetworkSettings"]["Networks"].values()
    try:  # without the watchdog the connections notice
        with cluster.starting(*forever("off", "--checkpoint-every=100", "--watchdog=0")) as running:
            sampling(running, cluster.work / "off")
            cluster.disconnect(worker)
            result = running.wait(NOTICED).expect(70)
    finally:
        docker("rm", "--force", worker)
    assert f"the job was lost; no answer from {network['IPAddress']}. The newest checkpoint is intact" in result.err
    expect_same(cluster, "off", WORKERS)


def test_messages_that_stop_while_hosts_answer(cluster: Cluster) -> None:
    """A second network carries the messages alone; where that is cut, mpirun and ssh see nothing wrong."""
    fabric, workers = f"{cluster.name}-fabric", cluster.containers("worker")
    docker("network", "create", "--internal", fabric)
    try:
        for container in cluster.containers():
            docker("network", "connect", fabric, container)
        by_fabric = ("env", "OMPI_MCA_btl_tcp_if_include=eth1")
        with cluster.starting(
            *by_fabric, *forever("fabric", "--checkpoint-every=100", f"--watchdog={WATCHDOG}")
        ) as running:
            sampling(running, cluster.work / "fabric")
            docker("network", "disconnect", fabric, workers[2])
            result = running.wait(NOTICED).expect(70)
    finally:
        docker("rm", "--force", workers[2])
        for container in cluster.containers():
            run("docker", "network", "disconnect", fabric, container)
        docker("network", "rm", fabric)
    assert "the job was lost. The newest checkpoint is intact" in result.err
    expect_same(cluster, "fabric", WORKERS)


# ---------------------------------------------------------------------- security


def test_nothing_has_privileges(cluster: Cluster) -> None:
    """While a run is on, in all containers: one unprivileged user, no capabilities, no way to gain any."""
    with cluster.starting(*forever("watched")) as running:
        sampling(running, cluster.work / "watched")
        assert sampling_in_each(cluster) == [1] * (1 + WORKERS)
        processes = cluster.processes()
        ask = "grep -hE '^(Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs)' /proc/[0-9]*/status | sort -u"
        rights = [docker("exec", container, "sh", "-c", ask) for container in processes]
    assert {uid for rows in processes.values() for uid, _ in rows} == {UID}
    capabilities = "".join(f"Cap{kind}:\t{0:016x}\n" for kind in ("Amb", "Bnd", "Eff", "Inh", "Prm"))
    assert set(rights) == {f"{capabilities}NoNewPrivs:\t1\n"}


def test_containers_are_closed(cluster: Cluster) -> None:
    """No port is published, the network leads nowhere, the root file system is read-only."""
    for container in cluster.containers():
        facts = cluster.inspect(container)
        assert not facts["HostConfig"]["PortBindings"]
        assert not any(facts["NetworkSettings"]["Ports"].values())
        (network,) = facts["NetworkSettings"]["Networks"]
        assert json.loads(docker("network", "inspect", network))[0]["Internal"]
        assert facts["HostConfig"]["ReadonlyRootfs"]
        assert run("docker", "exec", container, "touch", "/opt/dsgmcmc/x").code != 0


def test_only_the_head_is_let_in(cluster: Cluster) -> None:
    """A worker has no key that opens another, and a password is not even asked for."""
    one, other = (cluster.inspect(worker) for worker in cluster.containers("worker")[:2])
    (network,) = other["NetworkSettings"]["Networks"].values()
    answer = run("docker", "exec", one["Id"], "ssh", network["IPAddress"], "true")
    assert answer.code == 255
    assert "Permission denied (publickey)" in answer.err
    cluster.head("ssh", network["IPAddress"], "true").expect(0)


def test_a_changed_host_key_is_refused(cluster: Cluster) -> None:
    """Something else that answers at a worker's address gets no program to run, nor is it left out silently."""
    worker = cluster.containers("worker")[2]
    change = "cd ~/.ssh && rm host_key && ssh-keygen -q -t ed25519 -N '' -f host_key && pkill -HUP -o sshd"
    docker("exec", worker, "sh", "-c", change)
    result = cluster.head("cluster-run", "sample", "planted.h5", "--out", "refused").expect(2)
    assert "Host key verification failed" in result.err
    assert not (cluster.work / "refused").exists()
    docker("restart", "--time", "1", worker)  # it shows its new key
    cluster.head("cluster-run", "doctor", "--no-launch").expect(0)


def test_private_keys_stay_in_memory(cluster: Cluster) -> None:
    """Each container keeps its own, for its user's eyes only; the volume that they share has public ones only."""
    ask = "cd ~/.ssh && stat --format='%a %U' $(grep -l PRIVATE *)"
    for container in cluster.containers():
        assert docker("exec", container, "sh", "-c", ask) == "600 dsgmcmc\n"
        assert "tmpfs" in docker("exec", container, "stat", "--file-system", "--format=%T", "/home/dsgmcmc")
        assert run("docker", "exec", container, "grep", "-rl", "PRIVATE", "/keys").code == 1


def test_no_layer_of_the_image_has_a_private_key(started: Cluster, tmp_path: Path) -> None:
    """Not even one that a later layer hides, and no key of a server for all who have the image."""
    saved = tmp_path / "image.tar"
    docker("save", "--output", str(saved), started.image)
    key = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\s+[A-Za-z0-9+/]{40}")
    layers = 0
    with tarfile.open(saved) as image:
        for member in image:
            content = image.extractfile(member)
            if content is None or not tarfile.is_tarfile(content):  # a folder, a link or a manifest
                continue
            content.seek(0)
            layers += 1
            with tarfile.open(fileobj=content) as layer:
                for file in layer:
                    assert not re.search(r"ssh_host_|id_(rsa|ed25519|ecdsa)", file.name), file.name
                    if file.isfile() and file.size < 1 << 16:
                        assert not key.search(layer.extractfile(file).read()), file.name
    assert layers >= 2

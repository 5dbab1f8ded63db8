"""The cluster of docker/compose.yaml and the image of docker/Dockerfile, built and run for real."""

import json
import time
from collections.abc import Iterator

import pytest
from containers import (
    BUILD_TIMEOUT,
    UID,
    WORKERS,
    Cluster,
    docker,
    inspect,
    missing,
    readme_commands,
)
from support import (
    Running,
    digest,
    lacking,
    metrics,
    newest,
    options_of,
    run,
    wait_until,
    write_planted,
)

#: The first test waits for the base image, and for the image.
pytestmark = [pytest.mark.long, pytest.mark.timeout(2 * BUILD_TIMEOUT)]
SETTINGS = {
    "rank": 3,
    "grid": 5,
    "step_size": 0.02,
    "burn_in": 20,
    "thin": 10,
    "evaluate_every": 20,
    "save_draws": 3,
}
OPTIONS = ["--sampler=psgld", *options_of(SETTINGS)]
FOREVER = 10_000_000
#: Seconds in which a job whose worker is gone has to end; without anybody who notices it would
#: never.
NOTICED = 120.0


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster as the first command of the README starts it, with the base image made if it cannot
    be pulled.
    """
    if reason := missing():
        lacking(reason)
    cluster = Cluster(tmp_path_factory.mktemp("work"))
    try:
        write_planted(cluster.work / "planted.h5")
        cluster.type(readme_commands()[0]).expect(0)
        # compiles the kernels that the tests share: for the watchdog of a hurried user a first
        # start is a hang
        cluster.head(
            "dsgmcmc", "sample", "planted.h5", "--out", "first", "--iterations=40", *OPTIONS
        ).expect(0)
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


def forever(out: str, *more: str) -> tuple[str, ...]:
    """Command line, in the head, of a run that does not end by itself."""
    return (
        "cluster-run",
        "sample",
        "planted.h5",
        "--out",
        out,
        f"--iterations={FOREVER}",
        *OPTIONS,
        *more,
    )


def sampling_in_each(cluster: Cluster) -> list[int]:
    """How many processes of a run there are in each container, fewest first."""
    return sorted(
        sum("python" in command and " sample planted.h5 " in command for _, command in rows)
        for rows in cluster.processes().values()
    )


def expect_same(cluster: Cluster, out: str, containers: int) -> None:
    """Finish a run on so many containers, a little after where it is; compare it with one that was
    never stopped.
    """
    alone = f"{out}-alone"
    finish = f"--iterations={newest(cluster.work / out) + 50}"
    resumed = cluster.head(
        "cluster-run", "sample", "planted.h5", "--out", out, "--resume", finish
    ).expect(0)
    assert f"{containers} process(es) on up to {containers} container(s)" in resumed.err
    cluster.head("dsgmcmc", "sample", "planted.h5", "--out", alone, finish, *OPTIONS).expect(0)
    assert digest(cluster.work / out) == digest(cluster.work / alone)


# ---------------------------------------------------------------------- sampling


def test_the_commands_of_the_readme_sample_on_four_containers(started: Cluster) -> None:
    """The commands end in a posterior, which is that of one process."""
    for line in readme_commands()[1:]:
        result = started.type(line).expect(0)
    assert "4 process(es) on up to 4 container(s)" in result.err
    started.type("docker compose exec head dsgmcmc sample ratings.h5 --out alone").expect(0)
    assert digest(started.work / "run") == digest(started.work / "alone")


def test_one_machine(cluster: Cluster) -> None:
    """The image alone: no privileges, no network; `docker stop` writes a checkpoint, and the run
    goes on elsewhere.
    """
    name = f"{cluster.name}-alone"
    out = cluster.work / "one"
    locked_up = ("--cap-drop=ALL", "--security-opt=no-new-privileges", "--network=none")
    mounted = ("--user", str(UID), "--volume", f"{cluster.work}:/work")
    sample = (
        "dsgmcmc",
        "sample",
        "planted.h5",
        "--out",
        "one",
        f"--iterations={FOREVER}",
        *OPTIONS,
    )
    command = ("docker", "run", "--rm", "--name", name, *locked_up, *mounted, cluster.image)
    try:
        with Running((*command, "mpirun", "-n", "2", "--oversubscribe", *sample)) as running:
            running.wait_for(out / "metrics.jsonl", 10)
            docker("stop", "--time", "60", name)
            running.wait().expect(75)
    finally:
        run("docker", "rm", "--force", name)
    expect_same(cluster, "one", 1 + WORKERS)


# ---------------------------------------------------------------------- stops and losses


def test_stopping_the_cluster_writes_a_checkpoint(cluster: Cluster) -> None:
    """`docker compose stop` loses nothing of a run: the head goes first, while the workers still
    answer.

    There are more processes than containers, on which they are spread evenly.
    """
    with cluster.starting("cluster-run", "-n", "5", *forever("stopped")[1:]) as running:
        running.wait_for(cluster.work / "stopped" / "metrics.jsonl", 10)
        assert sampling_in_each(cluster) == [1, 1, 1, 2]
        before = metrics(cluster.work / "stopped")[-1]["iteration"]
        cluster.compose("stop").expect(0)
        assert "5 process(es) on up to 4 container(s)" in running.wait().err
    assert not cluster.containers()
    assert newest(cluster.work / "stopped") > before
    cluster.up()
    expect_same(cluster, "stopped", 1 + WORKERS)


#: Seconds; a busy machine may take ten for one iteration of four containers.
WATCHDOG = 30


@pytest.mark.parametrize("loss", ["frozen", "cut"])
def test_a_lost_worker_is_dropped_and_the_run_goes_on_by_itself(
    cluster: Cluster, loss: str
) -> None:
    """Its machine hangs, or is cut off without a word: the others go on, and say who is gone."""
    worker = cluster.containers("worker")[1]
    out = cluster.work / loss
    ((name, network),) = inspect(worker)["NetworkSettings"]["Networks"].items()
    command = ("--checkpoint-every=100", f"--watchdog={WATCHDOG}")
    try:
        with cluster.starting(
            "cluster-run", "--retries", "1", *forever(loss, *command)[1:]
        ) as running:
            running.wait_for(out / "metrics.jsonl", 10)
            if loss == "frozen":
                # the kernel does not always catch all processes of a busy container
                wait_until(
                    lambda: run("docker", "pause", worker).code == 0,
                    lambda: f"{worker} cannot be paused",
                )
            else:
                docker("network", "disconnect", name, worker)
            # two jobs, and the checkpoint of the second
            running.wait_for(out / "events.jsonl", 3, timeout=NOTICED)
            running.wait_for(out / "metrics.jsonl", len(metrics(out)) + 2)
            cluster.head("pkill", "-USR1", "-x", "prterun").expect(0)
            result = running.wait(NOTICED).expect(75)
    finally:
        run("docker", "rm", "--force", worker)
    assert (
        f"the job was lost; no answer from {network['IPAddress']}. Going on from the newest"
        " checkpoint" in result.err
    )
    expect_same(cluster, loss, WORKERS)


@pytest.mark.parametrize("seconds", [5, 30])
def test_a_link_that_is_cut_for_a_while_loses_nothing(cluster: Cluster, seconds: int) -> None:
    """Processes that talk by TCP go on, or the job ends and is resumed: the draws are the same."""
    out = cluster.work / f"cut-{seconds}"
    pid = inspect(cluster.containers("worker")[0])["State"]["Pid"]
    link = ("nsenter", "--target", str(pid), "--net", "ip", "link", "set", "eth0")
    with cluster.starting(*forever(out.name, "--checkpoint-every=100", "--watchdog=60")) as running:
        running.wait_for(out / "metrics.jsonl", 10)
        run(*link, "down").expect(0)
        time.sleep(seconds)
        run(*link, "up").expect(0)
        after = len(metrics(out)) + 2
        running.until(
            lambda: running.process.poll() is not None or len(metrics(out)) > after,
            "an end",
            NOTICED,
        )
        run("docker", "exec", cluster.containers("head")[0], "pkill", "-USR1", "-x", "prterun")
        assert running.wait(NOTICED).code in (70, 75)
    expect_same(cluster, out.name, 1 + WORKERS)


def test_a_launcher_that_hangs_after_the_end_of_a_run_is_killed(cluster: Cluster) -> None:
    """The daemon of one worker is stopped: mpirun waits for it for ever, and the command ends with
    its status.
    """
    worker = cluster.containers("worker")[0]
    try:
        with cluster.starting(*forever("hung")) as running:
            running.wait_for(cluster.work / "hung" / "metrics.jsonl", 10)
            docker("exec", worker, "pkill", "-STOP", "-x", "prted")
            cluster.head("pkill", "-USR1", "-x", "prterun").expect(0)
            running.wait(NOTICED).expect(75)
    finally:
        run("docker", "exec", worker, "pkill", "-CONT", "-x", "prted")


# ---------------------------------------------------------------------- security


def test_nothing_has_privileges_and_nothing_is_open(cluster: Cluster) -> None:
    """One user whose processes can gain no privileges; no port, a network that leads nowhere,
    read-only files.
    """
    ask = "grep -hE '^(Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs)' /proc/[0-9]*/status | sort -u"
    none = (
        "".join(
            f"Cap{capability}:\t{0:016x}\n" for capability in ("Amb", "Bnd", "Eff", "Inh", "Prm")
        )
        + "NoNewPrivs:\t1\n"
    )
    for container, rows in cluster.processes().items():
        assert {uid for uid, _ in rows} == {UID}
        assert docker("exec", container, "sh", "-c", ask) == none
        facts = inspect(container)
        assert not facts["HostConfig"]["PortBindings"]
        assert not any(facts["NetworkSettings"]["Ports"].values())
        (network,) = facts["NetworkSettings"]["Networks"]
        assert json.loads(docker("network", "inspect", network))[0]["Internal"]
        assert facts["HostConfig"]["ReadonlyRootfs"]


def test_only_the_head_is_let_in(cluster: Cluster) -> None:
    """A worker has no key that opens another, and a password is not even asked for."""
    one, other = (inspect(worker) for worker in cluster.containers("worker")[:2])
    (network,) = other["NetworkSettings"]["Networks"].values()
    answer = run("docker", "exec", one["Id"], "ssh", network["IPAddress"], "true")
    assert answer.code == 255
    assert "Permission denied (publickey)" in answer.err
    cluster.head("ssh", network["IPAddress"], "true").expect(0)


def test_a_changed_host_key_is_refused(cluster: Cluster) -> None:
    """Something else that answers at a worker's address gets no program to run, nor is it left out
    silently.
    """
    worker = cluster.containers("worker")[2]
    change = (
        "cd ~/.ssh && rm host_key && ssh-keygen -q -t ed25519 -N '' -f host_key && pkill -HUP -o"
        " sshd"
    )
    docker("exec", worker, "sh", "-c", change)
    result = cluster.head("cluster-run", "sample", "planted.h5", "--out", "refused").expect(2)
    assert "Host key verification failed" in result.err
    assert not (cluster.work / "refused").exists()
    docker("restart", "--time", "1", worker)  # it shows its new key
    cluster.head(
        "cluster-run", "sample", "planted.h5", "--out", "accepted", "--iterations=40", *OPTIONS
    ).expect(0)


def test_private_keys_stay_in_memory(cluster: Cluster) -> None:
    """Each container keeps its keys, which only its user can read; the volume that they share has
    public keys only.
    """
    ask = "cd ~/.ssh && stat --format='%a %U' $(grep -l PRIVATE *)"
    for container in cluster.containers():
        assert docker("exec", container, "sh", "-c", ask) == "600 dsgmcmc\n"
        assert "tmpfs" in docker(
            "exec", container, "stat", "--file-system", "--format=%T", "/home/dsgmcmc"
        )
        assert run("docker", "exec", container, "grep", "-rl", "PRIVATE", "/keys").code == 1

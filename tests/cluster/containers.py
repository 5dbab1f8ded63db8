"""A cluster of containers of the tests' own, as docker/README.md starts one; nothing of it is
left.
"""

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support import ROOT, Result, Running, fenced, run

README = ROOT / "docker" / "README.md"
WORKERS = 3
#: Who works in the containers: Docker's usual first user where the tests run as root, else who runs
#: them.
UID = os.getuid() or 1000
BUILD_TIMEOUT = 900.0


def find_compose() -> tuple[str, ...] | None:
    """Compose v2, else Debian's docker-compose; None without either."""
    for command in (("docker", "compose"), ("docker-compose",)):
        if shutil.which(command[0]) and run(*command, "version").code == 0:
            return command
    return None


def missing() -> str:
    """Reason why no containers can be started here, empty if they can; makes the base image of ours
    if needed.
    """
    if not shutil.which("docker"):
        return "no docker command"
    answer = run("docker", "version")
    if answer.code != 0:
        return f"no Docker engine answers: {answer.err.strip()}"
    if not find_compose():
        return "neither Compose v2 nor docker-compose"
    done = run(Path(__file__).parent / "base_image.sh", timeout=600)
    return "" if done.code == 0 else done.err.strip() or f"base_image.sh ended with {done.code}"


def readme_commands() -> list[str]:
    """The commands of the first block of docker/README.md, which start a cluster and sample on
    it.
    """
    return [
        line for line in fenced(README, "sh")[0].replace("\\\n", " ").splitlines() if line.strip()
    ]


class Cluster:
    """The cluster of docker/compose.yaml under a name of its own.

    Parameters
    ----------
    work : Path
        Empty folder that the containers see as /work.
    """

    def __init__(self, work: Path) -> None:
        self.work = work
        self.name = self.image = f"dsgmcmc-test-{secrets.token_hex(4)}"
        os.chown(work, UID, -1)
        self._compose = find_compose() or ()
        self._env = {"COMPOSE_PROJECT_NAME": self.name, "DSGMCMC_IMAGE": self.image}
        self._env |= {"DSGMCMC_WORK": str(work), "DSGMCMC_UID": str(UID)}

    def close(self) -> None:
        """Remove containers, network, volume and image."""
        self.compose("down", "--volumes", "--remove-orphans", "--timeout", "1")
        run("docker", "image", "rm", "--force", self.image)
        # builders before BuildKit
        run("docker", "image", "prune", "--force", "--filter", "label=dsgmcmc.stage=build")

    def left(self) -> str:
        """Names of its objects that are still there."""
        ours = ("ls", "--quiet", "--filter", f"label=com.docker.compose.project={self.name}")
        left = (
            docker("container", *ours, "--all") + docker("network", *ours) + docker("volume", *ours)
        )
        return left + docker("image", "ls", "--quiet", self.image)

    # ------------------------------------------------------------------ commands

    def type(self, line: str) -> Result:
        """Run a line of the README in the folder docker; there is no terminal, and Compose may be
        the older one.
        """
        line = line.replace("docker compose", " ".join(self._compose)).replace(
            " exec ", " exec -T "
        )
        return run(
            "bash", "-c", f"cd '{ROOT / 'docker'}' && {line}", env=self._env, timeout=BUILD_TIMEOUT
        )

    def compose(self, *arguments: str) -> Result:
        """Run Compose with these arguments."""
        return run(
            *self._compose, "--file", ROOT / "docker" / "compose.yaml", *arguments, env=self._env
        )

    def up(self) -> None:
        """Have the head and all workers, whatever was done to them."""
        self.compose("up", "--detach", "--scale", f"worker={WORKERS}").expect(0)

    def head(self, *command: str) -> Result:
        """Run a command in the head."""
        return run("docker", "exec", self.containers("head")[0], *command)

    @contextmanager
    def starting(self, *command: str) -> Iterator[Running]:
        """Start a command in the head; at the end nothing is left of it in any container."""
        head = self.containers("head")[0]
        try:
            with Running(("docker", "exec", head, *command)) as running:
                yield running
        finally:  # the daemons of a killed mpirun end by themselves
            run("docker", "exec", head, "pkill", "-KILL", "-x", "prterun")

    # ------------------------------------------------------------------ state

    def containers(self, service: str | None = None) -> list[str]:
        """Ids of the running containers."""
        labels = {"project": self.name} | ({"service": service} if service else {})
        filters = [
            f"--filter=label=com.docker.compose.{label}={value}" for label, value in labels.items()
        ]
        return docker("ps", "--quiet", *filters).split()

    def processes(self) -> dict[str, list[tuple[int, str]]]:
        """User id and command line of every process, by container."""
        rows_of = {}
        for container in self.containers():
            rows = docker("top", container, "-eo", "pid,uid,args").splitlines()[1:]
            rows_of[container] = [(int(row.split()[1]), row.split(maxsplit=2)[2]) for row in rows]
        return rows_of


def inspect(container: str) -> dict[str, Any]:
    """Facts of the engine about a container."""
    return dict(json.loads(docker("inspect", container))[0])


def docker(*arguments: str) -> str:
    """Output of a docker command that must succeed."""
    return run("docker", *arguments).expect(0).out

"""A Compose project on a real Docker engine, for the tests of this folder; what is missing for
one is said by the skip.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import nats
import pytest
import yaml

if TYPE_CHECKING:
    from docker.models.containers import Container

ROOT = Path(__file__).parents[2]
#: Against hanging only.
PATIENCE_S = 1800.0
SERVICES = ("dispatcher", "jobmanager", "resourcemanager", "taskmanager")
INFRASTRUCTURE = ("nats", "redis", "objectstore")


def wait_for(what: str, condition: Callable[[], Any]) -> Any:
    """The first true value of ``condition``."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        # A service that is starting resets connections, or does not know its job yet; a
        # container that is starting has no port, which Compose says with an error.
        with contextlib.suppress(httpx.HTTPError, ComposeError):
            if found := condition():
                return found
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.2)


READ_OBJECTS = """
import base64, json, sys, obstore
from obstore.store import from_url
store = from_url("s3://penstock")
print(json.dumps({
    entry["path"]: base64.b64encode(bytes(obstore.get(store, entry["path"]).bytes())).decode()
    for page in obstore.list(store, sys.argv[1]) for entry in page if "/_" not in entry["path"]
}))
"""


class ComposeError(Exception):
    """What a failed command printed."""


def compose_command() -> list[str] | None:
    docker = shutil.which("docker")
    if docker and subprocess.run([docker, "compose", "version"], capture_output=True).returncode == 0:
        return [docker, "compose"]
    return [found] if (found := shutil.which("docker-compose")) else None


def engine() -> Any:
    """The engine's client; skips, saying what is missing."""
    from docker.errors import DockerException, ImageNotFound
    from testcontainers.core.config import testcontainers_config
    from testcontainers.core.docker_client import DockerClient

    testcontainers_config.ryuk_disabled = True  # this file ends what it starts
    try:
        client = DockerClient().client
        client.ping()
    except DockerException as err:
        pytest.skip(f"no Docker engine answers: {str(err)[:200]}")
    if compose_command() is None:
        pytest.skip("neither 'docker compose' nor docker-compose is installed")
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    started = [service for service in services.values() if "profiles" not in service]
    for image in sorted({service["image"] for service in started}):
        try:
            client.images.get(image)
        except ImageNotFound:
            how = "docker compose build"
            how = how if image.startswith("penstock") else f"docker pull {image}"
            pytest.skip(f"the image {image} is not there ({how})")
    return client


@dataclass
class Cluster:
    """One Compose project."""

    client: Any
    project: str
    environment: dict[str, str]

    def compose(self, *args: str) -> str:
        command = [*(compose_command() or []), "-p", self.project, "-f", str(ROOT / "compose.yaml"), *args]
        done = subprocess.run(command, env=self.environment, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise ComposeError(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def containers(self, service: str | None = None) -> list[Container]:
        labels = [f"com.docker.compose.project={self.project}"]
        if service:
            labels.append(f"com.docker.compose.service={service}")
        found: list[Container] = self.client.containers.list(all=True, filters={"label": labels})
        return found

    def address(self, service: str, port: int) -> str:
        return self.compose("port", service, str(port)).strip()

    def rest(self, path: str) -> Any:
        url = f"http://{self.address('dispatcher', 8081)}{path}"
        return httpx.get(url, timeout=PATIENCE_S).raise_for_status().json()

    @property
    def network(self) -> str:
        return f"{self.project}_default"

    def address_in_network(self, container: Container) -> str:
        return str(container.attrs["NetworkSettings"]["Networks"][self.network]["IPAddress"])

    def crash(self, container: Container) -> None:
        """SIGKILL for all processes but the first, which then ends: no orderly stop, and none of
        Docker's commands, so that the restart policy acts."""
        container.exec_run(["sh", "-c", "kill -9 -1"], user="root")

    def restarts(self, service: str) -> int:
        counts = []
        for container in self.containers(service):
            container.reload()
            counts.append(container.attrs["RestartCount"])
        return sum(counts)

    async def submit(self, spec: str) -> str:
        """The job's id."""
        reply = await ask(self, "penstock.jobs.submit", spec)
        assert reply["type"] == "submit-reply", reply
        return str(reply["job_id"])

    def completed_checkpoints(self, job_id: str) -> int:
        return self.rest(f"/jobs/{job_id}/checkpoints")["counts"].get("completed") or 0

    async def finished(self, job_id: str) -> dict[str, Any]:
        """The status on the bus of a job, once it has ended, and well."""
        over = ("FINISHED", "FAILED", "CANCELED")
        wait_for("the end", lambda: self.rest(f"/jobs/{job_id}")["state"] in over)
        status = await ask(self, "penstock.jobs.status", job_id)
        assert status["status"] == "FINISHED", status
        return status

    def files(self, prefix: str) -> dict[str, bytes]:
        """Committed objects of the bucket below ``prefix``, by their keys, read in a container."""
        answer = self.containers("dispatcher")[0].exec_run(["python", "-c", READ_OBJECTS, prefix], demux=True)
        assert answer.exit_code == 0, answer.output
        return {key: base64.b64decode(data) for key, data in json.loads(answer.output[0]).items()}

    def healthy(self) -> bool:
        states = [c.attrs["State"].get("Health", {}).get("Status") for c in self.containers()]
        return len(states) >= 7 and set(states) == {"healthy"}


def free_port() -> int:
    """Of the host, below those that the kernel gives away by itself. It is not 0 ("any"), which
    Docker would answer with another port after each restart of the container."""
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@contextlib.contextmanager
def running_cluster(*scale: str) -> Iterator[Cluster]:
    """``scale``: as Compose's option of that name has it. Volumes and all are removed afterwards."""
    ports = {"PENSTOCK_NATS_PORT": str(free_port()), "PENSTOCK_REST_PORT": str(free_port())}
    cluster = Cluster(engine(), f"penstock-test-{uuid.uuid4().hex[:8]}", {**os.environ, **ports})
    try:
        cluster.compose("up", "-d", "--no-build", *(f"--scale={service}" for service in scale))
        wait_for("health", cluster.healthy)
        yield cluster
    finally:
        try:
            cluster.compose("down", "-v", "--remove-orphans")
        finally:
            cluster.client.close()


async def ask(cluster: Cluster, subject: str, data: str) -> dict[str, Any]:
    """As any NATS client would."""
    client = await nats.connect(f"nats://{cluster.address('nats', 4222)}")
    try:
        return json.loads((await client.request(subject, data.encode(), timeout=60)).data)
    finally:
        await client.close()


async def read_stream(cluster: Cluster, stream: str, subject: str) -> list[dict[str, Any]]:
    client = await nats.connect(f"nats://{cluster.address('nats', 4222)}")
    try:
        jetstream = client.jetstream()
        info = await jetstream.stream_info(stream, subjects_filter=subject)
        count = sum((info.state.subjects or {}).values())
        subscription = await jetstream.subscribe(subject, stream=stream, ordered_consumer=True)
        return [json.loads((await subscription.next_msg(60)).data) for _ in range(count)]
    finally:
        await client.close()


def connected_addresses(container: Container) -> set[str]:
    """Remote addresses of the container's established TCP connections."""
    lines = container.exec_run(["cat", "/proc/net/tcp"]).output.decode().splitlines()[1:]
    remote = [line.split()[2] for line in lines if line.split()[3] == "01"]
    return {".".join(str(b) for b in reversed(bytes.fromhex(a.partition(":")[0]))) for a in remote}

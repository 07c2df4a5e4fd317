"""compose.yaml on a real Docker engine: its images, its health checks, a job from outside.

Skipped where there is no engine, no Compose or an image is missing. Before it::

    docker build -t penstock:latest -f deploy/Dockerfile .   (and: docker compose pull)

The tests of this file share one cluster (a project of their own, free ports) and run in order.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from docker.models.containers import Container

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
#: Against hanging only.
PATIENCE_S = 600.0
#: A minute of rows: the job is still at work when a container of its is killed.
ROWS = 180_000
SERVICES = ("dispatcher", "jobmanager", "resourcemanager", "taskmanager")

JOB = f"""
name: counts
parallelism: 4
config: {{execution.checkpointing.interval: 1 s}}
sql: |
  CREATE TABLE numbers (k BIGINT, n BIGINT, at_ TIMESTAMP(3),
                        WATERMARK FOR at_ AS at_ - INTERVAL '1' SECOND)
  WITH ('connector' = 'datagen', 'number-of-rows' = '{ROWS}', 'rows-per-second' = '3000',
        'fields.k.min' = '0', 'fields.k.max' = '9',
        'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '{ROWS}');
  CREATE TABLE counts (k BIGINT, window_end TIMESTAMP(3), n BIGINT, total BIGINT)
  WITH ('connector' = 'nats', 'stream' = 'COUNTS', 'subject' = 'counts.{{k}}', 'stream.create' = 'true',
        'format' = 'json', 'sink.delivery-guarantee' = 'exactly-once');
  CREATE TABLE files
  WITH ('connector' = 'filesystem', 'path' = 's3://penstock/out/counts', 'format' = 'parquet')
  LIKE counts (EXCLUDING OPTIONS);
  CREATE VIEW counted AS SELECT k, window_end, COUNT(*) AS n, SUM(n) AS total
    FROM TABLE(TUMBLE(TABLE numbers, DESCRIPTOR(at_), INTERVAL '1' SECOND))
    GROUP BY k, window_start, window_end;
  BEGIN STATEMENT SET;
  INSERT INTO counts SELECT * FROM counted;
  INSERT INTO files SELECT * FROM counted;
  END;
"""

READ_FILES = """
import io, json, obstore, pyarrow.parquet as pq
from obstore.store import from_url
store = from_url("s3://penstock")
rows = []
for page in obstore.list(store, "out/counts"):
    for entry in page:
        if "/_" not in entry["path"]:
            rows += pq.read_table(io.BytesIO(bytes(obstore.get(store, entry["path"]).bytes()))).to_pylist()
print(json.dumps(rows, default=str))
"""


def wait_for(what: str, condition: Callable[[], Any]) -> Any:
    """The first true value of ``condition``."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        # A service that is starting resets connections, or does not know its job yet.
        with contextlib.suppress(httpx.HTTPError):
            if found := condition():
                return found
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.2)


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
    for image in sorted({service["image"] for service in services.values()}):
        try:
            client.images.get(image)
        except ImageNotFound:
            how = "docker build -t penstock:latest -f deploy/Dockerfile ."
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
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
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

    def healthy(self) -> bool:
        states = [c.attrs["State"].get("Health", {}).get("Status") for c in self.containers()]
        return len(states) >= 7 and set(states) == {"healthy"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    import os

    environment = {**os.environ, "PENSTOCK_NATS_PORT": "0", "PENSTOCK_REST_PORT": "0"}
    cluster = Cluster(engine(), f"penstock-test-{uuid.uuid4().hex[:8]}", environment)
    try:
        cluster.compose("up", "-d", "--no-build")
        yield cluster
    finally:
        cluster.compose("down", "-v", "--remove-orphans")


async def ask(cluster: Cluster, subject: str, data: str) -> dict[str, Any]:
    """As any NATS client would."""
    import nats

    client = await nats.connect(f"nats://{cluster.address('nats', 4222)}")
    try:
        return json.loads((await client.request(subject, data.encode(), timeout=60)).data)
    finally:
        await client.close()


async def read_stream(cluster: Cluster, stream: str, subject: str) -> list[dict[str, Any]]:
    import nats

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


def test_all_services_become_healthy_and_the_dashboard_answers(cluster):
    wait_for("health", cluster.healthy)
    page = httpx.get(f"http://{cluster.address('dispatcher', 8081)}/", timeout=PATIENCE_S)
    assert page.status_code == 200
    assert "<html" in page.text.lower()
    overview = cluster.rest("/overview")
    assert (overview["taskmanagers"], overview["slots-total"]) == (1, 2)


def test_scaling_adds_slots(cluster):
    cluster.compose("up", "-d", "--no-build", "--no-recreate", "--scale", "taskmanager=4")
    wait_for("eight slots", lambda: cluster.rest("/overview")["slots-total"] == 8)


async def test_a_job_from_the_bus_survives_a_killed_task_manager(cluster):
    reply = await ask(cluster, "penstock.jobs.submit", JOB)
    assert reply["type"] == "submit-reply", reply
    job = f"/jobs/{reply['job_id']}"

    def completed(n: int) -> bool:
        return (cluster.rest(f"{job}/checkpoints")["counts"].get("completed") or 0) >= n

    wait_for("a checkpoint", lambda: completed(1))
    workers = cluster.containers("taskmanager")
    addresses = {worker.id: cluster.address_in_network(worker) for worker in workers}
    for worker in workers:
        others = {address for key, address in addresses.items() if key != worker.id}
        assert connected_addresses(worker) & others, "data connections between containers are TCP"

    def busy() -> list[str]:
        processes = cluster.rest("/cluster/info")["processes"]
        return [p["host"] for p in processes if any(s["state"] == "active" for s in p.get("slots", ()))]

    host = wait_for("slots in use", busy)[0]
    victim = next(w for w in workers if w.id.startswith(host))
    victim.kill("SIGKILL")

    wait_for("the end", lambda: cluster.rest(job)["state"] in ("FINISHED", "FAILED"))
    status = await ask(cluster, "penstock.jobs.status", reply["job_id"])
    assert status["status"] == "FINISHED"
    assert status["attempt"] >= 2
    assert status["restored_checkpoint_id"] >= 1

    published = await read_stream(cluster, "COUNTS", "counts.*")
    answer = cluster.containers("dispatcher")[0].exec_run(["python", "-c", READ_FILES], demux=True)
    written = json.loads(answer.output[0])
    for rows in (published, written):
        assert sum(row["n"] for row in rows) == ROWS
        assert sum(row["total"] for row in rows) == ROWS * (ROWS + 1) // 2
        assert len({(row["k"], row["window_end"]) for row in rows}) == len(rows)


async def test_a_malformed_spec_is_answered_with_its_place(cluster):
    reply = await ask(cluster, "penstock.jobs.submit", '{"name": "x",\n "sql": }')
    assert reply["type"] == "failed"
    assert reply["error"]["where"] == "line 2, column 9"


def test_an_object_store_that_overwrites_silently_is_refused(cluster):
    from testcontainers.core.container import DockerContainer

    script = Path(__file__).with_name("overwriting_s3.py")
    liar = (
        DockerContainer("penstock:latest", command="/overwriting_s3.py")
        .with_volume_mapping(str(script), "/overwriting_s3.py", "ro")
        .with_kwargs(network=cluster.network, entrypoint="python")
    )
    with liar:
        address = cluster.client.containers.get(liar.get_wrapped_container().id)
        endpoint = f"http://{cluster.address_in_network(address)}:9000"
        wait_for(
            "the imitation",
            lambda: b":2328 " in address.exec_run(["cat", "/proc/net/tcp"]).output,  # port 9000
        )
        service = cluster.client.containers.run(
            "penstock:latest",
            ["jobmanager"],
            network=cluster.network,
            environment={
                "AWS_ENDPOINT": endpoint,
                "AWS_ALLOW_HTTP": "true",
                "AWS_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": "x",
                "AWS_SECRET_ACCESS_KEY": "x",
            },
            detach=True,
        )
        try:
            assert service.wait(timeout=PATIENCE_S)["StatusCode"] == 1
            assert b"does not honour conditional creates" in service.logs()
        finally:
            service.remove(force=True)


def test_services_stop_in_order(cluster):
    """Last: it stops the cluster. Exit code 0 is an orderly end (137 = killed)."""
    killed = {c.id for c in cluster.containers() if c.status == "exited"}
    cluster.compose("stop", *SERVICES)
    codes = {
        c.name: c.attrs["State"]["ExitCode"]
        for service in SERVICES
        for c in cluster.containers(service)
        if c.id not in killed
    }
    assert set(codes.values()) == {0}, codes

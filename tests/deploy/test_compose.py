"""compose.yaml on a real Docker engine: its images, its health checks, jobs from outside.

Skipped where there is no engine, no Compose or an image is missing. Before it::

    docker compose build                                     (and: docker compose pull)

The tests of this file share one cluster (a project of their own, free ports) and run in order.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.deploy.clusters import (
    INFRASTRUCTURE,
    PATIENCE_S,
    ROOT,
    SERVICES,
    Cluster,
    ask,
    compose_command,
    connected_addresses,
    engine,
    running_cluster,
    wait_for,
)
from tests.deploy.counting import JOB, ROWS, ROWS_PER_SECOND, assert_exact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docker.models.containers import Container

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster() as cluster:
        yield cluster


def working_container(cluster: Cluster) -> Container:
    """A task manager's with a slot that works for a job."""

    def busy() -> list[str]:
        processes = cluster.rest("/cluster/info")["processes"]
        return [p["host"] for p in processes if any(s["state"] == "active" for s in p.get("slots", ()))]

    host = wait_for("slots in use", busy)[0]
    return next(c for c in cluster.containers("taskmanager") if c.id.startswith(host))


def test_all_services_are_healthy_and_the_dashboard_answers(cluster):
    page = httpx.get(f"http://{cluster.address('dispatcher', 8081)}/", timeout=PATIENCE_S)
    assert page.status_code == 200
    assert "<html" in page.text.lower()
    overview = cluster.rest("/overview")
    assert (overview["taskmanagers"], overview["slots-total"]) == (1, 2)


def test_every_container_comes_back_by_itself(cluster):
    policies = {
        service: {c.attrs["HostConfig"]["RestartPolicy"]["Name"] for c in cluster.containers(service)}
        for service in (*SERVICES, *INFRASTRUCTURE)
    }
    assert policies == {service: {"unless-stopped"} for service in (*SERVICES, *INFRASTRUCTURE)}


def test_scaling_adds_slots(cluster):
    cluster.compose("up", "-d", "--no-build", "--no-recreate", "--scale", "taskmanager=4")
    wait_for("eight slots", lambda: cluster.rest("/overview")["slots-total"] == 8)


async def test_a_job_from_the_bus_survives_a_killed_task_manager(cluster):
    spec = JOB.format(name="counts", engine="streaming", rows=ROWS, pace=ROWS_PER_SECOND)
    job_id = await cluster.submit(spec)
    wait_for("a checkpoint", lambda: cluster.completed_checkpoints(job_id) >= 1)
    workers = cluster.containers("taskmanager")
    addresses = {worker.id: cluster.address_in_network(worker) for worker in workers}
    for worker in workers:
        others = {address for key, address in addresses.items() if key != worker.id}
        assert connected_addresses(worker) & others, "data connections between containers are TCP"

    working_container(cluster).kill("SIGKILL")  # it stays away: others take its work
    status = await cluster.finished(job_id)
    assert status["attempt"] >= 2
    assert status["restored_checkpoint_id"] >= 1
    await assert_exact(cluster, "counts", ROWS)


async def test_a_bounded_job_runs_on_spark_and_survives_its_task_manager(cluster):
    """No engine is asked for: Spark takes it, by the Java that is in the image. Starting it takes
    far longer than until the crash."""
    rows = 20_000
    spec = JOB.format(name="bounded", engine="auto", rows=rows, pace=ROWS_PER_SECOND)
    job_id = await cluster.submit(spec)
    victim = working_container(cluster)
    assert cluster.rest(f"/jobs/{job_id}")["plan"]["nodes"][0]["description"].startswith("Spark")
    cluster.crash(victim)
    status = await cluster.finished(job_id)
    assert status["attempt"] >= 2
    await assert_exact(cluster, "bounded", rows)


def test_a_crashed_task_manager_comes_back_and_leaves_no_folder(cluster):
    worker = next(c for c in cluster.containers("taskmanager") if c.status == "running")
    before = cluster.restarts("taskmanager")
    cluster.crash(worker)
    wait_for("its restart", lambda: cluster.restarts("taskmanager") > before)
    wait_for("its slots", lambda: len(folders(worker)) == 1)


def folders(container: Container) -> list[str]:
    """Of task managers, in the container's temporary folder."""
    container.reload()
    if container.status != "running":
        return []
    found = container.exec_run(["sh", "-c", "ls -d /tmp/penstock-tm-*"])
    return found.output.decode().split() if found.exit_code == 0 else []


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


def test_a_cluster_for_one_job_ends_with_its_exit_code(tmp_path):
    engine()
    tmp_path.chmod(0o755)  # the container's user is another
    (tmp_path / "good.sql").write_text("SELECT 6 * 7 AS answer;")
    (tmp_path / "bad.sql").write_text("SELECT 6 * unknown AS answer;")
    environment = {
        **os.environ,
        "PENSTOCK_NATS_PORT": "0",
        "PENSTOCK_REST_PORT": "0",
        "PENSTOCK_JOB_DIR": str(tmp_path),
    }
    files = ["-f", str(ROOT / "compose.yaml"), "-f", str(ROOT / "compose.job.yaml")]
    command = [*(compose_command() or []), "-p", f"penstock-test-{uuid.uuid4().hex[:8]}", *files]

    def compose(job: str, *args: str) -> subprocess.CompletedProcess[str]:
        env: dict[str, Any] = {**environment, "PENSTOCK_JOB": job}
        return subprocess.run([*command, *args], env=env, cwd=ROOT, capture_output=True, text=True)

    up = ("up", "--no-build", "--no-color", "--exit-code-from", "job")
    try:
        good, bad = compose("good.sql", *up), compose("bad.sql", *up)
    finally:
        compose("good.sql", "down", "-v")
    assert good.returncode == 0, good.stdout[-3000:] + good.stderr[-1000:]
    assert "42" in said_by_job(good)
    assert bad.returncode == 1
    assert "unknown" in said_by_job(bad)


def said_by_job(done: subprocess.CompletedProcess[str]) -> str:
    lines = (done.stdout + done.stderr).splitlines()
    return "\n".join(line for line in lines if line.startswith("job"))

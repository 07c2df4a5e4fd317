"""Masters and task managers that are simulated, for ``bench.rest``: a process of its own that answers for all of them.

python -m bench.simulated NATS_URL FILE_OF_JOB_IDS TASK_MANAGERS
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from penstock.bus import encode, request
from penstock.bus.nats import NatsTransport
from penstock.bus.subjects import Subjects, verb_of
from penstock.errors import BrokerError
from penstock.messages.cluster import Ack
from penstock.messages.details import JobDetails, SubtaskDetails, VertexDetails
from penstock.messages.job_master import RequestJobDetails
from penstock.messages.resource_manager import RegisterReply, RegisterTaskManager, SlotStatus
from penstock.messages.states import ExecutionState, JobStatus
from penstock.messages.task_manager import RequestTaskManagerDetails
from penstock.processes import die_with_parent_after_exec

CLUSTER = "penstock"
SLOTS = 4
HEARTBEAT_S = 1.0


def details(job_id: str) -> JobDetails:
    """What a master answers about its job: four vertices of four subtasks."""
    now_ms = int(time.time() * 1000)

    def subtask(index: int) -> SubtaskDetails:
        times = {"CREATED": now_ms, "RUNNING": now_ms}
        return SubtaskDetails(
            subtask_index=index, execution_id=f"{job_id}-{index}", attempt=1, state=ExecutionState.RUNNING,
            taskmanager_id="taskmanager-1", allocation_id=f"slot-{index}", timestamps=times,
            metrics={"read-records": 1_000, "write-records": 1_000, "busy": 500},
        )  # fmt: skip

    vertices = [
        VertexDetails(
            id=f"{number:032x}", name=f"step {number}", parallelism=4, max_parallelism=128,
            operators=[{"uid": f"u{number}", "name": "step", "kind": "calc"}],
            subtasks=[subtask(i) for i in range(4)],
        )
        for number in range(4)
    ]  # fmt: skip
    return JobDetails(
        job_id=job_id, name=f"job {job_id[:6]}", status=JobStatus.RUNNING, attempt=1, epoch=1, start_ms=now_ms,
        timestamps={"CREATED": now_ms, "RUNNING": now_ms}, vertices=vertices, plan="a plan " * 200,
    )  # fmt: skip


def report(number: int, job_id: str, port: int) -> RegisterTaskManager:
    """What a task manager reports: all of its slots run."""
    slots = tuple(
        SlotStatus(
            index=index, state="active", job_id=job_id, allocation_id=f"a1-{number * SLOTS + index}",
            pid=10_000 + number * SLOTS + index,
            details={
                "pid": 10_000 + number * SLOTS + index, "rss_bytes": 123_456_789, "cpu_seconds": 1234.5,
                "cpu_share": 0.4321, "memory_limit_bytes": 1_073_741_824, "silent_ms": 123,
            },
        )
        for index in range(SLOTS)
    )  # fmt: skip
    return RegisterTaskManager(
        taskmanager_id=f"taskmanager-{number:04}", host=f"host-{number:04}.example.net", pid=4_000 + number,
        data_host="127.0.0.1", data_port=port, slots=slots,
        details={
            "rss_bytes": 98_765_432, "cpu_seconds": 123.4, "cpu_share": 0.0123, "template_pid": 5_000 + number,
            "spark_pid": None, "spark_rss_bytes": 0, "folder": f"/var/lib/penstock/taskmanager-{number:04}",
            "cpu_cores": 16, "memory_bytes": 68_719_476_736,
        },
    )  # fmt: skip


async def masters(transport: NatsTransport, jobs: list[str]) -> None:
    """Answers for all jobs, and takes each job that is submitted."""
    answers = {job: encode(details(job)) for job in jobs}
    verb = verb_of(RequestJobDetails(job_id=jobs[0]))

    async def answer(subject: str, _: bytes) -> bytes | None:
        return answers.get(subject.split(".")[2])

    async def take(_: str, __: bytes) -> bytes:
        return encode(Ack())

    await transport.serve(f"{CLUSTER}.job.*.{verb}", answer)
    await transport.serve(Subjects(CLUSTER).jobmanager_run, take)


async def taskmanagers(transport: NatsTransport, jobs: list[str], count: int) -> None:
    """Registers task managers and sends their heartbeats, spread over each second."""

    async def watched(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(watched, "127.0.0.1", 0, backlog=4096)
    port = server.sockets[0].getsockname()[1]
    reports = [report(number, jobs[number % len(jobs)], port) for number in range(count)]
    encoded = {message.taskmanager_id: encode(message) for message in reports}

    async def answer(subject: str, _: bytes) -> bytes | None:
        return encoded.get(subject.split(".")[2])

    await transport.serve(f"{CLUSTER}.taskmanager.*.{verb_of(RequestTaskManagerDetails())}", answer)

    async def beat(message: RegisterTaskManager, after_s: float) -> None:
        subject = Subjects(CLUSTER).to_resourcemanager(message)
        await asyncio.sleep(after_s)
        while True:
            try:
                await request(transport, subject, message, RegisterReply, timeout_s=5, retry=False)
            except BrokerError:
                pass  # no resource manager leads yet
            await asyncio.sleep(HEARTBEAT_S)

    await asyncio.gather(*(beat(m, HEARTBEAT_S * n / count) for n, m in enumerate(reports)))


async def simulate(nats_url: str, jobs: list[str], managers: int) -> None:
    """Answers until the process is ended."""
    for_masters = await NatsTransport.connect(nats_url, name="masters", role="jobmanager")
    for_managers = await NatsTransport.connect(nats_url, name="managers", role="taskmanager")
    await masters(for_masters, jobs)
    await taskmanagers(for_managers, jobs, managers)
    await asyncio.Event().wait()


if __name__ == "__main__":
    die_with_parent_after_exec()
    asyncio.run(simulate(sys.argv[1], Path(sys.argv[2]).read_text().split(), int(sys.argv[3])))

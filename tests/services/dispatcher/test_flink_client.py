"""Flink's own Java client reads the answers."""

from __future__ import annotations

import asyncio
import re

import msgspec
import pytest

from penstock_services.common.http_serving import server_config
from penstock_services.dispatcher.rest import described
from penstock_services.dispatcher.views.common import vertex_id
from tests import flink_clients
from tests.services.dispatcher.conftest import serving
from tests.services.dispatcher.test_rest import running_job

JOB = "0123456789abcdef0123456789abcdef"
#: Served by Flink, and not in the table.
BEYOND = {"/jobs/*/yarn-cancel", "/jobmanager/log", "/jobmanager/stdout"}


@pytest.mark.skipif(not flink_clients.SPEC, reason="no table of Flink's endpoints")
def test_every_endpoint_of_flink_is_served():
    ours = {(e.method, re.sub("{[^}]+}", "*", e.path)): e for e in described()}
    asked = flink_clients.endpoints()
    assert len(asked) == 93
    assert sorted(asked.keys() - ours.keys()) == []
    beyond = {path for (_, path), e in ours.items() if not e.ours} - {path for _, path in asked}
    assert beyond == BEYOND
    different = {key for key, status in asked.items() if status and int(status) != ours[key].status}
    assert different == {("POST", "/jobs")}, "a job of ours is accepted when the answer comes"


@pytest.mark.skipif(not flink_clients.HAVE_CLIENTS, reason="no jars of Flink, or no Java")
async def test_flinks_client_reads_every_answer(front):
    await front.submit(job_id=JOB, name="pipeline")
    cluster = running_job()

    def answer(message):
        reply = cluster.ask(message)
        return msgspec.structs.replace(reply, job_id=JOB) if hasattr(reply, "job_id") else reply

    await front.master(JOB, answer)
    await front.task_manager()
    names = {
        "jobid": JOB, "applicationid": JOB, "vertexid": vertex_id("read"), "taskmanagerid": "tm1",
        "subtaskindex": "1", "attempt": "0", "checkpointid": "1", "filename": "taskmanager.log", "triggerid": "t1",
    }  # fmt: skip
    async with serving(server_config(front.rest.app())) as (host, port):
        command = flink_clients.validation(f"http://{host}:{port}", **names)
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
    found = flink_clients.problems(out.decode())
    assert not found, "\n".join(found)

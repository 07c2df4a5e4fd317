"""Flink's own Java client reads the answers.

``PENSTOCK_FLINK_CLASSPATH``: Flink's jars and the classes of a validator ``Validate BASE SPEC name=value…``, which
gets each path of the table and reads the answer with Flink's response class. ``PENSTOCK_FLINK_SPEC``: that table.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from pathlib import Path

import msgspec
import pytest

from penstock_services.dispatcher.rest import described
from penstock_services.dispatcher.service import config_of
from penstock_services.dispatcher.views.common import vertex_id
from tests.services.dispatcher.conftest import serving
from tests.services.dispatcher.test_rest import running_job

CLASSPATH, SPEC = os.environ.get("PENSTOCK_FLINK_CLASSPATH"), os.environ.get("PENSTOCK_FLINK_SPEC")
JOB = "0123456789abcdef0123456789abcdef"
#: Why there is nothing behind a path in this cluster: its answer is 404.
ABSENT = {
    ":triggerid": "no request was made",
    ":rescaleuuid": "no running job is rescaled",
    "profiler/:filename": "nothing was profiled",
    "logs/:filename": "each process has files of its own",
    "/jars/": "no jar runs here",
}
#: Served by Flink, and not in the table.
BEYOND = {"/jobs/*/yarn-cancel", "/jobmanager/log", "/jobmanager/stdout"}
#: Fields that Flink leaves out as well while there is nothing to say.
MAY_LACK = {".job-execution-result"}


def missing(verdict: list[str]) -> list[str]:
    """Fields that Flink's answer has and ours has not, unless ours says null or {} for what they are in."""
    fields = {word.partition(" ")[0]: word.partition("[")[2][:-1].split(", ") for word in verdict[1:]}
    nothing = fields.get("HAVE", [])
    return [
        field
        for field in fields.get("MISSING", [])
        if field.startswith((".", "["))
        and not any(field.startswith((f"{none}.", f"{none}[", f"{none}{{")) for none in nothing)
    ]


@pytest.mark.skipif(not SPEC, reason="no table of Flink's endpoints")
def test_every_endpoint_of_flink_is_served():
    rows = [line.split("\t")[:3] for line in Path(str(SPEC)).read_text().splitlines()]
    ours = {(e.method, re.sub("{[^}]+}", "*", e.path)): e for e in described()}
    asked = {(method, re.sub(":[^/]+", "*", path)): status for method, path, status in rows}
    assert len(asked) == 93
    assert sorted(asked.keys() - ours.keys()) == []
    beyond = {path for (_, path), e in ours.items() if not e.ours} - {path for _, path in asked}
    assert beyond == BEYOND
    different = {key for key, status in asked.items() if status and int(status) != ours[key].status}
    assert different == {("POST", "/jobs")}, "a job of ours is accepted when the answer comes"


@pytest.mark.skipif(not (CLASSPATH and SPEC and shutil.which("java")), reason="no jars of Flink, or no Java")
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
    async with serving(config_of(front.rest, None)) as (host, port):
        process = await asyncio.create_subprocess_exec(
            "java", "-cp", str(CLASSPATH), "Validate", f"http://{host}:{port}", str(SPEC),
            *(f"{name}={value}" for name, value in names.items()),
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, _ = await process.communicate()
    lines = [line.split("\t") for line in out.decode().splitlines()]
    assert len(lines) == 73
    problems = []
    for path, status, *rest in lines:
        if any(part in path for part in ABSENT) and status in ("400", "404"):
            continue
        reads = status == "200" and rest[0] in ("reads", "untyped")
        if not reads:
            problems.append(f"{path}  {status}  {'  '.join(rest)}")
        elif lacking := [field for field in missing(rest) if field not in MAY_LACK]:
            problems.append(f"{path} lacks {lacking}")
    assert not problems, "\n".join(problems)

"""A cluster's configuration gives the defaults of its jobs, whichever way a job comes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from penstock.api.execution import defaults_of
from penstock.bus import request
from penstock.bus.nats import NatsTransport
from penstock.bus.subjects import Subjects
from penstock.cli.run import run_file
from penstock.cli.sql import run_sql
from penstock.embedded import EmbeddedCluster
from penstock.messages.cluster import JobSpec, SubmitJob, SubmitReply
from penstock_services.gateway.sessions import Sessions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.cluster
DEFAULTS = {
    "execution.engine": "streaming",
    "parallelism.default": "2",
    "table.local-time-zone": "Asia/Tokyo",
    "user.greeting": "hello",
}
SQL = """
CREATE TABLE n (v BIGINT) WITH ('connector' = 'datagen', 'number-of-rows' = '3');
CREATE TABLE nowhere (v BIGINT) WITH ('connector' = 'blackhole');
INSERT INTO nowhere SELECT v FROM n WHERE v > 3;
"""
PROGRAM = """
from penstock.api import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1, 2, 3]).map(lambda x: x + 1).print()
env.execute("program")
"""


@pytest.fixture(scope="module")
def url_and_bus() -> Iterator[tuple[str, str]]:
    with EmbeddedCluster(slots=4, config=DEFAULTS) as made:
        yield made.rest_url, made.nats_url


async def over_the_bus(nats_url: str) -> str:
    transport = await NatsTransport.connect(nats_url, name="test", role="dispatcher")
    message = SubmitJob(command_id="from-the-bus", spec=JobSpec(sql=SQL, name="bus"))
    reply: Any = await request(
        transport, Subjects("penstock").jobs_submit, message, SubmitReply, timeout_s=60
    )
    await transport.close()
    return str(reply.job_id)


def test_every_way_to_submit_has_the_clusters_defaults(
    url_and_bus: tuple[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url, nats_url = url_and_bus
    monkeypatch.delenv("PENSTOCK_ENGINE", raising=False)
    with httpx.Client(base_url=url, timeout=120) as http:

        def of(job_id: str) -> dict[str, Any]:
            return dict(http.get(f"/jobs/{job_id}/config").json()["execution-config"])

        def submitted(**spec: Any) -> dict[str, Any]:
            reply = http.post("/jobs", json=spec)
            assert reply.status_code == 200, reply.text
            return of(reply.json()["jobid"])

        by_rest, program = submitted(sql=SQL), submitted(python=PROGRAM)
        own = submitted(sql="SET 'parallelism.default' = '1';" + SQL, config={"user.greeting": "bye"})
        on_the_bus = of(asyncio.run(over_the_bus(nats_url)))
        script, source = tmp_path / "job.sql", tmp_path / "job.py"
        script.write_text(SQL)
        source.write_text(PROGRAM)
        run_file(script, args=[], cluster=url, config={}, detached=True, format_="table")
        by_the_cli = of(capsys.readouterr().out.split()[-1])
        # A program that runs here would leave the cluster and its defaults to the tests after this one.
        command = [sys.executable, "-m", "penstock.cli.main", "run", "-d", "--cluster", url, str(source)]
        ran = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
        by_a_program = of(ran.stdout.split()[-1])
    found = {
        "REST": by_rest,
        "program": program,
        "bus": on_the_bus,
        "run": by_the_cli,
        "run FILE.py": by_a_program,
    }
    for configuration in found.values():
        assert configuration["user-config"].items() >= DEFAULTS.items()
    assert {way: configuration["job-parallelism"] for way, configuration in found.items()} == dict.fromkeys(
        found, 2
    )
    assert own["job-parallelism"] == 1  # SET goes before the default
    assert own["user-config"]["user.greeting"] == "bye"

    run_sql(file=None, text="SET", init=None, python=None, cluster=url, config={}, format_="json")
    shown = capsys.readouterr().out
    assert "Asia/Tokyo" in shown
    sessions = Sessions({"user.greeting": "gateway"}, idle_s=60, most=2, defaults=lambda: defaults_of(url))
    properties = sessions.open({"parallelism.default": "3"}).properties()
    assert properties.items() >= {**DEFAULTS, "user.greeting": "gateway", "parallelism.default": "3"}.items()
    sessions.close_all()

    monkeypatch.setenv("PENSTOCK_ENGINE", "spark")
    assert "execution.engine" not in defaults_of(url)

"""Spans reach a collector of OpenTelemetry: from a real cluster whose job fails once and takes checkpoints."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import SpecError
from penstock_services.common.tracing import NoTracer, open_tracer

pytest.importorskip("opentelemetry.sdk")
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

FAILS_ONCE = """
import os
from penstock.api import *


def counted(value):
    if value == 400 and not os.path.exists("MARK"):
        open("MARK", "w").close()
        raise ValueError("once")
    return value


env = StreamExecutionEnvironment.get_execution_environment()
env.execute_sql("CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '500', "
                "'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '900')")
numbers = env.from_table("numbers").map(lambda row: counted(row.n), Types.LONG())
numbers.sink_to(Sink.connector("blackhole"))
env.execute("counts")
"""


class Collector:
    """Keeps what it is sent: (service, span)."""

    def __init__(self) -> None:
        collector = self
        self.spans: list[tuple[str, Any]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    data = gzip.decompress(data)
                collector.take(ExportTraceServiceRequest.FromString(data))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/traces"
        self._thread = threading.Thread(target=self.server.serve_forever)
        self._thread.start()

    def take(self, request: Any) -> None:
        for resource in request.resource_spans:
            named = {a.key: a.value.string_value for a in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [(named["service.name"], span) for span in scope.spans]

    def close(self) -> None:
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.close()


def test_nothing_is_sent_unless_it_is_asked_for() -> None:
    assert isinstance(open_tracer({}, "dispatcher", "d-1"), NoTracer)


def test_an_unknown_reporter_is_refused() -> None:
    with pytest.raises(SpecError, match=r"traces\.reporters"):
        open_tracer({"traces.reporters": "zipkin"}, "dispatcher", "d-1")


@pytest.mark.cluster
def test_the_spans_of_a_job_are_one_trace(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.api.client import ClusterClient
    from penstock.embedded import EmbeddedCluster

    monkeypatch.setenv("PENSTOCK_LOG_FORMAT", "json")
    config = {"traces.reporters": "otel", "traces.reporter.otel.exporter.endpoint": collector.url}
    job = {
        "execution.checkpointing.interval": "200 ms",
        "execution.runtime-mode": "STREAMING",
        "execution.engine": "streaming",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "10 ms",
    }
    with (
        EmbeddedCluster(taskmanagers=1, slots=1, config=config) as cluster,
        ClusterClient(cluster.rest_url) as client,
    ):
        program = FAILS_ONCE.replace("MARK", str(tmp_path / "mark"))
        job_id = client.submit({"python": program, "config": job})
        done = client.wait(job_id)
        assert done["state"] == "FINISHED", done
        lines = [
            line for path in cluster.log_dir.glob("jobmanager*") for line in path.read_text().splitlines()
        ]
    # The cluster has ended, and its services have sent the last spans.
    of_job = {(who, s.name): s for who, s in collector.spans if s.trace_id.hex() == job_id}
    named = {name for _, name in of_job}
    assert named == {"Planning", "Submission", "JobInitialization", "Recovery", "Job"}
    root = of_job["penstock-jobmanager", "Job"]
    assert root.parent_span_id == b""
    assert {s.parent_span_id for key, s in of_job.items() if key[1] != "Job"} == {root.span_id}
    recovery = of_job["penstock-jobmanager", "Recovery"]
    assert "once" in recovery.status.message
    assert recovery.start_time_unix_nano < recovery.end_time_unix_nano
    checkpoints = [s for _, s in collector.spans if s.name == "Checkpoint"]
    assert checkpoints
    for span in checkpoints:
        assert span.trace_id.hex() != job_id
        assert [link.trace_id.hex() for link in span.links] == [job_id]
    about = [json.loads(line) for line in lines if job_id in line and line.startswith("{")]
    assert about
    assert {line["trace_id"] for line in about if line.get("job_id") == job_id} == {job_id}

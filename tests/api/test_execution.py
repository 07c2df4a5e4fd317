"""Submitting, waiting and reading results over REST, against a dispatcher that runs jobs here."""

from __future__ import annotations

import base64
import json
from typing import Any

import httpx
import msgspec
import pytest

from penstock.api import Sink, StreamExecutionEnvironment, Types
from penstock.api import execution as module
from penstock.api.client import ClusterClient
from penstock.connectors.collect import encode_chunk
from penstock.errors import ExternalError, FunctionError
from penstock.jobgraph import JobGraph
from penstock.testing.harness import run_graph
from penstock.types import Batch, Schema


class Dispatcher:
    """Just enough of REST: a submitted graph is run at once."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self.error: dict[str, Any] | None = None
        self.chunks: dict[str, list[tuple[str, bytes]]] = {}
        self.cancelled: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if request.method == "POST":
            spec = json.loads(request.content)
            self.run(spec["job_id"], msgspec.convert(spec["job_graph"], JobGraph))
            return httpx.Response(200, json={"jobid": spec["job_id"], "name": spec["name"]})
        job_id = path.split("/")[2]
        if request.method == "PATCH":
            self.cancelled.append(job_id)
            return httpx.Response(202)
        if path.endswith("/accumulators"):
            return httpx.Response(200, json={"job-accumulators": [], "user-task-accumulators": []})
        if path.endswith("/exceptions"):
            return httpx.Response(200, json={"root-error": self.error})
        if path.endswith("/results"):
            after = request.url.params["after"]
            new = [c for c in self.chunks.get(job_id, []) if c[0] > after]
            data = [{"key": k, "data": base64.b64encode(d).decode()} for k, d in new]
            return httpx.Response(200, json={"chunks": data, "status": self.states[job_id]})
        return httpx.Response(200, json={"jid": job_id, "state": self.states[job_id], "duration": 5})

    def run(self, job_id: str, graph: JobGraph) -> None:
        try:
            rows = run_graph(graph).rows
            self.states[job_id] = "FINISHED"
        except FunctionError as err:
            self.states[job_id], self.error = "FAILED", err.to_dict()
            return
        if rows:
            batch = Batch.of(Schema.of(("value", Types.LONG())), rows)
            # Two chunks, then a restart that repeats the second.
            one = encode_chunk(batch.slice(0, 2), offset=0, end=False)
            two = encode_chunk(batch.slice(2), offset=2, end=False)
            again = encode_chunk(batch.slice(1), offset=1, end=True)
            names = [f"jobs/{job_id}/results/{n}" for n in ("000001-000000000000", "000001-000000000001", "000002-000000000000")]  # fmt: skip
            self.chunks[job_id] = list(zip(names, (one, two, again), strict=True))


@pytest.fixture
def dispatcher(monkeypatch: pytest.MonkeyPatch) -> Dispatcher:
    made = Dispatcher()
    transport = httpx.MockTransport(made)
    monkeypatch.setattr(module, "ClusterClient", lambda url: ClusterClient(url, transport=transport))
    monkeypatch.setenv(module.CLUSTER_VARIABLE, "http://cluster:8081")
    return made


def test_execute_waits_for_the_end(dispatcher: Dispatcher) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1, 2]).sink_to(Sink.connector("blackhole"))
    result = env.execute("job")
    assert dispatcher.states == {result.get_job_id(): "FINISHED"}
    assert result.get_net_runtime() == 5


def test_execute_and_collect_gives_every_record_once(dispatcher: Dispatcher) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([1, 2, 3, 4]).map(lambda x: 2 * x, Types.LONG())
    assert list(stream.execute_and_collect()) == [2, 4, 6, 8]
    assert list(stream.execute_and_collect(limit=2)) == [2, 4]


def test_a_failed_job_raises_the_users_error(dispatcher: Dispatcher) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([0]).map(lambda x: 1 // x, Types.LONG()).print()
    with pytest.raises(FunctionError, match="ZeroDivisionError") as err:
        env.execute()
    assert str(err.value).startswith("Traceback")


def test_asynchronous_execution(dispatcher: Dispatcher) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1]).sink_to(Sink.connector("blackhole"))
    client = env.execute_async()
    assert client is not None
    assert client.get_job_status() == "FINISHED"
    client.cancel()
    assert dispatcher.cancelled == [client.get_job_id()]
    client.close()


def test_a_cancelled_job_has_no_result(dispatcher: Dispatcher) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1, 2, 3, 4]).sink_to(Sink.connector("blackhole"))
    client = env.execute_async()
    assert client is not None
    dispatcher.states[client.get_job_id()] = "CANCELED"
    with pytest.raises(ExternalError, match=f"job {client.get_job_id()} .* was cancelled"):
        client.get_job_execution_result()


def test_rows_of_a_cancelled_job_are_not_taken_for_all(
    dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    run = dispatcher.run

    def run_and_cancel(job_id: str, graph: JobGraph) -> None:
        run(job_id, graph)
        dispatcher.states[job_id] = "CANCELED"

    monkeypatch.setattr(dispatcher, "run", run_and_cancel)
    rows = env.from_collection([1, 2, 3], Types.LONG()).execute_and_collect()
    with pytest.raises(ExternalError, match="was cancelled"):
        list(rows)


def test_a_cluster_of_its_own_takes_the_clusters_options(monkeypatch) -> None:
    """… and the job that is submitted to it has only the job's."""
    seen: dict[str, Any] = {}

    class Cluster:
        rest_url = "http://own"

        def __init__(self, *, slots: int, config: dict[str, str]) -> None:
            seen["cluster"] = config

        def __enter__(self) -> Cluster:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    def submit(self: ClusterClient, spec: dict[str, Any]) -> str:
        seen["job"] = spec["job_graph"]["config"]
        return "j"

    monkeypatch.delenv(module.CLUSTER_VARIABLE, raising=False)
    monkeypatch.setattr("penstock.embedded.EmbeddedCluster", Cluster)
    monkeypatch.setattr(ClusterClient, "submit", submit)
    given = {"heartbeat.interval": "400 ms", "restart-strategy.type": "none"}
    env = StreamExecutionEnvironment(given)
    env.from_collection([1], Types.LONG()).print()
    env.execute_async()
    assert seen["cluster"]["heartbeat.interval"] == "400 ms"
    assert "restart-strategy.type" not in seen["cluster"], "it would be a default of other jobs"
    assert "heartbeat.interval" not in seen["job"]
    assert seen["job"]["restart-strategy.type"] == "none"

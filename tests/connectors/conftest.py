"""Doubles and drivers shared by the connector tests."""

import asyncio
import importlib.util
from pathlib import Path

import pytest

from penstock.connectors.base import SourceContext, TableInfo
from penstock.connectors.registry import get_connector, validate_table
from penstock.metrics import MetricGroup
from penstock.store.memory import MemoryStore
from penstock.types import Batch

_spec = importlib.util.spec_from_file_location("nats_server", Path(__file__).with_name("nats_server.py"))
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
NatsServer = _module.NatsServer


class Harness:
    """Builds contexts and drives sources and sinks as the task would."""

    def __init__(self):
        self.store = MemoryStore()
        self.bad = []
        self.on_error = "fail"

    def ctx(self, schema, options, **kw):
        async def run(call):
            return await asyncio.get_running_loop().run_in_executor(None, call)

        def bad_record(error, raw, where):
            if self.on_error == "fail":
                raise error
            self.bad.append((error, raw, where))

        defaults = {
            "job_id": "job-1",
            "uid": "op-1",
            "subtask_index": 0,
            "parallelism": 1,
            "attempt": 1,
            "options": options,
            "schema": schema,
            "projection": tuple(range(len(schema))),
            "metadata": (),
            "pushed": {},
            "config": {},
            "metrics": MetricGroup(),
            "on_error": self.on_error,
            "run": run,
            "now_ms": lambda: 0,
            "bad_record": bad_record,
            "store": self.store,
        }
        return SourceContext(**{**defaults, **kw})

    def connector(self, schema, options, role="source"):
        return validate_table(schema, options, role=role)

    async def splits(self, schema, options, known=(), **kw):
        enumerator = get_connector(options["connector"]).enumerator(TableInfo(schema, options))
        found = await enumerator.discover(self.ctx(schema, options, **kw), set(known))
        await enumerator.close()
        return list(found)

    async def reader(self, schema, options, splits=None, **kw):
        if splits is None:
            splits = await self.splits(schema, options, **kw)
        reader = get_connector(options["connector"]).reader(TableInfo(schema, options))
        await reader.open(self.ctx(schema, options, **kw))
        reader.add_splits(splits)
        return reader

    async def read(self, reader, *, rows=None, timeout_s=120):
        """Batches until every split is finished, or until ``rows`` rows came."""
        out, count = [], 0
        async with asyncio.timeout(timeout_s):
            while rows is None or count < rows:
                fetched = reader.poll()
                if fetched is not None:
                    out.append(fetched)
                    count += len(fetched.batch)
                    continue
                states = {s.id for s in reader.snapshot()}
                if reader.finished_splits() >= states:
                    break
                await reader.wait()
        return out

    async def read_all(self, schema, options, **kw):
        reader = await self.reader(schema, options, **kw)
        try:
            fetched = await self.read(reader)
        finally:
            await reader.close()
        return [row for f in fetched for row in f.batch.to_pylist()]

    async def writer(self, schema, options, restored=(), **kw):
        writer = get_connector(options["connector"]).writer(TableInfo(schema, options))
        await writer.open(self.ctx(schema, options, **kw), list(restored))
        return writer


@pytest.fixture
def harness():
    return Harness()


@pytest.fixture(scope="session")
def shared_nats(tmp_path_factory):
    """One nats-server for the tests that leave it as they found it."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def own_nats(tmp_path):
    """A nats-server for one test, which may kill it."""
    server = NatsServer(tmp_path / "nats")
    server.start()
    yield server
    server.stop()


def rows_of(fetched):
    return [row for f in fetched for row in f.batch.to_pylist()]


def batch_of(schema, rows, kinds=None):
    return Batch.of(schema, rows, kinds)

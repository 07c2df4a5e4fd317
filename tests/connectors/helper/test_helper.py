"""Readers, writers and lookups in helper processes: order, back-pressure, errors, ends, and kills."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
from pathlib import Path

import pytest

from penstock.connectors.base import TableInfo
from penstock.connectors.helper.messages import WINDOW_BYTES, Probe
from penstock.connectors.registry import get_connector, hosted
from penstock.errors import BrokerError, ConnectorError, FunctionError, HelperLostError, UnsupportedError
from penstock.processes import is_alive
from penstock.testing import GraphBuilder, JobHarness
from penstock.testing.conformance.driving import BadRecords, Driver, read_to_end
from penstock.types import Batch, Schema
from penstock.types import logical as t

SCHEMA = Schema.of(("split", t.VarCharType()), ("n", t.BigIntType()), ("s", t.VarCharType()))
NAME = "python:helped:HelpedConnector"


@pytest.fixture(autouse=True)
def helped(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    yield
    sys.modules.pop("helped", None)


def driver(**options):
    connector = get_connector(NAME)
    return Driver(connector.inner, TableInfo(SCHEMA, {"connector": NAME, **options}))


async def opened(under_test, splits=2, **context):
    reader = await under_test.reader([], **context)
    found = await under_test.connector.enumerator(under_test.table).discover(under_test.context(), set())
    assert len(found) == splits
    reader.add_splits(found)
    return reader


def graph(folder, **options):
    b = GraphBuilder()
    source = b.source(NAME, SCHEMA, options, parallelism=2)
    b.sink(NAME, source, SCHEMA, {"path": str(folder), "blocks-ms": options.get("blocks-ms", "0")})
    return b.build()


def written(folder):
    rows = [tuple(row) for path in folder.glob("[0-9]*") for row in json.loads(path.read_text())]
    return sorted((split, n) for split, n, _ in rows)


def everything(rows, splits=2):
    return sorted((f"split-{i}", n) for i in range(splits) for n in range(rows))


# -- readers -----------------------------------------------------------------------------------------


async def test_a_reader_is_in_another_process_and_counts_there():
    under_test = driver(rows="30")
    reader = await opened(under_test)
    try:
        assert reader.pid not in (0, os.getpid())
        taken = await read_to_end(reader)
        assert sum(len(x.rows) for x in taken) == 60
        assert reader.ctx.metrics.counters["numPolls"] == 6
    finally:
        await reader.close()
        under_test.helper.close()
    assert not is_alive(reader.pid)


async def test_a_slot_that_takes_nothing_holds_its_helper_back():
    """It reads ahead by the window and a batch, and goes on when something is taken."""
    under_test = driver(rows="1000", step="10", wide="100000", splits="1")
    reader = await opened(under_test, 1)
    try:
        for _ in range(3):
            await reader.wait()
            await asyncio.sleep(0.3)
        waiting = [payload.nbytes for _, payload in reader._waiting if payload.nbytes]
        assert WINDOW_BYTES <= sum(waiting) <= WINDOW_BYTES + max(waiting)
        rows = sum(len(x.rows) for x in await read_to_end(reader))
        assert rows == 1000
    finally:
        await reader.close()
        under_test.helper.close()


async def test_an_error_keeps_its_traceback():
    under_test = driver(rows="30", **{"fails-at": "20"})
    reader = await opened(under_test)
    try:
        with pytest.raises(FunctionError, match="ValueError: no number 20") as raised:
            await read_to_end(reader)
        assert "helped.py" in raised.value.user_traceback
        assert "in poll" in raised.value.user_traceback
        # The rows before it were taken, with their positions.
        assert {split.position for split in reader.snapshot()} == {20}
    finally:
        await reader.close()
        under_test.helper.close()


async def test_an_error_while_opening_is_the_same_error():
    under_test = driver(opens="no")
    with pytest.raises(BrokerError, match="nobody answers") as raised:
        await under_test.reader([])
    assert raised.value.remedy == "start it"
    assert "In the helper process" in raised.value.__notes__[0]
    under_test.helper.close()


async def test_a_reader_is_told_the_positions_that_the_slot_had_taken():
    """It has read ahead: to the end, when the checkpoint is about the first batch."""
    under_test = driver(rows="30", splits="1")
    reader = await opened(under_test, 1)
    try:
        while reader.poll() is None:
            await reader.wait()
        positions = reader.snapshot()
        assert [split.position for split in positions] == [10]
        reader.on_checkpoint_complete(1, positions)
        await read_to_end(reader)
        while "completedTo" not in reader.ctx.metrics.counters:
            reader._process.send(Probe())
            await reader.wait()
            reader.poll()
        assert reader.ctx.metrics.counters["completedTo"] == 10
    finally:
        await reader.close()
        under_test.helper.close()


async def test_a_reader_whose_splits_wait_for_others_is_refused():
    under_test = driver(sleeps="yes")
    with pytest.raises(UnsupportedError, match="'dormant' in a helper process"):
        await under_test.reader([])
    under_test.helper.close()


async def test_a_killed_helper_fails_the_reader_and_says_how():
    under_test = driver(rows="100000", **{"blocks-ms": "1"})
    reader = await opened(under_test)
    os.kill(reader.pid, signal.SIGKILL)
    with pytest.raises(HelperLostError, match="ended") as raised:
        await read_to_end(reader)
    assert raised.value.got == f"signal {signal.SIGKILL}"
    assert raised.value.retryable
    await reader.close()
    under_test.helper.close()


async def test_a_close_that_is_cancelled_leaves_no_process():
    """A job that fails in the moment in which its event loop ends: each left a descriptor of its process."""
    under_test = driver(rows="100000", **{"blocks-ms": "1"})
    reader = await opened(under_test)
    pid, closing = reader.pid, asyncio.create_task(reader.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert pid not in helpers_of_this_process()
    assert reader._process._ended.is_set()
    under_test.helper.close()


async def test_caught_up_is_only_the_helpers_fresh_word(monkeypatch):
    from penstock.connectors.helper import source

    under_test = driver(rows="10", splits="1")
    reader = await opened(under_test, 1)
    try:
        assert not reader.caught_up("split-0")
        while reader.poll() is None:
            await reader.wait()
        reader._finished.clear()  # as of a source that does not end

        async def said():
            for _ in range(1000):
                if reader.caught_up("split-0"):
                    return True
                reader.poll()
                await asyncio.sleep(0.01)
            return False

        assert await said()
        monkeypatch.setattr(source, "_FRESH_S", 0.0)
        assert not reader.caught_up("split-0")
    finally:
        await reader.close()
        under_test.helper.close()


async def test_bad_options_of_a_policy_are_told_in_the_slot():
    """The policy is the slot's: ``skip`` keeps what the helper could not read."""
    from penstock.connectors.helper.context import report
    from penstock.connectors.helper.messages import Bad

    kept = BadRecords("skip")
    under_test = driver()
    report(Bad(error={"message": "no pair"}, record=b"raw", where="line 3"), under_test.context(bad=kept))
    [(error, raw, where)] = kept.kept
    assert (str(error.message), raw, where) == ("no pair", b"raw", "line 3")
    under_test.helper.close()


# -- lookups and the register --------------------------------------------------------------------------


async def test_a_lookup_answers_and_one_that_fails_may_be_asked_again():
    under_test = driver()
    source = under_test.connector.lookup(under_test.table)
    await source.open(under_test.context(projection=[0, 1]))
    keys = Schema.of(("split", t.VarCharType()))
    try:
        found = await source.lookup(Batch.of(keys, [("abc",), ("absent",)]))
        assert found.to_pylist() == [("abc", 3)]
        with pytest.raises(BrokerError, match="asked too often"):
            await source.lookup(Batch.of(keys, [("fails",)]))
        assert (await source.lookup(Batch.of(keys, [("ab",)]))).to_pylist() == [("ab", 2)]
        assert (await source.load()).to_pylist() == [("all", 3)]
    finally:
        await source.close()
        under_test.helper.close()


def test_a_class_that_no_other_process_finds_is_refused():
    class Local(type(get_connector(NAME).inner)):
        name = "local"

    with pytest.raises(ConnectorError):
        hosted(Local())


def test_what_the_connector_declares_is_declared_outside():
    connector = get_connector(NAME)
    assert (connector.name, connector.runs, connector.lookup_caches) == ("helped", "helper", ("NONE", "FULL"))
    assert connector.is_bounded(TableInfo(SCHEMA, {}))


# -- whole jobs ----------------------------------------------------------------------------------------


async def test_a_job_ends_with_all_rows(tmp_path):
    async with JobHarness(graph(tmp_path, rows="300")) as job:
        await job.wait()
    assert written(tmp_path) == everything(300)


def helpers_of_this_process():
    # Not from the lists of children of this process's threads: a thread may end while they are read.
    found, me = [], os.getpid()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == me and b"helper.child" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return sorted(found)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, *(pytest.param(i, marks=pytest.mark.soak) for i in (2, 3))])
async def test_helpers_that_are_killed_at_any_moment_lose_and_repeat_nothing(tmp_path, seed):
    """Readers and writers, while rows flow, while epochs are cut, and while they are made durable."""
    rng = random.Random(seed)
    enough = tmp_path / "enough"
    job_graph = graph(tmp_path, rows="400", **{"blocks-ms": "2", "ends-with": str(enough)})
    checkpoint, attempt, kills = None, 1, 0
    while True:
        async with JobHarness(
            job_graph, restore=checkpoint, attempt=attempt, checkpoint_interval_s=0.02
        ) as job:
            try:
                if kills < 4:
                    await job.until(lambda job=job: bool(job.checkpoints))
                    await asyncio.sleep(rng.random() * 0.3)
                    os.kill(rng.choice(helpers_of_this_process()), signal.SIGKILL)
                    kills += 1
                else:
                    enough.touch()
                await job.wait()
                break
            except HelperLostError:
                checkpoint = job.checkpoints[-1] if job.checkpoints else checkpoint
        attempt += 1
    assert written(tmp_path) == everything(400)
    assert helpers_of_this_process() == []

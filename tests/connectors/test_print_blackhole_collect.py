import asyncio
import datetime as dt
from decimal import Decimal

import numpy as np
import pytest

from penstock.connectors.blackhole import batch_checksum
from penstock.connectors.collect import (
    MAX_AHEAD_CHUNKS,
    MaterializedResult,
    ResultReader,
    acks_prefix,
    chunk_name,
    materialize,
    results_prefix,
)  # fmt: skip
from penstock.errors import ConnectorError
from penstock.types import Batch, Field, Schema
from penstock.types import logical as t

SCHEMA = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()))


async def test_print_writes_a_line_a_row(harness, capsys):
    schema = Schema.of(
        ("i", t.IntType()), ("s", t.VarCharType()), ("d", t.DecimalType(5, 2)), ("t", t.TimestampType(3)),
        ("r", t.RowType((Field("x", t.BooleanType()),))),
    )  # fmt: skip
    at = dt.datetime(2013, 1, 1, 2, 3, 4, 500000)
    batch = Batch.of(schema, [(1, "a", Decimal("1.50"), at, {"x": True}), (None,) * 5], [0, 3])
    writer = await harness.writer(schema, {"connector": "print"})
    writer.write(batch)
    assert capsys.readouterr().out == (
        "+I[1, a, 1.50, 2013-01-01T02:03:04.500, +I[true]]\n-D[null, null, null, null, null]\n"
    )
    options = {"connector": "print", "print-identifier": "p", "standard-error": "true"}
    writer = await harness.writer(SCHEMA, options, parallelism=2, subtask_index=1)
    writer.write(Batch.of(SCHEMA, [(1, "a")], [2]))
    assert capsys.readouterr().err == "p:2> +U[1, a]\n"


async def test_print_spells_numbers_as_java_does(harness, capsys):
    schema = Schema.of(("f", t.FloatType()), ("d", t.DoubleType()), ("a", t.ArrayType(t.FloatType())))
    writer = await harness.writer(schema, {"connector": "print"})
    writer.write(Batch.of(schema, [(320.1, 1e10, [1e-5]), (float("nan"), -0.0, [])]))
    assert capsys.readouterr().out == "+I[320.1, 1.0E10, [1.0E-5]]\n+I[NaN, -0.0, []]\n"


async def test_print_spells_all_else_as_flink_does(harness, capsys):
    """The line is Flink 2.3's own, of the same row under 'table.local-time-zone' = 'Asia/Kolkata'."""
    row = t.RowType((Field("a", t.IntType()), Field("b", t.TimestampLtzType(3))))
    types = (
        t.TimestampLtzType(3), t.TimestampLtzType(6), t.TimestampType(3), t.TimestampType(0), t.TimeType(0), t.DateType(),
        row, t.ArrayType(t.IntType()), t.MapType(t.VarCharType(), t.IntType()), t.FloatType(), t.VarBinaryType(),
        t.DecimalType(5, 2),
    )  # fmt: skip
    schema = Schema.of(*((f"c{i}", type_) for i, type_ in enumerate(types)))
    kolkata = dt.timezone(dt.timedelta(hours=5, minutes=30))
    at = dt.datetime(2024, 1, 2, 3, 4, tzinfo=kolkata)
    values = (
        at.replace(second=5, microsecond=120000), at.replace(second=5, microsecond=123456),
        dt.datetime(2024, 1, 2, 3, 4, 5, 100000), dt.datetime(2024, 1, 2, 3, 4), dt.time(3, 4), dt.date(2024, 1, 2),
        {"a": 1, "b": at}, [1, 2], [("a", 1)], 1.5, b"ab", Decimal("1.50"),
    )  # fmt: skip
    writer = await harness.writer(schema, {"connector": "print"})
    writer.write(Batch.of(schema, [values]))
    assert capsys.readouterr().out == (
        "+I[2024-01-01T21:34:05.120Z, 2024-01-01T21:34:05.123456Z, 2024-01-02T03:04:05.100, 2024-01-02T03:04, 03:04, "
        "2024-01-02, +I[1, 2024-01-01T21:34:00Z], [1, 2], {a=1}, 1.5, [97, 98], 1.50]\n"
    )


WIDE = Schema.of(
    ("a", t.BigIntType()), ("b", t.VarCharType()), ("c", t.DoubleType()), ("d", t.DecimalType(30, 2)),
    ("e", t.ArrayType(t.VarCharType())), ("f", t.RowType((Field("x", t.IntType()), Field("y", t.VarCharType())))),
    ("g", t.MapType(t.VarCharType(), t.IntType())), ("h", t.BooleanType()), ("i", t.VarBinaryType()),
)  # fmt: skip


def wide_rows(n):
    rng = np.random.default_rng(1)
    out = []
    for i in range(n):
        row = (
            i, f"s{i * 7}", i / 3, Decimal(i), [f"e{j}" for j in range(i % 3)], {"x": i, "y": "q" * (i % 5)},
            [("k", i)] * (i % 2), i % 2 == 0, bytes([i % 256]),
        )  # fmt: skip
        out.append(tuple(None if rng.random() < 0.2 else v for v in row))
    return out


def test_the_checksum_ignores_order_and_cuts_but_no_value():
    rows = wide_rows(200)
    whole = batch_checksum(Batch.of(WIDE, rows))
    cut = sum(batch_checksum(Batch.of(WIDE, rows[i : i + 17])) for i in range(0, 200, 17))
    sliced = Batch.of(WIDE, rows)
    slices = sum(batch_checksum(sliced.slice(i, 23)) for i in range(0, 200, 23))
    turned = batch_checksum(Batch.of(WIDE, rows[::-1]))
    assert whole % 2**64 == cut % 2**64 == slices % 2**64 == turned % 2**64
    both = Batch.of(WIDE, rows + rows[:50], [0] * 200 + [3] * 50)
    assert batch_checksum(both) % 2**64 == batch_checksum(Batch.of(WIDE, rows[50:])) % 2**64
    full = next(r for r in rows if None not in r and r[4] and r[6])
    base = batch_checksum(Batch.of(WIDE, [full]))
    for i in range(len(full)):
        changed = Batch.of(WIDE, [(*full[:i], None, *full[i + 1 :])])
        assert batch_checksum(changed) != base


async def test_blackhole_counts_once_over_a_restore(harness):
    options = {"connector": "blackhole"}
    writer = await harness.writer(SCHEMA, options)
    writer.write(Batch.of(SCHEMA, [(1, "a"), (2, "b")]))
    state = await writer.begin_checkpoint(1)
    writer.write(Batch.of(SCHEMA, [(3, "lost")]))
    writer = await harness.writer(SCHEMA, options, state)
    writer.write(Batch.of(SCHEMA, [(3, "c")]))
    gauges = writer.ctx.metrics.gauges
    assert gauges["sinkRows"]() == 3
    assert (
        gauges["sinkChecksum"]() == batch_checksum(Batch.of(SCHEMA, [(3, "c"), (1, "a"), (2, "b")])) % 2**64
    )


async def collect(harness, *, restored=(), attempt=1, **options):
    return await harness.writer(SCHEMA, {"connector": "collect", **options}, restored, attempt=attempt)


class StoreReader(ResultReader):
    def __init__(self, store):
        super().__init__()
        self._store = store

    async def poll(self):
        after = self.last_key or ""
        keys = [k for k, _ in await self._store.list(results_prefix("job-1")) if k > after]
        return self.take([(k, await self._store.get(k)) for k in sorted(keys)])


def reader_of(harness):
    return StoreReader(harness.store)


async def test_collected_rows_are_read_to_the_end(harness):
    writer = await collect(harness)
    rows = [(i, f"n{i}") for i in range(40_000)]
    for start in range(0, len(rows), 9_000):
        await asyncio.wait_for(writer.wait_ready(), 120)
        writer.write(Batch.of(SCHEMA, rows[start : start + 9_000]))
    await writer.finish()
    await writer.close()
    reader, result = reader_of(harness), MaterializedResult()
    for chunk in await reader.poll():
        assert chunk.rows.num_rows <= 16_384
        result.add(chunk)
    assert reader.ended
    assert result.rows() == rows


async def test_the_first_rows_go_out_as_soon_as_input_is_empty(harness):
    writer = await collect(harness)
    writer.write(Batch.of(SCHEMA, [(1, "a")]))
    await writer.flush()
    reader = reader_of(harness)
    async with asyncio.timeout(120):
        while not (chunks := await reader.poll()):  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert chunks[0].rows.to_pylist() == [{"id": 1, "name": "a"}]
    await writer.close()


async def test_a_barrier_counts_the_chunk_that_waits_for_its_reader(harness):
    """A chunk cut, but not yet put, lies before the barrier like any other row."""
    writer = await collect(harness, bounded="false")
    for i in range(MAX_AHEAD_CHUNKS):
        writer.write(Batch.of(SCHEMA, [(i, "a")]))
        await writer._write_out(None)
    writer.write(Batch.of(SCHEMA, [(0, "b")]))
    await writer.flush()
    async with asyncio.timeout(120):
        while writer._buffer:  # noqa: ASYNC110
            await asyncio.sleep(0)
    writer.write(Batch.of(SCHEMA, [(0, "c")]))
    cut = asyncio.ensure_future(writer.begin_checkpoint(1))
    await harness.store.put(acks_prefix("job-1") + chunk_name(1, MAX_AHEAD_CHUNKS - 1), b"")
    assert await cut == [b"%d" % (MAX_AHEAD_CHUNKS + 2)]
    await writer.close()


async def test_a_chunk_that_could_not_be_put_fails_the_checkpoint(harness):
    writer = await collect(harness)

    async def fails(*_):
        raise ConnectorError("no store")

    writer._store = type("Broken", (), {"put": fails})()
    writer.write(Batch.of(SCHEMA, [(1, "a")]))
    await writer.flush()
    async with asyncio.timeout(120):
        while writer._failure is None:  # noqa: ASYNC110
            await asyncio.sleep(0)
    with pytest.raises(ConnectorError):
        await writer.begin_checkpoint(1)
    await writer.close()


async def test_a_restart_replaces_what_was_not_in_the_checkpoint(harness):
    writer = await collect(harness)
    writer.write(Batch.of(SCHEMA, [(1, "a"), (2, "b")], [0, 0]))
    state = await writer.begin_checkpoint(7)
    writer.write(Batch.of(SCHEMA, [(9, "lost")]))
    await writer.begin_checkpoint(8)
    await writer.close()
    reader, result = reader_of(harness), MaterializedResult()
    for chunk in await reader.poll():
        result.add(chunk)
    assert len(result.rows()) == 3
    writer = await collect(harness, restored=state, attempt=2)
    writer.write(Batch.of(SCHEMA, [(1, "a"), (3, "c")], [3, 0]))
    await writer.finish()
    await writer.close()
    for chunk in await reader.poll():
        result.add(chunk)
    assert result.rows() == [(2, "b"), (3, "c")]
    assert reader.ended


async def test_an_unbounded_result_waits_for_its_reader(harness):
    writer = await collect(harness, bounded="false")
    for i in range(MAX_AHEAD_CHUNKS + 5):
        writer.write(Batch.of(SCHEMA, [(i, "x")]))
        if i < MAX_AHEAD_CHUNKS:
            await writer.begin_checkpoint(i)
    blocked = asyncio.ensure_future(writer.begin_checkpoint(1000))
    await asyncio.sleep(0)
    assert len(await harness.store.list(results_prefix("job-1"))) == MAX_AHEAD_CHUNKS
    assert not blocked.done()
    await harness.store.put(acks_prefix("job-1") + chunk_name(1, 10), b"")
    await asyncio.wait_for(blocked, 120)
    await writer.close()


async def test_a_gap_in_the_results_is_noticed(harness):
    writer = await collect(harness)
    for i in range(2):
        writer.write(Batch.of(SCHEMA, [(i, "x")]))
        await writer.begin_checkpoint(i)
    await writer.close()
    await harness.store.delete([results_prefix("job-1") + chunk_name(1, 0)])
    with pytest.raises(ConnectorError, match="rows are missing"):
        await reader_of(harness).poll()


@pytest.mark.parametrize(
    ("log", "keys", "want"),
    [
        ([(0, (1, "a")), (0, (1, "a"))], None, [(1, "a"), (1, "a")]),
        ([(0, (1, "a")), (1, (1, "a")), (2, (1, "b"))], None, [(1, "b")]),
        ([(0, (1, "a")), (0, (2, "b")), (3, (1, "a"))], None, [(2, "b")]),
        ([(0, (1, "a")), (2, (1, "b")), (0, (2, "c")), (3, (2, None))], (0,), [(1, "b")]),
        ([(0, ([1], {"a": 1})), (3, ([1], {"a": 1}))], None, []),
    ],
)
def test_materialising(log, keys, want):
    assert materialize(log, keys) == want

"""Dead letters hold their records whole, are bounded, and count once their checkpoint is complete."""

import base64
import json
from types import SimpleNamespace

import pytest

from penstock.errors import RecordError, SqlError
from penstock.jobgraph.letters import LETTER_SCHEMA
from penstock.operators import letters as module
from penstock.operators.bad_records import BadRecords
from penstock.operators.letters import Letters
from penstock.plan.letters import letter_sink
from penstock.plan.tables import TableRef
from penstock.snapshots.contract import OperatorSnapshot, RestoredState
from penstock.store.memory import MemoryStore
from penstock.types import Field, Schema
from penstock.types import logical as t


@pytest.fixture
def context():
    counted = []
    found = SimpleNamespace(
        metrics=SimpleNamespace(inc=counted.append), counted=counted, name="orders", uid="orders-1",
        job_id="job", attempt=2, subtask_index=3, now_ms=lambda: 7, store=MemoryStore(), letters=None,
    )  # fmt: skip
    found.letters = Letters(found, found.store, to_table=True)
    return found


async def keys(context):
    return [key for key, _ in await context.store.list("jobs/job/")]


async def test_a_letter_holds_the_bytes_the_reason_and_the_position(context):
    bad = BadRecords(context, "dead-letter")
    record = b"\xff\x00" + b"x" * 10_000
    bad.record(ValueError("no JSON"), record, "topic 'o', partition 1, offset 5", {"key": b"k"})
    bad.record(ValueError("no row"), None, "elsewhere", kept="it has no bytes")
    await context.letters.write(4)
    await context.letters.write(5)
    [key] = await keys(context)
    assert key == "jobs/job/dead-letters/orders-1/000002-00003-00000000"
    first, second = map(json.loads, (await context.store.get(key)).splitlines())
    assert base64.b64decode(first["bytes"]) == record
    assert base64.b64decode(first["message"]["key"]) == b"k"
    assert len(first["record"]) == module.MAX_TEXT_BYTES
    assert (first["error"], first["where"], first["kept"]) == (
        "no JSON",
        "topic 'o', partition 1, offset 5",
        "",
    )
    assert (second["bytes"], second["record"], second["kept"]) == (None, None, "it has no bytes")
    assert context.counted == ["numRecordsInErrors"] * 2


async def test_letters_are_bounded_between_two_checkpoints(context, monkeypatch):
    monkeypatch.setattr(module, "MAX_DEAD_LETTER_BYTES", 10)
    bad = BadRecords(context, "dead-letter")
    bad.record(ValueError("bad"), b"12345678", "here")
    await context.letters.write(1)
    bad.record(ValueError("bad"), b"12345678", "here")
    with pytest.raises(RecordError, match="too many bad records"):
        bad.record(ValueError("bad"), b"123", "here")


def places(batch):
    return [] if batch is None else [row[LETTER_SCHEMA.names.index("position")] for row in batch.to_pylist()]


async def test_rows_and_objects_belong_to_one_checkpoint(context):
    """What comes before the barrier is emitted or in the state; what a sink's work behind it finds is in the state."""
    letters, bad = context.letters, BadRecords(context, "dead-letter")
    bad.record(ValueError("x"), b"1", "emitted")
    assert places(letters.take()) == ["emitted"]
    bad.record(ValueError("x"), b"2", "before the barrier")
    snapshot = OperatorSnapshot(lists={"own": [b"1"]})
    letters.cut(9, snapshot)
    bad.record(ValueError("x"), b"3", "after the barrier")
    letters.of_earlier_rows = True
    bad.record(ValueError("x"), b"4", "found later, of a row before the barrier")
    letters.of_earlier_rows = False
    lists = await snapshot.pending
    assert [json.loads(x)["where"] for x in lists["letters"]] == [
        "before the barrier",
        "found later, of a row before the barrier",
    ]
    assert lists["letter-objects"] == [b"000002-00003-00000000"]
    assert not any("confirmed" in key for key in await keys(context))
    again = Letters(context, context.store, to_table=True)
    again.restore(RestoredState(9, lists=lists))
    assert places(again.take()) == ["before the barrier", "found later, of a row before the barrier"]
    await again.confirm(8)
    assert not any("confirmed" in key for key in await keys(context))
    await again.confirm(9)
    await again.confirm(9)
    assert "jobs/job/dead-letters-confirmed/orders-1/000002-00003-00000000" in await keys(context)


def table(*columns, **options):
    return TableRef(
        name="l", connector="print", options=options, physical=Schema(columns), schema=Schema(columns)
    )


def test_a_table_of_letters_has_letters_columns():
    sink = letter_sink(table(Field("time", t.VarCharType()), Field("bytes", t.VarBinaryType())), bounded=True)
    assert [str(x) for x in sink.schema.types] == ["STRING", "BYTES"]
    with pytest.raises(SqlError, match="no column 'reasons'") as err:
        letter_sink(table(Field("reasons", t.VarCharType())), bounded=True)
    assert "reason" in err.value.remedy
    with pytest.raises(SqlError, match="cannot set its own records aside"):
        letter_sink(table(Field("reason", t.VarCharType()), **{"on-error": "dead-letter"}), bounded=True)

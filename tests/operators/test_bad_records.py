"""Dead letters hold their records whole, and are bounded."""

import base64
import json
from types import SimpleNamespace

import pytest

from penstock.errors import RecordError
from penstock.operators import bad_records
from penstock.operators.bad_records import BadRecords


class Objects(dict):
    async def put(self, key, data):
        self[key] = data


@pytest.fixture
def context():
    counted = []
    return SimpleNamespace(
        store=Objects(), metrics=SimpleNamespace(inc=counted.append), counted=counted, name="orders", uid="orders-1",
        job_id="job", attempt=2, subtask_index=3, now_ms=lambda: 7,
    )  # fmt: skip


async def test_a_letter_holds_the_bytes_the_reason_and_the_position(context):
    letters = BadRecords(context, "dead-letter")
    record = b"\xff\x00" + b"x" * 10_000
    letters.record(ValueError("no JSON"), record, "topic 'o', partition 1, offset 5")
    letters.record(ValueError("no row"), None, "elsewhere")
    await letters.flush()
    await letters.flush()
    [(key, data)] = context.store.items()
    assert key == "jobs/job/dead-letters/orders-1/000002-00003-00000000"
    first, second = map(json.loads, data.splitlines())
    assert base64.b64decode(first["bytes"]) == record
    assert len(first["record"]) == bad_records.MAX_TEXT_BYTES
    assert (first["error"], first["where"]) == ("no JSON", "topic 'o', partition 1, offset 5")
    assert (second["bytes"], second["record"]) == (None, None)
    assert context.counted == ["numRecordsInErrors"] * 2


async def test_letters_are_bounded_between_two_checkpoints(context, monkeypatch):
    monkeypatch.setattr(bad_records, "MAX_DEAD_LETTER_BYTES", 10)
    letters = BadRecords(context, "dead-letter")
    letters.record(ValueError("bad"), b"12345678", "here")
    await letters.flush()
    letters.record(ValueError("bad"), b"12345678", "here")
    with pytest.raises(RecordError, match="too many bad records"):
        letters.record(ValueError("bad"), b"123", "here")

import datetime as dt

import pytest

from penstock.errors import ConnectorError
from penstock.types import Schema
from penstock.types import logical as t

SCHEMA = Schema.of(
    ("id", t.BigIntType()),
    ("small", t.TinyIntType()),
    ("price", t.DecimalType(10, 2)),
    ("big", t.DecimalType(30, 4)),
    ("ratio", t.DoubleType()),
    ("name", t.VarCharType()),
    ("data", t.VarBinaryType()),
    ("ok", t.BooleanType()),
    ("at", t.TimestampLtzType(3)),
    ("day", t.DateType()),
)
OPTIONS = {
    "connector": "datagen", "rows-per-second": "0", "fields.id.kind": "sequence", "fields.id.start": "5",
    "fields.id.end": "9004", "fields.small.min": "-2", "fields.small.max": "2", "fields.name.length": "7",
    "fields.price.null-rate": "0.5", "fields.ratio.min": "0", "fields.ratio.max": "1",
}  # fmt: skip


@pytest.mark.parametrize("parallelism", [1, 3])
async def test_rows_fit_their_settings(harness, parallelism):
    connector = harness.connector(SCHEMA, OPTIONS)
    assert connector.is_bounded(type("T", (), {"schema": SCHEMA, "options": OPTIONS}))
    splits = await harness.splits(SCHEMA, OPTIONS, parallelism=parallelism)
    assert len(splits) == parallelism
    rows = await harness.read_all(SCHEMA, OPTIONS, splits=splits, now_ms=lambda: 86_400_000)
    assert sorted(r[0] for r in rows) == list(range(5, 9005))
    assert {r[1] for r in rows} == {-2, -1, 0, 1, 2}
    assert 0.4 < sum(r[2] is None for r in rows) / len(rows) < 0.6
    assert all(0 <= r[4] <= 1 and len(r[5]) == 7 and len(r[6]) == 100 for r in rows)
    assert {r[8] for r in rows} == {dt.datetime(1970, 1, 2, tzinfo=dt.UTC)}
    assert {r[9] for r in rows} == {dt.date(1970, 1, 2)}


async def test_a_restart_makes_the_same_rows(harness):
    options = {**OPTIONS, "number-of-rows": "5000"}
    want = await harness.read_all(SCHEMA, options)
    assert len(want) == 5000
    splits, got = None, []
    while len(got) < len(want):
        reader = await harness.reader(SCHEMA, options, splits, batch_rows=700)
        got += [r for f in await harness.read(reader, rows=1000) for r in f.batch.to_pylist()]
        splits = reader.snapshot()
    assert got == want


async def test_paces_itself(harness):
    now = [0]
    options = {"connector": "datagen", "rows-per-second": "1000"}
    schema = Schema.of(("n", t.IntType()))
    reader = await harness.reader(schema, options, now_ms=lambda: now[0])
    made = 0
    for now[0] in range(0, 1001, 10):
        while (fetched := reader.poll()) is not None:
            made += len(fetched.batch)
    assert 1000 <= made <= 1050
    assert not harness.connector(schema, options).is_bounded(
        type("T", (), {"schema": schema, "options": options})
    )


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"fields.nme.kind": "random"}, "unknown option 'fields.nme.kind'"),
        ({"fields.name.lenght": "3"}, "did you mean 'length'"),
        ({"fields.name.length": "x"}, "option 'length'"),
        ({"fields.small.kind": "sequence"}, "lacks its start or end"),
        ({"fields.ok.kind": "sequence", "fields.ok.start": "1", "fields.ok.end": "2"}, "no sequence values"),
        ({"rows-per-secnd": "1"}, "did you mean 'rows-per-second'"),
    ],
)
def test_settings_are_checked(harness, more, says):
    with pytest.raises(ConnectorError) as caught:
        harness.connector(SCHEMA, {**OPTIONS, **more})
    assert says in str(caught.value)

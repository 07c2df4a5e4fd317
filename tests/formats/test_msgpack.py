"""``msgpack``: what other writers send, what is written, and what is refused."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal

import msgspec
import pytest

from penstock.errors import ConnectorError, RecordError, UnsupportedError
from penstock.formats import get_format
from penstock.formats.api import FormatContext
from penstock.testing.conformance import FormatConformance
from penstock.types import Batch, Schema
from penstock.types import logical as t

TABLE = Schema.of(("id", t.BigIntType(False)), ("name", t.VarCharType()), ("price", t.DecimalType(10, 2)))
pack = msgspec.msgpack.encode


class TestMsgpack(FormatConformance):
    def format(self):
        return get_format("msgpack")


def fail(error, raw, where):
    raise error


def decoder(schema=TABLE, options=None, bad=fail, projection=None):
    projection = range(len(schema)) if projection is None else projection
    given = {f"msgpack.{k}": v for k, v in (options or {}).items()}
    return get_format("msgpack").decoder(FormatContext(schema, projection, given, bad))


def read(values, schema=TABLE, **more):
    messages = [v if isinstance(v, bytes) else pack(v) for v in values]
    return decoder(schema, **more).decode(messages, lambda i: f"offset {i}").to_pylist()


def test_what_other_writers_send_is_read_in_its_own_types():
    schema = Schema.of(
        ("raw", t.VarBinaryType()), ("at", t.TimestampLtzType(6)), ("plain", t.TimestampType(3)), ("x", t.DoubleType()),
        ("by", t.MapType(t.IntType(False), t.VarCharType())), ("f", t.FloatType()),
    )  # fmt: skip
    at = dt.datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    one = {
        "more": [1],
        "raw": b"\0\xff",
        "at": at,
        "plain": "2026-01-02T03:04:05.678",
        "x": 3,
        "by": {1: "a"},
        "f": 0.5,
    }
    assert read([one] * 3, schema) == [
        (b"\0\xff", at.astimezone(dt.UTC), dt.datetime(2026, 1, 2, 3, 4, 5, 678_000), 3.0, [(1, "a")], 0.5)
    ] * 3  # fmt: skip
    price = [("1.005",), (7,)]
    assert read([{"id": 1, "price": p} for (p,) in price], projection=[2]) == [
        (Decimal("1.01"),),
        (Decimal("7.00"),),
    ]
    assert read([{"id": 1}]) == [(1, None, None)]


def test_what_is_written_is_plain_messagepack():
    row = (1, "x", Decimal("2.50"))
    encoder = get_format("msgpack").encoder(TABLE, {})
    want = {"id": 1, "name": "x", "price": "2.50"}
    assert [msgspec.msgpack.decode(m) for m in encoder.encode(Batch.of(TABLE, [row]))] == [want]
    assert msgspec.msgpack.decode(encoder.encode_batch(Batch.of(TABLE, [row, row]))) == [want, want]
    schema = Schema.of(("at", t.TimestampLtzType(3)), ("nan", t.DoubleType()))
    at = dt.datetime(1969, 12, 31, 23, 59, 59, 500_000, tzinfo=dt.UTC)
    (one,) = get_format("msgpack").encoder(schema, {}).encode(Batch.of(schema, [(at, float("inf"))]))
    assert msgspec.msgpack.decode(one) == {"at": at, "nan": float("inf")}
    assert read([one], schema) == [(at, float("inf"))]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"", "0 bytes"),
        (b"\xc1", "malformed"),
        (pack({"id": 1}) + b"\0", "malformed"),
        ([1, "x"], "Expected `object`, got `array`"),
        ({"id": "1"}, r"Expected `int | null`, got `str` - at `\$\.id`"),
        ({"id": 1.5}, "Expected `int | null`, got `float`"),
        ({"name": "x"}, "NULL in a NOT NULL column"),
        ({"id": 2**63}, "OverflowError|out of|too large|range"),
        ({"id": 1, "price": "12345678901"}, "precision|rescale|fit|exceed"),
        ({"id": 1, "price": "dear"}, "price|decimal|Decimal"),
    ],
)
def test_a_bad_record_is_an_error_with_its_place_or_left_out(value, said):
    good = {"id": 7, "name": "a", "price": "1"}
    with pytest.raises(RecordError, match=said) as raised:
        read([good, value, good])
    assert raised.value.where == "offset 1"
    bad = []
    assert (
        read([good, value, good], bad=lambda e, raw, where: bad.append((raw, where)))
        == [(7, "a", Decimal("1.00"))] * 2
    )
    assert bad == [(value if isinstance(value, bytes) else pack(value), "offset 1")]
    assert len(read([good, value, good], options={"ignore-parse-errors": "true"})) == 2


def test_instants_beside_a_bad_record_are_read_once():
    schema = Schema.of(("r", t.RowType((t.Field("at", t.TimestampLtzType(3)),))))
    at = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    good = {"r": {"at": at}}
    bad = []
    assert read([good, 1, good], schema, bad=lambda *found: bad.append(found)) == [({"at": at},)] * 2
    assert len(bad) == 1


def test_times_of_day_are_cut_to_the_precision_and_may_all_be_null():
    inner = t.RowType((t.Field("at", t.TimeType(0)),))
    schema = Schema.of(("at", t.TimeType(0)), ("r", inner))
    one = {"at": "10:11:12.9", "r": {"at": "10:11:13"}}
    want = (dt.time(10, 11, 12), {"at": dt.time(10, 11, 13)})
    assert read([one, {}], schema) == [want, (None, None)]
    assert read([{}, {"r": {}}], schema) == [(None, None), (None, {"at": None})]
    bad = []
    assert read([{"at": "10:11:12Z"}, {"at": "noon"}], schema, bad=lambda *found: bad.append(found)) == []
    assert len(bad) == 2


def test_an_instant_is_rounded_to_the_microsecond_and_stays_in_sqls_years():
    def of(seconds, nanoseconds):
        return b"\x81\xa2at\xc7\x0c\xff" + struct.pack(">Iq", nanoseconds, seconds)

    schema = Schema.of(("at", t.TimestampLtzType(6)))
    assert read([of(0, 1_999)], schema) == [(dt.datetime(1970, 1, 1, 0, 0, 0, 2, tzinfo=dt.UTC),)]
    for broken in (of(10**12, 0), pack({"at": "2026-01-01T00:00:00"}), pack({"at": 5})):
        with pytest.raises(RecordError, match=r"\$\.at"):
            read([broken], schema)


def test_a_missing_field_may_be_an_error():
    with pytest.raises(RecordError, match="missing required field `name`"):
        read([{"id": 1, "price": "1"}], options={"fail-on-missing-field": "true"})
    with pytest.raises(ConnectorError, match="exclude each other"):
        decoder(options={"fail-on-missing-field": "true", "ignore-parse-errors": "true"})


def test_a_batch_is_an_array_and_its_records_have_numbers():
    bad = []
    made = decoder(bad=lambda e, raw, where: bad.append(where))
    good = {"id": 1, "name": "a", "price": None}
    assert made.decode_batch(pack([good, {"id": "x"}, good]), "offset 3").to_pylist() == [(1, "a", None)] * 2
    assert made.decode_batch(pack(good), "offset 4").to_pylist() == []
    assert bad == ["offset 3, record 2", "offset 4"]


@pytest.mark.parametrize(
    ("name", "type_"), [("m", t.MapType(t.DoubleType(), t.IntType())), ('a"b', t.IntType())]
)
def test_what_cannot_be_held_is_refused_by_column(name, type_):
    with pytest.raises(UnsupportedError, match=f"column '{name}'"):
        get_format("msgpack").check(Schema.of((name, type_)), {})

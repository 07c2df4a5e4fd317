import datetime as dt
import json
from decimal import Decimal

import pytest

from penstock.errors import ConnectorError, RecordError, UnsupportedError
from penstock.formats import get_format
from penstock.formats.api import FormatContext
from penstock.types import Batch, Field, Schema
from penstock.types import logical as t

UTC = dt.UTC
SCHEMA = Schema.of(
    ("id", t.BigIntType()),
    ("small", t.SmallIntType()),
    ("name", t.VarCharType()),
    ("price", t.DecimalType(10, 2)),
    ("ratio", t.DoubleType()),
    ("ok", t.BooleanType()),
    ("day", t.DateType()),
    ("at", t.TimestampType(3)),
    ("instant", t.TimestampLtzType(6)),
    ("clock", t.TimeType()),
    ("data", t.VarBinaryType()),
    ("tags", t.ArrayType(t.VarCharType())),
    ("scores", t.MapType(t.VarCharType(), t.IntType())),
    ("inner", t.RowType((Field("x", t.IntType()), Field("y", t.ArrayType(t.RowType((Field("z", t.DoubleType()),))))))),
)  # fmt: skip
ROW = (
    7, -3, "ä\n", Decimal("12.34"), 0.5, True, dt.date(2013, 1, 2), dt.datetime(2013, 1, 2, 3, 4, 5, 678000),
    dt.datetime(2013, 1, 2, 3, 4, 5, 123456, tzinfo=UTC), dt.time(1, 2, 3), b"\x00\xff", ["a", None],
    [("k", 1), ("l", None)], {"x": 1, "y": [{"z": 1.5}, None]},
)  # fmt: skip


def decoder(schema=SCHEMA, projection=None, bad=None, **options):
    found = [] if bad is None else bad

    def bad_record(error, raw, where):
        if bad is None:
            raise error
        found.append((error, raw, where))

    projection = range(len(schema)) if projection is None else projection
    return get_format("json").decoder(FormatContext(schema, projection, options, bad_record))


def where(i):
    return f"stream 's' sequence {i}"


@pytest.mark.parametrize("standard", ["SQL", "ISO-8601"])
def test_a_row_of_every_type_survives_both_ways(standard):
    batch = Batch.of(SCHEMA, [ROW, (None,) * len(ROW)])
    encoder = get_format("json").encoder(SCHEMA, {"json.timestamp-format.standard": standard})
    messages = encoder.encode(batch)
    assert decoder().decode(messages, where).to_pylist() == batch.to_pylist()
    assert decoder().decode_batch(encoder.encode_batch(batch), "f").to_pylist() == batch.to_pylist()


def test_written_text():
    encoder = get_format("json").encoder(SCHEMA, {"json.encode.ignore-null-fields": "true"})
    (line,) = encoder.encode(Batch.of(SCHEMA, [ROW]))
    assert line.decode() == (
        '{"id":7,"small":-3,"name":"ä\\n","price":12.34,"ratio":0.5,"ok":true,"day":"2013-01-02",'
        '"at":"2013-01-02 03:04:05.678","instant":"2013-01-02 03:04:05.123456Z","clock":"01:02:03",'
        '"data":"AP8=","tags":["a",null],"scores":{"k":1,"l":null},"inner":{"x":1,"y":[{"z":1.5},null]}}'
    )
    assert encoder.encode(Batch.of(SCHEMA, [(None,) * len(ROW)])) == [b"{}"]


def test_only_projected_fields_are_read():
    schema = Schema.of(("a", t.IntType()), ("b", t.IntType()), ("c", t.VarCharType()))
    batch = decoder(schema, [2, 0]).decode([b'{"a":1,"b":"not a number","c":"x"}'], where)
    assert batch.schema.names == ["c", "a"]
    assert batch.to_pylist() == [("x", 1)]
    assert len(decoder(schema, []).decode([b"{}", b'{"a":1}'], where)) == 2


@pytest.mark.parametrize(
    ("type_", "text", "want"),
    [
        (t.IntType(), '"12"', 12),
        (t.BigIntType(), "3.0", 3),
        (t.DoubleType(), '"1e3"', 1000.0),
        (t.DoubleType(), "5", 5.0),
        (t.DecimalType(5, 1), "1.25", Decimal("1.3")),
        (t.DecimalType(38, 3), "12345678901234567890123.456", Decimal("12345678901234567890123.456")),
        (t.DecimalType(38, 10), '"1234567890123456789012345678.00000000015"',
         Decimal("1234567890123456789012345678.0000000002")),
        (t.VarCharType(), "12", "12"),
        (t.VarCharType(), "true", "true"),
        (t.VarCharType(), '{"a":[1]}', '{"a":[1]}'),
        (t.BooleanType(), '"TRUE"', True),
        (t.TimestampType(3), '"2020-01-02T03:04:05.123456"', dt.datetime(2020, 1, 2, 3, 4, 5, 123000)),
        (t.TimestampLtzType(3), '"2020-01-02T03:04:05+01:00"', dt.datetime(2020, 1, 2, 2, 4, 5, tzinfo=UTC)),
        (t.IntType(), "null", None),
    ],
)  # fmt: skip
def test_latitude(type_, text, want):
    schema = Schema.of(("v", type_))
    assert decoder(schema).decode([b'{"v":%s}' % text.encode()], where).to_pylist() == [(want,)]


#: A decimal with more digits than a double has, and its type.
LONG = "1234567890123456789012345678.0123456789"
EXACT = t.DecimalType(38, 10)


@pytest.mark.parametrize(
    ("beside", "text", "want"),
    [
        (t.TimeType(), '"12:00:00"', dt.time(12)),
        (t.VarCharType(), "12345678901234567.5", "12345678901234567.5"),
        (t.VarCharType(), '{"a":[1.50]}', '{"a":[1.50]}'),
        (t.MapType(t.VarCharType(), t.VarCharType()), '{"k":2.5}', [("k", "2.5")]),
        (t.DoubleType(), '"0.1"', 0.1),
        (t.BigIntType(), "3.0", 3),
        (t.ArrayType(EXACT), f'[{LONG},"{LONG}"]', [Decimal(LONG)] * 2),
        (t.RowType((Field("d", EXACT), Field("t", t.TimeType()))), f'{{"d":{LONG},"t":"01:02:03"}}',
         {"d": Decimal(LONG), "t": dt.time(1, 2, 3)}),
    ],
)  # fmt: skip
def test_decimals_keep_their_digits_beside_what_is_converted_by_record(beside, text, want):
    schema = Schema.of(("d", EXACT), ("v", beside), ("m", t.MapType(t.VarCharType(), EXACT)))
    message = b'{"d":%s,"v":%s,"m":{"k":%s}}' % (LONG.encode(), text.encode(), LONG.encode())
    ((d, v, m),) = decoder(schema).decode([message], where).to_pylist()
    assert (d, v, m) == (Decimal(LONG), want, [("k", Decimal(LONG))])


@pytest.mark.parametrize(("type_", "text"), [(t.DoubleType(), "1e400"), (t.IntType(), "1.5")])
def test_numbers_beside_a_decimal_must_fit(type_, text):
    bad = []
    schema = Schema.of(("d", EXACT), ("v", type_))
    assert not len(decoder(schema, bad=bad).decode([b'{"d":1,"v":%s}' % text.encode()], where))
    assert str(type_) in str(bad[0][0])


@pytest.mark.parametrize(
    ("type_", "text", "says"),
    [
        (t.TinyIntType(), "200", "TINYINT"),
        (t.IntType(), "1.5", "INT"),
        (t.IntType(), "true", "INT"),
        (t.BigIntType(), '"seven"', "BIGINT"),
        (t.DecimalType(3, 1), "1000", "DECIMAL(3, 1)"),
        (t.DateType(), '"2020-13-01"', "DATE"),
        (t.TimestampType(3), '"2020-01-01 00:00:00Z"', "TIMESTAMP(3)"),
        (t.TimestampLtzType(3), '"2020-01-01 00:00:00"', "TIMESTAMP_LTZ(3)"),
        (t.VarBinaryType(), '"%%"', "BYTES"),
        (t.BigIntType(nullable=False), "null", "NOT NULL"),
        (t.RowType((Field("a", t.IntType()),)), "[1]", "ROW"),
    ],
)
def test_a_bad_value_is_named(type_, text, says):
    schema = Schema.of(("w", t.IntType()), ("v", type_))
    bad = []
    messages = [b'{"w":1,"v":null}', b'{"w":2,"secret":"pa55word","v":%s}' % text.encode(), b'{"w":3}']
    if not type_.nullable:
        messages = [messages[1]]
    batch = decoder(schema, bad=bad).decode(messages, where)
    assert [r[0] for r in batch.to_pylist()] == ([1, 3] if type_.nullable else [])
    ((error, raw, place),) = bad
    assert isinstance(error, RecordError)
    assert raw == messages[-2 if type_.nullable else 0]
    assert place == where(1 if type_.nullable else 0)
    assert says in str(error)
    assert place in str(error)
    assert "column 'v'" in str(error)
    assert "pa55word" not in str(error)
    assert "xx99xxxx" in str(error)


@pytest.mark.parametrize("message", [b"", b"{", b"[1]", b"17", b'{"v":1} {"v":2}', b"\xff"])
def test_what_is_no_object_is_a_bad_record(message):
    bad = []
    batch = decoder(Schema.of(("v", t.IntType())), bad=bad).decode([b'{"v":1}', message], where)
    assert batch.to_pylist() == [(1,)]
    assert len(bad) == 1
    with pytest.raises(RecordError):
        decoder(Schema.of(("v", t.IntType()))).decode([message], where)


@pytest.mark.parametrize(
    ("message", "got"), [(b'["pa55word"]', "an array"), (b'"pa55word"', "a string"), (b"1.5", "a number")]
)
def test_the_text_of_what_is_no_object_is_masked(message, got):
    bad = []
    decoder(Schema.of(("v", t.IntType())), bad=bad).decode([message], where)
    assert bad[0][0].got == got
    assert "pa55word" not in str(bad[0][0])


def test_lines_are_numbered_with_blank_ones():
    bad = []
    batch = decoder(Schema.of(("v", t.IntType())), bad=bad).decode_batch(
        b'{"v":1}\n\n{"v":"x"}\n{"v":3}\n', "a.json"
    )
    assert batch.to_pylist() == [(1,), (3,)]
    assert bad[0][2] == "a.json, line 3"


@pytest.mark.parametrize(
    ("data", "rows", "bad_lines"),
    [
        (b'{"v":1}\n{"v":2}', [(1,), (2,)], []),
        (b'\n{"v":1}\n{"v":2}\n\n', [(1,), (2,)], []),
        (b'{"v":1}\r\n {"v":2}\r\n', [(1,), (2,)], []),
        # Two objects in a line, and one in two lines: as many objects as lines.
        (b'{"v":1}{"v":2}\n{"v":\n3}\n', [], [1, 2, 3]),
        (b'{"v":1}{"v":2}\n{"v":3}', [(3,)], [1]),
        (b'{"w":[{"v":1}\n,{"v":2}]}{"v":3}', [], [1, 2]),
        (b'{"w":"}\n{"}{"v":1}', [], [1, 2]),
        (b'{"v":1}\n[{"v":2}]\n{"v":"3"}', [(1,), (3,)], [2]),
    ],
)
def test_a_line_is_one_object(data, rows, bad_lines):
    bad = []
    batch = decoder(Schema.of(("v", t.IntType())), bad=bad).decode_batch(data, "a.json")
    assert batch.to_pylist() == rows
    assert [where for _, _, where in bad] == [f"a.json, line {n}" for n in bad_lines]


def test_rows_of_which_most_are_null():
    inner = t.RowType((Field("x", t.IntType()), Field("y", t.ArrayType(t.VarCharType()))))
    schema = Schema.of(("a", inner), ("b", t.RowType((Field("c", inner),))))
    data = b'{"a":null,"b":{"c":{"x":1,"y":["p",null]}}}\n{"b":{"c":null}}\n{"a":{"x":2}}\n{}'
    assert decoder(schema).decode_batch(data, "a.json").to_pylist() == [
        (None, {"c": {"x": 1, "y": ["p", None]}}),
        (None, {"c": None}),
        ({"x": 2, "y": None}, None),
        (None, None),
    ]


def test_ignore_parse_errors_gives_null_or_skips():
    got = decoder(
        Schema.of(("v", t.IntType()), ("w", t.VarCharType())), **{"json.ignore-parse-errors": "true"}
    ).decode([b'{"v":"x","w":"a"}', b"{nonsense", b'{"v":2}'], where)
    assert got.to_pylist() == [(None, "a"), (2, None)]


def test_fail_on_missing_field():
    schema = Schema.of(("v", t.IntType()))
    option = {"json.fail-on-missing-field": "true"}
    assert decoder(schema, **option).decode([b'{"v":null}'], where).to_pylist() == [(None,)]
    with pytest.raises(RecordError, match="field 'v' is missing"):
        decoder(schema, **option).decode([b"{}"], where)
    with pytest.raises(ConnectorError, match="exclude each other"):
        decoder(schema, **option, **{"json.ignore-parse-errors": "true"})


def test_floats_that_json_cannot_hold():
    schema = Schema.of(("v", t.DoubleType()), ("f", t.FloatType()))
    batch = Batch.of(schema, [(float("nan"), 0.1), (float("-inf"), 2.5)])
    messages = get_format("json").encoder(schema, {}).encode(batch)
    assert messages == [b'{"v":"NaN","f":0.1}', b'{"v":"-Infinity","f":2.5}']
    back = decoder(schema).decode(messages, where).to_pylist()
    assert back[1][0] == float("-inf")
    assert back[0][0] != back[0][0]


def test_decimals_are_written_plain():
    schema = Schema.of(("d", t.DecimalType(20, 9)), ("a", t.ArrayType(t.DecimalType(20, 9))))
    batch = Batch.of(schema, [(Decimal(0), [Decimal("1.5")])])
    assert get_format("json").encoder(schema, {}).encode(batch) == [b'{"d":0.000000000,"a":[1.500000000]}']


def test_variants_are_json_values():
    schema = Schema.of(("id", t.IntType()), ("v", t.VariantType()), ("a", t.ArrayType(t.VariantType())))
    lines = b"""{"id": 1, "v": {"b": 1.50, "a": [null, 1e3]}, "a": [1.10, "x", null]}
{"id": 2, "v": null}
{"v": "text", "a": []}
{"id": "4", "v": {"k": [1, true]}}
{"id": "5", "v": {"k": 12345678901234567890.50}}
{"id": 6, "v": {"k": 1, "k": 2}}"""
    found: list = []
    batch = decoder(schema, bad=found).decode_batch(lines, "here")
    rows = batch.to_pylist()
    assert rows == [
        (1, '{"a":[null,1000.0],"b":1.5}', ["1.1", '"x"', None]),
        (2, None, None),
        (None, '"text"', []),
        (4, '{"k":[1,true]}', None),
        (5, '{"k":12345678901234567890.5}', None),
    ]
    [(error, _, _)] = found  # a key that is there twice
    assert "here, line 6, column 'v'" in error.where
    assert decoder(schema).decode_batch(lines[: lines.index(b'{"id": "4"')], "here").to_pylist() == rows[:3]
    written = get_format("json").encoder(schema, {}).encode(batch)
    assert written[0] == b'{"id":1,"v":{"a":[null,1000.0],"b":1.5},"a":[1.1,"x",null]}'
    assert written[1] == b'{"id":2,"v":null,"a":null}'


def test_columns_beside_a_variant_keep_their_values():
    schema = Schema.of(
        ("id", t.IntType()),
        ("v", t.VariantType()),
        ("d", t.DecimalType(30, 10)),
        ("f", t.DoubleType()),
        ("s", t.VarCharType()),
    )
    line = b'{"id": "1", "v": 1e0, "d": 12345678901234567890.25, "f": 1.5, "s": {"a": [1.50], "a": 2.5}}'
    [row] = decoder(schema).decode([line], where).to_pylist()
    assert row == (1, "1.0", Decimal("12345678901234567890.25"), 1.5, '{"a":2.5}')


def test_options_and_types_are_checked():
    json = get_format("json")
    with pytest.raises(ConnectorError, match="ignore-parse-error'"):
        json.check(SCHEMA, {"json.ignore-parse-error": "true"})
    with pytest.raises(ConnectorError, match=r"json\.timestamp-format\.standard"):
        json.check(SCHEMA, {"json.timestamp-format.standard": "sqll"})
    with pytest.raises(UnsupportedError, match="column 'r'"):
        json.check(Schema.of(("r", t.RawType())), {})
    with pytest.raises(ConnectorError, match="'json'"):
        get_format("jsn")


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", '"', "a\x01"])
@pytest.mark.parametrize("skips_nulls", [False, True])
@pytest.mark.parametrize("rows", [2, 200])
def test_names_that_json_escapes(name, skips_nulls, rows):
    """In a record, in a ROW within it, in files and in the records of change formats."""
    inner = t.RowType((Field(name, t.IntType()), Field("y", t.VarCharType())))
    schema = Schema((Field(name, t.BigIntType()), Field("r", inner), Field("rs", t.ArrayType(inner))))
    given = [(1, {name: 2, "y": "z"}, [{name: 3, "y": None}]), (None, None, None)] * (rows // 2)
    options = {"json.encode.ignore-null-fields": str(skips_nulls).lower()}
    messages = get_format("json").encoder(schema, options).encode(Batch.of(schema, given))
    assert json.loads(messages[0])[name] == 1
    assert json.loads(messages[0])["r"] == {name: 2, "y": "z"}
    assert json.loads(messages[1]) == ({} if skips_nulls else {name: None, "r": None, "rs": None})
    assert decoder(schema).decode(messages, where).to_pylist() == given
    assert decoder(schema).decode_batch(b"\n".join(messages), "a file").to_pylist() == given
    assert decoder(schema, [0]).decode(messages, where).to_pylist() == [(row[0],) for row in given]
    format_ = get_format("debezium-json")
    changes = format_.encoder(schema, {}).encode(Batch.of(schema, given))
    ctx = FormatContext(schema, range(3), {}, None, {})
    assert format_.decoder(ctx).decode(changes, where).to_pylist() == given


def test_a_bad_value_under_a_name_that_json_escapes():
    bad = []
    schema = Schema.of(('a"b', t.IntType()), ("c", t.IntType()))
    got = decoder(schema, bad=bad).decode([b'{"a\\"b": 1, "c": 2}', b'{"a\\"b": "x"}', b"nothing"], where)
    assert got.to_pylist() == [(1, 2)]
    assert 'a"b' in str(bad[0][0])
    assert len(bad) == 2

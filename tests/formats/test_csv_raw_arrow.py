import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from penstock.errors import ConnectorError, RecordError, UnsupportedError
from penstock.formats import get_format
from penstock.formats.api import FormatContext
from penstock.types import Batch, Schema
from penstock.types import logical as t

SCHEMA = Schema.of(
    ("id", t.BigIntType()),
    ("name", t.VarCharType()),
    ("price", t.DecimalType(10, 2)),
    ("ratio", t.DoubleType()),
    ("ok", t.BooleanType()),
    ("day", t.DateType()),
    ("at", t.TimestampType(3)),
    ("instant", t.TimestampLtzType(3)),
)
ROWS = [
    (1, 'a,"b"\nc', Decimal("1.50"), 0.5, True, dt.date(2013, 1, 1), dt.datetime(2013, 1, 1, 1, 2, 3, 400000),
     dt.datetime(2013, 1, 1, 1, 2, 3, tzinfo=dt.UTC)),
    (None, "", None, None, None, None, None, None),
]  # fmt: skip


def decoder(name, schema=SCHEMA, projection=None, bad=None, **options):
    def bad_record(error, raw, where):
        if bad is None:
            raise error
        bad.append((error, raw, where))

    projection = range(len(schema)) if projection is None else projection
    return get_format(name).decoder(FormatContext(schema, projection, options, bad_record))


def where(i):
    return f"sequence {i}"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"csv.field-delimiter": ";"},
        {"csv.field-delimiter": "\\t", "csv.quote-character": "'"},
        {"csv.null-literal": "NA"},
    ],
)
def test_csv_both_ways(options):
    batch = Batch.of(SCHEMA, ROWS)
    encoder = get_format("csv").encoder(SCHEMA, options)
    assert decoder("csv", **options).decode_batch(encoder.encode_batch(batch), "f").to_pylist() == ROWS
    assert decoder("csv", **options).decode(encoder.encode(batch), where).to_pylist() == ROWS


SHORT = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()), ("n", t.IntType()))


def test_a_quoted_line_end_is_kept_beside_a_bad_record():
    bad = []
    data = b'1,"a\nb",1\n2,x\n3,"c\n\nd",3\n4,"open,4\n5,5 inch,5\n6,z,6\n'
    rows = decoder("csv", SHORT, bad=bad).decode_batch(data, "f").to_pylist()
    assert rows == [(1, "a\nb", 1), (3, "c\n\nd", 3), (5, "5 inch", 5), (6, "z", 6)]
    assert [place for _, _, place in bad] == ["f, line 3", "f, line 7"]


def test_cells_that_a_record_lacks_are_null_where_errors_are_ignored():
    ignoring = decoder("csv", SHORT, **{"csv.ignore-parse-errors": "true"})
    data = b"1,a,1\n2,b\n3\n4,d,4,4\n5,x,y\n6,,\n"
    rows = [(1, "a", 1), (2, "b", None), (3, None, None), (5, "x", None), (6, "", None)]
    assert ignoring.decode_batch(data, "f").to_pylist() == rows
    assert ignoring.decode(data.splitlines(), where).to_pylist() == rows
    needed = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()), ("n", t.IntType(nullable=False)))
    strict = decoder("csv", needed, **{"csv.ignore-parse-errors": "true"})
    assert strict.decode_batch(data, "f").to_pylist() == [(1, "a", 1)]
    projected = decoder("csv", SHORT, projection=[0, 1], **{"csv.ignore-parse-errors": "true"})
    assert projected.decode_batch(b"2,b\n", "f").to_pylist() == [(2, "b")]


def test_csv_projection_header_and_null_literal():
    schema = Schema.of(("a", t.IntType()), ("b", t.VarCharType()), ("c", t.IntType()))
    csv = decoder("csv", schema, [2, 1], **{"csv.header": "true", "csv.null-literal": "NA"})
    csv.set_header(b"b,x,c,a\n", "f.csv")
    assert csv.decode_batch(b'one,0,NA,1\n"NA",0,5,NA\n', "f").to_pylist() == [(None, "one"), (5, "NA")]
    with pytest.raises(ConnectorError, match="no column 'c'"):
        decoder("csv", schema, **{"csv.header": "true"}).set_header(b"a,b,cc\n", "f.csv")


def test_csv_bad_cells_and_widths_are_named():
    schema = Schema.of(("a", t.IntType()), ("b", t.IntType(nullable=False)))
    bad = []
    lines = [b"1,2", b"x,3", b"4", b"5,", b"6,7"]
    assert decoder("csv", schema, bad=bad).decode(lines, where).to_pylist() == [(1, 2), (6, 7)]
    assert [b[2] for b in bad] == ["sequence 1", "sequence 2", "sequence 3"]
    assert "column 'a'" in str(bad[0][0])
    assert bad[1][1] == b"4"
    assert "2 columns" in str(bad[1][0])
    assert "NOT NULL" in str(bad[2][0])
    ignoring = {"csv.ignore-parse-errors": "true"}
    loose = Schema.of(("a", t.IntType()), ("b", t.IntType()))
    assert decoder("csv", loose, **ignoring).decode(lines, where).to_pylist() == [
        (1, 2),
        (None, 3),
        (4, None),
        (5, None),
        (6, 7),
    ]


def test_csv_shows_no_text_of_a_record_of_another_width():
    bad = []
    schema = Schema.of(("id", t.BigIntType()), ("name", t.VarCharType()))
    decoder("csv", schema, bad=bad).decode([b'1,"pa55word",x'], where)
    ((error, _, _),) = bad
    assert "Expected 2 columns, got 3" in error.got
    assert "pa55word" not in str(error)


def test_csv_refuses_nested_types():
    with pytest.raises(UnsupportedError, match="'tags'"):
        get_format("csv").check(Schema.of(("tags", t.ArrayType(t.IntType()))), {})


def test_raw():
    text = Schema.of(("line", t.VarCharType()))
    assert decoder("raw", text).decode([b"a", "ä".encode()], where).to_pylist() == [("a",), ("ä",)]
    assert decoder("raw", text).decode_batch(b"a\nb\n", "f").to_pylist() == [("a",), ("b",)]
    assert decoder("raw", Schema.of(("b", t.VarBinaryType()))).decode([b"\xff"], where).to_pylist() == [
        (b"\xff",)
    ]
    bad = []
    assert decoder("raw", text, bad=bad).decode([b"\xff", b"x"], where).to_pylist() == [("x",)]
    assert bad[0][2] == "sequence 0"
    with pytest.raises(ConnectorError, match="exactly one"):
        get_format("raw").check(SCHEMA, {})


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_arrow_by_name(codec):
    batch = Batch.of(SCHEMA, ROWS)
    encoder = get_format("arrow").encoder(SCHEMA, {"arrow.compression": codec})
    data = encoder.encode_batch(batch)
    assert decoder("arrow").decode_batch(data, "m").to_pylist() == ROWS
    assert decoder("arrow", projection=[3, 0]).decode_batch(data, "m").to_pylist() == [
        (r[3], r[0]) for r in ROWS
    ]
    assert decoder("arrow").decode(encoder.encode(batch), where).to_pylist() == ROWS


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"junk", "not an Arrow IPC stream"),
        ({"idd": [1]}, "did you mean 'idd'"),
        ({"id": ["x"]}, "Arrow string"),
    ],
)
def test_arrow_that_does_not_fit_is_named(data, says):
    if isinstance(data, dict):
        rb = pa.RecordBatch.from_pydict(data)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rb.schema) as writer:
            writer.write_batch(rb)
        data = sink.getvalue().to_pybytes()
    with pytest.raises(RecordError, match="message 5") as caught:
        decoder("arrow", Schema.of(("id", t.BigIntType()))).decode_batch(data, "message 5")
    assert says in str(caught.value)

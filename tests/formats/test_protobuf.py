"""Protocol Buffers: every kind of field there and back, defaults and NULL, and what is refused."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from pathlib import Path

import pytest

pytest.importorskip("google.protobuf", reason="needs penstock[protobuf]")

from google.protobuf import descriptor_pb2

from penstock.errors import ConnectorError, RecordError, UnsupportedError
from penstock.formats import get_format
from penstock.formats.api import FormatContext
from penstock.formats.protobuf.delimited import cut, join
from penstock.formats.protobuf.descriptors import message_class
from penstock.formats.protobuf.format import OPTIONS
from penstock.sql.session import SqlSession
from penstock.testing.conformance import FormatConformance
from penstock.types import Batch, Schema
from penstock.types import logical as t
from tests.formats.proto_sets import DerivedProtobuf, descriptor_set, shop

PLACE = t.RowType((t.Field("city", t.VarCharType()),))
DEEP = t.RowType((t.Field("inner", PLACE), t.Field("city", t.VarCharType())))


@pytest.fixture
def options(tmp_path):
    return {
        "protobuf.message-class-name": "shop.Order",
        "protobuf.descriptor-set": str(shop(tmp_path / "shop.binpb")),
    }


def fail(error, raw, where):
    raise error


def read(messages, schema, options, bad=fail, projection=None):
    get_format("protobuf").check(schema, options)
    projection = range(len(schema)) if projection is None else projection
    decoder = get_format("protobuf").decoder(FormatContext(schema, projection, options, bad))
    return decoder.decode(messages, lambda i: f"message {i}").to_pylist()


def write(rows, schema, options):
    return get_format("protobuf").encoder(schema, options).encode(Batch.of(schema, rows))


def order(options, **fields):
    return message_class(OPTIONS.read(options))(**fields)


class TestProtobuf(FormatConformance):
    def format(self):
        return DerivedProtobuf(self.folder)


#: Field, column, value, the value as a message holds it.
SCALARS = [
    ("double", t.DoubleType(), -1.5e300, -1.5e300), ("float", t.FloatType(), 0.25, 0.25),
    ("int64", t.BigIntType(), -(2**63), -(2**63)), ("uint64", t.DecimalType(20, 0), Decimal(2**64 - 1), 2**64 - 1),
    ("uint64", t.BigIntType(), 2**63 - 1, 2**63 - 1), ("fixed64", t.DecimalType(20, 0), Decimal(7), 7),
    ("int32", t.IntType(), -(2**31), -(2**31)), ("int32", t.SmallIntType(), -7, -7),
    ("fixed32", t.BigIntType(), 2**32 - 1, 2**32 - 1), ("uint32", t.BigIntType(), 2**32 - 1, 2**32 - 1),
    ("sfixed32", t.IntType(), -5, -5), ("sfixed64", t.BigIntType(), -5, -5), ("sint32", t.IntType(), -5, -5),
    ("sint64", t.BigIntType(), -5, -5), ("bool", t.BooleanType(), True, True),
    ("string", t.VarCharType(), "Grüße", "Grüße"), ("bytes", t.VarBinaryType(), b"\0\xff", b"\0\xff"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "type_", "value", "held"), SCALARS)
def test_every_scalar_goes_there_and_back(options, kind, type_, value, held):
    schema = Schema.of((f"f_{kind}", type_))
    (message,) = write([(value,)], schema, options)
    assert message == order(options, **{f"f_{kind}": held}).SerializeToString()
    assert read([message], schema, options) == [(value,)]


def test_nested_repeated_and_mapped_fields_go_there_and_back(options):
    schema = Schema.of(
        ("kind", t.VarCharType()),
        ("kinds", t.ArrayType(t.IntType())),
        ("place", DEEP),
        ("tags", t.ArrayType(t.VarCharType())),
        ("places", t.ArrayType(PLACE)),
        ("stock", t.MapType(t.VarCharType(nullable=False), t.IntType())),
        ("by_name", t.MapType(t.BigIntType(nullable=False), PLACE)),
    )
    rows = [
        ("BIG", [5, 0], (("Ulm",), None), ["a", ""], [("x",), (None,)], {"b": 2, "a": 1}, {7: ("y",)}),
        ("NONE", None, None, None, None, None, None),
        ("NONE", [0], (None, "Bonn"), ["z"], [("w",)], {"c": 0}, {1: ("",), -2: (None,)}),
    ]
    messages = write(rows, schema, options)
    found = [order(options).FromString(m) for m in messages]
    assert found[0].place.inner.city == "Ulm"
    assert [p.city for p in found[0].places] == ["x", ""]
    assert dict(found[0].stock) == {"a": 1, "b": 2}
    assert found[0].by_name[7].city == "y"
    assert messages[1] == b""
    # A proto3 field without presence is read as its default: NULL is not told from it.
    rows[0] = ("BIG", [5, 0], (("Ulm",), ""), ["a", ""], [("x",), ("",)], {"a": 1, "b": 2}, {7: ("y",)})
    rows[2] = ("NONE", [0], (None, "Bonn"), ["z"], [("w",)], {"c": 0}, {-2: ("",), 1: ("",)})
    assert read(messages, schema, options) == Batch.of(schema, rows).to_pylist()
    for i in range(len(schema)):
        assert [r[0] for r in read(messages, schema, options, projection=[i])] == [
            r[i] for r in Batch.of(schema, rows).to_pylist()
        ]


def test_times_are_timestamps_or_rows_of_their_fields(options):
    moment = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)
    for type_, value in (
        (t.TimestampType(6), moment),
        (t.TimestampLtzType(6), moment.replace(tzinfo=dt.UTC)),
    ):
        schema = Schema.of(("at", type_))
        messages = write([(value,), (None,)], schema, options)
        assert order(options).FromString(messages[0]).at.seconds == -1
        assert order(options).FromString(messages[0]).at.nanos == 999_999_000
        assert read(messages, schema, options) == [(value,), (None,)]
    row = t.RowType((t.Field("seconds", t.BigIntType()), t.Field("nanos", t.IntType())))
    schema = Schema.of(("at", row))
    assert read(messages, schema, options) == [({"seconds": -1, "nanos": 999_999_000},), (None,)]
    fine = order(options, at={"seconds": 1, "nanos": 123_456_789}).SerializeToString()
    assert read([fine], Schema.of(("at", t.TimestampType(3))), options) == [
        (dt.datetime(1970, 1, 1, 0, 0, 1, 123_000),)
    ]
    wrong = order(options, at={"seconds": 2**60}).SerializeToString()
    with pytest.raises(RecordError, match="message 0"):
        read([wrong], Schema.of(("at", t.TimestampType(3))), options)


def test_what_is_not_set_is_null_where_that_can_be_told_and_a_default_by_option(options):
    schema = Schema.of(
        ("f_int32", t.IntType()), ("maybe", t.IntType()), ("place", PLACE), ("tags", t.ArrayType(t.VarCharType()))
    )  # fmt: skip
    assert read([b""], schema, options) == [(0, None, None, None)]
    defaults = {**options, "protobuf.read-default-values": "true"}
    assert read([b""], schema, defaults) == Batch.of(schema, [(0, 0, ("",), [])]).to_pylist()


def test_proto2_keeps_null_apart_and_has_defaults_of_its_own(tmp_path):
    path = descriptor_set(
        """
        file { name: "old.proto" syntax: "proto2" message_type { name: "Old"
          field { name: "id" number: 1 type: TYPE_INT32 label: LABEL_REQUIRED }
          field { name: "n" number: 2 type: TYPE_INT32 label: LABEL_OPTIONAL default_value: "7" }
          field { name: "g" number: 3 type: TYPE_GROUP label: LABEL_OPTIONAL type_name: ".Old.G" }
          nested_type { name: "G" } } }
        """,
        tmp_path / "old.binpb",
    )
    options = {"protobuf.message-class-name": "Old", "protobuf.descriptor-set": str(path)}
    schema = Schema.of(("id", t.IntType()), ("n", t.IntType()))
    messages = write([(1, None), (2, 0)], schema, options)
    assert read(messages, schema, options) == [(1, None), (2, 0)]
    defaults = {**options, "protobuf.read-default-values": "true"}
    assert read(messages, schema, defaults) == [(1, 7), (2, 0)]
    with pytest.raises(RecordError, match="cannot be written"):
        write([(None, 1)], schema, options)
    with pytest.raises(UnsupportedError, match="column 'g' is a group"):
        read([], Schema.of(("g", t.RowType(()))), options)


def test_a_generated_class_is_found_by_its_import_path():
    options = {"protobuf.message-class-name": "google.protobuf.descriptor_pb2.DescriptorProto.ExtensionRange"}
    schema = Schema.of(("start", t.IntType()), ("end", t.IntType()))
    (message,) = write([(1, 2)], schema, options)
    assert descriptor_pb2.DescriptorProto.ExtensionRange.FromString(message).end == 2
    assert read([message], schema, options) == [(1, 2)]


# -- what goes wrong --------------------------------------------------------------------------


def test_a_broken_message_is_a_bad_record_or_left_out_by_option(options):
    schema = Schema.of(("f_int64", t.BigIntType()))
    good = write([(1,)], schema, options)[0]
    bad = []
    assert (
        read([good, b"\xff", good], schema, options, lambda e, raw, where: bad.append((raw, where)))
        == [(1,)] * 2
    )
    assert bad == [(b"\xff", "message 1")]
    with pytest.raises(RecordError, match="no message 'shop"):
        read([b"\xff"], schema, options)
    assert read([b"\xff", good], schema, {**options, "protobuf.ignore-parse-errors": "true"}) == [(1,)]


def test_values_that_no_column_or_field_holds_are_bad_records(options):
    with pytest.raises(RecordError, match="number 3"):
        read([order(options, kind=3).SerializeToString()], Schema.of(("kind", t.VarCharType())), options)
    assert read([order(options, kind=3).SerializeToString()], Schema.of(("kind", t.IntType())), options) == [
        (3,)
    ]
    big = order(options, f_uint64=2**63).SerializeToString()
    with pytest.raises(RecordError):
        read([big], Schema.of(("f_uint64", t.BigIntType())), options)
    with pytest.raises(RecordError, match="NOT NULL"):
        read([b""], Schema.of(("maybe", t.IntType(nullable=False))), options)
    with pytest.raises(RecordError) as raised:
        write([("HUGE",)], Schema.of(("kind", t.VarCharType())), options)
    assert "NONE, BIG" in raised.value.got
    assert raised.value.where == "column 'kind'"
    with pytest.raises(RecordError, match="cannot be written"):
        write([(-1,)], Schema.of(("f_uint32", t.BigIntType())), options)


def test_null_in_an_array_is_refused_unless_strings_have_a_literal_for_it(options):
    schema = Schema.of(("tags", t.ArrayType(t.VarCharType())))
    with pytest.raises(RecordError, match="NULL in an array"):
        write([(["a", None],)], schema, options)
    given = {**options, "protobuf.write-null-string-literal": "-"}
    assert read(write([(["a", None],)], schema, given), schema, options) == [(["a", "-"],)]
    with pytest.raises(RecordError, match="column 'places'"):
        write([([None],)], Schema.of(("places", t.ArrayType(PLACE))), given)


def test_two_values_of_a_oneof_are_refused(options):
    schema = Schema.of(("cash", t.IntType()), ("card", t.VarCharType()))
    messages = write([(1, None), (None, "x"), (None, None)], schema, options)
    assert read(messages, schema, options) == [(1, None), (None, "x"), (None, None)]
    with pytest.raises(RecordError, match="oneof 'paid'"):
        write([(1, None), (1, "x")], schema, options)


@pytest.mark.parametrize(
    ("column", "type_", "said"),
    [
        ("f_int3", t.IntType(), "no field for column 'f_int3'"),
        ("f_string", t.IntType(), "column for string: STRING"),
        ("f_double", t.FloatType(), "column for double: DOUBLE"),
        ("tags", t.VarCharType(), "ARRAY<STRING>"),
        ("stock", t.ArrayType(t.IntType()), "MAP<STRING, INT>"),
        ("place", t.RowType((t.Field("town", t.VarCharType()),)), "column 'place.town'"),
        ("places", t.ArrayType(t.RowType((t.Field("city", t.IntType()),))), r"column 'places\[\].city'"),
        ("at", t.DateType(), "TIMESTAMP, TIMESTAMP_LTZ or ROW"),
        ("f_uint64", t.DecimalType(10, 0), "DECIMAL"),
    ],
)
def test_columns_that_do_not_fit_are_refused_by_name(options, column, type_, said):
    with pytest.raises(ConnectorError, match=said):
        get_format("protobuf").check(Schema.of((column, type_)), options)


def test_messages_that_cannot_be_found_are_refused(options, tmp_path):
    schema = Schema.of(("f_int32", t.IntType()))

    def refused(said, **given):
        with pytest.raises(ConnectorError, match=said) as raised:
            get_format("protobuf").check(
                schema, {**options, **{f"protobuf.{k}": v for k, v in given.items()}}
            )
        return raised.value

    name = "message-class-name"
    assert "shop.Order" in refused("has no message 'shop.Ordr'", **{name: "shop.Ordr"}).expected
    refused("cannot be read", **{"descriptor-set": str(tmp_path / "none")})
    lacking = descriptor_set('file { name: "a.proto" dependency: "b.proto" }', tmp_path / "lacking.binpb")
    assert "--include_imports" in refused("lacks a file", **{"descriptor-set": str(lacking)}).remedy
    for word in ("no_such_module.Message", "google.protobuf.type_pb2.Feld", "decimal.Decimal"):
        with pytest.raises(ConnectorError, match="is no class of a protobuf message"):
            get_format("protobuf").check(schema, {f"protobuf.{name}": word})
    with pytest.raises(ConnectorError, match="message-class-name' is missing"):
        get_format("protobuf").check(schema, {})


def test_the_example_of_the_documentation_is_planned(tmp_path):
    pytest.importorskip("confluent_kafka", reason="needs penstock[kafka]")
    path = descriptor_set(
        """
        file { name: "shop.proto" package: "shop" syntax: "proto3" dependency: "google/protobuf/timestamp.proto"
          message_type { name: "Purchase"
            field { name: "id" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL }
            field { name: "item" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 proto3_optional: true }
            field { name: "ordered" number: 3 type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" label: LABEL_OPTIONAL }
            field { name: "tags" number: 4 type: TYPE_STRING label: LABEL_REPEATED }
            oneof_decl { name: "_item" } } }
        """,
        tmp_path / "shop.binpb",
    )
    page = (Path(__file__).parents[2] / "docs" / "connectors.md").read_text()
    (script,) = re.findall(r"``` sql\n(.*?)```", page, re.DOTALL)
    results = list(SqlSession().run_script(script.replace("/etc/penstock/shop.binpb", str(path))))
    assert len(results) == 2


def test_many_messages_in_one_are_cut_and_a_broken_length_loses_none_of_those_before():
    messages = [b"", b"a" * 127, b"b" * 128, b"c" * 20_000]
    assert cut(join(messages)) == messages
    data = join(messages)
    assert cut(data[:-1])[:3] == messages[:3]
    assert cut(data[:-1])[3].startswith(b"\0")
    assert cut(join([b"x"]) + b"\xff" * 12)[0] == b"x"

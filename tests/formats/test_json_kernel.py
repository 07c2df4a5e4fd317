"""The compiled JSON decoder gives what the slower ways give, whatever the records are."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.formats.api import FormatContext
from penstock.formats.json import JsonDecoder
from penstock.formats.json_kernel import kernel_of
from penstock.types import Schema
from penstock.types import logical as t
from tests.native.kernels import kernels

__all__ = ["kernels"]

pytestmark = pytest.mark.usefixtures("kernels")

INNER = t.RowType((t.Field("a", t.BigIntType()), t.Field("s", t.VarCharType())))
TYPES = [
    t.TinyIntType(), t.IntType(), t.BigIntType(), t.BooleanType(), t.FloatType(), t.DoubleType(), t.DecimalType(10, 2),
    t.DecimalType(30, 4), t.VarCharType(), t.CharType(3), t.DateType(), t.TimeType(3), t.TimestampType(3),
    t.TimestampType(6), t.TimestampLtzType(3), t.BigIntType(nullable=False), t.VarCharType(nullable=False), INNER,
]  # fmt: skip
#: Values as they stand in a record, right and wrong for each type.
TEXTS = [
    "null", "true", "false", "0", "-0", "1", "-1", "127", "128", "-129", "32768", "2147483647", "2147483648",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "123456789012345678", "1234567890123456789",
    "12345678901234567890123456789", "1.0", "1.5", "-0.0", "0.1", "1.005", "2.675", "1e2", "1E+2", "1e-7", "1e308",
    "1e309", "1e400", "3.4028236e38", "16777217", "01", "1.", ".5", "+1", "-", "NaN", "Infinity", "nul", "tru",
    '""', '"a"', '"ab\\n"', '"\\u00e9"', '"\\ud83d\\ude00"', '"\\ud83d"', '"é"', '"\u2028"', '"a\tb"', '"1"', '" 7 "',
    '"1.5"', '"true"', '"NaN"', '"x', '"2024-02-29"', '"2023-02-29"', '"2024-13-01"', '"9999-12-31"',
    '"2024-02-29 12:34:56"', '"2024-02-29T12:34:56.789"', '"2024-02-29 12:34:56.7891"', '"2024-02-29 12:34:56.7891234"',
    '"2024-02-29 24:00:00"', '"2024-02-29 12:34:60"', '"2024-02-29 12:34:56Z"', '"2024-02-29T12:34:56.5Z"',
    '"2024-02-29 12:34:56+01:00"', '"1969-12-31 23:59:59.9999"', '"12:34:56"', '"12:34:56.789"', '"12:34"', '"25:00:00"',
    "[]", "[1, 2]", '["a"]', "{}", '{"a": 1, "s": "x"}', '{"a":null}', '{"s":"y","a":2,"z":[{}]}', '{"a":1,"a":2}',
    '{"a":"1"}', '{"a":1.5}', "[", "{", "", " ",
]  # fmt: skip
KEYS = ["c", "other", "C", "c\\u0000", "é"]


def decode(schema, messages, *, kernel, lines=False, **options):
    """The rows, and what was rejected: (place, error)."""
    bad = []
    ctx = FormatContext(
        schema, range(len(schema)), options, lambda err, raw, where: bad.append((where, str(err), raw))
    )
    decoder = JsonDecoder(ctx)
    if kernel:
        assert decoder._kernel is not None
    else:
        decoder._kernel = None
    if lines:
        batch = decoder.decode_batch(b"\n".join(messages), "f")
    else:
        batch = decoder.decode(messages, lambda i: f"message {i}")
    return [tuple(map(_comparable, row)) for row in batch.to_pylist()], bad


def _comparable(value):
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else (value, math.copysign(1, value))
    return value


spaces = st.sampled_from(["", "", "", " ", "\t"])
fields = st.tuples(st.sampled_from(KEYS), st.sampled_from(TEXTS), spaces)


@st.composite
def records(draw):
    """Mostly objects, with one key or several, in any order, some of them twice."""
    parts = draw(st.lists(fields, max_size=3))
    text = ",".join(f'{s}"{k}"{s}:{s}{v}{s}' for k, v, s in parts)
    whole = draw(
        st.sampled_from(["{%s}"] * 20 + ["%s", "[{%s}]", "{%s} x", "{%s}}", "{%s", '{"k":{%s}}', " {%s} "])
    )
    return (whole % text).encode()


@settings(max_examples=120, deadline=None)
@given(
    type_=st.sampled_from(TYPES),
    messages=st.lists(records(), min_size=1, max_size=8),
    options=st.sampled_from(
        [{}, {"json.fail-on-missing-field": "true"}, {"json.ignore-parse-errors": "true"}]
    ),
)
def test_any_records(type_, messages, options):
    schema = Schema.of(("c", type_), ("é", t.VarCharType()))
    # Plain records around them: the kernel takes no small batches, and must not disturb their rows.
    plain = [b'{"c":null,"\xc3\xa9":"plain"}'] * 20
    batch = [*plain, *messages, *plain]
    assert decode(schema, batch, kernel=True, **options) == decode(schema, batch, kernel=False, **options)


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_each_value_in_each_type(type_):
    schema = Schema.of(("c", type_), ("n", t.IntType()))
    messages = [f'{{"n":{i},"c":{text}}}'.encode() for i, text in enumerate(TEXTS)]
    assert decode(schema, messages, kernel=True) == decode(schema, messages, kernel=False)
    for text in TEXTS:  # alone among sure ones
        batch = [b'{"n":1,"c":null}'] * 20 + [f'{{"c":{text},"n":5}}'.encode()]
        assert decode(schema, batch, kernel=True) == decode(schema, batch, kernel=False), text


def test_bytes_that_are_no_text_are_left_to_the_slower_ways():
    schema = Schema.of(("c", t.VarCharType()))
    messages = [b'{"c":"ok"}'] * 20 + [b'{"c":"\xff"}', b'{"x":"\xff","c":"y"}']
    assert decode(schema, messages, kernel=True) == decode(schema, messages, kernel=False)


@settings(max_examples=40, deadline=None)
@given(st.lists(records(), min_size=1, max_size=30), st.sampled_from(["", "\n", "\r"]))
def test_lines(messages, end):
    schema = Schema.of(("c", t.BigIntType()), ("é", t.VarCharType()))
    data = [b'{"c":1,"\xc3\xa9":"plain"}'] * 20 + messages + [end.encode()]
    assert decode(schema, data, kernel=True, lines=True) == decode(schema, data, kernel=False, lines=True)


@given(
    st.lists(
        st.tuples(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False)),
        min_size=16,
        max_size=40,
    )
)
@settings(max_examples=40, deadline=None)
def test_numbers_come_back(rows):
    schema = Schema.of(("i", t.BigIntType()), ("d", t.DoubleType()), ("f", t.FloatType()))
    messages = [json.dumps({"i": i, "d": d, "f": d}).encode() for i, d in rows]
    assert decode(schema, messages, kernel=True) == decode(schema, messages, kernel=False)


def test_types_that_the_kernel_does_not_know():
    for type_ in (t.ArrayType(t.IntType()), t.MapType(t.VarCharType(), t.IntType()), t.VarBinaryType()):
        assert kernel_of(Schema.of(("c", type_)), required=False) is None
        nested = t.RowType((t.Field("x", type_),))
        assert kernel_of(Schema.of(("c", nested)), required=False) is None
    assert kernel_of(Schema.of(), required=False) is None

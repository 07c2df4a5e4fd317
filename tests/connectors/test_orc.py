"""ORC files: every type there and back, and those that it has not."""

from datetime import date, datetime
from decimal import Decimal

import pytest

from penstock.errors import UnsupportedError
from penstock.types import Batch, Field, Schema
from penstock.types import logical as t

TYPES = {
    "boolean": (t.BooleanType(), [True, False]),
    "tinyint": (t.TinyIntType(), [-128, 127]),
    "bigint": (t.BigIntType(), [-(2**63), 2**63 - 1]),
    "double": (t.DoubleType(), [-0.0, 1.5e300]),
    "string": (t.VarCharType(), ["", "zoë\n"]),
    "binary": (t.VarBinaryType(), [b"", b"\x00\xff"]),
    "small decimal": (t.DecimalType(10, 2), [Decimal("-99999999.99"), Decimal("0.01")]),
    "large decimal": (t.DecimalType(38, 4), [Decimal("-1234567890123456789012345.6789"), Decimal("0")]),
    "date": (t.DateType(), [date(1900, 1, 1), date(2024, 2, 29)]),
    "timestamp": (t.TimestampType(6), [datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(2024, 1, 1)]),
    "array": (t.ArrayType(t.BigIntType()), [[], [1, None]]),
    "map": (t.MapType(t.VarCharType(), t.BigIntType()), [[], [("a", 1), ("b", None)]]),
    "row": (t.RowType((Field("a", t.BigIntType()), Field("b", t.VarCharType()))), [{"a": 1, "b": "x"}]),
}


@pytest.mark.parametrize("name", TYPES)
async def test_there_and_back(harness, tmp_path, name):
    type_, values = TYPES[name]
    schema = Schema.of(("v", type_))
    options = {"connector": "filesystem", "path": str(tmp_path), "format": "orc"}
    rows = [(v,) for v in [*values, None]]
    writer = await harness.writer(schema, options)
    writer.write(Batch.of(schema, rows))
    await writer.begin_checkpoint(1)
    await writer.commit(1)
    await writer.close()
    assert await harness.read_all(schema, options) == rows


@pytest.mark.parametrize("type_", [t.TimeType(), t.DayTimeIntervalType(), t.ArrayType(t.TimeType())])
def test_types_that_it_has_not(harness, tmp_path, type_):
    options = {"connector": "filesystem", "path": str(tmp_path), "format": "orc"}
    with pytest.raises(UnsupportedError, match="format 'orc' cannot hold column 'v'"):
        harness.connector(Schema.of(("v", type_)), options, role="sink")

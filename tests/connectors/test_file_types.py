"""The type that a file has against the type that is declared: what is read, as what, and what is refused."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from penstock.errors import ConnectorError
from penstock.sql.parsing import parse_type
from penstock.types import Schema

DAY, WHEN = dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 1, 2, 3, 456_000)
UTC = WHEN.replace(tzinfo=dt.UTC)
WHOLE = {"TINYINT": 7, "SMALLINT": 7, "INT": 7, "BIGINT": 7, "FLOAT": 7.0, "DOUBLE": 7.0}
TEXT = {"STRING": "seven", "VARCHAR(9)": "seven", "BYTES": b"seven"}
TIMES = {"TIMESTAMP(3)": WHEN, "TIMESTAMP(6)": WHEN, "TIMESTAMP_LTZ(3)": UTC}
NUMBERS = {"DECIMAL(10, 2)": Decimal("7.00"), "DECIMAL(30, 2)": Decimal("7.00")}

#: What is in the file → {declared type: what is read}; every other declared type is refused.
READS = {
    "bool": (pa.array([True]), {"BOOLEAN": True}),
    "int8": (pa.array([7], pa.int8()), {**WHOLE, **NUMBERS}),
    "int16": (pa.array([7], pa.int16()), {**WHOLE, **NUMBERS}),
    "int32": (pa.array([7], pa.int32()), {**WHOLE, "DECIMAL(30, 2)": Decimal("7.00"), "INTERVAL MONTH": 7}),
    "int64": (pa.array([7]), {**WHOLE, "DECIMAL(30, 2)": Decimal("7.00")}),
    "float": (pa.array([7.5], pa.float32()), {"FLOAT": 7.5, "DOUBLE": 7.5}),
    "double": (pa.array([7.5]), {"DOUBLE": 7.5}),
    "decimal": (pa.array([Decimal("7.00")], pa.decimal128(5, 2)), NUMBERS),
    "string": (pa.array(["seven"]), TEXT),
    "binary": (pa.array([b"seven"]), TEXT),
    "date": (pa.array([DAY]), {"DATE": DAY, **dict.fromkeys(("TIMESTAMP(3)", "TIMESTAMP(6)"), dt.datetime(2024, 2, 29))}),
    "time": (pa.array([dt.time(1, 2, 3)]), {"TIME(3)": dt.time(1, 2, 3)}),
    "timestamp": (pa.array([WHEN], pa.timestamp("us")), TIMES),
    "timestamp of UTC": (pa.array([UTC], pa.timestamp("ms", tz="UTC")), TIMES),
    "duration": (pa.array([dt.timedelta(seconds=7)]), {"INTERVAL SECOND": dt.timedelta(seconds=7)}),
    "list": (pa.array([[7]]), {"ARRAY<BIGINT>": [7], "ARRAY<INT>": [7]}),
    "map": (pa.array([[("a", 7)]], pa.map_(pa.string(), pa.int64())), {"MAP<STRING, BIGINT>": [("a", 7)]}),
    "struct": (pa.array([{"a": 7}]), {"ROW<a BIGINT>": {"a": 7}}),
}  # fmt: skip
DECLARED = sorted(
    {d for _, reads in READS.values() for d in reads} | {"ROW<a TIMESTAMP(3)>", "ARRAY<STRING>"}
)
NOT_IN_ORC = ("time", "duration")
NEITHER = ("TIME(3)", "INTERVAL SECOND", "INTERVAL MONTH")


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("format_", ["parquet", "orc"])
async def test_what_is_read_as_what(harness, tmp_path, name, format_):
    array, reads = READS[name]
    if format_ == "orc" and name in NOT_IN_ORC:
        pytest.skip("ORC has no such type")
    write = pq.write_table if format_ == "parquet" else orc.write_table
    write(pa.table({"v": array}), tmp_path / "file")
    options = {"connector": "filesystem", "path": str(tmp_path / "file"), "format": format_}
    for declared in DECLARED:
        if format_ == "orc" and declared in NEITHER:
            continue
        schema = Schema.of(("v", parse_type(declared)))
        if declared in reads:
            assert await harness.read_all(schema, options) == [(reads[declared],)], declared
        else:
            with pytest.raises(ConnectorError, match="column 'v' is of another type") as refused:
                await harness.read_all(schema, options)
            assert refused.value.where == str(tmp_path / "file"), declared


async def test_a_number_for_a_time_says_how(harness, tmp_path):
    pq.write_table(pa.table({"at": [1_700_000_000_000]}), tmp_path / "file")
    options = {"connector": "filesystem", "path": str(tmp_path / "file"), "format": "parquet"}
    with pytest.raises(ConnectorError) as refused:
        await harness.read_all(Schema.of(("at", parse_type("TIMESTAMP(3)"))), options)
    assert "TO_TIMESTAMP_LTZ(at, 3)" in refused.value.remedy


@pytest.mark.parametrize("format_", ["parquet", "orc"])
@pytest.mark.parametrize(("damage", "message"), [("cut short", "is no"), ("overwritten", "is damaged")])
async def test_a_file_that_is_not_whole(harness, tmp_path, format_, damage, message):
    path = tmp_path / "file"
    table = pa.table({"v": [f"{i * i}" for i in range(5000)]})
    if format_ == "parquet":
        pq.write_table(table, path, compression="zstd")
    else:
        orc.write_table(table, path, compression="zstd")
    data = path.read_bytes()
    middle = len(data) // 3
    path.write_bytes(
        data[:middle] if damage == "cut short" else data[:100] + b"\xff" * middle + data[100 + middle :]
    )
    options = {"connector": "filesystem", "path": str(path), "format": format_}
    with pytest.raises(ConnectorError, match=message) as refused:
        await harness.read_all(Schema.of(("v", parse_type("STRING"))), options)
    assert str(path) in refused.value.message


@pytest.mark.parametrize("year", [1, 1582, 9999])
async def test_a_time_that_arrow_cannot_read_from_orc_is_not_called_damage(harness, tmp_path, year):
    orc.write_table(
        pa.table({"at": pa.array([dt.datetime(year, 1, 1)], pa.timestamp("us"))}), tmp_path / "file"
    )
    options = {"connector": "filesystem", "path": str(tmp_path / "file"), "format": "orc"}
    with pytest.raises(ConnectorError, match="cannot be read from ORC") as refused:
        await harness.read_all(Schema.of(("at", parse_type("TIMESTAMP(6)"))), options)
    assert refused.value.where == str(tmp_path / "file")
    assert "2262" in refused.value.expected

import datetime as dt
import io
import json
from decimal import Decimal

import pytest

from penstock.cli.output import text_of, write_rows
from penstock.functions.value_json import json_of
from penstock.types import Schema
from penstock.types import logical as t

SCHEMA = Schema.of(
    ("id", t.BigIntType()),
    ("name", t.VarCharType()),
    ("at", t.TimestampType(3)),
    ("price", t.DecimalType(10, 2)),
)
ROWS = [(1, "a", dt.datetime(2024, 1, 2, 3, 4, 5, 6000), Decimal("1.50")), (2, None, None, None)]


@pytest.mark.parametrize(
    ("value", "type_", "text"),
    [
        (Decimal("0E-8"), t.DecimalType(10, 8), "0.00000000"),
        ([Decimal("1E-7")], t.ArrayType(t.DecimalType(10, 7)), "[0.0000001]"),
        (None, None, "NULL"),
        (True, None, "TRUE"),
        (dt.datetime(2024, 1, 2, 3, 4, 5, 678900), t.TimestampType(3), "2024-01-02 03:04:05.678"),
        (dt.datetime(2024, 1, 2, 3, 4, 5), t.TimestampType(0), "2024-01-02 03:04:05"),
        ([1, None], t.ArrayType(t.IntType()), "[1, NULL]"),
        ([("k", 1)], t.MapType(t.VarCharType(), t.IntType()), "{k=1}"),
        ({"a": 1, "b": None}, None, "(1, NULL)"),
        (b"\x01\xff", None, "x'01ff'"),
    ],
)
def test_text(value: object, type_: t.LogicalType | None, text: str) -> None:
    assert text_of(value, type_) == text


def test_json_of_nested_and_special_values() -> None:
    assert json_of(float("nan")) == "NaN"
    assert json_of(Decimal("1.50")) == "1.50"
    assert json_of([("k", 1)], t.MapType(t.VarCharType(), t.IntType())) == {"k": 1}


def test_json_lines() -> None:
    out = io.StringIO()
    assert write_rows(SCHEMA, ROWS, "json", out) == 2
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert lines[0] == {"id": 1, "name": "a", "at": "2024-01-02 03:04:05.006", "price": "1.50"}
    assert lines[1]["name"] is None


def test_csv() -> None:
    out = io.StringIO()
    write_rows(SCHEMA, ROWS, "csv", out)
    assert out.getvalue() == "id,name,at,price\n1,a,2024-01-02 03:04:05.006,1.50\n2,,,\n"


def test_table_shows_headers_rows_and_their_number() -> None:
    out = io.StringIO()
    write_rows(SCHEMA, ROWS, "table", out)
    text = out.getvalue()
    assert "| id | name |" in text
    assert "2 rows in set" in text


def test_floats_and_intervals_in_every_form():
    row = t.RowType((t.Field("a", t.FloatType()),))
    value = 320.1000061035156
    assert text_of(value, t.FloatType()) == "320.1"
    assert text_of(value, t.DoubleType()) == "320.1000061035156"
    assert text_of([value], t.ArrayType(t.FloatType())) == "[320.1]"
    assert text_of({"a": value}, row) == "(320.1)"
    assert json_of([value], t.ArrayType(t.FloatType())) == [320.1]
    assert json_of({"a": value}, row) == {"a": 320.1}
    assert json_of(14, t.YearMonthIntervalType()) == "+1-02"
    assert json_of(dt.timedelta(days=1), t.DayTimeIntervalType()) == "+1 00:00:00.000"


def test_a_table_in_a_pipe_is_not_cut():
    out = io.StringIO()
    schema = t.Schema.of(*((f"c{i}", t.VarCharType()) for i in range(12)))
    write_rows(schema, [["x" * 40] * 12], "table", out)
    lines = out.getvalue().splitlines()
    assert any(line.count("x" * 40) == 12 for line in lines)
    assert max(map(len, lines)) < 700


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e10, "1.0E10"), (1e-5, "1.0E-5"), (320.1, "320.1"), (float("nan"), "NaN"), (-0.0, "-0.0")],
)
def test_numbers_are_spelled_as_java_does(value: float, text: str) -> None:
    assert text_of(value, t.DoubleType()) == text_of(value, t.FloatType()) == text
    assert text_of([value], t.ArrayType(t.DoubleType())) == f"[{text}]"


AT = dt.datetime(2024, 7, 1, 22, 30, 0, 500_000, tzinfo=dt.UTC)
LTZ = t.TimestampLtzType(3)
ZONED = Schema.of(
    ("at", LTZ),
    ("list", t.ArrayType(LTZ)),
    ("map", t.MapType(t.VarCharType(), LTZ)),
    ("row", t.RowType((t.Field("a", LTZ),))),
    ("plain", t.TimestampType(3)),
)
ZONED_ROW = (AT, [AT], [("k", AT)], {"a": AT}, AT.replace(tzinfo=None))


@pytest.mark.parametrize(
    ("zone", "shown"),
    [
        ("UTC", "2024-07-01 22:30:00.500"),
        ("Europe/Berlin", "2024-07-02 00:30:00.500"),
        ("America/New_York", "2024-07-01 18:30:00.500"),
        ("GMT+05:30", "2024-07-02 04:00:00.500"),
    ],
)
def test_instants_are_shown_in_the_sessions_time_zone(zone: str, shown: str) -> None:
    config, plain = {"table.local-time-zone": zone}, "2024-07-01 22:30:00.500"
    written = {}
    for format_ in ("table", "csv", "json"):
        out = io.StringIO()
        write_rows(ZONED, [ZONED_ROW], format_, out, config)
        written[format_] = out.getvalue()
    values = [shown, f"[{shown}]", f"{{k={shown}}}", f"({shown})", plain]
    assert "| " + " | ".join(values) + " |" in written["table"]
    assert written["csv"].splitlines()[1] == ",".join(values)
    assert json.loads(written["json"]) == {
        "at": shown, "list": [shown], "map": {"k": shown}, "row": {"a": shown}, "plain": plain
    }  # fmt: skip


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("width", "cut"), [(None, "x" * 29 + "…"), ("5", "xxxx…"), ("40", "x" * 40)])
def test_a_terminal_shows_the_start_of_long_values(
    width: str | None, cut: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    schema = Schema.of(
        ("s", t.VarCharType()), ("a", t.ArrayType(t.VarCharType())), ("at", t.TimestampType(6))
    )
    row = ("x" * 40, ["y" * 60], dt.datetime(2024, 1, 2))
    config = {} if width is None else {"sql-client.display.max-column-width": width}
    out = Terminal()
    write_rows(schema, [row], "table", out, config)
    assert f" {cut} " in out.getvalue()
    assert "y" * 60 not in out.getvalue()
    assert "2024-01-02 00:00:00.000000" in out.getvalue()  # a type of fixed length is never cut
    for format_ in ("table", "csv"):
        pipe = io.StringIO()
        write_rows(schema, [row], format_, pipe, config)
        assert "x" * 40 in pipe.getvalue()
        assert "y" * 60 in pipe.getvalue()

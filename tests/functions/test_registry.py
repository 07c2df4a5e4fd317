"""The registry as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import SqlError
from penstock.functions.aggregates import known_aggregates
from penstock.functions.expr import Call, InputRef, Literal
from penstock.functions.registry import field_access, is_deterministic, known_functions, lookup, make_call
from penstock.types import logical as t

DOCS = Path(__file__).parents[2] / "docs" / "functions.md"
TS = InputRef(0, t.TimestampLtzType(3))


def test_documented() -> None:
    words = DOCS.read_text(encoding="utf-8").replace("\\|", "|")
    assert [name for name in [*known_functions(), *known_aggregates()] if name not in words] == []


def test_every_function_can_run() -> None:
    assert [n for n in known_functions() if not (lookup(n).bind or lookup(n).form)] == []


def test_zone_is_carried_by_the_calls_that_need_it() -> None:
    hour = make_call("HOUR", [TS], zone="America/New_York")
    assert isinstance(hour, Call)
    assert [a.value for a in hour.args if isinstance(a, Literal)] == ["America/New_York"]
    assert len(make_call("HOUR", [TS]).args) == 1  # type: ignore[union-attr]
    cast = make_call("CAST", [TS], type=t.VarCharType(), zone="Asia/Tokyo")
    assert cast.args[1].value == "Asia/Tokyo"  # type: ignore[union-attr]
    with pytest.raises(SqlError, match="unknown time zone"):
        make_call("HOUR", [TS], zone="Bogus/Zone")


def test_aliases_have_one_name() -> None:
    number = InputRef(0, t.IntType())
    assert make_call("MOD", [number, number]) == make_call("%", [number, number])
    assert make_call("substr", [InputRef(0, t.VarCharType()), number]).function == "SUBSTRING"  # type: ignore[union-attr]


def test_determinism() -> None:
    rand = make_call("RAND", [])
    assert not is_deterministic(make_call("+", [rand, rand]))
    assert is_deterministic(make_call("ABS", [InputRef(0, t.IntType())]))


def test_field_access() -> None:
    row = InputRef(0, t.RowType((t.Field("city", t.IntType(nullable=False)),)))
    assert str(field_access(row, "city").type) == "INT"
    with pytest.raises(SqlError) as caught:
        field_access(row, "cty", line=1, column=9)
    assert caught.value.remedy == "did you mean 'city'?"
    assert caught.value.where == "line 1, column 9"

"""``faker``: values are a function of the seed and the row's number."""

from __future__ import annotations

import datetime as dt
import re

import pytest

from penstock.connectors.base import TableInfo
from penstock.connectors.faker.fields import makers_of
from penstock.connectors.registry import get_connector, validate_table
from penstock.errors import ConnectorError
from penstock.testing.conformance import SourceConformance
from penstock.types import Batch, Schema
from penstock.types import logical as t

SCHEMA = Schema.of(("name", t.VarCharType()), ("age", t.IntType()))
OPTIONS = {
    "connector": "faker",
    "number-of-rows": "60",
    "rows-per-second": "0",
    "fields.name.expression": "#{name.fullName}",
    "fields.age.expression": "#{number.numberBetween '18','99'}",
}


def first_rows(schema, options, count):
    info = TableInfo(schema, options)
    columns = [maker.column(int(options.get("seed", 42)), range(count)) for maker in makers_of(info)]
    return Batch(schema, columns, num_rows=count).to_pylist()


class TestFakerSource(SourceConformance):
    schema = SCHEMA

    def connector(self):
        return get_connector("faker")

    def options(self):
        return OPTIONS

    def expected(self):
        return first_rows(SCHEMA, OPTIONS, 60)


def column(type_, expression, count=200, **more):
    schema = Schema.of(("x", type_))
    settings = {f"fields.x.{k.replace('_', '-')}": v for k, v in more.items()}
    options = {"connector": "faker", "fields.x.expression": expression, **settings}
    validate_table(schema, options, role="source")
    return [row[0] for row in first_rows(schema, options, count)]


@pytest.mark.parametrize(
    ("expression", "matched"),
    [
        ("#{Internet.ipV4Address}", r"\d+\.\d+\.\d+\.\d+"),
        ("#{internet.emailAddress}", r"[^@]+@[^@]+"),
        ("order #{number.digits '4'}/#{options.option 'a','b c'}", r"order \d{4}/(a|b c)"),
        ("#{regexify '(red|blue){1,2}[0-9]{3}'}", r"(red|blue){1,2}[0-9]{3}"),
        ("#{license_plate}", r".+"),
        ("plain", r"plain"),
    ],
)
def test_texts_match_what_they_say(expression, matched):
    made = column(t.VarCharType(), expression)
    assert all(re.fullmatch(matched, text) for text in made)


def test_numbers_times_and_collections():
    assert set(column(t.IntType(), "#{number.numberBetween '0','3'}")) == {0, 1, 2}
    assert set(column(t.BooleanType(), "#{bool.bool}")) == {True, False}
    assert all(0.5 <= x <= 1.5 for x in column(t.DoubleType(), "#{number.randomDouble '3','0.5','1.5'}"))
    now = dt.datetime.now(dt.UTC).replace(tzinfo=None)
    assert all(
        now - dt.timedelta(seconds=70) < x <= now + dt.timedelta(seconds=60)
        for x in column(t.TimestampType(3), "#{date.past '60','SECONDS'}", 20)
    )
    made = column(t.ArrayType(t.IntType()), "#{number.numberBetween '0','9'}", 20, length="3")
    assert all(len(x) == 3 for x in made)
    assert len({x[0] for x in made}) > 1
    nulls = sum(x is None for x in column(t.VarCharType(), "#{name.lastName}", 400, null_rate="0.5"))
    assert 120 < nulls < 280


def test_rows_and_maps_have_expressions_for_their_parts():
    address = t.RowType((t.Field("city", t.VarCharType()), t.Field("zip", t.IntType())))
    schema = Schema.of(("home", address), ("tags", t.MapType(t.VarCharType(nullable=False), t.IntType())))
    options = {
        "connector": "faker",
        "fields.home.city.expression": "#{address.city}",
        "fields.home.zip.expression": "#{number.numberBetween '10000','99999'}",
        "fields.tags.key.expression": "#{options.option 'a'}",
        "fields.tags.value.expression": "7",
    }
    validate_table(schema, options, role="source")
    [(home, tags), *_] = first_rows(schema, options, 3)
    city, code = home if isinstance(home, tuple) else (home["city"], home["zip"])
    assert isinstance(city, str)
    assert 10_000 <= code < 99_999
    assert dict(tags) == {"a": 7}


def test_another_seed_and_locale_make_other_rows():
    german = {**OPTIONS, "locale": "de_DE"}
    assert first_rows(SCHEMA, OPTIONS, 20) == first_rows(SCHEMA, OPTIONS, 20)
    assert first_rows(SCHEMA, OPTIONS, 20) != first_rows(SCHEMA, {**OPTIONS, "seed": "1"}, 20)
    assert first_rows(SCHEMA, OPTIONS, 20) != first_rows(SCHEMA, german, 20)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"fields.name.expression": "#{name.fulName}"}, "faker has no 'name.fulName'"),
        ({"fields.age.expression": "#{name.fullName}"}, "makes no INT"),
        ({"fields.age.expression": "#{number.numberBetween '9'}"}, "arguments"),
        ({"fields.nam.expression": "x"}, "unknown option 'fields.nam.expression'"),
        ({"locale": "xx_YY"}, "there is no 'xx_YY'"),
        ({"fields.name.expression": "#{name.fullName"}, "has no end"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(more, said):
    with pytest.raises(ConnectorError, match=said):
        validate_table(SCHEMA, {**OPTIONS, **more}, role="source")

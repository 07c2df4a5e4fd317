"""VARIANT: its stored form, its elements, its casts, and what is refused. Rows on both engines: tests/golden."""

from __future__ import annotations

import pytest

from penstock.errors import PenstockError
from penstock.functions.variant import canonical
from penstock.sql.session import SqlSession
from penstock.testing import run_graph

CANONICAL = {
    " null ": "null",
    "true": "true",
    "-0": "0",
    "-0.0": "0",
    "7.0": "7",
    "1.50": "1.5",
    "100": "100",
    "1.5e3": "1500.0",
    "1E10": "1.0E10",
    "9" * 38: "9" * 38,
    "9" * 39: "1.0E39",
    "0." + "0" * 37 + "1": "0." + "0" * 37 + "1",
    "0." + "0" * 38 + "1": "1.0E-39",
    '{"b": 1, "a": [ ]}': '{"a":[],"b":1}',
    '{"\ue000": 1, "\U0001f600": 2}': '{"\U0001f600":2,"\ue000":1}',
    '"\\u00e4\\n\\""': '"ä\\n\\""',
}
BROKEN = {
    "": "Expecting value",
    "{": "Expecting property",
    "NaN": "NaN is no JSON",
    "-Infinity": "-Infinity is no JSON",
    "1e400": "outside DOUBLE's range",
    "[1,]": "Expecting|Illegal",
    '{"a":1,"a":2}': "the key 'a' is there twice",
    '"\\ud800"': "surrogates",
    "[" * 100_000: "nested too deeply",
    "1 2": "Extra data",
    "01": "Extra data",
}


@pytest.mark.parametrize("text", CANONICAL)
def test_the_stored_form(text: str) -> None:
    made = canonical(text)
    assert made == CANONICAL[text]
    # As in Flink, the JSON text of a double without an exponent is read again as an exact number.
    assert canonical(made) == made.removesuffix(".0")


@pytest.mark.parametrize("text", BROKEN, ids=lambda text: text[:12])
def test_what_is_no_document(text: str) -> None:
    with pytest.raises(ValueError, match=BROKEN[text]):
        canonical(text)


def value(expression: str) -> object:
    session = SqlSession()
    [row] = run_graph(session.execute(f"SELECT {expression} FROM (VALUES (1)) AS t(x)").job.job_graph).rows
    return row[0]


CASTS = {
    "CAST(PARSE_JSON('7.0') AS INT)": 7,
    "CAST(PARSE_JSON('null') AS INT)": None,
    "TRY_CAST(PARSE_JSON('7.2') AS INT)": None,
    "TRY_CAST(PARSE_JSON('128') AS TINYINT)": None,
    "CAST(PARSE_JSON('-128') AS TINYINT)": -128,
    "TRY_CAST(PARSE_JSON('\"7\"') AS INT)": None,
    "TRY_CAST(PARSE_JSON('true') AS INT)": None,
    "TRY_CAST(PARSE_JSON('1') AS BOOLEAN)": None,
    "CAST(CAST(PARSE_JSON('42') AS DECIMAL(5, 2)) AS STRING)": "42.00",
    "TRY_CAST(PARSE_JSON('1.555') AS DECIMAL(5, 2))": None,
    "TRY_CAST(PARSE_JSON('1234') AS DECIMAL(5, 2))": None,
    "CAST(CAST(PARSE_JSON('12345678901234567890123456789012345678') AS DECIMAL(38, 0)) AS STRING)": "12345678901234567890123456789012345678",
    "CAST(PARSE_JSON('1.5') AS DOUBLE)": 1.5,
    "TRY_CAST(PARSE_JSON('1e40') AS FLOAT)": None,
    "CAST(PARSE_JSON('1.5e3') AS STRING)": "1500.0",
    "CAST(PARSE_JSON('true') AS STRING)": "TRUE",
    "CAST(PARSE_JSON('\"Hello\"') AS VARCHAR(2))": "He",
    "CAST(PARSE_JSON('\"a\"') AS CHAR(3))": "a  ",
    "TRY_CAST(PARSE_JSON('\"2020-01-01\"') AS DATE)": None,
    "JSON_STRING(PARSE_JSON('[1, null]')[2])": "null",
    "JSON_STRING(PARSE_JSON('[1]')[0])": None,
    "JSON_STRING(PARSE_JSON('{\"a\":1}')['b'])": None,
    'JSON_STRING(PARSE_JSON(\'{"a":1,"a":2}\', TRUE))': '{"a":2}',
    'TRY_PARSE_JSON(\'{"a":1,"a":2}\') IS NULL': True,
    "PARSE_JSON('null') IS NULL": False,
    "JSON_OBJECT('v' VALUE PARSE_JSON('[1,{}]'))": '{"v":[1,{}]}',
    "TYPEOF(PARSE_JSON('1'))": "VARIANT NOT NULL",
}


@pytest.mark.parametrize("expression", CASTS)
def test_values(expression: str) -> None:
    assert value(expression) == CASTS[expression]


REFUSED = {
    "CAST(PARSE_JSON('7.2') AS INT)": "a VARIANT that is a number to INT",
    "CAST(PARSE_JSON('[]') AS STRING)": "a VARIANT that is an array to STRING",
    "PARSE_JSON('{')": "PARSE_JSON",
    "PARSE_JSON('1')['a']": "a VARIANT that is a number has no element",
    "PARSE_JSON('{}')[1]": "a VARIANT that is an object has no element",
    "PARSE_JSON('1') = PARSE_JSON('1')": "cannot",
    "PARSE_JSON('1') < 2": "cannot",
    "PARSE_JSON('1') IS DISTINCT FROM PARSE_JSON('1')": "cannot",
    "PARSE_JSON('1') IN (PARSE_JSON('1'))": "cannot",
    "GREATEST(PARSE_JSON('1'), PARSE_JSON('2'))": "cannot",
    "NULLIF(PARSE_JSON('1'), PARSE_JSON('2'))": "cannot",
    "ROW(PARSE_JSON('1'), 1) = ROW(PARSE_JSON('1'), 1)": "cannot",
    "PARSE_JSON('1') BETWEEN PARSE_JSON('1') AND PARSE_JSON('2')": "cannot",
    "PARSE_JSON('1') IN (SELECT PARSE_JSON('1'))": "cannot",
    "1 FROM (VALUES (1)) AS a(y) JOIN (SELECT PARSE_JSON('1') AS v) AS b ON b.v = PARSE_JSON('1') --": "cannot",
    "ARRAY_SORT(ARRAY[PARSE_JSON('1')])": "cannot",
    "ARRAY_MAX(ARRAY[PARSE_JSON('1')])": "cannot",
    "MAX(PARSE_JSON('1'))": "MAX",
    "CAST(1 AS VARIANT)": "cannot cast",
    "CAST(PARSE_JSON('[1]') AS ARRAY<INT>)": "cannot cast",
    "ROW_NUMBER() OVER (ORDER BY PARSE_JSON('1'))": "a VARIANT has no order",
    "1 FROM (VALUES (1)) AS s(y) ORDER BY PARSE_JSON('1') --": "a VARIANT has no order",
}


@pytest.mark.parametrize("expression", REFUSED)
def test_what_is_refused(expression: str) -> None:
    with pytest.raises(PenstockError, match=REFUSED[expression]):
        value(expression)


@pytest.mark.parametrize(
    "options",
    [
        "'connector' = 'filesystem', 'path' = '/x', 'format' = 'csv'",
        "'connector' = 'jdbc', 'url' = 'jdbc:sqlite:x'",
    ],
)
def test_a_table_that_cannot_hold_a_variant_is_refused(options: str) -> None:
    with pytest.raises(PenstockError, match="column 'v' of type VARIANT"):
        SqlSession().execute(f"CREATE TABLE t (id INT, v ARRAY<VARIANT>) WITH ({options})")

"""Every recorded answer of Flink to an expression, type and value.

``flink_exceptions.csv`` lists where ours differs: *deliberate* ones with our answer, which
is asserted too, and *open* ones.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest
from sqlglot.errors import SqlglotError

from penstock.errors import PenstockError
from penstock.functions.evaluate import compile_expr
from penstock.functions.registry import make_call
from penstock.sql.dialect import Flink, flink_parser
from penstock.sql.errors import Source
from penstock.sql.expressions import ExpressionBinder
from penstock.sql.scope import Relation
from penstock.types.batch import Batch
from penstock.types.logical import IntType, Schema, VarCharType

ACCEPTANCE = os.environ.get("PENSTOCK_ACCEPTANCE")
ONE_ROW = Batch.of(Schema.of(("x", IntType())), [(1,)])
#: Flink prints the unit of an interval, ours the kind; 9 digits of a second are 6 here.
_SPELLING = {"INTERVAL SECOND(3)": "INTERVAL DAY TO SECOND(3)", "INTERVAL MONTH": "INTERVAL YEAR TO MONTH"}


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


EXCEPTIONS = {r["id"]: r for r in _rows(Path(__file__).with_name("flink_exceptions.csv"))}
CASES = _rows(Path(ACCEPTANCE) / "flink_functions" / "expressions.csv") if ACCEPTANCE else []


def answer(sql: str, zone: str) -> tuple[str, str]:
    """(type, text of CAST(sql AS STRING)); ``ERROR`` when it fails, at whatever stage."""
    text = f"SELECT {sql}"
    try:
        tree = flink_parser().parse(Flink().tokenize(text), text)[0]
        bound = ExpressionBinder(Relation(None, ()), Source(text), zone=zone).bind(tree.expressions[0])
        as_text = make_call("CAST", [bound], type=VarCharType(), zone=zone)
        value = compile_expr(as_text)(ONE_ROW).to_pylist()[0]
    except (PenstockError, SqlglotError):
        return "", "ERROR"
    return str(bound.type), "\\N" if value is None else value


@pytest.mark.skipif(not ACCEPTANCE, reason="PENSTOCK_ACCEPTANCE is not set")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_expression(case: dict[str, str]) -> None:
    zone = "America/New_York" if case["group"].endswith("new_york") else "UTC"
    exception = EXCEPTIONS.get(case["id"])
    type_, result = answer(case["sql"], zone)
    if exception is not None and exception["status"] == "deliberate":
        assert (type_, result) == (exception["type"], exception["result"]), exception["reason"]
        return
    want = case["type"]
    for theirs, ours in _SPELLING.items():
        want = want.replace(theirs, ours)
    right = result == case["result"] and (result == "ERROR" or type_ == want)
    if exception is not None and not right:
        pytest.xfail(exception["reason"])
    assert (type_, result) == (want if result != "ERROR" else "", case["result"])


def test_exceptions_have_reasons() -> None:
    assert all(e["reason"] and e["status"] in ("deliberate", "open") for e in EXCEPTIONS.values())

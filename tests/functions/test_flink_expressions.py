"""Every recorded answer of Flink to an expression, type and value.

``flink_exceptions.csv`` lists where ours differs: *deliberate* ones with our answer, which
is asserted too, and *open* ones.
"""

from __future__ import annotations

import csv
from pathlib import Path

import msgspec
import numpy as np
import pytest
from sqlglot.errors import SqlglotError

from penstock.errors import PenstockError, RecordError
from penstock.functions.evaluate import compile_expr
from penstock.functions.expr import Call, Expr, InputRef, Literal
from penstock.functions.registry import make_call
from penstock.functions.vector import Scalar
from penstock.sql.dialect import Flink, flink_parser
from penstock.sql.errors import Source
from penstock.sql.expressions import ExpressionBinder
from penstock.sql.scope import Relation
from penstock.types.batch import Batch
from penstock.types.column import Column
from penstock.types.logical import IntType, Schema, VarCharType
from tests.recorded import EXPRESSIONS

ONE_ROW = Batch.of(Schema.of(("x", IntType())), [(1,)])
#: Flink prints the unit of an interval, ours the kind; 9 digits of a second are 6 here.
_SPELLING = {"INTERVAL SECOND(3)": "INTERVAL DAY TO SECOND(3)", "INTERVAL MONTH": "INTERVAL YEAR TO MONTH"}


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


EXCEPTIONS = {r["id"]: r for r in _rows(Path(__file__).with_name("flink_exceptions.csv"))}
CASES = _rows(EXPRESSIONS)


def bind(sql: str, zone: str) -> Expr:
    text = f"SELECT {sql}"
    tree = flink_parser().parse(Flink().tokenize(text), text)[0]
    return ExpressionBinder(Relation(None, ()), Source(text), zone=zone).bind(tree.expressions[0])


def texts(expr: Expr, zone: str, batch: Batch) -> list[str | None]:
    """Text of CAST(expr AS STRING) a row."""
    return compile_expr(make_call("CAST", [expr], type=VarCharType(), zone=zone))(batch).to_pylist()


def answer(sql: str, zone: str) -> tuple[str, str]:
    """(type, text of CAST(sql AS STRING)); ``ERROR`` when it fails, at whatever stage."""
    try:
        bound = bind(sql, zone)
        value = texts(bound, zone, ONE_ROW)[0]
    except (PenstockError, SqlglotError):
        return "", "ERROR"
    return str(bound.type), "\\N" if value is None else value


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


#: Arguments that have to be constants, by position.
CONSTANT_ARGS = {
    "EXTRACT": {0, 2}, "FLOOR": {1, 2}, "CEIL": {1, 2}, "TIMESTAMPADD": {0}, "TIMESTAMPDIFF": {0}, "TRIM": {0},
    "JSON_VALUE": {2, 3, 4, 5}, "JSON_QUERY": {2, 3, 4}, "JSON_EXISTS": {2}, "JSON_OBJECT": {0}, "JSON_ARRAY": {0},
    "CAST": {1}, "TRY_CAST": {1}, "TO_TIMESTAMP_LTZ": {1, 2}, "UNIX_TIMESTAMP": {1, 2}, "FROM_UNIXTIME": {1, 2},
    "DATE_FORMAT": {2}, "HOUR": {1},
}  # fmt: skip


def columnised(expr: Expr, constants: list[Scalar]) -> Expr:
    """The expression with its constants as columns."""
    if not isinstance(expr, Call):
        return expr
    args: list[Expr] = []
    for i, arg in enumerate(expr.args):
        if isinstance(arg, Literal) and i not in CONSTANT_ARGS.get(expr.function, ()):
            constants.append(Scalar.of_literal(arg))
            args.append(InputRef(len(constants) - 1, arg.type.with_nullable(True)))
        else:
            args.append(columnised(arg, constants))
    return msgspec.structs.replace(expr, args=tuple(args))


@pytest.mark.parametrize("group", sorted({c["group"] for c in CASES}))
def test_columns_answer_as_constants(group: str) -> None:
    """Over a slice of columns, with a row of NULLs between, each row gives what the constant gives."""
    zone = "America/New_York" if group.endswith("new_york") else "UTC"
    wrong = []
    for case in (
        c for c in CASES if c["group"] == group and "RAND" not in c["sql"] and "NaN" not in c["sql"]
    ):
        result = answer(case["sql"], zone)[1]
        if result == "ERROR":
            continue
        constants: list[Scalar] = []
        expr = columnised(bind(case["sql"], zone), constants)
        if not constants:
            continue
        columns = [
            Column.concat(
                [
                    Column.constant(c.type, c.value, 2),
                    Column.nulls(c.type, 1),
                    Column.constant(c.type, c.value, 1),
                ]
            )
            for c in constants
        ]
        schema = Schema.of(*((f"c{i}", c.type) for i, c in enumerate(constants)))
        batch = Batch(schema, columns).slice(1)
        try:
            first, _, last = texts(expr, zone, batch)
        except RecordError as error:
            if error.got != "NULL":
                raise
            # The key of a map or a JSON object refuses to be NULL.
            first, last = texts(expr, zone, batch.take(np.array([0, 2])))
        assert texts(expr, zone, batch.slice(0, 0)) == []
        want = None if result == "\\N" else result
        if (first, last) != (want, want):
            wrong.append((case["sql"], want, first, last))
    assert wrong == []

"""Flink's recorded answers (``tests/recorded.py``) on Spark.

The streaming engine's answers are held against them in tests/functions/test_flink_*.py and
tests/sql/test_flink_aggregates.py, with lists of where both engines differ from Flink. Here
every expression runs on Spark over columns, many in one job, be it Spark's own or carried
through our evaluator; and every aggregate, set operation and ordered query. What differs is
listed in ``recorded_exceptions.csv``, with its reason.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.errors import PenstockError
from penstock.functions.evaluate import compile_expr
from penstock.functions.expr import Expr, InputRef, shift_refs
from penstock.functions.registry import is_deterministic, make_call
from penstock.functions.vector import Scalar
from penstock.jobgraph.specs import CalcSpec
from penstock.spark.engine import SparkJob
from penstock.spark.expressions import native
from penstock.spark.frames import Frame
from penstock.spark.partition_program import JobContext
from penstock.spark.sinks import collected
from penstock.spark.sources import calc_in_python, of_batch
from penstock.spark.support import spark_support
from penstock.sql.session import SqlSession
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column
from tests.functions import test_flink_expressions as expressions
from tests.golden.engines import spark_graph
from tests.sql import test_flink_aggregates as aggregates

#: Expressions of one Spark job: more make its generated code too long.
CHUNK = 120


def exceptions() -> dict[str, str]:
    """Id → why Spark's answer is not the recorded one (nor one that both engines give)."""
    with Path(__file__).with_name("recorded_exceptions.csv").open(newline="", encoding="utf-8") as file:
        return {row["id"]: row["reason"] for row in csv.DictReader(file)}


# -- expressions -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Columnised:
    """A recorded expression over columns that hold its constants, a NULL, and them again."""

    id: str
    expr: Expr
    columns: list[Column]
    zone: str
    #: Text of CAST(… AS STRING), where it is a value; and what we give for the three rows.
    recorded: str | None
    ours: list[Any]


def _constants_column(constant: Scalar) -> Column:
    value = Column.constant(constant.type, constant.value, 1)
    return Column.concat([value, Column.nulls(constant.type, 1), value])


def columnised() -> Iterator[Columnised]:
    for case in expressions.CASES:
        known = expressions.EXCEPTIONS.get(case["id"])
        recorded = (
            known["result"] if known is not None and known["status"] == "deliberate" else case["result"]
        )
        if recorded == "ERROR":
            continue
        zone = "America/New_York" if case["group"].endswith("new_york") else "UTC"
        constants: list[Scalar] = []
        try:
            expr = expressions.columnised(expressions.bind(case["sql"], zone), constants)
            columns = [_constants_column(c) for c in constants]
            schema = t.Schema(tuple(t.Field(f"c{i}", c.type) for i, c in enumerate(constants)))
            ours = compile_expr(expr)(Batch(schema, columns, num_rows=3)).storage_list()
        except PenstockError:
            continue  # a NULL where none may be
        if is_deterministic(expr) and not isinstance(expr, InputRef):
            text = None if recorded == "\\N" else recorded
            yield Columnised(case["id"], expr, columns, zone, text, ours)


def answers(spark: Any, chunk: list[Columnised], *, as_spark: bool) -> list[Column]:
    """One Spark job over all columns of the chunk; a column a case."""
    columns: list[Column] = []
    exprs: list[Expr] = []
    for case in chunk:
        exprs.append(shift_refs(case.expr, {i: len(columns) + i for i in range(len(case.columns))}))
        columns += case.columns
    number = Column(t.IntType(), np.arange(3, dtype=np.int32))
    types = [c.type.with_nullable(True) for c in columns]
    schema = t.Schema(tuple(t.Field(f"c{i}", x) for i, x in enumerate([*types, t.IntType()])))
    frame = of_batch(spark, Batch(schema, [*columns, number], num_rows=3))
    fields = [t.Field(f"e{i}", e.type.with_nullable(True)) for i, e in enumerate(exprs)]
    output = t.Schema((*fields, t.Field("n", t.IntType())))
    last = InputRef(len(columns), t.IntType())
    if as_spark:
        result = frame.select(output, [native(e, frame.columns()) for e in [*exprs, last]])
    else:
        spec = CalcSpec(projections=(*exprs, last))
        result = calc_in_python(frame, spec, output, "u", "calc", JobContext("test", {}))
    rows = Batch.concat(collected(Frame(result.df.orderBy("n"), output)))
    return list(rows.columns[:-1])


def _is_native(case: Columnised) -> bool:
    from pyspark.sql import functions as F

    return native(case.expr, [F.col(f"c{i}") for i in range(len(case.columns))]) is not None


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def _text(column: Column, zone: str) -> list[str | None]:
    schema = t.Schema.of(("c", column.type))
    cast = make_call("CAST", [InputRef(0, column.type)], type=t.VarCharType(), zone=zone)
    return compile_expr(cast)(Batch(schema, [column], num_rows=len(column))).to_pylist()


@pytest.mark.parametrize("as_spark", [True, False], ids=["spark", "arrow"])
def test_expressions(quick_spark: Any, as_spark: bool) -> None:
    chosen = [case for case in columnised() if _is_native(case) == as_spark]
    assert len(chosen) > 100
    wrong, listed = {}, exceptions()
    for start in range(0, len(chosen), CHUNK):
        chunk = chosen[start : start + CHUNK]
        for case, got in zip(chunk, answers(quick_spark, chunk, as_spark=as_spark), strict=True):
            assert _same(got.storage_list(), case.ours), case.id  # the streaming engine's
            first, _, third = _text(got, case.zone)
            if (first, third) != (case.recorded, case.recorded):
                wrong[case.id] = (case.recorded, first, third)
    assert {i: w for i, w in wrong.items() if i not in listed} == {}
    assert {c.id for c in chosen if c.id in listed} <= set(wrong), "listed, yet as recorded"


# -- aggregates, set operations, queries -------------------------------------------------------


def _rows(case: dict[str, str], spark: Any) -> tuple[list[str], list[list[object]]]:
    session = SqlSession({"execution.engine": "spark"}, spark=spark_support())
    list(session.run_script(case["setup"]))
    job = session.execute(case["sql"]).job
    assert job is not None
    assert job.result_schema is not None
    types = job.result_schema.types
    rows = SparkJob(spark_graph(job.job_graph), spark).run().rows
    return [str(x) for x in types], [
        [aggregates.shown(x, v) for x, v in zip(types, row, strict=True)] for row in rows
    ]


def _repeats(place: int) -> list[pytest.MarkDecorator]:
    """The streaming engine answers all of them in tests/sql/test_flink_aggregates.py, Spark every third in ``make test``."""
    return [pytest.mark.long] if place % 3 else []


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, id=c["id"], marks=_repeats(i)) for i, c in enumerate(aggregates.recorded())],
)
def test_aggregates(case: dict[str, str], quick_spark: Any) -> None:
    """As recorded; where the streaming engine's answer is known to differ, Spark's does too."""
    reason = exceptions().get(case["id"]) or aggregates.exceptions().get(case["id"])
    try:
        same = aggregates.as_recorded(case, lambda c: _rows(c, quick_spark))
    except PenstockError:
        if reason is None:
            raise
        same = False
    assert same == (reason is None), reason or (case["sql"], case["result"])


def test_every_exception_has_its_case_and_reason() -> None:
    known = {c["id"] for c in [*expressions.CASES, *aggregates.recorded()]}
    for name, reason in exceptions().items():
        assert name in known
        assert reason

"""Every recorded expression on Spark, over columns: as ours, be it Spark's own or carried through."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.errors import PenstockError
from penstock.functions.evaluate import compile_expr
from penstock.functions.expr import Expr, InputRef, shift_refs
from penstock.functions.registry import is_deterministic
from penstock.functions.vector import Scalar
from penstock.jobgraph.specs import CalcSpec
from penstock.spark.drive import JobContext
from penstock.spark.expressions import native
from penstock.spark.frames import Frame
from penstock.spark.sinks import collected
from penstock.spark.sources import calc_in_python, of_batch
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column

_spec = importlib.util.spec_from_file_location(
    "recorded_expressions", Path(__file__).parents[1] / "functions" / "test_flink_expressions.py"
)
assert _spec is not None
assert _spec.loader is not None
recorded = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(recorded)

pytestmark = pytest.mark.skipif(not recorded.CASES, reason="PENSTOCK_ACCEPTANCE is not set")
#: Expressions of one Spark job: more make its generated code too long.
CHUNK = 120


def constants_column(constant: Scalar) -> Column:
    """The value, NULL, the value."""
    return Column.concat(
        [
            Column.constant(constant.type, constant.value, 1),
            Column.nulls(constant.type, 1),
            Column.constant(constant.type, constant.value, 1),
        ]
    )


def cases() -> list[tuple[str, Expr, list[Column], list[Any]]]:
    """(SQL, expression over columns, the columns, our answers)."""
    out = []
    for case in recorded.CASES:
        zone = "America/New_York" if case["group"].endswith("new_york") else "UTC"
        if case["result"] == "ERROR":
            continue
        constants: list[Scalar] = []
        try:
            expr = recorded.columnised(recorded.bind(case["sql"], zone), constants)
            columns = [constants_column(c) for c in constants]
            schema = t.Schema(tuple(t.Field(f"c{i}", c.type) for i, c in enumerate(constants)))
            want = compile_expr(expr)(Batch(schema, columns, num_rows=3)).storage_list()
        except PenstockError:
            continue  # a NULL where none may be
        if is_deterministic(expr) and not isinstance(expr, InputRef):
            out.append((case["sql"], expr, columns, want))
    return out


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def answers(spark: Any, chunk: list, *, as_spark: bool) -> list[list[Any]]:
    """One Spark job over all columns of the chunk."""
    columns: list[Column] = []
    exprs: list[Expr] = []
    for _, expr, mine, _ in chunk:
        at = {i: len(columns) + i for i in range(len(mine))}
        exprs.append(shift_refs(expr, at))
        columns += mine
    number = Column(t.IntType(), np.arange(3, dtype=np.int32))
    types = [c.type.with_nullable(True) for c in columns]
    schema = t.Schema(tuple(t.Field(f"c{i}", x) for i, x in enumerate([*types, t.IntType()])))
    frame = of_batch(spark, Batch(schema, [*columns, number], num_rows=3))
    fields = [t.Field(f"e{i}", e.type.with_nullable(True)) for i, e in enumerate(exprs)]
    output = t.Schema((*fields, t.Field("n", t.IntType())))
    last = InputRef(len(columns), t.IntType())
    if as_spark:
        made = [native(e, frame.columns()) for e in [*exprs, last]]
        result = frame.select(output, made)
    else:
        spec = CalcSpec(projections=(*exprs, last))
        result = calc_in_python(frame, spec, output, "u", "calc", JobContext("test", {}))
    result = Frame(result.df.orderBy("n"), output)
    rows = Batch.concat(collected(result))
    return [c.storage_list() for c in rows.columns[:-1]]


def is_native(spark: Any, expr: Expr, columns: list[Column]) -> bool:
    from pyspark.sql import functions as F

    return native(expr, [F.col(f"c{i}") for i in range(len(columns))]) is not None


@pytest.mark.parametrize("as_spark", [True, False], ids=["spark", "arrow"])
def test_expressions_answer_the_same(spark: Any, as_spark: bool) -> None:
    chosen = [case for case in cases() if is_native(spark, case[1], case[2]) == as_spark]
    assert len(chosen) > 100
    wrong = []
    for start in range(0, len(chosen), CHUNK):
        chunk = chosen[start : start + CHUNK]
        for (sql, _, _, want), got in zip(chunk, answers(spark, chunk, as_spark=as_spark), strict=True):
            if not same(got, want):
                wrong.append((sql, want, got))
    assert wrong == []

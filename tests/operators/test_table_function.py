from __future__ import annotations

import collections
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import FunctionError
from penstock.functions.expr import FieldAccess, InputRef
from penstock.jobgraph.specs import TableFunctionSpec
from penstock.metrics import MetricGroup
from penstock.operators.operator import OperatorContext
from penstock.operators.table_function import TableFunctionOperator
from penstock.types import Batch, Schema
from penstock.types import logical as t

INT, STRING = t.IntType(), t.VarCharType()


def run(spec: TableFunctionSpec, arg: t.LogicalType, out: list, values: list, functions: dict) -> list:
    schema = Schema.of(("id", INT), ("c", arg))
    output = Schema((*schema.fields, *(t.Field(f"o{i}", x) for i, x in enumerate(out))))
    ctx = OperatorContext(
        job_id="j", job_name="j", vertex_id="v", uid="u", name="f", subtask_index=0, parallelism=1,
        max_parallelism=128, attempt=1, input_schemas=[schema], output_schema=output, config={},
        metrics=MetricGroup(), key_groups=(0, 127), local_dir=Path(), now_ms=lambda: 0,
        wake_at=lambda at: None, function=functions.__getitem__,
    )  # fmt: skip
    operator = TableFunctionOperator(spec)
    operator.open(ctx, None)
    batch = Batch.of(schema, list(enumerate(values)), times=range(len(values)))
    rows = []
    # A slice, so that offsets do not begin at zero.
    for part in (batch.slice(0, 1), batch.slice(1)):
        for result in operator.process(0, part):
            assert isinstance(result, Batch)
            assert result.times.tolist() == [r[0] for r in result.to_pylist()]
            rows += [(r[0], *r[2:]) for r in result.to_pylist()]
    operator.close()
    return rows


def spec(function: str, **options: Any) -> TableFunctionSpec:
    return TableFunctionSpec(function=function, args=(InputRef(1, STRING),), **options)


UNNEST = [
    (t.ArrayType(STRING), [STRING], [["a"], None, [], ["b", None]], [(0, "a"), (3, "b"), (3, None)]),
    (t.MapType(STRING, INT), [STRING, INT], [{"a": 1}, None, {}, {"b": 2, "c": None}],
     [(0, "a", 1), (3, "b", 2), (3, "c", None)]),
    (t.MultisetType(STRING), [STRING], [{"a": 2}, {"b": 1}], [(0, "a"), (0, "a"), (1, "b")]),
    (t.ArrayType(t.RowType((t.Field("x", INT), t.Field("y", STRING)))), [INT, STRING],
     [[{"x": 1, "y": "p"}], [{"x": 2, "y": None}, {"x": None, "y": "q"}]],
     [(0, 1, "p"), (1, 2, None), (1, None, "q")]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("arg", "out", "values", "expected"), UNNEST, ids=["array", "map", "multiset", "rows"]
)
def test_unnest(arg: t.LogicalType, out: list, values: list, expected: list) -> None:
    if isinstance(arg, (t.MapType, t.MultisetType)):
        values = [None if v is None else list(v.items()) for v in values]
    typed = TableFunctionSpec(function="UNNEST", args=(InputRef(1, arg),))
    assert run(typed, arg, out, values, {}) == expected
    left = TableFunctionSpec(function="UNNEST", args=(InputRef(1, arg),), kind="left")
    got = run(left, arg, out, values, {})
    present = {r[0] for r in expected}
    padded = expected + [(i, *[None] * len(out)) for i in range(len(values)) if i not in present]
    assert collections.Counter(got) == collections.Counter(padded)
    assert [r[0] for r in got] == sorted(r[0] for r in got)


def test_ordinality() -> None:
    arg = t.ArrayType(STRING)
    typed = TableFunctionSpec(function="UNNEST_WITH_ORDINALITY", args=(InputRef(1, arg),))
    got = run(typed, arg, [STRING, INT], [["a", "b"], ["c"]], {})
    assert got == [(0, "a", 1), (0, "b", 2), (1, "c", 1)]


def test_several_collections_side_by_side() -> None:
    pair = t.RowType((t.Field("xs", t.ArrayType(STRING)), t.Field("m", t.MapType(STRING, INT))))
    args = tuple(FieldAccess(InputRef(1, pair), i, f.type) for i, f in enumerate(pair.fields))
    values = [
        {"xs": ["a", "b"], "m": [("k", 1)]},
        {"xs": None, "m": []},
        {"xs": [None], "m": [("p", 2), ("q", None)]},
        {"xs": [], "m": [("z", 3)]},
    ]
    out = [STRING, STRING, INT, INT]
    expected = [(0, "a", "k", 1, 1), (0, "b", None, None, 2), (2, None, "p", 2, 1), (2, None, "q", None, 2),
                (3, None, "z", 3, 1)]  # fmt: skip
    typed = TableFunctionSpec(function="UNNEST_WITH_ORDINALITY", args=args)
    assert run(typed, pair, out, values, {}) == expected
    left = TableFunctionSpec(function="UNNEST_WITH_ORDINALITY", args=args, kind="left")
    assert run(left, pair, out, values, {}) == sorted([*expected, (1, *[None] * 4)], key=lambda row: row[0])


class Split:
    def open(self, context: Any) -> None:
        self.separator = " "

    def eval(self, text: str) -> Any:
        for word in text.split(self.separator):
            yield word, len(word)


def test_a_users_function_per_record() -> None:
    got = run(spec("f", builtin=False), STRING, [STRING, INT], ["a bc", "d"], {"f": Split()})
    assert got == [(0, "a", 1), (0, "bc", 2), (1, "d", 1)]


def test_a_users_function_of_one_column_may_yield_bare_values() -> None:
    got = run(spec("f", builtin=False), STRING, [STRING], ["a bc", ""], {"f": lambda s: s.split()})
    assert got == [(0, "a"), (0, "bc")]


def test_a_users_function_per_batch() -> None:
    def twice(texts: pa.Array) -> Any:
        parents = np.repeat(np.arange(len(texts)), 2)
        return texts.take(pa.array(parents)), parents

    got = run(spec("f", builtin=False, per="batch"), STRING, [STRING], ["a", "b"], {"f": twice})
    assert got == [(0, "a"), (0, "a"), (1, "b"), (1, "b")]


def test_an_error_names_the_record() -> None:
    def broken(text: str) -> list:
        raise KeyError(text)

    with pytest.raises(FunctionError) as err:
        run(spec("f", builtin=False), STRING, [STRING], ["secret text"], {"f": broken})
    assert "KeyError" in (err.value.user_traceback or "")
    assert "'se'…(11)" in str(err.value)

"""map, flat_map, filter: values, types, event time, policies for errors."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.errors import FunctionError, UnsupportedError
from penstock.jobgraph.specs import PythonSpec, RecordTimeSpec
from penstock.operators.python import PythonOperator, RecordTimeOperator
from penstock.testing.operator_harness import Subtask
from penstock.types import Batch, Schema
from penstock.types import logical as t

INT, BIGINT, STRING, DOUBLE = t.IntType(), t.BigIntType(), t.VarCharType(), t.DoubleType()
PAIR = Schema.of(("f0", INT), ("f1", INT))
USER = Schema.of(("name", STRING), ("age", INT))
VALUE = Schema.of(("value", BIGINT))


def subtask(kind: str, function: Any, source: Schema, output: Schema | None = None, **spec: Any) -> Subtask:
    operator = PythonOperator(PythonSpec(kind=kind, function="f", **spec))
    return Subtask(operator, [source], output or source, function=lambda name: function)


def test_map_on_tuples() -> None:
    task = subtask("map", lambda x: (x[0] + x[1], x[0]), PAIR)
    task.process(Batch.of(PAIR, [(1, 2), (3, 4)], times=[10, 20]))
    assert task.rows() == [(3, 1), (7, 3)]
    assert task.out[0].times.tolist() == [10, 20]


@pytest.mark.parametrize(
    "type_", [t.RawType(), t.ArrayType(INT), t.RowType((t.Field("a", INT), t.Field("b", INT)))]
)
def test_a_flat_map_may_change_what_it_has_emitted(type_: t.LogicalType) -> None:
    """Python programs reuse a list or a dictionary between two ``yield``s."""

    def growing(x: int) -> Any:
        if isinstance(type_, t.RowType):
            row = {"a": x, "b": 0}
            for row["b"] in range(2):
                yield row
            return
        found: list[int] = []
        for n in range(2):
            found.append(x + n)
            yield found
        found.clear()

    output = Schema(type_.fields) if isinstance(type_, t.RowType) else Schema.of(("value", type_))
    task = subtask("flat_map", growing, VALUE, output)
    task.process(Batch.of(VALUE, [(1,), (5,)]))
    rows = [tuple(r) for r in task.rows()]
    if isinstance(type_, t.RowType):
        assert rows == [(1, 0), (1, 1), (5, 0), (5, 1)]
    else:
        assert [list(r[0]) for r in rows] == [[1], [1, 2], [5], [5, 6]]


def test_rows_have_names_and_may_come_back_in_any_form() -> None:
    def change(user: Any) -> Any:
        match user.name:
            case "tuple":
                return user.name, user[1] + 1
            case "dict":
                return {"age": user.age + 1, "name": user.name}
            case "row":
                return user._replace(age=user.age + 1)
        return [user.name, None]

    task = subtask("map", change, USER)
    task.process(Batch.of(USER, [("tuple", 1), ("dict", 2), ("row", 3), ("list", 4)]))
    assert task.rows() == [("tuple", 2), ("dict", 3), ("row", 4), ("list", None)]


def test_values_and_rich_types_go_through() -> None:
    types = [
        (t.DecimalType(10, 2), Decimal("1.50")),
        (t.TimestampType(3), dt.datetime(2013, 1, 1, 5)),
        (t.DateType(), dt.date(2013, 1, 1)),
        (t.MapType(STRING, INT), {"a": 1}),
        (t.ArrayType(t.RowType((t.Field("x", INT),))), [(1,), None]),
        (t.RawType(), {1, 2}),
        (BIGINT, None),
    ]
    for type_, value in types:
        schema = Schema.of(("value", type_))
        task = subtask("map", lambda v: v, schema)
        given = list(value.items()) if isinstance(value, dict) else value
        if isinstance(type_, t.ArrayType):
            given = [{"x": 1}, None]
        task.process(Batch.of(schema, [(given,)]))
        (batch,) = task.out
        second = subtask("map", lambda v: [v], schema, Schema.of(("value", t.ArrayType(type_))))
        second.process(batch)
        third = subtask("map", lambda v, expected=value: v[0] == expected, second.out[0].schema,
                        Schema.of(("value", t.BooleanType())))  # fmt: skip
        third.process(second.out[0])
        assert third.rows() == [(True,)], str(type_)


def test_filter_and_kinds() -> None:
    task = subtask("filter", lambda x: x.age > 1, USER)
    task.process(Batch.of(USER, [("a", 1), ("b", 2), ("c", 3)], kinds=[0, 1, 2]))
    assert task.changes() == [("-U", ("b", 2)), ("+U", ("c", 3))]


def test_flat_map_keeps_each_parents_time() -> None:
    task = subtask("flat_map", lambda v: range(v) if v else None, VALUE)
    task.process(Batch.of(VALUE, [(2,), (0,), (1,)], times=[7, 8, 9]))
    assert task.rows() == [(0,), (1,), (0,)]
    assert task.out[0].times.tolist() == [7, 7, 9]


def test_flat_map_output_is_cut_into_batches() -> None:
    task = subtask("flat_map", lambda v: range(10_000), VALUE)
    task.process(Batch.of(VALUE, [(i,) for i in range(5)]))
    assert len(task.out) == 3
    assert sum(b.num_rows for b in task.out) == 50_000


class Opened:
    """A rich function: opened once with a context, closed once."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def open(self, context: Any) -> None:
        self.log.append(f"open {context.get_index_of_this_subtask()}")
        self.calls = context.get_metrics_group().counter("calls")

    def map(self, value: int) -> int:
        self.calls.inc()
        return value + 1

    def close(self) -> None:
        self.log.append("close")


def test_rich_functions_are_private_to_a_subtask() -> None:
    shared = Opened()
    task = subtask("map", shared, VALUE)
    task.process(Batch.of(VALUE, [(1,), (2,)]))
    own = task.operator._function.object
    task.operator.close()
    assert own.log == ["open 0", "close"]
    assert shared.log == []
    assert task.metrics.counters["calls"] == 2


def broken(value: int) -> int:
    if value % 3 == 0:
        raise ValueError(f"no {value}")
    return value


class TestErrors:
    @pytest.mark.parametrize("kind", ["map", "filter", "flat_map"])
    def test_fail_shows_traceback_operator_and_record(self, kind: str) -> None:
        def call(user: Any) -> Any:
            return [broken(user.age)]

        task = subtask(kind, call, USER)
        with pytest.raises(FunctionError) as err:
            task.process(Batch.of(USER, [("alice", 1), ("margaret", 3)]))
        text = str(err.value)
        assert text.startswith("Traceback")
        assert "in broken" in text
        assert "python.py" not in text.replace("test_python.py", "")
        assert "(name='ma'…(8), age=3)" in text
        assert "margaret" not in text
        assert "PythonOperator" in text

    @pytest.mark.parametrize("per", ["record", "batch"])
    def test_skip_drops_the_record_only(self, per: str) -> None:
        calls: list[int] = []

        def each(value: int) -> int:
            calls.append(value)
            return broken(value)

        def whole(values: pa.Array) -> pa.Array:
            return pa.array([broken(v) for v in values.to_pylist()], pa.int64())

        task = subtask("map", each if per == "record" else whole, VALUE, on_error="skip", per=per)
        task.process(Batch.of(VALUE, [(i,) for i in range(8)], times=range(8)))
        assert task.rows() == [(1,), (2,), (4,), (5,), (7,)]
        assert [x for b in task.out for x in b.times.tolist()] == [1, 2, 4, 5, 7]
        assert task.metrics.counters["numRecordsInErrors"] == 3
        if per == "record":
            assert calls == list(range(8))  # each record was tried once

    def test_skip_in_filter_and_flat_map(self) -> None:
        task = subtask("filter", lambda v: broken(v) > 1, VALUE, on_error="skip")
        task.process(Batch.of(VALUE, [(i,) for i in range(5)]))
        assert task.rows() == [(2,), (4,)]

        def some(value: int) -> Any:
            yield value
            yield broken(value)

        task = subtask("flat_map", some, VALUE, on_error="skip")
        task.process(Batch.of(VALUE, [(i,) for i in range(4)]))
        assert task.rows() == [(1,), (1,), (2,), (2,)]

    def test_a_batch_function_that_fails_is_bisected_to_the_row(self) -> None:
        def whole(batch: pa.RecordBatch) -> pa.RecordBatch:
            for age in batch.column("age").to_pylist():
                broken(age)
            return batch

        task = subtask("map", whole, USER, per="batch")
        with pytest.raises(FunctionError, match="no 33") as err:
            task.process(Batch.of(USER, [(str(i), 3 * i + 1) for i in range(20)] + [("bad", 33)]))
        assert "age=33" in str(err.value)

    def test_stop_iteration_is_an_error_like_any_other(self) -> None:
        def stop(value: int) -> int:
            return next(iter([])) if value == 2 else value

        task = subtask("map", stop, VALUE)
        with pytest.raises(FunctionError, match="StopIteration"):
            task.process(Batch.of(VALUE, [(1,), (2,), (3,)]))

    def test_a_result_of_the_wrong_type_names_field_and_value(self) -> None:
        task = subtask("map", lambda u: (u.name, "old" if u.age > 2 else u.age), USER)
        with pytest.raises(FunctionError) as err:
            task.process(Batch.of(USER, [("a", 1), ("b", 3)]))
        assert "INT in 'age'" in str(err.value)
        assert err.value.got == "'ol'…(3)"

    def test_a_result_of_the_wrong_type_can_be_skipped(self) -> None:
        task = subtask("map", lambda v: "x" if v == 3 else v, VALUE, on_error="skip")
        task.process(Batch.of(VALUE, [(i,) for i in range(6)], times=range(6)))
        assert task.rows() == [(0,), (1,), (2,), (4,), (5,)]

    def test_a_result_of_the_wrong_width(self) -> None:
        task = subtask("map", lambda u: (u.name,), USER)
        with pytest.raises(FunctionError, match="2 fields"):
            task.process(Batch.of(USER, [("a", 1)]))

    def test_no_silent_truncation_of_floats(self) -> None:
        task = subtask("map", lambda v: v / 2, VALUE)
        with pytest.raises(FunctionError, match="BIGINT"):
            task.process(Batch.of(VALUE, [(3,)]))

    @pytest.mark.parametrize(
        ("type_", "value"),
        [
            (t.ArrayType(t.IntType()), [1, 1.5]),
            (t.RowType((t.Field("n", t.BigIntType()), t.Field("s", t.VarCharType(9)))), (1.5, "a")),
            (t.MapType(t.VarCharType(9), t.IntType()), {"a": 0.5}),
            (t.FloatType(), 1e300),
            (t.DateType(), dt.datetime(2026, 1, 2, 3)),
            (t.DecimalType(10, 2), Decimal("1.505")),
            (t.DecimalType(10, 2), 1 / 3),
            (t.ArrayType(t.DecimalType(10, 2)), [Decimal("1.505")]),
        ],
    )
    def test_nor_of_what_is_inside(self, type_: t.LogicalType, value: Any) -> None:
        task = subtask("map", lambda v: value, VALUE, Schema.of(("value", type_)))
        with pytest.raises(FunctionError, match="does not fit"):
            task.process(Batch.of(VALUE, [(3,)]))


class TestPerBatch:
    def test_values_are_arrays(self) -> None:
        task = subtask("map", lambda a: pc.multiply(a, pa.scalar(2)), VALUE, per="batch")
        task.process(Batch.of(VALUE, [(1,), (None,)], times=[1, 2]))
        assert task.rows() == [(2,), (None,)]

    @pytest.mark.parametrize(
        ("type_", "fits", "cut"),
        [
            (t.DecimalType(10, 2), 0.25, 1.505),
            (t.FloatType(), 0.25, 1e300),
            (t.ArrayType(t.DecimalType(10, 2)), [Decimal("0.25")], [1.505]),
        ],
    )
    def test_nothing_is_cut(self, type_: t.LogicalType, fits: Any, cut: Any) -> None:
        task = subtask(
            "map", lambda a: pa.array([fits] * len(a)), VALUE, Schema.of(("value", type_)), per="batch"
        )
        task.process(Batch.of(VALUE, [(1,)]))
        assert task.rows() == [(fits,)]
        task = subtask(
            "map", lambda a: pa.array([cut] * len(a)), VALUE, Schema.of(("value", type_)), per="batch"
        )
        with pytest.raises(FunctionError, match="another type"):
            task.process(Batch.of(VALUE, [(1,)]))

    def test_rows_are_record_batches_and_columns_go_by_name(self) -> None:
        def swap(batch: pa.RecordBatch) -> pa.RecordBatch:
            return pa.record_batch([batch.column("age"), batch.column("name")], names=["age", "name"])

        task = subtask("map", swap, USER, per="batch")
        task.process(Batch.of(USER, [("a", 1)]))
        assert task.rows() == [("a", 1)]

    def test_filter_takes_a_mask_whose_null_is_false(self) -> None:
        task = subtask("filter", lambda b: pc.greater(b.column("age"), pa.scalar(1)), USER, per="batch")
        task.process(Batch.of(USER, [("a", 1), ("b", 2), ("c", None)]))
        assert task.rows() == [("b", 2)]

    def test_flat_map_says_each_rows_parent(self) -> None:
        task = subtask("flat_map", lambda a: (a.take(pa.array([0, 0, 1])), [0, 0, 1]), VALUE, per="batch")
        task.process(Batch.of(VALUE, [(5,), (6,)], times=[50, 60]))
        assert task.rows() == [(5,), (5,), (6,)]
        assert task.out[0].times.tolist() == [50, 50, 60]

    def test_another_number_of_rows_is_an_error(self) -> None:
        task = subtask("map", lambda a: a.slice(1), VALUE, per="batch")
        with pytest.raises(FunctionError, match="another number of rows"):
            task.process(Batch.of(VALUE, [(1,), (2,)]))


def test_blocking_functions_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="blocking"):
        PythonOperator(PythonSpec(kind="map", function="f", blocking=True))


def test_record_time_to_a_column_and_back() -> None:
    timed = Schema((*USER.fields, t.Field("__time", t.TimestampLtzType(3))))
    out = Subtask(RecordTimeOperator(RecordTimeSpec(kind="append")), [USER], timed)
    out.process(Batch.of(USER, [("a", 1)], times=[1_500]))
    (batch,) = out.out
    assert batch.columns[2].values.tolist() == [1_500]
    back = Subtask(RecordTimeOperator(RecordTimeSpec(kind="assign", column=2, drop=True)), [timed], USER)
    back.process(batch.with_times(None))
    assert back.rows() == [("a", 1)]
    assert back.out[0].times.tolist() == [1_500]
    with pytest.raises(UnsupportedError, match="assign_timestamps"):
        out.process(Batch.of(USER, [("a", 1)]))

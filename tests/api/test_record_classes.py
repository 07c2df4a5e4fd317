"""Records and state that are instances of a class with declared fields: the fields are columns."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import typing
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from penstock.api import (
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    Sink,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)
from penstock.columnar.python_values import columns_of, records
from penstock.columnar.record_classes import shape_of
from penstock.errors import FunctionError, SpecError
from penstock.testing import MemoryTable
from penstock.testing.harness import JobHarness
from penstock.types import Batch
from penstock.types import logical as t


class Color(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Item:
    sku: str
    price: Decimal


@dataclasses.dataclass
class Order:
    user: str
    amount: int
    item: Item | None = None
    tags: list[str] = dataclasses.field(default_factory=list)
    at: typing.Annotated[dt.datetime | None, Types.INSTANT()] = None
    color: Color | None = None


@dataclasses.dataclass(kw_only=True, slots=True, frozen=True)
class Keyword:
    n: int
    text: str = "none"


@dataclasses.dataclass
class Derived:
    n: int
    twice: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.twice = 2 * self.n


class Struct(msgspec.Struct):
    n: int
    text: str = "none"


class KeywordStruct(msgspec.Struct, kw_only=True):
    n: int
    text: str = "none"


class Named(typing.NamedTuple):
    n: int
    text: str = "none"


@dataclasses.dataclass
class Node:
    n: int
    next: Node | None = None


def _through(value: Any, type_: t.LogicalType) -> Any:
    schema = t.Schema(type_.fields)  # type: ignore[attr-defined]
    [found] = records(Batch(schema, columns_of(schema, [value], "a test"), num_rows=1))
    return found


@pytest.mark.parametrize(
    "value",
    [
        Order("ann", 3, Item("x", Decimal(2)), ["a", "b"], dt.datetime(2024, 1, 1, tzinfo=dt.UTC), Color.RED),
        Order("bob", 1),
        Keyword(n=1, text="x"),
        Derived(4),
        Struct(1, "x"),
        KeywordStruct(n=1, text="x"),
        Named(1, "x"),
        Node(1, Node(2)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_instance_is_the_same_after_its_columns(value: Any) -> None:
    found = _through(value, Types.RECORD(type(value)))
    assert type(found) is type(value)
    assert found == value


def test_a_pydantic_model_is_a_class_with_fields() -> None:
    pydantic = pytest.importorskip("pydantic")
    model: Any = pydantic.create_model("Model", n=(int, ...), text=(str, "none"), __module__=__name__)
    assert Types.RECORD(model) == t.RowType(
        (
            t.Field("n", t.BigIntType(), record=f"{__name__}:Model"),
            t.Field("text", t.VarCharType(), record=f"{__name__}:Model"),
        )
    )
    assert shape_of(model).made([1, None]) == model(n=1)  # type: ignore[union-attr]


def test_types_come_from_annotations() -> None:
    assert str(t.RowType(Types.RECORD(Order).fields)) == (  # type: ignore[attr-defined]
        "ROW<`user` STRING, `amount` BIGINT, `item` ROW<`sku` STRING, `price` DECIMAL(38, 18)>, `tags` ARRAY<STRING>, "
        "`at` TIMESTAMP_LTZ(6), `color` RAW('pickle')>"
    )
    # The class itself in a field is pickled there, not followed for ever.
    assert isinstance(Types.RECORD(Node).fields[1].type, t.RawType)  # type: ignore[attr-defined]


def test_null_is_the_default_where_a_field_may_not_be_none() -> None:
    shape = shape_of(Order)
    assert shape is not None
    assert shape.made(["ann", 3, None, None, None, None]) == Order("ann", 3)


@pytest.mark.parametrize("given", [Color, int, "Order", None])
def test_what_has_no_fields_is_refused(given: Any) -> None:
    with pytest.raises(SpecError, match="not a class with fields"):
        Types.RECORD(given)


def test_a_field_of_another_type_is_refused_without_its_text() -> None:
    schema = t.Schema(Types.RECORD(Order).fields)  # type: ignore[attr-defined]
    with pytest.raises(FunctionError, match="BIGINT in 'amount'") as err:
        columns_of(schema, [Order("secret name", "many")], "a test")  # type: ignore[arg-type]
    assert "secret" not in str(err.value)


def program(cls: Any, backend: str) -> Any:
    """A job with instances of ``cls`` as records, keys and state; it runs anew with the class of today."""

    class Totals(KeyedProcessFunction):
        def open(self, ctx: Any) -> None:
            self.total = ctx.get_state(ValueStateDescriptor("total", cls))
            self.all = ctx.get_list_state(ListStateDescriptor("all", cls))
            self.by = ctx.get_map_state(MapStateDescriptor("by", Types.STRING(), cls))

        def process_element(self, value: Any, ctx: Any) -> Any:
            assert type(value) is cls
            total = self.total.value() or cls(value.who, 0)
            assert type(total) is cls
            total.n += value.n
            self.total.update(total)
            self.all.add(value)
            self.by.put("last", value)
            assert {type(x) for x in self.all.get()} == {type(self.by.get("last"))} == {cls}
            yield total

    env = StreamExecutionEnvironment({"execution.engine": "streaming"}).set_parallelism(2)
    env.set_state_backend(backend)
    env.execute_sql("CREATE TABLE paid (who STRING, n BIGINT) WITH ('connector' = 'memory', 'name' = 'paid')")
    made = env.from_table("paid").map(lambda r: cls(r.who, r.n), cls)
    totals = made.key_by("who").process(Totals(), cls).uid("totals")
    shown = totals.map(
        lambda x: (x.who, x.n, getattr(x, "unit", "none")),
        Types.TUPLE([Types.STRING(), Types.LONG(), Types.STRING()]),
    )
    shown.sink_to(Sink.connector("memory", {"name": "totals"}))
    return env.job_graph()


def before() -> type:
    @dataclasses.dataclass
    class Total:
        who: str
        n: int

    return Total


def with_a_field_more() -> type:
    @dataclasses.dataclass
    class Total:
        who: str
        n: int
        unit: str = "EUR"

    Total.__qualname__ = "before.<locals>.Total"
    return Total


@pytest.mark.parametrize("backend", ["hashmap", "leveldb"])
async def test_a_state_with_a_dataclass_goes_through_a_savepoint_with_a_field_more(backend: str) -> None:
    schema = t.Schema.of(("who", t.VarCharType()), ("n", t.BigIntType()))
    rows = [(f"w{i % 5}", i) for i in range(200)]
    source = MemoryTable("paid", schema, [[Batch.of(schema, rows)]], batch_rows=10)
    out = MemoryTable(
        "totals", t.Schema.of(("f0", t.VarCharType()), ("f1", t.BigIntType()), ("f2", t.VarCharType()))
    )
    source.release(100)
    async with JobHarness(program(before(), backend)) as job:
        await job.until(
            lambda: sum(task.records_in for task in job.deployment.tasks.values() if task.chain.sinks) >= 100
        )
        savepoint = await job.checkpoint("savepoint")
    source.release()
    async with JobHarness(program(with_a_field_more(), backend), restore=savepoint, store=job.store) as again:
        await again.wait()
    expected, totals = [], dict.fromkeys((f"w{k}" for k in range(5)), 0)
    for i, (who, n) in enumerate(rows):
        totals[who] += n
        expected.append((who, totals[who], "none" if i < 100 else "EUR"))
    assert sorted(out.committed_rows()) == sorted(expected)

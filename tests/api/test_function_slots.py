"""Functions that no stream can call are refused where the program names them."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from penstock.api import (
    AggregateFunction,
    CoMapFunction,
    CoProcessFunction,
    CountTrigger,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    MapStateDescriptor,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    Time,
    Types,
    WatermarkStrategy,
)
from penstock.errors import FunctionError, SpecError, UnsupportedError
from penstock.types import logical as t

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
ROWS = [("a", 1), ("b", 2), ("a", 3)]


@pytest.fixture
def stream() -> Any:
    return StreamExecutionEnvironment.get_execution_environment().from_collection(ROWS, PAIR)


async def awaited(*args: Any) -> Any:
    return args[0]


async def awaited_many(*args: Any) -> Any:
    yield args[0]


def generated(*args: Any) -> Any:
    yield args[0]


class Called:
    """An object that is called."""

    def __init__(self, function: Any) -> None:
        self.function = function

    async def __call__(self, value: Any) -> Any:
        return value


def with_method(base: type, name: str, method: Any) -> Any:
    return type("Mine", (base,), {name: _bound(method)})()


def _bound(function: Any) -> Any:
    if function is awaited:

        async def asynchronous(self: Any, *args: Any) -> Any:
            return args[0]

        return asynchronous

    def generator(self: Any, *args: Any) -> Any:
        yield args[0]

    return generator


def _timed(stream: Any, assigner: Any) -> Any:
    return stream.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(assigner)
    )


def _broadcast(stream: Any, function: Any) -> Any:
    rules = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
    return stream.key_by(0).connect(stream.broadcast(rules)).process(function)


#: Where one value is meant, and where any number is.
SINGLE: dict[str, Callable[[Any, Any], Any]] = {
    "map": lambda s, f: s.map(f),
    "MapFunction": lambda s, f: s.map(with_method(MapFunction, "map", f)),
    "partial": lambda s, f: s.map(functools.partial(f, 1)),
    "filter": lambda s, f: s.filter(f),
    "reduce": lambda s, f: s.key_by(0).reduce(f),
    "window reduce": lambda s, f: s.key_by(0).count_window(2).reduce(f),
    "aggregate": lambda s, f: s.key_by(0).count_window(2).aggregate(with_method(AggregateFunction, "add", f)),
    "get_result": lambda s, f: (
        s.key_by(0).count_window(2).aggregate(with_method(AggregateFunction, "get_result", f))
    ),
    "key_by": lambda s, f: s.key_by(f),
    "KeySelector": lambda s, f: s.key_by(with_method(KeySelector, "get_key", f)),
    "timestamps": _timed,
    "co-map": lambda s, f: s.connect(s).map(with_method(CoMapFunction, "map2", f)),
    "interval join": lambda s, f: (
        s.key_by(0).interval_join(s.key_by(0)).between(Time.seconds(0), Time.seconds(1)).process(f)
    ),
    "open": lambda s, f: s.map(with_method(MapFunction, "open", f)),
    "trigger": lambda s, f: s.key_by(0).count_window(2).trigger(_trigger(f)).reduce(min),
}
MANY: dict[str, Callable[[Any, Any], Any]] = {
    "flat_map": lambda s, f: s.flat_map(f),
    "process": lambda s, f: s.key_by(0).process(f),
    "on_timer": lambda s, f: s.key_by(0).process(with_method(KeyedProcessFunction, "on_timer", f)),
    "co-process": lambda s, f: s.connect(s).process(with_method(CoProcessFunction, "process_element2", f)),
    "broadcast": _broadcast,
    "window": lambda s, f: (
        s.key_by(0).count_window(2).process(with_method(ProcessWindowFunction, "process", f))
    ),
    "window after reduce": lambda s, f: (
        s.key_by(0).count_window(2).reduce(min, with_method(ProcessWindowFunction, "process", f))
    ),
}


def _trigger(function: Any) -> Any:
    class Mine(CountTrigger):
        on_element = _bound(function)

    return Mine.of(2)


@pytest.mark.parametrize("slot", [*SINGLE, *MANY])
def test_async_functions_are_refused_by_name(stream: Any, slot: str) -> None:
    with pytest.raises(UnsupportedError, match="is async") as refused:
        {**SINGLE, **MANY}[slot](stream, awaited)
    assert "AsyncDataStream.unordered_wait" in str(refused.value)


@pytest.mark.parametrize("slot", SINGLE)
def test_generators_are_refused_where_one_value_is_meant(stream: Any, slot: str) -> None:
    with pytest.raises(SpecError, match="yields"):
        SINGLE[slot](stream, generated)


@pytest.mark.parametrize("slot", MANY)
def test_generators_are_taken_where_any_number_is_meant(stream: Any, slot: str) -> None:
    assert MANY[slot](stream, generated) is not None


def test_other_forms_of_the_same(stream: Any) -> None:
    for function in (awaited_many, Called(None), functools.partial(awaited, 1)):
        with pytest.raises(UnsupportedError, match="is async"):
            stream.flat_map(function)


@pytest.mark.parametrize(
    ("program", "kind"),
    [
        (lambda s: s.map(lambda x: awaited(x)), "coroutine"),
        (lambda s: s.map(lambda x: generated(x)), "generator"),
        (lambda s: s.filter(lambda x: awaited(x)), "coroutine"),
        (lambda s: s.filter(lambda x: generated(x)), "generator"),
        (lambda s: s.map(lambda x: (x,)).key_by(0).reduce(lambda a, b: awaited(a)), "coroutine"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_what_is_found_out_only_by_calling(stream: Any, collect: Any, program: Any, kind: str) -> None:
    with pytest.raises(FunctionError, match=f"returned a {kind} where a value"):
        collect(program(stream.map(lambda x: "a")))
    gc.collect()  # what is freed only now warns here, not in the test behind


class TestUntyped:
    """Tuples of which nobody declared the types."""

    @pytest.mark.parametrize("key", [0, lambda x: x[0], (0,)])
    @pytest.mark.parametrize("make", [tuple, list])
    def test_fields_by_number(self, stream: Any, collect: Any, key: Any, make: Any) -> None:
        untyped = stream.map(lambda x: make(x)).key_by(key)
        assert sorted(map(tuple, collect(untyped.sum(1)))) == [("a", 1), ("a", 4), ("b", 2)]
        assert sorted(map(tuple, collect(untyped.max_by(-1)))) == [("a", 1), ("a", 3), ("b", 2)]

    def test_fields_by_name(self, stream: Any, collect: Any) -> None:
        from penstock.api import Row

        untyped = stream.map(lambda x: Row(user=x[0], n=x[1])).key_by(lambda r: r.user)
        assert [r.n for r in collect(untyped.sum("n")) if r.user == "a"] == [1, 4]

    def test_numbers_and_several_keys(self, stream: Any, collect: Any) -> None:
        assert collect(stream.map(lambda x: x[1]).key_by(lambda n: 0).sum()) == [1, 3, 6]
        assert len(collect(stream.map(lambda x: x).key_by(0, 1).sum(1))) == 3

    @pytest.mark.parametrize("field", [2, "n"])
    def test_no_such_field(self, stream: Any, collect: Any, field: Any) -> None:
        with pytest.raises(FunctionError, match=f"no field {field!r}, but 0 to 1"):
            collect(stream.map(lambda x: x).key_by(0).sum(field))


class TestKeys:
    @pytest.mark.parametrize(
        "type_",
        [
            Types.LIST(Types.LONG()),
            Types.MAP(Types.STRING(), Types.LONG()),
            Types.TUPLE([Types.LIST(Types.LONG())]),
        ],
    )
    def test_collections_are_no_keys(self, stream: Any, type_: t.LogicalType) -> None:
        with pytest.raises(SpecError, match="cannot be used as key"):
            stream.key_by(lambda r: [r[1] + 1], key_type=type_)


class TestDecimals:
    LONG = Decimal("1.1234567890123456789012345")

    @pytest.mark.parametrize(
        "values",
        [
            [LONG],
            [LONG, None, Decimal("12")],
            [Decimal("1E+30")],
            [Decimal("1e-40"), LONG],
            [10**40, 1],
            [Decimal("NaN")],
        ],
    )
    def test_inferred_types_keep_every_digit(self, collect: Any, values: Any) -> None:
        env = StreamExecutionEnvironment.get_execution_environment()
        got = collect(env.from_collection(values))
        assert [x == y or x != x for x, y in zip(got, values, strict=True)] == [True] * len(values)

    @pytest.mark.parametrize("value", [LONG, Decimal("123456789012345678901.5")])
    def test_big_dec_refuses_what_it_cannot_hold(self, stream: Any, collect: Any, value: Decimal) -> None:
        for type_, result in ((Types.BIG_DEC(), value), (Types.LIST(Types.BIG_DEC()), [value])):
            with pytest.raises(FunctionError, match="PICKLED_BYTE_ARRAY"):
                collect(stream.map(lambda x, result=result: result, type_))
        assert collect(stream.map(lambda x: value, Types.PICKLED_BYTE_ARRAY()))[0] == value

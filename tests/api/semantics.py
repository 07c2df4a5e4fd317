"""The rows that Flink gives: a table of DataStream programs, by runtime mode and engine.

``tests/api/test_semantics.py`` runs it on the streaming engine, ``tests/spark/test_semantics.py`` on Spark. Rows
are compared without their order. A program that says no mode runs as in mode STREAMING.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.api import (
    AsyncDataStream,
    AsyncFunction,
    CoFlatMapFunction,
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    CumulativeEventTimeWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapFunction,
    MapStateDescriptor,
    NeverTrigger,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    ProcessWindowFunction,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.api import DataStream

#: What a program says of its mode; None: nothing.
MODES = (None, "STREAMING", "BATCH", "AUTOMATIC")


@dataclass(frozen=True)
class Case:
    """``rows``: in mode STREAMING (None: they depend on how the inputs interleave). ``batch``: in BATCH, and in AUTOMATIC as all sources are bounded (None: the
    same). ``spark``: on Spark without a mode, where the watermark follows every row (None: as ``rows``)."""

    name: str
    program: Callable[[StreamExecutionEnvironment], DataStream]
    rows: list[Any] | None
    batch: list[Any] | None = None
    spark: list[Any] | None = None

    def expected(self, mode: str | None, *, spark: bool = False) -> list[str] | None:
        if mode in ("BATCH", "AUTOMATIC"):
            rows = self.rows if self.batch is None else self.batch
        else:
            rows = self.rows if self.spark is None or not spark else self.spark
        return None if rows is None else sorted(map(repr, rows))


def environment(mode: str | None) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment()
    return env if mode is None else env.set_runtime_mode(mode)


EVENT = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
#: (key, event time in ms, number)
EVENTS = [
    ("a", 0, 1),
    ("b", 10, 6),
    ("a", 300, 2),
    ("a", 900, 3),
    ("a", 1_500, 4),
    ("a", 2_200, 5),
    ("a", 5_000, 7),
]


def events(env: StreamExecutionEnvironment, rows: Any = EVENTS) -> DataStream:
    """With event times; on the streaming engine the watermark stays behind all of them until the end."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Time.days(1))
    return env.from_collection(rows, EVENT).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(lambda row, _: row[1])
    )


# -- windows: every assigner with every trigger ---------------------------------------------------


class Answered(AsyncFunction):
    """The record itself, later; nothing for 1, 4 and 6."""

    async def async_invoke(self, value: Any) -> Any:
        await asyncio.sleep(0)
        return [] if value[2] in (1, 4, 6) else [value]


class Contents(ProcessWindowFunction):
    """(key, start of the window, its elements' numbers)"""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, context.window().start, [e[2] for e in elements]


class Elements(ProcessWindowFunction):
    """(key, the window's elements' numbers)"""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, [e[2] for e in elements]


class Gap(SessionWindowTimeGapExtractor):
    """Longer behind the first and the third element, so that the second belongs to the first."""

    def extract(self, element: Any) -> int:
        return {1: 350, 3: 700}.get(element[2], 200)


class Numbers(ProcessWindowFunction):
    """(key, the window's number)"""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, context.window().id


class Sorted(ProcessAllWindowFunction):
    """(start of the window, its elements' numbers)"""

    def process(self, context: Any, elements: Any) -> Any:
        yield context.window().start, sorted(e[2] for e in elements)


def windowed(assigner: Any, trigger: Any, function: Any) -> Any:
    return lambda env: events(env).key_by(0).window(assigner).trigger(trigger).process(function)


ALL = [1, 2, 3, 4]
EVERY_800 = ContinuousEventTimeTrigger.of(Time.milliseconds(800))
TWO = CountTrigger.of(2)

TUMBLING = TumblingEventTimeWindows.of(Time.seconds(2))
OF_TUMBLING = [("a", 0, ALL), ("a", 2_000, [5]), ("a", 4_000, [7]), ("b", 0, [6])]
SLIDING = SlidingEventTimeWindows.of(Time.seconds(2), Time.seconds(1))
OF_SLIDING = [
    ("a", -1_000, [1, 2, 3]), ("a", 0, ALL), ("a", 1_000, [4, 5]), ("a", 2_000, [5]), ("a", 4_000, [7]),
    ("a", 5_000, [7]), ("b", -1_000, [6]), ("b", 0, [6]),
]  # fmt: skip
CUMULATIVE = CumulativeEventTimeWindows.of(Time.seconds(2), Time.seconds(1))
SESSION = EventTimeSessionWindows.with_gap(Time.seconds(1))
OF_SESSION = [("a", 0, [1, 2, 3, 4, 5]), ("a", 5_000, [7]), ("b", 10, [6])]
GLOBAL = GlobalWindows.create()
OF_GLOBAL = [("a", [1, 2, 3, 4, 5, 7]), ("b", [6])]
#: One window that began in 1970 and is open for the next thousand years.
BY_CLOCK = TumblingProcessingTimeWindows.of(Time.days(500_000))
SLIDING_BY_CLOCK = SlidingProcessingTimeWindows.of(Time.days(1_000_000), Time.days(500_000))
SESSION_BY_CLOCK = ProcessingTimeSessionWindows.with_gap(Time.days(500_000))
COUNTED = [("a", [1, 2]), ("a", ALL), ("a", [1, 2, 3, 4, 5, 7])]
PURGED = [("a", [1, 2]), ("a", [3, 4]), ("a", [5, 7])]

WINDOWS = [
    *(
        Case(f"{name} × {trigger_name}", windowed(assigner, trigger, Contents()), rows)
        for name, assigner, rows in (
            ("tumbling", TUMBLING, OF_TUMBLING),
            ("sliding", SLIDING, OF_SLIDING),
            ("session", SESSION, OF_SESSION),
        )
        for trigger_name, trigger in (
            ("event time", EventTimeTrigger.create()),
            ("purging event time", PurgingTrigger.of(EventTimeTrigger.create())),
        )
    ),
    *(
        Case(f"{name} × never", windowed(assigner, NeverTrigger.create(), Elements()), [])
        for name, assigner in (
            ("tumbling", TUMBLING), ("sliding", SLIDING), ("session", SESSION), ("global", GLOBAL), ("clock", BY_CLOCK),
            ("session by the clock", SESSION_BY_CLOCK),
        )
    ),
    Case("tumbling × count", windowed(TUMBLING, TWO, Contents()), [("a", 0, [1, 2]), ("a", 0, ALL)]),
    Case(
        "tumbling × purging count",
        windowed(TUMBLING, PurgingTrigger.of(TWO), Contents()),
        [("a", 0, [1, 2]), ("a", 0, [3, 4])],
    ),
    Case(
        "tumbling × continuous",
        windowed(TUMBLING, EVERY_800, Contents()),
        [("a", 0, ALL)] * 3 + [("a", 2_000, [5])] * 3 + [("a", 4_000, [7])] * 2 + [("b", 0, [6])] * 3,
        # Timers that are set in a timer are ignored: once, and at the window's end.
        batch=OF_TUMBLING * 2,
    ),
    Case(
        "tumbling × purging continuous",
        windowed(TUMBLING, PurgingTrigger.of(EVERY_800), Contents()),
        OF_TUMBLING,
    ),
    Case(
        "sliding × count",
        windowed(SLIDING, TWO, Contents()),
        [("a", -1_000, [1, 2]), ("a", 0, [1, 2]), ("a", 0, ALL), ("a", 1_000, [4, 5])],
    ),
    Case(
        "sliding × purging count",
        windowed(SLIDING, PurgingTrigger.of(TWO), Contents()),
        [("a", -1_000, [1, 2]), ("a", 0, [1, 2]), ("a", 0, [3, 4]), ("a", 1_000, [4, 5])],
    ),
    Case(
        "sliding × continuous",
        windowed(SLIDING, EVERY_800, Contents()),
        OF_SLIDING * 2 + [r for r in OF_SLIDING if r[1] in (0, 1_000, 2_000, 5_000)],
        batch=OF_SLIDING * 2,
    ),
    Case("session × count", windowed(SESSION, TWO, Contents()), [("a", 0, [1, 2]), ("a", 0, ALL)]),
    Case(
        "session × purging count",
        windowed(SESSION, PurgingTrigger.of(TWO), Contents()),
        [("a", 0, [1, 2]), ("a", 0, [3, 4])],
    ),
    Case(
        "session × continuous",
        windowed(SESSION, EVERY_800, Contents()),
        [("a", 0, [1, 2, 3, 4, 5])] * 4 + [("a", 5_000, [7])] * 2 + [("b", 10, [6])] * 2,
        batch=OF_SESSION * 2,
    ),
    Case("global × event time", windowed(GLOBAL, EventTimeTrigger.create(), Elements()), OF_GLOBAL),
    Case("global × count", windowed(GLOBAL, TWO, Elements()), COUNTED),
    Case("global × purging count", windowed(GLOBAL, PurgingTrigger.of(TWO), Elements()), PURGED),
    Case(
        "sessions with a gap of each record",
        lambda env: events(env).key_by(0).window(EventTimeSessionWindows.with_dynamic_gap(Gap())).process(Contents()),
        [("a", 0, [1, 2]), ("a", 900, [3, 4]), ("a", 2_200, [5]), ("a", 5_000, [7]), ("b", 10, [6])],
    ),
    Case(
        "cumulative windows",
        lambda env: events(env).key_by(0).window(CUMULATIVE).process(Contents()),
        [("a", 0, [1, 2, 3]), ("a", 0, ALL), ("a", 2_000, [5]), ("a", 2_000, [5]), ("a", 4_000, [7]), ("b", 0, [6]),
         ("b", 0, [6])],
    ),
    Case(
        "overlapping count windows",
        lambda env: events(env).key_by(0).count_window(3, 2).process(Elements()),
        [("a", [1, 2, 3]), ("a", [3, 4, 5])],
    ),
    Case(
        "count windows have numbers",
        lambda env: events(env).key_by(0).count_window(2, 1).process(Numbers()),
        [("a", 0), ("a", 1), ("a", 2), ("a", 3), ("a", 4)],
    ),
    Case(
        "windows of all",
        lambda env: events(env).window_all(TUMBLING).process(Sorted()),
        [(0, [1, 2, 3, 4, 6]), (2_000, [5]), (4_000, [7])],
    ),
    Case(
        "windows of all, reduced",
        lambda env: events(env).window_all(TUMBLING).reduce(lambda a, b: ("", 0, a[2] + b[2]), Sorted()),
        [(0, [16]), (2_000, [5]), (4_000, [7])],
    ),
    Case(
        "windows of all, applied",
        lambda env: events(env).window_all(TUMBLING).apply(lambda window, rows: [(window.end, len(list(rows)))]),
        [(2_000, 5), (4_000, 1), (6_000, 1)],
    ),
    Case("count windows", lambda env: events(env).key_by(0).count_window(2).process(Elements()), PURGED),
    *(
        case
        for name, assigner in (("clock", BY_CLOCK), ("session by the clock", SESSION_BY_CLOCK))
        for case in (
            Case(f"{name} × its own", windowed(assigner, ProcessingTimeTrigger.create(), Elements()), OF_GLOBAL),
            Case(
                f"{name} × purging",
                windowed(assigner, PurgingTrigger.of(ProcessingTimeTrigger.create()), Elements()),
                OF_GLOBAL,
            ),
            Case(f"{name} × count", windowed(assigner, TWO, Elements()), COUNTED),
            Case(f"{name} × purging count", windowed(assigner, PurgingTrigger.of(TWO), Elements()), PURGED),
            Case(
                f"{name} × continuous",
                windowed(assigner, ContinuousProcessingTimeTrigger.of(Time.days(1)), Elements()),
                OF_GLOBAL,
            ),
        )
    ),
    Case(
        "sliding by the clock × its own",
        windowed(SLIDING_BY_CLOCK, ProcessingTimeTrigger.create(), Elements()),
        OF_GLOBAL * 2,
    ),
]  # fmt: skip

# -- keyed functions without a window -------------------------------------------------------------

#: Not in the order of their times: BATCH sorts by them.
MIXED = [("a", 30, 3), ("b", 20, 10), ("a", 10, 4), ("a", 20, 1), ("b", 10, 20)]
PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
NUMBERS = [("a", 3), ("b", 7), ("a", 1), ("a", 5), ("b", 7)]


def running(how: str) -> Any:
    return lambda env: getattr(env.from_collection(NUMBERS, PAIR).key_by(0), how)(1)


class Spoken(KeyedProcessFunction):
    """Says what it is given, and the watermark at it; sets a timer for ``timers`` later."""

    timers: tuple[int, ...] = (0, 15)

    def open(self, context: Any) -> None:
        self.seen = context.get_list_state(ListStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.seen.add(value[2])
        for after in self.timers:
            ctx.timer_service().register_event_time_timer(value[1] + after)
        yield "element", value[2]

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield "timer", ctx.get_current_key(), timestamp, self.seen.get()


class AtTheEnd(KeyedProcessFunction):
    """Timers at the end of time and by the clock, each of which asks for another."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        timers = ctx.timer_service()
        timers.register_event_time_timer(2**63 - 1)
        timers.register_processing_time_timer(timers.current_processing_time() + 10**9)
        return [("element", timers.current_watermark() == -(2**63))]

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + 10**9)
        last = timers.current_watermark() == 2**63 - 1
        yield ctx.time_domain().name, ctx.get_current_key(), last


KEYED = [
    Case(
        "reduce",
        lambda env: env.from_collection(NUMBERS, PAIR).key_by(0).reduce(lambda a, b: (a[0], a[1] * b[1])),
        [("a", 3), ("b", 7), ("a", 3), ("a", 15), ("b", 49)],
        batch=[("a", 15), ("b", 49)],
    ),
    Case(
        "reduce of one record, and of none",
        lambda env: env.from_collection([("a", 3)], PAIR).key_by(0).reduce(lambda a, b: None),
        [("a", 3)],
    ),
    Case(
        "reduce in the order of event time",
        lambda env: events(env, MIXED).key_by(0).reduce(lambda a, b: (a[0], b[1], a[2] * 100 + b[2])),
        [("a", 30, 3), ("a", 10, 304), ("a", 20, 30401), ("b", 20, 10), ("b", 10, 1020)],
        batch=[("a", 30, 40103), ("b", 20, 2010)],
        spark=[("a", 10, 4), ("a", 20, 401), ("a", 30, 40103), ("b", 10, 20), ("b", 20, 2010)],
    ),
    Case("sum", running("sum"), [("a", 3), ("b", 7), ("a", 4), ("a", 9), ("b", 14)], batch=[("a", 9), ("b", 14)]),
    Case("min", running("min"), [("a", 3), ("b", 7), ("a", 1), ("a", 1), ("b", 7)], batch=[("a", 1), ("b", 7)]),
    Case("max", running("max"), [("a", 3), ("b", 7), ("a", 3), ("a", 5), ("b", 7)], batch=[("a", 5), ("b", 7)]),
    Case("min_by", running("min_by"), [("a", 3), ("b", 7), ("a", 1), ("a", 1), ("b", 7)], batch=[("a", 1), ("b", 7)]),
    Case("max_by", running("max_by"), [("a", 3), ("b", 7), ("a", 3), ("a", 5), ("b", 7)], batch=[("a", 5), ("b", 7)]),
    Case(
        "sum after rebalance, union and map",
        lambda env: env.from_collection(NUMBERS[:2], PAIR)
        .union(env.from_collection(NUMBERS[2:], PAIR).rebalance())
        .map(lambda r: (r[0], 1), PAIR)
        .key_by(lambda r: r[0])
        .sum(1),
        [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2)],
        batch=[("a", 3), ("b", 2)],
    ),
    Case(
        "a reduction of reductions",
        lambda env: env.from_collection(NUMBERS, PAIR)
        .key_by(0)
        .sum(1)
        .map(lambda r: ("all", r[1]), PAIR)
        .key_by(0)
        .max(1),
        [("all", 3), ("all", 7), ("all", 7), ("all", 9), ("all", 14)],
        batch=[("all", 14)],
    ),
    Case(
        "event timers",
        lambda env: events(env, MIXED).key_by(0).process(Spoken()),
        [("element", n) for n in (3, 10, 4, 1, 20)]
        + [("timer", "a", t, [3, 4, 1]) for t in (10, 20, 25, 30, 35, 45)]
        + [("timer", "b", t, [10, 20]) for t in (10, 20, 25, 35)],
        batch=[("element", n) for n in (3, 10, 4, 1, 20)]
        + [("timer", "a", t, [4, 1, 3]) for t in (10, 20, 25, 30, 35, 45)]
        + [("timer", "b", t, [20, 10]) for t in (10, 20, 25, 35)],
        spark=[("element", n) for n in (3, 10, 4, 1, 20)]
        + [("timer", "a", 10, [4]), ("timer", "a", 20, [4, 1]), ("timer", "a", 25, [4, 1])]
        + [("timer", "a", t, [4, 1, 3]) for t in (30, 35, 45)]
        + [("timer", "b", 10, [20]), *(("timer", "b", t, [20, 10]) for t in (20, 25, 35))],
    ),
    Case(
        "timers at the end of time and by the clock",
        lambda env: env.from_collection([("a", 1), ("b", 2)], PAIR).key_by(0).process(AtTheEnd()),
        # The job ends before the clock says so: such timers are given up. In BATCH they fire then.
        [("element", True)] * 2 + [("EVENT_TIME", k, True) for k in "ab"],
        batch=[("element", True)] * 2 + [(d, k, True) for d in ("EVENT_TIME", "PROCESSING_TIME") for k in "ab"],
    ),
]  # fmt: skip

# -- two inputs ------------------------------------------------------------------------------------


class Both(KeyedCoProcessFunction):
    """What the key has seen so far, and whether the record has an event time; a timer at the end says it again."""

    def open(self, context: Any) -> None:
        self.seen = context.get_list_state(ListStateDescriptor("seen", Types.STRING()))

    def process_element1(self, value: Any, ctx: Any) -> Any:
        return self._next(f"l{value[-1]}", ctx)

    def process_element2(self, value: Any, ctx: Any) -> Any:
        return self._next(f"r{value[-1]}", ctx)

    def _next(self, what: str, ctx: Any) -> Any:
        self.seen.add(what)
        ctx.timer_service().register_event_time_timer(10**12)
        yield what, ctx.timestamp()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), ", ".join(sorted(self.seen.get()))


class Ordered(Both):
    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), ", ".join(self.seen.get())


RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())


class Ruled(KeyedBroadcastProcessFunction):
    """How many rules there were at each record."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value[0], value[-1], len(ctx.get_broadcast_state(RULES).keys())

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES).put(value[0], value[-1])


class WithTime(ProcessFunction):
    """(the last field, the event time)"""

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value[-1], ctx.timestamp()


class Passed(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


def untimed(env: StreamExecutionEnvironment, rows: Any = NUMBERS[:2]) -> DataStream:
    return env.from_collection([(k, 0, n) for k, n in rows], EVENT)


def connected(left: Any, right: Any) -> Any:
    return lambda env: left(env).connect(right(env)).key_by(lambda r: r[0], lambda r: r[0]).process(Both())


LEFT, RIGHT = [("a", 10, 1), ("b", 20, 2)], [("a", 5, 3), ("a", 30, 4)]
TIMED_LEFT, TIMED_RIGHT = [("l1", 10), ("l2", 20)], [("r3", 5), ("r4", 30)]
UNTIMED = [("r3", None), ("r7", None)]


class EachSide(CoFlatMapFunction):
    def flat_map1(self, value: Any) -> Any:
        yield "first", value[0]

    def flat_map2(self, value: Any) -> Any:
        return [("second", value[0])] * 2


class Counted(MapFunction):
    """(key, how many of it so far): its state is the key's."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG()))

    def map(self, value: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        return value[0], self.count.value()


TWO_INPUTS = [
    Case(
        "co-flat-map",
        lambda env: env.from_collection(NUMBERS[:2], PAIR).connect(env.from_collection([("x", 1)], PAIR)).flat_map(EachSide()),
        [("first", "a"), ("first", "b"), ("second", "x"), ("second", "x")],
    ),
    Case(
        "a map function with keyed state",
        lambda env: env.from_collection(NUMBERS, PAIR).key_by(lambda r: r[0], Types.STRING()).map(Counted()),
        [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2)],
    ),
    Case(
        "fields of a keyed stream",
        lambda env: env.from_collection(NUMBERS, PAIR).key_by(0).project(1).map(lambda r: r[0]),
        [3, 7, 1, 5, 7],
    ),
    Case(
        "connect: both with event times",
        connected(lambda env: events(env, LEFT), lambda env: events(env, RIGHT)),
        [*TIMED_LEFT, *TIMED_RIGHT, ("a", "l1, r3, r4"), ("b", "l2")],
    ),
    Case(
        "connect: the first with event times",
        connected(lambda env: events(env, LEFT), untimed),
        [*TIMED_LEFT, *UNTIMED, ("a", "l1, r3"), ("b", "l2, r7")],
    ),
    Case(
        "connect: the second with event times",
        connected(lambda env: untimed(env, [("a", 1), ("b", 2)]), lambda env: events(env, RIGHT)),
        [("l1", None), ("l2", None), *TIMED_RIGHT, ("a", "l1, r3, r4"), ("b", "l2")],
    ),
    Case(
        "connect: neither with event times",
        connected(lambda env: untimed(env, [("a", 1), ("b", 2)]), untimed),
        [("l1", None), ("l2", None), *UNTIMED, ("a", "l1, r3"), ("b", "l2, r7")],
    ),
    Case(
        "connect: in BATCH by event time, over both inputs",
        lambda env: events(env, [("a", 40, 1), ("a", 10, 2)])
        .connect(events(env, [("a", 30, 3), ("a", 20, 4)]))
        .key_by(lambda r: r[0], lambda r: r[0])
        .process(Ordered() if env.configuration.get("execution.runtime-mode", "") in ("BATCH", "AUTOMATIC") else Both()),
        [("l1", 40), ("l2", 10), ("r3", 30), ("r4", 20), ("a", "l1, l2, r3, r4")],
        batch=[("l1", 40), ("l2", 10), ("r3", 30), ("r4", 20), ("a", "l2, r4, r3, l1")],
    ),
    *(
        Case(
            f"connect with broadcast rules: {name}",
            lambda env, data=data, rules=rules: data(env).connect(rules(env).broadcast(RULES)).process(Ruled()),
            None,
            batch=[("a", 1, 2), ("b", 2, 2)],
        )
        for name, data, rules in (
            ("both with event times", lambda env: events(env, LEFT).key_by(0), lambda env: events(env, [("x", 50, 1), ("y", 60, 2)])),
            ("data with event times", lambda env: events(env, LEFT).key_by(0), lambda env: untimed(env, [("x", 1), ("y", 2)])),
            ("rules with event times", lambda env: untimed(env, [("a", 1), ("b", 2)]).key_by(0), lambda env: events(env, [("x", 50, 1), ("y", 60, 2)])),
            ("data without a key", lambda env: events(env, LEFT), lambda env: untimed(env, [("x", 1), ("y", 2)])),
        )
    ),
    Case(
        "union: one with event times",
        lambda env: events(env, LEFT).union(untimed(env, [("a", 3)])).process(WithTime()),
        [(1, 10), (2, 20), (3, None)],
    ),
    Case(
        "union of one with event times, by key",
        lambda env: events(env, LEFT).union(untimed(env, [("a", 3)])).key_by(0).process(WithTime()),
        [(1, 10), (2, 20), (3, None)],
    ),
    Case(
        "event times behind a process function that gives records with and without one",
        lambda env: events(env, LEFT)
        .union(untimed(env, [("a", 3)]))
        .key_by(0)
        .process(Passed(), EVENT)
        .process(WithTime()),
        [(1, 10), (2, 20), (3, None)],
    ),
    Case(
        "async, in order",
        lambda env: AsyncDataStream.ordered_wait(events(env), Answered(), Time.seconds(60), 3, EVENT).process(WithTime()),
        [(2, 300), (3, 900), (5, 2_200), (7, 5_000)],
    ),
    Case(
        "async, as answers come, by key",
        lambda env: AsyncDataStream.unordered_wait(events(env), Answered(), Time.seconds(60), 3, EVENT)
        .key_by(0)
        .window(TumblingEventTimeWindows.of(Time.seconds(1)))
        .process(Contents()),
        [("a", 0, [2, 3]), ("a", 2_000, [5]), ("a", 5_000, [7])],
    ),
    Case(
        "interval join",
        lambda env: events(env, LEFT)
        .key_by(0)
        .interval_join(events(env, RIGHT).key_by(0))
        .between(Time.milliseconds(-5), Time.milliseconds(5))
        .process(lambda a, b: (a[2], b[2]), Types.TUPLE([Types.LONG(), Types.LONG()])),
        [(1, 3)],
    ),
]  # fmt: skip

CASES = [*WINDOWS, *KEYED, *TWO_INPUTS]

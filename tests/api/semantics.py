"""The rows that Flink gives: a table of DataStream programs, by runtime mode and engine.

``tests/api/test_semantics.py`` runs it on the streaming engine, ``tests/spark/test_semantics.py`` on Spark. Rows
are compared without their order. A program that says no mode runs as in mode STREAMING.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.api import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    NeverTrigger,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    ProcessWindowFunction,
    PurgingTrigger,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    StreamExecutionEnvironment,
    Time,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Types,
    WatermarkStrategy,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.api import DataStream

#: What a program says of its mode; None: nothing.
MODES = (None, "STREAMING", "BATCH", "AUTOMATIC")


@dataclass(frozen=True)
class Case:
    """``rows``: in mode STREAMING. ``batch``: in BATCH, and in AUTOMATIC as all sources are bounded (None: the
    same). ``spark``: on Spark without a mode, where the watermark follows every row (None: as ``rows``)."""

    name: str
    program: Callable[[StreamExecutionEnvironment], DataStream]
    rows: list[Any]
    batch: list[Any] | None = None
    spark: list[Any] | None = None

    def expected(self, mode: str | None, *, spark: bool = False) -> list[str]:
        if mode in ("BATCH", "AUTOMATIC"):
            rows = self.rows if self.batch is None else self.batch
        else:
            rows = self.rows if self.spark is None or not spark else self.spark
        return sorted(map(repr, rows))


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


class Contents(ProcessWindowFunction):
    """(key, start of the window, its elements' numbers)"""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, context.window().start, [e[2] for e in elements]


class Elements(ProcessWindowFunction):
    """(key, the window's elements' numbers)"""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, [e[2] for e in elements]


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
        spark=[("a", 0, [1, 2]), ("a", 0, ALL), ("a", 0, ALL)]
        + [("a", 2_000, [5])] * 3 + [("a", 4_000, [7])] * 2 + [("b", 0, [6])] * 3,
    ),
    Case(
        "tumbling × purging continuous",
        windowed(TUMBLING, PurgingTrigger.of(EVERY_800), Contents()),
        OF_TUMBLING,
        spark=[("a", 0, [1, 2]), ("a", 0, [3, 4]), *OF_TUMBLING[1:]],
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
        spark=[
            ("a", -1_000, [1, 2]), ("a", -1_000, [1, 2, 3]), ("a", 0, [1, 2]), ("a", 0, ALL), ("a", 0, ALL),
            ("a", 1_000, [4]), ("a", 1_000, [4, 5]), ("a", 1_000, [4, 5]), *[("a", 2_000, [5])] * 3,
            *[("a", 4_000, [7])] * 2, *[("a", 5_000, [7])] * 3, *[("b", -1_000, [6])] * 2, *[("b", 0, [6])] * 3,
        ],
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
        spark=[("a", 0, [1, 2]), ("a", 0, ALL)]
        + [("a", 0, [1, 2, 3, 4, 5])] * 2 + [("a", 5_000, [7])] * 2 + [("b", 10, [6])] * 2,
    ),
    Case("global × event time", windowed(GLOBAL, EventTimeTrigger.create(), Elements()), OF_GLOBAL),
    Case("global × count", windowed(GLOBAL, TWO, Elements()), COUNTED),
    Case("global × purging count", windowed(GLOBAL, PurgingTrigger.of(TWO), Elements()), PURGED),
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

CASES = [*WINDOWS]

"""The table of ``tests/api/semantics.py`` on Spark: programs of each kind, all of a mode in one job.

Those that differ in the trigger or the function alone run the same operator there as on the streaming engine.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from penstock.api import Sink, Types
from penstock.spark.engine import SparkJob
from tests.api import semantics, semantics_windows
from tests.api.semantics import environment

#: A program that says STREAMING never runs on Spark; AUTOMATIC is BATCH by the time it is planned.
MODES = (None, "BATCH")
CASES = [*semantics.CASES, *semantics_windows.CASES]
CHOSEN = (
    "tumbling × continuous", "session × count", "session × purging count", "global × event time", "clock × its own",
    "session by the clock × continuous", "reduce in the order of event time", "sum", "event timers",
    "timers at the end of time and by the clock", "connect: the first with event times",
    "connect: in BATCH by event time, over both inputs", "connect with broadcast rules: data with event times",
    "union of one with event times, by key", "sessions with a gap of each record", "cumulative windows",
    "overlapping count windows", "windows of all", "co-flat-map", "a map function with keyed state", "async, in order",
    "async, as answers come, by key", "join over windows", "co-group over windows", "the last two of a window",
    "evicted after a sum", "windows of an assigner of one's own", "merging windows, a trigger of one's own",
)  # fmt: skip
RUNS = [(case, mode) for case in CASES if case.name in CHOSEN for mode in MODES
    if case.expected(mode, spark=True) is not None]  # fmt: skip
ROW = Types.TUPLE([Types.STRING(), Types.STRING()])


def _named(name: str) -> Any:
    return lambda row: (name, repr(row))


@pytest.fixture(scope="module", params=MODES, ids=str)
def rows_on_spark(request: pytest.FixtureRequest, spark: Any) -> tuple[str | None, dict[str, list[str]]]:
    """The mode, and by the case's name its rows."""
    mode = request.param
    env = environment(mode)
    streams = [case.program(env).map(_named(case.name), ROW) for case, of in RUNS if of == mode]
    streams[0].union(*streams[1:]).sink_to(Sink.connector("collect"))
    found = defaultdict(list)
    for name, row in SparkJob(env.job_graph(), spark).run().rows:
        found[name].append(row)
    return mode, found


def test_every_chosen_program_is_in_the_table() -> None:
    assert {case.name for case, _ in RUNS} == set(CHOSEN)


def test_the_rows_are_flinks(rows_on_spark: tuple[str | None, dict[str, list[str]]], subtests: Any) -> None:
    mode, found = rows_on_spark
    for case, of in RUNS:
        if of == mode:
            with subtests.test(case.name):
                assert sorted(found[case.name]) == case.expected(mode, spark=True)

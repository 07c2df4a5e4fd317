"""Window aggregation against a plain reference: panes, lateness, phases, rescaling."""

from __future__ import annotations

import math
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import RecordError
from penstock.functions.accumulators import accumulator_types
from penstock.functions.expr import AggregateCall
from penstock.jobgraph.specs import WindowAggregateSpec, WindowSpec
from penstock.operators.window_aggregate import make_window_aggregate
from penstock.testing.operator_harness import Cluster, Subtask, materialized
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.logical import Schema

BIG, DBL, STR, TS = t.BigIntType(), t.DoubleType(), t.VarCharType(), t.TimestampType(3)
INPUT = Schema.of(("k", STR), ("ts", TS.not_null), ("v", BIG), ("d", DBL))
CALLS = (
    AggregateCall("COUNT", (), BIG.not_null),
    AggregateCall("COUNT", (2,), BIG.not_null),
    AggregateCall("SUM", (2,), BIG),
    AggregateCall("AVG", (2,), BIG),
    AggregateCall("MIN", (3,), DBL),
    AggregateCall("MAX", (2,), BIG),
)
OUTPUT = Schema.of(
    ("k", STR), ("c", BIG.not_null), ("cv", BIG.not_null), ("s", BIG), ("a", BIG), ("mn", DBL), ("mx", BIG),
    ("window_start", TS.not_null), ("window_end", TS.not_null), ("window_time", TS.not_null),
)  # fmt: skip
S = 1_000_000  # µs


def spec(kind="hop", size=10 * S, slide=4 * S, **more):
    window = WindowSpec(kind=kind, time=1, size_us=size, slide_us=slide, offset_us=more.pop("offset", 0))
    return WindowAggregateSpec(window=window, keys=(0,), aggregates=more.pop("calls", CALLS), **more)


def batch(rows):
    """rows: (key, second, v, d)."""
    return Batch.of(INPUT, [(k, _ts(s), v, d) for k, s, v, d in rows])


def _ts(seconds):
    import datetime

    return datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)


def windows_of(kind, size, slide, offset, time):
    """(start, end) of all windows with time in them, by definition."""
    if kind == "cumulate":
        base = (time - offset) // size * size + offset
        return [(base, base + k * slide) for k in range(1, size // slide + 1) if time < base + k * slide]
    slide = size if kind == "tumble" else slide
    out, start = [], (time - offset) // slide * slide + offset
    while start > time - size:
        out.append((start, start + size))
        start -= slide
    return out


def reference(rows, kind, size, slide, offset=0):
    groups = defaultdict(list)
    for k, s, v, d in rows:
        for window in windows_of(kind, size, slide, offset, s * S):
            groups[k, window].append((v, d))
    out = []
    for (k, (start, end)), items in groups.items():
        vs = [v for v, _ in items if v is not None]
        ds = [d for _, d in items if d is not None]
        out.append((
            k, len(items), len(vs), sum(vs) if vs else None,
            math.trunc(sum(vs) / len(vs)) if vs else None,
            min(ds) if ds else None, max(vs) if vs else None,
            _ts(start / S), _ts(end / S), _ts(end / S - 0.001),
        ))  # fmt: skip
    return out


def ordered(rows):
    return sorted(rows, key=repr)


ROW = st.tuples(
    st.sampled_from(["a", "b", "JFK", None, ""]),
    st.integers(-30, 60),
    st.one_of(st.none(), st.integers(-1000, 1000)),
    st.one_of(st.none(), st.integers(-8, 8).map(lambda x: x / 4)),
)
WINDOWS = st.sampled_from([
    ("tumble", 10 * S, 0, 0), ("tumble", 10 * S, 0, 3 * S), ("hop", 10 * S, 5 * S, 0), ("hop", 10 * S, 4 * S, 1 * S),
    ("hop", 4 * S, 10 * S, 0), ("cumulate", 12 * S, 3 * S, 0), ("cumulate", 12 * S, 3 * S, 2 * S),
])  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(ROW, min_size=1, max_size=15), min_size=1, max_size=5), WINDOWS)
def test_panes_equal_the_definition(batches, window):
    kind, size, slide, offset = window
    sub = Subtask(make_window_aggregate(spec(kind, size, slide, offset=offset)), [INPUT], OUTPUT)
    for rows in batches:
        sub.process(batch(rows))
    sub.finish()
    want = reference([r for rows in batches for r in rows], kind, size, slide, offset)
    assert ordered(sub.rows()) == ordered(want)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(ROW, min_size=1, max_size=12), min_size=2, max_size=6), WINDOWS, st.data())
def test_late_rows_and_rescaling(batches, window, data):
    """On-time rows give the reference's windows, late ones the side output; a run that is
    snapshotted and restored at another parallelism in the middle gives the same."""
    kind, size, slide, offset = window
    make = lambda: make_window_aggregate(spec(kind, size, slide, offset=offset, late_tag="late"))  # noqa: E731
    straight = Cluster(make, [(0,)], [INPUT], OUTPUT, 1)
    scaled = Cluster(make, [(0,)], [INPUT], OUTPUT, 2)
    watermark, on_time, late = -(2**63), [], []
    for i, rows in enumerate(batches):
        for row in rows:
            windows = windows_of(kind, size, slide, offset, row[1] * S)
            if any(end - 1 > watermark for _, end in windows):
                on_time.append(row)
            else:
                late.append(row)
        straight.process(batch(rows))
        scaled.process(batch(rows))
        if i == len(batches) // 2:
            scaled = scaled.rescale(data.draw(st.sampled_from([1, 3])))
        watermark = max(watermark, data.draw(st.integers(-30, 60)) * S - 1)
        straight.watermark(watermark)
        scaled.watermark(watermark)
    straight.finish()
    scaled.finish()
    fired = materialized(straight.out())
    assert fired == materialized(scaled.out())
    emitted_late = [r for b in straight.subtasks[0].side.get("late", []) for r in b.to_pylist()]
    assert ordered(emitted_late) == ordered((k, _ts(s), v, d) for k, s, v, d in late)
    assert straight.subtasks[0].metrics.counters.get("numLateRecordsDropped", 0) == len(late)
    counted = sum(row[1] for row in fired.elements())
    assert counted <= sum(len(windows_of(kind, size, slide, offset, r[1] * S)) for r in on_time)


def test_a_window_fires_once_when_the_watermark_passes_its_end():
    sub = Subtask(make_window_aggregate(spec("tumble", 10 * S, 0)), [INPUT], OUTPUT)
    sub.process(batch([("a", 1, 5, 1.0), ("a", 9, -7, None), ("b", 12, 1, 2.0)]))
    sub.watermark(10 * S - 2)
    assert sub.rows() == []
    sub.watermark(10 * S - 1)
    assert sub.rows() == [("a", 2, 2, -2, -1, 1.0, 5, _ts(0), _ts(10), _ts(9.999))]
    sub.watermark(15 * S)
    assert len(sub.rows()) == 1
    sub.finish()
    assert [r[0] for r in sub.rows()] == ["a", "b"]
    assert len(sub.operator._keys) == len(sub.operator._cells) == len(sub.operator._keys.panes) == 0


def test_a_late_row_of_one_hop_still_counts_in_the_next():
    sub = Subtask(make_window_aggregate(spec("hop", 10 * S, 5 * S, late_tag="late")), [INPUT], OUTPUT)
    sub.process(batch([("a", 1, 1, None), ("a", 11, 1, None)]))
    sub.watermark(10 * S)
    sub.process(batch([("a", 7, 1, None), ("a", 4, 1, None)]))  # [0,10) is closed, [5,15) open
    sub.finish()
    assert [(r[1], r[7]) for r in sub.rows()] == [(1, _ts(-5)), (1, _ts(0)), (2, _ts(5)), (1, _ts(10))]
    assert sub.side_rows("late") == [("a", _ts(4), 1, None)]
    assert sub.metrics.counters == {"numLateRecordsDropped": 1, "numRecordsAccepted": 3}


def test_allowed_lateness_fires_the_window_of_the_key_again():
    sub = Subtask(
        make_window_aggregate(spec("tumble", 10 * S, 0, allowed_lateness_us=5 * S)), [INPUT], OUTPUT
    )
    sub.process(batch([("a", 1, 1, None), ("b", 1, 1, None)]))
    sub.watermark(10 * S)
    sub.process(batch([("a", 2, 4, None)]))
    assert [(r[0], r[3]) for r in sub.rows()] == [("a", 1), ("b", 1), ("a", 5)]
    sub.watermark(15 * S - 1)
    sub.process(batch([("a", 3, 4, None)]))
    sub.finish()
    assert len(sub.rows()) == 3
    assert sub.metrics.counters["numLateRecordsDropped"] == 1


@pytest.mark.parametrize(
    "window", [("tumble", 10 * S, 0), ("hop", 10 * S, 4 * S), ("cumulate", 12 * S, 3 * S)]
)
def test_two_phases_equal_one(window):
    one = spec(*window)
    partial = [x for c in CALLS for x in accumulator_types(c, [INPUT.types[i] for i in c.args])]
    middle = Schema.of(("k", STR), ("pane_end", BIG.not_null), *((f"p{i}", x) for i, x in enumerate(partial)))
    local = Subtask(make_window_aggregate(spec(*window, phase="local", late_tag="late")), [INPUT], middle)
    both = Subtask(
        make_window_aggregate(spec(*window, phase="global", local_types=tuple(INPUT.types))),
        [middle],
        OUTPUT,
    )
    single = Subtask(make_window_aggregate(one), [INPUT], OUTPUT)
    rows = [("ab"[i % 2], i * 7 % 40, i - 20 if i % 3 else None, i / 4) for i in range(60)]
    for at in range(0, 60, 20):
        local.process(batch(rows[at : at + 20]))
        single.process(batch(rows[at : at + 20]))
        watermark = at * S // 4
        local.watermark(watermark)
        while local.out:
            both.process(local.out.pop(0))
        both.watermark(watermark)
        single.watermark(watermark)
    both.finish()
    single.finish()
    assert ordered(both.rows()) == ordered(single.rows())
    assert len(both.rows()) >= 8


def test_windowed_input_is_grouped_by_its_own_windows():
    schema = Schema.of(("k", STR), ("ws", TS.not_null), ("we", TS.not_null), ("v", BIG))
    out = Schema.of(("k", STR), ("s", BIG), ("window_start", TS.not_null), ("window_end", TS.not_null))
    sub = Subtask(
        make_window_aggregate(WindowAggregateSpec(
            window=WindowSpec(kind="tumble", size_us=10 * S), keys=(0,), windowed_input=(1, 2),
            aggregates=(AggregateCall("SUM", (3,), BIG),), window_columns=("start", "end"),
        )), [schema], out,
    )  # fmt: skip
    sub.process(
        Batch.of(schema, [("a", _ts(0), _ts(10), 1), ("a", _ts(5), _ts(10), 2), ("a", _ts(0), _ts(10), 3)])
    )
    sub.watermark(10 * S)
    assert sub.rows() == [("a", 4, _ts(0), _ts(10)), ("a", 2, _ts(5), _ts(10))]
    sub.process(Batch.of(schema, [("a", _ts(0), _ts(10), 1)]))
    assert sub.metrics.counters["numLateRecordsDropped"] == 1


def test_processing_time_windows_fire_by_the_clock():
    window = WindowSpec(kind="tumble", size_us=10 * S)
    sub = Subtask(
        make_window_aggregate(WindowAggregateSpec(window=window, keys=(0,), aggregates=CALLS)),
        [INPUT],
        OUTPUT,
    )
    sub.now_ms = 3_000
    sub.process(batch([("a", 999, 1, None)]))
    assert sub.wakes == [10_000]
    sub.watermark(10**15)
    assert sub.rows() == []
    sub.processing_time(10_000)
    assert [(r[0], r[1], r[8]) for r in sub.rows()] == [("a", 1, _ts(10))]


def test_a_null_row_time_is_an_error():
    schema = Schema.of(("k", STR), ("ts", TS), ("v", BIG), ("d", DBL))
    sub = Subtask(make_window_aggregate(spec()), [schema], OUTPUT)
    with pytest.raises(RecordError, match="row time is NULL"):
        sub.process(Batch.of(schema, [("a", None, 1, 1.0)]))


def test_without_keys_an_empty_window_is_not_emitted():
    out = Schema(OUTPUT.fields[1:])
    window = WindowSpec(kind="tumble", time=1, size_us=10 * S)
    sub = Subtask(
        make_window_aggregate(WindowAggregateSpec(window=window, keys=(), aggregates=CALLS)), [INPUT], out
    )
    sub.process(batch([("a", 1, 1, None), ("b", 1, 2, None), ("b", 31, 2, None)]))
    sub.finish()
    assert [(r[0], r[6]) for r in sub.rows()] == [(2, _ts(0)), (1, _ts(30))]

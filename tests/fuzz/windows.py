"""Window table functions of every shape, and the same in DuckDB's words."""

from __future__ import annotations

import random

from tests.fuzz.tables import Table


def windowed_table(r: random.Random, table: Table, key: str) -> tuple[str, str, bool]:
    """(the table with its windows, the same for DuckDB, whether rows of one window have one value of ``key``)."""
    shape = r.choice(["tumble", "tumble", "hop", "hop", "cumulate", "session"])
    size = r.choice([5, 10])
    columns = ", ".join(name for name, _ in table.columns)
    wrapped = r.choice(["TABLE({})", "{}"])

    def theirs(start: str, end: str, rows: str) -> str:
        return f"(SELECT {columns}, {start} AS window_start, {end} AS window_end FROM {rows})"

    def ours(call: str) -> str:
        return wrapped.format(call)

    of = f"TABLE {table.name}, DESCRIPTOR(ts)"
    if shape == "tumble":
        offset = r.choice([0, 0, 3])
        more = f", INTERVAL '{offset}' SECOND" if offset else ""
        begin = f"time_bucket(INTERVAL {size} SECOND, ts, TIMESTAMP '2000-01-01 00:00:0{offset}')"
        rows = f"(SELECT *, {begin} AS bucket FROM {table.name})"
        return (
            ours(f"TUMBLE({of}, INTERVAL '{size}' SECOND{more})"),
            theirs("bucket", f"bucket + INTERVAL {size} SECOND", rows),
            False,
        )
    if shape == "hop":
        slide = size // 5
        begin = f"time_bucket(INTERVAL {slide} SECOND, ts) - to_seconds({slide} * hop)"
        rows = f"(SELECT *, {begin} AS bucket FROM {table.name}, range(5) AS hops(hop))"
        call = f"HOP({of}, INTERVAL '{slide}' SECOND, INTERVAL '{size}' SECOND)"
        return ours(call), theirs("bucket", f"bucket + INTERVAL {size} SECOND", rows), False
    if shape == "cumulate":
        step = size // 5
        inner = f"(SELECT *, time_bucket(INTERVAL {size} SECOND, ts) AS bucket FROM {table.name})"
        rows = f"(SELECT * FROM {inner}, range(1, 6) AS steps(step) WHERE ts < bucket + to_seconds({step} * step))"
        call = f"CUMULATE({of}, INTERVAL '{step}' SECOND, INTERVAL '{size}' SECOND)"
        return ours(call), theirs("bucket", f"bucket + to_seconds({step} * step)", rows), False
    gap = r.choice([1, 2, 5])
    keyed = r.random() < 0.6
    by = f"PARTITION BY {key} " if keyed else ""
    fresh = (f"(SELECT *, CASE WHEN ts - LAG(ts) OVER ({by}ORDER BY ts) <= INTERVAL {gap} SECOND THEN 0 ELSE 1 END AS fresh "
             f"FROM {table.name})")  # fmt: skip
    numbered = f"(SELECT *, SUM(fresh) OVER ({by}ORDER BY ts ROWS UNBOUNDED PRECEDING) AS session_number FROM {fresh})"
    both = f"PARTITION BY {key + ', ' if keyed else ''}session_number"
    rows = (f"(SELECT *, MIN(ts) OVER ({both}) AS first_ts, MAX(ts) OVER ({both}) + INTERVAL {gap} SECOND AS last_ts "
            f"FROM {numbered})")  # fmt: skip
    call = f"SESSION(TABLE {table.name} {by}, DESCRIPTOR(ts), INTERVAL '{gap}' SECOND)"
    return ours(call), theirs("first_ts", "last_ts", rows), keyed

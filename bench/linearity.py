"""Cost per event against the number of events and of keys.

``python -m bench linearity [--millions 1,4,16] [--keys 10000,1000000,10000000]``. CPU ns an
event, at parallelism 1; the cost of making the events is taken off (a run of the same
source into the sink). What a run of no events costs is taken off too.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from bench.jobs import run_sql
from bench.nexmark.queries import script

_TABLES = """
CREATE TABLE events (k BIGINT, v BIGINT) WITH (
  'connector' = 'datagen', 'rows-per-second' = '0', 'number-of-rows' = '{events}',
  'fields.k.min' = '0', 'fields.k.max' = '{last}', 'fields.v.min' = '0', 'fields.v.max' = '1000000');
CREATE TABLE sink ({columns}) WITH ('connector' = 'blackhole');
INSERT INTO sink {select};
"""
_PLAIN = ("k BIGINT, v BIGINT", "SELECT k, v FROM events")
_GROUPED = (
    "k BIGINT, n BIGINT, total BIGINT, most BIGINT",
    "SELECT k, COUNT(*), SUM(v), MAX(v) FROM events GROUP BY k",
)


def _cost(events: int, keys: int, query: tuple[str, str]) -> tuple[float, int]:
    """(CPU seconds, peak bytes)."""
    used = run_sql(_TABLES.format(events=events, last=keys - 1, columns=query[0], select=query[1]))
    return used.cpu_s, used.peak_bytes


def grouped(events: int, keys: int) -> tuple[float, float]:
    """(CPU ns an event, peak MB) of COUNT, SUM and MAX by uniform keys, changes emitted."""
    with_group, peak = _cost(events, keys, _GROUPED)
    without, _ = _cost(events, keys, _PLAIN)
    return (with_group - without) / events * 1e9, peak / 1e6


def nexmark(name: str, events: int) -> tuple[float, float]:
    """(CPU ns an event, peak MB) of a Nexmark query, its source included."""
    sink = {"connector": "blackhole"}
    runs = [
        run_sql(script(name, {"connector": "nexmark", "events.num": str(n), "rate": "100000"}, sink))
        for n in (events, 50)
    ]
    return (runs[0].cpu_s - runs[1].cpu_s) / events * 1e9, runs[0].peak_bytes / 1e6


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench linearity", description=__doc__)
    parser.add_argument("--millions", type=_numbers, default=[1, 4, 16], help="of events, of each run")
    parser.add_argument("--keys", type=_numbers, default=[10_000, 1_000_000, 10_000_000])
    parser.add_argument("--queries", default="q5,q18,q4", help="Nexmark queries to run besides")
    args = parser.parse_args(argv)
    most = max(args.millions)
    print("| job | events (M) | keys | CPU ns an event | peak MB |\n|---|---|---|---|---|", flush=True)
    for millions in args.millions:
        _print("GROUP BY", millions, "1,000,000", *grouped(millions * 1_000_000, 1_000_000))
    for keys in args.keys:
        _print("GROUP BY", most, f"{keys:,}", *grouped(most * 1_000_000, keys))
    for name in filter(None, args.queries.split(",")):
        for millions in args.millions:
            _print(name, millions, "", *nexmark(name, millions * 1_000_000))
    return 0


def _print(job: str, millions: int, keys: str, nanoseconds: float, peak_mb: float) -> None:
    print(f"| {job} | {millions} | {keys} | {nanoseconds:,.0f} | {peak_mb:,.0f} |", flush=True)


def _numbers(text: str) -> list[int]:
    return [int(x) for x in text.split(",")]

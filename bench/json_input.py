"""Nexmark from JSON lines: decoding bounds everything behind it.

``python -m bench json [--events 1000000] [--queries q0,q2,q5]``. Bids are written to a
folder as JSON lines by a job of our own, then read back by each query; events/s a CPU second,
and MB/s of text. With Flink beside it: ``python -m bench --sources json``.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.jobs import run_sql
from bench.nexmark.queries import QUERIES, TABLE

_BID = """
CREATE TABLE {name} (auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING,
  `dateTime` TIMESTAMP(3), extra STRING{watermark}) WITH ({options});
"""
_WATERMARK = ",\n  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND"
_VIEW = """
CREATE TEMPORARY VIEW made AS
SELECT bid.auction, bid.bidder, bid.price, bid.channel, bid.url, `dateTime`, bid.extra
FROM nexmark WHERE event_type = 2;
INSERT INTO files SELECT * FROM made;
"""


def write(folder: Path, events: int) -> int:
    """The bids among so many events, as JSON lines; returns bytes."""
    source = f"'connector' = 'nexmark', 'events.num' = '{events}', 'rate' = '100000'"
    files = f"'connector' = 'filesystem', 'path' = '{folder}', 'format' = 'json'"
    run_sql(TABLE.format(options=source) + _BID.format(name="files", watermark="", options=files) + _VIEW)
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench json", description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000, help="of all kinds; 92 in 100 are bids")
    parser.add_argument("--queries", default="q0,q2,q5,q17")
    args = parser.parse_args(argv)
    print("| query | k ev/CPU s | MB/CPU s |\n|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        size = write(Path(folder), args.events)
        files = f"'connector' = 'filesystem', 'path' = '{folder}', 'format' = 'json'"
        for name in args.queries.split(","):
            query = QUERIES[name]
            used = run_sql(
                _BID.format(name="bid", watermark=_WATERMARK, options=files)
                + f"CREATE TABLE sink ({query.columns}) WITH ('connector' = 'blackhole');"
                + f"INSERT INTO sink\n{query.select};\n"
            )
            rate = args.events / used.cpu_s / 1000
            print(f"| {name} | {rate:,.0f} | {size / used.cpu_s / 1e6:,.0f} |", flush=True)
    return 0

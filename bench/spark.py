"""Penstock's Spark engine beside PySpark written by hand, and a large batch in bounded memory.

``python -m bench.spark`` runs five named queries over Nexmark events in Parquet, each pair of
runs in one warm session, in alternating order, and prints the median of the ratios (job time
from the SQL text to the last row written, without the session's start). ``--large N`` instead
runs one aggregation over N events and prints the peak memory of Java and of the Python workers.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.engine import SparkJob
from penstock.spark.session import open_session
from penstock.sql.session import plan_script

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BID = "bid ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, `dateTime` TIMESTAMP(3)>"
_AUCTION = (
    "auction ROW<id BIGINT, seller BIGINT, category BIGINT, expires TIMESTAMP(3), `dateTime` TIMESTAMP(3)>"
)
_PERSON = "person ROW<id BIGINT, name STRING, city STRING, state STRING>"
_COLUMNS = f"event_type INT, {_PERSON}, {_AUCTION}, {_BID}"
TABLE = f"""CREATE TABLE events ({_COLUMNS}, ts AS bid.`dateTime`, WATERMARK FOR ts AS ts - INTERVAL '4' SECOND)
  WITH ('connector' = 'filesystem', 'path' = '{{path}}', 'format' = 'parquet');
"""
SINK = "CREATE TABLE o ({columns}) WITH ('connector' = 'blackhole');\nINSERT INTO o "

#: name → (columns of the result, SQL)
QUERIES = {
    "currency": ("a BIGINT, b BIGINT, p DECIMAL(24, 3)",
                 "SELECT bid.auction, bid.bidder, 0.908 * bid.price FROM events WHERE event_type = 2"),
    "selection": ("a BIGINT, p BIGINT",
                  "SELECT bid.auction, bid.price FROM events WHERE event_type = 2 AND MOD(bid.auction, 123) = 0"),
    "per_auction": ("a BIGINT, n BIGINT, h BIGINT, m BIGINT, s BIGINT",
                    "SELECT bid.auction, COUNT(*), MAX(bid.price), AVG(bid.price), SUM(bid.price) FROM events "
                    "WHERE event_type = 2 GROUP BY bid.auction"),
    "tumbling": ("b BIGINT, e TIMESTAMP(3), n BIGINT",
                 "SELECT bidder, window_end, COUNT(*) FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), "
                 "INTERVAL '10' SECOND)) GROUP BY bidder, window_start, window_end"),
    "local_sellers": ("n STRING, c STRING, s STRING, a BIGINT",
                      "SELECT p.name, p.city, p.state, a.id FROM (SELECT auction.id, auction.seller FROM events "
                      "WHERE event_type = 1 AND auction.category = 10) a JOIN (SELECT person.id, person.name, "
                      "person.city, person.state FROM events WHERE event_type = 0 AND "
                      "person.state IN ('OR', 'ID', 'CA')) p ON a.seller = p.id"),
}  # fmt: skip
_BIDS = "CREATE TEMPORARY VIEW bids AS SELECT bid.bidder, ts FROM events WHERE event_type = 2;\n"


def by_hand(session: SparkSession, path: str) -> dict[str, Callable[[], DataFrame]]:
    """The same queries as one would write them."""
    from pyspark.sql import functions as F

    def bids() -> DataFrame:
        return session.read.parquet(path).filter("event_type = 2").select("bid.*")

    def currency() -> DataFrame:
        return bids().select(
            "auction", "bidder", (F.lit("0.908").cast("decimal(3,3)") * F.col("price")).alias("p")
        )

    def selection() -> DataFrame:
        return bids().filter("auction % 123 = 0").select("auction", "price")

    def per_auction() -> DataFrame:
        return bids().groupBy("auction").agg(F.count("*"), F.max("price"), F.avg("price"), F.sum("price"))

    def tumbling() -> DataFrame:
        grouped = (
            bids()
            .groupBy("bidder", F.window("dateTime", "10 seconds").alias("w"))
            .agg(F.count("*").alias("n"))
        )
        return grouped.select("bidder", "w.end", "n")

    def local_sellers() -> DataFrame:
        events = session.read.parquet(path)
        auctions = events.filter("event_type = 1 and auction.category = 10").select(
            "auction.id", "auction.seller"
        )
        people = events.filter("event_type = 0 and person.state in ('OR', 'ID', 'CA')").select(
            F.col("person.id").alias("pid"), "person.name", "person.city", "person.state"
        )
        return auctions.join(people, F.col("seller") == F.col("pid")).select("name", "city", "state", "id")

    return {f.__name__: f for f in (currency, selection, per_auction, tumbling, local_sellers)}


def make_events(session: SparkSession, folder: Path, events: int) -> str:
    """Nexmark events as Parquet, written by a Penstock job on Spark itself."""
    path = folder / f"nexmark-{events}"
    if not path.exists():
        sql = f"""CREATE TABLE src ({_COLUMNS}) WITH ('connector' = 'nexmark', 'events.num' = '{events}',
              'rows-per-second' = '0', 'splits' = '8');
            CREATE TABLE dst ({_COLUMNS}) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'parquet');
            INSERT INTO dst SELECT * FROM src"""
        SparkJob(_planned(sql), session).run()
    return str(path)


def _planned(sql: str) -> Any:
    settings = {"parallelism.default": "1", "execution.engine": "streaming"}
    return plan_script(sql, settings).job_graph


def ours(session: SparkSession, path: str, name: str) -> None:
    columns, query = QUERIES[name]
    views = _BIDS if name == "tumbling" else ""
    SparkJob(_planned(TABLE.format(path=path) + views + SINK.format(columns=columns) + query), session).run()


def timed(run: Callable[[], Any]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def compare(session: SparkSession, path: str, rounds: int) -> dict[str, dict[str, float]]:
    """name → median seconds of both, and the median of the pairs' ratios."""
    hand = by_hand(session, path)
    out = {}
    for name in QUERIES:

        def theirs(name: str = name) -> None:
            hand[name]().write.format("noop").mode("overwrite").save()

        def mine(name: str = name) -> None:
            ours(session, path, name)

        pairs = []
        for number in range(rounds + 1):
            if number % 2:
                a, b = timed(mine), timed(theirs)
            else:
                b, a = timed(theirs), timed(mine)
            if number:  # the first pair warms both up
                pairs.append((a, b))
        out[name] = {
            "penstock_s": round(statistics.median(a for a, _ in pairs), 3),
            "by_hand_s": round(statistics.median(b for _, b in pairs), 3),
            "ratio": round(statistics.median(a / b for a, b in pairs), 3),
        }
        print(name, json.dumps(out[name]), flush=True)
    return out


def large(session: SparkSession, path: str) -> dict[str, float]:
    """One keyed aggregation over everything; peak memory of this process's children."""
    seconds = timed(lambda: ours(session, path, "per_auction"))
    jvm = next((_peak_mib(p) for p in _children() if "java" in p.joinpath("comm").read_text()), 0.0)
    return {
        "seconds": round(seconds, 1),
        "java_peak_mib": jvm,
        "python_peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


def _children() -> list[Path]:
    import os

    out = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int(process.joinpath("stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError):
            continue
        if parent == os.getpid():
            out.append(process)
    return out


def _peak_mib(process: Path) -> float:
    for line in process.joinpath("status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--large", type=int, default=0, help="events of the bounded-memory run (100000000)")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "penstock-bench-spark")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    session = open_session(options.master, {"spark.sql.shuffle.partitions": "4", "spark.log.level": "ERROR"})
    if options.large:
        path = make_events(session, options.folder, options.large)
        print(json.dumps({"events": options.large, **large(session, path)}))
        return
    path = make_events(session, options.folder, options.events)
    found = compare(session, path, options.rounds)
    worst = max(found.values(), key=lambda r: r["ratio"])["ratio"]
    print(json.dumps({"events": options.events, "worst_ratio": worst}))


if __name__ == "__main__":
    sys.exit(main())

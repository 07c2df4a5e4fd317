"""Five named queries over Nexmark events in Parquet: as Penstock's SQL, and by hand in PySpark."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.spark.engine import SparkJob
from penstock.spark.outputs import sink_nodes
from penstock.sql.scripts import plan_script

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BID = "bid ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, `dateTime` TIMESTAMP(3)>"
_AUCTION = (
    "auction ROW<id BIGINT, seller BIGINT, category BIGINT, expires TIMESTAMP(3), `dateTime` TIMESTAMP(3)>"
)
_PERSON = "person ROW<id BIGINT, name STRING, city STRING, state STRING, `dateTime` TIMESTAMP(3)>"
COLUMNS = f"event_type INT, {_PERSON}, {_AUCTION}, {_BID}"
TABLE = f"""CREATE TABLE events ({COLUMNS}, ts AS bid.`dateTime`, WATERMARK FOR ts AS ts - INTERVAL '4' SECOND)
  WITH ('connector' = 'filesystem', 'path' = '{{path}}', 'format' = 'parquet');
CREATE TEMPORARY VIEW bids AS SELECT bid.auction, bid.bidder, bid.price, ts FROM events WHERE event_type = 2;
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

#: Of the large batch, beside ``currency`` (Nexmark's q1) and ``selection`` (q2).
LARGE = {
    "q5 (hottest auctions of 10 s, every 2 s)": (
        "a BIGINT, n BIGINT",
        "SELECT auction, num FROM (SELECT auction, num, RANK() OVER (PARTITION BY window_start, window_end "
        "ORDER BY num DESC) AS place FROM (SELECT auction, COUNT(*) AS num, window_start, window_end FROM "
        "TABLE(HOP(TABLE bids, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND)) "
        "GROUP BY auction, window_start, window_end)) WHERE place = 1"),
    "q7 (highest bids of 10 s)": (
        "a BIGINT, p BIGINT, b BIGINT, t TIMESTAMP(3)",
        "SELECT b.auction, b.price, b.bidder, b.ts FROM bids AS b JOIN (SELECT MAX(price) AS most, window_end "
        "FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(ts), INTERVAL '10' SECOND)) GROUP BY window_start, window_end) "
        "AS m ON b.price = m.most WHERE b.ts BETWEEN m.window_end - INTERVAL '10' SECOND AND m.window_end"),
}  # fmt: skip


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


def planned(sql: str) -> Any:
    settings = {
        "parallelism.default": "1",
        "execution.engine": "streaming",
        "table.exec.join.unbounded-state": "allow",
    }
    return plan_script(sql, settings).job_graph


def ours(session: SparkSession, path: str, columns: str, query: str) -> None:
    """From the SQL text to the last row."""
    SparkJob(planned(_script(path, columns, query)), session).run()


def ours_counted(session: SparkSession, path: str, columns: str, query: str) -> int:
    """``ours``, with Spark counting the rows as they are thrown away; how many."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    job = SparkJob(planned(_script(path, columns, query)), session)
    [sink] = sink_nodes(job)
    frame = job.input(sink, 0).renamed(sink.output)
    seen = Observation()
    rows = frame.df.select(*frame.columns()).observe(seen, F.count(F.lit(1)).alias("rows"))
    rows.write.format("noop").mode("overwrite").save()
    job.close()
    return int(seen.get["rows"])


def _script(path: str, columns: str, query: str) -> str:
    return TABLE.format(path=path) + SINK.format(columns=columns) + query

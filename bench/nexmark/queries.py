"""The Nexmark queries as SQL: (columns of the sink, SELECT), by name.

Semantics are the public suite's. ``mode`` says how a result is read: ``append`` (every row
final) or ``update`` (a changelog; the final rows are it materialised).
"""

from __future__ import annotations

from dataclasses import dataclass

_TS = "TIMESTAMP(3)"

TABLE = f"""
CREATE TABLE nexmark (
  event_type INT,
  person ROW<id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING,
             state STRING, `dateTime` {_TS}, extra STRING>,
  auction ROW<id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT,
              `dateTime` {_TS}, expires {_TS}, seller BIGINT, category BIGINT, extra STRING>,
  bid ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING,
          `dateTime` {_TS}, extra STRING>,
  `dateTime` AS CASE WHEN event_type = 0 THEN person.`dateTime`
                     WHEN event_type = 1 THEN auction.`dateTime`
                     ELSE bid.`dateTime` END,
  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
) WITH ({{options}});
"""

VIEWS = """
CREATE TEMPORARY VIEW person AS
SELECT person.id, person.name, person.emailAddress, person.creditCard, person.city, person.state,
       `dateTime`, person.extra
FROM nexmark WHERE event_type = 0;

CREATE TEMPORARY VIEW auction AS
SELECT auction.id, auction.itemName, auction.description, auction.initialBid, auction.reserve,
       `dateTime`, auction.expires, auction.seller, auction.category, auction.extra
FROM nexmark WHERE event_type = 1;

CREATE TEMPORARY VIEW bid AS
SELECT bid.auction, bid.bidder, bid.price, bid.channel, bid.url, `dateTime`, bid.extra
FROM nexmark WHERE event_type = 2;
"""


@dataclass(frozen=True)
class Query:
    mode: str
    columns: str
    select: str
    #: Statements that must come first (other tables, functions).
    before: str = ""


_BID = (
    f"auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` {_TS}, extra STRING"
)
_RANKS = """
  COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
  COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids"""


def _distinct(column: str, name: str) -> str:
    return f"""
  COUNT(DISTINCT {column}) AS total_{name},
  COUNT(DISTINCT {column}) FILTER (WHERE price < 10000) AS rank1_{name},
  COUNT(DISTINCT {column}) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_{name},
  COUNT(DISTINCT {column}) FILTER (WHERE price >= 1000000) AS rank3_{name}"""


def _counters(*names: str) -> str:
    return ", ".join(f"{p}_{n} BIGINT" for n in names for p in ("total", "rank1", "rank2", "rank3"))


_HOP_COUNTS = """
  SELECT auction, COUNT(*) AS num, window_start, window_end
  FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
  GROUP BY auction, window_start, window_end"""

QUERIES: dict[str, Query] = {
    "q0": Query(
        "append",
        f"auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` {_TS}, extra STRING",
        "SELECT auction, bidder, price, `dateTime`, extra FROM bid",
    ),
    "q1": Query(
        "append",
        f"auction BIGINT, bidder BIGINT, price DECIMAL(23, 3), `dateTime` {_TS}, extra STRING",
        "SELECT auction, bidder, 0.908 * price AS price, `dateTime`, extra FROM bid",
    ),
    "q2": Query(
        "append",
        "auction BIGINT, price BIGINT",
        "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    ),
    "q3": Query(
        "append",
        "name STRING, city STRING, state STRING, id BIGINT",
        """SELECT p.name, p.city, p.state, a.id
FROM auction AS a INNER JOIN person AS p ON a.seller = p.id
WHERE a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA')""",
    ),
    "q4": Query(
        "update",
        "id BIGINT, final BIGINT",
        """SELECT q.category, AVG(q.final)
FROM (
  SELECT MAX(b.price) AS final, a.category
  FROM auction AS a, bid AS b
  WHERE a.id = b.auction AND b.`dateTime` BETWEEN a.`dateTime` AND a.expires
  GROUP BY a.id, a.category
) AS q
GROUP BY q.category""",
    ),
    "q5": Query(
        "append",
        "auction BIGINT, num BIGINT",
        f"""SELECT counts.auction, counts.num
FROM ({_HOP_COUNTS}) AS counts
JOIN (
  SELECT MAX(num) AS maxn, window_start, window_end
  FROM ({_HOP_COUNTS}) AS c
  GROUP BY window_start, window_end
) AS most
ON counts.window_start = most.window_start AND counts.window_end = most.window_end
   AND counts.num >= most.maxn""",
    ),
    "q6": Query(
        "update",
        "seller BIGINT, avg_price BIGINT",
        """SELECT seller, AVG(final) OVER (
  PARTITION BY seller ORDER BY `dateTime` ROWS BETWEEN 10 PRECEDING AND CURRENT ROW)
FROM (
  SELECT a.seller, b.price AS final, b.`dateTime`,
         ROW_NUMBER() OVER (PARTITION BY a.id, a.seller ORDER BY b.price DESC) AS rn
  FROM auction AS a, bid AS b
  WHERE a.id = b.auction AND b.`dateTime` BETWEEN a.`dateTime` AND a.expires
) AS q
WHERE rn <= 1""",
    ),
    "q7": Query(
        "append",
        f"auction BIGINT, price BIGINT, bidder BIGINT, `dateTime` {_TS}, extra STRING",
        """SELECT b.auction, b.price, b.bidder, b.`dateTime`, b.extra
FROM bid AS b
JOIN (
  SELECT MAX(price) AS maxprice, window_end
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
  GROUP BY window_start, window_end
) AS m
ON b.price = m.maxprice
WHERE b.`dateTime` BETWEEN m.window_end - INTERVAL '10' SECOND AND m.window_end""",
    ),
    "q8": Query(
        "append",
        f"id BIGINT, name STRING, stime {_TS}",
        """SELECT p.id, p.name, p.window_start
FROM (
  SELECT id, name, window_start, window_end
  FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
  GROUP BY id, name, window_start, window_end
) AS p
JOIN (
  SELECT seller, window_start, window_end
  FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
  GROUP BY seller, window_start, window_end
) AS a
ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end""",
    ),
    "q9": Query(
        "update",
        f"id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, `dateTime` {_TS}, "
        f"expires {_TS}, seller BIGINT, category BIGINT, extra STRING, auction BIGINT, bidder BIGINT, "
        f"price BIGINT, bid_dateTime {_TS}, bid_extra STRING",
        """SELECT id, itemName, description, initialBid, reserve, `dateTime`, expires, seller, category, extra,
       auction, bidder, price, bid_dateTime, bid_extra
FROM (
  SELECT a.*, b.auction, b.bidder, b.price, b.`dateTime` AS bid_dateTime, b.extra AS bid_extra,
         ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.`dateTime` ASC) AS rn
  FROM auction AS a, bid AS b
  WHERE a.id = b.auction AND b.`dateTime` BETWEEN a.`dateTime` AND a.expires
) AS q
WHERE rn <= 1""",
    ),
    "q10": Query(
        "append",
        f"auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` {_TS}, extra STRING, dt STRING, hm STRING",
        """SELECT auction, bidder, price, `dateTime`, extra,
       DATE_FORMAT(`dateTime`, 'yyyy-MM-dd'), DATE_FORMAT(`dateTime`, 'HH:mm')
FROM bid""",
    ),
    "q11": Query(
        "append",
        f"bidder BIGINT, bid_count BIGINT, starttime {_TS}, endtime {_TS}",
        """SELECT bidder, COUNT(*), SESSION_START(`dateTime`, INTERVAL '10' SECOND),
       SESSION_END(`dateTime`, INTERVAL '10' SECOND)
FROM bid
GROUP BY bidder, SESSION(`dateTime`, INTERVAL '10' SECOND)""",
    ),
    "q12": Query(
        "append",
        "bidder BIGINT, bid_count BIGINT, starttime TIMESTAMP_LTZ(3), endtime TIMESTAMP_LTZ(3)",
        """SELECT bidder, COUNT(*), window_start, window_end
FROM TABLE(TUMBLE(TABLE bid_proc, DESCRIPTOR(p_time), INTERVAL '10' SECOND))
GROUP BY bidder, window_start, window_end""",
        before="CREATE TEMPORARY VIEW bid_proc AS SELECT *, PROCTIME() AS p_time FROM bid;",
    ),
    "q14": Query(
        "append",
        f"auction BIGINT, bidder BIGINT, price DECIMAL(23, 3), bidTimeType STRING, `dateTime` {_TS}, "
        "extra STRING, c_counts BIGINT",
        """SELECT auction, bidder, 0.908 * price AS price,
       CASE WHEN HOUR(`dateTime`) >= 8 AND HOUR(`dateTime`) <= 18 THEN 'dayTime'
            WHEN HOUR(`dateTime`) <= 6 OR HOUR(`dateTime`) >= 20 THEN 'nightTime'
            ELSE 'otherTime' END AS bidTimeType,
       `dateTime`, extra,
       CAST(CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS BIGINT) AS c_counts
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
    ),
    "q15": Query(
        "update",
        f"`day` STRING, {_counters('bids', 'bidders', 'auctions')}",
        f"""SELECT DATE_FORMAT(`dateTime`, 'yyyy-MM-dd') AS `day`,
  COUNT(*) AS total_bids,{_RANKS},{_distinct("bidder", "bidders")},{_distinct("auction", "auctions")}
FROM bid
GROUP BY DATE_FORMAT(`dateTime`, 'yyyy-MM-dd')""",
    ),
    "q16": Query(
        "update",
        f"channel STRING, `day` STRING, `minute` STRING, {_counters('bids', 'bidders', 'auctions')}",
        f"""SELECT channel, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd') AS `day`,
  MAX(DATE_FORMAT(`dateTime`, 'HH:mm')) AS `minute`,
  COUNT(*) AS total_bids,{_RANKS},{_distinct("bidder", "bidders")},{_distinct("auction", "auctions")}
FROM bid
GROUP BY channel, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd')""",
    ),
    "q17": Query(
        "update",
        f"auction BIGINT, `day` STRING, {_counters('bids')}, min_price BIGINT, max_price BIGINT, "
        "avg_price BIGINT, sum_price BIGINT",
        f"""SELECT auction, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd') AS `day`,
  COUNT(*) AS total_bids,{_RANKS},
  MIN(price) AS min_price, MAX(price) AS max_price, AVG(price) AS avg_price, SUM(price) AS sum_price
FROM bid
GROUP BY auction, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd')""",
    ),
    "q18": Query(
        "update",
        _BID,
        """SELECT auction, bidder, price, channel, url, `dateTime`, extra
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY `dateTime` DESC) AS rank_number
  FROM bid
) AS q
WHERE rank_number <= 1""",
    ),
    "q19": Query(
        "update",
        f"{_BID}, rank_number BIGINT",
        """SELECT auction, bidder, price, channel, url, `dateTime`, extra, rank_number
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rank_number
  FROM bid
) AS q
WHERE rank_number <= 10""",
    ),
    "q20": Query(
        "append",
        f"auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, bid_dateTime {_TS}, "
        "bid_extra STRING, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, "
        f"auction_dateTime {_TS}, expires {_TS}, seller BIGINT, category BIGINT, auction_extra STRING",
        """SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.`dateTime`, b.extra,
       a.itemName, a.description, a.initialBid, a.reserve, a.`dateTime`, a.expires, a.seller,
       a.category, a.extra
FROM bid AS b INNER JOIN auction AS a ON b.auction = a.id
WHERE a.category = 10""",
    ),
    "q21": Query(
        "append",
        "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, channel_id STRING",
        """SELECT auction, bidder, price, channel,
       CASE WHEN LOWER(channel) = 'apple' THEN '0'
            WHEN LOWER(channel) = 'google' THEN '1'
            WHEN LOWER(channel) = 'facebook' THEN '2'
            WHEN LOWER(channel) = 'baidu' THEN '3'
            ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
FROM bid
WHERE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) IS NOT NULL
   OR LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu')""",
    ),
    "q22": Query(
        "append",
        "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, dir1 STRING, dir2 STRING, dir3 STRING",
        """SELECT auction, bidder, price, channel,
       SPLIT_INDEX(url, '/', 3) AS dir1, SPLIT_INDEX(url, '/', 4) AS dir2, SPLIT_INDEX(url, '/', 5) AS dir3
FROM bid""",
    ),
}


def script(name: str, source: dict[str, str], sink: dict[str, str] | None = None) -> str:
    """``script_of`` one of ``QUERIES``."""
    return script_of(QUERIES[name], source, sink)


def script_of(query: Query, source: dict[str, str], sink: dict[str, str] | None = None) -> str:
    """The whole SQL script of a query: table, views, sink (None: a bare SELECT), query."""
    text = TABLE.format(options=_options(source)) + VIEWS + query.before
    if sink is None:
        return f"{text}\n{query.select};\n"
    return f"{text}\nCREATE TABLE sink ({query.columns}) WITH ({_options(sink)});\nINSERT INTO sink\n{query.select};\n"


def _options(options: dict[str, str]) -> str:
    return ", ".join(f"'{key}' = '{value}'" for key, value in options.items())

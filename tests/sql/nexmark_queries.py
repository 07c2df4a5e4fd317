"""Nexmark over one wide table: views and queries as Flink's public suite has them."""

from __future__ import annotations

_TS = "TIMESTAMP(3)"

WIDE_TABLE = f"""CREATE TABLE nexmark (
  event_type INT,
  person ROW<id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING,
             `dateTime` {_TS}, extra STRING>,
  auction ROW<id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT,
              `dateTime` {_TS}, expires {_TS}, seller BIGINT, category BIGINT, extra STRING>,
  bid ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` {_TS},
          extra STRING>,
  `dateTime` AS CASE WHEN event_type = 0 THEN person.`dateTime`
                     WHEN event_type = 1 THEN auction.`dateTime` ELSE bid.`dateTime` END,
  WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
) WITH ({{options}})"""

_COLUMNS = {
    "person": "id, name, emailAddress, creditCard, city, state, dateTime, extra",
    "auction": "id, itemName, description, initialBid, reserve, dateTime, expires, seller, category, extra",
    "bid": "auction, bidder, price, channel, url, dateTime, extra",
}


def declarations(options: str) -> list[str]:
    """CREATE statements of the wide table and its three views."""
    out = [WIDE_TABLE.format(options=options)]
    for code, (name, columns) in enumerate(_COLUMNS.items()):
        selected = ", ".join("`dateTime`" if c == "dateTime" else f"{name}.{c}" for c in columns.split(", "))
        out.append(
            f"CREATE TEMPORARY VIEW {name} AS SELECT {selected} FROM nexmark WHERE event_type = {code}"
        )
    out.append("CREATE TEMPORARY VIEW bid_proc AS SELECT *, PROCTIME() AS p_time FROM bid")
    return out


_RANKS = ("price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")


def _ranked(function: str, suffix: str) -> str:
    return ", ".join(f"{function} FILTER (WHERE {c}) AS rank{i}_{suffix}" for i, c in enumerate(_RANKS, 1))


_HOP = (
    "(SELECT auction, COUNT(*) AS num, window_start AS ws, window_end AS we FROM "
    "TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND)) "
    "GROUP BY auction, window_start, window_end)"
)
_TUMBLE = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))"

QUERIES: dict[str, str] = {
    "q0": "SELECT auction, bidder, price, `dateTime`, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, `dateTime`, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    "q3": "SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id "
    "WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')",
    "q4": "SELECT category, AVG(final) FROM (SELECT MAX(b.price) AS final, a.category AS category "
    "FROM auction a, bid b WHERE a.id = b.auction AND b.`dateTime` BETWEEN a.`dateTime` AND a.expires "
    "GROUP BY a.id, a.category) GROUP BY category",
    "q5": f"SELECT x.auction, x.num FROM {_HOP} x JOIN (SELECT MAX(num) AS maxn, ws, we FROM {_HOP} "
    "GROUP BY ws, we) m ON x.ws = m.ws AND x.we = m.we AND x.num >= m.maxn",
    "q7": "SELECT b.auction, b.price, b.bidder, b.`dateTime`, b.extra FROM bid b JOIN "
    f"(SELECT MAX(price) AS maxprice, window_end AS we FROM {_TUMBLE.format('bid')} "
    "GROUP BY window_start, window_end) m ON b.price = m.maxprice "
    "WHERE b.`dateTime` BETWEEN m.we - INTERVAL '10' SECOND AND m.we",
    "q8": "SELECT p.id, p.name, p.ws FROM (SELECT id, name, window_start AS ws, window_end AS we FROM "
    f"{_TUMBLE.format('person')} GROUP BY id, name, window_start, window_end) p JOIN "
    f"(SELECT seller, window_start AS ws, window_end AS we FROM {_TUMBLE.format('auction')} "
    "GROUP BY seller, window_start, window_end) a ON p.id = a.seller AND p.ws = a.ws AND p.we = a.we",
    "q11": "SELECT bidder, COUNT(*), SESSION_START(`dateTime`, INTERVAL '10' SECOND), "
    "SESSION_END(`dateTime`, INTERVAL '10' SECOND) FROM bid "
    "GROUP BY bidder, SESSION(`dateTime`, INTERVAL '10' SECOND)",
    "q15": "SELECT DATE_FORMAT(`dateTime`, 'yyyy-MM-dd') AS `day`, COUNT(*) AS total_bids, "
    + _ranked("COUNT(*)", "bids")
    + ", COUNT(DISTINCT bidder) AS total_bidders, "
    + _ranked("COUNT(DISTINCT bidder)", "bidders")
    + ", COUNT(DISTINCT auction) AS total_auctions, "
    + _ranked("COUNT(DISTINCT auction)", "auctions")
    + " FROM bid GROUP BY DATE_FORMAT(`dateTime`, 'yyyy-MM-dd')",
    "q17": "SELECT auction, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd') AS `day`, COUNT(*) AS total_bids, "
    + _ranked("COUNT(*)", "bids")
    + ", MIN(price), MAX(price), AVG(price), SUM(price) "
    "FROM bid GROUP BY auction, DATE_FORMAT(`dateTime`, 'yyyy-MM-dd')",
    "q18": "SELECT auction, bidder, price, channel, url, `dateTime`, extra FROM (SELECT *, ROW_NUMBER() OVER "
    "(PARTITION BY bidder, auction ORDER BY `dateTime` DESC) AS rn FROM bid) WHERE rn <= 1",
    "q19": "SELECT auction, bidder, price, channel, url, `dateTime`, extra, rn FROM (SELECT *, ROW_NUMBER() "
    "OVER (PARTITION BY auction ORDER BY price DESC) AS rn FROM bid) WHERE rn <= 10",
    "q20": "SELECT auction, bidder, price, channel, url, b.`dateTime`, b.extra, itemName, description, "
    "initialBid, reserve, a.`dateTime`, expires, seller, category, a.extra "
    "FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10",
    "q22": "SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3), SPLIT_INDEX(url, '/', 4), "
    "SPLIT_INDEX(url, '/', 5) FROM bid",
}

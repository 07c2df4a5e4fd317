"""A few hundred rows in the shape of TPC-H's tables, made so that queries 3, 12, 17 and 19 find some."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_MONEY = pa.decimal128(15, 2)
_FIRST = date(1994, 1, 1)


def write(folder: Path) -> Path:
    """Tables as ``data.generate`` lays them out; the same rows every time."""
    random = Random(19)
    for name, rows in (
        ("customer", _customers(random)),
        ("part", _parts(random)),
        ("orders", _orders(random)),
        ("lineitem", _lineitems(random)),
    ):
        (folder / name).mkdir(parents=True)
        pq.write_table(rows, folder / name / "rows.parquet")
    return folder


def _money(random: Random, low: int, high: int) -> Decimal:
    return Decimal(random.randint(low * 100, high * 100)).scaleb(-2)


def _table(rows: list[dict[str, Any]], **types: pa.DataType) -> pa.Table:
    columns = {name: pa.array([row[name] for row in rows], types.get(name)) for name in rows[0]}
    return pa.table(columns)


def _customers(random: Random) -> pa.Table:
    segments = ("BUILDING", "MACHINERY")
    return _table([{"c_custkey": key, "c_mktsegment": random.choice(segments)} for key in range(1, 41)])


def _parts(random: Random) -> pa.Table:
    kinds = (
        ("Brand#12", "SM CASE"),
        ("Brand#23", "MED BOX"),
        ("Brand#34", "LG PACK"),
        ("Brand#23", "JUMBO JAR"),
    )
    rows = []
    for key in range(1, 25):
        brand, container = kinds[key % len(kinds)]
        rows.append(
            {"p_partkey": key, "p_brand": brand, "p_container": container, "p_size": random.randint(1, 16)}
        )
    return _table(rows, p_size=pa.int32())


def _orders(random: Random) -> pa.Table:
    rows = [
        {
            "o_orderkey": key,
            "o_custkey": random.randint(1, 45),
            "o_orderdate": _FIRST + timedelta(days=random.randint(0, 480)),
            "o_orderpriority": random.choice(("1-URGENT", "2-HIGH", "3-MEDIUM", "5-LOW")),
            "o_shippriority": 0,
        }
        for key in range(1, 301)
    ]
    return _table(rows, o_shippriority=pa.int32())


def _lineitems(random: Random) -> pa.Table:
    rows = []
    for order in range(1, 301):
        ordered = _FIRST + timedelta(days=random.randint(0, 480))
        for _ in range(random.randint(1, 6)):
            shipped = ordered + timedelta(days=random.randint(1, 40))
            rows.append(
                {
                    "l_orderkey": order,
                    "l_partkey": random.randint(1, 26),
                    "l_quantity": Decimal(random.choice((1, 2, 5, 8, 12, 20, 25, 30))),
                    "l_extendedprice": _money(random, 900, 90_000),
                    "l_discount": Decimal(random.randint(0, 10)).scaleb(-2),
                    "l_shipdate": shipped,
                    "l_commitdate": ordered + timedelta(days=random.randint(10, 60)),
                    "l_receiptdate": shipped + timedelta(days=random.randint(1, 30)),
                    "l_shipmode": random.choice(("MAIL", "SHIP", "AIR", "AIR REG")),
                    "l_shipinstruct": random.choice(("DELIVER IN PERSON", "NONE")),
                }
            )
    return _table(rows, l_quantity=_MONEY, l_extendedprice=_MONEY, l_discount=_MONEY)

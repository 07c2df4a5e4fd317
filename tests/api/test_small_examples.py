"""The small examples: the SQL job and the program give the same rows, and those of a plain recomputation."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples import make_data
from penstock.api.planner import plan_spec
from penstock.messages.cluster import JobSpec
from penstock.sql.session import SqlSession
from penstock.testing import run_graph

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
#: Examples of which both files make the same rows.
BOTH = ("word_count", "fraud_alert", "anomalies", "dynamic_pricing", "incentives", "quality_of_service")
Rows = list[tuple[Any, ...]]


def text_of(example: str, file: str, out: Path | None = None) -> str:
    """The job, with absolute paths, and with its rows collected where it prints them."""
    text = (EXAMPLES / example / file).read_text()
    text = text.replace("'examples/", f"'{EXAMPLES}/").replace("'out/", f"'{out}/")
    return text.replace("'connector' = 'print'", "'connector' = 'collect'")


def rows_of_sql(example: str) -> Rows:
    results = SqlSession().run_script(text_of(example, "job.sql"))
    (job,) = [result.job for result in results if result.job is not None]
    return sorted(run_graph(job.job_graph).rows)


def rows_of_python(example: str) -> Rows:
    return sorted(run_graph(plan_spec(JobSpec(python=text_of(example, "job.py")))).rows)


@pytest.mark.parametrize("example", BOTH)
def test_both_ways_give_the_rows_of_a_plain_recomputation(example: str) -> None:
    expected = sorted(RECOMPUTED[example]())
    assert expected
    assert rows_of_sql(example) == expected
    assert rows_of_python(example) == expected


def data(example: str, file: str) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (EXAMPLES / example / "data" / file).read_text().splitlines()]
    return [{**row, "at": dt.datetime.fromisoformat(row["at"])} for row in rows]


def start_of(at: dt.datetime, minutes: int) -> dt.datetime:
    return at.replace(minute=at.minute // minutes * minutes, second=0, microsecond=0)


def word_count() -> Iterator[tuple[Any, ...]]:
    yield from Counter((EXAMPLES / "word_count/data/lines.txt").read_text().split()).items()


def fraud_alert() -> Iterator[tuple[Any, ...]]:
    before: dict[int, dict[str, Any]] = {}
    for row in sorted(data("fraud_alert", "transactions.json"), key=lambda row: row["at"]):
        tried = before.get(row["account"])
        if (
            tried
            and tried["amount"] < 1
            and row["amount"] > 500
            and row["at"] - tried["at"] <= dt.timedelta(minutes=1)
        ):
            yield row["account"], tried["amount"], row["amount"], row["at"]
        before[row["account"]] = row


def anomalies() -> Iterator[tuple[Any, ...]]:
    machines = defaultdict(list)
    for row in sorted(data("anomalies", "readings.json"), key=lambda row: row["at"]):
        last = machines[row["machine"]] = [*machines[row["machine"]], row["celsius"]][-21:]
        if len(last) == 21 and row["celsius"] > np.mean(last) + 4 * np.std(last):
            yield row["machine"], row["celsius"], round(float(np.mean(last)), 2), row["at"]


def dynamic_pricing() -> Iterator[tuple[Any, ...]]:
    asked, free = defaultdict(set), defaultdict(set)
    for row in data("dynamic_pricing", "requests.json"):
        asked[row["zone"], start_of(row["at"], 5)].add(row["passenger"])
    for row in data("dynamic_pricing", "drivers.json"):
        free[row["zone"], start_of(row["at"], 5)].add(row["driver"])
    for (zone, start), passengers in asked.items():
        drivers = len(free[zone, start])
        factor = math.floor(100 * min(3.0, max(1.0, len(passengers) / max(drivers, 1)))) / 100
        yield zone, start + dt.timedelta(minutes=5), len(passengers), drivers, factor


def incentives() -> Iterator[tuple[Any, ...]]:
    hours: dict[dt.datetime, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in data("incentives", "trips.json"):
        hours[start_of(row["at"], 60)][row["driver"]].append(row["fare"])
    for hour, drivers in hours.items():
        best = sorted(drivers.items(), key=lambda item: (-len(item[1]), -sum(item[1])))[:2]
        for place, (driver, fares) in enumerate(best, start=1):
            yield hour, place, driver, len(fares), round(sum(fares), 2)


def quality_of_service() -> Iterator[tuple[Any, ...]]:
    minutes = defaultdict(list)
    for row in data("quality_of_service", "pings.json"):
        minutes[row["cell"], start_of(row["at"], 1)].append(row)
    for (cell, minute), pings in minutes.items():
        p95 = float(np.percentile([ping["latency_ms"] for ping in pings], 95))
        lost = sum(ping["lost"] for ping in pings) / len(pings)
        if p95 > 200 or lost > 0.1:
            yield cell, minute, round(p95, 1), round(lost, 3)


RECOMPUTED = {
    "word_count": word_count,
    "fraud_alert": fraud_alert,
    "anomalies": anomalies,
    "dynamic_pricing": dynamic_pricing,
    "incentives": incentives,
    "quality_of_service": quality_of_service,
}


def test_the_etl_sets_four_orders_aside_and_loses_none(tmp_path: Path) -> None:
    import pyarrow.dataset as ds

    results = SqlSession().run_script(text_of("orders_etl", "job.sql", tmp_path))
    (job,) = [result.job for result in results if result.job is not None]
    letters = run_graph(job.job_graph).rows
    cleaned = ds.dataset(
        tmp_path / "orders_etl" / "cleaned", format="parquet", partitioning="hive"
    ).to_table()
    lines = [int(re.search(r"line (\d+)", position)[1]) for position, _, _ in letters]
    assert sorted(lines) == [18, 45, 81, 100]
    assert sorted(cleaned["id"].to_pylist() + lines) == list(range(1, 121))
    assert set(cleaned["country"].to_pylist()) == {"DE", "FR", "IT", "PL"}


def test_the_etl_in_python_sets_countries_aside_too() -> None:
    result = run_graph(plan_spec(JobSpec(python=text_of("orders_etl", "job.py"))))
    poland = sum(
        line.split(",")[2].strip().upper() == "PL" for line in ORDERS.splitlines() if line.count(",") == 4
    )
    unreadable_poland = 1  # of the year "yesterday"
    assert len(result.rows) == 120 - 4 - (poland - unreadable_poland)
    assert {row[4] for row in result.rows} == {"DE", "FR", "IT"}


ORDERS = (EXAMPLES / "orders_etl/data/orders.csv").read_text()


@pytest.mark.parametrize("example", [*BOTH, "request_reply"])
def test_both_ways_read_and_write_the_same_tables(example: str) -> None:
    script = (EXAMPLES / example / "job.sql").read_text()
    program = (EXAMPLES / example / "job.py").read_text()
    tables = re.findall(r"^CREATE TABLE .*?;$", script, re.MULTILINE | re.DOTALL)
    assert tables
    for table in tables:
        assert " ".join(table.split()) in " ".join(program.split())


def test_the_data_is_what_its_program_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_data, "HERE", tmp_path)
    make_data.main()
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.*") if path.is_file())
    assert made
    for path in made:
        assert (tmp_path / path).read_text() == (EXAMPLES / path).read_text()

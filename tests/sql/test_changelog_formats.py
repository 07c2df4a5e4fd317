"""Tables in a format of changes, end to end: files of records, queries over them, and what sinks write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import PenstockError, UnsupportedError
from penstock.sql.session import SqlSession
from penstock.testing import run_graph

COLUMNS = "id BIGINT NOT NULL, name STRING, weight DECIMAL(10, 2)"
PRODUCTS = {
    "debezium-json": [
        {"before": None, "after": {"id": 101, "name": "scooter", "weight": 3.14}, "op": "c"},
        {"before": None, "after": {"id": 102, "name": "battery", "weight": 8.1}, "op": "c"},
        {"before": None, "after": {"id": 103, "name": "drill", "weight": 0.8}, "op": "r"},
        {"before": {"id": 101, "name": "scooter", "weight": 3.14}, "after": {"id": 101, "name": "scooter", "weight": 5.15}, "op": "u"},
        {"before": {"id": 102, "name": "battery", "weight": 8.1}, "after": {"id": 112, "name": "battery", "weight": 8.1}, "op": "u"},
        {"before": {"id": 103, "name": "drill", "weight": 0.8}, "after": None, "op": "d"},
    ],
    "canal-json": [
        {"data": [{"id": "101", "name": "scooter", "weight": "3.14"}, {"id": "102", "name": "battery", "weight": "8.1"},
                  {"id": "103", "name": "drill", "weight": "0.8"}], "type": "INSERT"},
        {"data": [{"id": "101", "name": "scooter", "weight": "5.15"}, {"id": "112", "name": "battery", "weight": "8.1"}],
         "old": [{"weight": "3.14"}, {"id": "102"}], "type": "UPDATE"},
        {"data": [{"id": "103", "name": "drill", "weight": "0.8"}], "type": "DELETE"},
    ],
    "maxwell-json": [
        {"type": "insert", "data": {"id": 101, "name": "scooter", "weight": 3.14}},
        {"type": "insert", "data": {"id": 102, "name": "battery", "weight": 8.1}},
        {"type": "insert", "data": {"id": 103, "name": "drill", "weight": 0.8}},
        {"type": "update", "data": {"id": 101, "name": "scooter", "weight": 5.15}, "old": {"weight": 3.14}},
        {"type": "update", "data": {"id": 112, "name": "battery", "weight": 8.1}, "old": {"id": 102}},
        {"type": "delete", "data": {"id": 103, "name": "drill", "weight": 0.8}},
    ],
    "ogg-json": [
        {"before": None, "after": {"id": 101, "name": "scooter", "weight": 3.14}, "op_type": "I"},
        {"before": None, "after": {"id": 102, "name": "battery", "weight": 8.1}, "op_type": "I"},
        {"before": None, "after": {"id": 103, "name": "drill", "weight": 0.8}, "op_type": "I"},
        {"before": {"id": 101, "name": "scooter", "weight": 3.14}, "after": {"id": 101, "name": "scooter", "weight": 5.15}, "op_type": "U"},
        {"before": {"id": 102, "name": "battery", "weight": 8.1}, "after": {"id": 112, "name": "battery", "weight": 8.1}, "op_type": "U"},
        {"before": {"id": 103, "name": "drill", "weight": 0.8}, "after": None, "op_type": "D"},
    ],
}  # fmt: skip
NAMES = sorted(PRODUCTS)


def table(path: Path, format: str, *, name: str = "products", key: str = "", more: str = "") -> str:
    return (
        f"CREATE TABLE {name} ({COLUMNS}{key}) WITH ('connector' = 'filesystem', 'path' = '{path}', "
        f"'format' = '{format}'{more});"
    )


@pytest.fixture
def products(tmp_path: Path) -> Any:
    def make(format: str, **more: str) -> str:
        path = tmp_path / f"products.{format}"
        path.write_text("".join(json.dumps(record) + "\n" for record in PRODUCTS[format]))
        return table(path, format, **more)

    return make


def job(script: str, query: str, **config: str) -> Any:
    session = SqlSession({"parallelism.default": "1", **config})
    for _ in session.run_script(script):
        pass
    return session.execute(query).job.job_graph


@pytest.mark.parametrize("key", ["", ", PRIMARY KEY (id) NOT ENFORCED"])
@pytest.mark.parametrize("parallelism", ["1", "2"])
@pytest.mark.parametrize("name", NAMES)
def test_queries_count_the_rows_that_stand(products, name, parallelism, key):
    script = products(name, key=key)
    queries = {
        "SELECT id, CAST(weight AS STRING) FROM products": [(101, "5.15"), (112, "8.10")],
        "SELECT COUNT(*), CAST(SUM(weight) AS STRING), MAX(id) FROM products": [(2, "13.25", 112)],
        "SELECT name FROM products WHERE weight < 5": [],
        "SELECT COUNT(*) FROM products": [(2,)],
    }
    for query, want in queries.items():
        graph = job(script, query, **{"parallelism.default": parallelism})
        assert sorted(run_graph(graph).rows) == want, query


@pytest.mark.parametrize("name", NAMES)
def test_a_changelog_is_written_and_read_again(products, tmp_path, name):
    script = products(name) + table(tmp_path / "sums", name, name="sums")
    query = "INSERT INTO sums SELECT * FROM products WHERE id <> 103"
    run_graph(job(script, query))
    written = "".join(p.read_text() for p in sorted((tmp_path / "sums").glob("part-*"))).splitlines()
    assert len(written) == 6
    found = run_graph(job(script, "SELECT id, name, CAST(weight AS STRING) FROM sums")).rows
    assert sorted(found) == [(101, "scooter", "5.15"), (112, "battery", "8.10")]


def test_changes_of_a_query_are_written_as_flink_writes_them(products, tmp_path):
    script = products("debezium-json") + table(tmp_path / "out", "debezium-json", name="out")
    run_graph(job(script, "INSERT INTO out SELECT * FROM products WHERE id < 102"))
    lines = [json.loads(x) for p in (tmp_path / "out").glob("part-*") for x in p.read_text().splitlines()]
    old, new = ({"id": 101, "name": "scooter", "weight": weight} for weight in (3.14, 5.15))
    assert lines == [
        {"before": None, "after": old, "op": "c"},
        {"before": old, "after": None, "op": "d"},
        {"before": None, "after": new, "op": "c"},
    ]


def test_bad_records_fail_the_job_with_their_line_or_are_skipped(products):
    script = products("maxwell-json")
    path = Path(script.split("'path' = '")[1].split("'")[0])
    path.write_text(path.read_text() + '{"type": "truncate", "data": {}}\n{"type": "insert", "da\n')
    with pytest.raises(PenstockError, match="'type' is no change") as failed:
        run_graph(job(script, "SELECT id FROM products"))
    assert "line 7" in str(failed.value)
    skipped = script.replace(");", ", 'maxwell-json.ignore-parse-errors' = 'true');")
    assert sorted(run_graph(job(skipped, "SELECT id FROM products")).rows) == [(101,), (112,)]
    on_error = script.replace(");", ", 'on-error' = 'skip');")
    assert sorted(run_graph(job(on_error, "SELECT id FROM products")).rows) == [(101,), (112,)]


@pytest.mark.parametrize(
    ("query", "config", "message"),
    [
        ("SELECT * FROM products", {"execution.runtime-mode": "BATCH"}, "in batch mode"),
        ("SELECT * FROM orders JOIN products FOR SYSTEM_TIME AS OF orders.p AS x ON o = x.id", {}, "lookup join with a changelog"),
        ("INSERT INTO plain SELECT * FROM products", {}, "takes only inserts"),
    ],
)  # fmt: skip
def test_what_is_refused(products, tmp_path, query, config, message):
    script = products("debezium-json") + table(tmp_path / "plain", "json", name="plain")
    script += "CREATE TABLE orders (o BIGINT, p AS PROCTIME()) WITH ('connector' = 'datagen', 'number-of-rows' = '5');"
    with pytest.raises(PenstockError, match=message):
        job(script, query, **config)


def test_spark_refuses_a_format_of_changes(products):
    from penstock.spark.support import spark_support

    session = SqlSession({"execution.engine": "spark"}, spark=spark_support())
    for _ in session.run_script(products("debezium-json")):
        pass
    with pytest.raises(UnsupportedError, match="read as a changelog, on Spark"):
        session.execute("SELECT * FROM products")

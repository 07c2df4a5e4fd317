"""The parts of ``mysql-cdc`` that need no server."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.connectors.mysql_cdc import events as ev
from penstock.connectors.mysql_cdc.binlog import log_failure
from penstock.connectors.mysql_cdc.connector import server_id_of
from penstock.connectors.mysql_cdc.database import CdcColumn, CdcTable
from penstock.connectors.mysql_cdc.images import images
from penstock.connectors.mysql_cdc.keys import behind_sql, key_part, literal
from penstock.connectors.mysql_cdc.position import Cursor, Gtids, Place, Position
from penstock.connectors.mysql_cdc.statements import Statements
from penstock.connectors.mysql_cdc.types import MySqlType
from penstock.errors import ConnectorError, ExternalError, InternalError

OPTIONS = {
    "hostname": "h",
    "port": 1,
    "debezium.truncate.handling.mode": "fail",
    "scan.schema-change": "fail",
}
INT = MySqlType.parse("bigint(20)", None)
TABLE = CdcTable("shop", "orders", (CdcColumn("id", INT), CdcColumn("n", INT)), ("id",))


@pytest.mark.parametrize(("text", "mariadb", "more", "want"), [
    ("0-1-5,2-1-7", True, (0, 3, 6), "0-3-6,2-1-7"), ("", True, (1, 2, 3), "1-2-3"),
    ("A1:1-3:5", False, ("a1", 4), "a1:1-5"), ("a1:1-3, b2:7", False, ("b2", 9), "a1:1-3,b2:7:9"), ("", False, ("c", 1), "c:1"),
])  # fmt: skip
def test_transactions_that_were_passed(text, mariadb, more, want):
    gtids = Gtids(text, mariadb=mariadb)
    (gtids.passed_mariadb if mariadb else gtids.passed_mysql)(*more)
    assert str(gtids) == want
    assert str(Gtids(want, mariadb=mariadb)) == want


@pytest.mark.parametrize(("there", "asked", "covers"), [
    ("0-1-5", "0-1-5", True), ("0-1-5", "0-2-4", True), ("0-1-5", "0-1-6", False), ("0-1-5", "1-1-1", False), ("0-1-5", "", True),
])  # fmt: skip
def test_a_view_covers_what_was_committed_before_it(there, asked, covers):
    assert Gtids(there, mariadb=True).covers(Gtids(asked, mariadb=True)) is covers


def test_a_set_of_transactions_is_encoded_as_the_server_reads_it():
    source = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    found = Gtids(f"{source}:1-3:7", mariadb=False).encoded()
    numbers = [int.from_bytes(found[i : i + 8], "little") for i in (0, 24, 32, 40, 48, 56)]
    assert numbers == [1, 2, 1, 4, 7, 8]
    assert found[8:24].hex() == source.replace("-", "")


def test_a_position_survives_its_json():
    position = Position(Place("binlog.000010", 77, "0-1-2"), 3, 4, Cursor(1, (5, "x")))
    assert Position.from_json(position.to_json()) == position
    assert Place("binlog.000010", 4).order > Place("binlog.000009", 900).order


@pytest.mark.parametrize(("shown", "want"), [
    ("int(10) unsigned", MySqlType("int", "int(10) unsigned", (10,), (), True)), ("decimal(10,2)", MySqlType("decimal", "decimal(10,2)", (10, 2))),
    ("enum('a','b''c','d,e')", MySqlType("enum", "enum('a','b''c','d,e')", (), ("a", "b'c", "d,e"))), ("text", MySqlType("text", "text")),
])  # fmt: skip
def test_types_are_read(shown, want):
    assert MySqlType.parse(shown, None) == want


def test_the_rows_of_events_are_stepped_through_at_once():
    columns = [(ev.LONG, 0), (ev.VARCHAR, 300), (ev.TINY, 0)]
    first = b"\0" + (7).to_bytes(4, "little") + b"\2\0ab" + b"\1"
    null = b"\2" + (8).to_bytes(4, "little") + b"\2"
    found = images([first + null, null, first], columns)
    assert found.event.tolist() == [0, 0, 1, 2]
    assert found.step.tolist() == [0, 1, 0, 0]
    texts = found.columns[1]
    assert texts.there.tolist() == [True, False, False, True]
    assert bytes(texts.data[texts.begin[3] : texts.end[3]]) == b"ab"
    assert np.array_equal(found.columns[2].data[found.columns[2].begin], [1, 2, 2, 1])
    with pytest.raises(InternalError, match="longer than its event"):
        images([first[:-1]], columns)


@pytest.mark.parametrize(("statement", "said"), [
    ("INSERT INTO orders VALUES (1)", "logged as a statement"), ("/* hint */ update `orders` set n = 1", "logged as a statement"),
    ("TRUNCATE TABLE orders", "TRUNCATE"), ("DROP TABLE `shop`.`orders`", "have changed"), ("RENAME TABLE x TO orders", "have changed"),
    ("ALTER TABLE orders RENAME TO o", "have changed"), ("ALTER TABLE orders DROP PARTITION p", "have changed"), ("ALTER TABLE orders ADD x int", "added: x"),
    ("DROP DATABASE shop", "have changed"), ("CREATE OR REPLACE TABLE orders (id int)", "have changed"), ("ROLLBACK", "rolled back"),
])  # fmt: skip
def test_statements_that_no_row_tells_are_refused(statement, said):
    now = (*TABLE.columns, CdcColumn("x", INT)) if "ADD x" in statement else TABLE.columns
    with pytest.raises(ConnectorError, match=said):
        Statements([TABLE], OPTIONS, lambda _: now).check("shop", statement, rows=1)


@pytest.mark.parametrize(("database", "statement"), [
    ("shop", "CREATE TABLE orders_2 LIKE orders"), ("shop", "ALTER TABLE orders ADD INDEX (n)"), ("shop", "TRUNCATE orders_old"),
    ("other", "DROP TABLE orders"), ("shop", "CREATE OR REPLACE TABLE copy AS SELECT * FROM orders"), ("shop", "SAVEPOINT orders"),
    ("shop", "ALTER TABLE orders RENAME INDEX a TO b"), ("shop", "DROP TEMPORARY TABLE orders"), ("shop", "CREATE VIEW v AS SELECT * FROM orders"),
])  # fmt: skip
def test_other_statements_are_passed(database, statement):
    Statements([TABLE], OPTIONS, lambda _: TABLE.columns).check(database, statement, rows=0)


def test_keys_in_sql_use_the_index():
    text = CdcColumn("t", MySqlType("varchar", "varchar(9)", (9,), (), False, "latin1"), "latin1_swedish_ci")
    table = CdcTable("d", "t", (TABLE.columns[0], text), ("id", "t"))
    assert behind_sql(table, (5, "ü")) == (
        "`id` >= 5 AND ((`id` > 5) OR (`id` = 5 AND `t` > "
        "CONVERT(CONVERT(X'c3bc' USING utf8mb4) USING latin1) COLLATE latin1_swedish_ci))"
    )
    assert literal(CdcColumn("b", MySqlType("binary", "binary(2)", (2,))), key_part(b"\1\xff")) == "X'01ff'"


@pytest.mark.parametrize(("number", "text", "kind"), [
    (1236, "#HY000Could not find GTID state requested by slave in any binlog files", ConnectorError), (1236, "#HY000A slave with the same server_uuid/server_id as this", ExternalError),
    (1053, "#08S01Server shutdown in progress", ExternalError), (1227, "#42000Access denied", ConnectorError),
])  # fmt: skip
def test_an_error_of_the_log_is_waited_for_or_refused(number, text, kind):
    assert type(log_failure(number, text, OPTIONS)) is kind


@pytest.mark.parametrize(("text", "want"), [(None, None), ("5400", 5400), ("5400-5408", 5400)])
def test_the_first_number_of_a_range_is_taken(text, want):
    assert server_id_of({"server-id": text}) == want

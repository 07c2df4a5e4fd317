"""Formats of database changes: tables of records → rows with kinds, and back. Records are as their tools' pages show them."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.errors import ConnectorError, PenstockError, RecordError
from penstock.formats import get_format
from penstock.formats.api import FormatContext
from penstock.testing.conformance import FormatConformance
from penstock.types import Batch, RowKind, Schema
from penstock.types import logical as t

INSERT, BEFORE, AFTER, DELETE = RowKind
SCHEMA = Schema.of(("id", t.BigIntType(False)), ("name", t.VarCharType()), ("weight", t.DoubleType()))
ALL = (0, 1, 2)


class Bad:
    """Keeps bad records."""

    def __init__(self) -> None:
        self.found: list[tuple[Exception, bytes | None, str]] = []

    def __call__(self, error: Exception, raw: bytes | None, where: str) -> None:
        self.found.append((error, raw, where))


def fail(error: Exception, raw: bytes | None, where: str) -> None:
    raise error


def decoder(name: str, *, options: Any = None, projection: Sequence[int] = ALL, metadata: Sequence[str] = (),
            bad: Any = fail, schema: Schema = SCHEMA) -> Any:  # fmt: skip
    given = {f"{name}.{key}": value for key, value in (options or {}).items()}
    return get_format(name).decoder(FormatContext(schema, projection, given, bad, metadata=metadata))


def rows(name: str, records: Sequence[Any], **more: Any) -> list[tuple[RowKind, tuple[Any, ...]]]:
    batch = decoder(name, **more).decode(messages(records), str)
    return [(RowKind(kind), row) for kind, row in batch.rows()]


def messages(records: Sequence[Any]) -> list[bytes]:
    return [r if isinstance(r, bytes) else json.dumps(r).encode() for r in records]


def row(key: int, name: str | None, weight: float | None) -> dict[str, Any]:
    return {"id": key, "name": name, "weight": weight}


SOURCE = {"version": "2.7", "connector": "mysql", "ts_ms": 1_589_355_606_000, "db": "shop", "schema": None,
          "table": "products", "pos": 154, "gtid": None}  # fmt: skip


def debezium(op: str, before: Any, after: Any) -> dict[str, Any]:
    return {
        "before": before,
        "after": after,
        "source": SOURCE,
        "op": op,
        "ts_ms": 1_589_362_330_904,
        "transaction": None,
    }


def canal(
    kind: str, data: Any, old: Any = None, table: str = "products", database: str = "shop"
) -> dict[str, Any]:
    return {"data": data, "database": database, "es": 1_589_373_515_000, "id": 3, "isDdl": False,
            "mysqlType": {"id": "INTEGER", "name": "VARCHAR(255)", "weight": "FLOAT"}, "old": old, "pkNames": ["id"],
            "sql": "", "sqlType": {"id": 4, "name": 12, "weight": 7}, "table": table, "ts": 1_589_373_515_477,
            "type": kind}  # fmt: skip


def maxwell(kind: str, data: Any, old: Any = None) -> dict[str, Any]:
    found = {"database": "shop", "table": "products", "type": kind, "ts": 1_596_684_883, "xid": 7201,
             "commit": True, "data": data, "primary_key_columns": ["id"]}  # fmt: skip
    return found if old is None else {**found, "old": old}


def ogg(kind: str, before: Any, after: Any) -> dict[str, Any]:
    return {"before": before, "after": after, "op_type": kind, "op_ts": "2020-05-13 15:40:06.000000",
            "current_ts": "2020-05-13 15:40:07.000000", "primary_keys": ["id"], "pos": "000", "table": "SHOP.PRODUCTS"}  # fmt: skip


OLD, NEW = row(1, "scooter", 3.14), row(1, "scooter", 5.15)
INSERTED = [(INSERT, (1, "scooter", 3.14))]
UPDATED = [(BEFORE, (1, "scooter", 3.14)), (AFTER, (1, "scooter", 5.15))]
DELETED = [(DELETE, (1, "scooter", 5.15))]


@pytest.mark.parametrize(
    ("name", "record", "want"),
    [
        ("debezium-json", debezium("c", None, OLD), INSERTED),
        ("debezium-json", debezium("r", None, OLD), INSERTED),
        ("debezium-json", debezium("u", OLD, NEW), UPDATED),
        ("debezium-json", debezium("d", NEW, None), DELETED),
        ("debezium-json", {"op": "c", "after": {"id": 2}}, [(INSERT, (2, None, None))]),
        ("canal-json", canal("INSERT", [OLD, row(2, "car", 8)]), [*INSERTED, (INSERT, (2, "car", 8.0))]),
        ("canal-json", canal("UPDATE", [NEW], [{"weight": 3.14}]), UPDATED),
        ("canal-json", canal("UPDATE", [NEW, row(2, "b", 2)], [{"weight": 3.14}, {"id": 3, "name": None}]),
         [*UPDATED, (BEFORE, (3, None, 2.0)), (AFTER, (2, "b", 2.0))]),
        ("canal-json", canal("DELETE", [NEW]), DELETED),
        ("canal-json", canal("CREATE", None), []),
        # Canal writes every value as text.
        ("canal-json", canal("INSERT", [{"id": "1", "name": "scooter", "weight": "3.14"}]), INSERTED),
        ("maxwell-json", maxwell("insert", OLD), INSERTED),
        ("maxwell-json", maxwell("update", NEW, {"weight": 3.14}), UPDATED),
        ("maxwell-json", maxwell("update", NEW, {"name": None, "weight": 3.14}),
         [(BEFORE, (1, None, 3.14)), (AFTER, (1, "scooter", 5.15))]),
        ("maxwell-json", maxwell("update", row(1, None, 5.15), {"name": "scooter"}),
         [(BEFORE, (1, "scooter", 5.15)), (AFTER, (1, None, 5.15))]),
        ("maxwell-json", maxwell("delete", NEW), DELETED),
        ("ogg-json", ogg("I", None, OLD), INSERTED),
        ("ogg-json", ogg("U", OLD, NEW), UPDATED),
        ("ogg-json", ogg("D", NEW, None), DELETED),
    ],
)  # fmt: skip
def test_a_record_is_the_rows_that_changed(name, record, want):
    assert rows(name, [record]) == want


MANY = {
    "debezium-json": [debezium("c", None, OLD), debezium("u", OLD, NEW), debezium("d", NEW, None)],
    "canal-json": [
        canal("INSERT", [OLD]),
        canal("UPDATE", [NEW], [{"weight": 3.14}]),
        canal("DELETE", [NEW]),
    ],
    "maxwell-json": [
        maxwell("insert", OLD),
        maxwell("update", NEW, {"weight": 3.14}),
        maxwell("delete", NEW),
    ],
    "ogg-json": [ogg("I", None, OLD), ogg("U", OLD, NEW), ogg("D", NEW, None)],
}
NAMES = sorted(MANY)


@pytest.mark.parametrize("name", NAMES)
def test_records_of_all_kinds_stay_in_order(name):
    records = [r for _ in range(300) for r in MANY[name]]
    assert rows(name, records) == [*INSERTED, *UPDATED, *DELETED] * 300
    batch, of = decoder(name).decode_numbered(messages(records), str)
    assert of.tolist() == [3 * i + j for i in range(300) for j in (0, 1, 1, 2)]
    lines = decoder(name).decode_batch(b"\n".join(messages(records)) + b"\n\n", "f")
    assert lines.kinds.tolist() == batch.kinds.tolist()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("projection", [(2, 0), (1,), ()])
def test_only_the_columns_that_are_wanted_come(name, projection):
    want = [(kind, tuple(values[i] for i in projection)) for kind, values in [*INSERTED, *UPDATED, *DELETED]]
    assert rows(name, MANY[name], projection=projection) == want


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_message_is_no_change(name):
    assert rows(name, [b"", MANY[name][0], b""]) == INSERTED
    assert rows(name, []) == []


# -- bad records -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "record", "message"),
    [
        ("debezium-json", b'{"op": "c", "aft', "not JSON"),
        ("debezium-json", debezium("t", None, None), "'op' is no change"),
        ("debezium-json", {"after": OLD}, "'op' is no change"),
        ("debezium-json", debezium("u", None, NEW), "an update has no 'before'"),
        ("debezium-json", debezium("d", None, None), "a deletion has no 'before'"),
        ("debezium-json", debezium("c", OLD, None), "an insertion has no 'after'"),
        ("debezium-json", debezium("c", None, row("one", "x", 1)), "'after' does not fit|after.id"),
        ("debezium-json", debezium("c", None, {"name": "x"}), "'id' is NOT NULL"),
        ("canal-json", canal("ALTER", None), "'type' is no change"),
        ("canal-json", canal("INSERT", None), "a change has no 'data'"),
        ("canal-json", canal("UPDATE", [NEW]), "an update has no 'old'"),
        ("canal-json", canal("UPDATE", [NEW, NEW], [{}]), "differ in length"),
        ("maxwell-json", maxwell("bootstrap-start", {}), "'type' is no change"),
        ("maxwell-json", maxwell("update", NEW), "an update has no 'old'"),
        ("maxwell-json", maxwell("insert", None), "a change has no 'data'"),
        ("ogg-json", ogg("T", None, None), "'op_type' is no change"),
        ("ogg-json", ogg("U", None, NEW), "an update has no 'before'"),
    ],
)
def test_a_bad_record_is_an_error_with_its_place_or_left_out(name, record, message):
    good = MANY[name][0]
    with pytest.raises(RecordError, match=message) as failed:
        decoder(name).decode(messages([good, record, good]), lambda i: f"offset {i}")
    assert "offset 1" in str(failed.value)
    bad = Bad()
    assert rows(name, [good, record, good], bad=bad) == INSERTED * 2
    [(error, raw, where)] = bad.found
    assert (raw, where) == (messages([record])[0], "1")
    assert isinstance(error, RecordError)
    assert rows(name, [good, record, good], options={"ignore-parse-errors": "true"}) == INSERTED * 2


def test_a_missing_old_row_says_what_the_database_must_log():
    with pytest.raises(RecordError, match="REPLICA IDENTITY FULL"):
        rows("debezium-json", [debezium("u", None, NEW)])


def test_fields_that_do_not_fit_are_null_where_errors_are_ignored():
    record = debezium("c", None, row(1, "x", "heavy"))
    assert rows("debezium-json", [record], options={"ignore-parse-errors": "true"}) == [
        (INSERT, (1, "x", None))
    ]


# -- options and metadata ----------------------------------------------------------------------


def test_debezium_records_with_their_schema():
    options = {"schema-include": "true"}
    records = [{"schema": {"type": "struct"}, "payload": r} for r in MANY["debezium-json"]]
    keys = ("schema", "source.table", "source.properties")
    found = rows("debezium-json", records, options=options, metadata=keys)
    assert [(kind, values[:3]) for kind, values in found] == [*INSERTED, *UPDATED, *DELETED]
    assert {(json.loads(values[3])["type"], values[4]) for _, values in found} == {("struct", "products")}
    assert dict(found[0][1][5])["pos"] == "154"
    with pytest.raises(RecordError, match="'op' is no change"):
        rows("debezium-json", MANY["debezium-json"], options=options)


def test_canal_reads_the_tables_that_match():
    records = [
        canal("INSERT", [row(i, table, 1)], table=table, database=database)
        for i, (database, table) in enumerate(
            [("shop", "products"), ("shop", "orders"), ("test", "products")]
        )
    ]
    options = {"table.include": "prod.*", "database.include": "sh.p"}
    assert [values[0] for _, values in rows("canal-json", records, options=options, metadata=("table",))] == [
        0
    ]
    with pytest.raises(ConnectorError, match=r"table\.include"):
        get_format("canal-json").check(SCHEMA, {"canal-json.table.include": "("})


def at(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("debezium-json", {
            "ingestion-timestamp": at(2020, 5, 13, 9, 32, 10, 904_000), "source.timestamp": at(2020, 5, 13, 7, 40, 6),
            "source.database": "shop", "source.schema": None, "source.table": "products", "schema": None,
            "source.properties": [(k, None if v is None else str(v)) for k, v in SOURCE.items()],
        }),
        ("canal-json", {
            "database": "shop", "table": "products", "sql-type": [("id", 4), ("name", 12), ("weight", 7)], "pk-names": ["id"],
            "ingestion-timestamp": at(2020, 5, 13, 12, 38, 35, 477_000), "event-timestamp": at(2020, 5, 13, 12, 38, 35),
        }),
        ("maxwell-json", {
            "database": "shop", "table": "products", "primary-key-columns": ["id"],
            "ingestion-timestamp": at(2020, 8, 6, 3, 34, 43),
        }),
        ("ogg-json", {
            "table": "SHOP.PRODUCTS", "primary-keys": ["id"], "ingestion-timestamp": at(2020, 5, 13, 15, 40, 7),
            "event-timestamp": at(2020, 5, 13, 15, 40, 6),
        }),
    ],
)  # fmt: skip
def test_metadata_stands_beside_each_row(name, want):
    assert set(get_format(name).metadata) == set(want)
    found = rows(name, MANY[name], projection=(0,), metadata=tuple(want))
    assert [kind for kind, _ in found] == [INSERT, BEFORE, AFTER, DELETE]
    for _, values in found:
        assert dict(zip(want, values[1:], strict=True)) == want
    for key, value in want.items():
        assert [values for _, values in rows(name, MANY[name], projection=(0,), metadata=(key,))] == [
            (1, value)
        ] * 4


# -- writing -----------------------------------------------------------------------------------

CHANGED = Batch.of(
    SCHEMA, [(1, "scooter", 3.14), (1, "scooter", 3.14), (1, "scooter", 5.15), (1, "scooter", 5.15)],
    kinds=[INSERT, BEFORE, AFTER, DELETE],
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "added", "deleted"),
    [
        ("debezium-json", {"before": None, "after": OLD, "op": "c"}, {"before": OLD, "after": None, "op": "d"}),
        ("canal-json", {"data": [OLD], "type": "INSERT"}, {"data": [OLD], "type": "DELETE"}),
        ("maxwell-json", {"data": OLD, "type": "insert"}, {"data": OLD, "type": "delete"}),
        ("ogg-json", {"before": None, "after": OLD, "op_type": "I"}, {"before": OLD, "after": None, "op_type": "D"}),
    ],
)  # fmt: skip
def test_rows_are_written_as_insertions_and_deletions(name, added, deleted):
    written = get_format(name).encoder(SCHEMA, {}).encode(CHANGED)
    assert [json.loads(m) for m in written[:2]] == [added, deleted]
    assert rows(name, written) == [
        (INSERT, (1, "scooter", 3.14)), (DELETE, (1, "scooter", 3.14)), (INSERT, (1, "scooter", 5.15)),
        (DELETE, (1, "scooter", 5.15)),
    ]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_null_fields_may_be_left_out(name):
    batch = Batch.of(SCHEMA, [(1, None, None)] * 2, kinds=[INSERT, DELETE])
    written = get_format(name).encoder(SCHEMA, {f"{name}.encode.ignore-null-fields": "true"}).encode(batch)
    assert all(b"null" not in message for message in written)
    assert rows(name, written) == [(INSERT, (1, None, None)), (DELETE, (1, None, None))]


def test_a_schema_is_not_written():
    options = {"debezium-json.schema-include": "true"}
    with pytest.raises(ConnectorError, match="schema-include"):
        get_format("debezium-json").encoder(SCHEMA, options)


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_option_is_refused(name):
    with pytest.raises(PenstockError, match="ignore-parse-errors"):
        get_format(name).check(SCHEMA, {f"{name}.ignore-parse-error": "true"})


class _Changes(FormatConformance):
    name = ""

    def format(self):
        return get_format(self.name)


class TestDebezium(_Changes):
    name = "debezium-json"


class TestCanal(_Changes):
    name = "canal-json"


class TestMaxwell(_Changes):
    name = "maxwell-json"


class TestOgg(_Changes):
    name = "ogg-json"

"""Catalogs, compiled plans and column objects, as PyFlink spells them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.errors import SpecError, SqlError, UnsupportedError
from penstock.table import DataTypes, ResolvedSchema, Schema, TableDescriptor, TableEnvironment
from penstock.table.catalog import CatalogDatabase, CatalogDescriptor
from penstock.table.columns import Column, PhysicalColumn
from penstock.table.expressions import call_sql, col
from penstock.table.identifiers import ObjectIdentifier, ObjectPath
from penstock.table.plans import PlanReference

if TYPE_CHECKING:
    from pathlib import Path


def test_paths_are_ordered_and_read_from_text() -> None:
    paths = [ObjectPath("b", "a"), ObjectPath("a", "z"), ObjectPath("a", "b")]
    assert [str(p) for p in sorted(paths)] == ["a.b", "a.z", "b.a"]
    assert ObjectPath.from_string("a.z") == paths[1]
    assert (paths[1].compare_to(paths[0]), paths[1].compare_to(paths[1])) == (-1, 0)
    with pytest.raises(SpecError, match="not a path"):
        ObjectPath.from_string("a.b.c")
    name = ObjectIdentifier.of("c", "d", "t`1")
    assert (name.as_summary_string(), str(name)) == ("c.d.t`1", "`c`.`d`.`t``1`")
    assert name.to_object_path() == ObjectPath("d", "t`1")


def test_a_catalog_is_declared_and_filled(env: TableEnvironment) -> None:
    env.create_catalog("mine", CatalogDescriptor.of("mine", {"type": "generic_in_memory"}, "a comment"))
    assert "mine" in env.list_catalogs()
    catalog = env.get_catalog("mine")
    assert catalog is not None
    assert env.get_catalog("yours") is None
    catalog.create_database("db", CatalogDatabase.create_instance({"k": "v"}), False)
    catalog.create_database("db", CatalogDatabase.create_instance({}), True)
    assert catalog.database_exists("db")
    assert not catalog.database_exists("other")
    env.use_catalog("mine")
    env.use_database("db")
    env.execute_sql("CREATE TABLE t (a INT, b AS a + 1) COMMENT 'so' WITH ('connector' = 'datagen')")
    env.execute_sql("CREATE TEMPORARY TABLE u (a INT) WITH ('connector' = 'datagen')")
    assert catalog.list_tables("db") == ["t"]
    assert catalog.table_exists(ObjectPath("db", "t"))
    assert not catalog.table_exists(ObjectPath("db", "u"))
    table = catalog.get_table(ObjectPath("db", "t"))
    assert (table.get_comment(), table.get_options()["connector"]) == ("so", "datagen")
    assert str(table.get_unresolved_schema()) == "(\n  `a` INT,\n  `b` AS [a + 1]\n)"
    with pytest.raises(SqlError, match="has tables"):
        catalog.drop_database("db", False)
    catalog.drop_table(ObjectPath("db", "t"), False)
    assert catalog.list_tables("db") == []
    with pytest.raises(SqlError, match="unknown database 'nothing'"):
        catalog.list_tables("nothing")
    with pytest.raises(UnsupportedError, match="rename_table"):
        catalog.rename_table(ObjectPath("db", "t"), "v", False)


def test_a_plan_is_kept_and_run_later(env: TableEnvironment, tmp_path: Path) -> None:
    out = tmp_path / "out"
    env.execute_sql(
        f"CREATE TABLE sink (a BIGINT) WITH ('connector' = 'filesystem', 'path' = '{out}', 'format' = 'csv')"
    )
    rows = env.from_elements([(1,), (2,)], ["a"])
    pipeline = rows.insert_into("sink")
    assert pipeline.get_sink_identifier() == ObjectIdentifier("default_catalog", "default_database", "sink")
    plan = pipeline.compile_plan()
    plan.write_to_file(tmp_path / "plan.json")
    plan.write_to_file(tmp_path / "plan.json", ignore_if_exists=True)
    with pytest.raises(SpecError, match="there already"):
        plan.write_to_file(tmp_path / "plan.json")
    loaded = env.load_plan(PlanReference.from_file(tmp_path / "plan.json"))
    assert loaded.as_json_string() == plan.as_json_string()
    assert "Sink" in loaded.explain()
    from_text = PlanReference.from_json_string(plan.as_json_string())
    for run in (env.load_plan(from_text).execute, lambda: env.execute_plan(from_text)):
        run().wait()
        files = [file for file in out.iterdir() if file.is_file()]
        assert sorted(line for file in files for line in file.read_text().split()) == ["1", "2"]
        for file in files:
            file.unlink()
    env.create_temporary_view("v", rows)
    sql = env.compile_plan_sql("INSERT INTO sink SELECT a FROM v WHERE a > 1")
    assert sql.get_flink_version()
    with pytest.raises(SqlError, match="one INSERT"):
        env.compile_plan_sql("SELECT 1")
    with pytest.raises(SpecError, match="not JSON"):
        env.load_plan(PlanReference.from_json_string("nothing"))


def test_a_schema_says_what_is_not_resolved_yet() -> None:
    schema = (
        Schema.new_builder()
        .primary_key_named("pk", "id")
        .column("id", DataTypes.INT().not_null())
        .column("payload", "ROW<a INT>")
        .column_by_expression("ts", call_sql("orig - INTERVAL '1' MINUTE"))
        .watermark("ts", "ts - INTERVAL '5' SECOND")
        .build()
    )
    assert str(schema).splitlines() == [
        "(", "  `id` INT NOT NULL,", "  `payload` [ROW<a INT>],", "  `ts` AS [orig - INTERVAL '1' MINUTE],",
        "  WATERMARK FOR `ts` AS [ts - INTERVAL '5' SECOND],", "  CONSTRAINT `pk` PRIMARY KEY (`id`) NOT ENFORCED", ")",
    ]  # fmt: skip
    assert "[" not in schema.declaration()
    assert schema == Schema.new_builder().from_schema(schema).build()
    with pytest.raises(UnsupportedError, match="call_sql"):
        Schema.new_builder().watermark("ts", col("ts"))
    table = TableDescriptor.for_connector("jdbc").schema(schema).option("password", "secret").build()
    assert "'secret'" not in str(table)


def test_columns_are_objects() -> None:
    schema = ResolvedSchema.of(
        [Column.physical("a", DataTypes.INT()), Column.physical("b", DataTypes.STRING())]
    )
    assert schema == ResolvedSchema.physical(["a", "b"], [DataTypes.INT(), DataTypes.STRING()])
    assert schema.get_column("b") == schema.get_column(1) == PhysicalColumn("b", DataTypes.STRING())
    assert (schema.get_column("c"), schema.get_column(2)) == (None, None)
    computed = Column.computed("c", "a + 1", DataTypes.INT())
    metadata = Column.metadata("m", DataTypes.INT(), "key", True).with_comment("so")
    assert str(computed) == "`c` INT AS a + 1"
    assert (str(metadata), metadata.is_persisted(), metadata.get_comment()) == (
        "`m` INT METADATA FROM 'key' VIRTUAL", False, "so",
    )  # fmt: skip
    assert computed.rename("d").copy(DataTypes.BIGINT()).as_summary_string() == "`d` BIGINT AS a + 1"

"""``TableSchema`` and ``ConfigOptions``, which older programs of Flink name columns and options with."""

from __future__ import annotations

import pytest

from penstock.api.config_options import ConfigOption, ConfigOptions
from penstock.compat.pyflink import install
from penstock.errors import SpecError
from penstock.table import DataTypes, FormatDescriptor, Schema, TableDescriptor, TableSchema

NAMES, TYPES = ["id", "name"], [DataTypes.BIGINT(), DataTypes.STRING()]


def test_a_table_schema_answers_flinks_questions() -> None:
    schema = TableSchema(NAMES, TYPES)
    built = TableSchema.builder().field("id", TYPES[0]).field("name", TYPES[1]).build()
    assert schema == built == schema.copy()
    assert hash(schema) == hash(built)
    assert (schema.get_field_names(), schema.get_field_data_types(), schema.get_field_count()) == (
        NAMES,
        TYPES,
        2,
    )
    assert (schema.get_field_data_type("name"), schema.get_field_data_type(0)) == (TYPES[1], TYPES[0])
    assert (
        schema.get_field_data_type("nothing")
        is schema.get_field_data_type(2)
        is schema.get_field_name(2)
        is None
    )
    assert schema.to_row_data_type() == DataTypes.ROW(
        [DataTypes.FIELD(n, of) for n, of in zip(NAMES, TYPES, strict=True)], nullable=False
    )
    assert str(schema) == repr(schema) == "root\n |-- id: BIGINT\n |-- name: STRING\n"
    with pytest.raises(TypeError, match="Expected field index or field name"):
        schema.get_field_data_type(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("names", "types"), [(["a"], []), (["a", "a"], [DataTypes.INT()] * 2)])
def test_names_and_types_that_do_not_fit_are_refused(names: list[str], types: list[DataTypes]) -> None:
    with pytest.raises(SpecError, match="do not fit"):
        TableSchema(names, types)  # type: ignore[arg-type]


def test_options_may_be_typed() -> None:
    rows = ConfigOptions.key("number-of-rows").int_type().no_default_value()
    strict = ConfigOptions.key("strict").boolean_type().default_value(False)
    assert strict == ConfigOption("strict", False)
    schema = Schema.new_builder().column("f0", DataTypes.STRING()).build()
    of_key = ConfigOptions.key("key.format").string_type().no_default_value()
    form = FormatDescriptor.for_format("json").option(strict, True).build()
    table = (
        TableDescriptor.for_connector("datagen").schema(schema).option(rows, 10).format(form, of_key).build()
    )
    assert table.get_options() == {
        "connector": "datagen", "number-of-rows": "10", "key.format": "json", "key.json.strict": "true",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "value"), [("int_type", "3"), ("int_type", True), ("boolean_type", 1), ("string_type", 1)]
)
def test_a_default_of_another_type_is_refused(kind: str, value: object) -> None:
    with pytest.raises(SpecError, match="the default of 'k' does not fit"):
        getattr(ConfigOptions.key("k"), kind)().default_value(value)
    for typed, default in (("long_type", 2**40), ("float_type", 1), ("double_type", 0.5)):
        assert getattr(ConfigOptions.key("k"), typed)().default_value(default).default == default


def test_programs_of_pyflink_find_them() -> None:
    install()
    from pyflink.common.config_options import ConfigOptions as named  # type: ignore[import-not-found]
    from pyflink.table.table_schema import TableSchema as schema  # type: ignore[import-not-found]

    assert named is ConfigOptions
    assert schema is TableSchema

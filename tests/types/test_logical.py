import msgspec
import pytest

from penstock.errors import UserError
from penstock.types import Schema
from penstock.types import logical as t

TEXTS = [
    (t.BooleanType(), "BOOLEAN"),
    (t.BigIntType(nullable=False), "BIGINT NOT NULL"),
    (t.DecimalType(10, 2), "DECIMAL(10, 2)"),
    (t.VarCharType(), "STRING"),
    (t.VarCharType(5), "VARCHAR(5)"),
    (t.VarBinaryType(), "BYTES"),
    (t.TimestampType(3), "TIMESTAMP(3)"),
    (t.TimestampLtzType(3), "TIMESTAMP_LTZ(3)"),
    (t.ArrayType(t.IntType(nullable=False)), "ARRAY<INT NOT NULL>"),
    (t.MapType(t.VarCharType(), t.DoubleType()), "MAP<STRING, DOUBLE>"),
    (t.RowType((t.Field("a", t.IntType()),)), "ROW<`a` INT>"),
]


@pytest.mark.parametrize(("type_", "text"), TEXTS)
def test_sql_text_and_json(type_: t.LogicalType, text: str) -> None:
    assert str(type_) == text
    assert t.type_from_json(t.type_to_json(type_)) == type_


@pytest.mark.parametrize(
    ("make", "got"),
    [
        (lambda: t.DecimalType(39, 0), "DECIMAL(39, 0)"),
        (lambda: t.DecimalType(2, 3), "DECIMAL(2, 3)"),
        (lambda: t.TimestampType(9), "p = 9"),
        (lambda: t.TimestampLtzType(7), "p = 7"),
    ],
)
def test_impossible_types_say_what_is_possible(make, got: str) -> None:
    with pytest.raises(UserError) as caught:
        make()
    assert caught.value.got == got
    assert caught.value.expected


def test_schema_json() -> None:
    schema = Schema.of(*((f"c{i}", type_) for i, (type_, _) in enumerate(TEXTS)), rowtime="c6")
    assert msgspec.json.decode(msgspec.json.encode(schema), type=Schema) == schema
    with pytest.raises(KeyError):
        schema.index("missing")

"""Makes a table of rows that a program holds, and finds the columns and types."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING, Any

from penstock.api.typeinfo import type_of_values
from penstock.columnar.python_values import columns_of, is_bare
from penstock.errors import FunctionError, SpecError, SpecTypeError
from penstock.plan import nodes as n
from penstock.sql.values import encode_batch
from penstock.table.types import DataType, logical_type, stored
from penstock.types import Batch
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Sequence


def elements_node(elements: Sequence[Any], schema: Any, where: str) -> n.Values:
    """The plan node that gives the rows ``elements``.

    Args:
        elements: Tuples, lists, rows, dictionaries, or bare values.
        schema: Names, a ROW, a type of bare values, or None.
        where: The call in the program, for errors.

    Raises:
        SpecError: A row or a value does not fit, or a type cannot be found.
    """
    declared = declared_schema(schema)
    names = declared.names if declared is not None else _given_names(elements, schema, where)
    rows = [tuple(map(stored, _positional(row, names, i, where))) for i, row in enumerate(elements)]
    if declared is None:
        declared = _inferred(names, rows, where)
    _check_nulls(declared, rows, where)
    rows = _rounded(declared, rows)
    taken: list[Any] = [row[0] for row in rows] if is_bare(declared) else list(rows)
    try:
        columns = columns_of(declared, taken, where)
    except FunctionError as err:
        raise SpecTypeError(
            "a value does not fit its column",
            expected=err.expected,
            got=err.got,
            where=where,
            remedy="correct the value, or declare another type in the schema",
        ) from err
    return n.Values(schema=declared, data=encode_batch(Batch(declared, columns, num_rows=len(rows))))


def declared_schema(schema: Any) -> t.Schema | None:
    """The columns of a schema with types; None if ``schema`` is None or has names alone."""
    if schema is None or (isinstance(schema, (list, tuple)) and all(isinstance(x, str) for x in schema)):
        return None
    if isinstance(schema, (list, tuple)):
        return t.Schema(tuple(t.Field(f"_{i + 1}", logical_type(x)) for i, x in enumerate(schema)))
    if hasattr(schema, "get_column_data_types"):
        return t.Schema(
            tuple(
                t.Field(name, logical_type(type_))
                for name, type_ in zip(schema.get_column_names(), schema.get_column_data_types(), strict=True)
            )
        )
    type_ = logical_type(schema, "the schema")
    if isinstance(type_, t.RowType):
        return t.Schema(type_.fields)
    return t.Schema((t.Field("value", type_),))


def _given_names(elements: Sequence[Any], schema: Any, where: str) -> list[str]:
    if elements and schema is not None and len(schema):
        return list(schema)
    if not elements:
        raise SpecError(
            "a table without rows needs the types of its columns",
            expected="a schema such as DataTypes.ROW([DataTypes.FIELD('id', DataTypes.BIGINT())])",
            got="no rows" + ("" if schema is None else f" and names alone: {', '.join(schema)}"),
            where=where,
        )
    first = elements[0]
    if isinstance(first, dict):
        return list(dict.fromkeys(key for row in elements for key in row))
    named = getattr(type(first), "names", None) or getattr(type(first), "_fields", None)
    if named:
        return list(named)
    fields = getattr(first, "_fields", None)
    width = 1 if isinstance(first, (str, bytes)) or not hasattr(first, "__len__") else len(first)
    return list(fields) if fields else [f"_{i + 1}" for i in range(width)]


def _positional(row: Any, names: Sequence[str], i: int, where: str) -> tuple[Any, ...]:
    if isinstance(row, dict):
        unknown = [key for key in row if key not in names]
        if not unknown:
            return tuple(row.get(name) for name in names)
        raise _misfit(
            i, f"the columns {', '.join(names)}", f"a dictionary with {', '.join(map(repr, unknown))}", where
        )
    if isinstance(row, (str, bytes)) or not hasattr(row, "__iter__"):
        row = (row,)
    values = tuple(row)
    if len(values) != len(names):
        raise _misfit(i, f"{len(names)} values: {', '.join(names)}", f"{len(values)} values", where)
    return values


def _misfit(i: int, expected: str, got: str, where: str) -> SpecError:
    return SpecError(
        f"row {i} does not fit the columns",
        expected=expected,
        got=got,
        where=where,
        remedy="give each row a value for every column; None is NULL",
    )


def _inferred(names: Sequence[str], rows: Sequence[tuple[Any, ...]], where: str) -> t.Schema:
    fields = []
    for i, name in enumerate(names):
        values = [row[i] for row in rows]
        type_ = type_of_column(values)
        if type_ is None:
            kinds = sorted({type(v).__name__ for v in values if v is not None}) or ["None alone"]
            raise SpecError(
                f"the values of column '{name}' have no common type of SQL",
                expected="values of one type, or a schema with types",
                got=", ".join(kinds),
                where=where,
                remedy="declare it: DataTypes.ROW([DataTypes.FIELD('" + name + "', DataTypes.STRING()), …])",
            )
        fields.append(t.Field(name, type_))
    return t.Schema(tuple(fields))


def type_of_column(values: Sequence[Any]) -> t.LogicalType | None:
    """The common SQL type of Python values; None if they have none."""
    present = [v for v in values if v is not None]
    if not present:
        return None
    if all(isinstance(v, dict) for v in present):
        key = type_of_column([k for v in present for k in v])
        value = type_of_column([x for v in present for x in v.values()])
        return None if key is None or value is None else t.MapType(key, value)
    if all(isinstance(v, list) for v in present):
        element = type_of_column([x for v in present for x in v])
        return None if element is None else t.ArrayType(element)
    if all(isinstance(v, tuple) for v in present):
        return _type_of_rows(present)
    found = type_of_values(present)
    return None if isinstance(found, t.RawType) else found


def _type_of_rows(rows: Sequence[tuple[Any, ...]]) -> t.LogicalType | None:
    if len({len(row) for row in rows}) != 1:
        return None
    kind = type(rows[0])
    names = getattr(kind, "names", None) or getattr(kind, "_fields", None)
    names = names or [f"_{i + 1}" for i in range(len(rows[0]))]
    types = [type_of_column(column) for column in zip(*rows, strict=True)]
    fields = [t.Field(name, x) for name, x in zip(names, types, strict=True) if x is not None]
    return t.RowType(tuple(fields)) if len(fields) == len(types) else None


def _rounded(schema: t.Schema, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The rows with decimals at the scale of their column. As in Flink, half a digit rounds away from zero."""
    decimals = {i: type_.scale for i, type_ in enumerate(schema.types) if isinstance(type_, t.DecimalType)}
    if not decimals:
        return rows

    def at_scale(value: Any, scale: int) -> Any:
        if not isinstance(value, Decimal) or not value.is_finite():
            return value
        return value.quantize(Decimal(1).scaleb(-scale), rounding=ROUND_HALF_UP, context=Context(prec=80))

    return [
        tuple(at_scale(value, decimals[i]) if i in decimals else value for i, value in enumerate(row))
        for row in rows
    ]


def _check_nulls(schema: t.Schema, rows: Sequence[tuple[Any, ...]], where: str) -> None:
    for i, field in enumerate(schema.fields):
        if not field.type.nullable and any(row[i] is None for row in rows):
            at = next(k for k, row in enumerate(rows) if row[i] is None)
            raise _misfit(at, f"{DataType(field.type)} in '{field.name}'", "None", where)

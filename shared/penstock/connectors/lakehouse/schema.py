"""Checks whether a declared table fits the stored one. The check is pure, and its error shows both
schemas."""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.types as at

from penstock.errors import ConnectorError, nearest
from penstock.formats.fitting import fits
from penstock.types import logical as t
from penstock.types.storage import external_arrow_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.types.logical import Schema


def declared_arrow(schema: Schema, where: str) -> pa.Schema:
    """The Arrow schema of a declared table, as the formats store it. ConnectorError for a type they lack."""
    for field in schema.fields:
        _check_storable(field.type, field.name, where)
    return pa.schema(
        [pa.field(f.name, external_arrow_type(f.type), nullable=f.type.nullable) for f in schema.fields]
    )


def check_schema(declared: Schema, found: pa.Schema, role: Literal["source", "sink"], where: str) -> None:
    """ConnectorError, with both schemas, unless a table declared as ``declared`` can be read or written.

    ``found``: the columns of the stored table. A source may declare some of them, in any order. A sink must declare
    those that are NOT NULL; others become NULL.
    """
    wrong: list[str] = []
    for field in declared.fields:
        index = found.get_field_index(field.name)
        if index < 0:
            wrong.append(f"there is no column '{field.name}'{_meant(field.name, found.names)}")
            continue
        have = found.field(index)
        if role == "source":
            if not fits(field.type, have.type):
                wrong.append(f"'{field.name}' is {have.type}, declared as {field.type}")
        else:
            _check_storable(field.type, field.name, where)
            if not holds(have.type, external_arrow_type(field.type)):
                wrong.append(f"'{field.name}' is {have.type}, which does not hold every {field.type}")
            elif field.type.nullable and not have.nullable:
                wrong.append(f"'{field.name}' is NOT NULL, declared as nullable")
    if role == "sink":
        names = set(declared.names)
        wrong += [
            f"'{f.name}' is NOT NULL and not declared"
            for f in found
            if not f.nullable and f.name not in names
        ]
    if wrong:
        raise ConnectorError(
            "the table is another than the declared one: " + "; ".join(wrong),
            expected="declared: " + ", ".join(f"{f.name} {f.type}" for f in declared.fields),
            got="stored: " + ", ".join(_described(f) for f in found),
            where=where,
            remedy="declare the columns as they are stored, or alter the stored table",
        )


def check_all_declared(declared: Schema, found: pa.Schema, where: str) -> None:
    """Raises ConnectorError if the stored table has a column that is not declared: a statement that writes all rows
    anew would lose its values."""
    missing = [field for field in found if field.name not in declared.names]
    if missing:
        raise ConnectorError(
            "DELETE and UPDATE write the rows of this table anew, and a column of it is not declared",
            expected="all columns: " + ", ".join(map(_described, found)),
            got="declared: " + ", ".join(declared.names),
            where=where,
            remedy="declare " + ", ".join(field.name for field in missing),
        )


def partition_names(options: Mapping[str, str]) -> list[str]:
    """The columns of PARTITIONED BY."""
    names: list[str] = json.loads(options.get("partition.keys", "[]"))
    return names


def need_library(module: str, extra: str, what: str, where: str) -> None:
    """Raises a ConnectorError that names the extra if a library is not installed."""
    if importlib.util.find_spec(module) is None:
        raise ConnectorError(
            f"the library of {what} is not installed",
            expected=f"the Python package {module}",
            got="no such package",
            where=where,
            remedy=f"pip install 'penstock[{extra}]', on every machine that plans or runs the job",
        )


def holds(want: pa.DataType, have: pa.DataType) -> bool:
    """Whether every value of type ``have`` is one of type ``want``."""
    if want == have:
        return True
    if at.is_signed_integer(want) and at.is_signed_integer(have):
        return want.bit_width >= have.bit_width
    if at.is_floating(want) and at.is_floating(have):
        return want.bit_width >= have.bit_width
    if at.is_decimal(want) and at.is_decimal(have):
        return want.scale == have.scale and want.precision >= have.precision
    if at.is_timestamp(want) and at.is_timestamp(have):
        return (want.tz is None) == (have.tz is None) and want.unit in ("us", have.unit)
    if at.is_map(want) and at.is_map(have):
        return holds(want.key_type, have.key_type) and holds(want.item_type, have.item_type)
    if _is_list(want) and _is_list(have):
        return holds(want.value_type, have.value_type)
    if at.is_struct(want) and at.is_struct(have):
        return [f.name for f in want] == [f.name for f in have] and all(
            holds(a.type, b.type) for a, b in zip(want, have, strict=True)
        )
    texts, bytes_ = (at.is_string, at.is_large_string), (at.is_binary, at.is_large_binary)
    return any(any(f(want) for f in kind) and any(f(have) for f in kind) for kind in (texts, bytes_))


def fitted(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """``rows`` with the columns of ``schema``, in its order; a column that ``rows`` lack is NULL.

    Raises pa.ArrowInvalid if a value would be lost.
    """
    arrays = []
    for field in schema:
        index = rows.schema.get_field_index(field.name)
        if index < 0:
            arrays.append(pa.nulls(rows.num_rows, field.type))
        else:
            column = rows.column(index)
            arrays.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _is_list(type_: pa.DataType) -> bool:
    return at.is_list(type_) or at.is_large_list(type_)


def _described(field: pa.Field) -> str:
    return f"{field.name} {field.type}" + ("" if field.nullable else " NOT NULL")


def _meant(name: str, known: Sequence[str]) -> str:
    hint = nearest(name, known)
    return f" ({hint})" if hint else ""


def _check_storable(type_: t.LogicalType, column: str, where: str) -> None:
    match type_:
        case t.NullType() | t.MultisetType() | t.YearMonthIntervalType() | t.DayTimeIntervalType():
            raise ConnectorError(
                f"column '{column}' has a type that cannot be stored",
                expected="a type that data files have: CAST the column",
                got=str(type_),
                where=where,
            )
        case t.ArrayType(element=element):
            _check_storable(element, column, where)
        case t.MapType(key=key, value=value):
            _check_storable(key, column, where)
            _check_storable(value, column, where)
        case t.RowType(fields=fields):
            for field in fields:
                _check_storable(field.type, f"{column}.{field.name}", where)

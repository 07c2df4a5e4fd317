"""Converts columns to the Python values that user functions receive, and their results to columns.

Python forms: int, float, bool, str, bytes, Decimal, date, time, datetime, timedelta;
ARRAY → list, MAP and MULTISET → dict, ROW → a row (a named tuple), NULL → None.
A record of a stream with the single column ``value`` is the bare value. A record of a stream with columns
``f0, f1, …`` (Flink's tuples) is a plain tuple. Any other record is a row with the columns' names.
"""

from __future__ import annotations

import types
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.columnar.record_classes import maker, plain_row, shape_of, taken_apart
from penstock.columnar.rows import Row, kind_of, refuse_kind, row_class
from penstock.errors import FunctionError
from penstock.functions.python_results import result_of
from penstock.types import logical as t
from penstock.types import pickling
from penstock.types.canonical import dictionary_key
from penstock.types.column import Column
from penstock.types.storage import external_arrow_type, numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.types import Batch, Schema

#: Types whose stored value is the Python value.
_PLAIN = (*t.INTEGERS, t.FloatType, t.DoubleType, t.BooleanType, t.YearMonthIntervalType)


# -- records -------------------------------------------------------------------------------


def is_bare(schema: Schema) -> bool:
    """Whether the records of the stream are bare values, not rows."""
    return (
        len(schema.fields) == 1
        and schema.fields[0].name == "value"
        and not (schema.fields[0].row or schema.fields[0].record)
    )


def is_tuple(schema: Schema) -> bool:
    """Whether the records of the stream are plain tuples: its columns are f0, f1, …, and no ``Types.ROW`` named them."""
    return all(f.name == f"f{i}" and not f.row and not f.record for i, f in enumerate(schema.fields))


def records(batch: Batch, columns: int | None = None) -> list[Any]:
    """The batch's rows in the form that user functions receive.

    ``columns`` is the number of leading columns to use (None: all); the columns after them are hidden keys.
    """
    schema, cols = batch.schema, batch.columns
    if columns:
        schema, cols = schema.select(range(columns)), cols[:columns]
    if is_bare(schema):
        return to_python(cols[0])
    rows = zip(*map(to_python, cols), strict=True)
    if is_tuple(schema):
        return list(rows)
    if schema.fields and schema.fields[0].record:
        return list(map(maker(schema.fields), rows))
    return list(map(partial(tuple.__new__, row_class(tuple(schema.names))), rows))


def normalizer(schema: Schema) -> Callable[[Any], Any] | None:
    """A function that turns plain tuples and lists into rows of the schema; None if records have no names.

    A user function so sees column names in records that another user function returned as tuples.
    """
    if is_bare(schema) or is_tuple(schema):
        return None
    cls = row_class(tuple(schema.names))
    if schema.fields[0].record:
        make = maker(schema.fields)
        return lambda record: make(record) if type(record) in (tuple, list, Row, cls) else record

    def normalize(record: Any) -> Any:
        return tuple.__new__(cls, record) if type(record) in (tuple, list, Row) else record

    return normalize


def tuples(columns: Sequence[Column]) -> list[Any]:
    """The keys of the rows in a form that dictionaries can hold: values of one column, tuples of several.

    Every NaN is the same object, so that it equals itself. A RAW value is its ``dictionary_key``.
    """
    lists = [_key_values(c) for c in columns]
    return lists[0] if len(lists) == 1 else list(zip(*lists, strict=True))


def _key_values(column: Column) -> list[Any]:
    if isinstance(column.type, t.RowType):
        column = Column(plain_row(column.type), column.values, column.valid)  # instances need not be hashable
    values = to_python(column)
    if isinstance(column.type, t.RawType):
        return list(map(dictionary_key, values))
    return _one_nan(column, values)


def _one_nan(column: Column, values: list[Any]) -> list[Any]:
    # NaN does not equal itself, but a dictionary compares identity first: one object for all NaNs works.
    array = column.values
    if isinstance(array, np.ndarray) and array.dtype.kind == "f" and np.isnan(array).any():
        return [_NAN if v != v else v for v in values]
    return values


_NAN = float("nan")


# -- columns → Python -------------------------------------------------------------------------


def to_python(column: Column) -> list[Any]:
    """The values as Python objects (see the module); None for NULL."""
    type_ = column.type
    if isinstance(type_, (*_PLAIN, t.RawType)):
        return column.storage_list()
    if isinstance(type_, (*t.STRINGS, *t.BINARIES)):
        return column.values.to_numpy(zero_copy_only=False).tolist()
    convert = from_external(type_)
    values = column.to_pylist()
    return values if convert is None else [None if v is None else convert(v) for v in values]


@lru_cache(maxsize=1024)
def from_external(type_: t.LogicalType) -> Callable[[Any], Any] | None:
    """A function from values of Arrow's ``to_pylist`` to our Python form; None if the two are the same."""
    match type_:
        case t.ArrayType(element=element):
            inner = _optional(from_external(element))
            return None if inner is None else lambda v: [inner(x) for x in v]
        case t.MapType(key=key, value=value):
            k, v = _optional(from_external(key)), _optional(from_external(value))
            if k is None and v is None:
                return dict
            k, v = k or _same, v or _same
            return lambda pairs: {k(a): v(b) for a, b in pairs}
        case t.MultisetType():
            return dict
        case t.RawType():
            return pickling.loads
        case t.RowType(fields=fields):
            make = maker(fields)
            converts = [_optional(from_external(f.type)) or _same for f in fields]
            return lambda d: make(c(v) for c, v in zip(converts, d.values(), strict=True))
    return None


def _optional(convert: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    return None if convert is None else lambda v: None if v is None else convert(v)


def _same(value: Any) -> Any:
    return value


# -- Python → columns ---------------------------------------------------------------------------


def columns_of(schema: Schema, rows: Sequence[Any], where: str) -> list[Column]:
    """The columns of records that a user function returned. ``where`` names the function in errors.

    Raises:
        FunctionError: a record does not fit; the error names the field, its type and the redacted record.
    """
    n = len(rows)
    if is_bare(schema):
        return [_column(schema.fields[0], rows, where)]
    if not n:
        return [Column.nulls(f.type, 0) for f in schema.fields]
    rows = _by_position(schema, rows, where)
    try:
        lists = list(zip(*rows, strict=True))
    except (ValueError, TypeError):
        lists = []
    if len(lists) != len(schema):
        bad = next((r for r in rows if not _fits(r, len(schema))), rows[0])
        raise _mismatch(where, f"records of {len(schema)} fields: {schema}", bad)
    return [_column(f, values, where) for f, values in zip(schema.fields, lists, strict=True)]


def _by_position(schema: Schema, rows: Sequence[Any], where: str) -> Sequence[Any]:
    """The rows with dictionaries, and rows whose names are in another order, in the schema's order."""
    names = tuple(schema.names)
    known = {tuple, list, Row, row_class(names)}
    kinds = set(map(type, rows)) - known
    if not kinds:
        return rows

    def place(row: Any) -> Any:
        if type(row) in known:
            return row
        if kind_of(row):
            raise _kind_refused(where, row)
        row = taken_apart(row)
        by_name = row if isinstance(row, dict) else None
        fields = getattr(type(row), "_names", None) or getattr(type(row), "_fields", None)
        if isinstance(row, tuple) and fields and set(fields) == set(names):
            by_name = dict(zip(fields, row, strict=True))
        if by_name is not None:
            if not set(by_name) <= set(names):
                raise _mismatch(where, f"fields {', '.join(names)}", row)
            return tuple(by_name.get(name) for name in names)
        return row

    return [place(r) for r in rows]


def _kind_refused(where: str, row: Row) -> FunctionError:
    return FunctionError(
        "a row with a kind stands where a type is declared, and records of a declared type have no kinds",
        expected="rows of kind +I (INSERT)",
        got=f"{row.get_row_kind().short} {redact(row)}",
        where=where,
        remedy="leave the type out (or say Types.PICKLED_BYTE_ARRAY()), so that records keep their kinds; or drop the "
        "kind with row.with_kind(RowKind.INSERT)",
    )


def _fits(row: Any, n: int) -> bool:
    return isinstance(row, (tuple, list)) and len(row) == n


#: Types of results that are not values: the caller would have to await or iterate them.
_UNFINISHED = {types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType}


def check_finished(values: Sequence[Any], where: str) -> None:
    """Raise FunctionError if a user function returned a coroutine or a generator instead of a value."""
    if not _UNFINISHED.isdisjoint(map(type, values)):
        found = next(v for v in values if type(v) in _UNFINISHED)
        kind = type(found).__name__.replace("_", " ")
        for value in values:
            if isinstance(value, types.CoroutineType):
                value.close()  # prevents Python's warning that the coroutine was never awaited
        raise FunctionError(
            f"a user function returned a {kind} where a value is expected",
            expected="the value itself",
            got=f"a {kind} of '{found.__name__}'",
            where=where,
            remedy="call plain functions; async ones as an async @udf in env.sql_query, generators in flat_map",
        )


def _column(field: t.Field, values: Sequence[Any], where: str) -> Column:
    if isinstance(field.type, t.RawType):
        check_finished(values, where)
    try:
        if isinstance(field.type, t.TimestampLtzType):
            values = [v.to_datetime() if hasattr(v, "to_datetime") else v for v in values]
        return from_python(field.type, values)
    except (pa.ArrowException, ArithmeticError, TypeError, ValueError, AttributeError) as err:
        raise _mismatch(
            where, f"{field.type} in '{field.name}' ({err})", _first_misfit(field.type, values)
        ) from err


def _first_misfit(type_: t.LogicalType, values: Sequence[Any]) -> Any:
    for value in values:
        try:
            from_python(type_, [value])
        except (pa.ArrowException, ArithmeticError, TypeError, ValueError, AttributeError):
            return value
    return values[0]


_EXACT_DECIMALS = (
    "round it yourself, declare Types.BIG_DEC(precision, scale) with up to 38 digits, or Types.PICKLED_BYTE_ARRAY(), "
    "which keeps any number of digits as it is"
)


def _mismatch(where: str, expected: str, got: Any) -> FunctionError:
    return FunctionError(
        "a user function returned a value that does not fit the declared output type",
        expected=expected,
        got=redact(got),
        where=where,
        remedy=_EXACT_DECIMALS
        if "DECIMAL" in expected
        else "return such a value, or declare another output_type",
    )


def from_python(type_: t.LogicalType, values: Sequence[Any]) -> Column:
    """A column of Python values (see the module).

    Raises an error of Arrow or Python (TypeError, ValueError, ArithmeticError) if a value does not fit.
    """
    dtype = numpy_dtype(type_)
    if dtype is not None and dtype.hasobject:
        return Column.of(type_, values)
    convert = _to_external(type_)
    if convert is not None:
        values = [None if v is None else convert(v) for v in values]
    if isinstance(type_, t.INTEGERS):
        # Given an integer type, Arrow would silently truncate 1.5 to 1, so Arrow infers the type first.
        array = pa.array(values)
        if not (pa.types.is_integer(array.type) or pa.types.is_null(array.type)):
            raise TypeError(f"{array.type} values for {type_}")
        return Column.from_arrow(type_, array.cast(external_arrow_type(type_)))
    return result_of(type_, list(values))


@lru_cache(maxsize=1024)
def _to_external(type_: t.LogicalType) -> Callable[[Any], Any] | None:
    """A function from our Python form to values that ``pa.array`` takes; None if the two are the same."""
    match type_:
        case t.ArrayType(element=element):
            inner = _optional(_to_external(element))
            return None if inner is None else lambda v: [inner(x) for x in v]
        case t.MapType(key=key, value=value):
            k = _optional(_to_external(key)) or _same
            v = _optional(_to_external(value)) or _same
            return lambda d: [(k(a), v(b)) for a, b in dict(d).items()]
        case t.MultisetType():
            return lambda d: list(dict(d).items())
        case t.RawType():
            return pickling.dumps
        case t.RowType(fields=fields):
            names = [f.name for f in fields]
            converts = [_optional(_to_external(f.type)) or _same for f in fields]

            def struct(row: Any) -> dict[str, Any]:
                if isinstance(row, dict):
                    if not row.keys() <= set(names):
                        raise ValueError(
                            f"fields {', '.join(map(str, row))} where {', '.join(names)} are declared"
                        )
                    row = [row.get(name) for name in names]
                refuse_kind(row)
                row = taken_apart(row)
                return {n: c(v) for n, c, v in zip(names, converts, row, strict=True)}

            return struct
    return None


# -- for errors ----------------------------------------------------------------------------------


def redact(record: Any, limit: int = 400) -> str:
    """A record as text for an error message, at most ``limit`` characters and an ellipsis.

    It shows the record's shape and numbers. Of a text it shows only two characters and the length, so that
    no personal data reaches a log.
    """
    text = _redact(record)
    return text if len(text) <= limit else text[:limit] + "…"


def _redact(value: Any) -> str:
    match value:
        case str() | bytes():
            return f"{value[:2]!r}…({len(value)})" if len(value) > 2 else repr(value)
        case tuple() if hasattr(value, "_fields"):
            fields = getattr(type(value), "_names", value._fields)
            return "(" + ", ".join(f"{n}={_redact(v)}" for n, v in zip(fields, value, strict=True)) + ")"
        case dict():
            return "{" + ", ".join(f"{k!r}: {_redact(v)}" for k, v in list(value.items())[:20]) + "}"
        case tuple() | list():
            return "(" + ", ".join(_redact(v) for v in value[:20]) + ")"
        case None | bool() | int() | float():
            return repr(value)
        case pa.RecordBatch() | pa.Array():
            return f"{type(value).__name__} of {len(value)} rows"
    kind: Any = type(value)
    if (shape := shape_of(kind)) is not None:
        fields = zip(shape.names, shape.values(value), strict=True)
        return f"{type(value).__name__}(" + ", ".join(f"{n}={_redact(v)}" for n, v in fields) + ")"
    text = str(value)
    return f"{type(value).__name__}({text[:24]}{'…' if len(text) > 24 else ''})"

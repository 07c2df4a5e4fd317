"""Functions that make expressions: ``col``, ``lit``, ``call`` …, and the bounds of OVER windows."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from penstock.errors import SpecError, UnsupportedError
from penstock.sql.parsing import parse_script
from penstock.sql.syntax import JsonCall
from penstock.table.descriptors import SQL_TEXT
from penstock.table.expression import Expression
from penstock.table.expression_base import cast_node, literal, node_of
from penstock.table.expression_enums import (
    JsonExistsOnError,
    JsonOnNull,
    JsonQueryOnEmptyOrError,
    JsonQueryWrapper,
    JsonType,
    JsonValueOnEmptyOrError,
    TimeIntervalUnit,
    TimePointUnit,
)
from penstock.table.marks import Bound, ColumnChoice, ColumnRange, RowCount
from penstock.table.syntax import call as call_node
from penstock.table.syntax import column, path_name
from penstock.table.types import logical_type

if TYPE_CHECKING:
    from typing import NoReturn

__all__ = [
    "CURRENT_RANGE", "CURRENT_ROW", "UNBOUNDED_RANGE", "UNBOUNDED_ROW", "Expression", "JsonExistsOnError", "JsonOnNull",
    "JsonQueryOnEmptyOrError", "JsonQueryWrapper", "JsonType", "JsonValueOnEmptyOrError", "TimeIntervalUnit",
    "TimePointUnit", "and_", "array", "atan2", "call", "call_sql", "coalesce", "col", "concat", "concat_ws", "convert_tz",
    "current_database", "current_date", "current_time", "current_timestamp", "current_watermark", "date_format",
    "descriptor", "e", "from_unixtime", "if_then_else", "json", "json_array", "json_array_agg", "json_object",
    "json_object_agg", "json_string", "lag", "lead", "lit", "local_time", "local_timestamp", "log", "map_",
    "map_from_arrays", "negative", "not_", "null_of", "object_of", "or_", "pi", "rand", "rand_integer", "range_", "row",
    "row_interval", "source_watermark", "temporal_overlaps", "timestamp_diff", "to_date", "to_timestamp",
    "to_timestamp_ltz", "unix_timestamp", "uuid", "with_all_columns", "with_columns", "without_columns",
]  # fmt: skip

UNBOUNDED_ROW = Expression(Bound(this="UNBOUNDED", kind="ROWS"))
UNBOUNDED_RANGE = Expression(Bound(this="UNBOUNDED", kind="RANGE"))
CURRENT_ROW = Expression(Bound(this="CURRENT ROW", kind="ROWS"))
CURRENT_RANGE = Expression(Bound(this="CURRENT ROW", kind="RANGE"))


def _call(name: str, *arguments: Any) -> Expression:
    values = list(arguments)
    while values and values[-1] is None:
        values.pop()
    return Expression(call_node(name, [node_of(v) for v in values]))


def col(name: str) -> Expression:
    """The column ``name``."""
    return Expression(column(name))


def lit(v: Any, data_type: Any = None) -> Expression:
    """The constant ``v``, of ``data_type`` if one is given."""
    if data_type is None:
        return Expression(literal(v))
    return Expression(cast_node(literal(v), logical_type(data_type, "of lit")))


def range_(start: str | int, end: str | int) -> Expression:
    """The columns from ``start`` to ``end``, by name or by position from 1: ``with_columns(range_('b', 'd'))``."""
    return Expression(ColumnRange(start=start, end=end))


def and_(predicate0: Any, predicate1: Any, *predicates: Any) -> Expression:
    """Whether all conditions are TRUE."""
    return reduce(lambda a, b: a & b, (predicate1, *predicates), _expression(predicate0))


def or_(predicate0: Any, predicate1: Any, *predicates: Any) -> Expression:
    """Whether at least one of the conditions is TRUE."""
    return reduce(lambda a, b: a | b, (predicate1, *predicates), _expression(predicate0))


def not_(expression: Any) -> Expression:
    """Whether the condition is FALSE."""
    return ~_expression(expression)


def _expression(value: Any) -> Expression:
    return value if isinstance(value, Expression) else lit(value)


def current_database() -> Expression:
    """The name of the default database."""
    return lit("default_database")


def current_date() -> Expression:
    """The current date in the session's time zone."""
    return _call("CURRENT_DATE")


def current_time() -> Expression:
    """The current time of day in the session's time zone."""
    return _call("CURRENT_TIME")


def current_timestamp() -> Expression:
    """The current point in time, a TIMESTAMP_LTZ."""
    return _call("CURRENT_TIMESTAMP")


def current_watermark(rowtimeAttribute: Any) -> Expression:
    """The watermark of the event-time column ``rowtimeAttribute``."""
    return _call("CURRENT_WATERMARK", rowtimeAttribute)


def local_time() -> Expression:
    """The current time of day in the session's time zone."""
    return _call("LOCALTIME")


def local_timestamp() -> Expression:
    """The current time in the session's time zone, a TIMESTAMP."""
    return _call("LOCALTIMESTAMP")


def to_date(date_str: Any, format: Any = None) -> Expression:
    """A text as a DATE. ``format``: a pattern in Java's form; None: yyyy-MM-dd."""
    return _call("TO_DATE", date_str, format)


def to_timestamp(timestamp_str: Any, format: Any = None) -> Expression:
    """A text as a TIMESTAMP. ``format``: a pattern in Java's form; None: yyyy-MM-dd HH:mm:ss."""
    return _call("TO_TIMESTAMP", timestamp_str, format)


def to_timestamp_ltz(*args: Any) -> Expression:
    """A TIMESTAMP_LTZ of a number since the epoch and its precision, or of a
    text, its pattern and its zone."""
    return _call("TO_TIMESTAMP_LTZ", *args)


def temporal_overlaps(
    left_time_point: Any, left_temporal: Any, right_time_point: Any, right_temporal: Any
) -> Expression:
    """Whether two spans of time overlap. Each is a time, and another time or an interval."""
    left = exp.Tuple(expressions=[node_of(left_time_point), node_of(left_temporal)])
    right = exp.Tuple(expressions=[node_of(right_time_point), node_of(right_temporal)])
    return Expression(exp.Overlaps(this=left, expression=right))


def date_format(timestamp: Any, format: Any) -> Expression:
    """A time as a text. ``format``: a pattern in Java's form."""
    return _call("DATE_FORMAT", timestamp, format)


def timestamp_diff(time_point_unit: TimePointUnit, time_point1: Any, time_point2: Any) -> Expression:
    """``time_point2 - time_point1`` in whole units."""
    return _call("TIMESTAMPDIFF", time_point_unit.name, time_point1, time_point2)


def convert_tz(date_str: Any, tz_from: Any, tz_to: Any) -> Expression:
    """The time that a text names in the time zone ``tz_from``, as a text in the time zone ``tz_to``."""
    return _call("CONVERT_TZ", date_str, tz_from, tz_to)


def from_unixtime(unixtime: Any, format: Any = None) -> Expression:
    """Seconds since the epoch as a text. ``format``: a pattern in Java's form."""
    return _call("FROM_UNIXTIME", unixtime, format)


def unix_timestamp(date_str: Any = None, format: Any = None) -> Expression:
    """Seconds from the epoch to a text's time, or to now without a text.
    ``format``: a pattern in Java's form."""
    return _call("UNIX_TIMESTAMP", date_str, format)


def array(head: Any, *tail: Any) -> Expression:
    """An ARRAY of the values."""
    return Expression(call_node("ARRAY", [node_of(v) for v in (head, *tail)]))


def row(head: Any, *tail: Any) -> Expression:
    """A ROW of the values."""
    return Expression(call_node("ROW", [node_of(v) for v in (head, *tail)]))


def map_(key: Any, value: Any, *tail: Any) -> Expression:
    """A MAP of alternating keys and values."""
    return Expression(call_node("MAP", [node_of(v) for v in (key, value, *tail)]))


def map_from_arrays(key: Any, value: Any) -> Expression:
    """A MAP of an ARRAY of keys and one of values."""
    return _call("MAP_FROM_ARRAYS", key, value)


def descriptor(*column_names: str) -> NoReturn:
    """Columns as the argument of a process table function.

    Raises:
        UnsupportedError: Always: there are no process table functions.
    """
    raise UnsupportedError(
        "descriptor(…): columns as an argument",
        expected="expressions",
        got=f"descriptor{column_names}",
        remedy="group windows take their time column with on(col('…')); TABLE(TUMBLE(…)) is written in sql_query",
    )


def object_of(class_name: str, *args: Any) -> NoReturn:
    """An object of a structured type, a Java class.

    Raises:
        UnsupportedError: Always.
    """
    raise UnsupportedError(
        f"object_of({class_name!r}): an object of a Java class",
        expected="a ROW",
        remedy="row(…).cast(DataTypes.ROW([DataTypes.FIELD(name, type), …]))",
    )


def row_interval(rows: int) -> Expression:
    """A distance of ``rows`` rows, for the frame of an OVER window."""
    if not isinstance(rows, int) or rows < 0:
        raise SpecError("row_interval takes a number of rows", expected="0 or more", got=repr(rows))
    return Expression(RowCount(this=rows))


def pi() -> Expression:
    """The number pi."""
    return _call("PI")


def e() -> Expression:
    """The number e."""
    return _call("E")


def rand(seed: Any = None) -> Expression:
    """A random number from 0 to 1."""
    return _call("RAND", seed)


def rand_integer(bound: Any, seed: Any = None) -> Expression:
    """A random whole number, at least 0 and below ``bound``."""
    return _call("RAND_INTEGER", bound) if seed is None else _call("RAND_INTEGER", seed, bound)


def atan2(y: Any, x: Any) -> Expression:
    """The angle of the point (x, y), in radians."""
    return _call("ATAN2", y, x)


def negative(v: Any) -> Expression:
    """The number ``-v``."""
    return -_expression(v)


def concat(first: Any, *others: Any) -> Expression:
    """The texts as one text, one after the other."""
    return _call("CONCAT", first, *others)


def concat_ws(separator: Any, first: Any, *others: Any) -> Expression:
    """The texts as one text, with ``separator`` between them."""
    return _call("CONCAT_WS", separator, first, *others)


def uuid() -> Expression:
    """A new UUID for each row."""
    return _call("UUID")


def null_of(data_type: Any) -> Expression:
    """NULL of the type ``data_type``."""
    return Expression(cast_node(exp.Null(), logical_type(data_type, "of null_of")))


def log(v: Any, base: Any = None) -> Expression:
    """The logarithm of ``v`` to ``base``; the natural logarithm if ``base`` is None."""
    return _expression(v).log(base)


def source_watermark() -> Expression:
    """The watermarks that a stream has already. The engine has no such function: the query is refused."""
    return _call("SOURCE_WATERMARK")


def if_then_else(condition: Any, if_true: Any, if_false: Any) -> Expression:
    """``if_true`` where ``condition`` is TRUE, else ``if_false``."""
    return _expression(condition).then(if_true, if_false)


def coalesce(*args: Any) -> Expression:
    """The first value that is not NULL."""
    return _call("COALESCE", *args)


def with_all_columns() -> Expression:
    """All columns, as ``*`` in SQL."""
    return Expression(exp.Star())


def _choice(given: tuple[Any, ...], *, without: bool) -> Expression:
    return Expression(ColumnChoice(expressions=[node_of(g) for g in given], without=without))


def with_columns(head: Any, *tails: Any) -> Expression:
    """The given columns: ``col('a')``, names, ``range_(…)`` or positions from 1."""
    return _choice((head, *tails), without=False)


def without_columns(head: Any, *tails: Any) -> Expression:
    """All columns but the given ones."""
    return _choice((head, *tails), without=True)


def json(value: Any) -> Expression:
    """A text of JSON as a value inside of ``json_object`` or ``json_array``."""
    return _call("JSON", value)


def json_string(value: Any) -> Expression:
    """A value as a text of JSON."""
    return _call("JSON_STRING", value)


def _json(name: str, on_null: JsonOnNull, given: tuple[Any, ...]) -> Expression:
    made = JsonCall(name=name, expressions=[node_of(v) for v in given])
    made.meta["options"] = {"on_null": on_null.name}
    return Expression(made)


def json_object(on_null: JsonOnNull = JsonOnNull.NULL, *args: Any) -> Expression:
    """An object of JSON of alternating keys and values."""
    return _json("JSON_OBJECT", on_null, args)


def json_object_agg(on_null: JsonOnNull, key_expr: Any, value_expr: Any) -> Expression:
    """An object of JSON of a group's keys and values."""
    return _json("JSON_OBJECTAGG", on_null, (key_expr, value_expr))


def json_array(on_null: JsonOnNull = JsonOnNull.ABSENT, *args: Any) -> Expression:
    """An array of JSON of values."""
    return _json("JSON_ARRAY", on_null, args)


def json_array_agg(on_null: JsonOnNull, item_expr: Any) -> Expression:
    """An array of JSON of a group's values."""
    return _json("JSON_ARRAYAGG", on_null, (item_expr,))


def lag(expr: Any, offset: int = 1, default: Any = None) -> Expression:
    """The value ``offset`` rows before this row in an OVER window; ``default`` if there is no such row."""
    return _call("LAG", expr, offset, default)


def lead(expr: Any, offset: int = 1, default: Any = None) -> Expression:
    """The value ``offset`` rows after this row in an OVER window; ``default`` if there is no such row."""
    return _call("LEAD", expr, offset, default)


def call(f: Any, *args: Any) -> Expression:
    """A call of a function: the name of one that SQL knows, or a result of ``udf``, ``udtf`` or ``udaf``."""
    if isinstance(f, str):
        if f.lower() == "sum0" and len(args) == 1:
            return _expression(args[0]).sum0  # Flink's Table API has this name, and SQL has not
        return Expression(call_node(path_name(f), [node_of(v) for v in args]))
    if callable(f):
        made = f(*args)
        if isinstance(made, Expression):
            return made
    raise SpecError(
        "call takes a function", expected="its name, or what udf(…) made", got=repr(f), remedy="udf(f, result_type=…)"
    )  # fmt: skip


def call_sql(sql_expression: str) -> Expression:
    """The scalar expression that SQL text gives: ``call_sql('a + UPPER(b)')``."""
    statements = parse_script(f"SELECT {sql_expression}")
    query = getattr(statements[0], "query", None)
    only = isinstance(query, exp.Select) and {k for k, v in query.args.items() if v} == {"expressions"}
    if len(statements) != 1 or not only or len(query.expressions) != 1:  # type: ignore[union-attr]
        raise SpecError("not one expression", expected="one expression of SQL", got=sql_expression)
    found = query.expressions[0].copy()  # type: ignore[union-attr]
    for part in found.walk():
        part.meta.pop("start", None)  # the positions are those of another text
    found.meta[SQL_TEXT] = sql_expression
    if isinstance(found, exp.Alias):
        return Expression(found.this, (found.alias,))
    return Expression(found)

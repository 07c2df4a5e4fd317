"""JSON functions: JSON_VALUE, JSON_QUERY, JSON_EXISTS, the constructors and IS JSON."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import RecordError
from penstock.functions import jsonpath
from penstock.functions.collection import external_rows
from penstock.functions.expr import Call
from penstock.functions.formatting import double_text, float_text
from penstock.functions.jsonpath import BROKEN, MISSING, compile_path
from penstock.functions.signature import (
    ANY,
    STR,
    STRING,
    FunctionDef,
    Resolution,
    define,
    define_rows,
    literal_value,
    register,
    resolver,
)  # fmt: skip
from penstock.functions.vector import Scalar, as_column, storage_values
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.functions.vector import Vector

BOOLEAN = t.BooleanType()
#: Calls whose value is already a document, not text to be quoted.
_DOCUMENTS = frozenset({"JSON_OBJECT", "JSON_ARRAY", "JSON"})
_SCALARS = (t.BooleanType, *t.INTEGERS, t.FloatType, t.DoubleType, t.DecimalType, *t.STRINGS)


# -- looking up ------------------------------------------------------------------------------


def _search(text: str, path_text: str) -> tuple[Any, bool]:
    """(value, MISSING or BROKEN; whether the path is strict)."""
    path = compile_path(path_text)
    if path is None:
        return BROKEN, True
    document = jsonpath.parse(text)
    if document is BROKEN:
        return BROKEN, path.strict
    found = path.find(document)
    if found is MISSING and path.strict:
        return BROKEN, True
    return found, path.strict


def _fail(function: str, what: str, text: str) -> RecordError:
    return RecordError(f"{function}: {what}", expected="a value at the path", got=text[:200])


def _resolve_value(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    if len(call.args) not in (2, 6):
        call.fail("JSON_VALUE(json, path) with ON EMPTY and ON ERROR behaviour")
    result = (call.type or STRING).with_nullable(True)
    if not isinstance(result, _SCALARS):
        call.fail("RETURNING a string, number or boolean")
    targets = list(resolver([STR, STR], result)(Resolution(call.name, call.args[:2]))[0])
    for index in (3, 5):
        if len(call.args) == 6:
            behaviour = call.constant(index - 1, "the behaviour")
            targets += [call.types[index - 1], result if behaviour == "DEFAULT" else call.types[index]]
    return targets, result


def _bind_value(call: Call) -> Any:
    on_empty, on_error = literal_value(call, 2) or "NULL", literal_value(call, 4) or "NULL"
    convert = _returning(call.type)

    def one(text: str | None, path: str | None, *defaults: Any) -> Any:
        if text is None or path is None:
            return None
        found, strict = _search(text, path)
        if found is BROKEN or isinstance(found, (dict, list)):
            if on_error == "ERROR":
                raise _fail("JSON_VALUE", "no scalar at the path", text)
            return defaults[3] if on_error == "DEFAULT" else None
        if found is MISSING or (found is None and not strict):
            if on_empty == "ERROR":
                raise _fail("JSON_VALUE", "an empty result is not allowed", text)
            return defaults[1] if on_empty == "DEFAULT" else None
        return None if found is None else convert(found)

    return external_rows(call, one, nulls=True)


def _returning(type_: t.LogicalType) -> Callable[[Any], Any]:
    """A function from JSON scalars to the RETURNING type; a scalar of another kind is an error, as in Flink."""
    if isinstance(type_, t.STRINGS):
        return lambda v: v if isinstance(v, str) else jsonpath.dump(v)
    wanted: tuple[type, ...] = (int,)
    if isinstance(type_, t.BooleanType):
        wanted = (bool,)
    elif not isinstance(type_, t.INTEGERS):
        wanted = (int, Decimal)
    to_float = isinstance(type_, (t.FloatType, t.DoubleType))

    def convert(value: Any) -> Any:
        fits = isinstance(value, wanted) and (bool in wanted or not isinstance(value, bool))
        if not fits:
            raise RecordError(
                f"JSON_VALUE: {jsonpath.dump(value)} is no {type_.sql()}",
                expected=type_.sql(),
                got=jsonpath.dump(value),
            )
        return float(value) if to_float else value

    return convert


def _resolve_query(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    call.count(2, 5)
    result = (call.type or STRING).with_nullable(True)
    if not isinstance(result, t.STRINGS) and not (
        isinstance(result, t.ArrayType) and isinstance(result.element, t.STRINGS)
    ):
        call.fail("RETURNING STRING or ARRAY<STRING>")
    targets = resolver([STR, STR], STRING)(Resolution(call.name, call.args[:2]))[0]
    return [*targets, *call.types[2:]], result


def _bind_query(call: Call) -> Any:
    wrapper = literal_value(call, 2) or "WITHOUT"
    on_empty, on_error = literal_value(call, 3) or "NULL", literal_value(call, 4) or "NULL"
    as_array = isinstance(call.type, t.ArrayType)

    def behave(behaviour: str, text: str) -> Any:
        if behaviour == "ERROR":
            raise _fail("JSON_QUERY", "no object or array at the path", text)
        empty: dict[str, Any] = {"EMPTY ARRAY": [], "EMPTY OBJECT": {}}
        return empty.get(behaviour)

    def one(text: str | None, path: str | None, *options: Any) -> Any:
        if text is None or path is None:
            return None
        found, _ = _search(text, path)
        if found is BROKEN:
            found = behave(on_error, text)
        elif found is None or found is MISSING:
            # A missing member counts as null, so EMPTY … ON EMPTY never applies (as in Flink).
            found = behave("ERROR", text) if on_empty == "ERROR" else None
        elif wrapper == "UNCONDITIONAL" or (wrapper == "CONDITIONAL" and not isinstance(found, (dict, list))):
            found = [found]
        elif not isinstance(found, (dict, list)):
            found = behave(on_error, text)
        if found is None:
            return None
        if not as_array:
            return jsonpath.dump(found)
        items = found if isinstance(found, list) else [found]
        return [None if v is None else v if isinstance(v, str) else jsonpath.dump(v) for v in items]

    return external_rows(call, one, nulls=True)


def _bind_exists(call: Call) -> Any:
    on_error = literal_value(call, 2) or "FALSE"

    def one(text: str | None, path: str | None, *options: Any) -> bool | None:
        if text is None or path is None:
            return None
        found, _ = _search(text, path)
        if found is BROKEN:
            if on_error == "ERROR":
                raise _fail("JSON_EXISTS", "the document or the path is in error", text)
            return {"TRUE": True, "FALSE": False}.get(on_error)
        return found is not MISSING and found is not None and found != []

    return external_rows(call, one, nulls=True)


register(FunctionDef("JSON_VALUE", _resolve_value, _bind_value, fails=True, costly=True))
register(FunctionDef("JSON_QUERY", _resolve_query, _bind_query, fails=True, costly=True))
define(
    "JSON_EXISTS", [STR, STR, STR], BOOLEAN, _bind_exists, optional=1, nullable=True, fails=True, costly=True
)


# -- building --------------------------------------------------------------------------------


def json_text(value: Any, type_: t.LogicalType) -> str:
    """A SQL value (in its external Python form) as JSON text."""
    if value is None:
        return "null"
    match type_:
        case t.BooleanType():
            return "true" if value else "false"
        case t.FloatType():
            return float_text(np.float32(value))
        case t.DoubleType():
            return double_text(value)
        case t.DecimalType():
            return format(value, "f")
        case t.TimestampType() | t.TimestampLtzType():
            return jsonpath.quote(_iso(value, isinstance(type_, t.TimestampLtzType)))
        case t.BinaryType() | t.VarBinaryType():
            return jsonpath.quote(base64.b64encode(value).decode())
        case t.ArrayType(element=e):
            return "[" + ",".join(json_text(v, e) for v in value) + "]"
        case t.MapType(value=v):
            return "{" + ",".join(f"{jsonpath.quote(str(k))}:{json_text(x, v)}" for k, x in value) + "}"
        case t.RowType(fields=fields):
            items = (f"{jsonpath.quote(f.name)}:{json_text(value[f.name], f.type)}" for f in fields)
            return "{" + ",".join(items) + "}"
        case t.CharType() | t.VarCharType():
            return jsonpath.quote(value)
    return str(value)  # of a VARIANT, too: it is JSON text


def _iso(value: datetime, instant: bool) -> str:
    """Java's LocalDateTime or Instant text: as many digits of the fraction as are not zero."""
    text = value.astimezone(UTC).replace(tzinfo=None).isoformat() if instant else value.isoformat()
    if "." in text and text.endswith("000"):
        text = text[:-3]
    return text + ("Z" if instant else "")


def _check_scalar(call: Resolution, type_: t.LogicalType) -> None:
    if isinstance(type_, (t.DateType, t.TimeType, *t.INTERVALS, t.MultisetType, t.RawType)):
        call.fail("values that have a JSON form", f"{type_} cannot be converted into JSON")


def _item_texts(call: Call, index: int) -> Callable[[Vector, int], list[str | None]]:
    """JSON texts of an argument, None where it is NULL."""
    arg = call.args[index]
    document = isinstance(arg, Call) and arg.function in _DOCUMENTS
    type_ = arg.type

    def texts(vector: Vector, n: int) -> list[str | None]:
        column = as_column(vector, 1 if isinstance(vector, Scalar) else n)
        values = column.to_pylist()
        out = values if document else [None if v is None else json_text(v, type_) for v in values]
        return out * n if isinstance(vector, Scalar) else out

    return texts


def _resolve_object(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    if len(call.args) % 2 == 0:
        call.fail("JSON_OBJECT(KEY k VALUE v, …)")
    call.constant(0, "NULL or ABSENT ON NULL")
    for key, value in zip(call.types[1::2], call.types[2::2], strict=True):
        if not isinstance(key, t.STRINGS):
            call.fail("keys that are strings")
        _check_scalar(call, value)
    return call.types, STRING.not_null


def _bind_object(call: Call) -> Any:
    absent = literal_value(call, 0) == "ABSENT"
    makers = [_item_texts(call, i) for i in range(2, len(call.args), 2)]

    def run(args: Sequence[Vector], n: int) -> Vector:
        keys = [storage_values(a, n) for a in args[1::2]]
        values = [make(a, n) for make, a in zip(makers, args[2::2], strict=True)]
        rows: list[dict[str, str]] = [{} for _ in range(n)]
        for names, texts in zip(keys, values, strict=True):
            for row, name, text in zip(rows, names, texts, strict=False):
                if name is None:
                    raise RecordError(
                        "JSON_OBJECT: a key is NULL", expected="keys that are not NULL", got="NULL"
                    )
                if text is not None or not absent:
                    row[name] = "null" if text is None else text
        out = ["{" + ",".join(f"{jsonpath.quote(k)}:{row[k]}" for k in sorted(row)) + "}" for row in rows]
        return Column.of(call.type, out)

    return run


def _resolve_array(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    if not call.args:
        call.fail("the ON NULL behaviour first")
    call.constant(0, "NULL or ABSENT ON NULL")
    for type_ in call.types[1:]:
        _check_scalar(call, type_)
    return call.types, STRING.not_null


def _bind_array(call: Call) -> Any:
    absent = literal_value(call, 0) == "ABSENT"
    makers = [_item_texts(call, i) for i in range(1, len(call.args))]

    def run(args: Sequence[Vector], n: int) -> Vector:
        columns = [make(a, n) for make, a in zip(makers, args[1:], strict=True)]
        rows = zip(*columns, strict=True) if columns else [()] * n
        out = [
            "[" + ",".join("null" if v is None else v for v in row if v is not None or not absent) + "]"
            for row in rows
        ]
        return Column.of(call.type, out)

    return run


register(FunctionDef("JSON_OBJECT", _resolve_object, _bind_object, fails=True, costly=True))
register(FunctionDef("JSON_ARRAY", _resolve_array, _bind_array, costly=True))


def _resolve_string(call: Resolution) -> tuple[list[t.LogicalType], t.LogicalType]:
    targets, result = resolver([ANY], STRING)(call)
    _check_scalar(call, targets[0])
    return targets, result


def _bind_string(call: Call) -> Any:
    texts = _item_texts(call, 0)
    return lambda args, n: Column.of(call.type, texts(args[0], n))


def _unquote(text: str) -> str:
    if len(text) < 2 or text[0] != '"':
        return text
    found = jsonpath.parse(text)
    return found if isinstance(found, str) else text


def _json(text: str) -> str:
    if jsonpath.parse(text) is BROKEN:
        raise _fail("JSON", "not a JSON document", text)
    return jsonpath.dump(jsonpath.parse(text))


register(FunctionDef("JSON_STRING", _resolve_string, _bind_string, costly=True))
define_rows("JSON_QUOTE", [STR], STRING, jsonpath.quote)
define_rows("JSON_UNQUOTE", [STR], STRING, _unquote)
define_rows("JSON", [STR], STRING, _json, fails=True)


# -- IS JSON ---------------------------------------------------------------------------------


def _is_json(name: str, test: Callable[[Any], bool]) -> None:
    for negate in (False, True):

        def bind(call: Call, negate: bool = negate) -> Any:
            def run(args: Sequence[Vector], n: int) -> Vector:
                found = [_holds(v, test) is not negate for v in storage_values(args[0], n)]
                return Column(call.type, np.array(found, np.bool_))

            return run

        define(f"IS {'NOT ' if negate else ''}{name}", [STR], BOOLEAN, bind, nullable=False, costly=True)


def _holds(text: str | None, test: Callable[[Any], bool]) -> bool:
    if text is None:
        return False
    document = jsonpath.parse(text)
    return document is not BROKEN and test(document)


_is_json("JSON", lambda document: True)
_is_json("JSON VALUE", lambda document: True)
_is_json("JSON OBJECT", lambda document: isinstance(document, dict))
_is_json("JSON ARRAY", lambda document: isinstance(document, list))
_is_json("JSON SCALAR", lambda document: not isinstance(document, (dict, list)))

"""Avro schemas of tables: derived from a table's columns as Flink does, and matched with a writer's.

A writer's schema is matched by name. A column that it lacks is NULL where the column allows it. Beyond
Avro's own rules, times are matched by their logical type, so that microseconds are never taken for
milliseconds.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import ConnectorError, UnsupportedError
from penstock.formats.reporting import shorten, unsupported_type
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Mapping

Node = Any  # a parsed JSON schema: a name, a list (a union) or an object

_RECORD = "org.apache.flink.avro.generated.record"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN: dict[type, str] = {
    t.BooleanType: "boolean", t.TinyIntType: "int", t.SmallIntType: "int", t.IntType: "int",
    t.BigIntType: "long", t.FloatType: "float", t.DoubleType: "double", t.CharType: "string",
    t.VarCharType: "string", t.BinaryType: "bytes", t.VarBinaryType: "bytes",
}  # fmt: skip
#: Microseconds of one unit of each logical type that is a time.
UNITS = {
    "time-millis": 1000, "time-micros": 1, "timestamp-millis": 1000, "timestamp-micros": 1,
    "local-timestamp-millis": 1000, "local-timestamp-micros": 1,
}  # fmt: skip
_INTEGERS = ("int", "long")


def table_schema(
    schema: t.Schema, *, legacy: bool, legacy_option: str = "avro.timestamp_mapping.legacy"
) -> dict[str, Any]:
    """The Avro record of a table. UnsupportedError, which names the column, for a type without an Avro form.

    ``legacy``: Flink's old mapping, in which TIMESTAMP is timestamp-millis and TIMESTAMP_LTZ has no form.
    ``legacy_option``: the option that says so, for errors.
    """
    try:
        out = _record(t.RowType(schema.fields), _RECORD, "", legacy)
    except UnsupportedError as err:
        err.remedy = err.remedy and err.remedy.replace("avro.timestamp_mapping.legacy", legacy_option)
        raise
    _check_names(out, {})
    return out


def _record(type_: t.RowType, name: str, path: str, legacy: bool) -> dict[str, Any]:
    fields = []
    for field in type_.fields:
        place = f"{path}.{field.name}" if path else field.name
        if not _NAME.fullmatch(field.name):
            raise UnsupportedError(
                f"column '{place}' has a name that Avro does not allow",
                expected="letters, digits and '_', and no digit first",
                got=shorten(field.name),
                where=f"column '{place}'",
                remedy="rename the column, or use another format",
            )
        node = {"name": field.name, "type": _node(field.type, f"{name}_{field.name}", place, legacy)}
        if field.type.nullable:
            node["default"] = None
        fields.append(node)
    return {"type": "record", "name": name, "fields": fields}


def _node(type_: t.LogicalType, name: str, path: str, legacy: bool) -> Node:
    node = _not_null(type_, name, path, legacy)
    return ["null", node] if type_.nullable else node


def _not_null(type_: t.LogicalType, name: str, path: str, legacy: bool) -> Node:
    if plain := _PLAIN.get(type(type_)):
        return plain
    match type_:
        case t.DateType():
            return {"type": "int", "logicalType": "date"}
        case t.TimeType(precision=p) if p <= 3:
            return {"type": "int", "logicalType": "time-millis"}
        case t.TimestampType(precision=p):
            kind = "timestamp" if legacy else "local-timestamp"
            return {"type": "long", "logicalType": f"{kind}-{'millis' if p <= 3 else 'micros'}"}
        case t.TimestampLtzType(precision=p) if not legacy:
            return {"type": "long", "logicalType": f"timestamp-{'millis' if p <= 3 else 'micros'}"}
        case t.TimestampLtzType():
            err = unsupported_type("avro", path, type_)
            err.remedy = "set 'avro.timestamp_mapping.legacy' = 'false' (as in Flink), or use another format"
            raise err
        case t.DecimalType(precision=p, scale=s):
            return {"type": "bytes", "logicalType": "decimal", "precision": p, "scale": s}
        case t.ArrayType(element=element):
            return {"type": "array", "items": _node(element, name, path, legacy)}
        case t.MapType(key=key, value=value) if isinstance(key, t.STRINGS):
            return {"type": "map", "values": _node(value, name, path, legacy)}
        case t.MultisetType(element=element) if isinstance(element, t.STRINGS):
            return {"type": "map", "values": _node(t.IntType(), name, path, legacy)}
        case t.RowType():
            return _record(type_, name, path, legacy)
    raise unsupported_type("avro", path, type_)


def _check_names(node: Node, seen: dict[str, None]) -> None:
    """Two records cannot share a name: column a_b and field b of column a would."""
    match node:
        case list():
            for branch in node:
                _check_names(branch, seen)
        case {"type": "record", "name": name, "fields": fields}:
            if name in seen:
                raise UnsupportedError(
                    "two ROW types of the table would have the same Avro name",
                    expected="names of columns and fields that differ when they are joined by '_'",
                    got=f"'{name}' twice",
                    where="format 'avro'",
                    remedy="rename one of the columns",
                )
            seen[name] = None
            for field in fields:
                _check_names(field["type"], seen)
        case {"type": "array", "items": inner} | {"type": "map", "values": inner}:
            _check_names(inner, seen)


class RecordIn(NamedTuple):
    """The record of a schema, and the bytes in front of each: its branch, where the schema is a union of null and it."""

    schema: dict[str, Any]
    lead: bytes


def record_in(schema: Node, where: str) -> RecordIn:
    """The record that ``schema`` is, or is beside null. ConnectorError, with ``where``, for another schema."""
    branches = schema if isinstance(schema, list) else [schema]
    found = [
        i for i, branch in enumerate(branches) if isinstance(branch, dict) and branch.get("type") == "record"
    ]
    if len(found) != 1 or any(b != "null" for i, b in enumerate(branches) if i != found[0]):
        raise ConnectorError(
            "the Avro schema does not fit the table: the schema is no record",
            expected="a record, or a union of null and a record",
            got=shorten(schema, 120),
            where=where,
            remedy="write records",
        )
    # Avro writes the number of a branch as a zigzag: 0, 1 are the bytes 0, 2.
    return RecordIn(branches[found[0]], bytes([2 * found[0]]) if isinstance(schema, list) else b"")


# -- a writer's schema --------------------------------------------------------------------------


class Writer:
    """A writer's schema, matched with the columns that are wanted.

    ``plain``: the schema without the logical types of times, whose numbers are then decoded as numbers.
    ``reader``: the part of it that is wanted; None if that is all of it, in this order.
    ``nodes``: for each column the schema of its values, None where the writer has no such column.

    Args:
        schema: The writer's schema, as JSON gives it.
        columns: The columns to deliver.
        where: What has the schema, for errors.

    Raises:
        ConnectorError: A column has another type, or is absent and NOT NULL.
    """

    def __init__(self, schema: Node, columns: t.Schema, where: str) -> None:
        self._where = where
        self._names: dict[str, Node] = {}
        if not isinstance(schema, dict) or schema.get("type") != "record":
            raise self._unfit("the schema is no record", "a record", schema, "write records")
        self._names = dict(_named(schema, ""))
        fields = {f["name"]: f["type"] for f in schema["fields"]}
        self.nodes: list[Node | None] = []
        for column in columns.fields:
            node = fields.get(column.name)
            if node is None and not column.type.nullable:
                raise self._unfit(
                    f"there is no field for column '{column.name}'", f"a field '{column.name}'",
                    ", ".join(fields) or "no fields", "declare the column without NOT NULL, or leave it out",
                )  # fmt: skip
            if node is not None:
                self._check(column.type, node, column.name)
            self.nodes.append(node)
        self.plain = _without_times(schema)
        wanted = {c.name for c in columns.fields}
        if list(fields) == [c.name for c in columns.fields]:
            self.reader: Node | None = None
        else:
            # Definitions of types may lie in fields that are left out; each is put where it is first used.
            defined: set[str] = set()
            plain_names = dict(_named(self.plain, ""))
            kept = [
                {"name": f["name"], "type": _inlined(f["type"], plain_names, defined, _space(self.plain, ""))}
                for f in self.plain["fields"]
                if f["name"] in wanted
            ]
            self.reader = {**self.plain, "fields": kept}

    def resolved(self, node: Node) -> tuple[Node, str]:
        """A schema without NULL and without references, and the name of its type."""
        if isinstance(node, list):
            there = [branch for branch in node if branch != "null"]
            node = there[0] if len(there) == 1 else node
        while isinstance(node, str) and node in self._names:
            node = self._names[node]
        if isinstance(node, dict) and isinstance(node["type"], (dict, list)):
            return self.resolved(node["type"])
        kind = node["type"] if isinstance(node, dict) else node
        return node, kind if isinstance(kind, str) else "union"

    def _check(self, type_: t.LogicalType, node: Node, path: str) -> None:
        found, kind = self.resolved(node)
        logical = found.get("logicalType") if isinstance(found, dict) else None
        if not self._fits(type_, found, kind, logical, path):
            raise self._unfit(
                f"column '{path}' is of another type", str(type_), shorten(node, 120),
                "declare the column with the type that is there",
            )  # fmt: skip

    def _fits(self, type_: t.LogicalType, node: Node, kind: str, logical: str | None, path: str) -> bool:
        match type_:
            case t.BooleanType():
                return kind == "boolean"
            case t.TinyIntType() | t.SmallIntType() | t.IntType() | t.BigIntType():
                return kind in _INTEGERS and logical is None
            case t.FloatType():
                return kind in (*_INTEGERS, "float") and logical is None
            case t.DoubleType():
                return kind in (*_INTEGERS, "float", "double") and logical is None
            case t.CharType() | t.VarCharType():
                return kind in ("string", "enum")
            case t.BinaryType() | t.VarBinaryType():
                return kind in ("bytes", "fixed") and logical is None
            case t.DecimalType():
                return kind in ("bytes", "fixed") and logical == "decimal"
            case t.DateType():
                return kind == "int" and logical == "date"
            case t.TimeType():
                return logical in ("time-millis", "time-micros")
            case t.TimestampType():
                return "timestamp-" in (logical or "") and logical in UNITS
            case t.TimestampLtzType():
                return logical in ("timestamp-millis", "timestamp-micros")
            case t.ArrayType(element=element) if kind == "array":
                self._check(element, node["items"], f"{path}[]")
                return True
            case t.MapType(value=value) if kind == "map":
                self._check(value, node["values"], f"{path}[]")
                return True
            case t.MultisetType() if kind == "map":
                self._check(t.IntType(), node["values"], f"{path}[]")
                return True
            case t.RowType(fields=fields) if kind == "record":
                there = {f["name"]: f["type"] for f in node["fields"]}
                for field in fields:
                    if field.name in there:
                        self._check(field.type, there[field.name], f"{path}.{field.name}")
                    elif not field.type.nullable:
                        return False
                return True
        return False

    def _unfit(self, message: str, expected: str, got: Any, remedy: str) -> ConnectorError:
        return ConnectorError(
            f"the Avro schema does not fit the table: {message}",
            expected=expected, got=got if isinstance(got, str) else shorten(got, 120),
            where=self._where, remedy=remedy,
        )  # fmt: skip


def _space(node: Mapping[str, Any], outer: str) -> str:
    """The namespace within a named type."""
    name = node["name"]
    return name.rpartition(".")[0] if "." in name else node.get("namespace", outer)


def _named(node: Node, space: str) -> list[tuple[str, Node]]:
    """The named types of a schema, by their full and their short names."""
    out: list[tuple[str, Node]] = []
    match node:
        case list():
            for branch in node:
                out += _named(branch, space)
        case {"type": "record" | "enum" | "fixed" as kind, "name": name}:
            space, short = _space(node, space), name.rpartition(".")[2]
            out += [(short, node), (f"{space}.{short}", node)]
            for field in node["fields"] if kind == "record" else ():
                out += _named(field["type"], space)
        case {"type": "array", "items": inner} | {"type": "map", "values": inner}:
            out += _named(inner, space)
        case {"type": dict() | list() as inner}:
            out += _named(inner, space)
    return out


def _without_times(node: Node) -> Node:
    match node:
        case list():
            return [_without_times(branch) for branch in node]
        case {"type": "record", "fields": fields}:
            return {**node, "fields": [{**f, "type": _without_times(f["type"])} for f in fields]}
        case {"type": "array", "items": inner}:
            return {**node, "items": _without_times(inner)}
        case {"type": "map", "values": inner}:
            return {**node, "values": _without_times(inner)}
        case {"type": dict() | list() as inner}:
            return _without_times(inner)
        case {"logicalType": logical} if logical != "decimal":
            return {k: v for k, v in node.items() if k != "logicalType"}
    return node


def with_references(schema: Node, references: list[Node]) -> Node:
    """A schema with the definitions of those that it refers to, each where it is first used.

    ``references``: deepest first.
    """
    if not references:
        return schema
    names: dict[str, Node] = {}
    for reference in references:
        names |= _named(reference, "")
    return _inlined(schema, names, set(), "")


def _inlined(node: Node, names: Mapping[str, Node], defined: set[str], space: str) -> Node:
    """The schema with each named type defined where it is first used."""
    match node:
        case str() if node in names:
            found = names[node]
            full = f"{_space(found, space)}.{found['name'].rpartition('.')[2]}"
            return node if full in defined else _inlined(found, names, defined, space)
        case list():
            return [_inlined(branch, names, defined, space) for branch in node]
        case {"type": "record" | "enum" | "fixed" as kind, "name": name}:
            inner = _space(node, space)
            defined.add(f"{inner}.{name.rpartition('.')[2]}")
            if kind != "record":
                return node
            fields = [{**f, "type": _inlined(f["type"], names, defined, inner)} for f in node["fields"]]
            return {**node, "fields": fields}
        case {"type": "array", "items": items}:
            return {**node, "items": _inlined(items, names, defined, space)}
        case {"type": "map", "values": values}:
            return {**node, "values": _inlined(values, names, defined, space)}
    return node

"""CALL: runs a procedure of a connector on a stored table, at once and in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from sqlglot import exp

from penstock.connectors.registry import get_connector, known_connectors
from penstock.errors import SqlError, UnsupportedError, nearest
from penstock.secrets import resolved
from penstock.sql.catalog import resolved_table
from penstock.sql.errors import Source
from penstock.sql.syntax import TypedLiteral
from penstock.types.iso import datetime_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.connectors.procedures import Procedure
    from penstock.sql.catalog import Catalog
    from penstock.sql.statements import Call

Rows = tuple[tuple[str, ...], tuple[tuple[Any, ...], ...]]

#: The database in which procedures are: ``CALL [catalog.]system.name(…)``.
SYSTEM = "system"
_TABLE = "table"


def procedure_names() -> list[str]:
    """The procedures of all connectors."""
    return sorted({p.name for name in known_connectors() for p in get_connector(name).procedures})


def run_call(catalog: Catalog, statement: Call, zone: str) -> Rows:
    """The columns and the row that the procedure gives. ``zone``: the session's, for times.

    Raises:
        SqlError: There is no such procedure or table, or the arguments are wrong.
        UnsupportedError: The table's connector does not have the procedure.
    """
    source, where = Source(statement.text), str(statement.position)
    *path, name = statement.name.split(".")
    if len(path) > 2 or (path and path[-1].lower() != SYSTEM):
        raise SqlError(
            f"there are no procedures in '{'.'.join(path)}'",
            expected=f"CALL {SYSTEM}.{name}(…), or CALL catalog.{SYSTEM}.{name}(…)",
            got=repr(statement.name),
            where=where,
        )
    table_name = _value(source, _table_argument(statement), "text", _TABLE, zone)
    if table_name is None:
        raise SqlError(
            "argument 'table' is missing",
            expected=f"CALL {SYSTEM}.{name}('t', …), or table => 't'",
            got=f"{len(statement.arguments)} arguments",
            where=where,
        )
    if len(path) == 2 and table_name.count(".") < 2:
        table_name = f"{path[0]}.{table_name}"
    table = resolved_table(catalog.table(table_name, where))
    connector = get_connector(table.options["connector"])
    known = {p.name: p for p in connector.procedures}
    procedure = known.get(name.lower())
    if procedure is None:
        raise UnsupportedError(
            f"procedure '{name}' of connector '{connector.name}'",
            expected="one of " + ", ".join(known) if known else "a table of connector 'delta' or 'iceberg'",
            got=f"table '{table_name}'",
            where=where,
            remedy=nearest(name.lower(), known) or "SHOW PROCEDURES lists those of all connectors",
        )
    given = _placed(source, statement, procedure)
    values = {}
    for parameter in procedure.parameters:
        value = _value(source, given.get(parameter.name), parameter.kind, parameter.name, zone)
        if value is not None:
            values[parameter.name] = value
        elif parameter.required:
            raise SqlError(
                f"argument '{parameter.name}' is missing", expected=_signature(procedure), where=where
            )
    options = resolved(table.options, where=f"table '{table.name}'")
    return procedure.columns, (procedure.run(options, values),)


def _table_argument(statement: Call) -> exp.Expression | None:
    named = [value for name, value in statement.arguments if name is not None and name.lower() == _TABLE]
    first = [value for name, value in statement.arguments[:1] if name is None]
    return next(iter([*named, *first]), None)


def _placed(source: Source, statement: Call, procedure: Procedure) -> dict[str, exp.Expression]:
    """The arguments by name. Raises SqlError for one that there is not, or that is given twice."""
    names = [_TABLE, *(p.name for p in procedure.parameters)]
    found: dict[str, exp.Expression] = {}
    for at, (name, value) in enumerate(statement.arguments):
        chosen = _chosen(names, at, name)
        if chosen is None or chosen in found:
            raise source.error(
                f"argument '{chosen}' is given twice" if chosen else "an argument that the procedure does not have",
                value,
                expected=_signature(procedure),
                got=name or f"argument {at + 1}",
                remedy=nearest(name or "", names),
            )  # fmt: skip
        found[chosen] = value
    return found


def _chosen(names: Sequence[str], at: int, name: str | None) -> str | None:
    """The parameter that an argument belongs to; None: there is no such one."""
    if name is None:
        return names[at] if at < len(names) else None
    return name.lower() if name.lower() in names else None


def _signature(procedure: Procedure) -> str:
    words = [
        f"{p.name} => {p.kind}" if p.required else f"[{p.name} => {p.kind}]" for p in procedure.parameters
    ]
    return f"{procedure.name}({', '.join(['table => text', *words])})"


def _value(source: Source, node: exp.Expression | None, kind: str, name: str, zone: str) -> Any:
    """The constant of an argument; None if it is not given."""
    value: Any = None
    match node:
        case None:
            return None
        case exp.Literal() if kind == "text" and node.is_string:
            value = node.name
        case exp.Literal() if kind == "whole number" and not node.is_string and node.name.isdigit():
            value = int(node.name)
        case exp.Boolean() if kind == "boolean":
            value = bool(node.this)
        case TypedLiteral() if kind == "time" and node.args["kind"] == "TIMESTAMP":
            value = _milliseconds(node.args["text"], zone)
    if value is None:
        expected = "e.g. TIMESTAMP '2026-01-31 12:00:00'" if kind == "time" else f"a {kind}"
        raise source.error(f"argument '{name}' is no {kind}", node, expected=expected)
    return value


def _milliseconds(text: str, zone: str) -> int | None:
    try:
        time = datetime_of(text)
    except ValueError:
        return None
    return int(time.replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)

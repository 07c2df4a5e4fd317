"""Connectors by name, imported when first asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from penstock.connectors.base import Connector, TableInfo
from penstock.connectors.options import check_on_error
from penstock.errors import ConnectorError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Literal

    from penstock.types.logical import Schema

_BUILTIN: dict[str, str] = {
    "blackhole": "penstock.connectors.blackhole:BlackholeConnector",
    "collect": "penstock.connectors.collect:CollectConnector",
    "datagen": "penstock.connectors.datagen:DatagenConnector",
    "filesystem": "penstock.connectors.filesystem:FilesystemConnector",
    "hybrid": "penstock.connectors.hybrid:HybridConnector",
    "jdbc": "penstock.connectors.jdbc:JdbcConnector",
    "nats": "penstock.connectors.nats:NatsConnector",
    "nexmark": "penstock.connectors.nexmark:NexmarkConnector",
    "print": "penstock.connectors.print:PrintConnector",
}
_registered: dict[str, Connector] = {}


def known_connectors() -> list[str]:
    return sorted({*_BUILTIN, *_registered})


def register(connector: Connector) -> None:
    """Add a connector of one's own (in every process that plans or runs the job)."""
    _registered[connector.name] = connector


def get_connector(name: str) -> Connector:
    """The connector, or ``ConnectorError`` with the nearest known name.

    ``python:package.module:Class`` names one of the user's own, importable wherever the
    job is planned and run.
    """
    if name not in _registered and name.startswith("python:"):
        _registered[name] = _import_own(name)
    if name not in _registered:
        if name not in _BUILTIN:
            raise ConnectorError(
                f"unknown connector '{name}'",
                expected="one of " + ", ".join(known_connectors()),
                got=repr(name),
                remedy=nearest(name, known_connectors()) or "use one of the known connectors",
            )
        module, attribute = _BUILTIN[name].split(":")
        _registered[name] = getattr(importlib.import_module(module), attribute)()
    return _registered[name]


def _import_own(name: str) -> Connector:
    expected = "python:package.module:Class, a penstock.connectors.base.Connector"
    module, _, attribute = name.removeprefix("python:").partition(":")
    try:
        made = getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError, ValueError) as err:
        raise ConnectorError(
            f"connector '{name}' cannot be imported",
            expected=expected,
            got=f"{type(err).__name__}: {err}",
            remedy="check the name, and that its module is installed or shipped with the job",
        ) from err
    if not isinstance(made, Connector):
        raise ConnectorError(f"'{name}' is no connector", expected=expected, got=type(made).__name__)
    return made


def connector_of(options: Mapping[str, str], *, where: str | None = None) -> Connector:
    """The connector that a table's options name."""
    if "connector" not in options:
        raise ConnectorError(
            "the table names no connector",
            expected="'connector' = one of " + ", ".join(known_connectors()),
            got="options " + (", ".join(sorted(options)) or "(none)"),
            where=where,
            remedy="add 'connector' = '…' to the table's WITH clause",
        )
    try:
        return get_connector(options["connector"])
    except ConnectorError as err:
        err.where = err.where or where
        raise


def table_info(schema: Schema, options: Mapping[str, str]) -> TableInfo:
    return TableInfo(schema, options, options.get("format"))


def resolved_options(options: Mapping[str, str], *, where: str) -> dict[str, str]:
    """The table's options with relative paths made absolute."""
    return dict(connector_of(options, where=where).resolved(options, where=where))


def validate_table(
    schema: Schema, options: Mapping[str, str], *, role: Literal["source", "sink"], where: str | None = None
) -> Connector:
    """The connector of a table whose options and schema are in order, or the error."""
    connector = connector_of(options, where=where)
    try:
        check_on_error(options, f"connector '{connector.name}'")
        connector.validate(table_info(schema, options), role=role)
    except ConnectorError as err:
        if where:
            err.where = f"{where}: {err.where}" if err.where else where
        raise
    return connector

"""Connectors by name: Penstock's own, those of installed packages, and import paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.connectors.base import RUNS, Connector, TableInfo
from penstock.errors import ConnectorError, nearest
from penstock.options import check_on_error
from penstock.plugins import IMPORT_PATH, Register, instance_of
from penstock.secrets import check as check_secrets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Literal

    from penstock.types.logical import Schema

CONNECTORS: Register[Connector] = Register(
    "connector",
    "penstock.connectors",
    builtin={
        "blackhole": "penstock.connectors.blackhole:BlackholeConnector",
        "collect": "penstock.connectors.collect:CollectConnector",
        "delta": "penstock.connectors.delta:DeltaConnector",
        "datagen": "penstock.connectors.datagen:DatagenConnector",
        "filesystem": "penstock.connectors.filesystem:FilesystemConnector",
        "http": "penstock.connectors.http:HttpConnector",
        "http-sink": "penstock.connectors.http:HttpSinkConnector",
        "rest-lookup": "penstock.connectors.http:RestLookupConnector",
        "hybrid": "penstock.connectors.hybrid:HybridConnector",
        "iceberg": "penstock.connectors.iceberg:IcebergConnector",
        "jdbc": "penstock.connectors.jdbc:JdbcConnector",
        "kafka": "penstock.connectors.kafka:KafkaConnector",
        "elasticsearch-7": "penstock.connectors.search:Elasticsearch7",
        "elasticsearch-8": "penstock.connectors.search:Elasticsearch8",
        "opensearch": "penstock.connectors.search:OpenSearch",
        "faker": "penstock.connectors.faker:FakerConnector",
        "nats-core": "penstock.connectors.nats_core:NatsCoreConnector",
        "mqtt": "penstock.connectors.mqtt:MqttConnector",
        "rabbitmq": "penstock.connectors.rabbitmq:RabbitMqConnector",
        "redis": "penstock.connectors.redis:RedisConnector",
        "socket": "penstock.connectors.socket:SocketConnector",
        "nats": "penstock.connectors.nats:NatsConnector",
        "mysql-cdc": "penstock.connectors.mysql_cdc:MySqlCdcConnector",
        "nexmark": "penstock.connectors.nexmark:NexmarkConnector",
        "postgres-cdc": "penstock.connectors.postgres_cdc:PostgresCdcConnector",
        "print": "penstock.connectors.print:PrintConnector",
        "upsert-kafka": "penstock.connectors.kafka:UpsertKafkaConnector",
    },
    make=instance_of(Connector),
    expected="a penstock.connectors.api.Connector",
    error=ConnectorError,
)


def known_connectors() -> list[str]:
    """The names of all connectors, sorted."""
    return CONNECTORS.names()


def register(connector: Connector) -> None:
    """Add a connector of this process (in every process that plans or runs the job)."""
    CONNECTORS.register(connector.name, connector)


def get_connector(name: str) -> Connector:
    """The connector, or ``ConnectorError`` with the nearest known name.

    ``python:package.module:Class`` names one of the user's own, importable wherever the
    job is planned and run.
    """
    found = CONNECTORS.find(name)
    if found.runs not in RUNS:
        raise ConnectorError(
            f"connector '{name}' declares a way to run that there is not",
            expected="runs = " + " or ".join(repr(way) for way in RUNS),
            got=f"runs = {found.runs!r}",
            remedy=nearest(str(found.runs), RUNS),
        )
    return hosted(found, name) if found.runs == "helper" else found


def hosted(connector: Connector, name: str | None = None) -> Connector:
    """The connector with its readers, writers, enumerators and lookups in helper processes. ``name``: that of
    the register; None: the connector's class, which must be importable and made without arguments. Raises
    ConnectorError when a helper process could not find it."""
    from penstock.connectors.helper.hosted import Hosted

    if name is None or name in CONNECTORS.in_this_process():
        # This object exists only in this process; the helper process makes another one of the same class.
        kind = type(connector)
        name = f"{IMPORT_PATH}{kind.__module__}:{kind.__qualname__}"
        if type(CONNECTORS.find(name)) is not kind:
            raise ConnectorError(
                f"connector '{connector.name}' cannot run in a helper process",
                expected="a class at the top of a module that every process can import",
                got=f"{kind.__module__}:{kind.__qualname__}",
            )
    return Hosted(connector, name)


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


def table_info(schema: Schema, options: Mapping[str, str], primary_key: Sequence[str] = ()) -> TableInfo:
    """A table in the form that connectors take; its format is the option ``format``."""
    return TableInfo(schema, options, options.get("format"), tuple(primary_key))


def resolved_options(options: Mapping[str, str], *, where: str) -> dict[str, str]:
    """The table's options with relative paths made absolute."""
    return dict(connector_of(options, where=where).resolved(options, where=where))


def validate_table(
    schema: Schema,
    options: Mapping[str, str],
    *,
    role: Literal["source", "sink"],
    where: str | None = None,
    primary_key: Sequence[str] = (),
) -> Connector:
    """The connector of a table whose options and schema are correct; otherwise its error."""
    connector = connector_of(options, where=where)
    try:
        check_on_error(options, f"connector '{connector.name}'")
        check_secrets(options, where=f"connector '{connector.name}'")
        connector.validate(table_info(schema, options, primary_key), role=role)
    except ConnectorError as err:
        if where:
            err.where = f"{where}: {err.where}" if err.where else where
        raise
    return connector

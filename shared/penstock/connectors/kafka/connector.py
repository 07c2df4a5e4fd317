"""Options and checks of ``kafka`` and ``upsert-kafka``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from penstock.connectors.kafka.client import check_properties, client_properties
from penstock.connectors.kafka.limits import check_at_brokers
from penstock.connectors.kafka.positions import check_modes
from penstock.connectors.kafka.rows import Part, key_columns, parts_of
from penstock.connectors.kafka.settings import (
    KAFKA_OPTIONS,
    METADATA,
    REFUSED,
    UPSERT_OPTIONS,
    VALUE,
    WRITABLE_METADATA,
)
from penstock.connectors.simple import DeclaredConnector
from penstock.errors import ConnectorError
from penstock.formats import get_format

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.connectors.base import SinkWriter, SourceEnumerator, SourceMode, SourceReader, TableInfo


class KafkaConnector(DeclaredConnector):
    """The connector ``kafka``: source and sink of topics."""

    name = "kafka"
    takes_format = True
    #: Blocking calls of librdkafka run in threads of their own and release the interpreter's lock.
    runs = "native"
    location: tuple[str, ...] | None = ("topic", "topic-pattern")
    nested_projection = True
    metadata = METADATA
    writable_metadata = WRITABLE_METADATA

    def __init__(self) -> None:
        super().__init__(KAFKA_OPTIONS)

    def validate(self, table: TableInfo, *, role: Literal["source", "sink"]) -> None:
        owner = self.option_set.owner
        for option, (why, remedy) in REFUSED.items():
            if option in table.options:
                raise ConnectorError(
                    f"option '{option}' is not supported: {why}",
                    expected="no such option",
                    got=f"'{option}' = '{table.options[option]}'",
                    where=owner,
                    remedy=remedy,
                )
        super().validate(table, role=role)
        read = self.option_set.read(table.options)
        self._check_topic(read, role)
        check_modes(read, owner)
        self._check_keys(table, read)
        if read["key.fields-prefix"] and read["value.fields-include"] == "ALL":
            raise ConnectorError(
                "'key.fields-prefix' needs 'value.fields-include' = 'EXCEPT_KEY'",
                expected="a prefix only where values do not hold the key's columns",
                got="'value.fields-include' = 'ALL'",
                where=owner,
            )
        names = table.schema.names
        key, value = self._parts(table, [names.index(name) for name in table.primary_key])
        value.check(written=role == "sink")
        if key is not None and key.columns:
            key.check(written=role == "sink")
        check_properties(table.options, owner)
        transactional = role == "sink" and self.sink_guarantee(table) == "exactly-once"
        topics = (read["topic"] or "").split(";")
        properties = client_properties(table.options, owner)
        check_at_brokers(properties, topics, role, owner, transactional=transactional)

    def _check_writing(self, table: TableInfo) -> None:
        """``validate`` checks key and value by themselves, with the options that follow from the topic."""

    def _check_keys(self, table: TableInfo, read: dict[str, Any]) -> None:
        owner = self.option_set.owner
        keys = key_columns(table, read["key.fields"], owner)
        if bool(keys) != bool(read["key.format"]):
            raise ConnectorError(
                "'key.format' and 'key.fields' belong together",
                expected="both or neither",
                got=f"'key.format' = {read['key.format']}, 'key.fields' = {read['key.fields']}",
                where=owner,
                remedy="name the key's columns" if read["key.format"] else "add 'key.format' = 'json'",
            )
        if read["value.fields-include"] == "EXCEPT_KEY" and not keys:
            raise ConnectorError(
                "'value.fields-include' = 'EXCEPT_KEY' needs a key",
                expected="'key.format' and 'key.fields'",
                got="neither",
                where=owner,
                remedy="name the key's columns, or remove 'value.fields-include'",
            )

    def _check_topic(self, read: dict[str, Any], role: str) -> None:
        owner = self.option_set.owner
        pattern = read.get("topic-pattern")
        if bool(read["topic"]) == bool(pattern):
            raise ConnectorError(
                "the table names no topic" if not pattern else "the table names topics twice",
                expected="'topic' = '…'" if role == "sink" else "'topic' = '…' or 'topic-pattern' = '…'",
                got="neither" if not pattern else "both",
                where=owner,
                remedy="add 'topic' to the table's WITH clause" if not pattern else "remove one of them",
            )
        if role == "sink" and (pattern or ";" in read["topic"]):
            raise ConnectorError(
                "a sink writes to one topic",
                expected="'topic' = 'one name'",
                got=f"'topic-pattern' = '{pattern}'" if pattern else f"'topic' = '{read['topic']}'",
                where=owner,
                remedy="make a table a topic, and an INSERT for each",
            )
        if pattern:
            try:
                re.compile(pattern)
            except re.error as err:
                raise ConnectorError(
                    "option 'topic-pattern' is no regular expression",
                    expected="a regular expression",
                    got=f"{pattern!r}: {err}",
                    where=owner,
                ) from None

    def _parts(self, table: TableInfo, keys: Sequence[int]) -> tuple[Part | None, Part]:
        """``keys``: the primary key's columns, for a table that is read or written by key."""
        owner, read = self.option_set.owner, self.option_set.read(table.options)
        named = key_columns(table, read.get("key.fields"), owner)
        return parts_of(table, read, named or (keys if read["key.format"] else ()), owner)

    def _format_prefixes(self, table: TableInfo) -> tuple[str, ...]:
        names = {table.options.get("format"), table.options.get("value.format")}
        found = [f"{name}." for name in names if name] + [f"value.{name}." for name in names if name]
        if key := table.options.get("key.format"):
            found.append(f"key.{key}.")
        return tuple(found)

    def unread_fields_of(self, table: TableInfo) -> bool:
        return not self.nested_projection_of(table)

    def metadata_of(self, table: TableInfo) -> Mapping[str, Any]:
        """The metadata keys of messages, and with the prefix ``value.`` those of the values' format."""
        name = table.options.get("value.format") or table.options.get("format")
        told = {} if name is None else get_format(name, where=self.option_set.owner).metadata
        return {**self.metadata, **{VALUE + key: type_ for key, type_ in told.items()}}

    def is_bounded(self, table: TableInfo) -> bool:
        return bool(self.option_set.read_one(table.options, "scan.bounded.mode") != "unbounded")

    def sink_guarantee(self, table: TableInfo) -> str:
        guarantee = str(self.option_set.read_one(table.options, "sink.delivery-guarantee"))
        return "at-most-once" if guarantee == "none" else guarantee

    def enumerator(self, table: TableInfo) -> SourceEnumerator:
        from penstock.connectors.kafka.discovery import KafkaEnumerator

        return KafkaEnumerator(table, self.option_set)

    def reader(self, table: TableInfo) -> SourceReader:
        from penstock.connectors.kafka.source import KafkaReader

        upserts = self.source_mode(table) == "upsert"
        return KafkaReader(
            table, lambda keys: self._parts(table, keys), self.option_set.owner, upserts=upserts
        )

    def writer(self, table: TableInfo) -> SinkWriter:
        from penstock.connectors.kafka.encoding import MessageEncoder
        from penstock.connectors.kafka.exactly_once import ExactlyOnceWriter
        from penstock.connectors.kafka.sink import KafkaWriter

        def encoder() -> MessageEncoder:
            return MessageEncoder(table, self.option_set, lambda keys: self._parts(table, keys))

        def exactly_once() -> SinkWriter:
            return ExactlyOnceWriter(table, self.option_set, encoder())

        if self.sink_guarantee(table) == "exactly-once":
            return exactly_once()
        return KafkaWriter(table, self.option_set, encoder(), exactly_once)


class UpsertKafkaConnector(KafkaConnector):
    """The connector ``upsert-kafka``: the newest row of each key. A message without a value deletes the key's
    row.

    The key is the table's primary key. The planner requires one, because source and sink have only the mode
    ``upsert``.
    """

    name = "upsert-kafka"

    def __init__(self) -> None:
        DeclaredConnector.__init__(self, UPSERT_OPTIONS)

    def source_mode(self, table: TableInfo) -> SourceMode:
        return "upsert"

    def sink_modes(self, table: TableInfo) -> Sequence[str]:
        return ("upsert",)

    def _check_keys(self, table: TableInfo, read: dict[str, Any]) -> None:
        if self._changelog(table):
            raise ConnectorError(
                "a format of changes in a table by key",
                expected="'value.format' = a format of rows: json, csv, raw, avro",
                got=f"'{table.options.get('value.format') or table.options.get('format')}'",
                where=self.option_set.owner,
                remedy="read it with 'connector' = 'kafka'",
            )
        if not read["key.format"]:
            raise ConnectorError(
                "option 'key.format' is missing",
                expected="'key.format' = 'json'",
                got="no such option",
                where=self.option_set.owner,
                remedy="add 'key.format' to the table's WITH clause",
            )

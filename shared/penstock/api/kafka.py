"""Kafka topics as sources and sinks, under Flink's names."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from penstock.api.connectors import PreparedSink, Sink, Source, as_schema
from penstock.api.row_formats import RowFieldExtractorSchema, RowSchema, as_row_schema, field_names
from penstock.api.typeinfo import Types
from penstock.errors import SpecError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.api.datastream import DataStream


class DeliveryGuarantee(Enum):
    """The guarantee that a sink gives."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    NONE = "none"


class KafkaOffsetResetStrategy(Enum):
    """Where reading begins in a partition without a committed offset. NONE: the job fails."""

    LATEST = "latest"
    EARLIEST = "earliest"
    NONE = "none"


@dataclass(frozen=True)
class KafkaTopicPartition:
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True)
class KafkaOffsetsInitializer:
    """Where reading begins or ends. ``mode``: a value of ``scan.startup.mode``; ``value``: the argument that
    the mode needs."""

    mode: str
    value: str | None = None
    reset: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """The committed offsets of the group. In a partition without one, reading begins where
        ``offset_reset_strategy`` says."""
        return KafkaOffsetsInitializer("group-offsets", reset=offset_reset_strategy)

    @staticmethod
    def timestamp(timestamp: int) -> KafkaOffsetsInitializer:
        """The first message whose timestamp is ``timestamp``, ms since the epoch, or later."""
        return KafkaOffsetsInitializer("timestamp", str(timestamp))

    @staticmethod
    def earliest() -> KafkaOffsetsInitializer:
        """The first message that the partition still has."""
        return KafkaOffsetsInitializer("earliest-offset")

    @staticmethod
    def latest() -> KafkaOffsetsInitializer:
        """The position after the last message."""
        return KafkaOffsetsInitializer("latest-offset")

    @staticmethod
    def offsets(
        offsets: Mapping[KafkaTopicPartition, int],
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> KafkaOffsetsInitializer:
        """An offset for every partition of one topic.

        Args:
            offsets: The offsets.
            offset_reset_strategy: Ignored: a partition without an offset is refused when the job starts.

        Raises:
            UnsupportedError: The offsets are those of several topics.
        """
        topics = sorted({place.topic for place in offsets})
        if len(topics) != 1:
            raise UnsupportedError(
                "offsets of several topics",
                expected="the partitions of one topic",
                got=", ".join(topics) or "no offsets",
                remedy="make a source for each topic, and union them",
            )
        parts = sorted((place.partition, offset) for place, offset in offsets.items())
        return KafkaOffsetsInitializer(
            "specific-offsets", ";".join(f"partition:{p},offset:{offset}" for p, offset in parts)
        )

    def options(self, prefix: str) -> dict[str, str]:
        """The options of a table that say the same. ``prefix``: ``scan.startup`` or ``scan.bounded``."""
        found = {f"{prefix}.mode": self.mode}
        if self.value is not None:
            name = "timestamp-millis" if self.mode == "timestamp" else self.mode
            found[f"{prefix}.{name}"] = self.value
        if self.reset is not KafkaOffsetResetStrategy.NONE:
            found["properties.auto.offset.reset"] = self.reset.value
        return found


class KafkaSourceBuilder:
    """Collects the settings of a source."""

    def __init__(self) -> None:
        # As in Flink, a source without a startup mode reads from the earliest offset.
        self._options: dict[str, str] = KafkaOffsetsInitializer.earliest().options("scan.startup")
        self._values: RowSchema | None = None

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSourceBuilder:
        """The brokers, ``host:port,…``."""
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_group_id(self, group_id: str) -> KafkaSourceBuilder:
        """The consumer group, to which offsets are committed."""
        return self.set_property("group.id", group_id)

    def set_topics(self, *topics: str) -> KafkaSourceBuilder:
        """The topics to read."""
        self._options["topic"] = ";".join(topics)
        return self

    def set_topic_pattern(self, topic_pattern: str) -> KafkaSourceBuilder:
        """Read all topics whose whole names match this regular expression."""
        self._options["topic-pattern"] = topic_pattern
        return self

    def set_partitions(self, partitions: set[KafkaTopicPartition]) -> KafkaSourceBuilder:
        """Flink's way to read only some partitions. Always raises UnsupportedError: a source reads all
        partitions of its topics."""
        raise UnsupportedError(
            "a source of some partitions",
            expected="set_topics(…) or set_topic_pattern(…)",
            got=", ".join(f"{p.topic}-{p.partition}" for p in partitions),
            remedy="read the topic, and filter by its metadata 'partition' in SQL",
        )

    def set_starting_offsets(
        self, starting_offsets_initializer: KafkaOffsetsInitializer
    ) -> KafkaSourceBuilder:
        """Where reading begins if the job starts without a checkpoint."""
        self._options = {k: v for k, v in self._options.items() if not k.startswith("scan.startup.")}
        self._options |= starting_offsets_initializer.options("scan.startup")
        return self

    def set_unbounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Where reading ends, as ``set_bounded``. Whether the job runs in streaming or batch is decided by
        ``execution.runtime-mode`` alone."""
        return self.set_bounded(stopping_offsets_initializer)

    def set_bounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Where reading ends."""
        self._options |= stopping_offsets_initializer.options("scan.bounded")
        return self

    def set_value_only_deserializer(self, deserialization_schema: Any) -> KafkaSourceBuilder:
        """How values become records: ``SimpleStringSchema``, ``ByteArraySchema``, a ``…RowDeserializationSchema``."""
        self._values = as_row_schema(deserialization_schema, "values")
        return self

    def set_client_id_prefix(self, prefix: str) -> KafkaSourceBuilder:
        """The client's name at the brokers."""
        return self.set_property("client.id", prefix)

    def set_property(self, key: str, value: str) -> KafkaSourceBuilder:
        """A property of the client, as ``properties.…`` of a table."""
        if key == "partition.discovery.interval.ms":
            self._options["scan.topic-partition-discovery.interval"] = f"{max(0, int(value))} ms"
        else:
            self._options[f"properties.{key}"] = str(value)
        return self

    def set_properties(self, props: Mapping[str, str]) -> KafkaSourceBuilder:
        """Several properties."""
        for key, value in props.items():
            self.set_property(key, value)
        return self

    def build(self) -> Source:
        """The source. SpecError without a deserializer."""
        if self._values is None:
            raise SpecError(
                "a Kafka source without a deserializer",
                expected="set_value_only_deserializer(…)",
                got="none",
            )
        options = {**self._options, "format": self._values.format, **self._values.options}
        return Source.connector("kafka", self._values.type_info, options)


class KafkaSource:
    """``KafkaSource.builder().set_bootstrap_servers(…).set_topics(…).set_value_only_deserializer(…).build()``."""

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        """A builder; ``build()`` makes the ``Source``."""
        return KafkaSourceBuilder()


@dataclass(frozen=True)
class KafkaRecordSerializationSchema:
    """A topic, and how records become messages of it. Made by ``builder()``."""

    topic: str
    options: dict[str, str] = field(default_factory=dict)
    schema: Any = None
    #: Numbers of the row's fields that become the key and the value, where these are written without a
    #: change.
    fields: tuple[int, ...] = ()

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        """A builder; ``build()`` makes the schema."""
        return KafkaRecordSerializationSchemaBuilder()


class KafkaRecordSerializationSchemaBuilder:
    """Collects the settings of a ``KafkaRecordSerializationSchema``."""

    def __init__(self) -> None:
        self._topic: str | None = None
        self._key: Any = None
        self._value: Any = None

    def set_topic(self, topic: str) -> KafkaRecordSerializationSchemaBuilder:
        """The topic to write."""
        self._topic = topic
        return self

    def set_topic_selector(self, topic_selector: Any) -> KafkaRecordSerializationSchemaBuilder:
        """Flink's way to choose a topic for each record. Always raises UnsupportedError: a sink writes to one
        topic."""
        raise UnsupportedError(
            "a topic for each record",
            expected="set_topic('…')",
            got=repr(topic_selector),
            remedy="filter the stream once for each topic, and add a sink to each",
        )

    def set_key_serialization_schema(
        self, key_serialization_schema: Any
    ) -> KafkaRecordSerializationSchemaBuilder:
        """How records become keys. If it is not called, messages have no keys."""
        self._key = key_serialization_schema
        return self

    def set_value_serialization_schema(
        self, value_serialization_schema: Any
    ) -> KafkaRecordSerializationSchemaBuilder:
        """How records become values."""
        self._value = value_serialization_schema
        return self

    def build(self) -> KafkaRecordSerializationSchema:
        """The schema. SpecError without a topic or a value's schema; UnsupportedError for a key of another kind."""
        if self._topic is None or self._value is None:
            raise SpecError(
                "messages without a topic or a value",
                expected="set_topic('…') and set_value_serialization_schema(…)",
                got="no topic" if self._topic is None else "no value",
            )
        if isinstance(self._value, RowFieldExtractorSchema):
            return self._of_fields(self._topic, self._value)
        value = as_row_schema(self._value, "values")
        options = {"value.format": value.format, **{f"value.{k}": v for k, v in value.options.items()}}
        if self._key is not None:
            options |= self._whole_row_as_key(as_row_schema(self._key, "keys"))
        # In Avro the encoding of a column depends on whether it may be NULL, so its type says it; other
        # formats take the types of the stream.
        return KafkaRecordSerializationSchema(
            self._topic, options, value.type_info if value.format == "avro" else None
        )

    @staticmethod
    def _whole_row_as_key(key: RowSchema) -> dict[str, str]:
        if key.type_info is None or key.format == "raw":
            raise UnsupportedError(
                "a key of the whole record without the names of its fields",
                expected="a …RowSerializationSchema with its type, or RowFieldExtractorSchema for key and value",
                got=f"format '{key.format}'",
            )
        options = {"key.format": key.format, "key.fields": ";".join(field_names(key))}
        return options | {f"key.{k}": v for k, v in key.options.items()}

    def _of_fields(self, topic: str, value: RowFieldExtractorSchema) -> KafkaRecordSerializationSchema:
        if self._key is None:
            return KafkaRecordSerializationSchema(topic, {"format": "raw"}, fields=(value.field_index,))
        if not isinstance(self._key, RowFieldExtractorSchema):
            raise UnsupportedError(
                "a key in another form than its value",
                expected="RowFieldExtractorSchema for both",
                got=repr(self._key),
            )
        options = {
            "key.format": "raw", "key.fields": "k", "value.format": "raw", "value.fields-include": "EXCEPT_KEY",
        }  # fmt: skip
        return KafkaRecordSerializationSchema(
            topic, options, fields=(self._key.field_index, value.field_index)
        )


class KafkaSinkBuilder:
    """Collects the settings of a sink."""

    def __init__(self) -> None:
        self._options: dict[str, str] = {}
        self._records: KafkaRecordSerializationSchema | None = None

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSinkBuilder:
        """The brokers, ``host:port,…``."""
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> KafkaSinkBuilder:
        """The guarantee that the sink gives; at-least-once if this is not called (in Flink: none)."""
        self._options["sink.delivery-guarantee"] = delivery_guarantee.value
        return self

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> KafkaSinkBuilder:
        """The prefix of the transactional ids by which the brokers know an exactly-once sink."""
        self._options["sink.transactional-id-prefix"] = transactional_id_prefix
        return self

    def set_record_serializer(self, record_serializer: KafkaRecordSerializationSchema) -> KafkaSinkBuilder:
        """The topic, and how records become messages."""
        self._records = record_serializer
        return self

    def set_property(self, key: str, value: str) -> KafkaSinkBuilder:
        """A property of the client, as ``properties.…`` of a table."""
        self._options[f"properties.{key}"] = str(value)
        return self

    def build(self) -> Sink:
        """The sink. SpecError without a record serializer."""
        records = self._records
        if not isinstance(records, KafkaRecordSerializationSchema):
            raise SpecError(
                "a Kafka sink without a record serializer",
                expected="set_record_serializer(KafkaRecordSerializationSchema.builder()….build())",
                got=repr(records),
            )
        options = {"topic": records.topic, **records.options, **self._options}
        made = Sink.connector("kafka", options, schema=records.schema)
        if not records.fields:
            return made
        return PreparedSink(
            made.name, as_schema(_fields_type(records.fields)), made.options, prepare=_taking(records.fields)
        )


class KafkaSink:
    """``KafkaSink.builder().set_bootstrap_servers(…).set_record_serializer(…).build()``."""

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        """A builder; ``build()`` makes the ``Sink``."""
        return KafkaSinkBuilder()


def _fields_type(fields: tuple[int, ...]) -> Any:
    names = ["k", "v"][-len(fields) :]
    return Types.ROW_NAMED(names, [Types.BYTES()] * len(fields))


def _taking(fields: tuple[int, ...]) -> Callable[[DataStream], DataStream]:
    def prepare(stream: DataStream) -> DataStream:
        taken = stream.map(TakeFields(fields), _fields_type(fields))
        return taken.name("Take fields")

    return prepare


class TakeFields:
    """A map function that gives some fields of a row. ``fields``: their indices."""

    def __init__(self, fields: tuple[int, ...]) -> None:
        self._fields = fields

    def map(self, value: Any) -> Any:
        from penstock.api import Row

        return Row(*[value[i] for i in self._fields])

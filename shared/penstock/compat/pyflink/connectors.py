"""The names of ``pyflink.datastream.connectors`` and its modules."""

from __future__ import annotations

from penstock.compat.pyflink.absent import ABSENT
from penstock.compat.pyflink.names import finder

_WHERE = {
    "penstock.api": ("Sink", "Source"),
    "penstock.api.file_system": (
        "FileSink",
        "FileSource",
        "OutputFileConfig",
        "RollingPolicy",
        "StreamFormat",
    ),
    "penstock.api.kafka": (
        "DeliveryGuarantee",
        "KafkaOffsetResetStrategy",
        "KafkaOffsetsInitializer",
        "KafkaRecordSerializationSchema",
        "KafkaRecordSerializationSchemaBuilder",
        "KafkaSink",
        "KafkaSinkBuilder",
        "KafkaSource",
        "KafkaSourceBuilder",
        "KafkaTopicPartition",
    ),
}
__getattr__, __all__ = finder(__name__, _WHERE, ABSENT["connectors"])


def __dir__() -> list[str]:
    return __all__

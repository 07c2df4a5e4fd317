"""The names of ``pyflink.datastream.connectors`` and its modules."""

from __future__ import annotations

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
}
_NOT_THERE = "Penstock has no such connector"
_EXTEND = "use one of docs/connectors.md, or write one: docs/extending"
_ABSENT = dict.fromkeys(("CassandraSink", "Elasticsearch6SinkBuilder", "Elasticsearch7SinkBuilder", "ElasticsearchEmitter", "FlinkKinesisConsumer", "FlushBackoffType", "KinesisFirehoseSink", "KinesisStreamsSink", "PulsarSink", "PulsarSource", "RMQConnectionConfig", "RMQSink", "RMQSource", "StartCursor", "StopCursor", "TopicRoutingMode"), (_NOT_THERE, _EXTEND))  # fmt: skip

__getattr__, __all__ = finder(__name__, _WHERE, _ABSENT)


def __dir__() -> list[str]:
    return __all__

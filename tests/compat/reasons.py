"""Why names of PyFlink are not there, or take other parameters: by pattern, the first that fits counts."""

_NO_CONNECTOR = "Penstock has no such connector; [write one](extending/README.md)"
_BY_OPTIONS = (
    "`Source.connector(…)` and `Sink.connector(…)` with the connector's own options; not under this name yet"
)
_JAVA = "it wraps an object of Java, and there is no Java here"
_NO_JVM_SETTING = "a setting of Java's serializers, which are not there"
_TYPES = "types are made by `Types`; these are PyFlink's wrappers of Java's"
_LATER = "not there yet"
_FORMAT = "the option `format` of a source or sink has the same formats"

REASONS: list[tuple[str, str]] = [
    ("common.time.Time.milliseconds", "`Time` is `Duration` here"),
    *((f"datastream.connectors.{name}.*", _NO_CONNECTOR)
      for name in ("cassandra", "dynamic_kafka", "elasticsearch", "kinesis", "pulsar", "rabbitmq")),
    ("common.time.Time.milliseconds", "`Time` is `Duration` here"),
    *((f"datastream.connectors.{name}.*", _BY_OPTIONS) for name in ("jdbc", "kafka", "number_seq")),
    ("datastream.connectors.hybrid_source.*", "`penstock.api.HybridSource`: two parts, with a switch by a column"),
    ("datastream.connectors.file_system.*", _FORMAT),
    ("datastream.connectors.base.*", _JAVA),
    ("datastream.formats.*", _FORMAT),
    ("common.execution_config.*", _NO_JVM_SETTING),
    ("common.typeinfo.*", _TYPES),
    ("common.restart_strategy.*", "set `restart-strategy.type` and its keys"),
    ("common.serialization.*", _FORMAT),
    ("common.io.*", _JAVA),
    ("common.completable_future.*", _JAVA),
    ("common.input_dependency_constraint.*", "a setting that Flink itself no longer reads"),
    ("common.types.RowKind.to_j_row_kind", _JAVA),
    ("common.watermark_strategy.*", _LATER),
    ("datastream.functions.AsyncFunctionDescriptor", "a part of PyFlink's own operator"),
    ("datastream.functions.S*Function", _JAVA),
    ("datastream.functions.*", "PyFlink's own adapter between its layers"),
    ("datastream.checkpoint_storage.*", "set `execution.checkpointing.dir`"),
    ("datastream.state_backend.*", "set `state.backend.type`"),
    ("datastream.state.*", "an interface that PyFlink's own states implement"),
    ("datastream.data_stream.*.set_uid_hash", "`uid` names the state of a step"),
    ("datastream.data_stream.*.set_max_parallelism", "`env.set_max_parallelism`: one number for a job"),
    ("datastream.data_stream.*.set_buffer_timeout", "`env.set_buffer_timeout`: one time for a job"),
    ("datastream.data_stream.*.key_by", "the selector may be several names of columns; by position and by name as in PyFlink"),
    ("datastream.data_stream.*.aggregate", "built-in aggregates may be several; by position and by name as in PyFlink"),
    ("datastream.data_stream.*", _LATER),
    ("datastream.window.*", "a part of PyFlink's own window operator"),
    ("datastream.stream_execution_environment.*", _LATER),
]  # fmt: skip

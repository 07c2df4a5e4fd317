"""The names of ``pyflink.common`` and its modules."""

from __future__ import annotations

from penstock.compat.pyflink.names import finder

_WHERE = {
    "penstock.api": ("JobClient", "JobExecutionResult", "Types"),
    "penstock.api.common": ("Duration", "Instant", "Row", "Time", "TimestampAssigner", "WatermarkStrategy"),
    "penstock.api.configuration": ("Configuration",),
    "penstock.api.execution_config": ("ExecutionConfig",),
    "penstock.api.serialization": ("ByteArraySchema", "Encoder", "SimpleStringSchema"),
    "penstock.types.batch": ("RowKind",),
    "penstock.types.logical": ("TypeInformation=LogicalType",),
}
_JAVA = "it wraps an object of Java, and there is no Java here"
_ABSENT = {
    "AssignerWithPeriodicWatermarksWrapper": (_JAVA, "use WatermarkStrategy"),
    "TypeSerializer": ("values are written by their declared type", "declare the type, Types.…()"),
}

__getattr__, __all__ = finder(__name__, _WHERE, _ABSENT)


def __dir__() -> list[str]:
    return __all__

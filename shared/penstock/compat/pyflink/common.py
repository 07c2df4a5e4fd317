"""The names of ``pyflink.common`` and its modules."""

from __future__ import annotations

from penstock.compat.pyflink.absent import ABSENT
from penstock.compat.pyflink.names import finder

_WHERE = {
    "penstock.api": ("JobClient", "JobExecutionResult", "Types"),
    "penstock.api.job_status": ("JobID", "JobStatus"),
    "penstock.api.common": ("Duration", "Instant", "Row", "Time", "TimestampAssigner", "WatermarkStrategy"),
    "penstock.api.configuration": ("Configuration",),
    "penstock.api.config_options": ("ConfigOption", "ConfigOptions"),
    "penstock.api.execution_config": ("ExecutionConfig",),
    "penstock.api.row_formats": ("RowFieldExtractorSchema",),
    "penstock.api.serialization": ("ByteArraySchema", "Encoder", "SimpleStringSchema"),
    "penstock.types.batch": ("RowKind",),
    "penstock.types.logical": ("TypeInformation=LogicalType",),
}
__getattr__, __all__ = finder(__name__, _WHERE, ABSENT["common"])


def __dir__() -> list[str]:
    return __all__

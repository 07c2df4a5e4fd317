"""The names of ``pyflink.datastream.formats`` and its modules."""

from __future__ import annotations

from penstock.compat.pyflink.absent import ABSENT
from penstock.compat.pyflink.names import finder

_WHERE = {
    "penstock.api.row_formats": (
        "AvroRowDeserializationSchema",
        "AvroRowSerializationSchema",
        "CsvRowDeserializationSchema",
        "CsvRowSerializationSchema",
        "JsonRowDeserializationSchema",
        "JsonRowSerializationSchema",
    ),
}
__getattr__, __all__ = finder(__name__, _WHERE, ABSENT["formats"])


def __dir__() -> list[str]:
    return __all__

"""The names of ``pyflink.datastream.formats`` and its modules."""

from __future__ import annotations

from penstock.compat.pyflink.names import finder

_JAVA = "it wraps a writer of Java, and there is no Java here"
_FORMAT = "use Source.connector(…) or Sink.connector(…) with the option 'format'"
_ABSENT = dict.fromkeys(("AvroBulkWriters", "AvroInputFormat", "AvroParquetReaders", "AvroParquetWriters", "CsvBulkWriters", "GenericRecordAvroTypeInfo", "OrcBulkWriters", "ParquetBulkWriters", "ParquetColumnarRowInputFormat"), (_JAVA, _FORMAT))  # fmt: skip

__getattr__, __all__ = finder(__name__, {}, _ABSENT)


def __dir__() -> list[str]:
    return __all__

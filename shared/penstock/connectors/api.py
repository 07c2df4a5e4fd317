"""The public port of connectors: the names that a package with a connector of its own imports.

``Connector`` names options, checks tables, and makes a ``SourceEnumerator`` and ``SourceReader``, a
``SinkWriter`` or a ``LookupSource``. docs/extending/connector.md shows one from end to end;
``penstock.testing.SourceConformance`` and ``SinkConformance`` test it.
"""

from penstock.connectors.base import (
    Connector,
    Fetched,
    LookupSource,
    Runs,
    SinkWriter,
    SourceContext,
    SourceEnumerator,
    SourceReader,
    Split,
    TableInfo,
)
from penstock.connectors.cutting import first_rows
from penstock.connectors.lookup import LOOKUP_OPTIONS
from penstock.connectors.registry import register
from penstock.connectors.simple import DeclaredConnector
from penstock.options import (
    Option,
    OptionSet,
    boolean,
    bytes_size,
    character,
    choice,
    duration_ms,
    integer,
    number,
    text,
)

__all__ = [
    "LOOKUP_OPTIONS",
    "Connector",
    "DeclaredConnector",
    "Fetched",
    "LookupSource",
    "Option",
    "OptionSet",
    "Runs",
    "SinkWriter",
    "SourceContext",
    "SourceEnumerator",
    "SourceReader",
    "Split",
    "TableInfo",
    "boolean",
    "bytes_size",
    "character",
    "choice",
    "duration_ms",
    "first_rows",
    "integer",
    "number",
    "register",
    "text",
]

"""The tables that a program's ``Source`` and ``Sink`` name, checked by their connectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.connectors.registry import resolved_options, table_info, validate_table
from penstock.errors import SpecError, UnsupportedError
from penstock.functions.expr import InputRef
from penstock.plan import nodes as n
from penstock.types import logical as t
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from penstock.api.connectors import Sink, Source
    from penstock.connectors.base import Connector


def source_table(source: Source, name: str) -> n.TableRef:
    """The table of ``source``, without watermarks; ``name``: what plans call it.

    Raises:
        ConnectorError: An option is unknown, missing or malformed.
        SpecError: The connector has no such metadata.
        UnsupportedError: The source gives a changelog.
    """
    metadata = tuple(n.MetadataColumn(column, key) for key, column in source.metadata.items())
    where = f"source '{name}'"
    options = resolved_options(source.all_options, where=where)
    validated = validate_table(source.schema, options, role="source", where=where)
    extra = [t.Field(m.name, _metadata_type(validated, m.key, name)) for m in metadata]
    schema = Schema((*source.schema.fields, *extra))
    info = table_info(source.schema, options)
    if (mode := validated.source_mode(info)) != "append":
        raise UnsupportedError(
            f"{where}, whose rows are updated, as a stream",
            expected="a source of inserts alone",
            got=f"connector '{source.name}' with a changelog ({mode})",
            where=where,
            remedy="read it as a table in SQL, or with a format that has no changes (json)",
        )
    return n.TableRef(
        name=name,
        connector=source.name,
        options=options,
        physical=source.schema,
        schema=schema,
        metadata=metadata,
        computed=tuple(InputRef(i, f.type) for i, f in enumerate(schema.fields)) if metadata else None,
        bounded=validated.is_bounded(info),
        guarantee=validated.source_guarantee(info),
        location=validated.location,
    )


def sink_table(sink: Sink, stream: Schema) -> n.TableRef:
    """The table of ``sink``, which takes the columns of ``stream`` if it declares none itself.

    Raises:
        ConnectorError: An option is unknown, missing or malformed.
    """
    # Only a schema that the sink declares itself demands values.
    schema = (
        sink.schema
        if len(sink.schema)
        else Schema.of(*((f.name, f.type.with_nullable(True)) for f in stream.fields))
    )
    where = f"sink '{sink.name}'"
    options = resolved_options(sink.all_options, where=where)
    connector = validate_table(schema, options, role="sink", where=where)
    info = table_info(schema, options)
    return n.TableRef(
        name=sink.name,
        connector=sink.name,
        options=options,
        physical=schema,
        schema=schema,
        primary_key=sink.primary_key,
        guarantee=connector.sink_guarantee(info),
        sink_modes=tuple(connector.sink_modes(info)),
        sink_shuffle=connector.sink_shuffle(info),
        location=connector.location,
    )


def _metadata_type(connector: Connector, key: str, name: str) -> t.LogicalType:
    if key not in connector.metadata:
        raise SpecError(
            f"source '{name}' has no metadata '{key}'",
            expected=", ".join(connector.metadata) or "none",
            got=repr(key),
        )
    type_: t.LogicalType = connector.metadata[key]
    return type_

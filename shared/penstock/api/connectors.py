"""Sources and sinks by connector name, and builders for the common connectors.

``Source.connector("nats", schema, {…})``; options are the connector's own, the same as in SQL.
A schema is ``Types.ROW_NAMED(…)``, a ``Schema``, or any other type for a stream of values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.api.typeinfo import schema_of
from penstock.config import texts
from penstock.errors import ConnectorError, SpecError, UnsupportedError
from penstock.types import logical as t
from penstock.types.logical import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def as_schema(schema: Any) -> Schema:
    """``schema`` as a ``Schema``; it may be one already, or a type such as ``Types.ROW_NAMED(…)``.

    Raises:
        SpecError: It is neither.
    """
    if isinstance(schema, Schema):
        return schema
    if isinstance(schema, t.LOGICAL_TYPES):
        return schema_of(schema)
    raise SpecError("not a schema", expected="Types.ROW_NAMED([...], [...])", got=repr(schema))


@dataclass(frozen=True)
class _Table:
    name: str
    schema: Schema
    options: dict[str, str] = field(default_factory=dict)
    #: metadata key → name of the column that takes it, after the schema's own.
    metadata: dict[str, str] = field(default_factory=dict)
    primary_key: tuple[str, ...] = ()

    @property
    def all_options(self) -> dict[str, str]:
        """The options as a table in SQL declares them, ``connector`` among them."""
        return {"connector": self.name, **self.options}


class Source(_Table):
    """A connector's table to read: ``env.from_source``."""

    @classmethod
    def connector(
        cls,
        name: str,
        schema: Any,
        options: Mapping[str, Any] | None = None,
        *,
        metadata: Mapping[str, str] | None = None,
    ) -> Source:
        """A source by the name of its connector.

        Args:
            name: The connector.
            schema: The table's columns: ``Types.ROW_NAMED(…)``, a ``Schema``, or another type for bare values.
            options: The connector's options, as in SQL.
            metadata: The connector's metadata key → name of the column that takes it (``{"timestamp": "ts"}``).
        """
        return cls(name, as_schema(schema), texts(options or {}), dict(metadata or {}))


class Sink(_Table):
    """A connector's table to write: ``stream.sink_to``."""

    @classmethod
    def connector(
        cls,
        name: str,
        options: Mapping[str, Any] | None = None,
        *,
        schema: Any = None,
        primary_key: tuple[str, ...] = (),
    ) -> Sink:
        """A sink by the name of its connector.

        Args:
            name: The connector.
            options: The connector's options, as in SQL.
            schema: The table's columns; None: the stream's own.
            primary_key: Names of the key columns, for a sink that overwrites by key.
        """
        made = Schema(()) if schema is None else as_schema(schema)
        return cls(name, made, texts(options or {}), {}, tuple(primary_key))


@dataclass(frozen=True)
class PreparedSink(Sink):
    """A sink that takes the records of a stream in another form. ``prepare`` makes a stream of that form."""

    prepare: Callable[[Any], Any] = field(kw_only=True)


class Builder:
    """Collects options; ``set`` takes any option of the connector."""

    _connector = ""
    _make: Any = Source

    def __init__(self) -> None:
        self._options: dict[str, str] = {}
        self._schema: Any = None
        self._metadata: dict[str, str] = {}

    def set(self, option: str, value: Any) -> Any:
        """Set any ``option`` of the connector to ``value``."""
        self._options.update(texts({option: value}))
        return self

    def set_schema(self, schema: Any) -> Any:
        """Declare the columns: ``Types.ROW_NAMED(…)``, a ``Schema``, or another type for bare values."""
        self._schema = as_schema(schema)
        return self

    def set_format(self, name: str, **options: Any) -> Any:
        """Encode rows in the format ``name``; ``options`` are the format's: ``set_format("csv", field_delimiter=";")``."""
        self.set("format", name)
        for key, value in options.items():
            self.set(f"{name}.{key.replace('_', '-')}", value)
        return self

    def set_metadata(self, key: str, column: str) -> Any:
        """Deliver the connector's metadata ``key`` as ``column``, after the columns of the schema."""
        self._metadata[key] = column
        return self

    def build(self) -> Any:
        """The source or sink.

        Raises:
            ConnectorError: A source has no schema.
        """
        if self._make is Sink:
            return Sink.connector(self._connector, self._options, schema=self._schema)
        if self._schema is None:
            raise ConnectorError(
                f"a {self._connector} source without a schema",
                expected="set_schema(Types.ROW_NAMED([...], [...]))",
                got="none",
            )
        return Source.connector(self._connector, self._schema, self._options, metadata=self._metadata)


class _NatsBuilder(Builder):
    _connector = "nats"

    def set_servers(self, url: str) -> Any:
        """NATS servers, separated by commas; without them the cluster's ``nats.url``."""
        return self.set("url", url)

    def set_stream(self, name: str) -> Any:
        """The JetStream stream."""
        return self.set("stream", name)

    def set_subject(self, subject: str) -> Any:
        """A source's filters, separated by ``;``; a sink's subject or template, ``board.{origin}``."""
        return self.set("subject", subject)


class NatsSource:
    """``NatsSource.builder().set_stream("EVENTS").set_schema(…).set_format("json").build()``."""

    @staticmethod
    def builder() -> _NatsBuilder:
        """A builder; ``build()`` makes the ``Source``."""
        return _NatsBuilder()


class NatsSink:
    """``NatsSink.builder().set_subject("board.{origin}").set_format("json").build()``."""

    @staticmethod
    def builder() -> _NatsBuilder:
        """A builder; ``build()`` makes the ``Sink``."""
        made = _NatsBuilder()
        made._make = Sink
        return made


class _HybridBuilder:
    def __init__(self, history: Source) -> None:
        self._history = history
        self._live: Source | None = None
        self._switch: dict[str, str] = {}

    def add_source(self, source: Source) -> _HybridBuilder:
        """The part that follows the history.

        Raises:
            UnsupportedError: There is one already.
        """
        if self._live is not None:
            raise UnsupportedError(
                "a hybrid source of more than two parts",
                expected="a history, then a live source",
                got=f"another {source.name} source",
                remedy="let the history read all that is bounded (a folder, a glob)",
            )
        self._live = source
        return self

    def set_switch(self, column: str, at: Any) -> _HybridBuilder:
        """History gives the rows with ``column`` < ``at``, the live part those from ``at`` on."""
        self._switch = {"switch.column": column, "switch.at": str(at)}
        return self

    def build(self) -> Source:
        """The source.

        Raises:
            ConnectorError: There is no live part, or the parts differ in their columns.
            UnsupportedError: A part has metadata columns.
        """
        history, live = self._history, self._live
        if live is None:
            raise ConnectorError(
                "a hybrid source without a live part", expected="add_source(…)", got="its history alone"
            )
        if history.schema != live.schema:
            raise ConnectorError(
                "the parts of a hybrid source differ in their columns",
                expected=str(history.schema),
                got=str(live.schema),
                remedy="give both one schema",
            )
        for part in (history, live):
            if part.metadata:
                raise UnsupportedError(
                    "metadata columns of a hybrid source",
                    expected="columns that both parts have",
                    got=", ".join(sorted(part.metadata)),
                    remedy="keep them as columns of the history, or read live alone",
                )
        options = dict(self._switch)
        for name, part in (("history", history), ("live", live)):
            options.update({f"{name}.{key}": value for key, value in part.all_options.items()})
        return Source.connector("hybrid", history.schema, options)


class HybridSource:
    """A bounded history, then a live source of the same rows:
    ``HybridSource.builder(files).add_source(stream).set_switch("id", 4000).build()``."""

    @staticmethod
    def builder(history: Source) -> _HybridBuilder:
        """A builder that begins with the bounded part, ``history``."""
        return _HybridBuilder(history)

"""Specs of sources and sinks."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from penstock.functions.expr import Expr
from penstock.jobgraph.specs.base import Spec
from penstock.jobgraph.specs.parts import WatermarkSpec
from penstock.types.logical import Schema


class EnumeratorSpec(Spec, frozen=True, kw_only=True, tag="enumerator"):
    """Discovers splits and assigns them to the readers over a broadcast edge. Its parallelism is 1."""

    is_source: ClassVar[bool] = True

    connector: str
    options: dict[str, str]
    schema: Schema
    reader_parallelism: int


class SourceSpec(Spec, frozen=True, kw_only=True, tag="source"):
    """A reader. Its only input is the enumerator's assignments.

    ``schema``: the table's physical columns. ``projection``: which of them, in this order, begin the
    output. ``metadata``: metadata keys (``timestamp``, ``subject`` …) appended after them. ``arrival``:
    append a hidden BIGINT column with the order of arrival. ``pushed``: filters that the connector has
    agreed to apply (such as ``{"event_type": 2}``). ``computed``: expressions over those columns that give
    the final output; None: the columns themselves.
    ``known_of_deletes``: for an upsert changelog, the output columns that a deletion has (of its key and its
    metadata); the others are NULL in it. None: rows are no upsert changelog. ``drops_before``: the row before
    an update is left out where the columns ``changelog_keys`` did not change; if they did, it is a deletion.
    """

    is_source: ClassVar[bool] = True
    cheap: ClassVar[bool] = True

    connector: str
    options: dict[str, str]
    schema: Schema
    projection: tuple[int, ...]
    metadata: tuple[str, ...] = ()
    arrival: bool = False
    pushed: dict[str, Any] = {}
    computed: tuple[Expr, ...] | None = None
    watermark: WatermarkSpec | None = None
    on_error: Literal["fail", "skip", "dead-letter"] = "fail"
    changelog: Literal["append", "upsert", "retract"] = "append"
    changelog_keys: tuple[int, ...] = ()
    known_of_deletes: tuple[int, ...] | None = None
    drops_before: bool = False

    def not_streamed(self) -> str | None:
        if self.connector == "hybrid":
            return "a history that comes before the stream: micro-batches take splits side by side"
        return None


class CollectionSourceSpec(Spec, frozen=True, kw_only=True, tag="values"):
    """Bounded rows that the plan contains (VALUES, ``from_collection``). ``data``: an Arrow IPC stream of the
    physical batch, in base64."""

    is_source: ClassVar[bool] = True
    cheap: ClassVar[bool] = True

    data: str
    watermark: WatermarkSpec | None = None

    def not_streamed(self) -> str | None:
        return "rows of the plan beside a stream"


class SinkSpec(Spec, frozen=True, kw_only=True, tag="sink"):
    """Writes a table. ``mode``: the changelog that it receives. ``keys``: the primary key columns of an
    upsert."""

    keeps_columns: ClassVar[bool] = True
    is_sink: ClassVar[bool] = True

    connector: str
    options: dict[str, str]
    schema: Schema
    mode: Literal["append", "upsert", "retract"] = "append"
    keys: tuple[int, ...] = ()
    on_error: Literal["fail", "skip", "dead-letter"] = "fail"
    #: What happens to a NULL in a NOT NULL column. None: the rows are the result of a SELECT and are not
    #: checked.
    not_null: Literal["ERROR", "DROP"] | None = None
    #: What happens to a text or bytes whose length differs from the declared one.
    type_length: Literal["IGNORE", "TRIM_PAD", "ERROR"] = "IGNORE"
    #: The connector's metadata keys that the last columns of ``schema`` hold.
    metadata: tuple[str, ...] = ()

    @property
    def physical(self) -> Schema:
        """The columns of ``schema`` without those of metadata."""
        return self.schema.select(range(len(self.schema) - len(self.metadata)))

    def not_streamed(self) -> str | None:
        if self.connector == "collect":
            return "a SELECT whose rows nobody stores: use INSERT INTO"
        return None

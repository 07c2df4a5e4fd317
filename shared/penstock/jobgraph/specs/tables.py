"""What reads and writes tables."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from penstock.functions.expr import Expr
from penstock.jobgraph.specs.base import Spec
from penstock.jobgraph.specs.parts import WatermarkSpec
from penstock.types.logical import Schema


class EnumeratorSpec(Spec, frozen=True, kw_only=True, tag="enumerator"):
    """Parallelism 1: discovers splits and assigns them to the readers (broadcast edge)."""

    is_source: ClassVar[bool] = True

    connector: str
    options: dict[str, str]
    schema: Schema
    reader_parallelism: int


class SourceSpec(Spec, frozen=True, kw_only=True, tag="source"):
    """A reader. Its only input is the enumerator's assignments.

    ``schema``: the table's physical columns. ``projection``: which of them, in order, are
    the leading output columns. ``metadata``: metadata keys (``timestamp``, ``subject`` …)
    appended after them. ``arrival``: append a hidden BIGINT arrival-order column last.
    ``pushed``: what the connector agreed to apply itself (e.g. ``{"event_type": 2}``).
    ``computed``: expressions over those columns giving the final output, or None.
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

    def not_streamed(self) -> str | None:
        if self.connector == "hybrid":
            return "a history that comes before the stream: micro-batches take splits side by side"
        return None


class CollectionSourceSpec(Spec, frozen=True, kw_only=True, tag="values"):
    """Rows given in the plan (VALUES, ``from_collection``), bounded. ``data``: Arrow IPC
    stream of the physical batch, base64."""

    is_source: ClassVar[bool] = True
    cheap: ClassVar[bool] = True

    data: str
    watermark: WatermarkSpec | None = None

    def not_streamed(self) -> str | None:
        return "rows of the plan beside a stream"


class SinkSpec(Spec, frozen=True, kw_only=True, tag="sink"):
    """``mode``: the changelog it receives. ``keys``: primary key columns for an upsert."""

    keeps_columns: ClassVar[bool] = True
    is_sink: ClassVar[bool] = True

    connector: str
    options: dict[str, str]
    schema: Schema
    mode: Literal["append", "upsert", "retract"] = "append"
    keys: tuple[int, ...] = ()
    on_error: Literal["fail", "skip", "dead-letter"] = "fail"
    #: What becomes of a NULL for a NOT NULL column; None: a result, whose rows nobody checks.
    not_null: Literal["ERROR", "DROP"] | None = None
    #: What becomes of a text or bytes of another length than declared.
    type_length: Literal["IGNORE", "TRIM_PAD", "ERROR"] = "IGNORE"

    def not_streamed(self) -> str | None:
        if self.connector == "collect":
            return "a SELECT whose rows nobody stores: use INSERT INTO"
        return None

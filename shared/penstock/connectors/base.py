"""The public connector interface: the factory that names sources and sinks, and all that these implement.

``source_port`` has what a source implements, ``sink_port`` what a sink does, ``context`` what both are given.
"""

# Methods that do nothing by default may be overridden.
# ruff: noqa: B027

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from penstock.connectors.context import SourceContext
from penstock.connectors.sink_port import SinkWriter
from penstock.connectors.source_port import Fetched, LookupSource, SourceEnumerator, SourceReader, Split
from penstock.secrets import resolved

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.connectors.procedures import Procedure
    from penstock.connectors.row_changes import ChangedBy
    from penstock.types import Schema

__all__ = [
    "RUNS",
    "Connector",
    "Fetched",
    "LookupSource",
    "Runs",
    "SinkWriter",
    "SourceContext",
    "SourceEnumerator",
    "SourceMode",
    "SourceReader",
    "Split",
    "TableInfo",
]

#: How a connector runs. ``loop``: on the data thread, no call longer than 5 ms and none that waits;
#: ``native``: it also hands long calls to ``SourceContext.run``, and they release the interpreter's lock;
#: ``helper``: in a process of its own, where it may run Python for as long as it likes and wait
#: (``connectors.helper``).
Runs = Literal["loop", "native", "helper"]
RUNS: tuple[Runs, ...] = ("loop", "native", "helper")
#: The changelog of a source: see ``Connector.source_mode``.
SourceMode = Literal["append", "upsert", "retract"]


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table as the planner gives it to a connector.

    Args:
        schema: The physical columns.
        options: The options, as text.
        format: The option ``format``.
        primary_key: Names of the primary key's columns, while a job is planned.
    """

    schema: Schema
    options: Mapping[str, str]
    format: str | None = None
    primary_key: Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", resolved(self.options))


class Connector(ABC):
    """A named connector, registered in ``connectors.registry``.

    Methods that check raise ``ConnectorError`` that names the option, what was expected and the nearest
    known name. Only ``validate`` and its helpers may use the network; the planner calls them.
    """

    name: str
    #: option → (description, default or None, required)
    options: Mapping[str, tuple[str, str | None, bool]] = {}
    #: metadata key → type, readable with ``METADATA FROM``.
    metadata: Mapping[str, Any] = {}
    #: metadata key → type, of those that a sink writes: a METADATA column without VIRTUAL of a table that is
    #: inserted into. The rows of a writer have these columns after the physical ones, in the order of
    #: ``SourceContext.metadata``.
    writable_metadata: Mapping[str, Any] = {}
    #: The options that say which data the table holds. A savepoint's state fits only a table with equal
    #: values of these options; other options may change. None: all options.
    location: tuple[str, ...] | None = None
    #: Whether INSERT OVERWRITE is supported: with the option ``sink.overwrite`` the writer replaces the
    #: present rows.
    overwrites: bool = False
    #: Whether TRUNCATE TABLE is supported: with the option ``sink.truncate`` the writer, which gets no rows, deletes
    #: all rows when its input has ended.
    truncates: bool = False
    #: Whether PARTITIONED BY is supported: with the option ``partition.keys`` rows are stored by the values
    #: of these columns.
    partitioned: bool = False
    #: The values of ``lookup.cache`` that the connector supports, the default first (see
    #: ``connectors.lookup``). Empty: no lookups.
    lookup_caches: tuple[str, ...] = ()
    #: Whether ROW columns may be declared with only the fields that a query reads.
    nested_projection: bool = False
    #: Whether rows are in the planning process, so that Spark's driver reads and writes them itself.
    in_process: bool = False
    #: What CALL can do to a table.
    procedures: Sequence[Procedure] = ()
    #: How readers and writers use the slot's threads; the conformance kit measures it.
    runs: Runs = "loop"

    def validate(self, table: TableInfo, *, role: Literal["source", "sink"]) -> None:
        """Check the options, role and columns of ``table``.

        ``role``: ``source`` or ``sink``. Raises ConnectorError that names the option, or UnsupportedError.
        """

    def resolved(self, options: Mapping[str, str], *, where: str) -> Mapping[str, str]:
        """``options`` that mean the same in every process of a cluster: no relative paths.

        Called once, while planning; ``where``: the table's place, for errors.
        """
        return options

    def is_bounded(self, table: TableInfo) -> bool:
        """Whether the source of ``table`` ends."""
        return False

    def estimated_bytes(self, table: TableInfo) -> int | None:
        """About how many bytes a bounded source reads; None: unknown. Planning asks before it chooses the engine."""
        return None

    def push_down(
        self, table: TableInfo, *, columns: Sequence[int], equals: Mapping[int, Any]
    ) -> Mapping[str, Any]:
        """The parts of a query that the source applies itself (``SourceSpec.pushed``); empty: none.

        Args:
            table: The table.
            columns: Indices of the columns that are needed.
            equals: Index of a column → the constant that WHERE compares it with.
        """
        return {}

    def partitions(self, table: TableInfo) -> Sequence[tuple[str, bool]]:
        """The names of a partitioned table's partitions, each with whether the query reads it."""
        raise NotImplementedError

    def source_guarantee(self, table: TableInfo) -> str:
        """``exactly-once`` (replayable), ``at-least-once`` or ``at-most-once``."""
        return "exactly-once"

    def nested_projection_of(self, table: TableInfo) -> bool:
        """Whether a source of ``table`` can deliver a ROW column with fewer fields: ``nested_projection``, unless
        its format cannot."""
        return self.nested_projection

    def unread_fields_of(self, table: TableInfo) -> bool:
        """Whether a source of ``table`` that cannot leave fields of a ROW out makes use of knowing which of them nobody reads:
        ``ctx.pushed["unread"]`` has them, column → fields, and their values may be NULL."""
        return False

    def metadata_of(self, table: TableInfo) -> Mapping[str, Any]:
        """Metadata key → type that a source of ``table`` offers: ``metadata``, and what its format adds."""
        return self.metadata

    def source_mode(self, table: TableInfo) -> SourceMode:
        """The changelog that the source of ``table`` gives. ``append``: inserts alone. ``retract``: rows with kinds, the
        old row of an update before the new one. ``upsert``: the newest row of each primary key as +I, and −D, which has
        the key and metadata, and NULL elsewhere; the planner gives the key as ``ctx.pushed["keys"]`` (indices into the
        schema), and keeps rows by it."""
        return "append"

    def sink_guarantee(self, table: TableInfo) -> str:
        """``exactly-once`` or ``at-least-once``."""
        return "at-least-once"

    def sink_modes(self, table: TableInfo) -> Sequence[str]:
        """The changelog modes that the sink accepts: ``append``, ``upsert``, ``retract``."""
        return ("append",)

    def row_changes(self, table: TableInfo) -> ChangedBy | None:
        """How DELETE and UPDATE change the rows of ``table``: with the option ``sink.row-change`` the writer gets their
        rows, and makes the change when its input has ended. None: they are not supported. Raises UnsupportedError for a
        table of which they are not."""
        return None

    def sink_shuffle(self, table: TableInfo) -> tuple[str, ...] | None:
        """The columns whose equal values must reach one writer; empty: one writer takes all rows; None: any writer takes
        any row."""
        return None

    def sink_not_in_micro_batches(self, table: TableInfo) -> Sequence[str]:
        """Options of ``table`` that cannot be kept where each micro-batch is a write of its own (streams on Spark)."""
        return ()

    def enumerator(self, table: TableInfo) -> SourceEnumerator:
        """A new enumerator of ``table``."""
        raise NotImplementedError

    def reader(self, table: TableInfo) -> SourceReader:
        """A new reader of ``table``."""
        raise NotImplementedError

    def lookup(self, table: TableInfo) -> LookupSource:
        """A new lookup source of ``table``."""
        raise NotImplementedError

    def writer(self, table: TableInfo) -> SinkWriter:
        """A new writer of ``table``."""
        raise NotImplementedError

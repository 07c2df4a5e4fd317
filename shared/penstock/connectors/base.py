"""The public connector interface: sources, sinks, and the factory that names them.

A source is split into *splits*. An enumerator (a task of parallelism 1) discovers them
and assigns each to a reader; a reader reads its splits in order, never blocks, and tells its positions. Both
run on the slot's event loop, so network clients may use asyncio.
Blocking work that releases the interpreter's lock goes through ``SourceContext.run``.

A sink writer takes batches, cuts an epoch at every barrier, and commits an epoch,
repeatably, when its checkpoint is complete.
"""

# Methods that do nothing by default may be overridden.
# ruff: noqa: B027

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from penstock.secrets import resolved

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from penstock.metrics import MetricGroup
    from penstock.ports import Store
    from penstock.types import Batch, Schema


#: How a connector runs. ``loop``: on the data thread, no call longer than 5 ms and none that waits;
#: ``native``: it also hands long calls to ``SourceContext.run``, and they release the interpreter's lock;
#: ``helper``: in a process of its own, where it may run Python for as long as it likes and wait
#: (``connectors.helper``).
Runs = Literal["loop", "native", "helper"]
RUNS: tuple[Runs, ...] = ("loop", "native", "helper")
#: The changelog of a source: see ``Connector.source_mode``.
SourceMode = Literal["append", "upsert", "retract"]


class Split(msgspec.Struct, frozen=True):
    """A part of a source that one reader reads in order.

    Args:
        id: Stable over restarts: a path, a stream and subject.
        payload: Whatever the reader needs to read the split, of JSON types.
        position: None at the start, later the position from ``SourceReader.snapshot``.
    """

    id: str
    payload: dict[str, Any] = {}
    position: Any = None


@dataclass(slots=True)
class SourceContext:
    """The surroundings that an enumerator, reader or writer may use.

    Args:
        job_id: Id of the job.
        uid: Uid of the operator.
        subtask_index: Index of the subtask, from 0.
        parallelism: Number of the operator's subtasks.
        attempt: Number of this run of the task, from 1.
        options: The table's options, as text. An option that names a secret is resolved whenever it is read.
        schema: Physical columns of the table.
        projection: Columns to deliver: indices into ``schema``.
        metadata: Metadata keys whose columns follow those of ``projection``.
        pushed: The result of ``Connector.push_down``.
        config: The job's configuration.
        metrics: The operator's metrics.
        on_error: The table's option ``on-error``.
        run: ``await run(f)`` calls ``f`` in the slot's one helper thread; only for calls that release the
            interpreter's lock.
        now_ms: The wall clock, ms since the epoch.
        bad_record: ``bad_record(error, raw bytes or None, where)`` counts a bad record and, by ``on_error``, raises
            the error, drops the record, or keeps it for dead letters.
        store: The cluster's object store, if there is one.
        batch_rows: Greatest number of rows that a batch should have.
        gathered: All committables of a checkpoint are given to one writer, in its ``open``.
    """

    job_id: str
    uid: str
    subtask_index: int
    parallelism: int
    attempt: int
    options: Mapping[str, str]
    #: Physical columns of the table.
    schema: Schema
    #: Columns to deliver: indices into ``schema``, then metadata keys.
    projection: Sequence[int]
    metadata: Sequence[str]
    pushed: Mapping[str, Any]
    config: Mapping[str, str]
    metrics: MetricGroup
    on_error: Literal["fail", "skip", "dead-letter"]
    #: ``run(f)`` in the slot's one helper thread; only for calls that release the lock.
    run: Callable[[Callable[[], Any]], Awaitable[Any]]
    now_ms: Callable[[], int]
    #: Counts a bad record and, by policy, raises, drops it or keeps it for dead letters:
    #: ``bad_record(error, raw bytes or None, where)``.
    bad_record: Callable[[Exception, bytes | None, str], None]
    store: Store | None = None
    #: Greatest number of rows a batch should have.
    batch_rows: int = 16_384
    #: All committables of a checkpoint are given to one writer, which commits them in ``open``.
    gathered: bool = False

    def __post_init__(self) -> None:
        self.options = resolved(self.options, where=f"operator {self.uid}")


class SourceEnumerator(ABC):
    """Discovers the splits of a source. The ids of assigned splits are part of checkpoints."""

    @abstractmethod
    async def discover(self, ctx: SourceContext, known: set[str]) -> Sequence[Split]:
        """The splits whose ids are not in ``known``. ``ctx``: the table and the subtask.

        Called at the start and, if the source is unbounded, every ``discovery_interval_ms``.
        """

    #: Time between two discoveries, ms; None: discover once.
    discovery_interval_ms: int | None = None
    #: Set before ``discover`` if the splits are read much later. Their start is fixed now, so that rows
    #: which expire meanwhile are an error, not a gap.
    pinned: bool = False

    async def close(self) -> None:
        """Close connections. Called once, also after a failure."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """Rows of one split, in the split's order.

    Args:
        split_id: Id of the split.
        batch: Columns of the projection, then metadata columns. Its ``times`` (int64 µs) are the records' own
            timestamps, where the source has them.
    """

    split_id: str
    batch: Batch


class SourceReader(ABC):
    """Reads assigned splits. All methods run on the data thread and return quickly."""

    async def open(self, ctx: SourceContext) -> None:
        """Connect. ``ctx``: the table and the subtask.

        May raise BrokerError or ConnectorError with what to do.
        """
        self.ctx = ctx

    @abstractmethod
    def add_splits(self, splits: Sequence[Split]) -> None:
        """Read these splits, too, from their positions."""

    @abstractmethod
    def poll(self) -> Fetched | None:
        """The rows that are available now (at most ``batch_rows``), or None. Never waits."""

    @abstractmethod
    async def wait(self) -> None:
        """Wait until ``poll`` may return rows, or a split has finished or caught up."""

    @abstractmethod
    def finished_splits(self) -> set[str]:
        """Ids of the splits that were read to their end; only bounded splits end."""

    def caught_up(self, split_id: str) -> bool:
        """True if the split has nothing left to read at this moment: only then may it be declared idle."""
        return False

    def dormant(self, split_id: str) -> bool:
        """True while the split waits until others are read to their end: it holds no watermark yet."""
        return False

    @abstractmethod
    def snapshot(self) -> list[Split]:
        """Every assigned split, also a finished one, with its position after the last row that ``poll``
        returned."""

    def on_checkpoint_complete(self, checkpoint_id: int, positions: Sequence[Split]) -> None:
        """The checkpoint ``checkpoint_id`` is complete; ``positions``: the result of ``snapshot`` for it.

        No restore goes back before these positions, so the reader may release earlier rows, or commit the
        positions to a broker.
        """

    def pending_records(self) -> int | None:
        """The number of records not read yet (lag), for metrics; None: unknown."""
        return None

    async def close(self) -> None:
        """Close connections. Called once, also after a failure."""


class LookupSource:
    """Rows of an external table by key, for lookup joins. Runs on the slot's event loop.

    A failure that may pass is raised as ``ExternalError``; the join then retries up to ``lookup.max-retries``
    times. The join caches rows, so the source need not.
    """

    async def open(self, ctx: SourceContext) -> None:
        """Connect. ``ctx.projection``: columns to deliver, the key columns among them."""
        self.ctx = ctx

    async def lookup(self, keys: Batch) -> Batch:
        """All rows whose key columns equal one of ``keys`` (distinct, without NULL; its
        schema names the key columns), in any order."""
        raise NotImplementedError

    async def load(self) -> Batch:
        """The whole table (``lookup.cache`` = ``FULL``)."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close connections. Called once, also after a failure."""


class SinkWriter(ABC):
    """Writes batches; two-phase commit when ``exactly_once``.

    ``write`` only buffers or hands over; back-pressure is ``ready()``.
    """

    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        """Connect, with ``ctx`` for the table and the subtask.

        ``restored``: committables of the checkpoint that the job was restored from. Commit them again
        (idempotently) before writing anything, and abort everything newer.
        """
        self.ctx = ctx

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Take rows (with ``kinds`` when the sink takes changelogs)."""

    def ready(self) -> bool:
        """Whether the writer takes rows now. If not, the task awaits ``wait_ready`` before the next
        ``write``."""
        return True

    async def wait_ready(self) -> None:
        """Wait until ``ready()`` is True."""

    async def flush(self) -> None:
        """The input ran empty: write out buffered rows, if the guarantee allows it."""

    def begin_checkpoint(self, checkpoint_id: int) -> Awaitable[list[bytes]]:
        """Cut the epoch *now*, synchronously; the awaitable gives its committables once
        they are durable. Rows written after the call belong to the next epoch. Raising
        from the awaitable declines the checkpoint and fails the task."""

        async def nothing() -> list[bytes]:
            await self.flush()
            return []

        return nothing()

    async def commit(self, checkpoint_id: int) -> None:
        """Make everything up to this checkpoint's epoch visible. The call may be repeated."""

    def needs_commit(self) -> bool:
        """Whether written rows wait for ``commit``. If so, the task finishes at the end of its input only
        after one more checkpoint is complete."""
        return type(self).commit is not SinkWriter.commit

    async def finish(self) -> None:
        """All input has ended and everything is committed. This is the last call before the final state is
        taken (``begin_checkpoint``, unless there was a final checkpoint) and before ``close``."""

    async def close(self) -> None:
        """Close connections. Called once, also after a failure."""

    async def abandon(self, ctx: SourceContext) -> None:
        """Called instead of all methods above: delete what attempts before ``ctx.attempt`` staged and no
        checkpoint will commit.

        An engine that has no checkpoint to continue from calls this.
        """


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
    #: The options that say which data the table holds. A savepoint's state fits only a table with equal
    #: values of these options; other options may change. None: all options.
    location: tuple[str, ...] | None = None
    #: Whether INSERT OVERWRITE is supported: with the option ``sink.overwrite`` the writer replaces the
    #: present rows.
    overwrites: bool = False
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

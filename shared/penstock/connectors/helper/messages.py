"""The messages between a slot and a helper process. Both are from one installation, so the messages need no
versions.

A message may have a payload of bytes beside it: rows as an Arrow stream (``encoded``, ``decoded``). Messages
keep their order in both directions.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pyarrow as pa

from penstock.connectors.base import Split
from penstock.types.batch import Batch
from penstock.types.logical import Schema

#: The most bytes of rows under way. At this limit the sender waits until the receiver has taken some.
WINDOW_BYTES = 4 << 20

Part = Literal["enumerator", "reader", "writer", "lookup"]


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    pass


# -- to the helper process ---------------------------------------------------------------------------


class Open(_Message, frozen=True, kw_only=True):
    """The first message: names the connector and the part, and describes its context."""

    part: Part
    connector: str
    schema: Schema
    options: dict[str, str]
    format: str | None
    job_id: str
    uid: str
    subtask_index: int
    parallelism: int
    attempt: int
    projection: tuple[int, ...]
    metadata: tuple[str, ...]
    pushed: dict[str, Any]
    config: dict[str, str]
    on_error: Literal["fail", "skip", "dead-letter"]
    batch_rows: int
    gathered: bool
    #: For a writer: the committables of the checkpoint that the job was restored from.
    restored: tuple[bytes, ...] = ()
    #: For a writer: only ``abandon`` will be called, so the writer is not opened.
    abandons: bool = False


class AddSplits(_Message, frozen=True, kw_only=True):
    """Calls ``SourceReader.add_splits``."""

    splits: tuple[Split, ...]


class Completed(_Message, frozen=True, kw_only=True):
    """Calls ``SourceReader.on_checkpoint_complete``; ``positions``: those after the rows that the slot had
    taken."""

    checkpoint_id: int
    positions: tuple[Split, ...]


class Credit(_Message, frozen=True, kw_only=True):
    """The slot has taken rows of ``taken_bytes``; the next batch may have ``batch_rows`` rows."""

    taken_bytes: int
    batch_rows: int


class Probe(_Message, frozen=True, kw_only=True):
    """Asks which splits are caught up now."""


class Write(_Message, frozen=True, kw_only=True):
    """Calls ``SinkWriter.write``; the rows are the payload."""


class Cut(_Message, frozen=True, kw_only=True):
    """Calls ``SinkWriter.begin_checkpoint``, which cuts the epoch after all rows sent so far. The ``Answer``
    has the committables."""

    call: int
    checkpoint_id: int


class Call(_Message, frozen=True, kw_only=True):
    """Calls an async method. The answer is an ``Answer`` or ``Failed`` with the same number."""

    call: int
    method: str
    arguments: dict[str, Any] = {}


ToHelper = Open | AddSplits | Completed | Credit | Probe | Write | Cut | Call

# -- to the slot ---------------------------------------------------------------------------------------


class Opened(_Message, frozen=True, kw_only=True):
    """The part is open. ``flushes``, ``commits``: whether a writer's ``flush`` and ``commit`` do anything;
    ``needs_commit``: what the writer says before it has any row."""

    flushes: bool = False
    commits: bool = False
    needs_commit: bool = False


class Rows(_Message, frozen=True, kw_only=True):
    """Rows of a reader, or changes of its state: ``splits`` with new positions, splits that are newly
    ``finished``. ``away``: the server that does not answer.

    ``schema`` is the schema of the payload's rows if it differs from the one before.
    """

    split_id: str | None = None
    schema: Schema | None = None
    splits: tuple[Split, ...] = ()
    finished: tuple[str, ...] = ()
    pending_records: int | None = None
    away: str | None = None


class CaughtUp(_Message, frozen=True, kw_only=True):
    """The answer to ``Probe``. ``at_s``: the time at which it was true, by the monotonic clock that both
    processes share."""

    splits: tuple[str, ...]
    at_s: float


class Bad(_Message, frozen=True, kw_only=True):
    """A record that cannot be read, as reported to ``SourceContext.bad_record``."""

    error: dict[str, Any]
    record: bytes | None
    where: str


class Metrics(_Message, frozen=True, kw_only=True):
    """The increments of counters and the present values of gauges."""

    counters: dict[str, int]
    gauges: dict[str, float | int | None]


class Taken(_Message, frozen=True, kw_only=True):
    """The writer has taken rows of ``taken_bytes`` bytes, and ``writes`` batches in all. ``needs_commit``:
    its value after them."""

    taken_bytes: int
    writes: int
    needs_commit: bool


class Waits(_Message, frozen=True, kw_only=True):
    """What ``SinkWriter.away`` says has changed; also sent while the writer opens."""

    away: str | None


class Answer(_Message, frozen=True, kw_only=True):
    """The result of a call. ``schema``: the schema of the payload's rows."""

    call: int
    items: tuple[bytes, ...] = ()
    splits: tuple[Split, ...] = ()
    schema: Schema | None = None


class Failed(_Message, frozen=True, kw_only=True):
    """A call failed, or, without a number, the part did. ``traceback``: the traceback in the helper
    process."""

    call: int | None
    error: dict[str, Any]
    traceback: str


ToSlot = Opened | Rows | CaughtUp | Bad | Metrics | Taken | Waits | Answer | Failed


def encoded(batch: Batch) -> pa.Buffer:
    """The rows, kinds and times of a batch as an Arrow stream."""
    rows = batch.to_arrow()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return sink.getvalue()


def decoded(schema: Schema, data: memoryview) -> Batch:
    """The inverse of ``encoded``; the columns lie in ``data``."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
        return Batch.from_arrow(schema, stream.read_next_batch())

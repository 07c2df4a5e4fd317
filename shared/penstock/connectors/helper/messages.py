"""What a slot and a helper process say to each other. Both are of one installation, so there is one version.

A message may have a payload of bytes beside it: rows as an Arrow stream (``encoded``, ``decoded``). Messages
keep their order, both ways.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pyarrow as pa

from penstock.connectors.base import Split
from penstock.types.batch import Batch
from penstock.types.logical import Schema

#: Rows on their way, in bytes: beyond it the sending side waits until the other one has taken some.
WINDOW_BYTES = 4 << 20

Part = Literal["enumerator", "reader", "writer", "lookup"]


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    pass


# -- to the helper process ---------------------------------------------------------------------------


class Open(_Message, frozen=True, kw_only=True):
    """The first message: which part of which connector, and what its context holds."""

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
    #: Of a writer: the committables of the checkpoint restored from.
    restored: tuple[bytes, ...] = ()
    #: Of a writer: only ``abandon`` will be called, so it is not opened.
    abandons: bool = False


class AddSplits(_Message, frozen=True, kw_only=True):
    """``SourceReader.add_splits``."""

    splits: tuple[Split, ...]


class Completed(_Message, frozen=True, kw_only=True):
    """``SourceReader.on_checkpoint_complete``; ``positions``: of the rows that the slot had taken."""

    checkpoint_id: int
    positions: tuple[Split, ...]


class Credit(_Message, frozen=True, kw_only=True):
    """The slot has taken rows of ``taken_bytes``; the next batch may have ``batch_rows`` rows."""

    taken_bytes: int
    batch_rows: int


class Probe(_Message, frozen=True, kw_only=True):
    """Asks which splits are caught up now."""


class Write(_Message, frozen=True, kw_only=True):
    """``SinkWriter.write``; the rows are the payload."""


class Cut(_Message, frozen=True, kw_only=True):
    """``SinkWriter.begin_checkpoint``: cuts the epoch behind all rows before it. ``Answer``: committables."""

    call: int
    checkpoint_id: int


class Call(_Message, frozen=True, kw_only=True):
    """A method that is awaited; answered by ``Answer`` or ``Failed`` of the same number."""

    call: int
    method: str
    arguments: dict[str, Any] = {}


ToHelper = Open | AddSplits | Completed | Credit | Probe | Write | Cut | Call

# -- to the slot ---------------------------------------------------------------------------------------


class Opened(_Message, frozen=True, kw_only=True):
    """The part is open. ``flushes``, ``commits``: whether a writer does anything then."""

    flushes: bool = False
    commits: bool = False


class Rows(_Message, frozen=True, kw_only=True):
    """Rows of a reader, or changes of its state: ``splits`` with new positions, splits that are newly
    ``finished``.

    ``schema`` is the schema of the payload's rows if it differs from the one before.
    """

    split_id: str | None = None
    schema: Schema | None = None
    splits: tuple[Split, ...] = ()
    finished: tuple[str, ...] = ()
    pending_records: int | None = None


class CaughtUp(_Message, frozen=True, kw_only=True):
    """The answer to ``Probe``. ``at_s``: when it was true, by the monotonic clock that both share."""

    splits: tuple[str, ...]
    at_s: float


class Bad(_Message, frozen=True, kw_only=True):
    """A record that cannot be read, by ``SourceContext.bad_record``."""

    error: dict[str, Any]
    record: bytes | None
    where: str


class Metrics(_Message, frozen=True, kw_only=True):
    """Counters by how much they grew, gauges as they are."""

    counters: dict[str, int]
    gauges: dict[str, float | int | None]


class Taken(_Message, frozen=True, kw_only=True):
    """The writer took rows of so many bytes, ``writes`` batches in all; ``needs_commit`` as it is then."""

    taken_bytes: int
    writes: int
    needs_commit: bool


class Answer(_Message, frozen=True, kw_only=True):
    """What a call gave. ``schema``: of the payload's rows."""

    call: int
    items: tuple[bytes, ...] = ()
    splits: tuple[Split, ...] = ()
    schema: Schema | None = None


class Failed(_Message, frozen=True, kw_only=True):
    """A call failed, or (without a number) the part did. ``traceback``: of the helper process."""

    call: int | None
    error: dict[str, Any]
    traceback: str


ToSlot = Opened | Rows | CaughtUp | Bad | Metrics | Taken | Answer | Failed


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

"""The surroundings that an enumerator, a reader, a lookup source or a writer of a connector may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from penstock.secrets import resolved

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from penstock.metrics import MetricGroup
    from penstock.ports import Store
    from penstock.types import Schema


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
        metadata: Metadata keys whose columns follow those of ``projection``; of a writer: those that follow the
            columns of ``schema`` in its rows.
        pushed: The result of ``Connector.push_down``.
        config: The job's configuration.
        metrics: The operator's metrics.
        on_error: The table's option ``on-error``.
        run: ``await run(f)`` calls ``f`` in the slot's one helper thread; only for calls that release the
            interpreter's lock.
        now_ms: The wall clock, ms since the epoch.
        bad_record: ``bad_record(error, raw bytes or None, where)`` counts a bad record and, by ``on_error``, raises
            the error, drops the record, or keeps it for dead letters.
        bad_message: As ``bad_record``, with what ``SourceReader.replay`` needs to read the record again (JSON values and
            bytes). None: letters of this operator are not replayed with more than the record's bytes.
        store: The cluster's object store, if there is one.
        batch_rows: Greatest number of rows that a batch should have.
        max_parallelism: Number of key groups; 0: rows are not partitioned by key groups.
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
    #: ``bad_message(error, raw bytes or None, where, message)``: with what ``SourceReader.replay`` needs.
    bad_message: Callable[[Exception, bytes | None, str, Mapping[str, Any]], None] | None = None
    store: Store | None = None
    #: Greatest number of rows a batch should have.
    batch_rows: int = 16_384
    max_parallelism: int = 0
    #: All committables of a checkpoint are given to one writer, which commits them in ``open``.
    gathered: bool = False

    def __post_init__(self) -> None:
        self.options = resolved(self.options, where=f"operator {self.uid}")

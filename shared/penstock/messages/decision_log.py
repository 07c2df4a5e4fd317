"""Entries of a job's decision log, the truth of it (``store/log.py`` keeps them).

An entry is decided by the leader of its ``epoch``; what is not in the log has not happened.
"""

from __future__ import annotations

from typing import Any, Union

from penstock.messages.base import Message
from penstock.messages.states import JobStatus


class JobAccepted(Message, frozen=True, kw_only=True, tag="job-accepted"):
    job_id: str
    name: str
    timestamp_ms: int
    #: Object key of the encoded JobGraph, and of the JobSpec.
    job_graph_key: str
    spec_key: str
    max_parallelism: dict[str, int] = {}


class LeaderEpoch(Message, frozen=True, kw_only=True, tag="leader-epoch"):
    """The fencing token is this entry's own number in the log."""

    leader_id: str
    timestamp_ms: int


class CheckpointCompleted(Message, frozen=True, kw_only=True, tag="checkpoint-completed"):
    epoch: int
    checkpoint_id: int
    manifest_key: str
    timestamp_ms: int
    kind: str = "checkpoint"
    #: of one that was asked for: by whom, and where its savepoint lies
    trigger_id: str | None = None
    path: str | None = None
    #: ids of older ones that are kept. None: nobody wrote them down, they are the last ones.
    beside: tuple[int, ...] | None = None


class SavepointRequested(Message, frozen=True, kw_only=True, tag="savepoint-requested"):
    """Somebody was promised an outcome: CheckpointCompleted or SavepointFailed with this
    ``trigger_id``."""

    epoch: int
    trigger_id: str
    kind: str
    directory: str | None = None


class SavepointFailed(Message, frozen=True, kw_only=True, tag="savepoint-failed"):
    """``checkpoint_id`` 0: it was never begun."""

    epoch: int
    trigger_id: str
    kind: str
    reason: str
    timestamp_ms: int
    checkpoint_id: int = 0


class Restored(Message, frozen=True, kw_only=True, tag="restored"):
    """The job (re)started as ``job_attempt`` from this checkpoint (0 = from nothing).
    ``vertices``: those that did (empty = all); the others run on in their own attempt.
    ``slots``: how many it runs in (0 = not known)."""

    epoch: int
    job_attempt: int
    checkpoint_id: int
    timestamp_ms: int
    vertices: tuple[str, ...] = ()
    slots: int = 0


class Terminal(Message, frozen=True, kw_only=True, tag="terminal"):
    epoch: int
    status: JobStatus
    timestamp_ms: int
    error: dict[str, Any] | None = None


LogEntry = Union[
    JobAccepted, LeaderEpoch, CheckpointCompleted, SavepointRequested, SavepointFailed, Restored, Terminal
]

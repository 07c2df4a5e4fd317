"""Entries of a job's decision log (``store/log.py`` stores them).

The leader of an ``epoch`` writes the entries with that epoch. What has no entry has not been decided. All
``timestamp_ms`` are milliseconds since 1970.
"""

from __future__ import annotations

from typing import Any, Union

from penstock.messages.base import Message
from penstock.messages.states import JobStatus


class JobAccepted(Message, frozen=True, kw_only=True, tag="job-accepted"):
    """The first entry: the dispatcher has accepted the job. ``max_parallelism``: vertex id → number of key
    groups."""

    job_id: str
    name: str
    timestamp_ms: int
    #: Object keys of the encoded JobGraph and of the JobSpec.
    job_graph_key: str
    spec_key: str
    max_parallelism: dict[str, int] = {}


class LeaderEpoch(Message, frozen=True, kw_only=True, tag="leader-epoch"):
    """A job manager leads the job. The entry's own number in the log is its epoch, the fencing token."""

    leader_id: str
    timestamp_ms: int


class CheckpointCompleted(Message, frozen=True, kw_only=True, tag="checkpoint-completed"):
    """A checkpoint is complete; ``manifest_key`` is the object that names its snapshots."""

    epoch: int
    checkpoint_id: int
    manifest_key: str
    timestamp_ms: int
    kind: str = "checkpoint"
    #: Only if somebody requested it: the id of the request, and the folder of the savepoint.
    trigger_id: str | None = None
    path: str | None = None
    #: Ids of the older checkpoints that are kept. None: not recorded; then the last ones are kept.
    beside: tuple[int, ...] | None = None


class SavepointRequested(Message, frozen=True, kw_only=True, tag="savepoint-requested"):
    """A request was accepted. CheckpointCompleted or SavepointFailed with the same ``trigger_id`` follows.

    ``kind`` as in ``TriggerSavepoint``; ``directory``: the target folder, None for a plain checkpoint.
    """

    epoch: int
    trigger_id: str
    kind: str
    directory: str | None = None


class SavepointFailed(Message, frozen=True, kw_only=True, tag="savepoint-failed"):
    """The requested checkpoint or savepoint failed. ``checkpoint_id`` is 0 if it was never begun."""

    epoch: int
    trigger_id: str
    kind: str
    reason: str
    timestamp_ms: int
    checkpoint_id: int = 0


class Restored(Message, frozen=True, kw_only=True, tag="restored"):
    """The job started or restarted as ``job_attempt`` from a checkpoint (``checkpoint_id`` 0: without state).

    ``vertices``: the vertices that did (empty: all); the others keep running in their own attempt.
    ``slots``: the number of slots that the job runs in (0: not known).
    """

    epoch: int
    job_attempt: int
    checkpoint_id: int
    timestamp_ms: int
    vertices: tuple[str, ...] = ()
    slots: int = 0


class Terminal(Message, frozen=True, kw_only=True, tag="terminal"):
    """The last entry: the job has ended with ``status``. ``error`` is ``PenstockError.to_dict()`` of a failed
    job."""

    epoch: int
    status: JobStatus
    timestamp_ms: int
    error: dict[str, Any] | None = None


LogEntry = Union[
    JobAccepted, LeaderEpoch, CheckpointCompleted, SavepointRequested, SavepointFailed, Restored, Terminal
]

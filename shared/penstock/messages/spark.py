"""Messages between a slot and the driver process that runs Spark for it.

The slot writes one ``DriverJob``, as JSON, to the driver's standard input. The driver writes frames to its
standard output: a 4-byte big-endian length and MessagePack of ``FromDriver``. The last frame is ``Done``
or ``Failed``.
"""

from __future__ import annotations

from typing import Any, Union

import msgspec

from penstock.jobgraph.graph import FunctionArtifact
from penstock.messages.slot import StorageSettings
from penstock.types.logical import Schema


class DriverJob(msgspec.Struct, frozen=True, kw_only=True):
    """The work of a driver. ``graph``, ``sinks``, ``rows`` and ``backfill`` are those of the
    ``SparkQuerySpec``.

    ``url``: Spark's master or server (``local[n]``, ``spark://…``, ``sc://…``). ``token``, ``server_pid``
    and ``server_log``: of the Spark that a task manager runs itself. ``ui``: the address of Spark's status
    API. ``folder``: for temporary files; it is removed with the slot. The paths in ``functions`` and
    ``python_path`` are on this machine.
    """

    job_id: str
    job_name: str
    attempt: int
    graph: str
    sinks: tuple[int, ...]
    rows: Schema | None = None
    backfill: bool = False
    url: str
    token: str = ""
    server_pid: int = 0
    server_log: str = ""
    ui: str = ""
    folder: str = ""
    config: dict[str, str] = {}
    functions: dict[str, FunctionArtifact] = {}
    python_path: tuple[str, ...] = ()
    storage: StorageSettings | None = None


class _Frame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    pass


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One stage of Spark, as its status API reports it. ``status`` is PENDING, ACTIVE, COMPLETE, FAILED or
    SKIPPED.

    ``run_ms``: the run time of all its tasks together. ``begun_ms``: when its first task was launched, in
    milliseconds since 1970 (0: not yet).
    """

    id: int
    attempt: int
    name: str
    status: str
    tasks: int
    completed: int
    active: int
    failed: int
    input_rows: int = 0
    input_bytes: int = 0
    shuffle_bytes: int = 0
    spilled_bytes: int = 0
    run_ms: int = 0
    begun_ms: int = 0


class Progress(_Frame, frozen=True, kw_only=True, tag="progress"):
    """The progress of the query. ``stage``: what the driver does (connecting, running …). ``details``: the
    stages one by one; empty where Spark's status API is not available."""

    stage: str
    stages_completed: int = 0
    stages: int = 0
    tasks_completed: int = 0
    tasks_active: int = 0
    tasks_failed: int = 0
    tasks: int = 0
    bytes_read: int = 0
    rows_read: int = 0
    shuffle_bytes: int = 0
    spilled_bytes: int = 0
    details: tuple[Stage, ...] = ()


class Rows(_Frame, frozen=True, kw_only=True, tag="rows"):
    """Rows of the result: an Arrow IPC stream in Penstock's external Arrow types."""

    data: bytes


class Done(_Frame, frozen=True, kw_only=True, tag="done"):
    """The driver has sent all rows, or Spark has written them."""


class Failed(_Frame, frozen=True, kw_only=True, tag="failed"):
    """The query failed; ``error`` is ``PenstockError.to_dict()``."""

    error: dict[str, Any]


class SparkReport(msgspec.Struct, frozen=True, kw_only=True):
    """What Spark has done for a query so far, stored as JSON among the job's objects. ``log``: the last lines
    of the driver's log and of Spark's, which other jobs may share."""

    operator: str
    attempt: int
    progress: Progress
    log: str


FromDriver = Union[Progress, Rows, Done, Failed]

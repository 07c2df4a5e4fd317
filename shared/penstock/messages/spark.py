"""A slot and the driver process that talks to Spark for it.

The slot writes one ``DriverJob``, as JSON, to the driver's standard input. The driver answers
on its standard output: frames of a 4-byte big-endian length and MessagePack of ``FromDriver``;
``Done`` or ``Failed`` is the last.
"""

from __future__ import annotations

from typing import Any, Union

import msgspec

from penstock.jobgraph.graph import FunctionArtifact
from penstock.messages.slot import StorageSettings
from penstock.types.logical import Schema


class DriverJob(msgspec.Struct, frozen=True, kw_only=True):
    """``graph``, ``sinks``, ``rows``, ``backfill``: of the ``SparkQuerySpec``. ``url``: local[n], spark://,
    sc://…; ``token``, ``server_pid``, ``server_log``: of a task manager's own Spark.
    ``ui``: where its status API answers. ``folder``: for files as long as the slot lives.
    ``functions`` and ``python_path`` are on this machine."""

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
    """One of Spark's stages, as its status API tells. ``status``: PENDING, ACTIVE, COMPLETE,
    FAILED or SKIPPED; ``run_ms``: of all its tasks together; ``begun_ms``: when its first task
    was launched, since the epoch (0: not yet)."""

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
    """Of what Spark runs now. ``stage``: what the driver does (connecting, running …).
    ``details``: the stages one by one; empty where Spark has no status API for us."""

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
    """An Arrow IPC stream in Penstock's own (external) Arrow types."""

    data: bytes


class Done(_Frame, frozen=True, kw_only=True, tag="done"):
    """Every row was sent, or written by Spark."""


class Failed(_Frame, frozen=True, kw_only=True, tag="failed"):
    """``error``: ``PenstockError.to_dict()``."""

    error: dict[str, Any]


class SparkReport(msgspec.Struct, frozen=True, kw_only=True):
    """What Spark did for a query so far; an object of the job (JSON). ``log``: the last lines of
    the driver's and of its Spark's, which other jobs may share."""

    operator: str
    attempt: int
    progress: Progress
    log: str


FromDriver = Union[Progress, Rows, Done, Failed]

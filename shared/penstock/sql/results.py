"""The results of statements: a job to run, or an answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from penstock.jobgraph.specs import SinkSpec
from penstock.sql import statements as st
from penstock.sql.errors import Position
from penstock.types import logical as t

if TYPE_CHECKING:
    from penstock.jobgraph.graph import JobGraph


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job that is ready to be submitted.

    Args:
        job_graph: The job.
        kind: ``select`` if its rows go to the client, else ``insert``.
        result_schema: Columns of a SELECT's rows.
        mode: Changelog mode of a SELECT's rows.
        result_keys: Columns by which a newer row of a SELECT replaces an older one; None if each row of the
            changelog must be applied by its values.
        bounded: Whether the job ends by itself.
    """

    job_graph: JobGraph
    kind: Literal["select", "insert"]
    result_schema: t.Schema | None = None
    mode: Literal["append", "upsert", "retract"] = "append"
    result_keys: tuple[int, ...] | None = None
    bounded: bool = False


@dataclass(frozen=True, slots=True)
class StatementResult:
    """The result of one statement.

    Args:
        kind: ``ddl`` for a change that was made, ``set`` for a setting, ``text`` for EXPLAIN, ``rows`` for
            SHOW and DESCRIBE, ``job`` for a query or inserts to run.
        message: What was done, or the text.
        columns: Names of the columns of ``rows``.
        rows: The rows of SHOW and DESCRIBE.
        job: The job to run.
        statement: The parsed statement.
        position: The statement's position in the script.
        warnings: What the user is to be told, though it is no error.
    """

    kind: Literal["ddl", "set", "text", "rows", "job"]
    message: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    job: PlannedJob | None = None
    statement: st.Statement | None = None
    position: Position = field(default_factory=Position)
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        statement: st.Statement,
        kind: Literal["ddl", "set", "text", "rows", "job"],
        message: str = "",
        columns: tuple[str, ...] = (),
        rows: tuple[tuple[Any, ...], ...] = (),
        *,
        job: PlannedJob | None = None,
    ) -> StatementResult:
        """The result of ``statement``, at its position."""
        return cls(kind, message, columns, rows, job, statement, statement.position)


def select_of(graph: JobGraph, sink: SinkSpec) -> PlannedJob:
    """The job of a SELECT, with the sink that collects its rows."""
    keys = sink.keys if sink.mode == "upsert" else None
    return PlannedJob(graph, "select", sink.schema, sink.mode, keys, graph.bounded)

"""``TableResult``: the rows that a statement gave, or the rows of its job as they come."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING, Any

from penstock.api.client import TERMINAL
from penstock.api.results import CloseableIterator
from penstock.config import LOCAL_TIME_ZONE
from penstock.errors import ExternalError, UnsupportedError
from penstock.table.columns import Column, PhysicalColumn
from penstock.table.printing import table_lines
from penstock.table.rows import changes, result_row
from penstock.table.settings import ResultKind
from penstock.table.types import DataType
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

    from penstock.api.execution import JobClient
    from penstock.types import Batch

_POLL_S = 0.1


class ResolvedSchema:
    """Names and types of columns. ``logical``: the engine's schema."""

    def __init__(self, logical: t.Schema) -> None:
        self.logical = logical

    def get_column_names(self) -> list[str]:
        """Names of the columns."""
        return list(self.logical.names)

    def get_column_data_types(self) -> list[DataType]:
        """Types of the columns."""
        return [DataType(x) for x in self.logical.types]

    def get_column_count(self) -> int:
        """The number of columns."""
        return len(self.logical)

    get_field_names, get_field_data_types, get_field_count = (
        get_column_names,
        get_column_data_types,
        get_column_count,
    )

    def get_field_name(self, field_index: int) -> str | None:
        """The name of a column; None if there is none at ``field_index``."""
        names = self.logical.names
        return names[field_index] if 0 <= field_index < len(names) else None

    def get_field_data_type(self, field: int | str) -> DataType | None:
        """The type of a column, by its position or name; None if there is none."""
        names = self.logical.names
        if isinstance(field, str):
            return DataType(self.logical.types[names.index(field)]) if field in names else None
        return DataType(self.logical.types[field]) if 0 <= field < len(names) else None

    @staticmethod
    def of(columns: Sequence[Column]) -> ResolvedSchema:
        """The schema of ``columns``."""
        return ResolvedSchema(t.Schema(tuple(t.Field(c.name, c.data_type.logical) for c in columns)))

    @staticmethod
    def physical(column_names: Sequence[str], column_data_types: Sequence[DataType]) -> ResolvedSchema:
        """The schema of columns of these names and types."""
        pairs = zip(column_names, column_data_types, strict=True)
        return ResolvedSchema(t.Schema(tuple(t.Field(name, of.logical) for name, of in pairs)))

    def get_columns(self) -> list[Column]:
        """The columns."""
        return [PhysicalColumn(f.name, DataType(f.type)) for f in self.logical.fields]

    def get_column(self, column_index_or_name: int | str) -> Column | None:
        """A column, by its position or name; None if there is none."""
        at = column_index_or_name
        if isinstance(at, str):
            return next((c for c in self.get_columns() if c.name == at), None)
        return self.get_columns()[at] if 0 <= at < len(self.logical) else None

    def to_physical_row_data_type(self) -> DataType:
        """The columns as the fields of a ROW that is not NULL."""
        return DataType(t.RowType(self.logical.fields, nullable=False))

    to_row_data_type = to_source_row_data_type = to_sink_row_data_type = to_physical_row_data_type

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ResolvedSchema) and self.logical.fields == other.logical.fields

    def __hash__(self) -> int:
        return hash(self.logical.fields)

    def __repr__(self) -> str:
        lines = (f"  `{f.name}` {f.type}" for f in self.logical.fields)
        return "(\n" + ",\n".join(lines) + "\n)"


class TableResult:
    """The result of a statement: rows that are complete, or a job. Environments make results.

    Args:
        schema: Columns of the rows.
        kind: Whether the rows hold more than the word OK.
        rows: The rows, unless a job gives them.
        client: The job, if there is one.
        selects: Whether the job gives the rows.
        config: The session's configuration.
        changelog: Whether rows are printed with their kind.
    """

    def __init__(
        self,
        schema: t.Schema,
        kind: ResultKind,
        rows: Iterable[tuple[Any, ...]] = (),
        *,
        client: JobClient | None = None,
        selects: bool = False,
        config: Mapping[str, str] | None = None,
        changelog: bool = False,
    ) -> None:
        self._schema = schema
        self._kind = kind
        self._given = [result_row(tuple(schema.names), row, 0) for row in rows]
        self._client = client
        self._config = dict(config or {})
        self._changelog = changelog
        self._selects = selects
        self._batches: Generator[Batch] | None = client.batches(schema) if client and selects else None
        self._first: list[Batch] = []

    def get_job_client(self) -> JobClient | None:
        """The client of the job; None if the statement starts no job."""
        return self._client

    def get_resolved_schema(self) -> ResolvedSchema:
        """Columns of the rows."""
        return ResolvedSchema(self._schema)

    get_table_schema = get_schema = get_resolved_schema

    def get_result_kind(self) -> ResultKind:
        """SUCCESS if the only row says OK; SUCCESS_WITH_CONTENT if the rows hold a result."""
        return self._kind

    def wait(self, timeout_ms: int | None = None) -> None:
        """Wait for the first row of a query, or for the end of the job of an INSERT.

        Args:
            timeout_ms: The longest wait, ms; for an INSERT only. None: there is no limit.

        Raises:
            PenstockError: The job failed; this is its error.
            ExternalError: The job has not ended within ``timeout_ms``.
            UnsupportedError: ``timeout_ms`` was given for a query.
        """
        if self._client is None:
            return
        if self._batches is None:
            if timeout_ms is not None:
                self._wait_at_most(timeout_ms)
            self._client.get_job_execution_result()
            return
        if timeout_ms is not None:
            raise UnsupportedError(
                "wait(timeout_ms) of a query",
                expected="wait() of a query, wait(timeout_ms) of an INSERT",
                got=f"timeout_ms={timeout_ms}",
                remedy="iterate over collect() and stop when you like: closing it cancels the job",
            )
        if not self._first:
            batch = next(self._batches, None)
            self._first = [] if batch is None else [batch]

    def _wait_at_most(self, timeout_ms: int) -> None:
        assert self._client is not None
        deadline = time.monotonic() + timeout_ms / 1000
        while self._client.get_job_status() not in TERMINAL:
            if time.monotonic() >= deadline:
                raise ExternalError(
                    f"job {self._client.get_job_id()} is not over after {timeout_ms} ms",
                    expected="its end",
                    got=self._client.get_job_status(),
                    remedy="wait longer, or get_job_client().cancel() it",
                )
            time.sleep(_POLL_S)

    def collect(self) -> CloseableIterator:
        """The rows as they come, each with its ``get_row_kind()``: ``+I``, ``-U``, ``+U`` or ``-D``."""
        if self._batches is None:
            return CloseableIterator((row for row in self._given), _nothing)
        return CloseableIterator(self._rows(self._batches), self._cancelled)

    def _cancelled(self) -> None:
        """Cancels the job of rows that were requested and of which none was read."""
        if self._client is not None and self._client.get_job_status() not in TERMINAL:
            self._client.cancel()

    def _rows(self, batches: Generator[Batch]) -> Generator[Any]:
        with closing(batches):
            first, self._first = self._first, []
            for batch in chain(first, batches):
                yield from changes(batch)

    def batches(self) -> Iterator[Batch]:
        """The rows as batches of columns, for conversions."""
        if self._batches is None:
            raise UnsupportedError(
                "columns of a statement that is no query", expected="a SELECT", remedy="use collect()"
            )
        with closing(self._batches) as batches:
            yield from chain(self._first, batches)

    def print(self) -> None:
        """Print the rows as a table. The rows of an unbounded query are printed
        until the program is interrupted."""
        zone = LOCAL_TIME_ZONE.read(self._config)
        with self.collect() as rows:
            for line in table_lines(self._schema, rows, changelog=self._changelog, zone=zone):
                sys.stdout.write(line + "\n")
                sys.stdout.flush()

    def _ipython_display_(self) -> None:
        """A notebook shows the rows of a query as they come, and the end of an INSERT's job."""
        from penstock.table.live import show

        show(self, zone=LOCAL_TIME_ZONE.read(self._config), selects=self._selects)


def _nothing() -> None:
    """Does nothing: complete rows have no job to cancel."""

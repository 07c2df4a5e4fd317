"""DELETE and UPDATE: the changes are kept until the input has ended, and made in one transaction then."""

from __future__ import annotations

import sqlite3
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from penstock.connectors.base import SinkWriter, TableInfo
from penstock.connectors.jdbc.database import connect, failure, quoted
from penstock.connectors.jdbc.settings import OPTIONS
from penstock.connectors.jdbc.staged import packed, unpacked
from penstock.connectors.jdbc.values import parameters
from penstock.errors import ConnectorError, InternalError
from penstock.types.batch import Batch, RowKind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from penstock.connectors.base import SourceContext
    from penstock.connectors.row_changes import RowChange
    from penstock.types.column import Column


class ChangingWriter(SinkWriter):
    """Gets the rows that go, or the changed rows. Reading the table while it changes could miss rows or change them
    twice, so nothing is written before the last row has come. The checkpoints keep the rows until then; a transaction that
    is repeated after a restart writes the same values again."""

    #: How rows become parameters.
    _parameters: Callable[[Sequence[Column]], list[tuple[Any, ...]]]

    def __init__(self, table: TableInfo, change: RowChange) -> None:
        self._options = OPTIONS.read(table.options)
        self._change = change
        self._batches: list[Batch] = []

    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        self.ctx = ctx
        names = ctx.schema.names
        keys: list[int] = list(ctx.pushed["keys"])
        # In the order of the statement's parameters.
        self._places = [*self._change.columns, *keys]
        self._schema = ctx.schema.select(self._places)
        self._batches = [batch for item in restored for batch in unpacked(item, self._schema)]
        table = self._table(self._options["table-name"])
        where = " AND ".join(f"{self._quoted(names[k])} = {self._mark}" for k in keys)
        new = ", ".join(f"{self._quoted(names[c])} = {self._mark}" for c in self._change.columns)
        self._statement = (
            f"DELETE FROM {table} WHERE {where}"
            if self._change.delete
            else f"UPDATE {table} SET {new} WHERE {where}"
        )

    def write(self, batch: Batch) -> None:
        if batch.kinds is not None and (batch.kinds != RowKind.INSERT).any():
            raise InternalError("the rows of DELETE or UPDATE have changes of their own")
        columns = [batch.columns[i] for i in self._places]
        self._batches.append(Batch(self._schema, columns, num_rows=batch.num_rows))

    def begin_checkpoint(self, checkpoint_id: int) -> Awaitable[list[bytes]]:
        if self._batches:
            self._batches = [Batch.concat(self._batches)]
        batches = list(self._batches)

        async def kept() -> list[bytes]:
            return [await self.ctx.run(lambda: packed(batches))] if batches else []

        return kept()

    async def commit(self, checkpoint_id: int) -> None:
        """Commits nothing yet: the rows pass from checkpoint to checkpoint until the end."""

    def needs_commit(self) -> bool:
        """Always true: the changes are to be in a checkpoint before they are made."""
        return True

    async def finish(self) -> None:
        batches, self._batches = self._batches, []
        if any(batch.num_rows for batch in batches):
            await self.ctx.run(lambda: self._transaction(self._rows(batches)))

    def _rows(self, batches: Sequence[Batch]) -> list[tuple[Any, ...]]:
        return [row for batch in batches for row in type(self)._parameters(batch.columns)]

    async def stopped(self) -> None:
        """Changes nothing: a job that starts from the savepoint makes all changes."""

    #: The placeholder of a parameter.
    _mark = "?"

    @abstractmethod
    def _quoted(self, name: str) -> str:
        """A column as a quoted identifier."""

    @abstractmethod
    def _table(self, name: str) -> str:
        """The table, quoted."""

    @abstractmethod
    def _transaction(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Runs the statement for each of the rows. Runs in a thread."""


def check_count(changed: int, rows: int, table: str, where: str) -> None:
    """Raises ConnectorError, before the transaction is committed, if more rows changed than were to."""
    if changed > rows:
        raise ConnectorError(
            f"the declared primary key of table '{table}' does not name one row each",
            expected=f"{rows} changed rows, one for each key",
            got=f"{changed}; nothing was changed",
            where=where,
            remedy="declare the key that the database enforces",
        )


class ChangingFile(ChangingWriter):
    """Changes a table of a SQLite file."""

    _parameters = staticmethod(parameters)

    def _quoted(self, name: str) -> str:
        return quoted(name)

    def _table(self, name: str) -> str:
        return quoted(name)

    def _transaction(self, rows: Sequence[tuple[Any, ...]]) -> None:
        url = self._options["url"]
        connection = connect(url, read_only=False)
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                cursor = connection.executemany(self._statement, rows)
                check_count(
                    cursor.rowcount, len(rows), self._options["table-name"], f"connector 'jdbc', {url}"
                )
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
        except sqlite3.Error as err:
            raise failure(err, url) from err
        finally:
            connection.close()

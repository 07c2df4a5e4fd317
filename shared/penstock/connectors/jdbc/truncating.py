"""TRUNCATE TABLE: deletes all rows of a table in one transaction, when the job's input has ended without a row."""

from __future__ import annotations

import sqlite3
from abc import abstractmethod
from typing import TYPE_CHECKING

from penstock.connectors.base import SinkWriter, TableInfo
from penstock.connectors.jdbc.database import connect, failure, quoted
from penstock.connectors.jdbc.settings import OPTIONS
from penstock.errors import ConnectorError

if TYPE_CHECKING:
    from penstock.types.batch import Batch


class TruncatingWriter(SinkWriter):
    """Deletes all rows at the end. A restart deletes them again, which changes nothing."""

    def __init__(self, table: TableInfo) -> None:
        self._table = table
        self._options = OPTIONS.read(table.options)

    def write(self, batch: Batch) -> None:
        if batch.num_rows:
            raise ConnectorError(
                "a table that is to be emptied gets rows",
                expected="no row: TRUNCATE TABLE alone sets this option",
                got=f"{batch.num_rows} rows",
                where="connector 'jdbc', option 'sink.truncate'",
                remedy="leave the option out",
            )

    async def finish(self) -> None:
        await self.ctx.run(self._delete_all)

    @abstractmethod
    def _delete_all(self) -> None:
        """Deletes all rows. Runs in a thread."""


class TruncatingFile(TruncatingWriter):
    """Empties a table of a SQLite file."""

    def _delete_all(self) -> None:
        url = self._options["url"]
        connection = connect(url, read_only=False)
        try:
            connection.execute(f"DELETE FROM {quoted(self._options['table-name'])}")
        except sqlite3.Error as err:
            raise failure(err, url) from err
        finally:
            connection.close()

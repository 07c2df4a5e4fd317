"""DELETE and UPDATE: all rows of the table as they are afterwards replace those of one version, in one commit."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from penstock.connectors.lakehouse.epochs import Committable, properties
from penstock.connectors.lakehouse.table import LostRaceError
from penstock.connectors.lakehouse.writer import LakeWriter
from penstock.errors import ConnectorError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.connectors.base import SourceContext
    from penstock.connectors.lakehouse.table import DataFile


class ReplacingLakeWriter(LakeWriter):
    """The checkpoints keep the names of the files until the input has ended. The commit carries the sink's mark, so that a
    repeated one changes nothing."""

    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        await super().open(ctx, ())
        assert self._table is not None
        # A mark and files of this statement alone, even if a job of the same name and id has run before.
        self._writer_id = f"{self._writer_id}-{self._table.base}"
        items = [msgspec.msgpack.decode(data, type=Committable) for data in restored]
        self._uncommitted = [file for item in items for file in item.files or ()]

    def _committable(self, checkpoint_id: int) -> Committable:
        ctx, files = self.ctx, list(self._uncommitted)
        newest = max((file.epoch for file in files), default=checkpoint_id)
        return Committable(
            ctx.job_id, ctx.uid, ctx.attempt, checkpoint_id, ctx.subtask_index, ctx.parallelism, newest, files
        )

    async def commit(self, checkpoint_id: int) -> None:
        """Commits nothing yet: the files pass from checkpoint to checkpoint until the end."""

    def needs_commit(self) -> bool:
        """Always true, even without a row, because the old rows must go."""
        return True

    async def stopped(self) -> None:
        """Replaces nothing: rows are missing that a job from the savepoint will give."""

    async def finish(self) -> None:
        files, self._uncommitted = self._uncommitted, []
        await self._run(partial(self._replace, files))

    def _replace(self, files: Sequence[DataFile]) -> None:
        table, writer = self._table, self._writer_id
        assert table is not None
        if table.committed(writer) is not None:
            return
        ctx = self.ctx
        newest = max((file.epoch for file in files), default=1)
        item = Committable(ctx.job_id, ctx.uid, ctx.attempt, newest, 0, 1, newest)
        try:
            table.replace(writer, newest, properties(item), files)
        except LostRaceError as err:
            if table.committed(writer) is not None:
                return
            raise ConnectorError(
                "the table was changed by another while DELETE or UPDATE ran",
                expected="the version whose rows the statement has read",
                got=str(err),
                where=f"connector '{ctx.options['connector']}'",
                remedy="run the statement again; nothing was changed",
            ) from None

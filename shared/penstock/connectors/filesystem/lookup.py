"""Loads the rows of all files of a table, for lookup joins that keep the whole table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.connectors.base import LookupSource, TableInfo
from penstock.connectors.filesystem.opening import open_files
from penstock.connectors.filesystem.parts import part_reader
from penstock.connectors.filesystem.settings import OPTIONS
from penstock.connectors.filesystem.source import FileEnumerator
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from penstock.connectors.base import SourceContext


class FileLookup(LookupSource):
    """The lookup of a table of files, which is read whole."""

    def __init__(self, table: TableInfo) -> None:
        self._table = table
        self._path: str = OPTIONS.read(table.options)["path"]

    async def open(self, ctx: SourceContext) -> None:
        self.ctx = ctx
        self._schema = ctx.schema.select(ctx.projection)
        self._files, _ = await ctx.run(lambda: open_files(self._path, self._table.options))

    async def load(self) -> Batch:
        """The rows of all present files; the next load sees files that come later."""
        batches = [Batch.empty(self._schema)]
        for split in await FileEnumerator(self._table).discover(self.ctx, set()):
            reader = part_reader(self.ctx, self._table, self._files, split.payload)
            async for block in reader.blocks(None):
                batches.append(block.decode())
        return Batch.concat([Batch(self._schema, b.columns, num_rows=b.num_rows) for b in batches])

"""INSERT OVERWRITE and TRUNCATE TABLE: the new files are hidden until the input has ended; then they replace the old files. In a
partitioned table they replace only the files of the written partitions.

Each subtask deletes the files that are not the job's own, and makes its own visible. Both steps can be
repeated, so a restart in between has the same result. Before these steps readers see the old rows; during
them readers see some old and some new rows, because a file system has no transaction over many files.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from penstock.connectors.filesystem.committables import PendingFile, decoded
from penstock.connectors.filesystem.paths import join
from penstock.connectors.filesystem.sink import FileSink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.connectors.base import SourceContext, TableInfo


class OverwritingFileSink(FileSink):
    """The sink of INSERT OVERWRITE: old files are replaced when the job has ended."""

    def __init__(self, table: TableInfo) -> None:
        super().__init__(table)
        self._rolling = replace(self._rolling, grows=False)  # all files stay hidden until the end anyway

    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        await super().open(ctx, ())
        self._uncommitted = [item for item in decoded(restored) if isinstance(item, PendingFile)]

    async def commit(self, checkpoint_id: int) -> None:
        """Commits nothing yet: the committables pass from checkpoint to checkpoint until the end."""

    def needs_commit(self) -> bool:
        """Always true, even if the subtask wrote no row, because the old files must be deleted."""
        return True

    async def stopped(self) -> None:
        """Replaces nothing: rows are missing that a job from the savepoint will give."""

    async def finish(self) -> None:
        await self.ctx.run(self._delete_others)
        await self._show(self._uncommitted)
        if self._commits is not None:
            await self.ctx.run(partial(self._tell, sorted(self._written())))
        self._uncommitted = []
        await self.ctx.run(self._sweep)

    def _delete_others(self) -> None:
        own = f"{self._options['sink.part-prefix']}-{self._tag}-"
        for folder in self._replaced():
            for info in self._files.list(folder):
                if not info.path.rsplit("/", 1)[1].startswith(own):
                    self._files.delete(info.path)

    def _replaced(self) -> set[str]:
        """The folders whose old files are replaced: the table's folder, or in INSERT OVERWRITE of a partitioned table
        the folders of the written partitions and of the partition that PARTITION names, even if no row came."""
        if self._partitioning is None or self._options["sink.truncate"]:
            return {self._folder}
        folders = {join(self._folder, folder) for folder in self._written()}
        static = self._options["sink.static-partition"]
        if static is not None:
            texts = msgspec.json.decode(static, type=tuple[str | None, ...])
            folders.add(join(self._folder, self._partitioning.folder(texts)))
        return folders

    def _written(self) -> set[str]:
        """The partitions that rows were written into."""
        return {
            item.final.removeprefix(self._folder).strip("/").rpartition("/")[0] for item in self._uncommitted
        }

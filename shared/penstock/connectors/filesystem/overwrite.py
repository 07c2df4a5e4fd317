"""INSERT OVERWRITE: the new files are hidden until the input has ended, then replace the others; of a
partitioned table those in the partitions that are written.

Each subtask deletes what is not the job's own and shows its files; both are repeatable, so a
restart in between ends in the same. Until then readers see the old rows, during it some of
both: a file system has no transaction over many files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.connectors.filesystem.paths import join
from penstock.connectors.filesystem.sink import FileSink, PendingFile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.connectors.base import SourceContext


class OverwritingFileSink(FileSink):
    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        await super().open(ctx, ())
        self._uncommitted = [msgspec.json.decode(item, type=PendingFile) for item in restored]

    async def commit(self, checkpoint_id: int) -> None:
        """Nothing yet: the committables go from checkpoint to checkpoint until the end."""

    def needs_commit(self) -> bool:
        """Also without a row of its own: the others' must go."""
        return True

    async def finish(self) -> None:
        await self.ctx.run(self._delete_others)
        await self._rename(self._uncommitted)
        self._uncommitted = []
        await self.ctx.run(self._sweep)

    def _delete_others(self) -> None:
        own = f"part-{self._tag}-"
        for folder in self._replaced():
            for info in self._files.list(folder):
                if not info.path.rsplit("/", 1)[1].startswith(own):
                    self._files.delete(info.path)

    def _replaced(self) -> set[str]:
        """The table's folder, of a partitioned table the partitions that are written; the one that
        PARTITION names also when no row came."""
        if self._partitioning is None:
            return {self._folder}
        folders = {item.final.rpartition("/")[0] for item in self._uncommitted}
        static = self._options["sink.static-partition"]
        if static is not None:
            texts = msgspec.json.decode(static, type=tuple[str | None, ...])
            folders.add(join(self._folder, self._partitioning.folder(texts)))
        return folders

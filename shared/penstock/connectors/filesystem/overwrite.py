"""INSERT OVERWRITE: the new files are hidden until the input has ended, then they replace the others; in a
partitioned table those of the partitions that are written.

Each subtask deletes the files that are not the job's own, and shows its own. Both can be repeated, so a
restart in between has the same result. Before that readers see the old rows, and while it happens some of
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
    """The sink of INSERT OVERWRITE: old files are replaced when the job has ended."""

    async def open(self, ctx: SourceContext, restored: Sequence[bytes]) -> None:
        await super().open(ctx, ())
        self._uncommitted = [msgspec.json.decode(item, type=PendingFile) for item in restored]

    async def commit(self, checkpoint_id: int) -> None:
        """Commits nothing yet: the committables go from checkpoint to checkpoint until the end."""

    def needs_commit(self) -> bool:
        """True also without a row of its own, because the other files must be deleted."""
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
        """The table's folder; of a partitioned table the folders of the partitions that are written, and of
        the partition that PARTITION names, also if no row came."""
        if self._partitioning is None:
            return {self._folder}
        folders = {item.final.rpartition("/")[0] for item in self._uncommitted}
        static = self._options["sink.static-partition"]
        if static is not None:
            texts = msgspec.json.decode(static, type=tuple[str | None, ...])
            folders.add(join(self._folder, self._partitioning.folder(texts)))
        return folders

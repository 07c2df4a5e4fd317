"""When the filesystem sink closes a file and shows it: by size, by age, and when no more rows come.

Files of lines can be continued: with a time in the rolling policy they outlive checkpoints, as a list of hidden parts.
Every other file ends at each barrier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.connectors.filesystem.committables import GrowingFile

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

POLICY = "sink.rolling-policy."
TIMES = (f"{POLICY}rollover-interval", f"{POLICY}inactivity-interval")


@dataclass(frozen=True, slots=True)
class RollingPolicy:
    """``size``: bytes at which a file is closed. ``rollover_ms``: its greatest age; ``inactivity_ms``: its greatest age
    since its last row; None: no such bound. ``check_ms``: how often ages are looked at between barriers. ``grows``:
    files outlive barriers."""

    size: int
    rollover_ms: int | None
    inactivity_ms: int | None
    check_ms: int
    grows: bool

    @classmethod
    def of(cls, options: Mapping[str, Any], *, lines: bool) -> RollingPolicy:
        """The policy of a table's typed options. ``lines``: its files consist of lines."""
        rollover, inactivity = (options[key] for key in TIMES)
        size = options[f"{POLICY}file-size"]
        if options["auto-compaction"]:
            size = options["compaction.file-size"] or size
        timed = rollover is not None or inactivity is not None
        return cls(size, rollover, inactivity, options[f"{POLICY}check-interval"], lines and timed)

    @property
    def timed(self) -> bool:
        """Whether the age of a file matters."""
        return self.rollover_ms is not None or self.inactivity_ms is not None

    def old(self, created_ms: int, written_ms: int, now_ms: int) -> bool:
        """Whether a file of this age must be closed."""
        return (self.rollover_ms is not None and now_ms - created_ms >= self.rollover_ms) or (
            self.inactivity_ms is not None and now_ms - written_ms >= self.inactivity_ms
        )


class GrowingFiles:
    """The growing files of a writer: one for each partition, and those that a checkpoint brought from other writers."""

    def __init__(self, policy: RollingPolicy) -> None:
        self._policy = policy
        self._by_folder: dict[str, GrowingFile] = {}
        #: Files that nobody continues; they end at the next barrier.
        self._adopted: list[GrowingFile] = []

    def __bool__(self) -> bool:
        return bool(self._by_folder or self._adopted)

    def adopt(self, files: Iterable[GrowingFile]) -> None:
        """Take the growing files of a checkpoint. They end at the next barrier, because another writer may continue their
        partition."""
        self._adopted += files

    def get(self, folder: str) -> GrowingFile | None:
        """The partition's growing file."""
        return self._by_folder.get(folder)

    def before_rows(self, folder: str, now_ms: int) -> None:
        """Rows of the partition come now: they do not continue a file whose time is over."""
        file = self._by_folder.get(folder)
        if file is not None and self._policy.old(file.created_ms, file.written_ms, now_ms):
            self._adopted.append(self._by_folder.pop(folder))

    def add(self, part: GrowingFile) -> GrowingFile:
        """Continue the partition's growing file with a part; the file that it is now."""
        before = self._by_folder.get(part.folder)
        if before is not None:
            part = msgspec.structs.replace(
                part, parts=before.parts + part.parts, size=before.size + part.size, created_ms=before.created_ms
            )  # fmt: skip
        self._by_folder[part.folder] = part
        return part

    def end(self, folder: str) -> GrowingFile:
        """The partition's growing file, which ends here."""
        return self._by_folder.pop(folder)

    def ripe(self, now_ms: int, folders: Collection[str], *, all_of_them: bool) -> list[GrowingFile]:
        """The files that end at this barrier: those from other writers, those of ``folders``, and the old ones; or all."""
        out, self._adopted = self._adopted, []
        for folder, file in list(self._by_folder.items()):
            old = file.size >= self._policy.size or self._policy.old(file.created_ms, file.written_ms, now_ms)
            if all_of_them or folder in folders or old:
                out.append(self._by_folder.pop(folder))
        return out

    def all(self) -> list[GrowingFile]:
        """The files that go on growing."""
        return [*self._adopted, *self._by_folder.values()]

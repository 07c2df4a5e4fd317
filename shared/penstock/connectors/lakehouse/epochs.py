"""Makes one commit for each checkpoint, by one of the writers, and never twice.

Each writer closes its files at the barrier and stores a *note* that names all its files that no commit holds yet.
The note is durable before the checkpoint is acknowledged. When the checkpoint is complete, the writer with the
lowest index among those that have notes commits the files of all of them. The commit carries a mark in the table's
own log: (the sink's id, the checkpoint). A writer that is to commit a checkpoint reads the mark first:

- The mark is at the checkpoint or later: everything up to the mark is in the table, and nothing is done.
- The mark is earlier: files of later epochs than the mark's are committed with the new mark, on condition
  that the log is still as it was read. Another commit in between (of a twin, a zombie, another job) makes this
  one fail; then the mark is read again.

A note may hold files of epochs that are committed already, because the writer may not know yet; the mark
tells which. The order in which commits of different checkpoints run therefore does not matter. A writer that
does not commit waits for the committing one, and takes over when that one does not report in time.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from penstock.connectors.lakehouse.table import DataFile, LostRaceError, MissingFileError
from penstock.errors import ConnectorError, ExternalError
from penstock.log_events import EventLog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from penstock.connectors.lakehouse.table import LakeTable

_log = EventLog("penstock.connectors.lakehouse")

#: ``LakeTable.commit`` without files to remove.
Commit: TypeAlias = "Callable[[str, int, dict[str, str], Sequence[DataFile]], None]"

#: The most races that one commit may lose before it fails the attempt of the job.
_MOST_RACES = 40
_PAUSE_S = 0.05
#: How often a writer looks for the committer's note before it commits itself.
_PATIENCE = 200


class Committable(msgspec.Struct, frozen=True):
    """One writer's part of a checkpoint. ``newest``: the latest epoch of its files; ``files``: set only if
    all committables are given to one writer."""

    job_id: str
    uid: str
    attempt: int
    checkpoint_id: int
    subtask_index: int
    parallelism: int
    newest: int
    files: list[DataFile] | None = None

    @property
    def writer_id(self) -> str:
        """The sink's id in the table's log."""
        return writer_id(self.job_id, self.uid)

    def note(self, subtask_index: int) -> str:
        """The key of a writer's note of this checkpoint."""
        return f"{self.writer_id}/{self.attempt:06d}-{self.checkpoint_id:010d}-{subtask_index:05d}"

    @property
    def done(self) -> str:
        """The key of the note that says that this checkpoint is committed."""
        return f"{self.writer_id}/{self.attempt:06d}-{self.checkpoint_id:010d}-done"


def writer_id(job_id: str, uid: str) -> str:
    """The id of a job's sink."""
    return "penstock-" + hashlib.sha256(f"{job_id}/{uid}".encode()).hexdigest()[:20]


def lacking(files: Sequence[DataFile], mark: int | None, checkpoint_id: int) -> list[DataFile]:
    """The files up to ``checkpoint_id`` that a table with this mark lacks."""
    after = -1 if mark is None else mark
    return [file for file in files if after < file.epoch <= checkpoint_id]


class Epochs:
    """Commits checkpoints of one table. ``run``: calls a blocking function in the helper thread. ``commit``: makes the
    commit of the files that the table lacks, as ``LakeTable.commit``; its files may include notes with keys."""

    def __init__(
        self,
        table: LakeTable,
        run: Callable[[Callable[[], Any]], Awaitable[Any]],
        commit: Commit | None = None,
    ) -> None:
        self._table = table
        self._run = run
        self._keyed = commit is not None
        self._make: Commit = commit or table.commit

    def store(self, item: Committable, files: Sequence[DataFile]) -> None:
        """Make a writer's note durable. Blocks."""
        self._table.put_note(item.note(item.subtask_index), msgspec.msgpack.encode(list(files)))

    async def restored(self, items: Sequence[Committable]) -> None:
        """Commit everything in the restored checkpoint, whichever writer staged it, before anything is
        written."""
        groups: dict[Committable, list[DataFile] | None] = {}
        for item in items:
            inline = groups.setdefault(_group(item), None if item.files is None else [])
            if inline is not None:
                inline += item.files or ()
        for group in sorted(groups, key=lambda item: item.checkpoint_id):
            await self._commit(group, groups[group])

    async def complete(self, item: Committable) -> bool:
        """The checkpoint is complete. When this returns, its files are in the table. Returns True if this
        writer committed them."""
        committer = await self._run(lambda: self._committer(item))
        if committer == item.subtask_index:
            committed = await self._commit(item)
            if item.parallelism > 1:
                await self._run(lambda: self._table.put_note(item.done, b""))
            return committed
        for _ in range(_PATIENCE):
            if await self._run(lambda: self._table.get_note(item.done)) is not None:
                return False
            await asyncio.sleep(_PAUSE_S)
        _log.warning("lakehouse_commit_taken_over", checkpoint=item.checkpoint_id, writer=item.writer_id)
        return await self._commit(item)

    def forget(self, items: Sequence[Committable], *, done: bool = True) -> None:
        """Delete the notes of checkpoints that are in the table. ``done``: delete the notes that say
        "committed", too, because no writer waits for them any more. Blocks."""
        for item in items:
            self._forget_keys(item)
            self._table.delete_note(item.note(item.subtask_index))
            if done and item.parallelism > 1:
                self._table.delete_note(item.done)

    def _forget_keys(self, item: Committable) -> None:
        if not self._keyed:
            return
        files = item.files
        if files is None:
            data = self._table.get_note(item.note(item.subtask_index))
            files = [] if data is None else msgspec.msgpack.decode(data, type=list[DataFile])
        for file in files:
            if file.deletes:
                self._table.delete_note(file.path)

    def _committer(self, item: Committable) -> int:
        for index in range(item.subtask_index):
            if self._table.get_note(item.note(index)) is not None:
                return index
        return item.subtask_index

    def _gathered(self, item: Committable, mark: int | None) -> list[DataFile]:
        found: list[DataFile] = []
        for index in range(item.parallelism):
            data = self._table.get_note(item.note(index))
            if data is not None:
                found += msgspec.msgpack.decode(data, type=list[DataFile])
            elif index == item.subtask_index and (mark is None or mark < item.newest):
                # A note whose files were all committed with an earlier checkpoint may have been deleted.
                # A twin deletes its note after its commit: a mark that has moved since it was read explains the gap.
                if self._table.committed(item.writer_id) != mark:
                    raise LostRaceError
                raise _gone(item)
        return found

    def _try(self, item: Committable, inline: list[DataFile] | None) -> bool:
        mark = self._table.committed(item.writer_id)
        if mark is not None and mark >= item.checkpoint_id:
            return False
        files = self._gathered(item, mark) if inline is None else inline
        ready = lacking(files, mark, item.checkpoint_id)
        if ready:
            try:
                self._make(item.writer_id, item.checkpoint_id, properties(item), ready)
            except MissingFileError as err:
                # A twin deletes notes after its commit, as above.
                if self._table.committed(item.writer_id) != mark:
                    raise LostRaceError from None
                raise _gone(item, err.path) from None
        return bool(ready)

    async def _commit(self, item: Committable, inline: list[DataFile] | None = None) -> bool:
        refused = ""
        for race in range(_MOST_RACES):
            try:
                return bool(await self._run(lambda: self._try(item, inline)))
            except LostRaceError as err:
                _log.debug("lakehouse_race_lost", checkpoint=item.checkpoint_id, error=err)
                refused = str(err)
                # The random pause keeps competing writers from colliding again.
                await asyncio.sleep(_PAUSE_S * min(race + 1, 20) * (0.5 + random.random()))
        raise ExternalError(
            f"none of {_MOST_RACES} commits to the table succeeded",
            expected="a commit between those of other writers",
            got=refused or "another commit each time",
            where=f"checkpoint {item.checkpoint_id}",
            remedy="look into the catalog's log; if other writers are faster, let fewer jobs write into the table, "
            "or make their checkpoints rarer",
        )


def _group(item: Committable) -> Committable:
    """The item that represents its checkpoint: the one whose note certainly exists. Items with inline files
    form one group."""
    if item.files is None:
        return item
    return msgspec.structs.replace(item, files=None, attempt=0, subtask_index=0, parallelism=0, newest=0)


def properties(item: Committable) -> dict[str, str]:
    """What a commit tells readers of the table's log about its job."""
    return {
        "penstock.job-id": item.job_id,
        "penstock.operator-id": item.uid,
        "penstock.checkpoint-id": str(item.checkpoint_id),
    }


def _gone(item: Committable, path: str = "") -> ConnectorError:
    error = ConnectorError(
        "output that was ready to be committed is gone",
        expected=f"{path or 'the note ' + item.note(item.subtask_index)} beside the table",
        got="no such object, and the table's log has no commit of this checkpoint",
        where=f"checkpoint {item.checkpoint_id}",
        remedy="restore it, or start the job anew; nothing but this job may delete its notes",
    )
    error.retryable = True  # the file may come back, for example if its folder was not mounted
    return error

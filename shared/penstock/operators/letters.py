"""The dead letters of one operator in one subtask, between two checkpoints.

A letter goes to the job's object store, from which the command line lists and replays it, and, if the job names a table
for them (``table.exec.dead-letter.table``), to the side output ``dead-letters``, as a row. Objects are written before
their checkpoint is acknowledged, and confirmed once it is complete: a letter whose checkpoint never completes is written
again by the next attempt, and only confirmed letters can be replayed.

State: the lists ``letters`` (rows that were not emitted before the barrier) and ``letter-objects`` (objects to confirm).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import RecordError
from penstock.jobgraph.letters import LETTER_SCHEMA
from penstock.messages.layout import confirmed_letters_key, dead_letters_key
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Generator

    from penstock.operators.operator import OperatorContext
    from penstock.ports import Store
    from penstock.snapshots.contract import OperatorSnapshot, PendingItems, RestoredState

#: The most dead letters in memory between two checkpoints. With more the task fails, because it may lose none.
MAX_DEAD_LETTERS = 10_000
#: The most bytes of all their records. A letter holds its record whole, so that it can be sent again.
MAX_DEAD_LETTER_BYTES = 64 << 20
#: The most bytes of a record that a dead letter shows as text.
MAX_TEXT_BYTES = 4096


class Letter(msgspec.Struct, kw_only=True):
    """A dead letter, as the object store holds it.

    ``message``: what its source needs to read the record again. ``kept``: why the letter cannot be replayed; empty: it
    can be.
    """

    operator: str
    where: str
    error: str
    record: str | None = None
    raw: bytes | None = msgspec.field(name="bytes", default=None)
    time_ms: int
    message: dict[str, Any] | None = None
    kept: str = ""


class Letters:
    """Keeps the letters of one operator. ``to_table``: the operator has the side output for them."""

    def __init__(self, ctx: OperatorContext, store: Store, *, to_table: bool) -> None:
        self._ctx = ctx
        self._store = store
        self._to_table = to_table
        self._unwritten: list[bytes] = []
        self._bytes = 0
        self._objects = 0
        #: Rows for the side output that were not emitted yet.
        self._rows: list[bytes] = []
        #: Rows that the snapshot of a checkpoint under way has: those that come after its barrier, and of rows before it.
        self._cuts: dict[int, list[bytes]] = {}
        #: Set while a sink works on rows that it took before: its letters then belong to the checkpoints under way.
        self.of_earlier_rows = False
        #: Names of objects → the checkpoint that confirms them.
        self._unconfirmed: dict[str, int] = {}

    def restore(self, restored: RestoredState) -> None:
        """Takes over what a checkpoint holds: rows to emit, and objects that it confirms."""
        self._rows = list(restored.lists.get("letters", []))
        names = restored.lists.get("letter-objects", [])
        self._unconfirmed = dict.fromkeys((name.decode() for name in names), restored.checkpoint_id)

    def add(self, letter: Letter, error: BaseException) -> None:
        """Keeps a letter about ``error``. RecordError if there are too many since the last checkpoint."""
        self._bytes += len(letter.raw or b"")
        if len(self._unwritten) >= MAX_DEAD_LETTERS or self._bytes > MAX_DEAD_LETTER_BYTES:
            raise RecordError(
                "too many bad records since the last checkpoint",
                expected=f"at most {MAX_DEAD_LETTERS}, with at most {MAX_DEAD_LETTER_BYTES} bytes",
                where=f"{self._ctx.name}: {letter.where}",
                got=letter.error,
                remedy="this is no longer the odd bad record: check the format of the input",
            ) from error
        encoded = msgspec.json.encode(letter)
        self._unwritten.append(encoded)
        if self._to_table:
            self._rows.append(encoded)
            if self.of_earlier_rows:
                for cut in self._cuts.values():
                    cut.append(encoded)

    # -- the side output -----------------------------------------------------------------------

    def take(self) -> Batch | None:
        """The letters as rows of ``LETTER_SCHEMA`` that were not taken yet; None: there are none."""
        if not self._rows:
            return None
        rows, self._rows = self._rows, []
        ctx = self._ctx
        found = [msgspec.json.decode(row, type=Letter) for row in rows]
        stamped = [
            (
                ctx.job_id,
                ctx.uid,
                x.operator,
                ctx.subtask_index,
                x.where,
                x.error,
                x.record,
                x.raw,
                x.time_ms * 1000,
            )
            for x in found
        ]
        return Batch.of(LETTER_SCHEMA, stamped)

    # -- checkpoints ---------------------------------------------------------------------------

    def cut(self, checkpoint_id: int, snapshot: OperatorSnapshot) -> None:
        """Makes the letters part of the operator's ``snapshot``. Those that its asynchronous work adds belong to it, too."""
        self._cuts[checkpoint_id] = list(self._rows)
        snapshot.pending = _Durable(self, checkpoint_id, snapshot.pending)

    async def durable(self, checkpoint_id: int, pending: PendingItems | None) -> dict[str, list[bytes]]:
        """The list items of the checkpoint, once its letters are in the object store."""
        items = dict(await pending) if pending is not None else {}
        await self.write(checkpoint_id)
        items["letters"] = self._cuts.pop(checkpoint_id, [])
        items["letter-objects"] = [name.encode() for name in self._unconfirmed]
        return items

    def forget(self, checkpoint_id: int) -> None:
        """The snapshot of the checkpoint is not wanted any more."""
        self._cuts.pop(checkpoint_id, None)

    async def write(self, checkpoint_id: int) -> None:
        """Writes the letters to the object store; the checkpoint ``checkpoint_id`` will confirm them."""
        letters, self._unwritten, self._bytes = self._unwritten, [], 0
        if letters:
            ctx = self._ctx
            name = f"{ctx.attempt:06d}-{ctx.subtask_index:05d}-{self._objects:08d}"
            self._objects += 1
            await self._store.put(dead_letters_key(ctx.job_id, ctx.uid, name), b"\n".join(letters) + b"\n")
            self._unconfirmed[name] = checkpoint_id

    async def confirm(self, checkpoint_id: int) -> None:
        """The checkpoint is complete: what was written for it may be replayed. May be repeated."""
        done = [name for name, at in self._unconfirmed.items() if at <= checkpoint_id]
        ctx = self._ctx
        await asyncio.gather(
            *(self._store.create(confirmed_letters_key(ctx.job_id, ctx.uid, name), b"") for name in done)
        )
        for name in done:
            self._unconfirmed.pop(name, None)


class _Durable:
    """The pending items of an operator with its letters. ``close`` without an await also closes the operator's own part."""

    def __init__(self, letters: Letters, checkpoint_id: int, inner: PendingItems | None) -> None:
        self._letters, self._checkpoint_id, self._inner = letters, checkpoint_id, inner
        self._items = letters.durable(checkpoint_id, inner)

    def __await__(self) -> Generator[Any, Any, dict[str, list[bytes]]]:
        return self._items.__await__()

    def close(self) -> None:
        self._items.close()
        self._letters.forget(self._checkpoint_id)
        if self._inner is not None:
            self._inner.close()

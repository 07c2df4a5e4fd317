"""A source that is a function of the program: a generator, or any callable that gives an iterable.

It runs in a thread of its own, so that it may block without stopping its slot. A checkpoint holds how far the rows that
went out reach: their number, and a restart calls the function again and passes over as many; or, of a function that takes
one argument, the position that it gave with the last of them.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.columnar.emitted import fixer
from penstock.columnar.python_values import columns_of
from penstock.errors import SnapshotError
from penstock.operators.drivers import SourceDriver
from penstock.operators.operator import MIN_WATERMARK
from penstock.operators.user_code import RuntimeContext, UserFunction
from penstock.snapshots.contract import OperatorSnapshot
from penstock.types import pickling
from penstock.types.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jobgraph.specs import FunctionSourceSpec
    from penstock.operators.operator import OperatorContext
    from penstock.snapshots.contract import RestoredState

#: The thread waits while so many rows have not been taken.
_AHEAD = 32_768
#: How often (s) a thread that waits looks whether the source has been closed.
_LOOK_S = 0.1


class _Saved(msgspec.Struct):
    """The state: the number of rows, or the function's own position, pickled."""

    rows: int
    position: bytes | None = None
    version: int = 1


class FunctionSourceOperator(SourceDriver):
    """Emits what the function gives, in subtask 0. State: the list ``position``."""

    def __init__(self, spec: FunctionSourceSpec) -> None:
        super().__init__()
        self._spec = spec
        self._saved = _Saved(0)
        self._position: Any = None
        self._items: deque[Any] = deque()
        self._room = threading.Event()
        self._waiting = False
        self._closing = False
        self._stopped = False
        self._over = False
        self._failure: BaseException | None = None

    def open(self, ctx: OperatorContext, restored: RestoredState | None) -> None:
        super().open(ctx, restored)
        self._news = asyncio.Event()
        if ctx.subtask_index:
            self._over = True
            return
        if restored is not None and (found := restored.lists.get("position")):
            self._saved = self._read(found[0])
        self._function = self.hold(UserFunction(ctx, self._spec.function))
        self._fixed = fixer(ctx.output_schema)
        self._function.open(RuntimeContext(ctx))

    def _read(self, item: bytes) -> _Saved:
        where = f"source '{self.ctx.name}'"
        try:
            saved = msgspec.msgpack.decode(item, type=_Saved)
        except msgspec.MsgspecError as err:
            raise SnapshotError("a source's position cannot be read", got=str(err), where=where) from err
        if saved.rows and self._spec.positions != (saved.position is not None):
            raise SnapshotError(
                "a source function takes a position now and took none before, or the other way round",
                expected="a function with one argument"
                if saved.position is not None
                else "a function without arguments",
                got="the other one",
                where=where,
                remedy="give the source another uid: it then begins anew",
            )
        if saved.position is not None:
            self._position = pickling.loads(saved.position)
        return saved

    async def start(self) -> None:
        if self.ctx.subtask_index == 0:
            self._loop = asyncio.get_running_loop()
            threading.Thread(target=self._produce, name=f"source {self.ctx.name}", daemon=True).start()

    async def stop(self) -> None:
        self._closing = True
        self._room.set()

    # -- in the thread ----------------------------------------------------------------------

    def _produce(self) -> None:
        try:
            rows = self._rows()
            for item in rows:
                if self._closing:
                    break
                self._items.append(item)
                if self._waiting:
                    self._tell()
                while len(self._items) >= _AHEAD and not self._closing:
                    self._room.clear()
                    if len(self._items) >= _AHEAD:
                        self._room.wait(_LOOK_S)
        except BaseException as err:
            self._failure = err
        self._over = True
        if not self._closing:
            self._tell()

    def _rows(self) -> Iterator[Any]:
        """The records, each with the position behind it if the function gives positions."""
        call, fixed = self._function.method("run"), self._fixed
        if self._spec.positions:
            for record, position in call(self._position):
                yield (record if fixed is None else fixed(record)), pickling.dumps(position)
            return
        passed = self._saved.rows
        for number, record in enumerate(call()):
            if number >= passed:
                yield record if fixed is None else fixed(record)

    def _tell(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._news.set)
        except RuntimeError:
            self._closing = True  # the slot has ended

    # -- on the data thread -----------------------------------------------------------------

    def poll(self) -> Batch | None:
        if self._stopped:
            return None
        items = self._items
        taken = [items.popleft() for _ in range(min(len(items), self.budget.rows))]
        if not taken:
            if self._failure is not None:
                raise self._function.error(self._failure, None, "source function")
            return None
        if not self._room.is_set():
            self._room.set()
        self._saved.rows += len(taken)
        if self._spec.positions:
            self._saved.position = taken[-1][1]
            taken = [record for record, _ in taken]
        schema = self.ctx.output_schema
        return Batch(schema, columns_of(schema, taken, self._function.where), num_rows=len(taken))

    async def wait(self) -> None:
        self._news.clear()
        self._waiting = True
        # The thread may have been done, or have added a row, just before it could see that somebody waits.
        if not self._items and not self._over:
            await self._news.wait()
        self._waiting = False

    def position(self, now_ms: int) -> tuple[int, bool]:
        return MIN_WATERMARK, False

    def ended(self) -> bool:
        return self._stopped or (self._over and not self._items and self._failure is None)

    def stop_reading(self) -> None:
        self._stopped = True

    def snapshot(self, checkpoint_id: int) -> OperatorSnapshot:
        if self.ctx.subtask_index:
            return OperatorSnapshot()
        return OperatorSnapshot(lists={"position": [msgspec.msgpack.encode(self._saved)]})

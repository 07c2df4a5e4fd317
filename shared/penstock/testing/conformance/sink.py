"""The conformance kit of sinks: checks each guarantee with a crash at each step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.testing.conformance.base import leaves_nothing, same_rows
from penstock.testing.conformance.connector import ConnectorConformance
from penstock.testing.conformance.driving import Driver, crash
from penstock.types.batch import Batch, RowKind

if TYPE_CHECKING:
    from penstock.connectors.base import Connector, SinkWriter
    from penstock.types.logical import Schema

Rows = Sequence[tuple[Any, ...]]

#: The steps of an epoch, in order. ``complete``: the checkpoint is complete, but the engine has not told the
#: writer yet.
STEPS = ("write", "cut", "durable", "complete", "commit")


@dataclass
class _Model:
    """The engine's knowledge: the last completed checkpoint, its committables, and the number of epochs
    before it."""

    epochs: int = 0
    committables: list[bytes] = field(default_factory=list)
    #: Epochs whose commit has returned.
    committed: int = 0
    next_id: int = 1
    attempt: int = 0


class SinkConformance(ConnectorConformance):
    """Checks a sink: a crash after each step of each epoch, repeated commits, checkpoints that never
    complete, rescaling, and resources left open.

    The author gives ``connector``, ``schema``, ``options`` (an empty table, another one each time),
    ``visible`` (the rows that a reader of the table sees
    now) and, if needed, ``epochs`` (rows of different epochs
    must differ). A sink that takes upserts gives ``key`` too: the columns of its primary key.
    """

    schema: Schema
    role = "sink"
    #: Indices of the primary key's columns; None: rows are appended.
    key: Sequence[int] | None = None
    #: False if several writers cannot share one table.
    several_writers = True

    def connector(self) -> Connector:
        """A new object of the connector."""
        raise NotImplementedError

    def options(self) -> Mapping[str, str]:
        """The options of a new, empty table, ``connector`` among them."""
        raise NotImplementedError

    async def visible(self, options: Mapping[str, str]) -> Rows:
        """The rows that a reader of the table sees at this moment."""
        raise NotImplementedError

    def epochs(self) -> Sequence[Rows]:
        """The rows of three epochs."""
        raise NotImplementedError

    def changes(self) -> Sequence[Sequence[tuple[RowKind, tuple[Any, ...]]]]:
        """The changes of each epoch, for a table with a key. By default each row is an insert."""
        return [[(RowKind.INSERT, row) for row in rows] for rows in self.epochs()]

    # -- checks -----------------------------------------------------------------------------

    def test_the_table_is_accepted(self) -> None:
        connector, table = self.connector(), self._table(self.options())
        connector.validate(table, role="sink")
        modes = connector.sink_modes(table)
        assert ("append" if self.key is None else "upsert") in modes, f"sink_modes is {modes}"

    def test_without_a_crash_every_row_arrives(self) -> None:
        self._run(crashes=())

    def test_a_crash_behind_each_step_keeps_the_guarantee(self) -> None:
        epochs = range(len(self.changes()))
        for epoch in epochs[1:2] if self._in_helpers() else epochs:
            for step in STEPS:
                self._run(crashes=((epoch, step),))

    def test_two_crashes_keep_the_guarantee(self) -> None:
        """The second crash comes after the recovery from the first has committed again."""
        for step in STEPS:
            self._run(crashes=((1, "complete"), (1, step)))
            if not self._in_helpers():
                self._run(crashes=((1, "durable"), (1, step)))

    def test_a_commit_may_be_repeated(self) -> None:
        async def check(driver: Driver, options: Mapping[str, str]) -> None:
            writer = await self._writer(driver, _Model(attempt=1))
            writer.write(self._batch(self.changes()[0]))
            committables = await writer.begin_checkpoint(1)
            await writer.commit(1)
            await writer.commit(1)
            await writer.close()
            again = driver.connector.writer(driver.table)
            await again.open(self._context(driver, attempt=2), committables)
            await again.commit(1)
            await again.close()
            await self._check(
                options, 1, exactly=self._exactly_once(driver), what="one epoch committed three times"
            )

        self._on_a_new_table(check)

    def test_an_epoch_whose_checkpoint_never_completes_belongs_to_the_next(self) -> None:
        async def check(driver: Driver, options: Mapping[str, str]) -> None:
            writer = await self._writer(driver, _Model(attempt=1))
            for checkpoint_id, changes in enumerate(self.changes()[:2], 1):
                writer.write(self._batch(changes))
                await writer.begin_checkpoint(checkpoint_id)
            await writer.commit(2)
            await writer.close()
            await self._check(options, 2, exactly=self._exactly_once(driver), what="checkpoint 1 was aborted")

        self._on_a_new_table(check)

    def test_rows_behind_the_cut_belong_to_the_next_epoch(self) -> None:
        async def check(driver: Driver, options: Mapping[str, str]) -> None:
            if not self._exactly_once(driver):
                return
            first, second = self.changes()[:2]
            writer = await self._writer(driver, _Model(attempt=1))
            writer.write(self._batch(first))
            cut = writer.begin_checkpoint(1)
            writer.write(self._batch(second))
            await cut
            await writer.commit(1)
            await self._check(options, 1, exactly=True, what="rows were written between cut and commit")
            await writer.begin_checkpoint(2)
            await writer.commit(2)
            await writer.close()
            await self._check(options, 2, exactly=True, what="then the second epoch was committed")

        self._on_a_new_table(check)

    def test_committables_move_to_other_writers(self) -> None:
        """Two writers stop after a completed checkpoint, and one writer restores the committables of both;
        then the reverse."""
        if not self.several_writers:
            return

        async def check(driver: Driver, options: Mapping[str, str]) -> None:
            first, second = self.changes()[:2]
            committables: list[bytes] = []
            for index, changes in enumerate((first, second)):
                writer = await self._writer(driver, _Model(attempt=1), subtask_index=index)
                writer.write(self._batch(changes))
                committables += await writer.begin_checkpoint(1)
                await self._crash(writer)
            one = driver.connector.writer(driver.table)
            await one.open(self._context(driver, attempt=2), committables)
            await one.close()
            exactly = self._exactly_once(driver)
            await self._check(options, 2, exactly=exactly, what="one writer restored what two had staged")
            for index in range(2):
                writer = driver.connector.writer(driver.table)
                await writer.open(
                    self._context(driver, attempt=3, subtask_index=index), committables[index::2]
                )
                await writer.close()
            await self._check(options, 2, exactly=exactly, what="two writers restored it again")

        self._on_a_new_table(check, parallelism=2)

    def test_an_idle_writer_needs_no_commit(self) -> None:
        async def check(driver: Driver, options: Mapping[str, str]) -> None:
            writer = await self._writer(driver, _Model(attempt=1))
            writer.write(self._batch(self.changes()[0]))
            await writer.begin_checkpoint(1)
            await writer.commit(1)
            if self._exactly_once(driver):
                assert not writer.needs_commit(), "needs_commit is True when everything is committed"
            await writer.finish()
            await writer.close()

        self._on_a_new_table(check)

    def test_closing_in_the_middle_leaves_nothing_behind(self) -> None:
        async def check(driver: Driver, options: Mapping[str, str]) -> None:
            async def cycle() -> None:
                writer = await self._writer(driver, _Model(attempt=1))
                writer.write(self._batch(self.changes()[0]))
                await writer.close()

            await leaves_nothing(cycle, "a writer that is closed in the middle of an epoch")
            if self._exactly_once(driver):
                same_rows(list(await self.visible(options)), [], "closed without a commit")

        self._on_a_new_table(check)

    # -- the model --------------------------------------------------------------------------

    def _run(self, crashes: Sequence[tuple[int, str]]) -> None:
        """Run all epochs, with a crash after each (epoch, step) of ``crashes`` in turn."""

        async def check(driver: Driver, options: Mapping[str, str]) -> None:
            model, waiting = _Model(), list(crashes)
            total = len(self.changes())
            while model.committed < total:
                model.attempt += 1
                writer = await self._writer(driver, model)
                model.committed = model.epochs
                await self._while_running(driver, options, model, f"crashes {crashes}: restored")
                if not await self._attempt(driver, options, model, writer, waiting, crashes):
                    await self._crash(writer)
                    continue
                await writer.finish()
                await writer.close()
            await self._check(
                options, total, exactly=self._exactly_once(driver), what=f"crashes {list(crashes)}"
            )

        self._on_a_new_table(check)

    async def _attempt(
        self,
        driver: Driver,
        options: Mapping[str, str],
        model: _Model,
        writer: SinkWriter,
        waiting: list[tuple[int, str]],
        crashes: Sequence[tuple[int, str]],
    ) -> bool:
        """Run one attempt from the last completed checkpoint; returns False when it ends in a crash."""
        for epoch in range(model.epochs, len(self.changes())):
            checkpoint_id, model.next_id = model.next_id, model.next_id + 1
            cut: Any = None
            committables: list[bytes] = []
            for step in STEPS:
                match step:
                    case "write":
                        if not writer.ready():
                            await writer.wait_ready()
                        writer.write(self._batch(self.changes()[epoch]))
                    case "cut":
                        cut = asyncio.ensure_future(writer.begin_checkpoint(checkpoint_id))
                    case "durable":
                        committables = await cut
                    case "complete":
                        model.epochs, model.committables = epoch + 1, committables
                    case "commit":
                        await writer.commit(checkpoint_id)
                        model.committed = epoch + 1
                await self._while_running(driver, options, model, f"crashes {list(crashes)}: behind '{step}'")
                if waiting and waiting[0] == (epoch, step):
                    waiting.pop(0)
                    if cut is not None and not cut.done():
                        cut.cancel()
                        await asyncio.gather(cut, return_exceptions=True)
                    return False
        return True

    async def _while_running(
        self, driver: Driver, options: Mapping[str, str], model: _Model, what: str
    ) -> None:
        seen = list(await self.visible(options))
        if self._exactly_once(driver):
            committed = self._final(model.committed)
            later = self._final(max(model.committed, model.epochs))
            if sorted(map(repr, seen)) != sorted(map(repr, later)):
                same_rows(seen, committed, what)
        else:
            missing = (
                [row for row in self._final(model.epochs) if row not in seen] if self.key is None else []
            )
            assert not missing, f"{what}: rows of a completed checkpoint are not there: {missing[:3]}"

    async def _check(self, options: Mapping[str, str], epochs: int, *, exactly: bool, what: str) -> None:
        seen, want = list(await self.visible(options)), self._final(epochs)
        if exactly or self.key is not None:
            same_rows(seen, want, what)
            return
        missing = [row for row in want if row not in seen]
        assert not missing, f"{what}: {len(missing)} rows are lost, e.g. {missing[0]}"
        foreign = [row for row in seen if row not in want]
        assert not foreign, f"{what}: {len(foreign)} rows were never written, e.g. {foreign[0]}"

    def _final(self, epochs: int) -> list[tuple[Any, ...]]:
        """The rows of the table after ``epochs`` epochs."""
        if self.key is None:
            return [row for changes in self.changes()[:epochs] for _, row in changes]
        table: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        for changes in self.changes()[:epochs]:
            for kind, row in changes:
                at = tuple(row[i] for i in self.key)
                if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER):
                    table[at] = row
                else:
                    table.pop(at, None)
        return list(table.values())

    # -- driving ----------------------------------------------------------------------------

    def _exactly_once(self, driver: Driver) -> bool:
        return driver.connector.sink_guarantee(driver.table) == "exactly-once"

    def _batch(self, changes: Sequence[tuple[RowKind, tuple[Any, ...]]]) -> Batch:
        rows = [row for _, row in changes]
        if self.key is None:
            return Batch.of(self.schema, rows)
        return Batch.of(self.schema, rows, [kind for kind, _ in changes])

    def _context(self, driver: Driver, **more: Any) -> Any:
        mode = "append" if self.key is None else "upsert"
        return driver.context(pushed={"mode": mode, "keys": list(self.key or ())}, **more)

    async def _writer(self, driver: Driver, model: _Model, *, subtask_index: int = 0) -> SinkWriter:
        writer = driver.connector.writer(driver.table)
        context = self._context(driver, attempt=model.attempt, subtask_index=subtask_index)
        before = asyncio.all_tasks()
        await writer.open(context, list(model.committables))
        self._tasks = asyncio.all_tasks() - before
        return writer

    def _in_helpers(self) -> bool:
        """Whether each writer runs in a helper process. Starting one takes time, so fewer crashes are tried
        then."""
        return self.connector().runs == "helper"

    async def _crash(self, writer: SinkWriter) -> None:
        await crash(writer, list(self._tasks))

    def _on_a_new_table(
        self, check: Callable[[Driver, Mapping[str, str]], Any], *, parallelism: int = 1
    ) -> None:
        options = self.options()
        driver = Driver(self.connector(), self._table(options), parallelism)

        async def driven() -> None:
            await check(driver, options)

        try:
            self.within_patience(driven())
        finally:
            driver.helper.close()

"""The conformance kit of sources."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import PenstockError
from penstock.testing.conformance.base import leaves_nothing, same_rows
from penstock.testing.conformance.connector import ConnectorConformance
from penstock.testing.conformance.data_thread import (
    measured_in_passes,
)
from penstock.testing.conformance.driving import (
    BadRecords,
    Driver,
    Figures,
    all_rows,
    by_split,
    json_round_trip,
    measured,
    read_to_end,
)
from penstock.testing.conformance.reading import reading_faults

if TYPE_CHECKING:
    from penstock.connectors.base import Connector, Split
    from penstock.types.logical import Schema

T = TypeVar("T")
Rows = Sequence[tuple[Any, ...]]

#: The greatest number of positions at which a restore is tried; they are spread over the rows.
_MOST_POSITIONS = 64
_MOST_POSITIONS_IN_HELPERS = 5


@dataclass(frozen=True)
class BadTable:
    """A table with bad records: its options, the rows that are good, and how many records are bad."""

    options: Mapping[str, str]
    good: Rows
    bad: int


class SourceConformance(ConnectorConformance):
    """Checks a source: splits, restore at every row, rescaling, projection, end, idleness, bad records,
    resources left open, and the use of the data thread. Restores are not checked for an at-most-once source.

    The author gives ``connector``, ``schema``, ``options`` (a bounded table of two splits or more, with
    some tens of rows or more; the same rows whenever it is read) and ``expected`` (its rows, in any order).
    Optional: ``bad`` and, for unbounded sources, ``live_options`` with ``publish``.
    """

    #: The table's columns.
    schema: Schema
    #: The cost of reading through the helper process, as measured by a check; None before that check, and for
    #: connectors without helper processes.
    figures: Figures | None = None
    #: False for a source that has only one split.
    many_splits = True
    #: The number of subtasks among which the table is split.
    parallelism = 2

    def connector(self) -> Connector:
        """A new object of the connector."""
        raise NotImplementedError

    def options(self) -> Mapping[str, str]:
        """The options of a bounded table, ``connector`` among them. Called once a check."""
        raise NotImplementedError

    def expected(self) -> Rows:
        """The rows of the table that ``options`` describes."""
        raise NotImplementedError

    def bad(self) -> BadTable | None:
        """A table with bad records; None if the source cannot have any."""
        return None

    def live_options(self) -> Mapping[str, str] | None:
        """The options of an unbounded table without rows; None if all tables are bounded."""
        return None

    async def publish(self, options: Mapping[str, str], rows: Rows) -> None:
        """Publish ``rows`` to the table of ``live_options``, which is given as ``options``."""
        raise NotImplementedError

    # -- splits -----------------------------------------------------------------------------

    def test_the_table_is_accepted_and_bounded(self) -> None:
        connector, table = self.connector(), self._table()
        connector.validate(table, role="source")
        assert connector.is_bounded(table), "is_bounded is False for the table of options()"

    def test_splits_are_the_same_in_every_discovery(self) -> None:
        async def check(driver: Driver) -> None:
            first, second = await driver.splits(), await driver.splits()
            ids = [s.id for s in first]
            assert len(set(ids)) == len(ids), f"two splits have one id: {ids}"
            assert first == second, "a second discovery gives other splits or another order"
            assert await driver.splits(known=ids) == [], "a split that is known is discovered again"
            assert len(ids) > 1 or not self.many_splits, "the table has one split: the kit needs two or more"

        self._drive(check)

    def test_every_row_comes_once(self) -> None:
        async def check(driver: Driver) -> None:
            got = all_rows(await driver.read(await driver.splits()))
            same_rows(got, list(self.expected()), "read from start to end")

        self._drive(check)

    def test_a_batch_has_at_most_batch_rows(self) -> None:
        async def check(driver: Driver) -> None:
            for taken in await driver.read(await driver.splits(), batch_rows=3):
                assert len(taken.rows) <= 3, f"{len(taken.rows)} rows although batch_rows is 3"

        self._drive(check)

    # -- positions --------------------------------------------------------------------------

    def test_a_restore_at_every_row_goes_on_exactly_there(self) -> None:
        async def check(driver: Driver) -> None:
            if not _goes_back(driver):
                return
            splits = await driver.splits()
            straight = await driver.read(splits, batch_rows=1, snapshots=True)
            want = by_split(straight)
            most = _MOST_POSITIONS_IN_HELPERS if driver.in_helpers else _MOST_POSITIONS
            step = max(1, len(straight) // most)
            for end in range(0, len(straight), step):
                before = by_split(straight[: end + 1])
                after = by_split(await driver.read(straight[end].snapshot, attempt=2))
                for split_id, rows in want.items():
                    got = before.get(split_id, []) + after.get(split_id, [])
                    assert got == rows, (
                        f"restored behind row {end + 1}: split '{split_id}' gives "
                        f"{_difference(got, rows)} (position {_position(straight[end].snapshot, split_id)})"
                    )

        self._drive(check)

    def test_a_snapshot_names_every_split_and_changes_nothing(self) -> None:
        async def check(driver: Driver) -> None:
            splits = await driver.splits()
            reader = await driver.reader(splits, batch_rows=2)
            try:
                while True:
                    first, second = json_round_trip(reader.snapshot()), json_round_trip(reader.snapshot())
                    assert first == second, "two snapshots without a poll in between differ"
                    ids = sorted(s.id for s in first)
                    assert ids == sorted(s.id for s in splits), f"the snapshot has splits {ids}"
                    if reader.poll() is None:
                        if reader.finished_splits() >= set(ids):
                            return
                        await reader.wait()
            finally:
                await reader.close()

        self._drive(check)

    def test_splits_move_to_other_readers(self) -> None:
        """The splits are rescaled from one reader to three and back to one."""

        async def check(driver: Driver) -> None:
            if not _goes_back(driver):
                return
            taken, splits = await driver.read_some(await driver.splits())
            shares: list[list[Split]] = [[], [], []]
            for i, split in enumerate(splits):
                shares[i % 3].append(split)
            moved: list[Split] = []
            for index, share in enumerate(shares):
                if share:
                    more, left = await driver.read_some(share, subtask_index=index, attempt=2)
                    taken += more
                    moved += left
            taken += await driver.read(moved, attempt=3)
            same_rows(all_rows(taken), list(self.expected()), "one reader, then three, then one")

        self._drive(check)

    # -- columns ----------------------------------------------------------------------------

    def test_only_the_projected_columns_come(self) -> None:
        async def check(driver: Driver) -> None:
            splits, width = await driver.splits(), len(self.schema)
            choices = [[], *[[i] for i in range(width)], list(reversed(range(width)))]
            for projection in choices:
                got = all_rows(await driver.read(splits, projection=projection))
                want = [tuple(row[i] for i in projection) for row in self.expected()]
                same_rows(got, want, f"columns {[self.schema.names[i] for i in projection]}")

        self._drive(check)

    # -- end and idleness --------------------------------------------------------------------

    def test_a_bounded_source_ends_and_stays_ended(self) -> None:
        async def check(driver: Driver) -> None:
            splits = await driver.splits()
            reader = await driver.reader(splits)
            try:
                await read_to_end(reader)
                ids = {s.id for s in splits}
                assert reader.finished_splits() == ids, "finished_splits lacks a split at the end"
                for split_id in ids:
                    assert reader.caught_up(split_id), f"split '{split_id}' is finished, but not caught up"
                assert reader.poll() is None, "rows come behind the end"
                pending = reader.pending_records()
                assert pending in (None, 0), f"pending_records is {pending} at the end"
                final = json_round_trip(reader.snapshot())
            finally:
                await reader.close()
            again = await driver.read(final, attempt=2)
            assert not all_rows(again), "a restored finished split gives rows again"

        self._drive(check)

    def test_no_split_is_caught_up_before_its_last_row(self) -> None:
        """Otherwise event time would overtake the remaining rows."""

        async def check(driver: Driver) -> None:
            splits = await driver.splits()
            reader = await driver.reader(splits, batch_rows=5)
            claimed: dict[str, int] = {}
            count = 0
            try:
                while True:
                    fetched = reader.poll()
                    if fetched is not None:
                        early = claimed.get(fetched.split_id)
                        assert early is None, (
                            f"split '{fetched.split_id}' was caught up behind row {early} of the source, "
                            "and then gave rows"
                        )
                        count += len(fetched.batch)
                        pending = reader.pending_records()
                        assert pending is None or pending >= 0, f"pending_records is {pending}"
                        claimed.update({s.id: count for s in splits if reader.caught_up(s.id)})
                    elif reader.finished_splits() >= {s.id for s in splits}:
                        return
                    else:
                        await reader.wait()
            finally:
                await reader.close()

        self._drive(check)

    def test_an_unbounded_source_waits_for_rows_and_delivers_them(self) -> None:
        options = self.live_options()
        if options is None:
            return

        async def check(driver: Driver) -> None:
            assert not driver.connector.is_bounded(driver.table), "is_bounded is True for live_options()"
            expected = list(self.expected())
            half = len(expected) // 2
            known: dict[str, Split] = {}
            reader = await driver.reader([])
            taken: list[tuple[Any, ...]] = []
            try:
                for rows in (expected[:half], expected[half:]):
                    await self.publish(options, rows)
                    want = len(taken) + len(rows)
                    while len(taken) < want:
                        found = await driver.splits(known=list(known))
                        known.update({s.id: s for s in found})
                        if found:
                            reader.add_splits(found)
                        fetched = reader.poll()
                        if fetched is not None:
                            taken += fetched.batch.to_pylist()
                        elif known:
                            await _briefly(reader.wait())
                    while (fetched := reader.poll()) is not None:
                        taken += fetched.batch.to_pylist()
            finally:
                await reader.close()
            same_rows(taken, expected, "published in two halves")

        self._drive(check, options)

    # -- bad records -------------------------------------------------------------------------

    def test_bad_records_go_the_way_of_the_policy(self) -> None:
        table = self.bad()
        if table is None:
            return

        async def check(driver: Driver) -> None:
            splits = await driver.splits()
            skipped = BadRecords("skip")
            got = all_rows(await driver.read(splits, bad=skipped))
            same_rows(got, list(table.good), "with bad records left out")
            assert len(skipped.kept) == table.bad, f"{len(skipped.kept)} bad records, not {table.bad}"
            for error, _, where in skipped.kept:
                assert where, f"a bad record without its place: {error}"
            try:
                await driver.read(splits)
            except PenstockError:
                return
            raise AssertionError("with the policy 'fail' a bad record raises nothing")

        self._drive(check, table.options)

    # -- resources ---------------------------------------------------------------------------

    def test_closing_in_the_middle_leaves_nothing_behind(self) -> None:
        async def check(driver: Driver) -> None:
            splits = await driver.splits()

            async def cycle() -> None:
                reader = await driver.reader(splits, batch_rows=1)
                reader.poll()
                await reader.close()

            await leaves_nothing(cycle, "a reader that is closed in the middle")

        self._drive(check)

    def test_waiting_can_be_cancelled(self) -> None:
        async def check(driver: Driver) -> None:
            splits = await driver.splits()

            async def cycle() -> None:
                reader = await driver.reader(splits)
                await read_to_end(reader)
                waiting = asyncio.ensure_future(reader.wait())
                await asyncio.sleep(0)
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
                await reader.close()

            await leaves_nothing(cycle, "a reader whose wait was cancelled")

        self._drive(check)

    def test_it_runs_as_it_declares(self) -> None:
        """``loop``: the source does not call the helper thread, does not wait, and never uses the data thread
        for long. ``native``: the source may also call the helper thread, but such a call neither holds the
        interpreter's lock nor runs Python for long. CPU time and lines are measured, so a busy machine does
        not change the result."""

        def one_pass() -> dict[str, str]:
            wrong: dict[str, str] = {}

            async def check(driver: Driver) -> None:
                wrong.update(await reading_faults(driver))

            self._drive(check)
            return wrong

        measured_in_passes(one_pass)

    def test_the_helper_process_is_measured(self) -> None:
        """For a connector that runs in helper processes: measures the cost of reading through one
        (``figures``)."""
        if self.connector().runs != "helper":
            return

        async def check(driver: Driver) -> None:
            self.figures = await measured(driver, await driver.splits())
            assert self.figures.rows == len(self.expected()), f"{self.figures.rows} rows were measured"

        self._drive(check)


def _goes_back(driver: Driver) -> bool:
    """Whether the source reads rows again after a failure."""
    return not driver.connector.source_guarantee(driver.table).startswith("at-most-once")


def _difference(got: Rows, want: Rows) -> str:
    for i, (a, b) in enumerate(zip(got, want, strict=False)):
        if a != b:
            return f"{a} as its row {i + 1}, not {b}"
    return f"{len(got)} rows, not {len(want)}"


def _position(splits: Sequence[Split], split_id: str) -> Any:
    return next((s.position for s in splits if s.id == split_id), None)


async def _briefly(waiting: Awaitable[None]) -> None:
    """Wait only briefly, so that new splits are still discovered."""
    try:
        await asyncio.wait_for(waiting, 0.05)
    except TimeoutError:
        return

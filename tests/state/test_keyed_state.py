"""The three stores of keyed state, through the kit of their port."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.jobgraph.specs import SortKey
from penstock.state.backends import make_backend
from penstock.state.blocks import KeyLayout
from penstock.state.cells import NumberCells, RowCells
from penstock.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.state.key_space import KeySpace
from penstock.state.keyed_state import KeyedState
from penstock.state.pane_space import Pane, PaneSpace
from penstock.state.ranked_rows import RankedRows
from penstock.state.slot_table import CellTable
from penstock.state.states import Scope
from penstock.state.waiting_order import WaitingOrder
from penstock.state.waiting_rows import WaitingRows
from penstock.state.window_keys import WindowKeySpace
from penstock.testing.conformance import KeyedStateConformance
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.column import Column

BIG, STR = t.BigIntType(), t.VarCharType()
SCHEMA = t.Schema((t.Field("key", BIG), t.Field("value", BIG)))


def longs(values: list[int]) -> Column:
    return Column.of(BIG, values)


class TestSlotTable(KeyedStateConformance):
    """One row a key."""

    def make(self, ctx: Any) -> KeyedState:
        space = KeySpace(ctx, [BIG], kind="kit", ttl_ms=self.ttl_ms)
        self.columns = getattr(self, "columns", {})
        cells = NumberCells("sum", BIG), RowCells(["text"], [STR])
        self.columns[id(space)] = CellTable(space, "rows", cells), *cells
        return space

    ttl_ms = 0

    def setup_method(self) -> None:
        super().setup_method()
        self.columns: dict[int, Any] = {}

    def write(self, store: Any, keys: list[int], value: int) -> None:
        table, sums, texts = self.columns[id(store)]
        with table.touch([longs(keys)], len(keys)) as rows:
            sums.values[rows.slots] = 3 * sums.values[rows.slots] + value
            texts.merge(rows.slots, [Column.of(STR, [f"{k}:{value}" for k in keys])])


class TestSlotTableOnDisk(TestSlotTable):
    limit_bytes = 2_000


class TestSlotTableWithTimeToLive(TestSlotTable):
    limit_bytes, ttl_ms = 2_000, 1_000


class TestManyRowsOnDisk(KeyedStateConformance):
    """Many rows a key."""

    limit_bytes = 8_000

    def setup_method(self) -> None:
        super().setup_method()
        self.tables: dict[int, RankedRows] = {}

    def make(self, ctx: Any) -> KeyedState:
        space = KeySpace(ctx, [BIG], kind="kit")
        self.tables[id(space)] = RankedRows(space, "rows", SCHEMA, [0])
        return space

    def write(self, store: Any, keys: list[int], value: int) -> None:
        table = self.tables[id(store)]
        with store.touch([longs(keys)], len(keys)) as touched:
            known, _ = table.rows_of(touched.slots)
            places = np.bincount(known, minlength=len(keys))
            table.add(touched.slots, [longs(keys), longs([value] * len(keys))], places)


class TestPanes(KeyedStateConformance):
    """One row a key and pane."""

    def setup_method(self) -> None:
        super().setup_method()
        self.columns: dict[int, Any] = {}

    def make(self, ctx: Any) -> KeyedState:
        space = PaneSpace(
            ctx, [BIG], kind="kit", pane_names=["pane_start"],
            make_pane=lambda pane_id, run: Pane(pane_id, run, end=run[0] + 10, last_end=run[0] + 10),
        )  # fmt: skip
        sums = NumberCells("sum", BIG)
        self.columns[id(space)] = CellTable(space, "rows", [sums]), sums
        return space

    def write(self, store: Any, keys: list[int], value: int) -> None:
        table, sums = self.columns[id(store)]
        panes = longs([10 * (k % 3) for k in keys])
        with table.touch([longs(keys), panes], len(keys)) as rows:
            sums.values[rows.slots] = 3 * sums.values[rows.slots] + value
        with table.touch([longs(keys), longs([50] * len(keys))], len(keys)) as rows:
            sums.values[rows.slots] += value


class TestPanesOnDisk(TestPanes):
    limit_bytes = 4_000


class TestWindows(KeyedStateConformance):
    """Keys that each belong to one window."""

    def setup_method(self) -> None:
        super().setup_method()
        self.columns: dict[int, Any] = {}

    def make(self, ctx: Any) -> KeyedState:
        space = WindowKeySpace(ctx, [BIG, BIG, BIG], (0,), (1, 2), kind="kit", stored_bounds=True)
        sums = NumberCells("sum", BIG)
        self.columns[id(space)] = CellTable(space, "rows", [sums]), sums
        return space

    def write(self, store: Any, keys: list[int], value: int) -> None:
        table, sums = self.columns[id(store)]
        for start in (0, 10 + 10 * (value % 2)):
            bounds = longs([start] * len(keys)), longs([start + 10] * len(keys))
            with table.touch([*bounds, longs(keys)], len(keys)) as rows:
                sums.values[rows.slots] = 3 * sums.values[rows.slots] + value


class TestWindowsOnDisk(TestWindows):
    limit_bytes = 4_000


class TestKeyStore(KeyedStateConformance):
    """Objects by key, also in windows, and timers."""

    kind = "hashmap"

    def setup_method(self) -> None:
        super().setup_method()
        self.states: dict[int, Any] = {}

    def make(self, ctx: Any) -> KeyedState:
        backend = make_backend(
            self.kind, KeyLayout((BIG,), ctx.max_parallelism), now_ms=ctx.now_ms, uid="op",
            local_dir=ctx.local_dir, epochs=ctx.epochs, memory=ctx.memory, cache_entries=16,
        )  # fmt: skip
        scope = Scope()
        timed = ValueStateDescriptor("timed", BIG)
        timed.enable_time_to_live(StateTtlConfig(ttl_ms=1_000))
        self.states[id(backend)] = (
            scope,
            backend.state(ValueStateDescriptor("sum", BIG)),
            backend.state(ListStateDescriptor("list", BIG)),
            backend.state(MapStateDescriptor("map", BIG, STR)),
            backend.state(timed),
            backend.state(ListStateDescriptor("windowed", BIG), scope=scope, namespaced=True),
        )
        return backend

    def write(self, store: Any, keys: list[int], value: int) -> None:
        scope, total, items, entries, timed, windowed = self.states[id(store)]
        store.begin_batch(keys)
        for key in keys:
            store.scope.key, scope.key = key, (key, (0, 10 * (value % 2)))
            total.update(3 * (total.value() or 0) + value)
            items.add(value)
            entries.put(value, str(key))
            timed.update(value)
            windowed.add(value)
            store.event_timers.register(100 + value, key)
            store.processing_timers.register(200, key)
        store.end_batch()

    def test_timers_of_masked_keys_do_not_fire(self) -> None:
        one = self._filled()
        of_group = {k for k in range(200) if store_group(k) <= 50}
        one.store.mask(self.second())
        fired = {key for _, key in one.store.event_timers.due(1_000)}  # type: ignore[attr-defined]
        assert fired == of_group

    @staticmethod
    def second() -> Any:
        from penstock.state.key_groups import KeyGroups

        return KeyGroups.range(51, 127, 128)


def store_group(key: int) -> int:
    return KeyLayout((BIG,), 128).group_of(key)


class TestKeyStoreLevelDB(TestKeyStore):
    kind = "leveldb"


class TestLog(KeyedStateConformance):
    """Rows that wait until they are due."""

    def make(self, ctx: Any) -> KeyedState:
        order = WaitingOrder(
            lambda rows: rows.columns[1:], (SortKey(0),), lambda rows: rows.columns[1].values
        )
        return WaitingRows(ctx, "rows", SCHEMA, [0], order, kind="kit")

    def write(self, store: Any, keys: list[int], value: int) -> None:
        store.add(Batch(SCHEMA, [longs(keys), longs([10 * value + k % 7 for k in keys])]))

    def test_rows_of_masked_keys_are_never_due(self) -> None:
        from penstock.state.key_groups import KeyGroups

        one = self._filled()
        list(one.store.due(5))  # type: ignore[attr-defined]
        one.store.mask(KeyGroups.range(51, 127, 128))
        due = [k for batch in one.store.due(None) for k, _ in batch.to_pylist()]  # type: ignore[attr-defined]
        assert due
        assert max(map(store_group, due)) <= 50
        assert not len(one.store)  # type: ignore[arg-type]


class TestLogOnDisk(TestLog):
    limit_bytes = 6_000

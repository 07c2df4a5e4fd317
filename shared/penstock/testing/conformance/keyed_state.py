"""The conformance kit of stores of keyed state: moving key groups, reading the state from outside, cuts."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.columnar.hashing import hash_columns, key_groups
from penstock.errors import InternalError
from penstock.messages.slot import StateHandle, StateLink
from penstock.metrics import MetricGroup
from penstock.snapshots.contract import OperatorSnapshot
from penstock.snapshots.restoring import restore
from penstock.snapshots.writing import write_snapshot
from penstock.state.epochs import Epochs
from penstock.state.key_groups import KeyGroups
from penstock.state.keyed_state import collected, enumerate_keys
from penstock.state.memory import StateMemory
from penstock.testing.conformance.base import Conformance
from penstock.types import logical as t
from penstock.types.column import Column

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from penstock.snapshots.contract import RestoredState
    from penstock.state.keyed_state import KeyedState, StateRows

_LONG = t.BigIntType()
_KEYS = range(200)
_GROUPS = 128
#: Two ranges that together are all 128 key groups.
_FIRST, _SECOND = KeyGroups.range(0, 50, _GROUPS), KeyGroups.range(51, 127, _GROUPS)


class ManualContext:
    """A ``StateContext``: takes the place of the store's operator. ``now``: processing time, ms; ``wakes``:
    the times at which the store asked to be woken."""

    name, max_parallelism = "kit", _GROUPS

    def __init__(self, folder: Path, limit_bytes: int = 0) -> None:
        self.metrics, self.local_dir, self.epochs = MetricGroup(), folder, Epochs()
        self.memory = _Unfailing(limit_bytes)
        self.now, self.wakes = 0, list[int]()

    def now_ms(self) -> int:
        """Processing time, ms since the epoch."""
        return self.now

    def wake_at(self, at_ms: int) -> None:
        """Record that the store wants to be woken at ``at_ms``."""
        self.wakes.append(at_ms)


class _Unfailing(StateMemory):
    """State memory that never fails. The kit sets a limit of a few hundred bytes so that a store evicts; a
    real limit of that size would make the store fail."""

    def check(self) -> None:
        """Do nothing, instead of failing above the limit."""


class KeyedStateConformance(Conformance):
    """Checks a store of keyed state (``penstock.state.keyed_state.KeyedState``) whose key is one BIGINT.

    The author gives ``make`` and ``write``. ``limit_bytes``, for a store that evicts rows to disk, must be so
    small that most of 200 keys are evicted."""

    limit_bytes = 0

    def setup_method(self) -> None:
        super().setup_method()
        self._stores: list[_Driven] = []

    def teardown_method(self) -> None:
        for driven in self._stores:
            driven.store.close()
        self._stores.clear()
        super().teardown_method()

    def make(self, ctx: Any) -> KeyedState:
        """A new, empty store with its states declared and nothing restored."""
        raise NotImplementedError

    def write(self, store: KeyedState, keys: list[int], value: int) -> None:
        """Write one batch of distinct keys: change the state of each key, depending on its present state and
        on ``value``. Two stores with the same writes must have equal rows."""
        raise NotImplementedError

    # -- looking ---------------------------------------------------------------------------------

    def test_export_gives_all_rows_of_its_groups_and_changes_nothing(self) -> None:
        one = self._filled()
        if self.limit_bytes:
            assert one.store.on_disk > 0, "no row lies on disk: choose a smaller limit_bytes"
        on_disk = one.store.on_disk
        everything, first, second = one.rows(), one.rows(_FIRST), one.rows(_SECOND)
        assert everything, "export gives no rows"
        assert first + second == everything, "two halves of the key groups are not the whole"
        for part in one.store.export(_FIRST):
            found = key_groups(hash_columns(part.key_columns(one.store.key_types)), _GROUPS)
            assert max(found.tolist()) <= 50, f"rows of the groups {set(found.tolist())} were exported"
            assert part.name in one.store.state_names, f"'{part.name}' is not among state_names"
        assert one.store.on_disk == on_disk, "export moved rows between memory and disk"
        one.confirm()
        list(one.store.export(_SECOND))
        assert one.delta_rows() == 0, "export is a change"

    def test_lookup_gives_all_rows_of_its_keys(self) -> None:
        one = self._filled()
        asked = [7, 10_000, 3, 150]
        found = _counted(one.store.lookup([Column.of(_LONG, asked)], len(asked)))
        whole = Counter({row: n for row, n in one.rows().items() if row[1] in asked})
        assert found == whole, f"lookup gave {found}, export {whole}"

    def test_each_key_is_listed_once(self) -> None:
        one = self._filled()
        for groups in (_FIRST, _SECOND):
            [keys] = zip(*enumerate_keys(one.store, groups), strict=True)
            listed = [k for part in keys for k in part.to_pylist()]
            assert sorted(listed) == _of(groups, _KEYS), "enumerate_keys lacks keys, or repeats some"

    # -- key groups that move ------------------------------------------------------------------------

    def test_key_groups_move(self) -> None:
        giver, taker, whole = self._filled(), self._driven(), self._filled()
        giver.hand_over(taker, _SECOND)
        assert giver.rows(_FIRST) == whole.rows(_FIRST), "the giver's own rows changed"
        assert taker.rows() == whole.rows(_SECOND), "the taker has other rows than the giver had"
        for value in (5, 6):
            for driven, groups in ((giver, _FIRST), (taker, _SECOND)):
                driven.write(_of(groups, _KEYS), value)
            whole.write(list(_KEYS), value)
        assert giver.rows(_FIRST) + taker.rows() == whole.rows(), "they went on differently"

    def test_what_is_masked_is_refused(self) -> None:
        one = self._filled()
        one.store.mask(_SECOND)
        for dropped in (False, True):
            _refused(lambda: one.write(_of(_SECOND, _KEYS)[:1], 1), "a batch with a masked key")
            _refused(lambda: list(one.store.export(_SECOND)), "export of masked groups")
            key = Column.of(_LONG, _of(_SECOND, _KEYS)[:1])
            _refused(lambda key=key: list(one.store.lookup([key], 1)), "lookup of a masked key")
            if not dropped:
                one.drop()

    def test_rows_are_freed_in_slices_while_other_keys_are_written(self) -> None:
        one, whole = self._filled(), self._filled()
        one.store.mask(_SECOND)
        assert not one.store.drop(lambda: False), "drop frees though it must not"
        value, own = 10, _of(_FIRST, _KEYS)
        while not one.store.drop(iter([True, False]).__next__):
            value += 1
            one.write(own, value)
            whole.write(own, value)
        assert one.rows(_FIRST) == whole.rows(_FIRST)

    def test_groups_that_come_back(self) -> None:
        one, two, whole = self._filled(), self._driven(), self._filled()
        one.hand_over(two, _SECOND)
        two.write(_of(_SECOND, _KEYS), 9)
        two.hand_over(one, _SECOND)
        whole.write(_of(_SECOND, _KEYS), 9)
        assert one.rows() == whole.rows()
        assert not two.rows(_FIRST)

    # -- checkpoints -----------------------------------------------------------------------------------

    def test_restored_from_a_checkpoint(self) -> None:
        one = self._filled()
        one.confirm()
        one.write([3, 500], 8)
        one.confirm()
        for groups in ((0, 50), (51, 127)):
            again = self._driven(one.restored(groups))
            expected = one.rows(KeyGroups.range(*groups, _GROUPS))
            assert again.rows() == expected, f"the groups {groups} are not what they were"

    def test_deltas_after_key_groups_moved(self) -> None:
        giver, taker, whole = self._filled(), self._driven(), self._filled()
        taker.write([], 0)
        for driven in (giver, taker):
            driven.confirm()
        giver.hand_over(taker, _SECOND, drop=False)
        for driven, groups in ((giver, _FIRST), (taker, _SECOND)):
            assert driven.confirm() > 0, "the delta does not know that key groups moved"
            again = self._driven(driven.restored())
            assert again.rows() == whole.rows(groups), "a restored store has other rows"
            driven.write(_of(groups, _KEYS)[::3], 4)
            driven.confirm()
            again = self._driven(driven.restored())
            assert again.rows() == driven.rows(groups)

    def test_a_cut_holds_what_was_masked_after_it(self) -> None:
        one, whole = self._filled(), self._filled()
        cut = one.begin()
        one.store.mask(_SECOND)
        one.drop()
        one.write(_of(_FIRST, _KEYS), 3)
        one.complete(cut)
        assert self._driven(one.restored()).rows() == whole.rows(), "the cut lacks rows that went after it"

    def test_random_moves(self) -> None:
        """Several stores write, exchange key groups, take checkpoints and are restored; together they must
        have the rows of one store that got all writes."""
        for seed in range(3):
            chance = random.Random(seed)
            whole, stores = self._driven(), [self._driven() for _ in range(3)]
            owned = [KeyGroups.range(*x, _GROUPS) for x in ((0, 42), (43, 85), (86, 127))]
            for i in range(3):
                stores[i].store.mask(KeyGroups.all(_GROUPS) - owned[i])
            for step in range(25):
                match chance.randrange(5):
                    case 0 | 1:
                        keys = chance.sample(range(60), 20)
                        whole.write(keys, step)
                        for driven, groups in zip(stores, owned, strict=True):
                            driven.write(_of(groups, keys), step)
                    case 2:
                        giver, taker = chance.sample(range(3), 2)
                        moved = KeyGroups(chance.sample(list(owned[giver]), len(owned[giver]) // 2), _GROUPS)
                        stores[giver].hand_over(stores[taker], moved, drop=chance.random() < 0.5)
                        owned[giver], owned[taker] = owned[giver] - moved, owned[taker] | moved
                    case 3:
                        stores[chance.randrange(3)].confirm()
                    case 4:
                        i = chance.randrange(3)
                        stores[i].confirm()
                        stores[i] = self._driven(stores[i].restored())
                        stores[i].store.mask(KeyGroups.all(_GROUPS) - owned[i])
            got: Counter[Any] = Counter()
            for driven, groups in zip(stores, owned, strict=True):
                got += driven.rows(groups)
            assert got == whole.rows(), f"the stores of seed {seed} have other rows than one store"

    # -- how they are driven ---------------------------------------------------------------------------

    def _filled(self) -> _Driven:
        driven = self._driven()
        for value in range(3):
            driven.write(list(_KEYS)[value:], value)
        return driven

    def _driven(self, restored: RestoredState | None = None) -> _Driven:
        ctx = ManualContext(self.folder / str(len(self._stores)), self.limit_bytes)
        store = self.make(ctx)
        store.restore(restored)
        driven = _Driven(self, ctx, store)
        self._stores.append(driven)
        return driven


class _Driven:
    """A store with its epochs and the chain of its checkpoints."""

    def __init__(self, kit: KeyedStateConformance, ctx: ManualContext, store: KeyedState) -> None:
        self.kit, self.ctx, self.store = kit, ctx, store
        self._links: list[StateLink] = []
        self._upto = 0

    def write(self, keys: list[int], value: int) -> None:
        if keys:
            self.kit.write(self.store, keys, value)

    def rows(self, groups: KeyGroups | None = None) -> Counter[Any]:
        return _counted(self.store.export(groups or KeyGroups.all(_GROUPS)))

    def drop(self) -> None:
        while not self.store.drop(iter([True, True, False]).__next__):
            pass

    def hand_over(self, taker: _Driven, groups: KeyGroups, *, drop: bool = True) -> None:
        moved = collected(self.store.export(groups))
        self.store.mask(groups)
        taker.store.absorb(groups, moved)
        if drop:
            self.drop()

    def begin(self) -> OperatorSnapshot:
        self._upto = self.ctx.epochs.begin(self.ctx.epochs.confirmed)
        return OperatorSnapshot(keyed=self.store.cut())

    def complete(self, cut: OperatorSnapshot) -> int:
        """Write a checkpoint and confirm it. Returns the number of rows that it adds or removes."""
        number = len(self._links) + 1
        blocks = [cut.block(name) for name in cut.keyed]
        data = write_snapshot(
            {"u": OperatorSnapshot(keyed=dict(zip(cut.keyed, blocks, strict=True)))},
            checkpoint_id=number, key_groups=(0, _GROUPS - 1),
        )  # fmt: skip
        self.ctx.epochs.confirmed = self._upto
        self._links.insert(0, StateLink(checkpoint_id=number, inline=data, size_bytes=len(data)))
        return sum(b.batch.num_rows + (0 if b.touched is None else len(b.touched)) for b in blocks)

    def confirm(self) -> int:
        return self.complete(self.begin())

    def delta_rows(self) -> int:
        """The number of rows in a checkpoint, which is then aborted."""
        cut = self.begin()
        blocks = [cut.block(name) for name in cut.keyed]
        return sum(b.batch.num_rows + (0 if b.touched is None else len(b.touched)) for b in blocks)

    def restored(self, groups: tuple[int, int] = (0, _GROUPS - 1)) -> RestoredState:
        """The state of ``groups`` in the newest checkpoint."""
        newest = self._links[0]
        handle = StateHandle(
            vertex_id="v", subtask_index=0, checkpoint_id=newest.checkpoint_id, inline=newest.inline,
            size_bytes=newest.size_bytes, key_groups=(0, _GROUPS - 1), chain=tuple(self._links[1:]),
        )  # fmt: skip
        found = self.kit.within_patience(restore([handle], "u", groups, 0, 1))
        assert found is not None, "the snapshot lacks the operator"
        return found


def _counted(rows: Iterable[StateRows]) -> Counter[Any]:
    """Counts rows as (state, values of the row …), the key first."""
    out: Counter[Any] = Counter()
    for part in rows:
        columns = [c.to_pylist() for c in part.batch.columns]
        for row in zip(*columns, strict=True):
            out[part.name, *(repr(v) if isinstance(v, list | dict) else v for v in row)] += 1
    return out


def _of(groups: KeyGroups, keys: Iterable[int]) -> list[int]:
    """The keys that belong to these key groups."""
    found = np.array(list(keys), np.int64)
    held: list[int] = found[groups.holds([Column(_LONG, found)], len(found))].tolist()
    return held


def _refused(call: Any, what: str) -> None:
    refusal = None
    try:
        call()
    except InternalError as err:
        refusal = str(err)
    assert refusal is not None, f"{what} is not refused"
    assert "given away" in refusal, f"{what} fails with another error: {refusal}"

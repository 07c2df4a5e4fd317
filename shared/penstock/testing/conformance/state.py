"""The conformance kit of keyed state backends."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from penstock.snapshots import writing as snap
from penstock.snapshots.contract import OperatorSnapshot
from penstock.snapshots.reading import SnapshotReader
from penstock.snapshots.restoring import SnapshotChain, SnapshotSet
from penstock.state.blocks import KeyLayout
from penstock.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.testing.conformance.base import Conformance
from penstock.types import logical as t

if TYPE_CHECKING:
    from penstock.state.backend import KeyedStateBackend

_BIGINT, _TEXT, _INT = t.BigIntType(), t.VarCharType(), t.IntType()
#: One value of each type, for the round trip through a snapshot.
_VALUES: tuple[tuple[t.LogicalType, Any], ...] = (
    (t.BooleanType(), True),
    (t.TinyIntType(), -3),
    (_BIGINT, -(2**63)),
    (t.DoubleType(), 0.5),
    (_TEXT, "Grüße"),
    (t.VarBinaryType(), b"\x00\xff"),
    (t.DecimalType(30, 5), Decimal("1234567890123456789.12345")),
    (t.DateType(), dt.date(2013, 1, 1)),
    (t.TimeType(), dt.time(12, 30, 1)),
    (t.TimestampType(), dt.datetime(2013, 1, 1, 5, 0, 0, 17)),
    (t.TimestampLtzType(), dt.datetime(2013, 1, 1, tzinfo=dt.UTC)),
    (t.DayTimeIntervalType(), dt.timedelta(hours=3)),
    (t.ArrayType(_TEXT), ["a", None, "b"]),
    (t.MapType(_TEXT, _INT), {"a": 1, "b": None}),
    (t.RawType(), {"any": {1, 2}}),
)
_KEYS: tuple[tuple[tuple[t.LogicalType, ...], list[Any]], ...] = (
    ((_TEXT,), ["", "a", "ß", None]),
    ((_BIGINT, _TEXT), [(1, "a"), (1, None), (-5, "")]),
    ((t.DecimalType(10, 2),), [Decimal("1.20"), Decimal("-3.00")]),
    ((t.TimestampType(),), [dt.datetime(2013, 1, 1, 1), dt.datetime(1969, 1, 1)]),
)


class ManualMs:
    """A clock that a check moves."""

    def __init__(self) -> None:
        self.now_ms = 1_000

    def __call__(self) -> int:
        return self.now_ms


class StateBackendConformance(Conformance):
    """Checks a keyed state backend: each kind of state, each type written to a snapshot and restored, ranges
    of key groups, namespaces, time to live, undoing a record, timers, and random operations compared with a
    dictionary.

    The author gives ``make``. A backend that evicts state should be made so that it evicts after a few keys:
    every check begins and ends batches as an operator does, so evictions then happen.
    """

    def setup_method(self) -> None:
        super().setup_method()
        self.clock = ManualMs()
        self._made: list[KeyedStateBackend] = []

    def teardown_method(self) -> None:
        for backend in self._made:
            backend.close()
        super().teardown_method()

    def make(self, space: KeyLayout, *, now_ms: Callable[[], int], undo: bool) -> KeyedStateBackend:
        """A new, empty backend for keys of ``space``. Files go below ``self.folder``.

        ``now_ms``: the clock for the time to live; ``undo``: whether the changes of one record can be undone.
        """
        raise NotImplementedError

    # -- kinds ------------------------------------------------------------------------------

    def test_values(self) -> None:
        backend = self._backend()
        state = backend.state(ValueStateDescriptor("v", _TEXT))
        for key in range(50):
            _at(backend, key)
            assert state.value() is None, "a key that was never written has a value"
            state.update(f"v{key}")
        _at(backend, 7)
        state.clear()
        for key in range(50):
            _at(backend, key)
            want = None if key == 7 else f"v{key}"
            assert state.value() == want, f"key {key} has {state.value()!r}, not {want!r}"

    def test_lists(self) -> None:
        backend = self._backend()
        state = backend.state(ListStateDescriptor("l", _INT))
        for key in range(30):
            _at(backend, key)
            state.add(key)
            state.add_all([1, 2])
        for key in range(30):
            _at(backend, key)
            assert list(state.get()) == [key, 1, 2], f"key {key} has {list(state.get())}"
        state.update([9])
        assert list(state.get()) == [9], "update does not replace the list"

    def test_maps(self) -> None:
        backend = self._backend()
        state = backend.state(MapStateDescriptor("m", _TEXT, _INT))
        for key in range(30):
            _at(backend, key)
            state.put("a", key)
            state.put("b", 2)
            state.remove("b")
        for key in range(30):
            _at(backend, key)
            assert list(state.items()) == [("a", key)], f"key {key} has {list(state.items())}"
            assert state.contains("a")
            assert not state.contains("b")

    def test_reducing(self) -> None:
        backend = self._backend()
        state = backend.state(ReducingStateDescriptor("r", lambda a, b: a + b, _INT))
        for key in (1, 2, 1, 1):
            _at(backend, key)
            state.add(key + 1)
        _at(backend, 1)
        assert state.get() == 6, f"2 + 2 + 2 is {state.get()}"

    # -- snapshots --------------------------------------------------------------------------

    def test_every_type_survives_a_snapshot(self) -> None:
        wrong = []
        for type_, value in _VALUES:
            backend = self._backend()
            state = backend.state(ValueStateDescriptor("v", type_))
            for key in range(20):
                _at(backend, key)
                state.update(value)
            again = self._moved(backend)
            state = again.state(ValueStateDescriptor("v", type_))
            _at(again, 2)
            got = state.value()
            if got != value or type(got) is not type(value):
                wrong.append(f"{type_}: {got!r}, not {value!r}")
        assert not wrong, "\n".join(wrong)

    def test_keys_of_every_type_survive_a_snapshot(self) -> None:
        for types, keys in _KEYS:
            backend = self._backend(*types)
            state = backend.state(ValueStateDescriptor("v", _INT))
            for i, key in enumerate(keys):
                _at(backend, key)
                state.update(i)
            again = self._moved(backend, types=types)
            state = again.state(ValueStateDescriptor("v", _INT))
            for i, key in enumerate(keys):
                _at(again, key)
                assert state.value() == i, f"key {key!r} has {state.value()!r} after a snapshot, not {i}"

    def test_a_snapshot_is_of_one_moment(self) -> None:
        """The snapshot does not contain what was written after the cut."""
        backend = self._backend()
        state = backend.state(ValueStateDescriptor("v", _INT))
        for key in range(40):
            _at(backend, key)
            state.update(key)
        cut = _snapshot(backend)
        for key in range(40):
            _at(backend, key)
            state.update(-1)
        _at(backend, 100)
        state.update(100)
        again = self._restored(cut)
        state = again.state(ValueStateDescriptor("v", _INT))
        for key in [*range(40), 100]:
            _at(again, key)
            want = key if key < 40 else None
            assert state.value() == want, f"key {key} of the snapshot has {state.value()}, not {want}"

    def test_a_range_of_key_groups_takes_its_keys_only(self) -> None:
        backend = self._backend()
        state = backend.state(ValueStateDescriptor("v", _INT))
        for key in range(200):
            _at(backend, key)
            state.update(key)
        cut = _snapshot(backend)
        found: list[int] = []
        for groups in ((0, 40), (41, 127)):
            part = self._restored(cut, groups=groups)
            state = part.state(ValueStateDescriptor("v", _INT))
            for key in range(200):
                _at(part, key)
                if state.value() is not None:
                    group = part.space.group_of(key)
                    assert groups[0] <= group <= groups[1], f"key group {group} is in the range {groups}"
                    found.append(key)
        assert sorted(found) == list(range(200)), "some keys are in no range, or in two"

    def test_state_that_nobody_asks_for_is_kept(self) -> None:
        backend = self._backend()
        _at(backend, 1)
        backend.state(ValueStateDescriptor("unused", _INT)).update(5)
        twice = self._moved(self._moved(backend))
        _at(twice, 1)
        assert twice.state(ValueStateDescriptor("unused", _INT)).value() == 5, "it is lost"

    # -- time and records --------------------------------------------------------------------

    def test_values_expire(self) -> None:
        backend = self._backend()
        desc = ValueStateDescriptor("v", _INT)
        desc.enable_time_to_live(StateTtlConfig(100))
        state = backend.state(desc)
        _at(backend, 1)
        state.update(1)
        self.clock.now_ms += 99
        assert state.value() == 1, "a value expires too early"
        self.clock.now_ms += 1
        assert state.value() is None, "an expired value is visible"

    def test_the_writes_of_a_record_are_undone(self) -> None:
        backend = self._backend(undo=True)
        value = backend.state(ValueStateDescriptor("v", _INT))
        entries = backend.state(MapStateDescriptor("m", _TEXT, _INT))
        assert backend.journal is not None, "undo=True makes no journal"
        backend.scope.key = 1
        value.update(1)
        entries.put("a", 1)
        backend.event_timers.register(5, 1, backend.journal)
        backend.journal.commit()
        value.update(2)
        entries.remove("a")
        entries.put("b", 2)
        backend.event_timers.delete(5, 1, backend.journal)
        backend.scope.key = 2
        value.update(9)
        backend.journal.rollback()
        assert value.value() is None, "a new key's value is not undone"
        backend.scope.key = 1
        assert value.value() == 1, f"the value is {value.value()} after the rollback, not 1"
        assert list(entries.items()) == [("a", 1)], "the map is not what it was"
        assert list(backend.event_timers.due(100)) == [(5, 1)], "the timer is not what it was"

    def test_timers_survive_a_snapshot(self) -> None:
        backend = self._backend()
        backend.state(ValueStateDescriptor("v", _INT))
        for key in range(5):
            backend.event_timers.register(10 * key, key, None)
        again = self._moved(backend)
        due = list(again.event_timers.due(25))
        assert due == [(0, 0), (10, 1), (20, 2)], f"due at 25 are {due}"

    def test_random_work_agrees_with_a_dictionary(self) -> None:
        """There are many more keys than a small cache holds, and restores in between."""
        rng = random.Random(7)
        model: dict[int, int] = {}
        backend = self._backend()
        for _ in range(4):
            state = backend.state(ValueStateDescriptor("v", _BIGINT))
            for _ in range(300):
                keys = [rng.randrange(60) for _ in range(3)]
                backend.begin_batch(keys)
                for key in keys:
                    backend.scope.key = key
                    assert state.value() == model.get(key), f"key {key} has {state.value()}"
                    if rng.random() < 0.3:
                        state.clear()
                        model.pop(key, None)
                    else:
                        model.setdefault(key, rng.randrange(10**6))
                        state.update(model[key])
                backend.end_batch()
            backend = self._moved(backend)

    # -- helpers -----------------------------------------------------------------------------

    def _backend(self, *types: t.LogicalType, undo: bool = False) -> KeyedStateBackend:
        backend = self.make(KeyLayout(types or (_BIGINT,), 128), now_ms=self.clock, undo=undo)
        self._made.append(backend)
        return backend

    def _moved(self, backend: KeyedStateBackend, types: tuple[t.LogicalType, ...] = ()) -> KeyedStateBackend:
        return self._restored(_snapshot(backend), types=types)

    def _restored(
        self, data: bytes, *, groups: tuple[int, int] = (0, 127), types: tuple[t.LogicalType, ...] = ()
    ) -> KeyedStateBackend:
        target = self._backend(*types)

        async def restore() -> None:
            reader = await SnapshotReader.of_bytes(data)
            restored = await SnapshotSet([SnapshotChain([reader])], 1).restore(
                "op", key_groups=groups, subtask_index=0, parallelism=1
            )
            assert restored is not None, "the snapshot lacks the operator"
            target.restore(restored)

        self.within_patience(restore())
        return target


def _snapshot(backend: KeyedStateBackend) -> bytes:
    """A snapshot object, as the object store would hold it."""
    cut = OperatorSnapshot(keyed=backend.cut()).copied()
    return snap.write_snapshot({"op": cut}, checkpoint_id=1, key_groups=(0, 127))


def _at(backend: KeyedStateBackend, key: Any) -> None:
    """Make ``key`` the current key, as an operator does. The batch ends first, so that the backend may
    evict."""
    backend.end_batch()
    backend.begin_batch([key])
    backend.scope.key = key

"""What every keyed state backend must do; run on each of them."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from penstock.columnar.python_values import from_python
from penstock.columnar.rows import Row, make_row
from penstock.errors import SpecError, UnsupportedError
from penstock.snapshots import writing as snap
from penstock.snapshots.contract import OperatorSnapshot, RestoredState
from penstock.snapshots.reading import SnapshotReader
from penstock.snapshots.restoring import SnapshotChain, SnapshotSet
from penstock.state.backend import KeyedStateBackend
from penstock.state.backends import make_backend
from penstock.state.blocks import KeyLayout
from penstock.state.codec import codec
from penstock.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    UpdateType,
    ValueStateDescriptor,
)
from penstock.state.memory import StateMemory
from penstock.state.states import Scope
from penstock.types import logical as t
from penstock.types.batch import RowKind

if TYPE_CHECKING:
    from pathlib import Path

BIGINT, STRING, DOUBLE, INT = t.BigIntType(), t.VarCharType(), t.DoubleType(), t.IntType()
ROW = t.RowType((t.Field("name", STRING), t.Field("n", INT)))


async def moved(
    source: KeyedStateBackend, target: KeyedStateBackend, groups: tuple[int, int] = (0, 127)
) -> None:
    """Through a real snapshot object into another backend."""
    data = snap.write_snapshot(
        {"op": OperatorSnapshot(keyed=source.cut()).copied()}, checkpoint_id=1, key_groups=(0, 127)
    )
    reader = await SnapshotReader.of_bytes(data)
    restored = await SnapshotSet([SnapshotChain([reader])], 1).restore(
        "op", key_groups=groups, subtask_index=0, parallelism=1
    )
    assert restored is not None
    target.restore(restored)


def at(backend: KeyedStateBackend, key: Any) -> None:
    """Make ``key`` the current one, as an operator does, with evictions in between."""
    backend.end_batch()
    backend.begin_batch([key])
    backend.scope.key = key


class Sum:
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> str:
        return f"sum {accumulator}"


class TestKinds:
    async def test_value(self, backends: Any) -> None:
        backend = backends.make()
        state = backend.state(ValueStateDescriptor("v", STRING))
        for i in range(50):
            at(backend, i)
            assert state.value() is None
            state.update(f"v{i}")
        at(backend, 7)
        state.clear()
        at(backend, 8)
        state.update(None)
        again = backends.make()
        await moved(backend, again)
        for subject in (backend, again):
            state = subject.state(ValueStateDescriptor("v", STRING))
            for i in range(50):
                at(subject, i)
                assert state.value() == (None if i in (7, 8) else f"v{i}")

    async def test_list(self, backends: Any) -> None:
        backend = backends.make()
        state = backend.state(ListStateDescriptor("l", INT))
        for i in range(30):
            for key in range(20):
                at(backend, key)
                state.add(i)
        at(backend, 3)
        state.update([1, 2])
        state.add_all([3])
        at(backend, 4)
        state.update([])
        again = backends.make()
        await moved(backend, again)
        for subject in (backend, again):
            state = subject.state(ListStateDescriptor("l", INT))
            expected = {3: [1, 2, 3], 4: []}
            for key in range(20):
                at(subject, key)
                assert state.get() == expected.get(key, list(range(30)))

    async def test_map(self, backends: Any) -> None:
        backend = backends.make(STRING)
        desc = MapStateDescriptor("m", STRING, BIGINT)
        state = backend.state(desc)
        for key in "abcdefghijklmnop":
            at(backend, key)
            assert state.is_empty()
            state.put("x", 1)
            state.put_all({"y": 2, "z": 3})
            state.remove("x")
            state.remove("nothing")
        at(backend, "b")
        state.remove("y")
        state.remove("z")
        at(backend, "c")
        state.clear()
        again = backends.make(STRING)
        await moved(backend, again)
        for subject in (backend, again):
            state = subject.state(desc)
            at(subject, "a")
            assert sorted(state.items()) == [("y", 2), ("z", 3)]
            assert (state.get("y"), state["z"], state.get("x")) == (2, 3, None)
            assert (state.contains("y"), "x" in state) == (True, False)
            for key in "bc":
                at(subject, key)
                assert state.is_empty()
                assert state.keys() == state.values() == []

    async def test_reducing_and_aggregating(self, backends: Any) -> None:
        backend = backends.make()
        descs = [ReducingStateDescriptor("r", max, INT), AggregatingStateDescriptor("a", Sum(), BIGINT)]
        reducing, aggregating = (backend.state(d) for d in descs)
        for value in (3, 9, 4):
            at(backend, 1)
            reducing.add(value)
            aggregating.add(value)
        again = backends.make()
        await moved(backend, again)
        for subject in (backend, again):
            reducing, aggregating = (subject.state(d) for d in descs)
            at(subject, 1)
            assert (reducing.get(), aggregating.get()) == (9, "sum 16")
            at(subject, 2)
            assert (reducing.get(), aggregating.get()) == (None, None)


VALUES = [
    (t.BooleanType(), True),
    (t.TinyIntType(), -3),
    (BIGINT, -(2**63)),
    (DOUBLE, 0.5),
    (STRING, "Grüße"),
    (t.VarBinaryType(), b"\x00\xff"),
    (t.DecimalType(10, 2), Decimal("12.30")),
    (t.DecimalType(30, 5), Decimal("1234567890123456789.12345")),
    (t.DateType(), dt.date(2013, 1, 1)),
    (t.TimeType(), dt.time(12, 30, 1)),
    (t.TimestampType(), dt.datetime(2013, 1, 1, 5, 0, 0, 17)),
    (t.TimestampLtzType(), dt.datetime(2013, 1, 1, tzinfo=dt.UTC)),
    (t.DayTimeIntervalType(), dt.timedelta(hours=3)),
    (t.ArrayType(STRING), ["a", None, "b"]),
    (t.MapType(STRING, INT), {"a": 1, "b": None}),
    (ROW, make_row(("name", "n"), ("x", None))),
    (t.ArrayType(ROW), [make_row(("name", "n"), ("x", 1))]),
    (t.RawType(), {"any": {1, 2}}),
    (t.ArrayType(t.RawType()), [{1}, None]),
]


@pytest.mark.parametrize(("type_", "value"), VALUES, ids=lambda v: str(v)[:20])
async def test_every_type_comes_back(backends: Any, type_: t.LogicalType, value: Any) -> None:
    backend = backends.make()
    state = backend.state(ValueStateDescriptor("v", type_))
    for key in range(20):
        at(backend, key)
        state.update(value)
    again = backends.make()
    await moved(backend, again)
    for subject in (backend, again):
        at(subject, 2)
        got = subject.state(ValueStateDescriptor("v", type_)).value()
        assert got == value
        assert type(got) is type(value)


KEYS = [
    ((STRING,), ["", "a", "ß", None]),
    ((BIGINT, STRING), [(1, "a"), (1, None), (-5, "")]),
    ((t.DecimalType(10, 2),), [Decimal("1.20"), Decimal("-3.00")]),
    ((t.TimestampType(),), [dt.datetime(2013, 1, 1, 1), dt.datetime(1969, 1, 1)]),
    ((t.DoubleType(),), [0.0, -1.5, float("inf")]),
]


@pytest.mark.parametrize(("types", "keys"), KEYS, ids=lambda v: str(v)[:20])
async def test_keys_of_every_type(backends: Any, types: tuple, keys: list) -> None:
    backend = backends.make(*types)
    state = backend.state(ValueStateDescriptor("v", INT))
    for i, key in enumerate(keys):
        at(backend, key)
        state.update(i)
        backend.event_timers.register(i, key)
    again = backends.make(*types)
    await moved(backend, again)
    state = again.state(ValueStateDescriptor("v", INT))
    for i, key in enumerate(keys):
        at(again, key)
        assert state.value() == i
    assert list(again.event_timers.due(100)) == list(enumerate(keys))


async def test_a_snapshot_of_one_backend_is_read_by_another(backends: Any) -> None:
    backend = backends.make()
    state = backend.state(ValueStateDescriptor("v", STRING))
    for key in range(100):
        at(backend, key)
        state.update(str(key))
    other = backends.make(kind="leveldb" if backends.kind == "hashmap" else "hashmap")
    await moved(backend, other)
    state = other.state(ValueStateDescriptor("v", STRING))
    for key in range(100):
        at(other, key)
        assert state.value() == str(key)


async def test_a_range_of_key_groups_takes_its_keys_only(backends: Any) -> None:
    backend = backends.make()
    state = backend.state(ValueStateDescriptor("v", INT))
    for key in range(200):
        at(backend, key)
        state.update(key)
    space = KeyLayout((BIGINT,), 128)
    found: list[int] = []
    for groups in ((0, 40), (41, 127)):
        part = backends.make()
        await moved(backend, part, groups)
        state = part.state(ValueStateDescriptor("v", INT))
        for key in range(200):
            at(part, key)
            if state.value() is not None:
                assert groups[0] <= space.group_of(key) <= groups[1]
                found.append(key)
    assert sorted(found) == list(range(200))


async def test_windowed_state_is_kept_by_namespace(backends: Any) -> None:
    backend = backends.make(STRING)
    desc, scope = ValueStateDescriptor("w", INT), Scope()
    state = backend.state(desc, scope=scope, namespaced=True)
    windows = [(0, 10), (-10, 0), (10, 20)]
    for i, window in enumerate(windows):
        scope.key = ("k", window)
        state.update(i)
    again = backends.make(STRING)
    await moved(backend, again)
    state = again.state(desc, scope=scope, namespaced=True)
    for i, window in enumerate(windows):
        scope.key = ("k", window)
        assert state.value() == i


class TestTimeToLive:
    async def test_written_values_expire(self, backends: Any) -> None:
        desc = ValueStateDescriptor("v", INT)
        desc.enable_time_to_live(StateTtlConfig(100))
        backend = backends.make()
        state = backend.state(desc)
        at(backend, 1)
        state.update(1)
        backends.clock.now += 60
        at(backend, 2)
        state.update(2)
        again = backends.make()
        await moved(backend, again)
        for subject in (backend, again):
            state = subject.state(desc)
            backends.clock.now = 1_060 + 39
            at(subject, 1)
            assert state.value() == 1
            backends.clock.now += 1
            at(subject, 1)
            assert state.value() is None
            at(subject, 2)
            assert state.value() == 2
        backends.clock.now += 1_000
        assert OperatorSnapshot(keyed=backend.cut()).block("value/v").batch.num_rows == 0

    def test_reading_may_prolong(self, backends: Any) -> None:
        desc = ListStateDescriptor("l", INT)
        desc.enable_time_to_live(StateTtlConfig(100, UpdateType.OnReadAndWrite))
        backend = backends.make()
        state = backend.state(desc)
        at(backend, 1)
        state.add(5)
        for _ in range(5):
            backends.clock.now += 90
            assert state.get() == [5]
        backends.clock.now += 100
        assert state.get() == []


class TestUndo:
    def test_writes_of_a_record_are_undone(self, backends: Any) -> None:
        backend = backends.make(undo=True)
        value = backend.state(ValueStateDescriptor("v", INT))
        items = backend.state(ListStateDescriptor("l", INT))
        entries = backend.state(MapStateDescriptor("m", STRING, INT))
        nested = backend.state(ValueStateDescriptor("n", t.ArrayType(INT)))
        backend.scope.key = 1
        value.update(1)
        items.add(1)
        entries.put("a", 1)
        nested.update([1])
        backend.event_timers.register(5, 1, backend.journal)
        backend.journal.commit()

        value.update(2)
        value.update(3)
        items.add(2)
        entries.put("b", 2)
        entries.remove("a")
        nested.value().append(2)
        backend.event_timers.delete(5, 1, backend.journal)
        backend.event_timers.register(6, 1, backend.journal)
        backend.scope.key = 2
        value.update(9)
        backend.journal.rollback()

        assert value.value() is None
        backend.scope.key = 1
        assert (value.value(), items.get(), entries.items()) == (1, [1], [("a", 1)])
        assert nested.value() == [1]
        assert list(backend.event_timers.due(100)) == [(5, 1)]


class TestEvolution:
    async def read_as(self, backends: Any, old: t.LogicalType, value: Any, new: t.LogicalType) -> Any:
        backend = backends.make()
        backend.scope.key = 1
        backend.state(ValueStateDescriptor("v", old)).update(value)
        again = backends.make()
        await moved(backend, again)
        again.scope.key = 1
        return again.state(ValueStateDescriptor("v", new)).value()

    async def test_widening(self, backends: Any) -> None:
        assert await self.read_as(backends, INT, 5, BIGINT) == 5
        got = await self.read_as(backends, INT, 5, DOUBLE)
        assert (got, type(got)) == (5.0, float)

    async def test_rows_by_name(self, backends: Any) -> None:
        new = t.RowType((t.Field("n", BIGINT), t.Field("extra", STRING), t.Field("name", STRING)))
        got = await self.read_as(backends, ROW, make_row(("name", "n"), ("x", 3)), new)
        assert (got.n, got.extra, got.name) == (3, None, "x")

    @pytest.mark.parametrize("kind", [ValueStateDescriptor, ListStateDescriptor, MapStateDescriptor])
    async def test_renamed(self, backends: Any, kind: Any) -> None:
        """The state, a field of its rows, and both at once with a field that is widened."""
        row = make_row(("name", "n"), ("x", 3))
        new = t.RowType((t.Field("title", STRING), t.Field("n", BIGINT)))
        key = (STRING,) if kind is MapStateDescriptor else ()
        first = backends.make()
        first.scope.key = 1
        state = first.state(kind("old", *key, ROW))
        if kind is MapStateDescriptor:
            state.put("a", row)
        else:
            state.add(row) if kind is ListStateDescriptor else state.update(row)
        again = backends.make()
        await moved(first, again)
        again.scope.key = 1
        descriptor = kind("new", *key, new).renamed_from("older", "old").renamed_fields({"title": "name"})
        state = again.state(descriptor)
        got = state.get("a") if kind is MapStateDescriptor else None
        got = got or (state.get()[0] if kind is ListStateDescriptor else state.value())
        assert (got.title, got.n) == ("x", 3)
        third = backends.make()
        await moved(again, third)
        third.scope.key = 1
        assert third.state(kind("new", *key, new)) is not None
        assert not third._unclaimed.names, "it has its present name from now on"

    def test_a_renamed_field_is_one_of_the_type(self) -> None:
        with pytest.raises(SpecError, match="no field 'titel'"):
            ValueStateDescriptor("v", ROW).renamed_fields({"titel": "name"})

    async def test_others_are_refused_with_both_types(self, backends: Any) -> None:
        with pytest.raises(SpecError, match="value/v") as err:
            await self.read_as(backends, STRING, "x", INT)
        assert (err.value.expected or "").startswith("INT")
        assert "STRING" in (err.value.got or "")

    async def test_another_key_type_is_refused(self, backends: Any) -> None:
        backend = backends.make()
        backend.scope.key = 1
        backend.state(ValueStateDescriptor("v", INT)).update(1)
        again = backends.make(STRING)
        await moved(backend, again)
        with pytest.raises(SpecError, match="keyed by other types"):
            again.state(ValueStateDescriptor("v", INT))


async def test_unclaimed_state_survives_the_next_snapshot(backends: Any) -> None:
    first = backends.make()
    for key in range(10):
        at(first, key)
        first.state(ValueStateDescriptor("v", INT)).update(key)
    second = backends.make()
    await moved(first, second)
    third = backends.make()
    await moved(second, third)
    at(third, 4)
    assert third.state(ValueStateDescriptor("v", INT)).value() == 4


def test_one_name_two_types_is_refused(backends: Any) -> None:
    backend = backends.make()
    backend.state(ValueStateDescriptor("v", INT))
    with pytest.raises(SpecError, match="declared twice"):
        backend.state(ValueStateDescriptor("v", STRING))


def test_state_needs_a_key(backends: Any) -> None:
    backend = backends.make(max_parallelism=128)
    backend.space = KeyLayout((), 128)
    with pytest.raises(UnsupportedError, match="not keyed"):
        backend.state(ValueStateDescriptor("v", INT))


async def test_random_operations_agree_with_a_dictionary(backends: Any) -> None:
    """Many more keys than the cache holds, with restores in the middle."""
    rng = random.Random(7)
    model: dict[int, int] = {}
    backend = backends.make()
    desc = ValueStateDescriptor("v", BIGINT)
    for _ in range(4):
        state = backend.state(desc)
        for _ in range(300):
            keys = [rng.randrange(60) for _ in range(3)]
            backend.begin_batch(keys)
            for key in keys:
                backend.scope.key = key
                assert state.value() == model.get(key)
                if rng.random() < 0.3:
                    state.clear()
                    model.pop(key, None)
                else:
                    state.update(model.setdefault(key, rng.randrange(10**6)))
            backend.end_batch()
        again = backends.make()
        await moved(backend, again)
        backend = again


def test_leveldb_writes_files_and_holds_little_in_memory(backends: Any) -> None:
    if backends.kind != "leveldb":
        pytest.skip("only LevelDB has files")
    backend = backends.make()
    state = backend.state(ValueStateDescriptor("v", STRING))
    for key in range(500):
        at(backend, key)
        state.update("x" * 100)
    table = backend.registered(ValueStateDescriptor("v", STRING)).table
    assert len(table) + len(table.old) <= 16
    assert list(backend.path.iterdir())


def test_a_restored_state_without_schema_is_no_surprise() -> None:
    assert RestoredState(1).schemas == {}


def test_leveldb_refuses_keys_without_a_type(backends: Any) -> None:
    if backends.kind != "leveldb":
        pytest.skip("dictionaries take any key")
    with pytest.raises(UnsupportedError, match="without a declared type"):
        backends.make(t.RawType())


def test_a_row_with_a_kind_is_refused_as_a_value_of_a_declared_type() -> None:
    row = Row("a", 1)
    assert codec(ROW).decode(codec(ROW).encode(row)) == row
    with pytest.raises(ValueError, match="a Row of kind -U"):
        codec(ROW).encode(row.with_kind(RowKind.UPDATE_BEFORE))
    with pytest.raises(ValueError, match="a Row of kind -U"):
        from_python(ROW, [row.with_kind(RowKind.UPDATE_BEFORE)])


def test_changes_that_cannot_be_given_up_while_a_cut_is_copied_do_not_make_the_slot_fail(
    tmp_path: Path,
) -> None:
    backend = make_backend(
        "leveldb", KeyLayout((BIGINT,), 128), now_ms=lambda: 0, uid="op", local_dir=tmp_path,
        memory=StateMemory(20_000),
    )  # fmt: skip
    state = backend.state(ValueStateDescriptor("v", BIGINT))
    backend.cut()  # nobody copies it
    for key in range(2_000):
        backend.scope.key = key
        state.update(key)
        backend.event_timers.register(key, key)
        if key % 10 == 0:
            backend.end_batch()
    assert len(list(backend.event_timers.due(1_999))) == 2_000
    backend.close()

"""The clock of a time to live goes on while a job is down, as in Flink: a snapshot has when a value was last used.

State of SQL operators is another matter: its time begins anew at a restore (``docs/state.md``).
"""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest

from penstock.columnar.hashing import key_group_range
from penstock.functions.expr import AggregateCall
from penstock.jobgraph.specs import GroupAggregateSpec
from penstock.operators.factory import make_operator
from penstock.snapshots import writing as snap
from penstock.snapshots.contract import OperatorSnapshot
from penstock.snapshots.reading import SnapshotReader
from penstock.snapshots.restoring import SnapshotChain, SnapshotSet, restore
from penstock.state.backend import KeyedStateBackend
from penstock.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    UpdateType,
    ValueStateDescriptor,
)
from penstock.testing.operator_harness import Subtask
from penstock.types import logical as t
from penstock.types.batch import Batch
from penstock.types.logical import Schema

BIGINT, STRING = t.BigIntType(), t.VarCharType()
TTL, BEGAN = 10_000, 1_000


class Sum:
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> int:
        return accumulator


KINDS: dict[str, StateDescriptor] = {
    "value": ValueStateDescriptor("s", BIGINT),
    "list": ListStateDescriptor("s", BIGINT),
    "map": MapStateDescriptor("s", STRING, BIGINT),
    "reducing": ReducingStateDescriptor("s", lambda a, b: a + b, BIGINT),
    "aggregating": AggregatingStateDescriptor("s", Sum(), BIGINT),
}


def living(kind: str, ttl_ms: int = TTL, **more: Any) -> StateDescriptor:
    desc = copy.copy(KINDS[kind])
    desc.enable_time_to_live(StateTtlConfig(ttl_ms, **more))
    return desc


def write(backend: KeyedStateBackend, desc: StateDescriptor, key: int, value: int = 1) -> None:
    backend.scope.key = key
    state = backend.state(desc)
    match desc.kind:
        case "value":
            state.update(value)
        case "map":
            state.put("a", value)
        case _:
            state.add(value)


def read(backend: KeyedStateBackend, desc: StateDescriptor, key: int) -> Any:
    """The key's value; None if there is none."""
    backend.end_batch()
    backend.scope.key = key
    state = backend.state(desc)
    match desc.kind:
        case "value":
            return state.value()
        case "map":
            return state.get("a")
        case "list":
            return (state.get() or [None])[0]
    return state.get()


class Chain:
    """The snapshots of one backend, each a delta on the one before."""

    def __init__(self, backend: KeyedStateBackend) -> None:
        self._backend = backend
        self._readers: list[SnapshotReader] = []
        self._since = 0

    async def take(self) -> None:
        epochs = self._backend.epochs
        upto = epochs.begin(self._since)
        data = snap.write_snapshot(
            {"op": OperatorSnapshot(keyed=self._backend.cut()).copied()}, checkpoint_id=1, key_groups=(0, 127)
        )
        self._since = epochs.confirmed = upto
        self._readers.insert(0, await SnapshotReader.of_bytes(data))

    async def into(self, target: KeyedStateBackend, groups: tuple[int, int] = (0, 127)) -> KeyedStateBackend:
        chain = SnapshotChain(self._readers)
        target.restore(
            await SnapshotSet([chain], 1).restore("op", key_groups=groups, subtask_index=0, parallelism=1)
        )
        return target


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_left_of_the_time_is_left_after_a_restore(backends: Any, kind: str) -> None:
    """Key 1 was written once, key 2 again after the first of two checkpoints."""
    desc, clock = living(kind), backends.clock
    first = backends.make()
    chain = Chain(first)
    write(first, desc, 1)
    write(first, desc, 2)
    await chain.take()
    clock.now = BEGAN + 4_000
    write(first, desc, 2)
    await chain.take()
    clock.now = BEGAN + 8_000
    second = await chain.into(backends.make())
    clock.now = BEGAN + TTL - 1
    assert read(second, desc, 1) == 1
    clock.now = BEGAN + TTL
    assert read(second, desc, 1) is None
    assert read(second, desc, 2) is not None
    clock.now = BEGAN + 4_000 + TTL
    assert read(second, desc, 2) is None


@pytest.mark.parametrize("kind", KINDS)
async def test_what_expired_while_the_job_was_down_is_gone(backends: Any, kind: str) -> None:
    """And a new value is not made of the old one; the next snapshot has no row of it."""
    desc, clock = living(kind), backends.clock
    first = backends.make()
    for key in (1, 2):
        write(first, desc, key)
    chain = Chain(first)
    await chain.take()
    clock.now = BEGAN + 3 * TTL
    second = await chain.into(backends.make())
    assert read(second, desc, 1) is None
    write(second, desc, 1, 5)
    assert read(second, desc, 1) == 5
    written = OperatorSnapshot(keyed=second.cut()).block(f"{kind}/s").batch
    assert written.column("key0").to_pylist() == [1]
    assert written.column("expires_ms").to_pylist() == [BEGAN + 4 * TTL]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_read_that_extends_a_life_is_in_the_next_delta(backends: Any, kind: str) -> None:
    desc, clock = living(kind, update_type=UpdateType.OnReadAndWrite), backends.clock
    first = backends.make()
    chain = Chain(first)
    for key in (1, 2):
        write(first, desc, key)
    await chain.take()
    clock.now = BEGAN + 6_000
    assert read(first, desc, 1) == 1
    await chain.take()
    second = await chain.into(backends.make())
    clock.now = BEGAN + 6_000 + TTL - 1
    assert read(second, desc, 1) == 1
    assert read(second, desc, 2) is None


@pytest.mark.parametrize("ttl_ms", [3_000, 25_000])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_changed_time_to_live_counts_from_the_last_write(
    backends: Any, kind: str, ttl_ms: int
) -> None:
    """The time to live is no part of a snapshot, it is how the running program treats it."""
    first = backends.make()
    write(first, living(kind), 1)
    chain = Chain(first)
    await chain.take()
    second = await chain.into(backends.make())
    desc = living(kind, ttl_ms)
    backends.clock.now = BEGAN + ttl_ms - 1
    assert read(second, desc, 1) == 1
    backends.clock.now = BEGAN + ttl_ms
    assert read(second, desc, 1) is None


async def test_state_that_nobody_asked_for_keeps_its_clock(backends: Any) -> None:
    desc = living("value")
    first = backends.make()
    write(first, desc, 1)
    chain = Chain(first)
    await chain.take()
    backends.clock.now = BEGAN + 5_000
    between = Chain(await chain.into(backends.make()))
    await between.take()
    third = await between.into(backends.make())
    backends.clock.now = BEGAN + TTL - 1
    assert read(third, desc, 1) == 1
    backends.clock.now = BEGAN + TTL
    assert read(third, desc, 1) is None


KINDS_OF_ROW = Schema.of(("k", STRING), ("v", BIGINT))


def test_the_time_of_sql_state_begins_anew_at_a_restore() -> None:
    """It lives longer than Flink's then, never shorter."""
    spec = GroupAggregateSpec(
        keys=(0,), aggregates=(AggregateCall("COUNT", (), BIGINT.not_null),), ttl_ms=TTL
    )
    out = Schema.of(("k", STRING), ("n", BIGINT.not_null))
    first = Subtask(make_operator(spec), [KINDS_OF_ROW], out)
    first.process(Batch.of(KINDS_OF_ROW, [("a", 1)]))
    first.processing_time(TTL - 1)
    groups = key_group_range(0, 1, 128)
    restored = asyncio.run(restore([first.checkpoint()], "u", groups, 0, 1))
    second = Subtask(make_operator(spec), [KINDS_OF_ROW], out, restored=restored)
    assert second.wakes == [TTL], "by the clock at which it was restored, 0"
    second.processing_time(TTL)
    second.process(Batch.of(KINDS_OF_ROW, [("a", 1)]))
    assert second.rows() == [("a", 1)]

"""Restored state that a program asks for late: one subtask has asked for it in its present form when a checkpoint is
taken, and another has not yet. The objects of that checkpoint hold the state in two forms."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.columnar.rows import make_row
from penstock.errors import SnapshotError
from penstock.snapshots import writing as snap
from penstock.snapshots.contract import OperatorSnapshot
from penstock.snapshots.reading import SnapshotReader
from penstock.snapshots.restoring import SnapshotChain, SnapshotSet
from penstock.state.backend import KeyedStateBackend
from penstock.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.types import logical as t

INT, BIGINT, STRING = t.IntType(), t.BigIntType(), t.VarCharType()
SHARES = [(0, 63), (64, 127)]
KEYS = range(40)
#: Two fields of one type: read by the other form's order they change places without an error.
BEFORE = t.RowType((t.Field("low", INT), t.Field("high", INT)))
AFTER = t.RowType((t.Field("high", INT), t.Field("low", INT)))


def living(desc: StateDescriptor) -> StateDescriptor:
    desc.enable_time_to_live(StateTtlConfig(10_000))
    return desc


EVOLUTIONS: dict[str, tuple[StateDescriptor, StateDescriptor]] = {
    "fields change places": (ValueStateDescriptor("v", BEFORE), ValueStateDescriptor("v", AFTER)),
    "a field comes first": (
        ValueStateDescriptor("v", BEFORE),
        ValueStateDescriptor("v", t.RowType((t.Field("new", INT), *BEFORE.fields))),
    ),
    "fields widen": (
        ValueStateDescriptor("v", BEFORE),
        ValueStateDescriptor("v", t.RowType((t.Field("low", BIGINT), t.Field("high", BIGINT)))),
    ),
    "fields have new names": (
        ValueStateDescriptor("v", BEFORE),
        ValueStateDescriptor("v", t.RowType((t.Field("bottom", INT), t.Field("top", INT)))).renamed_fields(
            {"bottom": "low", "top": "high"}
        ),
    ),
    "the state has a new name": (
        ValueStateDescriptor("v", BEFORE),
        ValueStateDescriptor("w", AFTER).renamed_from("v"),
    ),
    "a time to live is new": (ValueStateDescriptor("v", BEFORE), living(ValueStateDescriptor("v", AFTER))),
    "a time to live is gone": (living(ValueStateDescriptor("v", BEFORE)), ValueStateDescriptor("v", AFTER)),
    "list": (ListStateDescriptor("v", BEFORE), ListStateDescriptor("v", AFTER)),
    "map": (MapStateDescriptor("v", STRING, BEFORE), MapStateDescriptor("v", STRING, AFTER)),
}


def share_of(backend: KeyedStateBackend, share: tuple[int, int]) -> list[int]:
    return [key for key in KEYS if share[0] <= backend.space.group_of(key) <= share[1]]


def write(backend: KeyedStateBackend, desc: StateDescriptor, key: int) -> None:
    backend.scope.key = key
    row = make_row(("low", "high"), (key, key + 1_000))
    state = backend.state(desc)
    if desc.kind == "list":
        state.add(row)
    elif desc.kind == "map":
        state.put("a", row)
    else:
        state.update(row)


def read(backend: KeyedStateBackend, desc: StateDescriptor, key: int) -> dict[str, Any]:
    backend.scope.key = key
    state = backend.state(desc)
    if desc.kind == "list":
        (row,) = state.get()
    else:
        row = state.get("a") if desc.kind == "map" else state.value()
    former = desc.former_fields
    return {former.get(name, name): value for name, value in row.as_dict().items()}


async def chain_of(backend: KeyedStateBackend, share: tuple[int, int]) -> SnapshotChain:
    data = snap.write_snapshot(
        {"op": OperatorSnapshot(keyed=backend.cut()).copied()}, checkpoint_id=1, key_groups=share
    )
    return SnapshotChain([await SnapshotReader.of_bytes(data)])


async def restored(
    backends: Any, chains: list[SnapshotChain], shares: list[tuple[int, int]]
) -> list[KeyedStateBackend]:
    made = []
    for index, share in enumerate(shares):
        rows = await SnapshotSet(chains, 1).restore(
            "op", key_groups=share, subtask_index=index, parallelism=len(shares)
        )
        made.append(backends.make())
        made[-1].restore(rows)
    return made


async def half_claimed(
    backends: Any, before: StateDescriptor, after: StateDescriptor, claims: int
) -> list[SnapshotChain]:
    """The checkpoint of two subtasks, of which one has asked for the state in its present form."""
    first = [backends.make(), backends.make()]
    for backend, share in zip(first, SHARES, strict=True):
        for key in share_of(backend, share):
            write(backend, before, key)
    second = await restored(
        backends, [await chain_of(b, s) for b, s in zip(first, SHARES, strict=True)], SHARES
    )
    second[claims].state(after)
    return [await chain_of(b, s) for b, s in zip(second, SHARES, strict=True)]


@pytest.mark.parametrize("claims", [0, 1])
@pytest.mark.parametrize("shares", [SHARES, [(0, 127)], [(0, 42), (43, 85), (86, 127)]], ids=["2", "1", "3"])
@pytest.mark.parametrize("evolution", EVOLUTIONS)
async def test_each_subtask_is_read_in_the_form_that_it_wrote(
    backends: Any, evolution: str, shares: list[tuple[int, int]], claims: int
) -> None:
    before, after = EVOLUTIONS[evolution]
    chains = await half_claimed(backends, before, after, claims)
    third = await restored(backends, chains, shares)
    for backend, share in zip(third, shares, strict=True):
        for key in share_of(backend, share):
            got = read(backend, after, key)
            assert (got["low"], got["high"]) == (key, key + 1_000), f"key {key}: {got}"


async def test_a_name_that_another_state_had_in_the_same_program_stays_that_ones(backends: Any) -> None:
    """Both ``v`` and ``w`` were there: ``w`` is not made of ``v`` too, not even where it was cleared."""
    v, w = ValueStateDescriptor("v", INT), ValueStateDescriptor("w", INT)
    renamed = ValueStateDescriptor("w", INT).renamed_from("v")
    first = backends.make()
    for key in KEYS:
        first.scope.key = key
        first.state(v).update(key)
        first.state(w).update(-key)
        if key % 2:
            first.state(w).clear()
    second = await restored(backends, [await chain_of(first, (0, 127))], SHARES)
    second[0].state(renamed)
    third = await restored(
        backends, [await chain_of(b, s) for b, s in zip(second, SHARES, strict=True)], [(0, 127)]
    )
    for key in KEYS:
        third[0].scope.key = key
        assert third[0].state(renamed).value() == (None if key % 2 else -key)
        assert third[0].state(v).value() == key


@pytest.mark.parametrize("claims", [0, 1])
async def test_a_renamed_state_is_whole_after_a_checkpoint_of_both_names(backends: Any, claims: int) -> None:
    """Rescaled before the rest was asked for: one object holds some rows under each name."""
    before, after = EVOLUTIONS["the state has a new name"]
    chains = await half_claimed(backends, before, after, claims)
    third = await restored(backends, chains, [(0, 127)])
    fourth = await restored(backends, [await chain_of(third[0], (0, 127))], SHARES)
    for backend, share in zip(fourth, SHARES, strict=True):
        for key in share_of(backend, share):
            assert read(backend, after, key) == {"low": key, "high": key + 1_000}


async def test_two_forms_of_a_state_in_one_object_are_refused_with_the_remedy(backends: Any) -> None:
    before, after = EVOLUTIONS["fields change places"]
    chains = await half_claimed(backends, before, after, 0)
    (third,) = await restored(backends, chains, [(0, 127)])
    with pytest.raises(SnapshotError, match="two forms") as err:
        third.cut()
    assert "open()" in (err.value.remedy or "")
    assert "high" in (err.value.got or "")


async def test_another_time_to_live_is_no_other_form(backends: Any) -> None:
    before, after = living(ValueStateDescriptor("v", INT)), ValueStateDescriptor("v", INT)
    after.enable_time_to_live(StateTtlConfig(20_000))
    first = backends.make()
    for key in KEYS:
        first.scope.key = key
        first.state(before).update(key)
    second = await restored(backends, [await chain_of(first, (0, 127))], SHARES)
    second[1].state(after)
    third = await restored(
        backends, [await chain_of(b, s) for b, s in zip(second, SHARES, strict=True)], [(0, 127)]
    )
    fourth = await restored(backends, [await chain_of(third[0], (0, 127))], [(0, 127)])
    for key in KEYS:
        fourth[0].scope.key = key
        assert fourth[0].state(after).value() == key

"""Keyed state and timers under load: cuts copied between changes, put together as chains,
are what stood there at each barrier, whatever the backend."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.messages.slot import StateHandle, StateLink
from penstock.snapshots import restoring
from penstock.snapshots.contract import OperatorSnapshot
from penstock.snapshots.writing import write_snapshot
from penstock.state import key_changes
from penstock.state.backend import KeyedStateBackend
from penstock.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ValueStateDescriptor,
)
from penstock.state.epochs import Epochs
from penstock.state.stored_timers import StoredTimers
from penstock.state.tables import GoneRows
from penstock.types import logical as t
from tests.state.conftest import Backends

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LONG = t.BigIntType()
ALL = (0, 127)


class Appending:
    """An aggregate whose accumulator changes in place."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[int]) -> int:
        return sum(accumulator)


class States:
    """All kinds of state of one backend beside plain Python doing the same."""

    def __init__(self, backend: KeyedStateBackend) -> None:
        self.backend = backend
        self.value = backend.state(ValueStateDescriptor("v", LONG))
        self.list = backend.state(ListStateDescriptor("l", LONG))
        self.map = backend.state(MapStateDescriptor("m", LONG, LONG))
        self.object = backend.state(ValueStateDescriptor("o", t.RawType()))
        self.total = backend.state(AggregatingStateDescriptor("a", Appending(), t.RawType()))
        self.truth: dict[str, Any] = {"v": {}, "l": {}, "m": {}, "o": {}, "a": {}, "timers": set()}

    def change(self, key: int, what: str, number: int) -> None:
        backend, truth = self.backend, self.truth
        backend.scope.key = key
        match what:
            case "value":
                self.value.update(number)
                truth["v"][key] = number
            case "clear":
                self.value.clear()
                truth["v"].pop(key, None)
            case "append":
                self.list.add(number)
                truth["l"].setdefault(key, []).append(number)
            case "clear list":
                self.list.clear()
                truth["l"].pop(key, None)
            case "put":
                self.map.put(number, number)
                truth["m"].setdefault(key, {})[number] = number
            case "take":
                self.map.remove(number)
                if truth["m"].get(key, {}).pop(number, None) is not None and not truth["m"][key]:
                    del truth["m"][key]
            case "object":
                found = self.object.value() or []
                found.append(number)  # in place, before update
                self.object.update(found)
                truth["o"].setdefault(key, []).append(number)
            case "add":
                self.total.add(number)
                truth["a"].setdefault(key, []).append(number)
            case "register":
                backend.event_timers.register(number, key)
                truth["timers"].add((number, key))
            case "delete":
                backend.event_timers.delete(number, key)
                truth["timers"].discard((number, key))
        if number % 3 == 0:
            backend.end_batch()

    def found(self, keys: range) -> dict[str, Any]:
        """What the backend says, in the form of ``truth``."""
        out: dict[str, Any] = {"v": {}, "l": {}, "m": {}, "o": {}, "a": {}}
        for key in keys:
            self.backend.scope.key = key
            values = {
                "v": self.value.value(), "l": self.list.get() or None, "m": dict(self.map.items()) or None,
                "o": self.object.value(), "a": self.total.get(),
            }  # fmt: skip
            for name, value in values.items():
                if value is not None:
                    out[name][key] = value
        out["timers"] = {pair for pair, _ in self.backend.event_timers.pairs()}
        return out


KINDS = ["value", "clear", "append", "clear list", "put", "take", "object", "add", "register", "delete"]
STEP = st.one_of(
    st.tuples(st.just("change"), st.integers(0, 5), st.sampled_from(KINDS), st.integers(0, 5)),
    st.tuples(st.just("change"), st.integers(0, 5), st.sampled_from(KINDS), st.integers(0, 5)),
    st.tuples(st.just("copy"), st.sampled_from([1, 3, 50])),
    st.tuples(st.just("cut")),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("abort")),
    st.tuples(st.just("shorten")),
)


@pytest.fixture(
    params=[("hashmap", 0), ("leveldb", 0), ("leveldb", 1 << 20)], ids=["hashmap", "leveldb", "limited"]
)
def backends(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backends]:
    made = Backends(request.param[0], tmp_path, request.param[1])
    yield made
    made.close()


def shorten(backend: KeyedStateBackend) -> None:
    """What a backend does that holds too much: it gives up what it remembers of changes, and moves timers."""
    for rows in backend._kept():
        rows.changes.forget()
    if isinstance(backend.event_timers, StoredTimers):
        backend.event_timers.spill()


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(STEP, max_size=70))
async def test_every_chain_is_the_state_at_its_barrier(backends: Any, steps: list[tuple[Any, ...]]) -> None:
    states = States(backends.make())
    epochs = states.backend.epochs
    pending: list[Any] = []
    done: list[tuple[list[StateLink], Any]] = []
    confirmed: tuple[int, list[StateLink]] = (0, [])
    number = 0

    def finish(entry: Any) -> tuple[int, list[StateLink]]:
        checkpoint_id, snapshot, epoch, truth, base = entry
        data = write_snapshot({"op": snapshot.copied()}, checkpoint_id=checkpoint_id, key_groups=ALL)
        links = [StateLink(checkpoint_id=checkpoint_id, inline=data, size_bytes=len(data)), *base]
        done.append((links, truth))
        return epoch, links

    for step in [*steps, ("cut",), ("change", 1, "value", 7), ("change", 1, "object", 7)]:
        match step:
            case ("change", key, what, value):
                states.change(key, what, value)
            case ("copy", pieces):
                for entry in pending:
                    budget = iter([True] * pieces)
                    for block in entry[1].keyed.values():
                        block.copy(lambda budget=budget: next(budget, False))
            case ("cut",):
                since, base = confirmed
                epoch = epochs.begin(since)
                number += 1
                snapshot = OperatorSnapshot(keyed=states.backend.cut())
                pending.append((number, snapshot, epoch, copy.deepcopy(states.truth), base))
            case ("checkpoint",) if pending:
                found = finish(pending.pop(0))
                if found[0] > confirmed[0]:
                    confirmed = found
            case ("abort",) if pending:
                for block in pending.pop(0)[1].keyed.values():
                    block.discard()
            case ("shorten",):
                shorten(states.backend)
    for entry in pending:
        finish(entry)
    for links, truth in done[-4:]:
        truth["a"] = {key: sum(values) for key, values in truth["a"].items()}
        handle = StateHandle(
            vertex_id="v", subtask_index=0, checkpoint_id=1, inline=links[0].inline,
            size_bytes=links[0].size_bytes, key_groups=ALL, chain=tuple(links[1:]),
        )  # fmt: skip
        restored = await restoring.restore([handle], "op", ALL, 0, 1)
        assert restored is not None
        other = backends.make()
        other.restore(restored)
        assert States(other).found(range(6)) == truth
        other.close()


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_changes, "_FIRST_ROWS", 2)


def test_a_delta_holds_changed_and_removed_keys_only(backends: Any) -> None:
    states = States(backends.make())
    for key in range(100):
        states.change(key, "value", key)
        states.change(key, "put", 1)
    backend = states.backend
    since = backend.epochs.begin(0)
    OperatorSnapshot(keyed=backend.cut()).copied()
    states.change(3, "value", 8)
    states.change(4, "clear", 1)
    states.change(200, "value", 1)
    states.change(200, "clear", 1)  # came and went: no trace
    states.change(5, "put", 2)
    backend.epochs.begin(since)
    snapshot = OperatorSnapshot(keyed=backend.cut())
    values = snapshot.block("value/v").batch.to_pydict()
    assert sorted(zip(values["key0"], values["value"], values["__removed"], strict=True)) == [
        (3, 8, False), (4, None, True),
    ]  # fmt: skip
    entries = snapshot.block("map/m")
    assert entries.delta
    assert sorted(zip(entries.batch["key0"].to_pylist(), entries.batch["map_key"].to_pylist(), strict=True)) == [
        (5, 1), (5, 2),
    ]  # fmt: skip
    assert snapshot.block("list/l").batch.num_rows == 0


def test_without_checkpoints_nothing_piles_up(backends: Any) -> None:
    """Timers and windows come and go: what is remembered of them goes too."""
    queue = backends.make().event_timers
    for time in range(1000):
        queue.register(time, "k")
        assert list(queue.due(time)) == [(time, "k")]
    assert not queue.changes.changed


def test_a_state_whose_changes_were_given_up_is_whole_in_the_next_snapshot_and_a_delta_after_it(
    backends: Any,
) -> None:
    states = States(backends.make())
    backend = states.backend
    for key in range(100):
        states.change(key, "value", key)
    since = backend.epochs.begin(0)
    OperatorSnapshot(keyed=backend.cut()).copied()
    shorten(backend)
    states.change(3, "value", 8)
    assert [rows.changes.recorded for rows in backend._kept()] == [0] * 7
    since = backend.epochs.begin(since)
    values = OperatorSnapshot(keyed=backend.cut()).block("value/v")
    assert (values.delta, values.batch.num_rows) == (False, 100)
    states.change(4, "value", 9)
    backend.epochs.begin(since)
    values = OperatorSnapshot(keyed=backend.cut()).block("value/v")
    assert (values.delta, values.batch.to_pydict()["key0"]) == (True, [4])


async def restored_chain(links: list[StateLink]) -> Any:
    """What a chain holds, newest object first."""
    handle = StateHandle(
        vertex_id="v", subtask_index=0, checkpoint_id=1, inline=links[0].inline,
        size_bytes=links[0].size_bytes, key_groups=ALL, chain=tuple(links[1:]),
    )  # fmt: skip
    return await restoring.restore([handle], "op", ALL, 0, 1)


def link(number: int, backend: KeyedStateBackend) -> StateLink:
    """A snapshot object of this moment."""
    snapshot = OperatorSnapshot(keyed=backend.cut()).copied()
    data = write_snapshot({"op": snapshot}, checkpoint_id=number, key_groups=ALL)
    return StateLink(checkpoint_id=number, inline=data, size_bytes=len(data))


async def test_a_state_that_is_first_asked_for_after_a_checkpoint_is_whole_in_the_delta(
    backends: Any,
) -> None:
    """Triggers and window functions ask for state in the middle of a job."""
    backend = backends.make()
    first = ValueStateDescriptor("first", LONG)
    backend.scope.key = 1
    backend.state(first).update(10)
    since = backend.epochs.begin(0)
    base = link(1, backend)
    backend.epochs.confirmed = since
    late = ValueStateDescriptor("late", LONG)
    backend.state(late).update(20)
    backend.epochs.begin(since)
    delta = link(2, backend)
    other = backends.make()
    other.restore(await restored_chain([delta, base]))
    other.scope.key = 1
    assert (other.state(first).value(), other.state(late).value()) == (10, 20)


async def test_a_restored_state_that_is_claimed_after_a_checkpoint_is_whole_in_the_delta(
    backends: Any,
) -> None:
    """Until then the chain holds it under its former name, and in its former type."""
    source = backends.make()
    for key in range(5):
        source.scope.key = key
        source.state(ValueStateDescriptor("old", t.IntType())).update(key)
    source.epochs.begin(0)
    backend = backends.make()
    backend.restore(await restored_chain([link(1, source)]))
    since = backend.epochs.begin(0)
    base = link(2, backend)
    backend.epochs.confirmed = since
    claimed = ValueStateDescriptor("old", LONG)
    backend.scope.key = 3
    backend.state(claimed).update(1 << 40)
    backend.epochs.begin(since)
    delta = link(3, backend)
    other = backends.make()
    other.restore(await restored_chain([delta, base]))
    found = []
    for other.scope.key in range(5):
        found.append(other.state(claimed).value())
    assert found == [0, 1, 2, 1 << 40, 4]


def test_where_every_snapshot_is_whole_nothing_piles_up(backends: Any) -> None:
    """A small state is always written whole: keys that went before a confirmed checkpoint are forgotten."""
    backend = backends.make()
    queue, epochs = backend.event_timers, backend.epochs
    for time in range(100):
        queue.register(time, 7)
        upto = epochs.begin(0)
        OperatorSnapshot(keyed=backend.cut()).copied()
        epochs.confirmed = upto
        assert list(queue.due(time)) == [(time, 7)]
    assert sum(len(keys) for _, keys in queue.changes._older) <= 4


def test_where_every_snapshot_is_whole_the_numbers_of_rows_that_went_are_forgotten() -> None:
    epochs = Epochs()
    gone = GoneRows(epochs)
    for number in range(100):
        gone.add(np.array([number]))
        upto = epochs.begin(0)
        assert sum(map(len, gone.since(epochs.since, epochs.end()))) <= 2
        epochs.confirmed = upto

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any

import plyvel
import pytest

from penstock.state import stored_timers
from penstock.state.blocks import decode_namespace, encode_namespace
from penstock.state.codec import tuple_codec
from penstock.state.epochs import Epochs
from penstock.state.stored_timers import EntryCodec, StoredTimers
from penstock.state.timers import TimerQueue
from penstock.types import logical as t

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KEY = (t.BigIntType(), t.VarCharType())


def test_order_is_time_then_key_and_repeats_count_once() -> None:
    queue = TimerQueue()
    for time, key in [(5, "b"), (3, "z"), (5, "a"), (5, "b"), (9, "a")]:
        queue.register(time, key)
    assert len(queue) == 4
    assert queue.next_time == 3
    assert list(queue.due(5)) == [(3, "z"), (5, "a"), (5, "b")]
    assert (len(queue), queue.next_time) == (1, 9)


def test_keys_without_an_order_fire_in_a_stable_one() -> None:
    queue = TimerQueue()
    for key in (("a", None), ("a", 1), ("a", "x")):
        queue.register(1, key)
    assert {key for _, key in queue.due(1)} == {("a", None), ("a", 1), ("a", "x")}


def test_registering_and_deleting_while_firing() -> None:
    queue = TimerQueue()
    queue.register(1, "a")
    queue.register(1, "b")
    queue.register(1, "c")
    fired = []
    for time, key in queue.due(10):
        fired.append((time, key))
        if key == "a":
            queue.delete(1, "b")
            queue.register(7, "a2")
            queue.register(0, "late")
            queue.register(11, "not due")
    assert fired == [(1, "a"), (0, "late"), (1, "c"), (7, "a2")]
    assert [pair for pair, _ in queue.pairs()] == [(11, "not due")]


def test_deleted_timers_never_fire() -> None:
    queue = TimerQueue()
    queue.register(1, "a")
    queue.delete(1, "a")
    queue.delete(1, "a")
    queue.delete(2, "x")
    assert (len(queue), queue.next_time) == (0, None)
    queue.register(1, "a")
    assert list(queue.due(1)) == [(1, "a")]


def test_random_against_a_set() -> None:
    rng = random.Random(3)
    queue, model = TimerQueue(), set()
    for _ in range(3000):
        time, key = rng.randrange(40), rng.randrange(5)
        if rng.random() < 0.6:
            queue.register(time, key)
            model.add((time, key))
        elif rng.random() < 0.8:
            queue.delete(time, key)
            model.discard((time, key))
        else:
            due = {e for e in model if e[0] <= time}
            assert list(queue.due(time)) == sorted(due)
            model -= due
        assert len(queue) == len(model)
        assert {pair for pair, _ in queue.pairs()} == model


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Callable[..., StoredTimers]]:
    """Makes queues that can spill, all in one database."""
    db = plyvel.DB(str(tmp_path / "db"), create_if_missing=True)
    kinds = itertools.count()

    def make(types: tuple[t.LogicalType, ...], *, windows: bool = False) -> StoredTimers:
        keys = tuple_codec(types)

        def encode(entry: Any) -> bytes:
            return keys.encode(entry[0]) + encode_namespace(entry[1]) if windows else keys.encode(entry)

        def decode(data: bytes) -> Any:
            return (keys.decode(data[:-16]), decode_namespace(data[-16:])) if windows else keys.decode(data)

        return StoredTimers(Epochs(), db, next(kinds), EntryCodec(encode, decode, lambda: windows), 3)

    yield make
    db.close()


@pytest.mark.parametrize("seed", range(4))
def test_timers_on_disk_fire_as_those_in_memory_do(
    stored: Callable[..., StoredTimers], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Few times with many timers, so that those of one time come back in pieces; timers are changed meanwhile."""
    monkeypatch.setattr(stored_timers, "_MOST_SEEN", 2)
    rng, again = random.Random(seed), random.Random(seed)
    other = stored((t.BigIntType(),))
    other.register(0, 1)
    other.spill()
    fired = []
    for queue, chance in ((stored(KEY, windows=True), rng), (TimerQueue(), again)):
        out: list[Any] = []
        for _ in range(3000):
            time, roll = chance.randrange(-5, 5), chance.random()
            start = chance.randrange(-3, 3)
            entry = (
                (chance.randrange(-3, 3), chance.choice(["", "a", "ab", "ä", "a\0", "a\0b"])),
                (start, start + 2),
            )
            if roll < 0.6:
                out.append(queue.register(time, entry))
            elif roll < 0.8:
                queue.delete(time, entry)
            elif roll < 0.9:
                if isinstance(queue, StoredTimers):
                    queue.spill()
            elif roll < 0.96:
                out.append(queue.known((time, entry)))
                out.append(sorted(pair for pair, _ in queue.pairs()))
            else:
                for n, (at, due) in enumerate(queue.due(time)):
                    out.append((at, due))
                    if n % 3 == 0:
                        queue.delete(at, ((due[0][0], "a"), due[1]))
                        for new in (time, at - 1 if n < 9 else 7):
                            if new != at:  # it would come with the next piece from the disk, or after all
                                queue.register(new, ((n, "new"), due[1]))
                    if isinstance(queue, StoredTimers):
                        assert queue.spill() == 0, "nothing moves while timers fire"
            out.append((len(queue), queue.next_time))
        if isinstance(queue, StoredTimers):
            assert queue.stored
        fired.append(out)
    differences = [(i, *pair) for i, pair in enumerate(zip(*fired, strict=True)) if pair[0] != pair[1]]
    assert differences[:1] == []
    assert [pair for pair, _ in other.pairs()] == [(0, 1)]


def test_keys_of_every_type_come_back_from_the_disk(stored: Callable[..., StoredTimers]) -> None:
    queue = stored((t.DoubleType(), t.BooleanType(), t.BinaryType(2)))
    entries = {(1.5, True, b"ab"), (-1.5, False, b"\xff\xff"), (None, None, None)}
    for entry in entries:
        queue.register(1 << 62, entry)
    assert (queue.spill(), queue.in_memory) == (3, 0)
    assert not queue.register(1 << 62, (None, None, None))
    assert {entry for _, entry in queue.due(1 << 62)} == entries
    assert (len(queue), queue.stored, queue.next_time) == (0, 0, None)


def test_the_listing_of_timers_is_of_its_moment(stored: Callable[..., StoredTimers]) -> None:
    queue = stored((t.BigIntType(),))
    for key in range(4):
        queue.register(key, key)
        if key == 1:
            queue.spill()
    listing = queue.pairs()
    first = next(listing)
    queue.spill()
    assert list(queue.due(0)) == [(0, 0)]
    queue.register(9, 9)
    assert sorted(pair for pair, _ in [first, *listing]) == [(0, 0), (1, 1), (2, 2), (3, 3)]

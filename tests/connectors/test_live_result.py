"""The watched table: equals the materialised changelog, through restarts, and keeps no history."""

from __future__ import annotations

import random

import pytest

from penstock.connectors.collect import MaterializedResult, decode_chunk, encode_chunk
from penstock.connectors.live_result import LiveResult
from penstock.errors import InternalError
from penstock.types import Batch
from penstock.types import logical as t

SCHEMA = t.Schema.of(("k", t.IntType()), ("v", t.IntType()))
SHOWN = 5


class Changelog:
    """Makes changes that fit one another; can be taken back to a row of it."""

    def __init__(self, mode: str, seed: int) -> None:
        self.mode, self.random = mode, random.Random(seed)
        self.log: list[tuple[int, tuple]] = []

    def more(self, n: int) -> None:
        for _ in range(n):
            standing = MaterializedResult((0,) if self.mode == "upsert" else None)
            standing._log = self.log
            rows = standing.rows()
            k, v = self.random.randrange(8), self.random.randrange(3)
            if self.mode == "append" or not rows or self.random.random() < 0.6:
                fresh = self.mode != "upsert" or all(r[0] != k for r in rows)
                self.log.append((0 if fresh else 2, (k, v)))
            else:
                self.log.append((3, self.random.choice(rows)))


def chunk(changes, *, offset: int, settled: int | None, attempt: int = 0, sequence: int = 0):
    batch = Batch.of(SCHEMA, [row for _, row in changes], kinds=[kind for kind, _ in changes])
    data = encode_chunk(batch, offset=offset, end=False, settled=settled)
    return decode_chunk(f"jobs/j/results/{attempt:06d}-{sequence:012d}", data)


@pytest.mark.parametrize("mode", ["append", "upsert", "retract"])
@pytest.mark.parametrize("seed", range(5))
def test_equals_the_materialised_changelog_through_restarts(mode, seed):
    keys = (0,) if mode == "upsert" else None
    source, live, pick = Changelog(mode, seed), LiveResult(mode, keys, SHOWN), random.Random(seed)
    settled = 0
    for _ in range(60):
        if source.log and pick.random() < 0.15:  # a restart: other changes from the checkpoint on
            del source.log[settled:]
        at = len(source.log)
        source.more(pick.randrange(1, 12))
        live.add(chunk(source.log[at:], offset=at, settled=settled))
        expected = MaterializedResult(keys)
        expected._log = list(source.log)
        rows, count = live.rows()
        wanted = expected.rows()
        assert count == len(wanted)
        if mode == "retract":  # equal rows stand together
            assert set(rows) <= set(wanted)
            assert len(rows) == min(SHOWN, count)
        else:
            assert rows == wanted[-SHOWN:]
        if pick.random() < 0.4:
            settled = pick.randrange(settled, len(source.log) + 1)


def test_what_is_held_is_bounded_by_what_is_shown_and_the_keys():
    append = LiveResult("append", None, SHOWN)
    upsert = LiveResult("upsert", (0,), SHOWN)
    at = 0
    for i in range(300):
        changes = [(0 if i == 0 else 2, (k, i)) for k in range(8)]
        append.add(chunk([(0, row) for _, row in changes], offset=at, settled=at))
        upsert.add(chunk(changes, offset=at, settled=at))
        at += len(changes)
    assert append.rows() == ([(k, 299) for k in range(3, 8)], 2400)
    assert upsert.rows() == ([(k, 299) for k in range(3, 8)], 8)
    assert append.held <= 2 * SHOWN + 8
    assert upsert.held <= 2 * 8 + 8


def test_without_checkpoints_nothing_is_held_back_and_a_restart_begins_anew():
    live = LiveResult("upsert", (0,), SHOWN)
    for i in range(50):
        live.add(chunk([(2, (1, i)), (2, (2, i))], offset=2 * i, settled=None))
    assert live.held == 2
    live.add(chunk([(0, (7, 7))], offset=0, settled=None, attempt=1))
    assert live.rows() == ([(7, 7)], 1)


def test_going_back_behind_a_checkpoint_is_an_error():
    live = LiveResult("append", None, SHOWN)
    live.add(chunk([(0, (1, 1)), (0, (2, 2)), (0, (3, 3))], offset=0, settled=2))
    with pytest.raises(InternalError, match="behind a checkpoint"):
        live.add(chunk([(0, (9, 9))], offset=1, settled=2, attempt=1))

"""Outputs and credit: thresholds, flushing, order, blocking, bounded memory."""

from __future__ import annotations

import random

import numpy as np
import pytest

from penstock.columnar.hashing import hash_columns, key_groups, subtask_of_key_group
from penstock.jobgraph import Broadcast, Forward, Global, Hash, Rebalance
from penstock.runtime.channels import GateBatch
from penstock.runtime.credit import EXCLUSIVE_BYTES, MAX_WINDOW_BYTES, CreditPool, ReceiveWindow
from penstock.runtime.elements import Element, Watermark
from penstock.runtime.gates import InputGates
from penstock.runtime.outputs import MAX_ROWS, TARGET_ROWS, EdgeWriter, OutputChannel, Outputs, element_bytes
from penstock.runtime.partitioners import make_partitioner
from penstock.types import Batch, Column, Schema
from penstock.types.logical import BigIntType, VarCharType

LONG = BigIntType(nullable=False)
SCHEMA = Schema.of(("x", LONG))


def rows(n: int, start: int = 0) -> Batch:
    return Batch(SCHEMA, [Column(LONG, np.arange(start, start + n))])


class Receiver:
    def __init__(self, credit: int = 1 << 40) -> None:
        self.got: list[Element] = []
        self.outputs = Outputs()
        self.channel = OutputChannel(self.outputs, self._push, credit)

    def _push(self, element: Element) -> int:
        self.got.append(element)
        return element_bytes(element)

    def sizes(self) -> list[int]:
        return [e.num_rows if isinstance(e, Batch) else -1 for e in self.got]


def test_rows_gather_until_there_are_enough() -> None:
    r = Receiver()
    for i in range(5):
        r.channel.append(rows(TARGET_ROWS // 4, i))
    assert r.sizes() == [TARGET_ROWS]
    r.channel.flush()
    assert r.sizes() == [TARGET_ROWS, TARGET_ROWS // 4]


def test_control_elements_stay_behind_the_rows_before_them() -> None:
    r = Receiver()
    r.channel.append(rows(3))
    r.channel.emit(Watermark(1))
    r.channel.append(rows(2))
    r.channel.emit(Watermark(2))
    assert r.sizes() == [3, -1, 2, -1]


def test_a_huge_batch_leaves_in_pieces() -> None:
    r = Receiver()
    r.channel.append(rows(3 * MAX_ROWS + 1))
    assert sum(r.sizes()) == 3 * MAX_ROWS + 1
    assert max(r.sizes()) <= MAX_ROWS


def test_without_credit_it_blocks_and_goes_on_in_order() -> None:
    r = Receiver(credit=1)
    told: list[int] = []
    r.outputs.on_unblocked = lambda: told.append(1)
    r.channel.emit(Watermark(1))  # overdraws
    assert not r.outputs.blocked
    r.channel.append(rows(5))
    r.channel.flush()
    assert not r.outputs.blocked  # a few rows may wait for credit; the task may go on
    r.channel.append(rows(TARGET_ROWS))
    assert r.outputs.blocked
    r.channel.emit(Watermark(2))
    assert r.sizes() == [-1]
    r.channel.add_credit(64)  # back to just above nothing
    assert r.sizes() == [-1, TARGET_ROWS + 5]
    assert r.outputs.blocked
    r.channel.add_credit(1 << 20)
    assert r.sizes() == [-1, TARGET_ROWS + 5, -1]
    assert not r.outputs.blocked
    assert told == [1]


def test_a_flush_without_credit_happens_when_credit_comes() -> None:
    r = Receiver(credit=0)
    r.channel.append(rows(5))
    r.channel.flush()
    assert r.got == []
    r.channel.add_credit(10)
    assert r.sizes() == [5]


@pytest.mark.parametrize("seed", range(5))
def test_memory_between_sender_and_receiver_is_bounded(seed: int) -> None:
    """A fast sender and a slow receiver with real windows: what is on the way stays
    within the channel's window and one element, and every row arrives in order."""
    rng = random.Random(seed)
    pool = CreditPool(4 * EXCLUSIVE_BYTES)
    gates = InputGates([["c"]])
    target = gates.channels[0][0]
    outputs = Outputs()

    def push(element: Element) -> int:
        cost = element_bytes(element)
        target.push(element, cost)
        return cost

    sender = OutputChannel(outputs, push, EXCLUSIVE_BYTES)
    target.window = ReceiveWindow(pool, sender.add_credit)
    sent, got, most, one = 0, [], 0, 8 * 2 * TARGET_ROWS + 64
    while sum(len(g) for g in got) < 400_000:
        while not outputs.blocked and sent < 400_000:
            n = rng.choice([10, 1000, 5000])
            sender.append(rows(n, sent))
            sent += n
        sender.flush()
        most = max(most, gates.queued_bytes())
        for _ in range(rng.randrange(1, 4)):
            event = gates.poll(rng.choice([100, 4000, 60_000]))
            if isinstance(event, GateBatch):
                got.append(event.batch.columns[0].values)
    assert most <= MAX_WINDOW_BYTES + one
    assert most > EXCLUSIVE_BYTES
    values = np.concatenate(got)
    assert (values == np.arange(len(values))).all()


def test_a_scarce_pool_gets_back_what_it_lent() -> None:
    pool = CreditPool(2 * EXCLUSIVE_BYTES)
    granted: list[int] = []
    window = ReceiveWindow(pool, granted.append)
    window.received(EXCLUSIVE_BYTES)
    assert pool.free == EXCLUSIVE_BYTES
    assert window.size == 2 * EXCLUSIVE_BYTES
    pool.take(EXCLUSIVE_BYTES)  # others took the rest
    window.received(EXCLUSIVE_BYTES)
    window.consumed(2 * EXCLUSIVE_BYTES)
    assert window.size == EXCLUSIVE_BYTES
    assert pool.free == EXCLUSIVE_BYTES
    assert window.outstanding == EXCLUSIVE_BYTES


KEYED = Schema.of(("k", VarCharType()), ("v", LONG))


def partition(how: object, batch: Batch, channels: int, subtask: int = 0) -> list[list[int]]:
    partitioner = make_partitioner(how, subtask_index=subtask, channels=channels, max_parallelism=128)
    out: list[list[int]] = [[] for _ in range(channels)]
    for channel, part in partitioner.partition(batch):
        out[channel].extend(part.columns[1].values.tolist())
    return out


def test_hash_follows_the_key_groups_and_keeps_order() -> None:
    batch = Batch.of(KEYED, [(None if i % 11 == 0 else f"key {i % 50}", i) for i in range(1000)])
    found = partition(Hash(keys=(0,)), batch, 3)
    groups = key_groups(hash_columns([batch.columns[0]]), 128)
    targets = subtask_of_key_group(groups, 3, 128)
    assert found == [np.flatnonzero(targets == i).tolist() for i in range(3)]
    assert all(found)


def test_the_other_partitionings() -> None:
    batch = Batch.of(KEYED, [("a", i) for i in range(4)])
    assert partition(Forward(), batch, 1) == [[0, 1, 2, 3]]
    assert partition(Global(), batch, 2) == [[0, 1, 2, 3], []]
    assert partition(Broadcast(), batch, 2) == [[0, 1, 2, 3], [0, 1, 2, 3]]
    assert partition(Rebalance(), batch, 3, subtask=1) == [[], [0, 1, 2, 3], []]


def test_an_edge_counts_what_it_sends() -> None:
    r = Receiver()
    edge = EdgeWriter(
        make_partitioner(Forward(), subtask_index=0, channels=1, max_parallelism=1), [r.channel]
    )
    edge.write(rows(5))
    edge.write(rows(7))
    assert edge.records_out == 12

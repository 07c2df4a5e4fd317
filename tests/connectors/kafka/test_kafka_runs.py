"""Messages of the client, by their partitions, and batches in which some cannot be read."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.connectors.kafka.stored import runs_of


class Message:
    def __init__(self, topic: str | None, partition: int | None, offset: int) -> None:
        self._told = topic, partition, offset

    def topic(self) -> str | None:
        return self._told[0]

    def partition(self) -> int | None:
        return self._told[1]

    def offset(self) -> int:
        return self._told[2]


@pytest.mark.parametrize(
    "places",
    [
        [],
        [("a", 0)] * 3,
        [("a", 0), ("a", 1), ("a", 0), ("a", 1), ("a", 1)],
        [("a", 0), ("b", 0), ("a", 0)],
        [("a", 1), ("b", 1), ("b", 1), ("a", 0), (None, None), ("a", 1)],
    ],
)
def test_each_partition_has_its_messages_in_order(places: list[Any]) -> None:
    messages: Any = [Message(topic, partition, i) for i, (topic, partition) in enumerate(places)]
    want: dict[Any, list[int]] = {}
    for offset, (topic, partition) in enumerate(places):
        want.setdefault((str(topic), partition or 0), []).append(offset)
    found = runs_of(messages)
    assert {place: [m.offset() for m in run] for place, run in found} == want
    assert len(found) == len(want)

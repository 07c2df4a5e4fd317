"""Finds the partitions of the topics, and fixes the start and the end of each."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from penstock.connectors.base import SourceEnumerator, Split, TableInfo
from penstock.connectors.kafka.client import (
    ANSWER_S,
    Caller,
    Refused,
    client_properties,
    failure,
    list_topics,
    patiently,
)
from penstock.connectors.kafka.positions import specific_offsets
from penstock.connectors.kafka.topics import topic_ids
from penstock.errors import ConnectorError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import Consumer, TopicPartition

    from penstock.connectors.base import SourceContext
    from penstock.options import OptionSet


class KafkaEnumerator(SourceEnumerator):
    """A split for each partition. ``start`` and ``end`` in its payload are offsets; no end: unbounded.
    ``topic_id`` distinguishes the topic from another one that is created later with the same name.

    Partitions that come up later are read from their beginning, as Flink does.
    """

    def __init__(self, table: TableInfo, option_set: OptionSet) -> None:
        self._owner = option_set.owner
        self._options = {"scan.startup.mode": "earliest-offset", **option_set.read(table.options)}
        self._properties = client_properties(table.options, self._owner)
        self._where = f"{self._owner}, {self._properties['bootstrap.servers']}"
        self._topics = [name.strip() for name in (self._options["topic"] or "").split(";") if name.strip()]
        pattern = self._options.get("topic-pattern")
        self._pattern = re.compile(pattern) if pattern else None
        self._caller = Caller("kafka-discovery")
        self._consumer: Consumer | None = None
        self._refused = Refused()
        bounded = self._options["scan.bounded.mode"] != "unbounded"
        interval = self._options["scan.topic-partition-discovery.interval"]
        self.discovery_interval_ms = None if bounded or not interval else interval

    async def discover(self, ctx: SourceContext, known: set[str]) -> Sequence[Split]:
        return await self._caller.call(asyncio.get_running_loop(), self._discover, ctx, known)

    def _discover(self, ctx: SourceContext, known: set[str]) -> list[Split]:
        """Ask the brokers; runs in the client's thread."""
        import confluent_kafka as ck

        if self._consumer is None:
            group = self._properties.get("group.id", f"penstock-{ctx.job_id}-{ctx.uid}")
            given = {k: v for k, v in self._properties.items() if k != "auto.offset.reset"}
            own = {"group.id": group, "enable.auto.commit": False, "error_cb": self._refused, "log_level": 0}
            self._consumer = ck.Consumer({**given, **own})
        try:
            places = self._partitions(self._consumer)
            fresh = [ck.TopicPartition(t, p) for t, p in places if f"{t}-{p}" not in known]
            if not fresh:
                return []
            starts = self._starts(self._consumer, fresh, first=not known)
            ends = self._ends(self._consumer, fresh)
            ids = topic_ids(self._properties, {p.topic for p in fresh}, self._where)
        except ck.KafkaException as err:
            raise failure(err.args[0], "the partitions cannot be listed", self._where) from None
        splits = []
        for place in fresh:
            payload: dict[str, Any] = {"topic": place.topic, "partition": place.partition}
            payload["start"] = starts[place.topic, place.partition]
            if place.topic in ids:
                payload["topic_id"] = ids[place.topic]
            if ends is not None:
                payload["end"] = ends[place.topic, place.partition]
            splits.append(Split(f"{place.topic}-{place.partition}", payload))
        return splits

    def _partitions(self, consumer: Consumer) -> list[tuple[str, int]]:
        if self._pattern is not None:
            listed = list_topics(consumer, self._refused).topics
            names = [n for n in sorted(listed) if self._pattern.fullmatch(n) and not n.startswith("__")]
            return [(n, p) for n in names for p in sorted(listed[n].partitions)]
        found = []
        for name in self._topics:
            topic = list_topics(consumer, self._refused, name).topics[name]
            if topic.error is not None:
                raise failure(topic.error, f"topic '{name}' cannot be read", self._where)
            found += [(name, p) for p in sorted(topic.partitions)]
        return found

    def _starts(
        self, consumer: Consumer, places: list[TopicPartition], *, first: bool
    ) -> dict[tuple[str, int], int]:
        mode = self._options["scan.startup.mode"] if first else "earliest-offset"
        if mode == "earliest-offset":
            return {(p.topic, p.partition): _low(consumer, p) for p in places}
        told = self._as_told(consumer, places, mode, "scan.startup")
        return self._committed(consumer, places) if told is None else told

    def _ends(self, consumer: Consumer, places: list[TopicPartition]) -> dict[tuple[str, int], int] | None:
        mode = self._options["scan.bounded.mode"]
        if mode == "unbounded":
            return None
        told = self._as_told(consumer, places, mode, "scan.bounded")
        if told is not None:
            return told
        found = patiently(consumer.committed, places, ANSWER_S)
        for place in found:
            if place.offset < 0:
                raise self._no_offset(place)
        return {(p.topic, p.partition): p.offset for p in found}

    def _as_told(
        self, consumer: Consumer, places: list[TopicPartition], mode: str, prefix: str
    ) -> dict[tuple[str, int], int] | None:
        """The offsets for a mode that both the start and the end of a scan can have; None for another mode.
        ``prefix``: the prefix of the options that such a mode needs."""
        match mode:
            case "latest-offset":
                return {(p.topic, p.partition): _high(consumer, p) for p in places}
            case "timestamp":
                return _at_time(consumer, places, self._options[f"{prefix}.timestamp-millis"])
            case "specific-offsets":
                option = f"{prefix}.specific-offsets"
                return self._given(places, option, remedy=f"name every partition in '{option}'")
        return None

    def _given(self, places: list[TopicPartition], option: str, *, remedy: str) -> dict[tuple[str, int], int]:
        given = specific_offsets(self._options[option], option, self._owner)
        for place in places:
            if place.partition not in given:
                raise ConnectorError(
                    f"option '{option}' does not name partition {place.partition} of topic '{place.topic}'",
                    expected="an offset for every partition",
                    got=f"offsets of the partitions {sorted(given)}",
                    where=self._owner,
                    remedy=remedy,
                )
        return {(p.topic, p.partition): given[p.partition] for p in places}

    def _committed(self, consumer: Consumer, places: list[TopicPartition]) -> dict[tuple[str, int], int]:
        """The group's offsets; a partition without one starts as ``properties.auto.offset.reset`` says."""
        out = {}
        reset = self._properties.get("auto.offset.reset", "none")
        for place in patiently(consumer.committed, places, ANSWER_S):
            if place.offset >= 0:
                out[place.topic, place.partition] = place.offset
            elif reset in ("earliest", "smallest", "beginning"):
                out[place.topic, place.partition] = _low(consumer, place)
            elif reset in ("latest", "largest", "end"):
                out[place.topic, place.partition] = _high(consumer, place)
            else:
                raise self._no_offset(place)
        return out

    def _no_offset(self, place: TopicPartition) -> ConnectorError:
        group = self._properties.get("group.id", "(none)")
        return ConnectorError(
            f"group '{group}' has committed no offset of partition {place.partition} of topic '{place.topic}'",
            expected="a committed offset, or 'properties.auto.offset.reset' = 'earliest' or 'latest'",
            got="neither",
            where=self._owner,
            remedy="set 'scan.startup.mode' = 'earliest-offset', or 'properties.auto.offset.reset'",
        )

    async def close(self) -> None:
        if self._consumer is not None:
            await self._caller.call(asyncio.get_running_loop(), self._consumer.close)
        self._caller.close()


def _low(consumer: Consumer, place: TopicPartition) -> int:
    return int(patiently(consumer.get_watermark_offsets, place, ANSWER_S)[0])


def _high(consumer: Consumer, place: TopicPartition) -> int:
    return int(patiently(consumer.get_watermark_offsets, place, ANSWER_S)[1])


def _at_time(consumer: Consumer, places: list[TopicPartition], time_ms: int) -> dict[tuple[str, int], int]:
    """The offset of the first message of that time or later; the end of the partition if there is none."""
    import confluent_kafka as ck

    asked = [ck.TopicPartition(p.topic, p.partition, time_ms) for p in places]
    found = patiently(consumer.offsets_for_times, asked, ANSWER_S)
    return {(p.topic, p.partition): p.offset if p.offset >= 0 else _high(consumer, p) for p in found}

"""What watchers of the cluster see: topics whose newest value is computed once for all who watch them.

A topic is computed as long as somebody watches it, at most once a second, and less often if computing it takes
long. A watcher that reads slowly misses values between, and never gets an old one after a newer one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import PenstockError, SpecError
from penstock.log_events import EventLog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from penstock.ports import Clock

_log = EventLog("penstock.rest")

#: The shortest time between two values of a topic, in s. Computing takes at most a quarter of the time.
INTERVAL_S = 1.0
PAUSES = 3
#: A comment is sent when nothing has changed for so long, so that a dead connection is noticed.
KEEP_ALIVE_S = 15.0
#: So many may watch at once, and each so many topics.
WATCHERS, TOPICS = 256, 8


class Topic:
    """One topic and its newest value as JSON. ``version``: grows with each change."""

    def __init__(self, name: str, compute: Callable[[], Awaitable[Any]]) -> None:
        self.name = name
        self.compute = compute
        self.value = b""
        self.version = 0
        self.watchers: set[asyncio.Event] = set()
        self.task: asyncio.Task[None] | None = None

    def publish(self, value: bytes) -> None:
        """Takes a value, and wakes the watchers if it is new."""
        if value != self.value:
            self.value = value
            self.version += 1
            for event in self.watchers:
                event.set()


class Live:
    """All topics. ``find(name)`` returns the function that computes a topic's value; it raises SpecError if there
    is no such topic."""

    def __init__(self, find: Callable[[str], Callable[[], Awaitable[Any]]], clock: Clock) -> None:
        self._find = find
        self._clock = clock
        self._topics: dict[str, Topic] = {}
        self._watchers = 0

    def watch(self, names: Sequence[str]) -> AsyncIterator[bytes]:
        """Server-sent events of these topics: first the newest value of each, then each change.

        Raises:
            SpecError: A topic does not exist, or too many are watched.
        """
        if not 0 < len(names) <= TOPICS:
            raise SpecError("a stream has topics", expected=f"1 to {TOPICS}", got=str(len(names)))
        if self._watchers >= WATCHERS:
            raise SpecError(
                "too many streams are open",
                expected=f"at most {WATCHERS}",
                remedy="close pages of the dashboard, or ask another dispatcher",
            )
        computed = {name: self._find(name) for name in names}
        return self._events(computed)

    async def _events(self, computed: dict[str, Callable[[], Awaitable[Any]]]) -> AsyncIterator[bytes]:
        changed = asyncio.Event()
        topics = [self._join(name, compute, changed) for name, compute in computed.items()]
        sent = {topic.name: 0 for topic in topics}
        self._watchers += 1
        try:
            yield b"retry: 2000\n\n"
            while True:
                changed.clear()
                for topic in topics:
                    if topic.version > sent[topic.name]:
                        sent[topic.name] = topic.version
                        yield b"event: %s\ndata: %s\n\n" % (topic.name.encode(), topic.value)
                try:
                    async with asyncio.timeout(KEEP_ALIVE_S):
                        await changed.wait()
                except TimeoutError:
                    yield b": still here\n\n"
        finally:
            self._watchers -= 1
            for topic in topics:
                self._leave(topic, changed)

    def _join(self, name: str, compute: Callable[[], Awaitable[Any]], changed: asyncio.Event) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = Topic(name, compute)
            topic.task = asyncio.get_running_loop().create_task(self._keep(topic))
        topic.watchers.add(changed)
        return topic

    def _leave(self, topic: Topic, changed: asyncio.Event) -> None:
        topic.watchers.discard(changed)
        if not topic.watchers:
            self._topics.pop(topic.name, None)
            if topic.task is not None:
                topic.task.cancel()

    async def _keep(self, topic: Topic) -> None:
        """Computes the topic until nobody watches it. An error is a value: ``{"errors": [text]}``."""
        while True:
            began_ms = self._clock.monotonic_ms()
            try:
                value = msgspec.json.encode(await topic.compute())
            except PenstockError as err:
                value = msgspec.json.encode({"errors": [str(err)]})
            except Exception as err:
                _log.error("request_failed", exc_info=err)
                value = msgspec.json.encode({"errors": [f"{type(err).__name__}: {err}"]})
            topic.publish(value)
            took_s = (self._clock.monotonic_ms() - began_ms) / 1000
            await self._clock.sleep(max(INTERVAL_S - took_s, PAUSES * took_s))

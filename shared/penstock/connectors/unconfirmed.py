"""The messages of a queue that forgets what was acknowledged: which may be acknowledged when a checkpoint is complete, and
which were read before. Pure.

The server gives out again what was not acknowledged when a connection ended, also what a checkpoint already holds. Messages
with ids of their own are then recognized: the ids of what is not surely acknowledged are in the checkpoint.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: How long the id of an acknowledged message is remembered, ms. A server that dies may forget what it acknowledged just now.
ACKNOWLEDGED_KEPT_MS = 10_000


@dataclass(frozen=True, slots=True)
class Entry:
    """A delivery that is to be acknowledged.

    Args:
        count: It may be acknowledged when a checkpoint holds so many messages.
        tag: The connection's name for it.
        id: The message's own id, if it has one.
    """

    count: int
    tag: Any
    id: str | None


class Unconfirmed:
    """The deliveries of one split. ``position``: that of the checkpoint; ``retention_ms``: how long the id of a message
    whose fate is unknown (the connection ended, the job was restored) is remembered after it was last heard of; ``acknowledged_kept_ms``: how long
    that of an acknowledged one is. ``subscribed``: whether the server has known of the reader before."""

    def __init__(
        self, position: Any, retention_ms: int, now_ms: int, acknowledged_kept_ms: int = ACKNOWLEDGED_KEPT_MS
    ) -> None:
        self._retention_ms = retention_ms
        self._acknowledged_kept_ms = acknowledged_kept_ms
        self.subscribed = bool((position or {}).get("subscribed"))
        #: Messages that were polled, and those that arrived, since the job's first start.
        self.polled = self.arrived = int((position or {}).get("messages", 0))
        self._entries: deque[Entry] = deque()
        self._waiting: set[str] = set()
        #: Polled id → when it is forgotten, ms; None: it waits for its acknowledgement.
        self._kept: dict[str, int | None] = dict.fromkeys(
            (position or {}).get("ids", ()), now_ms + retention_ms
        )

    def begin(self, now_ms: int) -> None:
        """A new connection. Tags of the one before mean nothing now, and what waits to be polled comes again."""
        self._entries.clear()
        self._waiting.clear()
        self.arrived = self.polled
        self._kept = dict.fromkeys(self._kept, now_ms + self._retention_ms)

    def arrive(self, tag: Any, id: str | None) -> bool:
        """A delivery came. False if its message was read before: it must only be acknowledged."""
        if id is not None and (id in self._kept or id in self._waiting):
            if id in self._kept:
                self._kept[id] = None
            self._entries.append(Entry(self.arrived, tag, id))
            return False
        self.arrived += 1
        self._entries.append(Entry(self.arrived, tag, id))
        if id is not None:
            self._waiting.add(id)
        return True

    def skip(self, tag: Any) -> None:
        """A delivery came that is no row: it is acknowledged with what came before it."""
        self._entries.append(Entry(self.arrived, tag, None))

    def poll(self, ids: Sequence[str | None]) -> None:
        """The next messages were polled; ``ids``: their ids."""
        self.polled += len(ids)
        for id in ids:
            if id is not None:
                self._waiting.discard(id)
                self._kept[id] = None

    def position(self) -> dict[str, Any]:
        """The position for a checkpoint."""
        return {"messages": self.polled, "ids": list(self._kept)} if self._kept else {"messages": self.polled}

    def ripe(self, position: Any) -> list[Entry]:
        """The deliveries that ``position``, which is that of a complete checkpoint, holds. They are given out once, in the
        order in which they came."""
        out = []
        while self._entries and self._entries[0].count <= position["messages"]:
            out.append(self._entries.popleft())
        return out

    def acknowledged(self, entries: Sequence[Entry], now_ms: int) -> None:
        """The server has taken the acknowledgement of ``entries``."""
        for entry in entries:
            if entry.id is not None and entry.id in self._kept:
                self._kept[entry.id] = now_ms + self._acknowledged_kept_ms

    def forget(self, now_ms: int) -> None:
        """Forget the ids whose time has come. The server must be known to be there, and not to have been away since ``begin``."""
        self._kept = {id: at for id, at in self._kept.items() if at is None or at > now_ms}

"""The savepoints and checkpoints that users have requested and that are not begun yet. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from penstock.messages.cluster import SavepointFailed
from penstock_services.jobmanager.effects import AppendLog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock_services.jobmanager.checkpoints import Request


class Requests:
    """A queue of requests, of a master with ``epoch``. Every request is in the log already."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._queue: deque[Request] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._queue)

    def add(self, request: Request) -> None:
        """Queues a request."""
        self._queue.append(request)

    def take(self) -> Request:
        """Takes the oldest request. Raises IndexError if there is none."""
        return self._queue.popleft()

    def failed(self, request: Request, checkpoint_id: int, reason: str, now_ms: int) -> AppendLog:
        """The entry that says to the user who made ``request`` why it has failed.

        ``checkpoint_id``: the checkpoint that was begun for it; 0: none was.
        """
        return AppendLog(
            SavepointFailed(
                epoch=self._epoch,
                trigger_id=request.trigger_id,
                kind=request.kind,
                reason=reason,
                timestamp_ms=now_ms,
                checkpoint_id=checkpoint_id,
            )
        )

"""Holds back messages of ``upsert-kafka`` for a while, so that only the newest of each key is written."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.connectors.kafka.encoding import OutMessage


class LatestByKey:
    """Messages by their key. ``emit`` gets the newest of each key when there are ``max_rows`` keys,
    ``interval_ms`` after the first came, and at ``flush``."""

    def __init__(self, max_rows: int, interval_ms: int, emit: Callable[[list[OutMessage]], None]) -> None:
        self._max_rows, self._interval_s, self._emit = max_rows, interval_ms / 1000, emit
        self._newest: dict[bytes | None, OutMessage] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._failure: PenstockError | None = None

    def add(self, messages: Iterable[OutMessage]) -> None:
        """Take messages. Raises the error with which ``emit`` failed in the background."""
        self._check()
        for message in messages:
            self._newest[message[0]] = message
            if len(self._newest) >= self._max_rows:
                self.flush()
        if self._newest and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._later)

    def flush(self) -> None:
        """Emit what is held back."""
        self._check()
        self.close()
        newest, self._newest = self._newest, {}
        if newest:
            self._emit(list(newest.values()))

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _later(self) -> None:
        try:
            self.flush()
        except PenstockError as err:
            self._failure = err

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

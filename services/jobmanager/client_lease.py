"""The lease of the client that waits for a job, so that a SELECT without a reader does not keep its slots.

As with Flink's client heartbeat, a job with ``execution.attached`` and
``execution.shutdown-on-attached-exit`` is cancelled when its client has been silent for
``client.heartbeat.timeout``. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.config import ATTACHED, CLIENT_HEARTBEAT_TIMEOUT_MS, SHUTDOWN_ON_ATTACHED_EXIT
from penstock.errors import ExternalError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: A master without any message for this long is assumed to be disconnected. The client then gets the whole
#: time again.
SILENCE_MS = 10_000


class ClientLease:
    """``due_ms``: when the lease ends; None: no client waits for the job."""

    def __init__(self, config: Mapping[str, str], now_ms: int) -> None:
        watched = ATTACHED.read(config) and SHUTDOWN_ON_ATTACHED_EXIT.read(config)
        self._timeout_ms = CLIENT_HEARTBEAT_TIMEOUT_MS.read(config)
        self._heard_ms = now_ms
        #: A new master does not know when the client was last heard, so the client gets the whole time.
        self.due_ms: int | None = now_ms + self._timeout_ms if watched else None

    def renew(self, now_ms: int) -> None:
        """A heartbeat of the client has arrived."""
        if self.due_ms is not None:
            self.due_ms = now_ms + self._timeout_ms

    def heard(self, now_ms: int) -> None:
        """Any message has reached this master over the bus."""
        if now_ms - self._heard_ms > SILENCE_MS:
            self.renew(now_ms)
        self._heard_ms = now_ms

    def ran_out(self, now_ms: int) -> dict[str, Any] | None:
        """The error (as a dict) to report, once; None while the lease is valid."""
        if self.due_ms is None or now_ms < self.due_ms:
            return None
        if now_ms - self._heard_ms > SILENCE_MS:
            self.renew(now_ms)
            return None
        self.due_ms = None
        return ExternalError(
            "the job was cancelled: the client that watched it is gone",
            expected=f"a heartbeat of the client within {CLIENT_HEARTBEAT_TIMEOUT_MS.key}",
            got=f"none for {self._timeout_ms / 1000:g} s",
            remedy="run the query again, or INSERT its rows INTO a table: such a job needs no client",
        ).to_dict()

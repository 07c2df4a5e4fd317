"""Handles a server that does not answer: the pause before the next attempt, and a log event that says why no
rows move."""

from __future__ import annotations

import asyncio
import importlib.util
from typing import TYPE_CHECKING, TypeVar

from penstock.errors import ConnectorError, ExternalError
from penstock.log_events import EventLog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

_log = EventLog("penstock.connectors")

#: The pause before the second attempt and the longest pause, in seconds.
FIRST_PAUSE_S, MOST_PAUSE_S = 0.1, 5.0


class Away:
    """The attempts to reach one server. ``where``: the connector and the server, without credentials."""

    def __init__(self, where: str, *, first_s: float = FIRST_PAUSE_S, most_s: float = MOST_PAUSE_S) -> None:
        self._where = where
        self._first_s, self._most_s = first_s, most_s
        self._said = ""
        #: Failed attempts since the server last answered.
        self.attempts = 0

    @property
    def reason(self) -> str | None:
        """The server and the last error, while it does not answer."""
        return f"{self._where}: {self._said}" if self.attempts else None

    def failed(self, error: BaseException) -> float:
        """An attempt failed: logs it, once for each reason, and returns the seconds to wait before the next
        attempt."""
        self.attempts += 1
        reason = str(error) or type(error).__name__
        if reason != self._said:
            self._said = reason
            _log.warning("connector_server_away", where=self._where, error=reason)
        return min(self._most_s, self._first_s * 2.0 ** (self.attempts - 1))

    def answered(self) -> None:
        """The server answered."""
        if self.attempts:
            _log.info("connector_server_back", where=self._where, attempts=self.attempts)
        self.attempts, self._said = 0, ""


async def patiently(
    call: Callable[[], Awaitable[T]],
    away: Away,
    retries: int | None,
    after: type[ExternalError] = ExternalError,
) -> T:
    """The result of ``call``, which is called again after an error of the class ``after``. ``retries``: the most
    repetitions; None: no limit."""
    while True:
        try:
            found = await call()
        except after as err:
            pause_s = away.failed(err)
            if retries is not None and away.attempts > retries:
                raise
            await asyncio.sleep(pause_s)
            continue
        away.answered()
        return found


def need_package(module: str, package: str, extra: str, owner: str) -> None:
    """Raises a ConnectorError that names the extra, if the client library ``package`` is not installed.

    ``module``: the module to import; ``owner``: the connector, for the error.
    """
    if importlib.util.find_spec(module) is None:
        raise ConnectorError(
            "the connector's client library is not installed",
            expected=f"the Python package {package}",
            got="no such package",
            where=owner,
            remedy=f"pip install 'penstock[{extra}]', on every machine that plans or runs the job",
        )

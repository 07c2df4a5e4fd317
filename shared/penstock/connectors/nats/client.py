"""A connection to NATS; turns JetStream's error responses into Penstock's errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.config import NATS_URL
from penstock.connectors.nats.subjects import overlaps
from penstock.errors import BrokerError, ConnectorError, PenstockError, nearest
from penstock.log_events import EventLog
from penstock.redaction import without_credentials

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from nats.aio.client import Client

_log = EventLog("penstock.connectors.nats")

#: How long a refused first connection is tried again, in seconds. Short, because a wrong address is reported
#: only after three attempts of the job.
CONNECT_TIMEOUT_S = 2.0
#: How long a slow connection attempt may take, in seconds: this process or the machine may be busy.
SLOW_CONNECT_S = 30
API_TIMEOUT_S = 5.0

#: Headers that Penstock's own messages carry.
END_HEADER = "Penstock-End-Of-Stream"
BATCH_HEADER = "Penstock-Batch"
TRANSACTION_HEADER = "Penstock-Transaction"

_STREAM_NOT_FOUND = 10059
_JETSTREAM_NOT_ENABLED = (10039, 10076)


def server_url(options: Mapping[str, Any], config: Mapping[str, str]) -> str:
    """The URL of the NATS server: the table's option, else the configuration's."""
    return options.get("url") or NATS_URL.read(config)


async def connect(
    url: str, name: str, *, on_reconnect: Callable[[Client], Awaitable[None]] | None = None
) -> Client:
    """A client that reconnects for ever once it was connected; ``BrokerError`` when the
    first connection fails."""
    from penstock import reconnecting

    shown = without_credentials(url)
    last = ""

    def on_error(client: Client, text: str) -> None:
        nonlocal last
        if last != text:
            _log.warning("nats_error", url=shown, error=text)
        last = text

    try:
        return await reconnecting.connect(
            url,
            name=name,
            deadline_s=SLOW_CONNECT_S,
            error_ends_it_after_s=CONNECT_TIMEOUT_S,
            reconnect_wait_s=0.2,
            pending_bytes=16 * 1024 * 1024,
            on_error=on_error,
            on_reconnect=on_reconnect,
        )
    except reconnecting.ConnectingFailedError as err:
        raise BrokerError(
            f"cannot connect to NATS at {shown}",
            expected="a nats-server with JetStream that accepts connections",
            got=str(err),
            where="connector 'nats', option 'url'",
            remedy="start one there (nats-server -js -sd DIR), or set 'url' (or nats.url) to where it runs",
        ) from err


class JetStreamError(Exception):
    """An error response of the JetStream API."""

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(f"{description} (code {code}, err_code {err_code})")
        self.code = code
        self.err_code = err_code
        self.description = description


class JetStreamApi:
    """Sends requests to ``$JS.API``; responses are plain dicts."""

    def __init__(self, client: Client, url: str) -> None:
        self.client = client
        #: without credentials
        self.url = without_credentials(url)

    def away(self) -> str | None:
        """The server, while the connection is lost; None: it is there."""
        return None if self.client.is_connected else f"connector 'nats', {self.url}: the connection is lost"

    async def request(self, verb: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return the response. Raises ``JetStreamError`` for an error response,
        ``BrokerError`` if no response comes."""
        import nats.errors

        subject = f"$JS.API.{verb}"
        try:
            data = msgspec.json.encode(body) if body is not None else b""
            reply = await self.client.request(subject, data, timeout=API_TIMEOUT_S)
        except nats.errors.NoRespondersError as err:
            raise self._no_jetstream() from err
        except (TimeoutError, nats.errors.Error, OSError) as err:
            raise BrokerError(
                f"NATS at {self.url} does not answer",
                expected=f"a reply to {subject} within {API_TIMEOUT_S:g} s",
                got=f"{type(err).__name__} {err}".strip(),
                where="connector 'nats'",
                remedy="check that the server runs and its JetStream is healthy",
            ) from err
        answer = msgspec.json.decode(reply.data)
        if error := answer.get("error"):
            if error.get("err_code") in _JETSTREAM_NOT_ENABLED:
                raise self._no_jetstream()
            raise JetStreamError(error.get("code", 0), error.get("err_code", 0), error.get("description", ""))
        return answer

    def _no_jetstream(self) -> BrokerError:
        return BrokerError(
            f"NATS at {self.url} has no JetStream",
            expected="a nats-server with JetStream enabled",
            got="nobody answers the JetStream API",
            where="connector 'nats'",
            remedy="start it with JetStream: nats-server -js -sd DIR",
        )

    async def stream_names(self, subject: str | None = None) -> list[str]:
        """The names of all streams, or of those with the subject."""
        answer = await self.request("STREAM.NAMES", {"subject": subject} if subject else {})
        return answer.get("streams") or []

    async def stream_info(self, stream: str, *, subjects: str | None = None) -> dict[str, Any]:
        """Configuration and state; with ``subjects`` the state's ``subjects`` map too."""
        try:
            if subjects is None:
                return await self.request(f"STREAM.INFO.{stream}")
            return await self._with_subjects(stream, subjects)
        except JetStreamError as err:
            if err.err_code != _STREAM_NOT_FOUND:
                raise self.refused(f"STREAM.INFO of '{stream}'", err) from err
            known = await self.stream_names()
            raise ConnectorError(
                f"there is no stream '{stream}' on {self.url}",
                expected="an existing JetStream stream",
                got="streams: " + (", ".join(known) or "none"),
                where="connector 'nats', option 'stream'",
                remedy=nearest(stream, known) or f"create it: nats stream add {stream}",
            ) from err

    async def _with_subjects(self, stream: str, subjects: str) -> dict[str, Any]:
        found: dict[str, int] = {}
        while True:
            body = {"subjects_filter": subjects, "offset": len(found)}
            info = await self.request(f"STREAM.INFO.{stream}", body)
            page = info["state"].get("subjects") or {}
            found.update(page)
            if not page or len(found) >= info.get("total", 0):
                info["state"]["subjects"] = found
                return info

    async def find_stream(self, subject: str) -> str:
        """The one stream that listens on ``subject``."""
        names = await self.stream_names(subject)
        if len(names) == 1:
            return names[0]
        known = await self.stream_names()
        raise ConnectorError(
            f"{'several streams listen' if names else 'no stream listens'} on subject '{subject}' at {self.url}",
            expected="one stream that captures the subject",
            got="streams: " + (", ".join(names or known) or "none"),
            where="connector 'nats', option 'subject'",
            remedy="say which with 'stream' = '…'"
            + ("" if names else ", or let a sink make it: 'stream.create' = 'true'"),
        )

    async def last_message(self, stream: str, subject: str) -> dict[str, Any] | None:
        """``{"seq", "data" (base64), "hdrs" …}`` of the last message on a subject."""
        try:
            answer = await self.request(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})
        except JetStreamError as err:
            if err.code == 404:
                return None
            raise self.refused(f"the last message of '{subject}'", err) from err
        return answer["message"]

    async def has_from(self, stream: str, subject: str, sequence: int) -> bool:
        """Whether the stream holds a message on ``subject`` (wildcards allowed) at or after ``sequence``. The
        store is asked, because a consumer's pending count may lag behind the store."""
        try:
            await self.request(f"STREAM.MSG.GET.{stream}", {"next_by_subj": subject, "seq": sequence})
        except JetStreamError as err:
            if err.code == 404:
                return False
            raise self.refused(f"the next message of '{subject}'", err) from err
        return True

    def refused(self, what: str, err: Exception) -> PenstockError:
        """The error for a refused request."""
        return BrokerError(
            f"JetStream at {self.url} refused {what}",
            got=str(err),
            where="connector 'nats'",
            remedy="see the description; check the account's permissions and limits",
        )


def check_subject(stream: str, info: Mapping[str, Any], subject: str) -> None:
    """ConnectorError if no subject of the stream can match ``subject``."""
    config = info["config"]
    subjects = config.get("subjects") or []
    if subjects and not any(overlaps(s, subject) for s in subjects):
        raise ConnectorError(
            f"stream '{stream}' has no subject that matches '{subject}'",
            expected="a filter over " + ", ".join(subjects),
            got=repr(subject),
            where="connector 'nats', option 'subject'",
            remedy=nearest(subject, subjects) or "use a subject of the stream",
        )
